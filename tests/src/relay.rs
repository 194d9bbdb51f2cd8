//! A mail relay on loopback: a public SMTP server's session (mailin) over a socket of ours, with
//! STARTTLS, TLS from the first byte, or neither, and AUTH where it is asked for. A public parser
//! reads the mails.

use std::io::{BufRead as _, BufReader, Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mail_parser::MessageParser;
use mailin::{Action, AuthMechanism, Handler, Response, Session, SessionBuilder, response};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};

use crate::artefacts::Folder;
use crate::patience::until;

/// The user and the password of a sign-in.
pub const LOGIN: (&str, &str) = ("charter", "relay-password-c0ffee");

/// How the relay's connections are made private.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Security {
    /// STARTTLS.
    Upgraded,
    /// TLS from the first byte.
    Wrapped,
    /// None is offered.
    None,
}

/// A mail that was taken.
#[derive(Clone, Debug)]
pub struct Received {
    /// The envelope's recipients.
    pub to: Vec<String>,
    /// The envelope's sender.
    pub from: String,
    /// The user who had signed in.
    pub user: Option<String>,
    /// Whether it came by TLS.
    pub private: bool,
    /// All of it.
    pub bytes: Vec<u8>,
}

impl Received {
    /// The subject, decoded.
    pub fn subject(&self) -> String {
        self.parse(|message| message.subject().unwrap_or_default().to_owned())
    }
    /// The text, decoded.
    pub fn text(&self) -> String {
        self.parse(|message| message.body_text(0).unwrap_or_default().into_owned())
    }
    /// The Message-ID.
    pub fn id(&self) -> String {
        self.parse(|message| message.message_id().unwrap_or_default().to_owned())
    }
    /// The names of its headers, in small letters.
    pub fn headers(&self) -> Vec<String> {
        self.parse(|message| {
            message.headers().iter().map(|header| header.name().to_ascii_lowercase()).collect()
        })
    }
    /// The one link of its text: path and query.
    #[track_caller]
    pub fn link(&self) -> String {
        let text = self.text();
        let links: Vec<&str> =
            text.split_whitespace().filter(|word| word.contains("://")).collect();
        let [link] = links[..] else { panic!("not one link in {text}") };
        let path = link.splitn(4, '/').nth(3).unwrap_or_default();
        format!("/{path}")
    }
    fn parse<T>(&self, look: impl FnOnce(&mail_parser::Message<'_>) -> T) -> T {
        match MessageParser::default().parse(&self.bytes) {
            Some(message) => look(&message),
            None => panic!("no mail: {}", String::from_utf8_lossy(&self.bytes)),
        }
    }
}

/// The state of the relay, and how it answers.
#[derive(Debug, Default)]
struct State {
    taken: Vec<Received>,
    tries: usize,
    answers: Option<u16>,
}

/// A running relay; it ends with the test.
#[derive(Debug)]
pub struct Relay {
    address: SocketAddr,
    security: Security,
    login: bool,
    authority: String,
    state: Arc<Mutex<State>>,
    open: Arc<AtomicBool>,
    _folder: Folder,
}

impl Relay {
    /// A relay that takes mails over STARTTLS from whoever signs in.
    pub fn start() -> Self {
        Self::of(Security::Upgraded, true)
    }

    /// A relay like this; with `login` nobody mails without signing in.
    pub fn of(security: Security, login: bool) -> Self {
        let folder = Folder::new();
        let (authority, config) = certificates(folder.path());
        let listener = TcpListener::bind("127.0.0.1:0")
            .unwrap_or_else(|error| panic!("cannot listen: {error}"));
        let address = listener.local_addr().unwrap_or_else(|error| panic!("no address: {error}"));
        let (state, open) =
            (Arc::new(Mutex::new(State::default())), Arc::new(AtomicBool::new(true)));
        let (own, opened) = (state.clone(), open.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (state, config, opened) = (own.clone(), config.clone(), opened.clone());
                std::thread::spawn(move || {
                    // One that is closed hangs up on whoever comes.
                    if opened.load(Ordering::SeqCst) {
                        let _ = serve(stream, security, login, &config, &state);
                    }
                });
            }
        });
        Self { address, security, login, authority, state, open, _folder: folder }
    }

    /// Its address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The authority that vouches for it, in PEM.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The binding by which a host mails through it.
    pub fn binding(&self) -> Value {
        let scheme = if self.security == Security::Wrapped { "smtps" } else { "smtp" };
        let mut options = json!({ "from": "Charter <charter@relay.example>" });
        if self.security == Security::None {
            options["plain"] = json!(true);
        } else {
            options["ca"] = json!(self.authority);
        }
        let mut binding =
            json!({ "kind": "smtp-submission", "url": format!("{scheme}://{}", self.address) });
        binding["credential"] = if self.login { json!(LOGIN.1) } else { Value::Null };
        if self.login {
            options["user"] = json!(LOGIN.0);
        }
        binding["options"] = options;
        binding
    }

    /// Hangs up on whoever comes, until it is opened.
    pub fn close(&self) {
        self.open.store(false, Ordering::SeqCst);
    }

    /// Takes mails again.
    pub fn open(&self) {
        self.open.store(true, Ordering::SeqCst);
    }

    /// Answers each mail with this code from now on; `None` takes them.
    pub fn answers(&self, code: Option<u16>) {
        self.state().answers = code;
    }

    /// How many mails were offered, taken or not.
    pub fn tries(&self) -> usize {
        self.state().tries
    }

    /// The mails so far.
    pub fn mails(&self) -> Vec<Received> {
        self.state().taken.clone()
    }

    /// The mails for this address.
    pub fn to(&self, email: &str) -> Vec<Received> {
        self.mails().into_iter().filter(|mail| mail.to.iter().any(|to| to == email)).collect()
    }

    /// Waits until there are so many for this address; answers them.
    #[track_caller]
    pub fn hears(&self, email: &str, count: usize) -> Vec<Received> {
        until("the relay has the mail", || self.to(email).len() >= count);
        self.to(email)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An authority of our own, and what it vouches for: this machine, for two days.
fn certificates(folder: &Path) -> (String, Arc<ServerConfig>) {
    let openssl = |arguments: &[&str]| {
        let made = Command::new("openssl").args(arguments).current_dir(folder).output();
        let made = made.unwrap_or_else(|error| {
            panic!("cannot start openssl (`apt-get install openssl`): {error}")
        });
        assert!(
            made.status.success(),
            "openssl {arguments:?}: {}",
            String::from_utf8_lossy(&made.stderr)
        );
    };
    let curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    openssl(
        &[
            &[
                "req",
                "-x509",
                "-days",
                "2",
                "-subj",
                "/CN=authority",
                "-keyout",
                "ca.key",
                "-out",
                "ca.pem",
            ][..],
            &curve,
        ]
        .concat(),
    );
    openssl(&[&["req", "-new", "-subj", "/CN=localhost", "-keyout", "key.pem", "-out", "asked.pem"][..], &curve].concat());
    let file = |name: &str| folder.join(name);
    let write = |name: &str, text: &str| {
        std::fs::write(file(name), text)
            .unwrap_or_else(|error| panic!("cannot write {name}: {error}"));
    };
    write("names", "subjectAltName=IP:127.0.0.1,DNS:localhost\nbasicConstraints=CA:FALSE\n");
    let signed = [
        "x509",
        "-req",
        "-in",
        "asked.pem",
        "-CA",
        "ca.pem",
        "-CAkey",
        "ca.key",
        "-CAcreateserial",
        "-days",
        "2",
    ];
    openssl(&[&signed[..], &["-extfile", "names", "-out", "certificate.pem"]].concat());
    let chain: Vec<_> = CertificateDer::pem_file_iter(file("certificate.pem"))
        .and_then(Iterator::collect)
        .unwrap_or_else(|error| panic!("no certificate: {error}"));
    let key = PrivateKeyDer::from_pem_file(file("key.pem"))
        .unwrap_or_else(|error| panic!("no key: {error}"));
    let config =
        ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| builder.with_no_client_auth().with_single_cert(chain, key))
            .unwrap_or_else(|error| panic!("no TLS: {error}"));
    let authority = std::fs::read_to_string(file("ca.pem"))
        .unwrap_or_else(|error| panic!("no authority: {error}"));
    (authority, Arc::new(config))
}

/// One client's mail, as the server's library hands it over.
struct Desk {
    state: Arc<Mutex<State>>,
    private: Arc<AtomicBool>,
    mail: Received,
}

impl Desk {
    fn admit(&mut self, user: &str, password: &str) -> Response {
        if (user, password) != LOGIN {
            return response::INVALID_CREDENTIALS;
        }
        self.mail.user = Some(user.to_owned());
        response::AUTH_OK
    }
}

impl Handler for Desk {
    fn mail(&mut self, _: IpAddr, _: &str, from: &str) -> Response {
        from.clone_into(&mut self.mail.from);
        self.mail.to.clear();
        self.mail.bytes.clear();
        response::OK
    }
    fn rcpt(&mut self, to: &str) -> Response {
        self.mail.to.push(to.to_owned());
        response::OK
    }
    fn data(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        self.mail.bytes.extend_from_slice(bytes);
        Ok(())
    }
    fn data_end(&mut self) -> Response {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.tries += 1;
        if let Some(code) = state.answers {
            return Response::custom(code, "as the test says".into());
        }
        self.mail.private = self.private.load(Ordering::SeqCst);
        state.taken.push(self.mail.clone());
        response::OK
    }
    fn auth_plain(&mut self, _: &str, user: &str, password: &str) -> Response {
        self.admit(user, password)
    }
    fn auth_login(&mut self, user: &str, password: &str) -> Response {
        self.admit(user, password)
    }
}

fn serve(
    stream: TcpStream,
    security: Security,
    login: bool,
    config: &Arc<ServerConfig>,
    state: &Arc<Mutex<State>>,
) -> std::io::Result<()> {
    let private = Arc::new(AtomicBool::new(false));
    let mail = Received {
        to: Vec::new(),
        from: String::new(),
        user: None,
        private: false,
        bytes: Vec::new(),
    };
    let desk = Desk { state: state.clone(), private: private.clone(), mail };
    let mut builder = SessionBuilder::new("relay.example");
    if security == Security::Upgraded {
        builder.enable_start_tls();
    }
    if login {
        builder.enable_auth(AuthMechanism::Plain);
    }
    let mut session = builder.build(IpAddr::V4(Ipv4Addr::LOCALHOST), desk);
    let tls = |stream| {
        let connection = ServerConnection::new(config.clone()).map_err(std::io::Error::other)?;
        std::io::Result::Ok(StreamOwned::new(connection, stream))
    };
    if security == Security::Wrapped {
        private.store(true, Ordering::SeqCst);
        session.tls_active();
        return talk(&mut session, &mut BufReader::new(tls(stream)?), true).map(drop);
    }
    let mut plain = BufReader::new(stream);
    if talk(&mut session, &mut plain, true)? {
        private.store(true, Ordering::SeqCst);
        session.tls_active();
        talk(&mut session, &mut BufReader::new(tls(plain.into_inner())?), false)?;
    }
    Ok(())
}

/// Speaks until the client leaves, or TLS begins: then answers true.
fn talk<S: Read + Write>(
    session: &mut Session<Desk>,
    stream: &mut BufReader<S>,
    greets: bool,
) -> std::io::Result<bool> {
    let say = |stream: &mut BufReader<S>, response: &Response| {
        let mut text = Vec::new();
        response.write_to(&mut text)?;
        stream.get_mut().write_all(&text)?;
        stream.get_mut().flush()
    };
    if greets {
        say(stream, &session.greeting())?;
    }
    loop {
        let mut line = Vec::new();
        if stream.read_until(b'\n', &mut line)? == 0 {
            return Ok(false);
        }
        let response = session.process(&line);
        if response.action != Action::NoReply {
            say(stream, &response)?;
        }
        match response.action {
            Action::UpgradeTls => return Ok(true),
            Action::Close => return Ok(false),
            Action::Reply | Action::NoReply => {}
        }
    }
}

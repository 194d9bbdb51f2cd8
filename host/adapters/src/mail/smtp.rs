//! One mail to the relay: a connection to the address that was checked, TLS for the relay's name,
//! then the SMTP client's session.
//!
//! STARTTLS is done here and not by the client: whatever the other side said ahead of TLS must not
//! be taken for an answer behind it. Nothing is sent in the clear but where the operator says so,
//! and then to this machine alone. No word of a mail is logged, and none of the relay's.

use std::sync::Arc;
use std::time::Duration;

use lettre::transport::smtp::Error;
use lettre::transport::smtp::authentication::{Credentials, Mechanism};
use lettre::transport::smtp::client::AsyncSmtpConnection;
use lettre::transport::smtp::commands::{Data, Mail, Rcpt};
use lettre::transport::smtp::extension::{ClientId, Extension, MailBodyParameter, MailParameter};
use lettre::transport::smtp::response::Response;
use rustls_pki_types::ServerName;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::letter::Sent;
use super::relay::{Relay, Security};
use super::reply::{UNFIT, Verdict, client_failure, connection_failure};
use super::wire::{REPLY_BYTES_MAX, TooMuch, wire};
use crate::egress::Gate;

/// How long one step of the conversation may take.
const STEP: Duration = Duration::from_secs(20);
/// How long the relay may take over the mail itself.
const TAKING: Duration = Duration::from_secs(60);
/// How long it may take to say good-bye; the mail is its own by then.
const GOODBYE: Duration = Duration::from_secs(2);
/// The ways to sign in, the better one first.
const MECHANISMS: [Mechanism; 2] = [Mechanism::Plain, Mechanism::Login];

/// The fate of a mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fate {
    /// The relay has it.
    Sent,
    /// Not now, and why: it is tried again.
    Later(String),
    /// The relay does not take it, and why.
    Never(String),
}

/// No error is words by itself: those of the client and of TLS hold what the relay chose.
fn retry_later(words: impl Into<String>) -> Fate {
    Fate::Later(words.into())
}

fn retry_lost(error: std::io::Error) -> Fate {
    retry_later(connection_failure(&error))
}

/// Hands a mail to the relay. `hello` is the name that the host goes by.
pub async fn submit(gate: &Gate, relay: &Relay, hello: &str, sent: &Sent) -> Fate {
    match conversation(gate, relay, hello, sent).await {
        Ok(()) => Fate::Sent,
        Err(fate) => fate,
    }
}

async fn conversation(gate: &Gate, relay: &Relay, hello: &str, sent: &Sent) -> Result<(), Fate> {
    let connected = gate.connect(&relay.host, relay.port).await;
    let stream = connected.map_err(|error| retry_later(error.to_string()))?;
    let peer = stream.peer_addr().map_err(retry_lost)?;
    let wire = match relay.security {
        // The address decides, however the name led there.
        Security::None if !peer.ip().to_canonical().is_loopback() => {
            return Err(retry_later("plain text stays on this machine"));
        }
        Security::None => wire(stream, b"", peer),
        Security::Wrapped => wire(private(relay, stream).await?, b"", peer),
        Security::Upgraded => {
            let stream = step(start_tls(stream, hello)).await??;
            // The greeting was said ahead of TLS; the client expects one at the beginning of what
            // it is handed.
            wire(private(relay, stream).await?, b"220 by TLS\r\n", peer)
        }
    };
    let hello = ClientId::Domain(hello.to_owned());
    let mut session = step(AsyncSmtpConnection::connect_with_transport(wire, &hello))
        .await?
        .map_err(|error| retry_later(client_failure(&error)))?;
    if let Some((user, password)) = &relay.login {
        if session.server_info().get_auth_mechanism(&MECHANISMS).is_none() {
            return Err(retry_later("the relay offers no way to sign in that the host knows"));
        }
        let credentials = Credentials::new(user.clone(), password.reveal().to_owned());
        let signed_in = step(session.auth(&MECHANISMS, &credentials)).await?;
        // Any code is for later: the operator can mend it, and the mail is no worse for it.
        signed_in.map_err(|error| {
            let why = client_failure(&error);
            retry_later(format!("the relay does not take the credential: {why}"))
        })?;
    }
    let taken = tokio::time::timeout(TAKING, hand_over(&mut session, sent)).await;
    let taken = taken.unwrap_or_else(|_| Err(retry_later("the relay did not answer in time")));
    let _ = tokio::time::timeout(GOODBYE, session.quit()).await;
    taken
}

/// The mail itself. Step by step, and not by the client's one call for all of them: that waits for
/// a good-bye before it says why a mail was refused.
async fn hand_over(session: &mut AsyncSmtpConnection, sent: &Sent) -> Result<(), Fate> {
    let from = sent.envelope.from().cloned();
    let addresses = sent.envelope.to().iter().chain(&from);
    let mut parameters = Vec::new();
    if !addresses.map(ToString::to_string).all(|address| address.is_ascii()) {
        if !session.server_info().supports_feature(Extension::SmtpUtfEight) {
            return Err(Fate::Never("the relay carries no address that is not ASCII".into()));
        }
        parameters =
            vec![MailParameter::SmtpUtfEight, MailParameter::Body(MailBodyParameter::EightBitMime)];
    }
    check_answer(session.command(Mail::new(from, parameters)).await, 250)?;
    for to in sent.envelope.to() {
        check_answer(session.command(Rcpt::new(to.clone(), Vec::new())).await, 250)?;
    }
    check_answer(session.command(Data).await, 354)?;
    check_answer(session.message(&sent.bytes).await, 250)
}

/// Whether a step was answered so: what is refused for good is, and anything else may be otherwise
/// the next time.
fn check_answer(answer: Result<Response, Error>, code: u16) -> Result<(), Fate> {
    match answer {
        Ok(answer) if answer.has_code(code) || (code == 250 && answer.has_code(251)) => Ok(()),
        Ok(answer) => {
            let text = answer.first_line().unwrap_or_default();
            Err(retry_later(Verdict::of(answer.code().into(), text).to_string()))
        }
        Err(error) if error.is_permanent() => Err(Fate::Never(client_failure(&error))),
        Err(error) => Err(retry_later(client_failure(&error))),
    }
}

async fn step<T>(work: impl Future<Output = T>) -> Result<T, Fate> {
    tokio::time::timeout(STEP, work)
        .await
        .map_err(|_| retry_later("the relay did not answer in time"))
}

async fn private(
    relay: &Relay,
    stream: TcpStream,
) -> Result<tokio_rustls::client::TlsStream<TcpStream>, Fate> {
    // Both are about what the operator has bound.
    let unfit = |error: &dyn std::error::Error| retry_later(error.to_string());
    let name = ServerName::try_from(relay.host.clone()).map_err(|error| unfit(&error))?;
    let config = crate::egress::client_config(&relay.authorities).map_err(|error| unfit(&error))?;
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    step(connector.connect(name, stream)).await?.map_err(|error| {
        retry_later(format!("TLS with the relay failed: {}", connection_failure(&error)))
    })
}

/// Greeting, EHLO and STARTTLS, up to where TLS begins.
async fn start_tls(mut stream: TcpStream, hello: &str) -> Result<TcpStream, Fate> {
    let mut unread = Vec::new();
    expect(reply(&mut stream, &mut unread).await?, 220)?;
    stream.write_all(format!("EHLO {hello}\r\n").as_bytes()).await.map_err(retry_lost)?;
    let offered = expect(reply(&mut stream, &mut unread).await?, 250)?;
    let starts = |line: &String| {
        line.get(4..).is_some_and(|word| word.trim().eq_ignore_ascii_case("STARTTLS"))
    };
    if !offered.iter().any(starts) {
        return Err(retry_later(
            "the relay does not offer STARTTLS, and nothing is sent in the clear",
        ));
    }
    stream.write_all(b"STARTTLS\r\n").await.map_err(retry_lost)?;
    expect(reply(&mut stream, &mut unread).await?, 220)?;
    if !unread.is_empty() {
        return Err(retry_later("somebody said more ahead of TLS than the relay may"));
    }
    Ok(stream)
}

fn expect(lines: Vec<String>, code: u16) -> Result<Vec<String>, Fate> {
    match lines.last().and_then(|last| Verdict::read(last)) {
        Some(verdict) if verdict.is(code) => Ok(lines),
        Some(verdict) => Err(retry_later(verdict.to_string())),
        None => Err(retry_later(UNFIT)),
    }
}

/// One reply, its lines without their ends. Bytes that came behind it stay in `unread`.
async fn reply(stream: &mut TcpStream, unread: &mut Vec<u8>) -> Result<Vec<String>, Fate> {
    let (mut lines, mut bytes) = (Vec::new(), 0);
    loop {
        while let Some(end) = unread.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = unread.drain(..=end).collect();
            bytes += line.len();
            let line = String::from_utf8_lossy(&line).trim_end().to_owned();
            let last = line.as_bytes().get(3) != Some(&b'-');
            lines.push(line);
            if last {
                return Ok(lines);
            }
        }
        if bytes + unread.len() > REPLY_BYTES_MAX {
            return Err(retry_later(TooMuch.to_string()));
        }
        let mut piece = [0; 1024];
        match stream.read(&mut piece).await.map_err(retry_lost)? {
            0 => return Err(retry_later("the relay hung up")),
            length => unread.extend_from_slice(&piece[..length]),
        }
    }
}

//! A mail relay that says back what it hears, which no public server does: the password of a
//! sign-in, the link of a mail, or one reply without an end.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use crate::relay::{LOGIN, Received};

/// How the relay misbehaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// Takes no password, and says it back.
    Password,
    /// Refuses each mail for good, and says its link back.
    Link,
    /// Answers EHLO with a line that does not end.
    Endless,
}

/// A running relay, in plain text on loopback; it ends with the test.
#[derive(Debug)]
pub struct Parrot {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<String>>>,
}

impl Parrot {
    /// A relay of this manner.
    pub fn start(manner: Manner) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .unwrap_or_else(|error| panic!("cannot listen: {error}"));
        let address = listener.local_addr().unwrap_or_else(|error| panic!("no address: {error}"));
        let heard = Arc::new(Mutex::new(Vec::new()));
        let own = heard.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let heard = own.clone();
                std::thread::spawn(move || drop(serve(stream, manner, &heard)));
            }
        });
        Self { address, heard }
    }

    /// The binding by which a host mails through it.
    pub fn binding(&self) -> Value {
        json!({
            "kind": "smtp-submission",
            "url": format!("smtp://{}", self.address),
            "credential": LOGIN.1,
            "options": { "from": "Charter <charter@relay.example>", "user": LOGIN.0, "plain": true },
        })
    }

    /// The words of sign-ins and the links of mails that it has said back.
    pub fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn serve(stream: TcpStream, manner: Manner, heard: &Mutex<Vec<String>>) -> std::io::Result<()> {
    let note = |words: &str| {
        heard.lock().unwrap_or_else(PoisonError::into_inner).push(words.to_owned());
    };
    let mut lines = BufReader::new(stream);
    lines.get_mut().write_all(b"220 relay.example\r\n")?;
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line)? == 0 {
            return Ok(());
        }
        let mut words = line.split_whitespace();
        let reply = match words.next().unwrap_or_default() {
            "EHLO" if manner == Manner::Endless => loop {
                lines.get_mut().write_all(&b"250-".repeat(1024))?;
            },
            "EHLO" => "250-relay.example\r\n250 AUTH PLAIN\r\n".to_owned(),
            "AUTH" if manner == Manner::Password => {
                let word = words.next_back().unwrap_or_default();
                note(word);
                format!("535-5.7.8 {}\r\n535 5.7.8 {word}\r\n", LOGIN.1)
            }
            "AUTH" => "235 2.7.0 welcome\r\n".to_owned(),
            "DATA" => {
                lines.get_mut().write_all(b"354 go on\r\n")?;
                let mail = read_mail(&mut lines)?;
                note(&mail.link());
                format!("554 5.7.1 suspicious link {}\r\n", mail.link())
            }
            "QUIT" => return lines.get_mut().write_all(b"221 bye\r\n"),
            _ => "250 well\r\n".to_owned(),
        };
        lines.get_mut().write_all(reply.as_bytes())?;
    }
}

/// The mail up to the line that ends it.
fn read_mail(lines: &mut BufReader<TcpStream>) -> std::io::Result<Received> {
    let mut bytes = Vec::new();
    while !bytes.ends_with(b"\r\n.\r\n") {
        if lines.read_until(b'\n', &mut bytes)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    bytes.truncate(bytes.len() - b".\r\n".len());
    Ok(Received { to: Vec::new(), from: String::new(), user: None, private: false, bytes })
}

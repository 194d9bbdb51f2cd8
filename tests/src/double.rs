//! A web server of our own on loopback that stands where somebody else's would: a provider, a
//! public page, a collector.
//!
//! Reads requests as plainly as HTTP/1.1 allows, and hands each to whoever answers; knows nothing
//! of what they are about. Each connection carries one exchange.

use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

/// One request as it was heard, to its end.
#[derive(Clone, Debug)]
pub struct Heard {
    /// The method.
    pub method: String,
    /// The path with its query.
    pub target: String,
    /// The headers, their names in small letters.
    pub headers: Vec<(String, String)>,
    /// The whole body.
    pub body: Vec<u8>,
}

impl Heard {
    /// The header's value, where it was sent.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(sent, _)| sent == name).map(|(_, value)| value.as_str())
    }

    fn read(mut from: impl BufRead) -> std::io::Result<Self> {
        let broken_off = || Error::from(ErrorKind::UnexpectedEof);
        let mut line = String::new();
        from.read_line(&mut line)?;
        let mut words = line.split_whitespace();
        let (Some(method), Some(target), Some("HTTP/1.1")) =
            (words.next(), words.next(), words.next())
        else {
            return Err(broken_off());
        };
        let mut heard = Self {
            method: method.to_owned(),
            target: target.to_owned(),
            headers: Vec::new(),
            body: Vec::new(),
        };
        loop {
            let mut header = String::new();
            if from.read_line(&mut header)? == 0 {
                return Err(broken_off());
            }
            let Some((name, value)) = header.split_once(':') else { break };
            heard.headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        if heard
            .header("transfer-encoding")
            .is_some_and(|coding| coding.eq_ignore_ascii_case("chunked"))
        {
            heard.body = chunks(from)?;
            return Ok(heard);
        }
        let length =
            heard.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
        if from.take(length).read_to_end(&mut heard.body)? as u64 != length {
            return Err(broken_off());
        }
        Ok(heard)
    }
}

/// A body in chunks (RFC 9112, section 7.1), without its trailers.
fn chunks(mut from: impl BufRead) -> std::io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let mut line = String::new();
        from.read_line(&mut line)?;
        let size =
            line.trim().split(';').next().and_then(|size| u64::from_str_radix(size, 16).ok());
        let size = size.ok_or_else(|| Error::from(ErrorKind::InvalidData))?;
        if from.by_ref().take(size).read_to_end(&mut body)? as u64 != size {
            return Err(ErrorKind::UnexpectedEof.into());
        }
        // Each chunk ends its line; the last one is empty.
        from.read_line(&mut String::new())?;
        if size == 0 {
            return Ok(body);
        }
    }
}

/// The answer.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The headers beside those of the framing.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// Answers every request by `answer` until the process ends; says where it listens.
pub fn listen(answer: impl Fn(Heard) -> Reply + Send + Sync + 'static) -> SocketAddr {
    let listener =
        TcpListener::bind("127.0.0.1:0").unwrap_or_else(|error| panic!("cannot listen: {error}"));
    let address = listener.local_addr().unwrap_or_else(|error| panic!("no address: {error}"));
    let answer = Arc::new(answer);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let answer = answer.clone();
            // On a thread of its own: a client that opens a connection and says nothing holds up
            // nobody else. One that hangs up in the middle is its own business.
            std::thread::spawn(move || exchange(&stream, &*answer));
        }
    });
    address
}

fn exchange(mut stream: &TcpStream, answer: &impl Fn(Heard) -> Reply) -> std::io::Result<()> {
    let reply = answer(Heard::read(BufReader::new(stream))?);
    let mut head = format!(
        "HTTP/1.1 {} Told\r\nconnection: close\r\ncontent-length: {}\r\n",
        reply.status,
        reply.body.len()
    );
    for (name, value) in &reply.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    stream.write_all(&reply.body)?;
    stream.flush()
}

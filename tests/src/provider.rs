//! A web server of our own that stands where a provider or a public page would: it answers what it was told, on loopback.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// What one path answers.
#[derive(Clone, Debug)]
pub struct Page {
    /// `GET`, or absent for any method.
    pub method: Option<String>,
    /// The path, without the query.
    pub path: String,
    /// The status.
    pub status: u16,
    /// Its headers.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// Serves the pages until the process ends; answers where. Connections are answered one by one and closed.
pub fn serve(pages: Vec<Page>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap_or_else(|error| panic!("cannot listen: {error}"));
    let address = listener.local_addr().unwrap_or_else(|error| panic!("no address: {error}"));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // A client that hangs up in the middle is its own business.
            let _ = answer(stream, &pages);
        }
    });
    address
}

fn answer(stream: TcpStream, pages: &[Page]) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split_whitespace();
    let (method, target) = (words.next().unwrap_or_default().to_owned(), words.next().unwrap_or_default().to_owned());
    let mut length = 0;
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header)? == 0 || header.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = header.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    std::io::copy(&mut reader.take(length), &mut std::io::sink())?;
    let path = target.split('?').next().unwrap_or_default();
    let fits = |page: &&Page| page.path == path && page.method.as_ref().is_none_or(|wanted| *wanted == method);
    let missing = Page { method: None, path: String::new(), status: 404, headers: Vec::new(), body: Vec::new() };
    let page = pages.iter().find(fits).unwrap_or(&missing);
    let mut head = format!("HTTP/1.1 {} Told\r\nconnection: close\r\ncontent-length: {}\r\n", page.status, page.body.len());
    for (name, value) in &page.headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    let mut stream = stream;
    stream.write_all(format!("{head}\r\n").as_bytes())?;
    stream.write_all(&page.body)?;
    stream.flush()
}

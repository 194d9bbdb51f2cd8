//! A client that says bytes and knows no rules: for what a well-behaved one never sends.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use tokio::net::TcpSocket;

use crate::client::runtime;

/// Nothing that a raw client waits for takes longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// A connection.
#[derive(Debug)]
pub struct Raw {
    stream: TcpStream,
}

impl Raw {
    /// Connects to the server at `base` (`http://127.0.0.1:1234`).
    pub fn connect(base: &str) -> Result<Self, String> {
        let authority = base.rsplit('/').next().unwrap_or_default();
        Self::over(TcpStream::connect(authority).map_err(|error| error.to_string())?)
    }

    /// Connects to the server at `base` from an address of this machine's own.
    pub fn connect_from(address: &str, base: &str) -> Result<Self, String> {
        let own: IpAddr = address.parse().map_err(|error| format!("{address}: {error}"))?;
        let authority = base.rsplit('/').next().unwrap_or_default();
        let server: SocketAddr = authority.parse().map_err(|error| format!("{base}: {error}"))?;
        let connect = async {
            let socket = if own.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
            socket.bind(SocketAddr::new(own, 0))?;
            let stream = socket.connect(server).await?.into_std()?;
            stream.set_nonblocking(false).map(|()| stream)
        };
        let connected: std::io::Result<TcpStream> = runtime().block_on(connect);
        Self::over(connected.map_err(|error| error.to_string())?)
    }

    fn over(stream: TcpStream) -> Result<Self, String> {
        stream.set_read_timeout(Some(PATIENCE)).map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        Ok(Self { stream })
    }

    /// Says these bytes; false once the server has hung up.
    pub fn say(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// Reads some of what comes; false once the server has hung up.
    pub fn hear(&mut self) -> bool {
        self.stream.read(&mut [0; 4096]).is_ok_and(|count| count > 0)
    }

    /// Says that nothing more comes.
    pub fn finish(&self) {
        let _ = self.stream.shutdown(Shutdown::Write);
    }

    /// Reads the bytes that come first.
    pub fn first(&mut self) -> String {
        let mut piece = [0; 1024];
        let count = self.stream.read(&mut piece).unwrap_or_else(|error| panic!("{error}"));
        String::from_utf8_lossy(&piece[..count]).into_owned()
    }

    /// Reads up to the end of the connection. Bytes before an early end count too.
    pub fn rest(&mut self) -> String {
        let mut heard = Vec::new();
        let mut piece = [0; 4096];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => break,
                Ok(count) => heard.extend_from_slice(&piece[..count]),
                Err(error)
                    if matches!(
                        error.kind(),
                        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                    ) =>
                {
                    panic!(
                        "the connection is still open after {PATIENCE:?}; heard {:?}",
                        String::from_utf8_lossy(&heard)
                    )
                }
                Err(_) => break,
            }
        }
        String::from_utf8_lossy(&heard).into_owned()
    }

    /// One exchange on a connection of its own: says it, and reads to the end.
    pub fn exchange(base: &str, bytes: &[u8]) -> String {
        let mut raw = Self::connect(base).unwrap_or_else(|fault| panic!("{base}: {fault}"));
        // A server that answers early may hang up before it has heard all.
        raw.say(bytes);
        raw.rest()
    }
}

/// The statuses of the answers in what was heard.
pub fn statuses(heard: &str) -> Vec<u16> {
    heard
        .split("HTTP/1.1 ")
        .skip(1)
        .filter_map(|answer| answer.split(' ').next()?.parse().ok())
        .collect()
}

//! Stands between a store and its PostgreSQL server, and cuts the connection at the one moment that
//! no signal can hit: around COMMIT.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};

/// The event at the next COMMIT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cut {
    Nothing = 0,
    /// The database never hears of it.
    Before = 1,
    /// The database commits, and its answer is lost.
    After = 2,
    /// The database commits, and no word comes any more, nor that the connection has ended.
    Silence = 3,
}

/// A proxy on a port of its own.
pub struct Proxy {
    cut: Arc<AtomicU8>,
    port: u16,
    name: String,
}

impl Proxy {
    /// In front of the database that a URL of the private server names.
    pub async fn start(url: &str) -> Self {
        let (host, name) =
            url.strip_prefix("postgres://charter@").and_then(|rest| rest.split_once('/')).unwrap();
        let socket = PathBuf::from(host.replace("%2F", "/")).join(".s.PGSQL.5432");
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let cut = Arc::new(AtomicU8::new(Cut::Nothing as u8));
        let armed = cut.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = UnixStream::connect(&socket).await else { continue };
                tokio::spawn(carry(client, server, armed.clone()));
            }
        });
        Self { cut, port, name: name.into() }
    }

    pub fn url(&self) -> String {
        format!("postgres://charter@127.0.0.1:{}/{}", self.port, self.name)
    }

    pub fn arm(&self, cut: Cut) {
        self.cut.store(cut as u8, Ordering::SeqCst);
    }

    /// Whether the cut was made.
    pub fn is_spent(&self) -> bool {
        self.cut.load(Ordering::SeqCst) == Cut::Nothing as u8
    }
}

async fn carry(mut client: TcpStream, mut server: UnixStream, cut: Arc<AtomicU8>) {
    let (mut asked, mut told) = (vec![0; 65_536], vec![0; 65_536]);
    loop {
        tokio::select! {
            read = client.read(&mut asked) => {
                let Ok(read @ 1..) = read else { return };
                let commit = asked[..read].windows(7).any(|part| part == b"COMMIT\0");
                let now = if commit { cut.swap(Cut::Nothing as u8, Ordering::SeqCst) } else { 0 };
                if now == Cut::Before as u8 || server.write_all(&asked[..read]).await.is_err() {
                    return;
                }
                if now == Cut::Silence as u8 {
                    let _ = server.read(&mut told).await;
                    return std::future::pending().await;
                }
                if now == Cut::After as u8 {
                    // Its answer says that it is done; nobody hears it.
                    let _ = server.read(&mut told).await;
                    return;
                }
            }
            read = server.read(&mut told) => {
                let Ok(read @ 1..) = read else { return };
                if client.write_all(&told[..read]).await.is_err() {
                    return;
                }
            }
        }
    }
}

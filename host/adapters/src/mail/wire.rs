//! The connection to a relay as the SMTP client is handed it.
//!
//! The client reads a line to its end, however long it is. Invariant: a session reads so many bytes
//! and no more; they are counted behind TLS, where there is any.

use std::fmt::Debug;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use lettre::transport::smtp::client::AsyncTokioStream;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::conduit::{Conduit, Reads};
use crate::metered::meter;

/// Bytes of one reply ahead of TLS.
pub(super) const REPLY_BYTES_MAX: usize = 8 << 10;
/// Bytes of all replies to the client, one for each step; a relay's take one or two thousand.
const SESSION_BYTES_MAX: usize = 4 * REPLY_BYTES_MAX;

/// The relay has said more than a relay may.
#[derive(Debug, thiserror::Error)]
#[error("the relay says too much")]
pub(super) struct TooMuch;

/// The connection to this peer, on which this was said already.
pub(super) fn wire<S>(stream: S, said: &'static [u8], peer: SocketAddr) -> Box<dyn AsyncTokioStream>
where
    S: AsyncRead + AsyncWrite + Send + Sync + Unpin + Debug + 'static,
{
    let (stream, _) = meter(stream, SESSION_BYTES_MAX, || io::Error::other(TooMuch));
    Box::new(Conduit::new(stream, Replies { said, peer }))
}

/// Reads what was said on a connection already, and then what comes.
#[derive(Debug)]
struct Replies {
    said: &'static [u8],
    peer: SocketAddr,
}

impl Reads for Replies {
    fn poll_read<S: AsyncRead + Unpin>(
        &mut self,
        stream: Pin<&mut S>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.said.is_empty() {
            let (now, rest) = self.said.split_at(self.said.len().min(into.remaining()));
            into.put_slice(now);
            self.said = rest;
            return Poll::Ready(Ok(()));
        }
        stream.poll_read(cx, into)
    }
}

impl<S: AsyncRead + AsyncWrite + Send + Sync + Unpin + Debug> AsyncTokioStream
    for Conduit<S, Replies>
{
    fn peer_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.reads().peer)
    }
}

#[cfg(test)]
mod tests {
    use lettre::transport::smtp::client::AsyncSmtpConnection;
    use lettre::transport::smtp::extension::ClientId;
    use tokio::io::AsyncWriteExt as _;

    use super::*;

    #[tokio::test]
    async fn a_line_without_an_end_ends_the_session() {
        for end in ["", "\r\n"] {
            let piece = format!("250-{}{end}", "y".repeat(500));
            let (near, mut far) = tokio::io::duplex(4096);
            let talking = tokio::spawn(async move {
                let _ = far.write_all(b"220 hi\r\n250-relay\r\n").await;
                let mut said = 0;
                while far.write_all(piece.as_bytes()).await.is_ok() {
                    said += piece.len();
                }
                said
            });
            let wire = wire(near, b"", ([127, 0, 0, 1], 25).into());
            let hello = ClientId::Domain("host.example".into());
            let session = AsyncSmtpConnection::connect_with_transport(wire, &hello).await;
            let error = session.err().unwrap();
            assert!(error.to_string().contains("says too much"), "{error}");
            assert!(talking.await.unwrap() < 2 * SESSION_BYTES_MAX, "{end:?}");
        }
    }
}

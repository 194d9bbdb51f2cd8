//! A connection that reads so many bytes at most until its allowance is lifted: whatever the other
//! side says ahead of what is waited for, it is little.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};

use crate::conduit::{Conduit, Reads};

/// The bytes that a connection may still read; the largest number stands for all there is.
#[derive(Clone, Debug)]
pub(super) struct Allowance(Arc<AtomicUsize>);

impl Allowance {
    /// From now on it reads what comes.
    pub(super) fn lift(&self) {
        self.0.store(usize::MAX, Relaxed);
    }
}

/// See the module.
pub(super) type Metered<S> = Conduit<S, Allowance>;

/// The connection, and its allowance of so many bytes.
pub(super) fn meter<S>(stream: S, bytes: usize) -> (Metered<S>, Allowance) {
    let left = Allowance(Arc::new(AtomicUsize::new(bytes)));
    (Conduit::new(stream, left.clone()), left)
}

impl Reads for Allowance {
    fn poll_read<S: AsyncRead + Unpin>(
        &mut self,
        stream: Pin<&mut S>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let read = stream.poll_read(cx, into);
        let came = into.filled().len() - before;
        let take = |left: usize| match left {
            usize::MAX => Some(left),
            left => left.checked_sub(came),
        };
        match self.0.fetch_update(Relaxed, Relaxed, take) {
            Ok(_) => read,
            Err(_) => Poll::Ready(Err(io::Error::other("more came than was allowed"))),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn little_is_read_ahead_and_anything_behind() {
        let (near, mut far) = tokio::io::duplex(64);
        let (mut metered, allowance) = meter(near, 8);
        let mut piece = [0; 8];
        far.write_all(b"12345678").await.unwrap();
        metered.read_exact(&mut piece).await.unwrap();
        far.write_all(b"9").await.unwrap();
        assert!(metered.read(&mut piece).await.is_err());
        allowance.lift();
        far.write_all(b"12345678").await.unwrap();
        metered.read_exact(&mut piece).await.unwrap();
    }
}

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
pub(crate) struct Allowance {
    left: Arc<AtomicUsize>,
    /// The error of a connection on which more comes.
    exceeded: fn() -> io::Error,
}

impl Allowance {
    /// From now on it reads what comes.
    pub(crate) fn lift(&self) {
        self.left.store(usize::MAX, Relaxed);
    }
}

/// See the module.
pub(crate) type Metered<S> = Conduit<S, Allowance>;

/// The connection, and its allowance of so many bytes.
pub(crate) fn meter<S>(
    stream: S,
    bytes: usize,
    exceeded: fn() -> io::Error,
) -> (Metered<S>, Allowance) {
    let left = Arc::new(AtomicUsize::new(bytes));
    let allowance = Allowance { left, exceeded };
    (Conduit::new(stream, allowance.clone()), allowance)
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
        match self.left.fetch_update(Relaxed, Relaxed, take) {
            Ok(_) => read,
            Err(_) => Poll::Ready(Err((self.exceeded)())),
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
        let (mut metered, allowance) = meter(near, 8, || io::Error::other("too much"));
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

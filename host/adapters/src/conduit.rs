//! A connection of which the reading half has a rule, and whose writes pass through as they are.
//!
//! Knows no protocol: the rule says what is read.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The view of a connection's reads.
pub(crate) trait Reads {
    /// Reads of the stream, or says why not.
    fn poll_read<S: AsyncRead + Unpin>(
        &mut self,
        stream: Pin<&mut S>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>>;
}

/// A connection, and the rule of its reads.
#[derive(Debug)]
pub(crate) struct Conduit<S, R> {
    stream: S,
    reads: R,
}

impl<S, R> Conduit<S, R> {
    pub(crate) fn new(stream: S, reads: R) -> Self {
        Self { stream, reads }
    }

    pub(crate) fn reads(&self) -> &R {
        &self.reads
    }
}

impl<S: AsyncRead + Unpin, R: Reads + Unpin> AsyncRead for Conduit<S, R> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let own = self.get_mut();
        own.reads.poll_read(Pin::new(&mut own.stream), cx, into)
    }
}

impl<S: AsyncWrite + Unpin, R: Unpin> AsyncWrite for Conduit<S, R> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }
    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

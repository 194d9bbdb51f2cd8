//! An answer's body on its way over HTTP/2, where the peer says how much it takes: what it has not
//! taken yet is owed, and the connection's watch knows of it.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::body::Body;
use super::places::{Refused, Underway};
use super::watched::{Owed, Progress};

/// See the module. Over HTTP/1 it is the body itself: there the stream's own stalls are enough.
pub(super) struct Sent {
    body: Body,
    progress: Option<Arc<Progress>>,
    /// Held while nobody asks for the next piece.
    unasked: Option<Owed>,
    /// The place of its request, which is under way until the body is sent or dropped, or that it was
    /// refused one.
    _underway: (Option<Arc<Underway>>, Option<Refused>),
}

/// A piece, which is owed until it is dropped; the bytes that the peer lets be written are counted.
pub(super) struct Piece {
    bytes: Bytes,
    owed: Option<Owed>,
}

impl Buf for Piece {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }
    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }
    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        if let Some(owed) = &self.owed {
            owed.count(count);
        }
    }
}

impl Sent {
    /// The body of an answer; over HTTP/2 with its connection's progress and its request's place.
    pub(super) fn new(
        body: Body,
        progress: Option<Arc<Progress>>,
        underway: (Option<Arc<Underway>>, Option<Refused>),
    ) -> Self {
        let unasked = progress.as_ref().filter(|_| !body.is_end_stream()).map(Progress::owe);
        Self { body, progress, unasked, _underway: underway }
    }
}

impl HttpBody for Sent {
    type Data = Piece;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Piece>, Infallible>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(cx);
        let owe = || this.progress.as_ref().map(Progress::owe);
        let unasked = if matches!(polled, Poll::Ready(Some(_))) { owe() } else { None };
        let piece = |bytes| Piece { bytes, owed: owe() };
        let polled = polled.map_ok(|frame| frame.map_data(piece));
        this.unasked = unasked;
        polled
    }
    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

//! An answer's body on its way over HTTP/2, where the peer says how much it takes: what it has not
//! taken yet is owed, and the connection's watch knows of it.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body as HttpBody, Frame, SizeHint};

use super::body::Body;
use super::watched::{Owed, Progress};

/// See the module. Over HTTP/1 it is the body itself: there the stream's own stalls are enough.
pub(super) struct Sent {
    body: Body,
    progress: Option<Arc<Progress>>,
    /// Held while nobody asks for the next piece.
    unasked: Option<Owed>,
}

/// A piece, and that it is owed until nobody holds it.
struct Piece(Bytes, #[expect(dead_code, reason = "dropped with the piece")] Owed);

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Sent {
    /// The body of an answer; with the progress of its connection where that is HTTP/2.
    pub(super) fn new(body: Body, progress: Option<Arc<Progress>>) -> Self {
        let unasked = progress.as_ref().filter(|_| !body.is_end_stream()).map(Progress::owe);
        Self { body, progress, unasked }
    }
}

impl HttpBody for Sent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let polled = Pin::new(&mut self.body).poll_frame(cx);
        let Some(progress) = &self.progress else { return polled };
        let (polled, unasked) = match polled {
            Poll::Ready(Some(Ok(frame))) => {
                let owned = |bytes| Bytes::from_owner(Piece(bytes, progress.owe()));
                (Poll::Ready(Some(Ok(frame.map_data(owned)))), Some(progress.owe()))
            }
            other => (other, None),
        };
        self.unasked = unasked;
        polled
    }
    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

//! Bodies on their way: bounded in bytes and time, masked, never collected.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use charter_engine::{EgressBody, EgressError};
use charter_store::SharedSeat;
use http_body::{Body, Frame};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use tokio::time::{Instant, Sleep};

use super::credential::Masks;
use super::dial::{Wire, failure};

/// The bounds of an exchange.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    pub(super) bytes_max: u64,
    pub(super) between_bytes: Duration,
    pub(super) end: Instant,
}

/// A guest's body, bounded.
pub(super) fn outgoing(body: EgressBody, bytes_max: u64) -> EgressBody {
    let limited = Limited::new(body, usize::try_from(bytes_max).unwrap_or(usize::MAX));
    limited
        .map_err(move |error| match error.downcast::<EgressError>() {
            Ok(error) => *error,
            Err(_) => EgressError::TooLarge { limit: bytes_max },
        })
        .boxed_unsync()
}

/// An answer's body; it keeps the connection and the tenant's place until its end.
pub(super) fn incoming(
    body: Incoming,
    masks: Masks,
    limits: Limits,
    wire: Wire,
    seat: SharedSeat,
) -> EgressBody {
    let timer = Box::pin(tokio::time::sleep_until(wait(limits)));
    let answer = Answer {
        body: Some(body),
        masks,
        limits,
        left: limits.bytes_max,
        held: BytesMut::new(),
        timer,
        _wire: wire,
        _seat: seat,
    };
    answer.boxed_unsync()
}

fn wait(limits: Limits) -> Instant {
    (Instant::now() + limits.between_bytes).min(limits.end)
}

struct Answer {
    /// Absent once it has ended.
    body: Option<Incoming>,
    masks: Masks,
    limits: Limits,
    left: u64,
    /// The end of what came, where a credential may begin.
    held: BytesMut,
    timer: Pin<Box<Sleep>>,
    _wire: Wire,
    _seat: SharedSeat,
}

impl Answer {
    /// The bytes that can be handed on: all but those that have to be held back.
    fn mask(&mut self, piece: Bytes) -> Bytes {
        let held = self.masks.overlap_bytes();
        if held == 0 {
            return piece;
        }
        self.held.extend_from_slice(&piece);
        self.masks.apply(&mut self.held);
        let ready = self.held.len().saturating_sub(held);
        self.held.split_to(ready).freeze()
    }
}

impl Body for Answer {
    type Data = Bytes;
    type Error = EgressError;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, EgressError>>> {
        let this = self.get_mut();
        loop {
            let Some(body) = &mut this.body else {
                let rest = this.held.split().freeze();
                return Poll::Ready((!rest.is_empty()).then(|| Ok(Frame::data(rest))));
            };
            let frame = match Pin::new(body).poll_frame(cx) {
                Poll::Ready(frame) => frame,
                Poll::Pending => {
                    ready!(this.timer.as_mut().poll(cx));
                    this.body = None;
                    this.held.clear();
                    return Poll::Ready(Some(Err(EgressError::Timeout)));
                }
            };
            this.timer.as_mut().reset(wait(this.limits));
            let piece = match frame {
                None => {
                    this.body = None;
                    continue;
                }
                Some(Err(error)) => {
                    this.body = None;
                    this.held.clear();
                    return Poll::Ready(Some(Err(failure(&error))));
                }
                // Trailers are left out: nobody masks them.
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(piece) => piece,
                    Err(_) => continue,
                },
            };
            this.left = match this.left.checked_sub(piece.len() as u64) {
                Some(left) => left,
                None => {
                    this.body = None;
                    this.held.clear();
                    return Poll::Ready(Some(Err(EgressError::TooLarge {
                        limit: this.limits.bytes_max,
                    })));
                }
            };
            let ready = this.mask(piece);
            if !ready.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(ready))));
            }
        }
    }
}

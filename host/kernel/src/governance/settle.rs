//! The last step of a hold in its request, by what the primitive wished and how the request ends.
//!
//! Knows neither the request nor its other holds. Invariant: a hold that was neither kept nor
//! dispatched is over when its request is.

use super::hold::{Capture, Hold, State, Step};
use crate::refusal::Failure;
use crate::time::Instant;

/// The wish of a primitive for a hold, once its request is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// It happened.
    Capture(Capture),
    /// A part of it happened; a later request settles the rest, until then.
    Part(Capture, Instant),
    /// It will not happen.
    Cancel,
    /// A later request settles it, until then.
    Keep(Instant),
}

impl Wish {
    /// The refusal of a second wish of one request for the same hold.
    pub fn second() -> Failure {
        Failure::undeclared("this permit is settled already")
    }
}

/// How a request ends, as one of its holds sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Whether the request is answered, and not refused.
    pub answered: bool,
    /// Whether the last attempt of the request asked for the hold.
    pub asked: bool,
    /// Whether the hold is an earlier request's.
    pub reopened: bool,
}

impl Hold {
    /// Its last step in the request.
    pub fn settle(&self, id: &str, wish: Option<Wish>, end: End, now: Instant) -> Step {
        let dispatched = self.state != State::Held;
        let stands = end.asked && (end.answered || dispatched);
        match wish.filter(|_| stands) {
            Some(Wish::Capture(capture)) => self.capture(id, capture, now),
            Some(Wish::Part(part, until)) => self.capture_part(id, part, until, now),
            Some(Wish::Keep(until)) if end.answered => self.keep(id, until),
            Some(Wish::Cancel) => self.void(id, now),
            _ if dispatched => self.doubt(id),
            _ if end.reopened => self.hand_back(id),
            _ => self.void(id, now),
        }
    }
}

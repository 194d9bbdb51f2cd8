//! What becomes of the leave that a request was given: settled in the request's own commit, whichever that is.
//!
//! Invariant: no hold of a request outlives it unless it was kept, or something left the host under it and nobody knows what
//! became of that.

use charter_kernel::governance::hold::{Hold, State, Step};
use charter_kernel::time::Instant;
use charter_store::Txn;

use crate::leave::Proposal;

/// Leave that one request was given, by its place in the request.
#[derive(Clone, Debug)]
pub(crate) struct Permitted {
    /// What was asked; absent where an earlier request's hold was reopened.
    pub(crate) proposal: Option<Proposal>,
    pub(crate) id: String,
    pub(crate) hold: Hold,
    /// What the guest wants to become of it.
    pub(crate) wish: Option<Wish>,
    /// The attempt that asked for it last.
    pub(crate) attempt: u32,
}

/// What the guest wants to become of a hold, once its request is committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    Capture(i64),
    Cancel,
    Keep(Instant),
}

impl Permitted {
    /// Its last step in a request that is `answered` or not, by its attempt `attempt`.
    fn end(&self, answered: bool, attempt: u32, now: Instant) -> Step {
        let dispatched = self.hold.state != State::Held;
        let stands = (self.attempt == attempt) && (answered || dispatched);
        match self.wish.filter(|_| stands) {
            Some(Wish::Capture(actual)) => self.hold.captured(&self.id, actual, now),
            Some(Wish::Keep(until)) if answered => self.hold.kept(&self.id, until),
            Some(Wish::Cancel) => self.hold.voided(&self.id, now),
            _ if dispatched => self.hold.doubted(&self.id),
            _ if self.proposal.is_none() => self.hold.returned(&self.id),
            _ => self.hold.voided(&self.id, now),
        }
    }
}

/// Adds to the request's last unit what becomes of each hold.
pub(super) fn settle(permits: &[Permitted], txn: &mut Txn, answered: bool, attempt: u32, now: Instant) {
    for permit in permits {
        let step = permit.end(answered, attempt, now);
        txn.step(step.guards, step.writes);
    }
}

/// Adds to a unit in the middle of a request what the guest has already decided. The rest is left for the end.
pub(crate) fn settle_so_far(permits: &mut Vec<Permitted>, txn: &mut Txn, attempt: u32, now: Instant) {
    for permit in permits.iter().filter(|permit| permit.wish.is_some()) {
        let step = permit.end(true, attempt, now);
        txn.step(step.guards, step.writes);
    }
    permits.retain(|permit| permit.wish.is_none());
}

/// The last steps of holds whose request ends without a commit of its own.
pub(super) fn abandoned(permits: Vec<Permitted>, now: Instant) -> impl Iterator<Item = Step> {
    permits.into_iter().map(move |permit| Permitted { wish: None, ..permit }.end(false, 0, now))
}

//! The end of the leave that a request was given: settled in the request's own commit, whichever
//! that is.
//!
//! Invariant: no hold of a request outlives it unless it was kept, or something left the host under
//! it and nobody knows what became of that.
//!
//! Holds are taken by that same commit: decided once, in one unit with all that depends on them.

use charter_kernel::governance::hold::{Hold, Step};
use charter_kernel::governance::settle::End;
pub(crate) use charter_kernel::governance::settle::Wish;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Fact, Unit, Write};
use charter_store::Txn;

use crate::leave::Proposal;

/// Leave that one request was given, by its place in the request.
#[derive(Clone, Debug)]
pub(crate) struct Permitted {
    /// The proposal; absent where an earlier request's hold was reopened.
    pub(crate) proposal: Option<Proposal>,
    /// Its place among the request's permits.
    pub(crate) place: usize,
    pub(crate) id: String,
    pub(crate) hold: Hold,
    /// The end that the guest wants for it.
    pub(crate) wish: Option<Wish>,
    /// The attempt that asked for it last.
    pub(crate) attempt: u32,
    /// The bytes of it and its proposal, about.
    pub(crate) bytes: usize,
}

/// A hold that is not taken yet.
#[derive(Clone, Debug)]
pub(crate) struct Untaken {
    pub(crate) id: String,
    pub(crate) hold: Hold,
    /// The unit that is committed with it.
    pub(crate) unit: Unit,
    /// The facts in place of the unit's, where it is never taken: they name no hold.
    pub(crate) facts: Vec<Fact>,
}

impl Permitted {
    /// Its last step in a request that is `answered` or not, by its attempt `attempt`.
    fn end(&self, answered: bool, attempt: u32, now: Instant) -> Step {
        let end =
            End { answered, asked: self.attempt == attempt, reopened: self.proposal.is_none() };
        self.hold.settle(&self.id, self.wish, end, now)
    }

    /// Adds to the request's last unit a hold that is taken with it. Of one that nothing was done
    /// under only the decision is left, which names no hold then.
    fn take(&self, untaken: &Untaken, txn: &mut Txn, answered: bool, now: Instant) {
        let step = match self.wish.filter(|_| answered) {
            Some(Wish::Capture(capture)) => self.hold.capture(&self.id, capture, now),
            Some(Wish::Part(part, until)) => self.hold.capture_part(&self.id, part, until, now),
            Some(Wish::Keep(until)) => self.hold.keep(&self.id, until),
            Some(Wish::Cancel) | None => {
                untaken.facts.iter().for_each(|fact| txn.fact(fact.clone()));
                return;
            }
        };
        untaken.unit.facts.iter().for_each(|fact| txn.fact(fact.clone()));
        join(txn, &untaken.unit, self.hold.take_with(&self.id, step));
    }
}

/// Adds the taking of a hold to a unit, with all that depends on it but the facts.
pub(crate) fn join(txn: &mut Txn, unit: &Unit, taken: impl IntoIterator<Item = Write>) {
    unit.guards.iter().for_each(|guard| txn.guard(guard.clone()));
    txn.step(Vec::new(), unit.writes.iter().cloned().chain(taken).collect());
}

/// Adds to the request's last unit what becomes of each hold.
pub(crate) fn settle(
    permits: &[Permitted],
    untaken: &[Untaken],
    txn: &mut Txn,
    answered: bool,
    attempt: u32,
    now: Instant,
) {
    for permit in permits {
        match untaken.iter().find(|untaken| untaken.id == permit.id) {
            Some(untaken) => permit.take(untaken, txn, answered, now),
            None => {
                let step = permit.end(answered, attempt, now);
                txn.step(step.guards, step.writes);
            }
        }
    }
}

/// Adds to a unit in the middle of a request what the guest has already decided. The rest is left
/// for the end, and all of it where that unit is not committed.
pub(crate) fn settle_so_far(permits: &[Permitted], txn: &mut Txn, attempt: u32, now: Instant) {
    for permit in permits.iter().filter(|permit| permit.wish.is_some()) {
        let step = permit.end(true, attempt, now);
        txn.step(step.guards, step.writes);
    }
}

/// Forgets what [`settle_so_far`] has settled: it is committed.
pub(crate) fn forget_settled(permits: &mut Vec<Permitted>) {
    permits.retain(|permit| permit.wish.is_none());
}

/// The last steps of holds whose request ends without a commit of its own.
pub(crate) fn abandon_holds(permits: Vec<Permitted>, now: Instant) -> impl Iterator<Item = Step> {
    permits.into_iter().map(move |permit| Permitted { wish: None, ..permit }.end(false, 0, now))
}

#[cfg(test)]
mod tests;

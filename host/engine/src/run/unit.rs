//! The commit of a request: the guest's work or only its facts, the caller's guards, and the
//! pipeline's additions.
//!
//! The one place that reads a commit's rejection and says what becomes of the request.

use charter_kernel::unit::{Guard, Key, Refused, Rejection, Unit};
use charter_store::{CommitError, Txn};

use crate::bindings::charter::primitive::types::Failure;
use crate::call::{Call, Ending, EndingResult};
use crate::failure::{failure, jobs_full, rule};
use crate::shared::Shared;
use crate::state::Work;
use crate::story::permits::Permitted;
use crate::story::{Abort, Marks, Story, permits};

/// Why a unit was not committed, as the request sees it.
impl Abort {
    pub(crate) fn of(error: CommitError, call: &Call, marks: &Marks) -> Self {
        match error {
            CommitError::Rejected(Rejection::Conflict { keys }) => {
                if is_callers(call, marks, &keys) { Abort::Restart } else { Abort::Conflict(keys) }
            }
            CommitError::Rejected(Rejection::Refused(refused)) => abort_for(refused, call, marks),
            CommitError::Overloaded { retry_after_s } => Abort::Unavailable(retry_after_s),
            CommitError::ReadOnly { reason } => {
                tracing::error!(
                    reason,
                    request = call.request_id,
                    "a request could not be committed: the store is read-only"
                );
                Abort::Unavailable(30)
            }
            CommitError::Failed => {
                tracing::error!(request = call.request_id, "a request could not be committed");
                Abort::Unavailable(1)
            }
        }
    }

    /// The failure that the guest sees, should it look: the attempt's end is decided already.
    pub(super) fn failure(&self) -> Failure {
        match self {
            Abort::Refused(refused) => rule(refused).into(),
            _ => failure("state_conflict", "this attempt is over: return").into(),
        }
    }
}

/// Whether a conflict touches what the caller, not the guest, has read.
fn is_callers(call: &Call, marks: &Marks, keys: &[Key]) -> bool {
    let about = |guard: &Guard| match guard {
        Guard::Version { key, .. }
        | Guard::Unchanged { key, .. }
        | Guard::Inserted { key, .. }
        | Guard::Stamp { key, .. }
        | Guard::Entry { key, .. }
        | Guard::Lease { key, .. } => keys.contains(key),
        Guard::Revision { reach, space, .. } => {
            keys.is_empty() || keys.contains(&Key::new(reach, space, ""))
        }
        Guard::Claim { .. } => keys.is_empty(),
    };
    call.guards.iter().chain(&marks.conditions()).any(about)
        || call.claim.as_ref().is_some_and(|claim| keys.contains(&claim.key))
}

fn abort_for(refused: Refused, call: &Call, marks: &Marks) -> Abort {
    let claims = |key: &Key| call.claim.as_ref().is_some_and(|claim| claim.key == *key);
    match refused {
        Refused::Inactive { .. } => Abort::Inactive,
        Refused::Exists { key } | Refused::Stale { key, .. } | Refused::Missing { key }
            if claims(&key) =>
        {
            Abort::Restart
        }
        Refused::LeaseLost { key }
            if claims(&key) || is_callers(call, marks, std::slice::from_ref(&key)) =>
        {
            Abort::Restart
        }
        refused => Abort::Refused(refused),
    }
}

/// Adds what a unit with work of the guest's carries beside that.
pub(super) fn arm(txn: &mut Txn, call: &Call, marks: &Marks) {
    call.standing(marks).into_iter().for_each(|guard| txn.guard(guard));
    fence(txn, call, marks);
}

/// Requires that an idempotency claim which was made is still this request's.
pub(super) fn fence(txn: &mut Txn, call: &Call, marks: &Marks) {
    if marks.claimed.initialized()
        && let Some(claim) = &call.claim
    {
        txn.guard(claim.fence.clone());
    }
}

/// Adds what becomes of the request's holds and what the pipeline says of it, and commits where
/// there is anything to commit.
pub(super) async fn commit(
    call: &Call,
    story: &mut Story,
    mut txn: Txn,
    result: EndingResult<'_>,
) -> Result<(), Abort> {
    let marks = story.marks.clone();
    let answered = match result {
        EndingResult::Answered(answer)
            if !marks.is_dispatched() && !call.finish.has_room(answer) =>
        {
            return Err(Abort::NoRoom);
        }
        EndingResult::Answered(_) => true,
        _ => false,
    };
    let now = txn.store().now();
    let mut untaken = marks.untaken.lock().await;
    permits::settle(&story.permits, &untaken, &mut txn, answered, story.attempt, now);
    let dispatched = match result {
        EndingResult::Refused(_) => marks.has_acted(),
        _ => marks.is_dispatched(),
    };
    let (claimed, shown) = (marks.claimed.initialized(), call.shown.is_set());
    let ending = Ending { result, claimed, dispatched, shown };
    let settles = marks.is_dispatched() && !answered;
    let committed = match call.finish.finish(&mut txn, ending).await {
        Ok(()) if txn.unit().is_empty() => return Ok(()),
        Ok(()) if settles => txn.commit_settling().await,
        Ok(()) => txn.commit().await,
        Err(error) => Err(error),
    };
    if let Err(error) = committed {
        let abort = Abort::of(error, call, &marks);
        return Err(if untaken.is_empty() { abort } else { marks.again_at_once(abort) });
    }
    untaken.clear();
    story.permits.clear();
    Ok(())
}

impl Call {
    /// The guards that it was admitted under, and given leave under, as far as they must hold now:
    /// once it has acted, only the fences among them.
    pub(crate) fn standing(&self, marks: &Marks) -> Vec<Guard> {
        let acted = marks.is_dispatched();
        let all = self.guards.iter().cloned().chain(marks.conditions());
        all.filter(|guard| !acted || guard.is_fence()).collect()
    }
}

impl Shared {
    /// Commits what goes before an effect: the holds that are not taken yet, and the idempotency
    /// claim, under all that the request was admitted under. The guest's own work stays uncommitted.
    pub(crate) async fn admit_effect(&self, call: &Call, marks: &Marks) -> Result<(), Failure> {
        self.take_untaken(call, marks).await?;
        match &call.claim {
            Some(_) if !marks.claimed.initialized() => self.force_claim(call, marks).await,
            claim => {
                let mut guards = call.standing(marks);
                guards.extend(claim.iter().map(|claim| claim.fence.clone()));
                let held = self.store.require(call.scope.lane(), guards).await;
                held.map_err(|error| end_attempt(error, call, marks))
            }
        }
    }

    /// Commits the idempotency claim, where there is one that is not committed yet.
    pub(crate) async fn force_claim(&self, call: &Call, marks: &Marks) -> Result<(), Failure> {
        let Some(claim) = &call.claim else { return Ok(()) };
        let force = async || {
            let guards = claim.guards.iter().cloned().chain(call.standing(marks)).collect();
            let organization = call.scope.lane().to_owned();
            let unit =
                Unit { organization, guards, writes: claim.writes.clone(), ..Unit::default() };
            let committed = self.store.commit(unit).await;
            committed.map(drop).map_err(|error| end_attempt(error, call, marks))
        };
        marks.claimed.get_or_try_init(force).await.map(drop)
    }
}

/// Ends an attempt for a commit that was rejected in the middle of it; answers what its guest sees.
fn end_attempt(error: CommitError, call: &Call, marks: &Marks) -> Failure {
    let abort = Abort::of(error, call, marks);
    let told = abort.failure();
    marks.abort(abort);
    told
}

impl Work {
    /// Commits what was written so far, with the facts so far.
    pub(crate) async fn checkpoint(&mut self) -> Result<(), Failure> {
        if self.in_runs_place {
            let why =
                "the job that was enqueued has the place of its run, and is left with its end";
            return Err(jobs_full(why).into());
        }
        let (shared, call, marks) =
            (self.shared.clone(), self.call.clone(), self.story.marks.clone());
        let _commit = marks.begin_commit().await?;
        self.end_others().await?;
        shared.take_untaken(&call, &marks).await?;
        arm(&mut self.txn, &call, &marks);
        // With the first portion, and not ahead of it: a claim without one would outlive a crash.
        let claim = call.claim.as_ref().filter(|_| !marks.claimed.initialized());
        if let Some(claim) = claim {
            claim.guards.iter().cloned().for_each(|guard| self.txn.guard(guard));
            claim.writes.iter().cloned().for_each(|write| self.txn.write(write));
        }
        for fact in self.facts.drain(..) {
            self.txn.fact(fact);
        }
        self.fact_bytes = 0;
        permits::settle_so_far(&self.story.permits, &mut self.txn, self.story.attempt, self.now);
        match self.txn.checkpoint().await {
            Ok(_) => {
                if claim.is_some() {
                    // Commits of one request go one after the other.
                    let _ = marks.claimed.set(());
                }
                self.asked.commit();
                marks.dispatch();
                // Permits that this commit has settled count no more.
                permits::forget_settled(&mut self.story.permits);
                self.permits = self.story.permits.len();
                self.story.commit_taken();
                Ok(())
            }
            Err(error) => Err(self.abort_commit(error)),
        }
    }

    /// Ends the holds that an earlier attempt took at this place and after it: this one takes
    /// another course, and their room is for what is proposed now.
    pub(crate) async fn end_others(&mut self) -> Result<(), Failure> {
        let attempt = self.story.attempt;
        let place = self.permits;
        let is_other = |one: &Permitted| {
            one.place >= place && one.attempt != attempt && one.proposal.is_some()
        };
        while let Some(at) = self.story.permits.iter().position(is_other) {
            let other = &self.story.permits[at];
            let step = other.hold.void(&other.id, self.shared.clock.now());
            let unit = Unit {
                organization: self.call.scope.lane().to_owned(),
                guards: step.guards,
                writes: step.writes,
                ..Unit::default()
            };
            match self.shared.store.commit_settling(unit).await {
                // Refused: it has ended already.
                Ok(_) | Err(CommitError::Rejected(Rejection::Refused(_))) => {
                    self.story.permits.remove(at);
                }
                Err(error) => return Err(self.abort_commit(error)),
            }
        }
        Ok(())
    }

    /// Ends the attempt for a commit that was rejected in the middle of it.
    pub(crate) fn abort_commit(&self, error: CommitError) -> Failure {
        end_attempt(error, &self.call, &self.story.marks)
    }
}

#[cfg(test)]
mod tests;

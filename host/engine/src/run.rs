//! The loop around a call: admit, run, commit; again on a conflict, again on a wake-up, at most
//! until the deadline.
//!
//! A change runs in a task of its own that outlives the client; a read ends with the client that
//! asked for it. A guest is run again only while nothing has left the host.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use charter_kernel::limits::WAITING_REQUEST_BYTES_MAX;
use charter_kernel::refusal::Failure;
use charter_kernel::scope::Sharer;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Unit, Write};
use charter_store::{Changed, Ticket};
use futures::FutureExt as _;
use tracing::Instrument as _;

use crate::admission::{Tenant, Wish};
use crate::answer::Outcome;
use crate::call::{Call, EndingResult, Entry};
use crate::component::Component;
use crate::failure::{rule, too_large_to_wait};
use crate::shared::Shared;
use crate::stats::{OutcomeClass, PrimitiveStats};
use crate::story::{Abort, COMMITTED, Story, TakeRecord, permits};

mod attempt;
#[cfg(test)]
pub(crate) mod bed;
mod unit;
mod untaken;
pub(crate) mod waiting;
mod wit;

use attempt::Ended;

/// Shortest sleep of a waiting call: a guest that names a moment in the past again and again does
/// not spin.
const WAIT_MIN: Duration = Duration::from_millis(10);
/// Longest sleep of a waiting call: a bound on what a lost wake-up costs.
const WAIT_MAX: Duration = Duration::from_secs(5);

/// Runs a call to its end.
pub(crate) async fn call(shared: &Arc<Shared>, component: Arc<Component>, call: Call) -> Outcome {
    let started = tokio::time::Instant::now();
    let mut counted =
        Counted { stats: component.stats.clone(), started, class: OutcomeClass::ClientGone };
    let (shared, request) = (shared.clone(), call.request_id.clone());
    let mutates = call.mutates;
    // Apart from the caller's state: a request is moved about while it is small.
    let running = Box::pin(async move {
        let deadline = started + Duration::from_millis(call.deadline_ms.into());
        let mut run = Run {
            tenant: shared.admission.tenant(call.scope.lane()),
            sharer: call.scope.sharer(),
            started: shared.clock.now(),
            shared,
            component,
            call: Arc::new(call),
            story: Story::default(),
            deadline,
            reruns: 0,
            ruled: false,
            ticket: None,
            changed: None,
        };
        let outcome = run.finish().await;
        run.give_back(&outcome).await;
        outcome
    });
    let outcome = if mutates {
        // In a task of its own: who asked for it may leave, and it goes on.
        tokio::spawn(running.instrument(tracing::Span::current()))
            .await
            .map_err(|error| error.to_string())
    } else {
        AssertUnwindSafe(running).catch_unwind().await.map_err(|_| "a panic".to_owned())
    };
    let outcome = outcome.unwrap_or_else(|error| {
        tracing::error!(%error, request, "a call panicked in the host");
        Outcome::Trapped { id: request }
    });
    counted.class = class(&outcome);
    outcome
}

/// Counts a call when it ends; one that nobody waits for any more as left by its client.
struct Counted {
    stats: Arc<PrimitiveStats>,
    started: tokio::time::Instant,
    class: OutcomeClass,
}

impl Drop for Counted {
    fn drop(&mut self) {
        let elapsed = u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.stats.record(self.class, elapsed);
    }
}

fn class(outcome: &Outcome) -> OutcomeClass {
    match outcome {
        Outcome::Answered(_) | Outcome::Pending { .. } => OutcomeClass::Answered,
        Outcome::Refused(_) => OutcomeClass::Refused,
        Outcome::Trapped { .. } => OutcomeClass::Trapped,
        Outcome::Deadline => OutcomeClass::Deadline,
        Outcome::OutOfMemory => OutcomeClass::OutOfMemory,
        Outcome::Shed { .. } => OutcomeClass::Shed,
        Outcome::ClientGone => OutcomeClass::ClientGone,
        Outcome::Restart | Outcome::Inactive | Outcome::Unavailable { .. } => OutcomeClass::Other,
    }
}

/// One call under way.
struct Run {
    shared: Arc<Shared>,
    component: Arc<Component>,
    call: Arc<Call>,
    tenant: Arc<Tenant>,
    sharer: Sharer,
    story: Story,
    started: Instant,
    deadline: tokio::time::Instant,
    reruns: u32,
    /// Whether a rule refused an earlier attempt: the guest had its chance to word the refusal.
    ruled: bool,
    ticket: Option<Ticket>,
    /// The change that an `again` waits for, and the collection it is of.
    changed: Option<(String, Changed)>,
}

/// The step after an attempt.
enum Next {
    Over(Outcome),
    Again,
}

impl Run {
    async fn finish(&mut self) -> Outcome {
        loop {
            self.story.attempt += 1;
            match self.attempt().await {
                Next::Over(outcome) => {
                    if matches!(
                        outcome,
                        Outcome::Restart
                            | Outcome::Inactive
                            | Outcome::Unavailable { .. }
                            | Outcome::Shed { .. }
                    ) {
                        self.give_up_claim().await;
                    }
                    return outcome;
                }
                // The claim is the request's, not the attempt's: what is committed need not be
                // committed again.
                Next::Again => {
                    self.story.forget_untaken().await;
                    self.story.marks = Arc::new(self.story.marks.again());
                }
            }
        }
    }

    /// Nothing was done, and nothing of this request will be: a claim that went ahead of it must
    /// not stand in the way of the next one. Every other end is recorded, and the record takes the
    /// claim's place.
    async fn give_up_claim(&self) {
        let marks = &self.story.marks;
        let Some(claim) = self
            .call
            .claim
            .as_ref()
            .filter(|_| marks.claimed.initialized() && !marks.is_dispatched())
        else {
            return;
        };
        let organization = self.call.scope.lane().to_owned();
        let (guards, writes) = (vec![claim.fence.clone()], claim.undo.clone());
        let unit = Unit { organization, guards, writes, ..Unit::default() };
        if let Err(error) = self.shared.store.commit_settling(unit).await {
            tracing::warn!(%error, request = self.call.request_id, "a claim is left behind; it ends with its time");
        }
    }

    async fn attempt(&mut self) -> Next {
        let left = self.deadline.saturating_duration_since(tokio::time::Instant::now());
        let wish = Wish {
            by: &self.sharer,
            primitive: &self.component.places,
            class: self.call.class,
            runs: matches!(self.call.entry, Entry::React(_)),
            depth: self.call.lineage.depth(),
            body_bytes: self.call.body_bytes(),
            wait: left,
        };
        let entering = self.shared.admission.enter(&self.tenant, wish);
        // In this order: a call that comes after the cut, or whose client has left, is not begun.
        let place = tokio::select! {
            biased;
            () = self.shared.cut.cancelled() => return self.decide_end(Ended::Cut).await,
            () = self.call.client_gone.cancelled() => return self.decide_end(Ended::ClientGone).await,
            place = entering => place,
        };
        let place = match place {
            Ok(place) => place,
            Err(full) => {
                return Next::Over(Outcome::Shed { retry_after_s: 1, tenant: full.tenant });
            }
        };
        let mut txn = self.shared.store.begin(self.call.scope.lane());
        if !self.call.mutates {
            txn = txn.reading();
        }
        if let Some(ticket) = self.ticket.take() {
            txn.hold(ticket);
        }
        let bytes = place.bytes().clone();
        let ended = attempt::run(
            attempt::Setting {
                shared: self.shared.clone(),
                component: self.component.clone(),
                call: self.call.clone(),
                party: self.tenant.party().clone(),
                bytes,
                started: self.started,
                deadline: self.deadline,
            },
            txn,
            &mut self.story,
        )
        .await;
        drop(place);
        self.decide(ended).await
    }

    async fn decide(&mut self, ended: Ended) -> Next {
        let outcome = match ended {
            Ended::Aborted(abort) => return self.decide_abort(abort, None).await,
            Ended::Answered { answer, txn, facts, mut asked } => {
                let mut txn = *txn;
                if self.call.mutates {
                    unit::arm(&mut txn, &self.call, &self.story.marks);
                }
                for fact in facts {
                    txn.fact(fact);
                }
                match unit::commit(
                    &self.call,
                    &mut self.story,
                    txn,
                    EndingResult::Answered(&answer),
                )
                .await
                {
                    Ok(()) => {
                        asked.commit();
                        Outcome::Answered(answer)
                    }
                    Err(abort) => {
                        // Nothing of it is committed, and whoever comes next may have the room.
                        drop(asked);
                        return self.decide_abort(abort, Some(true)).await;
                    }
                }
            }
            Ended::Refused { failure, facts } => return self.refuse(failure, facts).await,
            Ended::Again { collection, until, groups } => {
                return self.wait(collection, until, groups).await;
            }
            Ended::Trapped { id } => {
                self.record(EndingResult::Trapped(&id)).await;
                Outcome::Trapped { id }
            }
            Ended::Deadline => {
                let late = match self.story.marks.is_dispatched() {
                    true => Outcome::Refused(Failure::late_after_effect()),
                    false => Outcome::Deadline,
                };
                self.record(EndingResult::Deadline).await;
                late
            }
            Ended::OutOfMemory => {
                self.record(EndingResult::OutOfMemory).await;
                Outcome::OutOfMemory
            }
            Ended::ClientGone => {
                self.record(EndingResult::ClientGone).await;
                Outcome::ClientGone
            }
            Ended::Cut if self.story.marks.is_dispatched() => {
                let what = "the host stopped while the request ran and had acted; its later documents were not written";
                let failure = Failure::effect_without_record("internal_error", what);
                return self.refuse(failure, Vec::new()).await;
            }
            Ended::Cut => Outcome::Unavailable { retry_after_s: 1 },
            Ended::Exhausted => Outcome::Shed { retry_after_s: 1, tenant: false },
        };
        Next::Over(outcome)
    }

    /// A commit was rejected, or the attempt ended for a reason of the host's.
    async fn decide_abort(&mut self, abort: Abort, committing: Option<bool>) -> Next {
        let dispatched = self.story.marks.is_dispatched();
        tracing::debug!(
            request = self.call.request_id,
            attempt = self.story.attempt,
            ?abort,
            dispatched,
            "an attempt was not committed"
        );
        match abort {
            Abort::Restart if !dispatched => Next::Over(Outcome::Restart),
            Abort::Inactive if !dispatched => Next::Over(Outcome::Inactive),
            // With what the pipeline says of it. Nothing of the guest's is committed.
            Abort::Pending(approval) => Next::Over(Outcome::Pending { approval }),
            Abort::NoRoom => Next::Over(Outcome::Shed { retry_after_s: 1, tenant: true }),
            Abort::Unavailable(retry_after_s) if !dispatched => {
                Next::Over(Outcome::Unavailable { retry_after_s })
            }
            Abort::Conflict(keys) if !dispatched => {
                if self.reruns >= self.shared.config.reruns_max {
                    tracing::warn!(
                        request = self.call.request_id,
                        "a request gave up after its re-runs all met a conflict"
                    );
                    return Next::Over(Outcome::Unavailable { retry_after_s: 1 });
                }
                self.reruns += 1;
                self.shared.stats.reruns.fetch_add(1, Relaxed);
                self.ticket = Some(self.shared.store.ticket(&keys).await);
                Next::Again
            }
            Abort::Refused(_) if !dispatched && !self.ruled && committing.is_some() => {
                self.ruled = true;
                self.shared.stats.reruns.fetch_add(1, Relaxed);
                Next::Again
            }
            Abort::Refused(refused) => self.refuse(rule(&refused), Vec::new()).await,
            // Something has left the host, so there is no way back: the outcome is recorded without
            // the guest's documents.
            Abort::Restart | Abort::Inactive | Abort::Conflict(_) => {
                let what = "what the request read has changed after it had acted; its later documents were not written";
                self.refuse(Failure::effect_without_record("state_conflict", what), Vec::new())
                    .await
            }
            Abort::Unavailable(_) => {
                let what = "the request had acted, and what it did could not be recorded; its later documents were not written";
                self.refuse(Failure::effect_without_record("internal_error", what), Vec::new())
                    .await
            }
        }
    }

    /// Documents roll back; the facts and what the pipeline adds are committed.
    async fn refuse(&mut self, failure: Failure, facts: Vec<charter_kernel::unit::Fact>) -> Next {
        let dispatched = self.story.marks.is_dispatched();
        // A job is run again whatever its run says.
        let failure = match &self.call.entry {
            Entry::Handle(_) if self.story.marks.has_acted() => {
                failure.after_effect(&self.component.manifest.errors)
            }
            _ => failure,
        };
        let mut txn = self.shared.store.begin(self.call.scope.lane());
        match dispatched {
            // The unit that settles an effect is not refused for what has changed since.
            true => unit::fence(&mut txn, &self.call, &self.story.marks),
            false if self.call.mutates => unit::arm(&mut txn, &self.call, &self.story.marks),
            false => {}
        }
        for fact in facts {
            txn.fact(fact);
        }
        Next::Over(
            match unit::commit(&self.call, &mut self.story, txn, EndingResult::Refused(&failure))
                .await
            {
                Ok(()) => Outcome::Refused(failure),
                Err(abort) if dispatched => {
                    tracing::error!(
                        request = self.call.request_id,
                        ?abort,
                        "the end of a request that had acted could not be recorded"
                    );
                    Outcome::Refused(failure)
                }
                Err(Abort::Inactive) => Outcome::Inactive,
                Err(Abort::Unavailable(retry_after_s)) => Outcome::Unavailable { retry_after_s },
                Err(_) => Outcome::Restart,
            },
        )
    }

    /// The guest is gone: only what the pipeline says of it is committed, whatever has changed since
    /// it was admitted. A claim under which nothing was done is given up in any case.
    async fn record(&mut self, result: EndingResult<'_>) {
        let mut txn = self.shared.store.begin(self.call.scope.lane());
        unit::fence(&mut txn, &self.call, &self.story.marks);
        if let Err(abort) = unit::commit(&self.call, &mut self.story, txn, result).await {
            tracing::warn!(
                request = self.call.request_id,
                ?abort,
                "the end of a failed request could not be recorded"
            );
            self.give_up_claim().await;
        }
    }

    /// Waits, without an instance and without a place, for a change, for what falls due, or for the
    /// time the guest named.
    async fn wait(
        &mut self,
        collection: String,
        until: Option<i64>,
        groups: Vec<(charter_kernel::unit::Reach, charter_kernel::unit::Space, String)>,
    ) -> Next {
        if self.story.marks.is_dispatched() {
            return self
                .refuse(
                    Failure::effect_without_record(
                        "internal_error",
                        "a request that has acted cannot wait to be run again",
                    ),
                    Vec::new(),
                )
                .await;
        }
        if self.call.body_bytes() > WAITING_REQUEST_BYTES_MAX {
            return self.refuse(too_large_to_wait(), Vec::new()).await;
        }
        let target = self
            .component
            .collection(&collection)
            .and_then(|plan| Ok((plan.reach(&self.call.scope)?, plan.space.clone())));
        let (reach, space) = match target {
            Ok(target) => target,
            Err(failure) => return self.refuse(failure, Vec::new()).await,
        };
        let mut changed = match self.changed.take() {
            Some((known, changed)) if known == collection => changed,
            _ => {
                // Subscribed, then read, then wait: the guest reads once more, so that no change in
                // between is missed.
                self.changed = Some((collection, self.shared.store.space_changes(&reach, &space)));
                return Next::Again;
            }
        };
        let parked = match self.shared.admission.park(&self.tenant, &self.sharer) {
            Ok(parked) => parked,
            Err(full) => {
                return Next::Over(Outcome::Shed { retry_after_s: 1, tenant: full.tenant });
            }
        };
        let now = self.shared.clock.now();
        let mut wake = until.map(Instant);
        for (reach, space, group) in groups {
            if let Ok(Some(due)) = self.shared.store.next_due(&reach, &space, &group).await {
                wake = Some(wake.map_or(due, |wake| wake.min(due)));
            }
        }
        let wait = wake.map_or(WAIT_MAX, |wake| {
            Duration::from_millis(u64::try_from(wake.0.saturating_sub(now.0)).unwrap_or(0))
                .min(WAIT_MAX)
        });
        let wait = wait.max(WAIT_MIN);
        let ended = tokio::select! {
            () = changed.wait() => None,
            () = tokio::time::sleep(wait) => None,
            () = tokio::time::sleep_until(self.deadline) => Some(Ended::Deadline),
            () = self.call.client_gone.cancelled() => Some(Ended::ClientGone),
            () = self.shared.cut.cancelled() => Some(Ended::Cut),
        };
        drop(parked);
        self.changed = Some((collection, changed));
        match ended {
            Some(ended) => self.decide_end(ended).await,
            None if tokio::time::Instant::now() >= self.deadline => {
                self.decide_end(Ended::Deadline).await
            }
            None => Next::Again,
        }
    }

    async fn decide_end(&mut self, ended: Ended) -> Next {
        Box::pin(self.decide(ended)).await
    }

    /// Gives back what was handed out and is not wanted: all of it unless the request was answered,
    /// and then what only an earlier attempt asked for. Holds that no commit of the request has
    /// settled end here.
    async fn give_back(&mut self, outcome: &Outcome) {
        self.story.forget_untaken().await;
        for step in
            permits::abandon_holds(std::mem::take(&mut self.story.permits), self.shared.clock.now())
        {
            let organization = self.call.scope.lane().to_owned();
            let unit =
                Unit { organization, guards: step.guards, writes: step.writes, ..Unit::default() };
            if let Err(error) = self.shared.store.commit_settling(unit).await
                && error.refusal().is_none()
            {
                tracing::warn!(%error, request = self.call.request_id, "a hold could not be ended; it ends with its time");
            }
        }
        let answered = matches!(outcome, Outcome::Answered(_));
        let attempt = self.story.attempt;
        let unwanted = |record: &TakeRecord| {
            record.attempt != COMMITTED && !(answered && record.attempt == attempt)
        };
        let has_acted = self.story.marks.has_acted();
        for rate in std::mem::take(&mut self.story.rates) {
            // An effect that left the host counts, whatever was answered.
            if rate.attempt != COMMITTED && !(rate.attempt == attempt && (answered || has_acted)) {
                rate.give_back(&self.shared.store, self.call.scope.lane()).await;
            }
        }
        let takes = std::mem::take(&mut self.story.takes);
        for taken in takes.into_iter().filter(unwanted).flat_map(|record| record.taken) {
            let writes = vec![Write::Release {
                key: taken.key,
                token: taken.token,
                due_at: taken.due_at,
                undo: true,
            }];
            let unit =
                Unit { organization: self.call.scope.lane().to_owned(), writes, ..Unit::default() };
            if let Err(error) = self.shared.store.commit_settling(unit).await
                && error.refusal().is_none()
            {
                tracing::warn!(%error, "rows that were handed out could not be given back; their leases will end");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::Answer;

    #[test]
    fn each_end_is_counted_as_the_fault_of_whose_it_is() {
        let answer = || Outcome::Answered(Answer::empty());
        let shed = |tenant| Outcome::Shed { retry_after_s: 1, tenant };
        for (outcome, counted) in [
            (answer(), OutcomeClass::Answered),
            (Outcome::Pending { approval: "a".into() }, OutcomeClass::Answered),
            (Outcome::Refused(Failure::default()), OutcomeClass::Refused),
            (Outcome::Trapped { id: "i".into() }, OutcomeClass::Trapped),
            (Outcome::Deadline, OutcomeClass::Deadline),
            (Outcome::OutOfMemory, OutcomeClass::OutOfMemory),
            (shed(true), OutcomeClass::Shed),
            (shed(false), OutcomeClass::Shed),
            (Outcome::ClientGone, OutcomeClass::ClientGone),
            // No fault of the guest.
            (Outcome::Restart, OutcomeClass::Other),
            (Outcome::Inactive, OutcomeClass::Other),
            (Outcome::Unavailable { retry_after_s: 1 }, OutcomeClass::Other),
        ] {
            assert_eq!(class(&outcome), counted, "{outcome:?}");
        }
    }

    #[test]
    fn a_call_that_nobody_waits_for_any_more_was_left_by_its_client() {
        let stats = Arc::<PrimitiveStats>::default();
        let started = tokio::time::Instant::now();
        let class = OutcomeClass::ClientGone;
        drop(Counted { stats: stats.clone(), started, class });
        assert_eq!(stats.count(OutcomeClass::ClientGone), 1);
    }
}

//! Runs a request to its commit, as the engine does: the guest once more after a conflict, and once
//! after a rule's refusal at the commit, so that it can word it.
//!
//! Knows no route and no interface. Invariant: once something has left the host, nothing is run
//! again.

use std::rc::Rc;

use charter_kernel::apply::rule;
use charter_kernel::refusal::Failure;
use charter_kernel::unit::Rejection;
use charter_sdk::bindings::charter::primitive::types::Failure as Raw;

use crate::call::{Abort, Call, Story, Work};
use crate::world::{Double, unraw};

/// How often a guest is run again after conflicts.
const RERUNS_MAX: u32 = 8;

/// The step after an attempt.
enum Next<T> {
    Over(Result<T, Failure>),
    Again(Story),
}

/// The end of an attempt, by which its writes are kept or dropped.
pub(crate) enum Ending<T> {
    /// They are committed with the answer.
    Answer(T),
    /// Nothing of them is kept: the request waits.
    Wait(T),
}

impl Double {
    /// Runs a request: `act` is the guest, by the attempt's number from 1.
    pub(crate) fn run<T>(
        &self,
        call: Call,
        act: impl Fn(u32) -> Result<Ending<T>, Raw>,
    ) -> Result<T, Failure> {
        let (call, mut story, mut ruled) = (Rc::new(call), Story::default(), false);
        loop {
            story.attempt += 1;
            let attempt = story.attempt;
            let outer = self.with(|world| {
                let work = Work::new(world, call.clone(), story);
                world.work.replace(work)
            });
            let result = act(attempt);
            let (work, meanwhile) = self.with(|world| (world.work.take(), world.meanwhile.take()));
            if let Some(meanwhile) = meanwhile {
                meanwhile();
            }
            let next = match work {
                Some(work) => self.decide(work, result, &mut ruled),
                None => Next::Over(Err(Failure::new("internal_error", "the attempt is lost"))),
            };
            self.with(|world| world.work = outer);
            match next {
                Next::Over(outcome) => return outcome,
                Next::Again(told) => story = told,
            }
        }
    }

    fn decide<T>(
        &self,
        mut work: Work,
        result: Result<Ending<T>, Raw>,
        ruled: &mut bool,
    ) -> Next<T> {
        self.with(|world| match (work.abort.take(), result) {
            (Some(Abort::Refused(failure)), _) => refuse(world, work, failure),
            (Some(Abort::Rejected(rejection)), _) => {
                work.facts.clear();
                match rejection {
                    Rejection::Conflict { .. } => retry_conflict(world, work),
                    Rejection::Refused(rule_) => refuse(world, work, rule(&rule_)),
                }
            }
            (None, Err(failure)) => refuse(world, work, unraw(failure)),
            (None, Ok(Ending::Wait(answer))) => {
                work.facts.clear();
                let _ = work.commit(world, false);
                Next::Over(Ok(answer))
            }
            (None, Ok(Ending::Answer(answer))) => match work.commit(world, true) {
                Ok(()) => Next::Over(Ok(answer)),
                Err(Rejection::Conflict { .. }) => retry_conflict(world, work),
                Err(Rejection::Refused(_)) if !*ruled && !work.story.is_dispatched => {
                    *ruled = true;
                    Next::Again(work.story)
                }
                Err(Rejection::Refused(rule_)) => refuse(world, work, rule(&rule_)),
            },
        })
    }
}

/// Decides the next step after a conflict: the rows that the attempt read have changed.
fn retry_conflict<T>(world: &mut crate::world::World, work: Work) -> Next<T> {
    if work.story.is_dispatched {
        let told = "what the request read has changed after it had acted; its later documents were not written";
        return refuse(world, work, Failure::effect_without_record("state_conflict", told));
    }
    if work.story.attempt > RERUNS_MAX {
        let told = "the request gave up after its re-runs all met a conflict";
        return refuse(world, work, Failure::new("overloaded", told));
    }
    Next::Again(work.story)
}

/// Documents roll back; the facts are committed.
fn refuse<T>(world: &mut crate::world::World, mut work: Work, failure: Failure) -> Next<T> {
    // A hold that somebody has settled meanwhile keeps the refusal from nobody.
    let _ = work.commit(world, false);
    Next::Over(Err(failure))
}

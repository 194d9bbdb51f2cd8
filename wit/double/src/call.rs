//! One request under way: what an attempt has read and written, and what the request has done that
//! outlives an attempt.
//!
//! Knows no interface. Invariant: nothing of a request is committed twice, and a refused one leaves
//! its facts and nothing else.

use std::rc::Rc;

use charter_kernel::governance::hold::{Hold, Word};
use charter_kernel::governance::settle::{End, Wish};
use charter_kernel::idempotency::Lineage;
use charter_kernel::refusal::Failure;
use charter_kernel::scope::Scope;
use charter_kernel::unit::{Fact, Rejection, Taken, Unit, Write};

use crate::caller;
use crate::rates::RateRecord;
use crate::txn::Txn;
use crate::world::World;

/// A request, as the host has admitted it.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) scope: Scope,
    pub(crate) request: String,
    pub(crate) mutates: bool,
    pub(crate) word: Word,
    pub(crate) lineage: Lineage,
}

/// One attempt of a request.
#[derive(Debug)]
pub(crate) struct Work {
    pub(crate) call: Rc<Call>,
    pub(crate) txn: Txn,
    pub(crate) facts: Vec<Fact>,
    pub(crate) story: Story,
    /// How many takes, permits, rates and nested changes were asked for so far.
    pub(crate) asked: Asked,
    /// Why the attempt is over, whatever the guest says.
    pub(crate) abort: Option<Abort>,
}

/// Places in a request, each counted from 0.
#[derive(Debug, Default)]
pub(crate) struct Asked {
    pub(crate) takes: usize,
    pub(crate) permits: usize,
    pub(crate) rates: usize,
    pub(crate) nested: u32,
}

/// The part of a request's work that outlives an attempt.
#[derive(Debug, Default)]
pub(crate) struct Story {
    /// The number of the attempt, from 1.
    pub(crate) attempt: u32,
    /// Something has left the host or was committed: the guest is not run again.
    pub(crate) is_dispatched: bool,
    pub(crate) takes: Vec<TakeRecord>,
    pub(crate) permits: Vec<Permitted>,
    pub(crate) rates: Vec<RateRecord>,
}

/// The attempt of what is part of what is committed: nothing of it goes back.
pub(crate) const COMMITTED: u32 = u32::MAX;

/// Rows handed out to one request, by their place in it.
#[derive(Clone, Debug)]
pub(crate) struct TakeRecord {
    pub(crate) collection: String,
    pub(crate) group: String,
    pub(crate) limit: u32,
    pub(crate) taken: Vec<Taken>,
    /// The attempt that asked for it last, or [`COMMITTED`].
    pub(crate) attempt: u32,
}

/// Leave that one request was given, by its place in it.
#[derive(Clone, Debug)]
pub(crate) struct Permitted {
    /// The proposal; absent where an earlier request's hold was reopened.
    pub(crate) proposal: Option<String>,
    pub(crate) id: String,
    pub(crate) hold: Hold,
    pub(crate) wish: Option<Wish>,
    /// The attempt that asked for it last.
    pub(crate) attempt: u32,
}

/// Why an attempt is over.
#[derive(Debug)]
pub(crate) enum Abort {
    /// A commit in the middle of it was rejected.
    Rejected(Rejection),
    /// A person would have to decide.
    Refused(Failure),
}

impl Work {
    pub(crate) fn new(world: &World, call: Rc<Call>, story: Story) -> Self {
        let txn = Txn::new(call.scope.lane(), world.now, !call.mutates);
        Self { call, txn, facts: Vec::new(), story, asked: Asked::default(), abort: None }
    }

    /// Of a call that a test makes outside of any request.
    pub(crate) fn alone(world: &mut World) -> Self {
        let request = world.fresh_id();
        let call = Call {
            scope: caller::scope(&caller::usual()),
            lineage: Lineage::outermost(request.clone()),
            request,
            mutates: true,
            word: Word::Asker,
        };
        Self::new(world, Rc::new(call), Story { attempt: 1, ..Story::default() })
    }

    /// Ends the attempt for a commit that was rejected in the middle of it.
    pub(crate) fn reject(&mut self, rejection: Rejection) -> Failure {
        let told = match &rejection {
            Rejection::Refused(refused) => charter_kernel::apply::rule(refused),
            Rejection::Conflict { .. } => {
                Failure::new("state_conflict", "this attempt is over: return")
            }
        };
        self.abort = Some(Abort::Rejected(rejection));
        told
    }

    /// Commits the attempt: of an `answered` one all of it, of a refused one its facts. Holds get
    /// their last step with it.
    pub(crate) fn commit(&mut self, world: &mut World, answered: bool) -> Result<(), Rejection> {
        let mut unit = self.txn.begin_anew();
        if !answered {
            let organization = unit.organization;
            unit = Unit { organization, ..Unit::default() };
        }
        unit.facts.append(&mut self.facts);
        for permit in &self.story.permits {
            let asked = permit.attempt == self.story.attempt;
            let end = End { answered, asked, reopened: permit.proposal.is_none() };
            let step = permit.hold.settle(&permit.id, permit.wish, end, world.now);
            unit.guards.extend(step.guards);
            unit.writes.extend(step.writes);
        }
        // A run that writes nothing is validated too: its end, which the host notes, is a part of it.
        if !unit.is_empty() || !unit.guards.is_empty() {
            world.commit(&unit)?;
        }
        self.story.permits.clear();
        self.give_back(world, answered);
        Ok(())
    }

    /// Gives back the rows and the rates that the last attempt did not ask for; all of them where
    /// the request is refused.
    fn give_back(&mut self, world: &mut World, answered: bool) {
        let attempt = self.story.attempt;
        let is_stale = |of: u32| of != COMMITTED && (!answered || of != attempt);
        for record in self.story.takes.drain(..).filter(|record| is_stale(record.attempt)) {
            for Taken { key, token, due_at, .. } in record.taken {
                let writes = vec![Write::Release { key, token, due_at, undo: true }];
                // A lease that has ended meanwhile keeps no other from going back.
                let _ = world.commit(&Unit { writes, ..Unit::default() });
            }
        }
        for record in self.story.rates.drain(..).filter(|record| is_stale(record.attempt)) {
            record.give_back(world);
        }
    }

    /// Commits what was written so far and goes on.
    pub(crate) fn checkpoint(&mut self, world: &mut World) -> Result<(), Failure> {
        let mut unit = self.txn.begin_anew();
        unit.facts.append(&mut self.facts);
        for permit in self.story.permits.iter().filter(|permit| permit.wish.is_some()) {
            let asked = permit.attempt == self.story.attempt;
            let end = End { answered: true, asked, reopened: permit.proposal.is_none() };
            let step = permit.hold.settle(&permit.id, permit.wish, end, world.now);
            unit.guards.extend(step.guards);
            unit.writes.extend(step.writes);
        }
        world.commit(&unit).map_err(|rejection| self.reject(rejection))?;
        self.story.permits.retain(|permit| permit.wish.is_none());
        self.story.is_dispatched = true;
        // Permits that this commit has settled count no more.
        self.asked.permits = self.story.permits.len();
        let attempt = self.story.attempt;
        let takes = self.story.takes.iter_mut().map(|record| &mut record.attempt);
        let rates = self.story.rates.iter_mut().map(|record| &mut record.attempt);
        takes.chain(rates).filter(|of| **of == attempt).for_each(|of| *of = COMMITTED);
        Ok(())
    }
}

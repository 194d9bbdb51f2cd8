//! Everything that the double holds: the committed rows, what the test has set up, and the request
//! that is under way.
//!
//! Decides nothing. Time and ids are the test's: the clock moves when the test moves it, and ids
//! count up.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use charter_kernel::apply::rule;
use charter_kernel::governance::policy::Policy;
use charter_kernel::id::uuid_v7;
use charter_kernel::idempotency::Record;
use charter_kernel::refusal::Failure;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Rejection, Unit};
use charter_sdk::bindings::charter::primitive::types::Failure as Raw;
use charter_sdk::http::{Request, Response};
use charter_sdk::native::Answer;
use charter_sdk::primitives::Reply;
use serde_json::Value;

use crate::call::Work;
use crate::installed::Installed;
use crate::rows::Rows;

/// A provider's answer to a request to the outside.
pub(crate) type Provider = Rc<dyn Fn(&Request) -> Option<Response>>;
/// Another primitive's answer to a call: by its parameters and its body.
pub(crate) type Peer = Rc<dyn Fn(&[(String, String)], &Value) -> Reply>;
/// An event between a request's reads and its commit.
pub(crate) type Meanwhile = Box<dyn FnOnce()>;

/// The double's state.
pub(crate) struct World {
    pub(crate) installed: Arc<Installed>,
    pub(crate) rows: Rows,
    pub(crate) now: Instant,
    ids: u64,
    pub(crate) users: BTreeSet<String>,
    pub(crate) policy: Policy,
    /// The user's budget of each month, in micro-US-dollars.
    pub(crate) budget: Option<i64>,
    pub(crate) denied: BTreeMap<String, Failure>,
    pub(crate) bills: bool,
    pub(crate) settings: BTreeMap<String, Value>,
    pub(crate) bindings: BTreeMap<String, Value>,
    pub(crate) outside: Vec<Provider>,
    /// The primitives that answer nested calls, and whether each changes anything.
    pub(crate) peers: BTreeMap<String, (Peer, bool)>,
    /// The answers to nested changes, by their keys.
    pub(crate) replays: BTreeMap<String, (Record, Reply)>,
    pub(crate) meanwhile: Option<Meanwhile>,
    pub(crate) work: Option<Work>,
}

/// The double, as the SDK's seam knows it.
pub(crate) struct Double(pub(crate) RefCell<World>);

impl World {
    pub(crate) fn new(installed: Arc<Installed>) -> Self {
        Self {
            installed,
            rows: Rows::default(),
            now: Instant(1_767_225_600_000),
            ids: 0,
            users: BTreeSet::from([crate::caller::USER.to_owned()]),
            policy: Policy::default(),
            budget: None,
            denied: BTreeMap::new(),
            bills: false,
            settings: BTreeMap::new(),
            bindings: BTreeMap::new(),
            outside: Vec::new(),
            peers: BTreeMap::new(),
            replays: BTreeMap::new(),
            meanwhile: None,
            work: None,
        }
    }

    /// The primitive's name.
    pub(crate) fn name(&self) -> &str {
        &self.installed.manifest.name
    }

    /// An id, which sorts by age.
    pub(crate) fn fresh_id(&mut self) -> String {
        self.ids += 1;
        let mut bytes = [0; 10];
        bytes[2..].copy_from_slice(&self.ids.to_be_bytes());
        uuid_v7(self.now, bytes)
    }

    /// Commits a unit of the host's own, at once.
    pub(crate) fn commit(&mut self, unit: &Unit) -> Result<(), Rejection> {
        self.rows.commit(unit, self.now).map(drop)
    }
}

impl Double {
    /// Does something of the host's own.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut World) -> T) -> T {
        act(&mut self.0.borrow_mut())
    }

    /// Serves a capability call that may change nothing.
    pub(crate) fn reading<T>(
        &self,
        capability: &str,
        act: impl FnOnce(&mut World, &mut Work) -> Result<T, Failure>,
    ) -> Answer<T> {
        self.with(|world| {
            if !world.installed.manifest.capabilities.iter().any(|asked| asked == capability) {
                let told = format!("the manifest does not ask for the capability `{capability}`");
                return Err(Failure::undeclared(told));
            }
            let Some(mut work) = world.work.take() else { return alone(world, act) };
            let answer = match &work.abort {
                Some(_) => Err(Failure::new("state_conflict", "this attempt is over: return")),
                None => act(world, &mut work),
            };
            world.work = Some(work);
            answer
        })
        .map_err(raw)
    }

    /// Serves a capability call that changes something.
    pub(crate) fn changing<T>(
        &self,
        capability: &str,
        act: impl FnOnce(&mut World, &mut Work) -> Result<T, Failure>,
    ) -> Answer<T> {
        self.reading(capability, |world, work| match work.call.mutates {
            true => act(world, work),
            false => Err(Failure::undeclared("an operation with the method GET changes nothing")),
        })
    }
}

/// A call that a test makes outside of any request is a request of its own.
fn alone<T>(
    world: &mut World,
    act: impl FnOnce(&mut World, &mut Work) -> Result<T, Failure>,
) -> Result<T, Failure> {
    let mut work = Work::alone(world);
    let answer = act(world, &mut work)?;
    match work.commit(world, true) {
        Ok(()) => Ok(answer),
        Err(Rejection::Refused(refused)) => Err(rule(&refused)),
        Err(Rejection::Conflict { .. }) => {
            Err(Failure::new("state_conflict", "what was read has changed"))
        }
    }
}

/// A failure as it crosses the interface.
pub(crate) fn raw(failure: Failure) -> Raw {
    Raw {
        code: failure.code,
        message: failure.message,
        hint: failure.hint,
        reason: failure.reason,
        param: failure.param,
        details: failure.details,
        retry_after_seconds: failure.retry_after_seconds,
    }
}

/// The same the other way.
pub(crate) fn unraw(raw: Raw) -> Failure {
    Failure {
        code: raw.code,
        message: raw.message,
        hint: raw.hint,
        reason: raw.reason,
        param: raw.param,
        details: raw.details,
        retry_after_seconds: raw.retry_after_seconds,
    }
}

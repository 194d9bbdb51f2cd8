//! `primitives`: nested calls, which the test answers, and the organization's standing.
//!
//! A nested change has the key that the host would give it: the same for each run of the request,
//! another for each call of it. Asked again under its key it is answered as before.

use charter_kernel::governance::proposal::check_call_scopes;
use charter_kernel::idempotency::{self, Fingerprint, Recall, Record, decide};
use charter_kernel::refusal::Failure;
use charter_kernel::standing::{Reason, Standing};
use charter_kernel::time::Instant;
use charter_kernel::unit::Draft;
use charter_sdk::bindings::charter::primitive::primitives::Reply;
use charter_sdk::native::{Answer, Primitives};
use charter_sdk::primitives::Reply as Told;
use serde_json::Value;

use crate::call::Work;
use crate::world::{Double, Peer, World, raw};

/// A nested call on its way to the test's answer.
struct Nested {
    peer: Peer,
    /// The key and the fingerprint of a change.
    change: Option<(String, Fingerprint)>,
}

impl Work {
    fn prepare_call(
        &mut self,
        world: &mut World,
        (operation, parameters, body): (&str, &[(String, String)], &str),
        key: Option<&str>,
    ) -> Result<Nested, Failure> {
        let Some((peer, mutates)) = world.peers.get(operation).cloned() else {
            let refusal = charter_kernel::refusal::Refusal::not_configured(&[operation]);
            return Err(refusal.to_failure());
        };
        if !mutates {
            return Ok(Nested { peer, change: None });
        }
        if !self.call.mutates {
            return Err(Failure::undeclared("an operation with the method GET changes nothing"));
        }
        self.story.is_dispatched = true;
        self.asked.nested += 1;
        let lineage = self.call.lineage.child(self.asked.nested);
        let key = format!("{operation} {}", key.unwrap_or_else(|| lineage.key()));
        let made = idempotency::Request {
            method: "POST",
            path: operation,
            query: parameters,
            content_type: "application/json",
            body: body.as_bytes(),
        };
        let print = Fingerprint::new(&[0; 32], made);
        Ok(Nested { peer, change: Some((key, print)) })
    }
}

impl Double {
    /// The kept answer of a change that was asked for before.
    fn find_replay(&self, nested: &Nested) -> Result<Option<Told>, Failure> {
        let Some((key, print)) = &nested.change else { return Ok(None) };
        self.with(|world| match world.replays.get(key) {
            None => Ok(None),
            Some((record, told)) => match decide(record, print) {
                Recall::Mismatch => Err(Failure::new(
                    "idempotency_conflict",
                    "the key was used for another request",
                )),
                _ => Ok(Some(told.clone())),
            },
        })
    }
}

impl Primitives for Double {
    fn call(
        &self,
        operation: &str,
        parameters: &[(String, String)],
        body: Option<&str>,
        idempotency_key: Option<&str>,
        scopes: &[(String, String)],
    ) -> Answer<Reply> {
        check_call_scopes(scopes).map_err(raw)?;
        let text = body.unwrap_or("null");
        let nested = self.reading("primitives", |world, work| {
            work.prepare_call(world, (operation, parameters, text), idempotency_key)
        })?;
        let told = match self.find_replay(&nested).map_err(raw)? {
            Some(told) => told,
            None => {
                let body: Value = super::events::json("body", text).map_err(raw)?;
                let told = (nested.peer)(parameters, &body);
                if let Some((key, print)) = nested.change {
                    let mut record = Record::begin(&print, String::new(), Instant::LAST);
                    record.state = idempotency::State::Done;
                    self.with(|world| world.replays.insert(key, (record, told.clone())));
                }
                told
            }
        };
        Ok(Reply { status: told.status, body: told.body.to_string() })
    }

    fn set_standing(&self, reason: Option<&str>) -> Answer<()> {
        self.changing("primitives", |world, work| {
            if !world.bills {
                let told = "the operator has not named this primitive as the one that bills";
                return Err(Failure::new("forbidden", told));
            }
            let reason = reason.map(|name| {
                let unknown = || Failure::invalid("reason", "is no reason that stops anything");
                Reason::parse(name).ok_or_else(unknown)
            });
            let key = Standing::address(work.call.scope.lane());
            let Some(reason) = reason.transpose()? else {
                let removed = work.txn.remove(&world.rows, &key, None);
                return removed.map(drop).map_err(|refused| charter_kernel::apply::rule(&refused));
            };
            let body = serde_json::to_string(&Standing { reason, since: world.now });
            let draft = Draft { body: body.unwrap_or_default(), ..Draft::default() };
            let put = work.txn.put(&world.rows, key, draft);
            put.map(drop).map_err(|refused| charter_kernel::apply::rule(&refused))
        })
    }
}

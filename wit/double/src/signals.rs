//! The signals that the host itself sends: jobs that are due, and calls of hooks.
//!
//! Knows no route. A job is gone with the commit of the run that succeeds, and tried again after
//! one that fails.

use std::rc::Rc;

use charter_kernel::governance::hold::Word;
use charter_kernel::idempotency::Lineage;
use charter_kernel::refusal::Failure;
use charter_kernel::unit::{Key, Unit, Write};
use charter_sdk::Primitive;
use charter_sdk::bindings::Answer;
use serde_json::{Value, json};

use crate::caller::of_signal;
use crate::capabilities::{HookRecord, JobRecord, jobs};
use crate::request::Sent;
use crate::world::Double;

impl Double {
    /// The jobs that are due, earliest first.
    pub(crate) fn due_jobs(&self) -> Vec<Key> {
        self.with(|world| {
            let space = jobs();
            let rows = world.rows.of(None, &space);
            let due = rows.filter_map(|(key, row)| {
                let due_at = row.lease.as_ref()?.due_at;
                (due_at <= world.now).then(|| (due_at, key.clone()))
            });
            let mut due: Vec<_> = due.collect();
            due.sort();
            due.into_iter().map(|(_, key)| key).collect()
        })
    }

    /// Runs a job once.
    pub(crate) fn run_job(
        self: &Rc<Self>,
        primitive: &Primitive,
        key: &Key,
    ) -> Result<Option<Answer>, Failure> {
        let record = self.with(|world| {
            let row = world.rows.row(key)?;
            serde_json::from_str::<JobRecord>(&row.body).ok()
        });
        let record = record.ok_or_else(|| Failure::not_found("the job"))?;
        let record = JobRecord { attempt: record.attempt + 1, ..record };
        let payload = json!({
            "id": key.id, "name": record.name, "payload": record.payload, "attempt": record.attempt,
        });
        let answered = self.send(
            primitive,
            &Sent {
                kind: "job",
                payload,
                caller: of_signal("system", record.user.as_deref()),
                word: Word::Asker,
                lineage: Lineage::outermost(key.id.clone()),
            },
        );
        self.with(|world| {
            let again = record.again(world.now).filter(|_| answered.is_err());
            let write = match again {
                Some(due_at) => {
                    let draft = record.draft(world.name(), due_at);
                    Write::Replace { key: key.clone(), draft, expected: None }
                }
                None => Write::Remove { key: key.clone(), expected: None },
            };
            // A run that has canceled its own job leaves nothing to change.
            let _ = world.commit(&Unit { writes: vec![write], ..Unit::default() });
        });
        answered
    }

    /// Calls a hook: by the signal `hook` or `question`.
    pub(crate) fn call_hook(
        self: &Rc<Self>,
        primitive: &Primitive,
        kind: &str,
        (id, event, body): (&str, &str, &str),
    ) -> Result<Option<Answer>, Failure> {
        let found = self.with(|world| {
            let row = world.rows.row(&HookRecord::address(id))?;
            let record: HookRecord = serde_json::from_str(&row.body).ok()?;
            let document = world.rows.row(&record.document)?;
            Some((record.clone(), document.user.clone(), world.now))
        });
        let (record, user, now) = found.ok_or_else(|| Failure::not_found("the hook"))?;
        let mut payload = json!({
            "hook_id": id, "collection": record.collection, "document": record.document.id,
            "event_id": event, "content_type": "application/json", "received_at": now, "body": body,
        });
        let is_told = kind == "hook" && record.provider.is_some();
        if let Some(provider) = record.provider {
            payload["provider"] = Value::from(provider);
        }
        let lineage = Lineage::outermost(format!("{id}/{event}"));
        let word = if is_told { Word::Provider } else { Word::Asker };
        let caller = of_signal("hook", user.as_deref());
        self.send(primitive, &Sent { kind, payload, caller, word, lineage })
    }
}

//! A host in memory, for tests of a primitive's rules: documents with their indexes and unique
//! fields, leases on a clock that the test moves, secrets, events, jobs, and scripted providers.
//! One per thread, so tests run side by side.
//!
//! It keeps the promises that a rule can depend on (a refused request leaves no document, its facts
//! stay; a waiting request is run again) and none of the machinery: no schemas, no tenants, no
//! concurrency. The end-to-end cases test those.

pub(crate) mod capabilities;
pub(crate) mod documents;
pub(crate) mod http;
pub(crate) mod leases;
pub(crate) mod money;
mod request;
mod state;

pub use request::{Refusal, Reply};
pub use state::{Audited, Emitted};

pub(crate) use capabilities::{
    clock, events, hooks, jobs, log, primitives, secrets, settings, streams,
};
pub(crate) use money::{governance, ledger};

use std::collections::BTreeMap;

use serde_json::Value;

use crate::bindings::{Answer as RawAnswer, AnswerBody, Caller, Signal};
use crate::failure::Failure;
use crate::http::{Request as HttpRequest, Response};
use crate::manifest::Primitive;
use crate::time::Instant;

/// The test's host. A new one forgets everything that this thread's last one held.
pub struct Host {
    primitive: fn() -> Primitive,
}

impl Host {
    /// A host that serves this primitive; its clock starts on 2026-01-01.
    pub fn new(primitive: fn() -> Primitive) -> Self {
        let collections = primitive().collections;
        state::with(|state| {
            *state = state::State::default();
            state.declared =
                collections.iter().map(|spec| (spec.name, *spec)).collect::<BTreeMap<_, _>>();
        });
        Self { primitive }
    }

    /// Serves a `GET`; the path stands below `/v1` and may have a query.
    pub fn get(&self, path: &str) -> Result<Reply, Refusal> {
        request::serve(&(self.primitive)(), "GET", path, None)
    }
    /// Serves a `POST`.
    pub fn post(&self, path: &str, body: Value) -> Result<Reply, Refusal> {
        request::serve(&(self.primitive)(), "POST", path, Some(body))
    }
    /// Serves a `PUT`.
    pub fn put(&self, path: &str, body: Value) -> Result<Reply, Refusal> {
        request::serve(&(self.primitive)(), "PUT", path, Some(body))
    }
    /// Serves a `PATCH`.
    pub fn patch(&self, path: &str, body: Value) -> Result<Reply, Refusal> {
        request::serve(&(self.primitive)(), "PATCH", path, Some(body))
    }
    /// Serves a `DELETE`.
    pub fn delete(&self, path: &str) -> Result<Reply, Refusal> {
        request::serve(&(self.primitive)(), "DELETE", path, None)
    }
    /// Sends a signal.
    pub fn signal(&self, kind: &str, payload: Value) -> Result<(), Failure> {
        self.react(kind, payload).map(drop)
    }
    fn react(&self, kind: &str, payload: Value) -> Result<Option<RawAnswer>, Failure> {
        let signal = Signal { kind: kind.into(), payload: payload.to_string(), blob: None };
        let primitive = (self.primitive)();
        request::transact(|| primitive.react(caller(), signal)).map_err(Failure::from)
    }
    /// Calls a hook that the primitive has opened, with this event; `not_found` where it is closed,
    /// or its document is gone.
    pub fn call_hook(&self, id: &str, event: &str, body: &str) -> Result<(), Failure> {
        let payload = Self::called(id, event, body)?;
        state::with(|state| state.is_told = true);
        let told = self.signal("hook", payload);
        state::with(|state| state.is_told = false);
        told
    }
    /// Asks by a hook, as a provider does that waits for the answer; a failure is a refusal.
    pub fn ask_hook(&self, id: &str, event: &str, body: &str) -> Result<Value, Failure> {
        match self.react("question", Self::called(id, event, body)?)?.map(|answer| answer.body) {
            Some(AnswerBody::Json(text)) => Ok(serde_json::from_str(&text)?),
            _ => Err(Failure::internal("a question is answered by JSON")),
        }
    }
    fn called(id: &str, event: &str, body: &str) -> Result<Value, Failure> {
        let found = state::with(|state| {
            let (collection, document) = state.hooks.get(id)?;
            let is_there =
                state.rows.get(collection).is_some_and(|rows| rows.contains_key(document));
            is_there.then(|| (collection.clone(), document.clone()))
        });
        let (collection, document) = found.ok_or_else(|| Failure::not_found("hook"))?;
        Ok(serde_json::json!({
            "hook_id": id, "collection": collection, "document": document, "event_id": event,
            "content_type": "application/json", "received_at": Instant::from_ms(clock::now_ms()), "body": body,
        }))
    }
    /// The hooks that are open, oldest first.
    pub fn hooks(&self) -> Vec<String> {
        state::with(|state| state.hooks.keys().cloned().collect())
    }
    /// Runs every job that is due, each once; answers how many.
    pub fn run_jobs(&self) -> Result<usize, Failure> {
        let due = state::with(state::State::take_due_jobs);
        for (id, job) in &due {
            let payload: Value = serde_json::from_str(&job.payload)?;
            self.signal(
                "job",
                serde_json::json!({ "id": id, "name": job.name, "payload": payload, "attempt": 1 }),
            )?;
        }
        Ok(due.len())
    }

    /// What the primitive sees as now.
    pub fn now(&self) -> Instant {
        Instant::from_ms(clock::now_ms())
    }
    /// Lets time pass.
    pub fn pass_seconds(&self, seconds: u32) {
        state::with(|state| state.now_ms += i64::from(seconds) * 1_000);
    }
    /// Scripts the outside world: the first answer that is `Some` wins; a request that nobody
    /// answers is unreachable.
    pub fn outside(&self, answer: impl Fn(&HttpRequest) -> Option<Response> + 'static) {
        state::with(|state| state.outside.push(std::rc::Rc::new(answer)));
    }
    /// Binds a provider, with the operator's options.
    pub fn bind(&self, provider: &str, kind: &str, options: Value) {
        let binding = serde_json::json!({
            "name": provider, "kind": kind, "state": "bound", "sandbox": false, "options": options,
        });
        state::with(|state| state.bindings.insert(provider.into(), binding));
    }
    /// Sets a setting.
    pub fn set(&self, key: &str, value: Value) {
        state::with(|state| state.settings.insert(key.into(), value));
    }
    /// Gives the organization credit, in micro-US-dollars.
    pub fn fund(&self, micro_usd: i64) {
        state::with(|state| state.accounts.entry("credit".into()).or_default().posted += micro_usd);
    }
    /// Names the primitive as the one that bills.
    pub fn bills(&self) {
        state::with(|state| state.bills = true);
    }
    /// How the organization stands with it.
    pub fn standing(&self) -> Option<String> {
        state::with(|state| state.standing.clone())
    }
    /// Has every proposal of this action refused.
    pub fn deny(&self, action: &str, refusal: Failure) {
        state::with(|state| state.denied.insert(action.into(), refusal));
    }
    /// The events so far.
    pub fn events(&self) -> Vec<Emitted> {
        state::with(|state| state.events.clone())
    }
    /// The primitive's own audit rows so far.
    pub fn audits(&self) -> Vec<Audited> {
        state::with(|state| state.audits.clone())
    }
    /// How many documents a collection holds.
    pub fn documents(&self, collection: &str) -> usize {
        state::with(|state| state.rows.get(collection).map_or(0, BTreeMap::len))
    }
}

fn caller() -> Caller {
    Caller {
        organization: "organization".into(),
        project: "project".into(),
        user: Some("user".into()),
        subject: "default".into(),
        actor: ("key".into(), "key".into()),
        role: Some("admin".into()),
    }
}

//! A host in memory, for tests of a primitive's rules: the same functions, no runtime, and a clock
//! that the test moves. One per thread, so tests run side by side.
//!
//! It decides by the rules of the host itself, which it has from the kernel: the manifest is checked
//! as at an install, a request by its schemas, and what a request reads and writes becomes a unit
//! that is applied as the committer applies it. So conflicts, unique values, bounds, holds,
//! overruns, policies and the names of events are what they are in production; where the commit
//! refuses or conflicts, the primitive is run again as the engine would.
//!
//! It has none of the machinery: no sandbox, no deadlines, no replicas, no people who approve. The
//! end-to-end cases have those.
//!
//! ```
//! use charter_double::Host;
//! use charter_sdk::prelude::*;
//!
//! fn ping() -> Result<Done> {
//!     Ok(Done::new())
//! }
//! fn primitive() -> Primitive {
//!     Primitive::new("ping", "0.1.0")
//!         .title("Ping")
//!         .operation(post("ping.send", "/ping", ping).summary("Answers."))
//! }
//!
//! let host = Host::new(primitive);
//! assert_eq!(host.post("/ping", json!({})).unwrap().status, 200);
//! assert_eq!(host.get("/pong").unwrap_err().code(), "not_found");
//! ```

mod call;
mod caller;
mod capabilities;
mod find;
mod installed;
mod rates;
mod request;
mod rows;
mod run;
mod signals;
mod txn;
mod world;

pub use caller::{ORGANIZATION, PROJECT, USER};
pub use request::Reply;

use std::cell::RefCell;
use std::rc::Rc;

use charter_kernel::governance::hold::{CREDIT, Word, accounts_space};
use charter_kernel::governance::policy::Policy;
use charter_kernel::idempotency::Lineage;
use charter_kernel::ledger::{Account, Normal, Phase};
use charter_kernel::standing::Standing;
use charter_kernel::unit::{FactKind, Key, Reach, Space, Unit, Write};
use charter_sdk::bindings::{AnswerBody, Request};
use charter_sdk::http::{Request as HttpRequest, Response};
use charter_sdk::primitives::Reply as Told;
use charter_sdk::{Caller, Failure, Instant, Primitive};
use serde_json::{Value, json};

use crate::installed::Installed;
use crate::request::Sent;
use crate::world::{Double, World, raw, unraw};

/// A refusal; reads as its [`Failure`].
pub type Refusal = Failure;

/// An event as it was emitted.
#[derive(Clone, Debug, PartialEq)]
pub struct Emitted {
    /// Its type.
    pub name: String,
    /// Its content.
    pub payload: Value,
}

/// An audit row as the primitive wrote it.
#[derive(Clone, Debug, PartialEq)]
pub struct Audited {
    /// `<primitive>.<verb>`.
    pub action: String,
    /// The kind of thing that it was done to.
    pub entity_type: String,
    /// The id of the event's subject.
    pub entity_id: String,
    /// The event's details.
    pub details: Value,
}

/// The test's host. A new one forgets everything that this thread's last one held.
#[derive(Clone)]
pub struct Host {
    primitive: fn() -> Primitive,
    double: Rc<Double>,
    caller: Caller,
}

fn as_told(failure: charter_kernel::refusal::Failure) -> Failure {
    Failure::from(raw(failure))
}

impl Host {
    /// A host that serves this primitive; its clock starts on 2026-01-01.
    ///
    /// # Panics
    /// If the host would not install the primitive: the message names every fault.
    pub fn new(primitive: fn() -> Primitive) -> Self {
        let world = World::new(Installed::of(&primitive()));
        let double = Rc::new(Double(RefCell::new(world)));
        charter_sdk::native::install(double.clone());
        Self { primitive, double, caller: caller::usual() }
    }

    /// The same host, called by somebody else. Users are UUIDs; one that is named here exists.
    #[must_use]
    pub fn call_as(&self, caller: Caller) -> Self {
        if let Some(user) = &caller.user {
            self.add_user(user);
        }
        Self { caller, ..self.clone() }
    }
    /// The same host, called on behalf of this user of the project.
    #[must_use]
    pub fn of_user(&self, id: &str) -> Self {
        self.call_as(caller::user(id))
    }
    /// Another user of the project, whom payments can name.
    pub fn add_user(&self, id: &str) {
        self.double.with(|world| world.users.insert(id.to_owned()));
    }

    /// Serves a `GET`; the path stands below `/v1` and may have a query.
    pub fn get(&self, path: &str) -> Result<Reply, Refusal> {
        self.serve("GET", path, None)
    }
    /// Serves a `POST`.
    pub fn post(&self, path: &str, body: Value) -> Result<Reply, Refusal> {
        self.serve("POST", path, Some(body))
    }
    /// Serves a `PUT`.
    pub fn put(&self, path: &str, body: Value) -> Result<Reply, Refusal> {
        self.serve("PUT", path, Some(body))
    }
    /// Serves a `PATCH`.
    pub fn patch(&self, path: &str, body: Value) -> Result<Reply, Refusal> {
        self.serve("PATCH", path, Some(body))
    }
    /// Serves a `DELETE`.
    pub fn delete(&self, path: &str) -> Result<Reply, Refusal> {
        self.serve("DELETE", path, None)
    }
    fn serve(&self, method: &str, path: &str, body: Option<Value>) -> Result<Reply, Refusal> {
        let served = self.double.serve(&(self.primitive)(), &self.caller, (method, path), body);
        served.map_err(as_told)
    }
    /// Serves a request that the test has put together, for what the methods above cannot say. It
    /// is not checked by schemas, and the host's caller makes it.
    pub fn handle(&self, request: &Request) -> Result<Reply, Refusal> {
        self.double.handle(&(self.primitive)(), &self.caller, request).map_err(as_told)
    }

    /// Sends a signal.
    pub fn signal(&self, kind: &str, payload: Value) -> Result<(), Failure> {
        let sent = Sent {
            kind,
            payload,
            caller: caller::of_signal("system", self.caller.user.as_deref()),
            word: Word::Asker,
            lineage: Lineage::outermost(self.double.with(World::fresh_id)),
        };
        self.double.send(&(self.primitive)(), &sent).map(drop).map_err(as_told)
    }
    /// Calls a hook that the primitive has opened, with this event; `not_found` where it is closed,
    /// or its document is gone.
    pub fn call_hook(&self, id: &str, event: &str, body: &str) -> Result<(), Failure> {
        let called = self.double.call_hook(&(self.primitive)(), "hook", (id, event, body));
        called.map(drop).map_err(as_told)
    }
    /// Asks by a hook, as a provider does that waits for the answer; a failure is a refusal.
    pub fn ask_hook(&self, id: &str, event: &str, body: &str) -> Result<Value, Failure> {
        let asked = self.double.call_hook(&(self.primitive)(), "question", (id, event, body));
        match asked.map_err(as_told)?.map(|answer| answer.body) {
            Some(AnswerBody::Json(text)) => Ok(charter_sdk::serde_json::from_str(&text)?),
            _ => Err(Failure::internal("a question is answered by JSON")),
        }
    }
    /// The hooks that are open, oldest first.
    pub fn hooks(&self) -> Vec<String> {
        let space = capabilities::HookRecord::space();
        self.double
            .with(|world| world.rows.of(None, &space).map(|(key, _)| key.id.clone()).collect())
    }
    /// Runs every job that is due, each once; answers how many. Those that fail are tried again
    /// later.
    ///
    /// # Errors
    /// The first failure, once all of them have run.
    pub fn run_jobs(&self) -> Result<usize, Failure> {
        let due = self.double.due_jobs();
        let primitive = (self.primitive)();
        let runs = due.iter().map(|key| self.double.run_job(&primitive, key));
        let failed = runs.filter_map(Result::err).collect::<Vec<_>>().into_iter().next();
        failed.map_or(Ok(due.len()), |failure| Err(as_told(failure)))
    }
    /// Has another request come between what the next request reads and its commit: a conflict,
    /// where the two meet.
    pub fn meanwhile(&self, act: impl FnOnce(&Host) + 'static) {
        let host = self.clone();
        self.double.with(|world| world.meanwhile = Some(Box::new(move || act(&host))));
    }

    /// The time that the primitive sees as now.
    pub fn now(&self) -> Instant {
        Instant::from_ms(self.double.with(|world| world.now.0))
    }
    /// Lets time pass.
    pub fn pass_seconds(&self, seconds: u32) {
        self.double.with(|world| world.now = world.now.plus_ms(i64::from(seconds) * 1_000));
    }
    /// Scripts the outside world: the first answer that is `Some` wins; a request that nobody
    /// answers is unreachable.
    pub fn outside(&self, answer: impl Fn(&HttpRequest) -> Option<Response> + 'static) {
        self.double.with(|world| world.outside.push(Rc::new(answer)));
    }
    /// Scripts an operation of another primitive: what it answers to its parameters and body. Of
    /// one that changes something (`mutates`) a repeated call gets the kept answer.
    pub fn answer_call(
        &self,
        operation: &str,
        mutates: bool,
        answer: impl Fn(&[(String, String)], &Value) -> Told + 'static,
    ) {
        let peer: (world::Peer, bool) = (Rc::new(answer), mutates);
        self.double.with(|world| world.peers.insert(operation.to_owned(), peer));
    }
    /// Binds a provider, with the operator's options.
    pub fn bind(&self, provider: &str, kind: &str, options: Value) {
        let binding = json!({
            "name": provider, "kind": kind, "state": "bound", "sandbox": false, "options": options,
        });
        self.double.with(|world| world.bindings.insert(provider.into(), binding));
    }
    /// Sets a setting.
    pub fn set(&self, key: &str, value: Value) {
        self.double.with(|world| world.settings.insert(key.into(), value));
    }
    /// Gives the organization credit, in micro-US-dollars, or takes it where the amount is negative.
    ///
    /// # Panics
    /// If there is not as much to take.
    pub fn fund(&self, micro_usd: i64) {
        let reach = Reach::organization(ORGANIZATION);
        let at = |reach: &Reach, name: &str| Key::new(reach, &accounts_space(), name);
        let (source, credit) = (at(&reach, "operator"), at(&reach, CREDIT));
        let opened =
            [Account::new(Normal::Debit, true).open(&source), Account::credit().open(&credit)];
        let (from, to) = if micro_usd < 0 { (credit, source) } else { (source, credit) };
        let amount = micro_usd.saturating_abs();
        let moved = Write::Transfer { from, to, amount, phase: Phase::Post };
        let writes = opened.into_iter().chain([moved]).collect();
        let funded = self.double.with(|world| world.commit(&Unit { writes, ..Unit::default() }));
        assert!(funded.is_ok(), "no credit of {micro_usd} can be given: {funded:?}");
    }
    /// The posted balance of an account of the primitive, in micro-US-dollars: of this user, or the
    /// organization's `credit`. 0 where there is none yet.
    pub fn posted_balance(&self, user: &str, account: &str) -> i64 {
        self.double.with(|world| {
            let key = match account {
                CREDIT => Key::new(&Reach::organization(ORGANIZATION), &accounts_space(), CREDIT),
                _ => {
                    let name = format!("{}.{account}", world.name());
                    Key::new(&Reach::user(user), &accounts_space(), name)
                }
            };
            let account = world.rows.row(&key);
            let account = account.and_then(|row| serde_json::from_str::<Account>(&row.body).ok());
            account.map_or(0, |account| account.balance().posted)
        })
    }
    /// Names the primitive as the one that bills.
    pub fn bills(&self) {
        self.double.with(|world| world.bills = true);
    }
    /// How the organization stands with it.
    pub fn standing(&self) -> Option<String> {
        self.double.with(|world| {
            let row = world.rows.row(&Standing::address(ORGANIZATION))?;
            let standing: Standing = serde_json::from_str(&row.body).ok()?;
            Some(standing.reason.as_str().to_owned())
        })
    }
    /// Sets the organization's policy, as `PUT /v1/policy` takes it.
    ///
    /// # Panics
    /// If it is no policy.
    pub fn policy(&self, policy: Value) {
        let read: Policy = serde_json::from_value(policy)
            .unwrap_or_else(|error| panic!("this is no policy: {error}"));
        self.double.with(|world| world.policy = read);
    }
    /// Gives the user a budget of so much each month, in micro-US-dollars.
    pub fn budget(&self, micro_usd: i64) {
        self.double.with(|world| world.budget = Some(micro_usd));
    }
    /// Has every proposal of this action refused.
    pub fn deny(&self, action: &str, refusal: Failure) {
        let refusal = unraw(refusal.into());
        self.double.with(|world| world.denied.insert(action.into(), refusal));
    }

    /// The events so far.
    pub fn events(&self) -> Vec<Emitted> {
        self.facts(FactKind::Event, |name, payload| Emitted { name, payload })
    }
    /// The primitive's own audit rows so far.
    pub fn audits(&self) -> Vec<Audited> {
        self.facts(FactKind::Audit, |action, body| {
            let text = |member: &str| body[member].as_str().unwrap_or_default().to_owned();
            let (entity_type, entity_id) = (text("entity_type"), text("entity_id"));
            Audited { action, entity_type, entity_id, details: body["details"].clone() }
        })
    }
    fn facts<T>(&self, kind: FactKind, read: impl Fn(String, Value) -> T) -> Vec<T> {
        self.double.with(|world| {
            let facts = world.rows.facts().iter().filter(|fact| fact.kind == kind);
            let body = |text: &str| serde_json::from_str(text).unwrap_or_default();
            facts.map(|fact| read(fact.name.clone(), body(&fact.body))).collect()
        })
    }
    /// How many documents a collection holds, of whomever.
    pub fn documents(&self, collection: &str) -> usize {
        self.double.with(|world| {
            let space = Space::of(world.name(), collection);
            world.rows.of(None, &space).count()
        })
    }
}

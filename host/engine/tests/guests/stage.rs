//! A stage for the fixture that plays scripts: an engine, the host's side of the ports, and a
//! provider that tests hold up, so that a script can be met in its middle.

use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use charter_engine::leave::Gateway;
use charter_engine::{
    Call, Component, Egress, EgressBody, EgressError, EngineConfig, Failure, Granted, Host, Leave,
    Nested, Outbound, Outcome, Reply, Ungranted,
};
use charter_kernel::id::UserId;
use charter_kernel::scope::Scope;
use charter_kernel::unit::{Draft, Guard, Key, Reach, Space, Unit, Write};
use charter_store::Store;
use futures::FutureExt as _;
use futures::future::BoxFuture;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::{World, call, json};

/// The host's side: what guests asked of it, and how it answers.
#[derive(Default)]
pub struct Desk {
    pub nested: Mutex<Vec<Nested>>,
    pub leaves: Mutex<Vec<Leave>>,
    /// Leave waits for a person by this approval, where one is named; it is refused otherwise.
    pub approval: Mutex<Option<String>>,
    store: OnceLock<Store>,
}

fn failure(code: &str) -> Failure {
    Failure { code: code.into(), message: "the desk says so".into(), ..Failure::default() }
}

impl Host for Desk {
    fn setting<'a>(
        &'a self,
        _: &'a Scope,
        _: &'a str,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Option<Value>, Failure>> {
        async { Ok(None) }.boxed()
    }

    fn bindings<'a>(
        &'a self,
        _: &'a Scope,
        _: &'a str,
        provider: &'a str,
    ) -> BoxFuture<'a, Result<Value, Failure>> {
        async move { Ok(json!([{ "name": provider, "state": "bound" }])) }.boxed()
    }

    fn tools<'a>(&'a self, _: &'a Scope) -> BoxFuture<'a, Result<Value, Failure>> {
        async { Ok(json!([])) }.boxed()
    }

    /// `other.echo` answers the body, `other.full` has no room; anything else is refused.
    fn call(&self, nested: Nested) -> BoxFuture<'_, Result<Reply, Failure>> {
        let answer = match nested.operation.as_str() {
            "other.echo" | "other.read" => {
                let body = nested.body.clone().unwrap_or("null".into());
                Ok(Reply { status: 201, body, secret: false })
            }
            "other.full" => Err(failure("overloaded")),
            _ => Err(failure("state_conflict")),
        };
        self.nested.lock().unwrap().push(nested);
        async { answer }.boxed()
    }

    fn mutates(&self, operation: &str) -> bool {
        operation != "other.read"
    }

    fn standing_of<'a>(
        &'a self,
        _: &'a Scope,
        _: &'a UserId,
    ) -> BoxFuture<'a, Result<Vec<Guard>, Failure>> {
        async { Err(failure("not_found")) }.boxed()
    }

    fn hook_address(&self, hook: charter_engine::hook::Wanted<'_>) -> Result<String, Failure> {
        Ok(format!("https://charter.test/v1/hooks/{}", hook.id))
    }

    fn bills(&self, _: &str) -> bool {
        false
    }
}

impl Gateway for Desk {
    fn authorize(&self, leave: Leave) -> BoxFuture<'_, Result<Granted, Ungranted>> {
        self.leaves.lock().unwrap().push(leave.clone());
        let approval = self.approval.lock().unwrap().clone();
        async move {
            let Some(approval) = approval else { return Err(failure("budget_exceeded").into()) };
            let mut txn = self.store.get().unwrap().begin(leave.scope.lane());
            let waiting = leave.waiting.as_ref().unwrap();
            waiting.note(&mut txn, &approval, "{}").await.unwrap();
            txn.commit().await.map_err(Ungranted::Uncommitted)?;
            Err(Ungranted::Pending { approval })
        }
        .boxed()
    }

    fn is_repeatable(&self) -> bool {
        true
    }
}

/// A provider that answers everything with 200; a request for `/hold` waits until it is let go.
#[derive(Default)]
pub struct Peer {
    pub requests: Mutex<Vec<String>>,
    reached: Notify,
    released: Notify,
    free: AtomicBool,
}

impl Egress for Peer {
    fn send(
        &self,
        outbound: Outbound,
    ) -> BoxFuture<'_, Result<http::Response<EgressBody>, EgressError>> {
        let path = outbound.request.uri().path().to_owned();
        let line = format!("{} {path}", outbound.request.method());
        self.requests.lock().unwrap().push(line);
        async move {
            if path == "/gone" {
                return Err(EgressError::Connection);
            }
            if path == "/hold" && !self.free.swap(true, SeqCst) {
                self.reached.notify_one();
                self.released.notified().await;
            }
            let body = http_body_util::Full::new(Bytes::from_static(b"{}"));
            Ok(http::Response::new(body.map_err(|never| match never {}).boxed_unsync()))
        }
        .boxed()
    }
}

impl Peer {
    /// How many requests began so: `POST`, `GET /hold`.
    pub fn count(&self, line: &str) -> usize {
        self.requests.lock().unwrap().iter().filter(|told| told.starts_with(line)).count()
    }
}

/// An engine that plays scripts.
pub struct Stage {
    pub world: World,
    pub script: Arc<Component>,
    pub desk: Arc<Desk>,
    pub peer: Arc<Peer>,
    /// The engine holds it weakly.
    _host: Arc<dyn Host>,
}

impl Stage {
    pub async fn new() -> Self {
        Self::with(World::config()).await
    }

    pub async fn with(config: EngineConfig) -> Self {
        let world = World::with(config).await;
        let script = world.stage("script").await;
        let (desk, peer) = (Arc::<Desk>::default(), Arc::<Peer>::default());
        let _ = desk.store.set(world.store.clone());
        let host: Arc<dyn Host> = desk.clone();
        world.engine.attach(&host, peer.clone());
        Self { world, script, desk, peer, _host: host }
    }

    pub fn store(&self) -> &Store {
        &self.world.store
    }

    pub async fn run(&self, call: Call) -> Outcome {
        let call = Call { gateway: Some(self.desk.clone()), ..call };
        self.world.engine.call(&self.script, call).await
    }

    pub async fn play(&self, steps: Value) -> Outcome {
        self.run(script(steps)).await
    }

    /// The results that the steps saw.
    pub async fn seen(&self, steps: Value) -> Vec<Value> {
        json(self.play(steps).await)["seen"].as_array().unwrap().clone()
    }

    /// The rows that are kept: the slugs and kinds of notes, sorted, and how many items nobody
    /// holds.
    pub async fn kept(&self) -> (Vec<String>, u64) {
        let listed = json(self.run(call("script.notes", "{}")).await);
        let name = |note: &Value| {
            note["slug"].as_str().or(note["kind"].as_str()).unwrap_or_default().to_owned()
        };
        let mut notes: Vec<_> = listed["notes"].as_array().unwrap().iter().map(name).collect();
        notes.sort();
        (notes, listed["items"].as_u64().unwrap())
    }

    /// Runs `call`, and `meanwhile` while what it commits in its middle is being committed. Before
    /// that it waits for the peer's `/hold`.
    pub async fn amid_a_commit(&self, call: Call, meanwhile: impl Future<Output = ()>) -> Outcome {
        self.peer.free.store(false, SeqCst);
        let between = async {
            self.peer.reached.notified().await;
            // Somebody else writes: the committer waits with what it has in hand, and what comes
            // then waits in its queue.
            let writer = rusqlite::Connection::open(self.world.folder.join("charter.db")).unwrap();
            writer.execute_batch("BEGIN IMMEDIATE").unwrap();
            let key = Key::new(&Reach::user("u"), &Space::host("decoys"), "d");
            let draft = Draft { body: "{}".into(), ..Draft::default() };
            let unit = Unit { writes: vec![Write::Put { key, draft }], ..Unit::default() };
            let mut in_hand = pin!(self.store().commit(unit));
            assert!(futures::poll!(in_hand.as_mut()).is_pending());
            self.queues(0).await;
            self.peer.released.notify_one();
            self.queues(1).await;
            meanwhile.await;
            drop(writer);
            in_hand.await.unwrap();
        };
        tokio::join!(self.run(call), between).0
    }

    async fn queues(&self, units: usize) {
        let queued = async {
            while self.store().status().queued_units != units {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(60), queued).await.unwrap();
    }

    /// Runs `call`, and `meanwhile` while it waits for the peer's `/hold`.
    pub async fn interrupted(&self, call: Call, meanwhile: impl Future<Output = ()>) -> Outcome {
        self.peer.free.store(false, SeqCst);
        let between = async {
            self.peer.reached.notified().await;
            meanwhile.await;
            self.peer.released.notify_one();
        };
        tokio::join!(self.run(call), between).0
    }
}

/// A request that plays these steps.
pub fn script(steps: Value) -> Call {
    call("script.play", &json!({ "steps": steps }).to_string())
}

/// A refusal's code and reason.
#[track_caller]
pub fn refused(outcome: Outcome) -> (String, String) {
    match outcome {
        Outcome::Refused(failure) => (failure.code, failure.reason.unwrap_or_default()),
        other => panic!("{other:?}"),
    }
}

//! Real components through the engine: what loads, what a call does, and what a hostile guest
//! costs.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
#![expect(unreachable_pub, dead_code, reason = "a file belongs to other tests as well")]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use charter_engine::{
    Answer, AnswerBody, Call, Component, Ending, Engine, EngineConfig, Entry, Finish, Outcome,
    Request,
};
use charter_kernel::id::{OrganizationId, ProjectId, UserId};
use charter_kernel::idempotency::Lineage;
use charter_kernel::manifest::CallLength;
use charter_kernel::scope::{Actor, ActorKind, Principal, Proof, Scope, Subject};
use charter_kernel::time::{Clock, Instant};
use charter_store::{CommitError, Store, Txn};
use futures::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use fixture::fixture;

#[path = "guests/attacks.rs"]
mod attacks;
#[path = "guests/ends.rs"]
mod ends;
#[path = "guests/fixture.rs"]
mod fixture;
#[path = "guests/jobs.rs"]
mod jobs;
#[path = "guests/leases.rs"]
mod leases;
#[path = "guests/leaves.rs"]
mod leaves;
#[path = "guests/nested.rs"]
mod nested;
#[path = "guests/outbound.rs"]
mod outbound;
#[path = "guests/rules.rs"]
mod rules;
#[path = "guests/stage.rs"]
mod stage;
#[path = "guests/template.rs"]
mod template;
#[path = "guests/waits.rs"]
mod waits;

struct Time(AtomicI64);

impl Clock for Time {
    fn now(&self) -> Instant {
        Instant(self.0.fetch_add(1, SeqCst))
    }
}

struct Nothing;

impl Finish for Nothing {
    fn finish<'a>(
        &'a self,
        _: &'a mut Txn,
        _: Ending<'a>,
    ) -> BoxFuture<'a, Result<(), CommitError>> {
        Box::pin(async { Ok(()) })
    }
}

/// The components that most tests call.
fn usual() -> Vec<Vec<u8>> {
    ["probe", "hostile", "script"].map(fixture).into()
}

/// An engine on a store of its own.
struct World {
    engine: Engine,
    store: Store,
    folder: PathBuf,
}

impl World {
    async fn new() -> Self {
        Self::with(Self::config()).await
    }

    fn config() -> EngineConfig {
        EngineConfig { instances_max: 32, cpu_ms_max: 300, ..EngineConfig::default() }
    }

    async fn with(config: EngineConfig) -> Self {
        let folder = template::folder();
        template::copy(&folder, usual).await;
        let (store, engine) = Self::start(&folder, config).await;
        Self { engine, store, folder }
    }

    async fn start(folder: &Path, config: EngineConfig) -> (Store, Engine) {
        let clock: Arc<dyn Clock> = Arc::new(Time(AtomicI64::new(1_700_000_000_000)));
        template::open(folder, config, clock).await
    }

    async fn stage(&self, name: &str) -> Arc<Component> {
        match self.engine.stage(fixture(name).into()).await {
            Ok(component) => component,
            Err(faults) => panic!("{name}: {faults:#?}"),
        }
    }

    async fn faults(&self, name: &str) -> String {
        let faults = self.engine.stage(fixture(name).into()).await.unwrap_err();
        faults.iter().map(|fault| format!("{fault}\n")).collect()
    }

    async fn call(&self, component: &Arc<Component>, operation: &str, body: &str) -> Outcome {
        self.engine.call(component, call(operation, body)).await
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn id(n: u8) -> String {
    charter_kernel::id::uuid_v7(Instant(1), [n; 10])
}

fn scope() -> Scope {
    Proof::of(Principal::of(Actor::new(ActorKind::Key, "k")))
        .organization(OrganizationId::parse(&id(1)).unwrap())
        .project(ProjectId::parse(&id(2)).unwrap(), false, false)
        .user(UserId::parse(&id(3)).unwrap(), Subject::Path)
        .scope()
}

fn call(operation: &str, body: &str) -> Call {
    Call {
        request_id: "request".into(),
        scope: scope(),
        entry: Entry::Handle(Request {
            operation: operation.into(),
            parameters: Vec::new(),
            query: "{}".into(),
            body: Some(body.into()),
            bytes: None,
            blob: None,
            headers: Vec::new(),
            context: serde_json::Map::new(),
        }),
        guards: Vec::new(),
        credential: Vec::new(),
        claim: None,
        finish: Arc::new(Nothing),
        mutates: true,
        deadline_ms: 5_000,
        class: CallLength::Short,
        lineage: Lineage::outermost("request"),
        client_gone: CancellationToken::new(),
        gateway: None,
        shown: charter_engine::Shown::default(),
    }
}

/// Waits until something holds that another task brings about.
async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let waited = async {
        while !holds().await {
            tokio::task::yield_now().await;
        }
    };
    let patience = std::time::Duration::from_secs(60);
    assert!(tokio::time::timeout(patience, waited).await.is_ok(), "never: {what}");
}

fn json(outcome: Outcome) -> serde_json::Value {
    match outcome {
        Outcome::Answered(Answer { body: AnswerBody::Json(text), .. }) => {
            serde_json::from_str(&text).unwrap()
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_are_committed_with_the_answer_and_seen_by_the_next_call() {
    let world = World::new().await;
    let probe = world.stage("probe").await;
    for name in ["a", "b"] {
        json(world.call(&probe, "probe.pair", &format!("{{\"name\": \"{name}\"}}")).await);
    }
    let pairs = json(world.call(&probe, "probe.pairs", "{}").await);
    assert_eq!(pairs, serde_json::json!({ "left": ["a", "b"], "right": ["a", "b"] }));
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_of_one_hot_document_all_succeed_and_none_is_lost() {
    let world = World::new().await;
    let probe = world.stage("probe").await;
    let calls = (0..24).map(|_| world.call(&probe, "probe.count", "{}"));
    let mut counts: Vec<u64> = futures::future::join_all(calls)
        .await
        .into_iter()
        .map(|outcome| json(outcome)["count"].as_u64().unwrap())
        .collect();
    counts.sort_unstable();
    assert_eq!(counts, (1..=24).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_comes_back_from_the_code_cache_and_a_torn_file_is_a_miss() {
    let world = World::new().await;
    let digest = world.stage("probe").await.digest().to_owned();
    let (_, again) = World::start(&world.folder, World::config()).await;
    let cached = again.open(&digest, || async { None }).await.unwrap();
    assert_eq!(json(again.call(&cached, call("probe.build", "{}")).await)["build"], "900000");
    for file in std::fs::read_dir(world.folder.join("code")).unwrap() {
        let path = file.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
    assert!(again.open(&digest, || async { None }).await.is_err(), "damaged code was run");
    assert!(again.open(&digest, || async { Some(fixture("probe").into()) }).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn components_that_do_not_fit_are_told_what_differs() {
    let world = World::new().await;
    let wrong = world.faults("wrong-world").await;
    assert!(wrong.contains("export react it is missing"), "{wrong}");
    assert!(wrong.contains("export handle parameter `request` must be record {"), "{wrong}");
    let forbidden = world.faults("forbidden-import").await;
    assert!(forbidden.contains("this host does not offer it"), "{forbidden}");
    let undeclared = world.faults("undeclared-import").await;
    assert!(
        undeclared.contains("which the component imports: in Rust, add `.uses("),
        "{undeclared}"
    );
    assert!(!world.faults("malformed").await.is_empty());
    let module = world.engine.stage((&b"\0asm\x01\0\0\0"[..]).into()).await.unwrap_err();
    assert!(module[0].message.contains("core WebAssembly module"), "{module:?}");
    let text = world.engine.stage("hello".into()).await.unwrap_err();
    assert!(text[0].message.contains("not a WebAssembly component"), "{text:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_guest_costs_one_call() {
    let world = World::new().await;
    let hostile = world.stage("hostile").await;
    let run = |operation: &'static str, deadline_ms| {
        let (world, hostile) = (&world, &hostile);
        async move { world.engine.call(hostile, Call { deadline_ms, ..call(operation, "{}") }).await }
    };
    for (operation, wanted) in [
        ("hostile.good", "Answered"),
        ("hostile.loop", "Deadline"),
        ("hostile.park", "Deadline"),
        ("hostile.memory", "OutOfMemory"),
        ("hostile.recursion", "Trapped"),
        ("hostile.answer", "OutOfMemory"),
        ("hostile.bytes", "Trapped"),
        ("hostile.garbage", "Trapped"),
        ("hostile.status", "Trapped"),
        ("hostile.again", "Refused"),
        ("hostile.written", "Trapped"),
        ("hostile.handles", "Trapped"),
        ("hostile.random", "Trapped"),
        ("hostile.logs", "Deadline"),
        ("hostile.trap", "Trapped"),
        ("hostile.rows", "Refused"),
        ("hostile.not_json", "Refused"),
        ("hostile.nesting", "Refused"),
        ("hostile.undeclared_collection", "Refused"),
        ("hostile.foreign_collection", "Refused"),
        ("hostile.undeclared_event", "Refused"),
        ("hostile.forged_token", "Refused"),
    ] {
        // Only those that would go on for ever are waited for.
        let deadline_ms = if wanted == "Deadline" { 1_500 } else { 20_000 };
        let outcome = format!("{:?}", run(operation, deadline_ms).await);
        assert!(outcome.starts_with(wanted), "{operation}: {outcome}");
    }
    let kept = json(run("hostile.written_documents", 20_000).await);
    assert_eq!(kept["count"], 0, "something of a failed request was committed");
    assert_eq!(world.engine.stats().instances.load(SeqCst), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_left_stops_a_guest_that_has_sent_nothing() {
    let world = World::new().await;
    let hostile = world.stage("hostile").await;
    let call = call("hostile.park", "{}");
    let gone = call.client_gone.clone();
    let running = world.engine.call(&hostile, call);
    gone.cancel();
    assert!(matches!(running.await, Outcome::ClientGone));
}

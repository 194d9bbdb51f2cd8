//! A bed for the tests of capabilities: attempts at calls over a real store, in which the test is in
//! the guest's place and calls the host's functions itself.
//!
//! Knows no rule. The one compiled component is never run; a loaded component just has to have one.

use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, OnceLock};

use charter_kernel::idempotency::Lineage;
use charter_kernel::manifest::{self, Manifest};
use charter_kernel::scope::Scope;
use charter_kernel::time::{Clock, Instant};
use charter_kernel::unit::{Key, Row};
use charter_store::{CommitError, Store, StoreConfig, Txn};
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;
use wasmtime::component::{Component as Code, Linker};

use super::unit;
use crate::admission::Admission;
use crate::answer::Answer;
use crate::bindings::PrimitivePre;
use crate::bindings::charter::primitive::governance::Proposal;
use crate::bindings::charter::primitive::types;
use crate::call::{Call, Ending, EndingResult, Entry, Finish, Request, Shown};
use crate::compilations::Turns;
use crate::component::{CollectionPlan, Component, classes};
use crate::config::EngineConfig;
use crate::failure::rule;
use crate::fairness::Fairness;
use crate::host::Host;
use crate::limiter::Limiter;
use crate::outbound::Outbounds;
use crate::sandbox::{self, Mode};
use crate::shared::Shared;
use crate::state::{State, Work};
use crate::stats::Stats;
use crate::story::{Abort, Marks, Story};
use crate::wasi::Printed;

mod desk;
#[path = "../../tests/guests/fixture.rs"]
#[expect(dead_code, unreachable_pub, reason = "it belongs to other tests as well")]
mod fixture;
#[path = "../../tests/guests/scopes.rs"]
#[expect(unreachable_pub, reason = "it belongs to other tests as well")]
mod scopes;

pub(crate) use desk::{Desk, Till};
pub(crate) use scopes::{alone, id, key, scope, user};

/// A clock that tests turn.
pub(crate) struct Hands(AtomicI64);

impl Hands {
    pub(crate) fn turn(&self, ms: i64) {
        self.0.fetch_add(ms, SeqCst);
    }
}

impl Clock for Hands {
    fn now(&self) -> Instant {
        Instant(self.0.fetch_add(1, SeqCst))
    }
}

/// The pipeline's part of a commit: none.
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

/// The sandbox's part of a loaded component, made once a process.
struct Parts {
    wasmtime: wasmtime::Engine,
    mode: Mode,
    linker: Linker<State>,
    pre: PrimitivePre<State>,
}

fn parts() -> &'static Parts {
    static PARTS: OnceLock<Parts> = OnceLock::new();
    PARTS.get_or_init(|| {
        let config = EngineConfig { instances_max: 4, ..EngineConfig::default() };
        let (wasmtime, mode) = sandbox::open(&config).unwrap();
        let mut linker = Linker::new(&wasmtime);
        crate::capabilities::link(&mut linker).unwrap();
        let code = Code::new(&wasmtime, fixture::fixture("malformed")).unwrap();
        let pre = PrimitivePre::new(linker.instantiate_pre(&code).unwrap()).unwrap();
        Parts { wasmtime, mode, linker, pre }
    })
}

/// The manifest of the component that most tests call.
pub(crate) fn shop() -> Value {
    let operation = |id: &str, method: &str, access: &str| json!({ "id": id, "method": method, "path": "/shop", "access": access });
    let action = |name: &str, spends: bool| json!({ "name": name, "title": "t", "spends": spends });
    let mut guess = action("shop.guess", true);
    guess["overrun"] = json!(1.5);
    json!({
        "name": "shop",
        "version": "1.0.0",
        "title": "Shop",
        "operations": [
            operation("shop.do", "POST", "write"),
            operation("shop.peek", "POST", "read"),
            operation("shop.look", "GET", "read"),
        ],
        "actions": [action("shop.buy", true), guess, action("shop.send", false)],
        "collections": [
            {
                "name": "notes", "unique": ["slug"], "searchable": ["text"],
                "indexes": [{ "field": "kind" }, { "field": "size", "type": "integer" }],
            },
            { "name": "items", "leased": { "by": "group" } },
            { "name": "plans", "reach": "project" },
            { "name": "house", "reach": "organization" },
            { "name": "world", "reach": "deployment" },
        ],
        "events": [{ "name": "shop.sold" }],
        "providers": [{ "name": "shop.peer" }],
        "settings": [{ "key": "tone", "default": "calm" }, { "key": "bare" }],
        "signals": ["hook", "job"],
    })
}

/// A proposal to buy for so much.
pub(crate) fn proposal(amount: i64) -> Proposal {
    Proposal {
        action: "shop.buy".into(),
        amount: Some(amount),
        entity: "thing".into(),
        scopes: Vec::new(),
        component: "things".into(),
        title: "t".into(),
        message: "m".into(),
        context: "{}".into(),
        pay: None,
    }
}

/// A store, the host's side of the ports, and a component whose calls the test makes.
pub(crate) struct Bed {
    pub(crate) shared: Arc<Shared>,
    pub(crate) component: Arc<Component>,
    pub(crate) desk: Arc<Desk>,
    pub(crate) till: Arc<Till>,
    pub(crate) hands: Arc<Hands>,
    folder: PathBuf,
    calls: AtomicU32,
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl Bed {
    pub(crate) async fn new() -> Self {
        Self::with(EngineConfig::default()).await
    }

    pub(crate) async fn with(config: EngineConfig) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("charter-bed-{}-{}", std::process::id(), NEXT.fetch_add(1, SeqCst));
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&folder).unwrap();
        let hands = Arc::new(Hands(AtomicI64::new(1_700_000_000_000)));
        let mut of_store = StoreConfig::new(&folder, hands.clone());
        of_store.ballast_bytes = 64 << 10;
        let store = Store::open(of_store).await.unwrap();
        let Parts { wasmtime, mode, linker, .. } = parts();
        let shared = Arc::new(Shared {
            admission: Admission::new(config.admission.clone()),
            compilations: Turns::new(config.compilations_max),
            config,
            store: store.clone(),
            clock: hands.clone(),
            wasmtime: wasmtime.clone(),
            linker: linker.clone(),
            mode: *mode,
            fairness: Arc::new(Fairness::new(2)),
            backlog: Arc::default(),
            cut: CancellationToken::new(),
            cache: None,
            stats: Stats::default(),
            host: OnceLock::new(),
            egress: OnceLock::new(),
        });
        let (desk, till) = (Arc::<Desk>::default(), Arc::new(Till::new(store)));
        let host: Arc<dyn Host> = desk.clone();
        assert!(shared.host.set(Arc::downgrade(&host)).is_ok());
        let component = component(&shared, shop());
        Self { shared, component, desk, till, hands, folder, calls: AtomicU32::new(0) }
    }

    pub(crate) fn store(&self) -> &Store {
        &self.shared.store
    }

    /// The same bed for the component of another manifest.
    pub(crate) fn beside(&mut self, manifest: Value) {
        self.component = component(&self.shared, manifest);
    }

    /// A call of the operation that changes things.
    pub(crate) fn call(&self, scope: Scope) -> Call {
        let request = format!("r{}", self.calls.fetch_add(1, SeqCst));
        Call {
            request_id: request.clone(),
            scope,
            entry: handle("shop.do"),
            guards: Vec::new(),
            credential: Vec::new(),
            claim: None,
            finish: Arc::new(Nothing),
            mutates: true,
            deadline_ms: 5_000,
            class: manifest::CallLength::Short,
            lineage: Lineage::outermost(request),
            client_gone: CancellationToken::new(),
            gateway: Some(self.till.clone()),
            shown: Shown::default(),
        }
    }

    /// The first attempt at a call.
    pub(crate) fn attempt(&self, call: Call) -> State {
        let call = Arc::new(call);
        let story = Story { attempt: 1, ..Story::default() };
        let mut txn = self.store().begin(call.scope.lane());
        if !call.mutates {
            txn = txn.reading();
        }
        let printed = Printed::default();
        let tenant = self.shared.admission.tenant(call.scope.lane());
        let bytes = self.shared.admission.bytes(&tenant, &call.scope.sharer());
        let deadline = std::time::Duration::from_millis(call.deadline_ms.into());
        let work = Work {
            shared: self.shared.clone(),
            component: self.component.clone(),
            call,
            txn,
            story,
            now: self.shared.clock.now(),
            facts: Vec::new(),
            fact_bytes: 0,
            groups: Vec::new(),
            takes: 0,
            rates: 0,
            permits: 0,
            has_enqueued: false,
            in_runs_place: false,
            nested: 0,
            log_bytes_left: self.shared.config.log_bytes_max,
            asked: self.shared.backlog.attempt(),
            deadline: tokio::time::Instant::now() + deadline,
        };
        let max = self.shared.config.guest_memory_bytes_max;
        let limiter = Limiter::new(max, bytes, self.shared.stats.memory_bytes.clone());
        State::new(printed, limiter, Some(work), Outbounds::none())
    }

    /// The same for a call of a scope that may hold so many bytes.
    pub(crate) fn attempt_within(&self, scope: &Scope, bytes: usize) -> State {
        let mut state = self.attempt(self.call(scope.clone()));
        let tenant = self.shared.admission.tenant(scope.lane());
        let gauge = self.shared.stats.memory_bytes.clone();
        state.limiter =
            Limiter::new(bytes, self.shared.admission.bytes(&tenant, &scope.sharer()), gauge);
        state
    }

    /// Ends an attempt by the commit of an answer, or of a refusal.
    pub(crate) async fn end(&self, state: State, answered: bool) -> Result<(), String> {
        let Work { call, mut txn, mut story, facts, mut asked, .. } = state.work.unwrap();
        if let Some(abort) = story.marks.abort_cause() {
            return Err(abort_word(abort));
        }
        if !answered {
            txn = self.store().begin(call.scope.lane());
        }
        if call.mutates {
            unit::arm(&mut txn, &call, &story.marks);
        }
        facts.into_iter().for_each(|fact| txn.fact(fact));
        let (answer, failure) = (Answer::empty(), crate::Failure::default());
        let result = match answered {
            true => EndingResult::Answered(&answer),
            false => EndingResult::Refused(&failure),
        };
        let committed = unit::commit(&call, &mut story, txn, result).await;
        if answered && committed.is_ok() {
            asked.commit();
        }
        committed.map_err(|abort| abort_word(&abort))
    }

    /// Ends an attempt that was aborted by the commit of a refusal, without what the guest wrote.
    pub(crate) async fn refuse(&self, state: State) -> Result<(), String> {
        let Work { call, mut story, .. } = state.work.unwrap();
        let txn = self.store().begin(call.scope.lane());
        let result = EndingResult::Refused(&crate::Failure::default());
        unit::commit(&call, &mut story, txn, result).await.map_err(|abort| abort_word(&abort))
    }

    /// Has a guest act in a call and answer, or refuse where it meets a failure. A failure of the
    /// guest's reads `code` or `code:param`, one of the commit `commit:…`.
    pub(crate) async fn play<T>(
        &self,
        call: Call,
        act: impl AsyncFnOnce(&mut State) -> Result<T, types::Failure>,
    ) -> Result<T, String> {
        let mut state = self.attempt(call);
        match act(&mut state).await {
            Ok(value) => self.end(state, true).await.map(|()| value),
            Err(failure) => {
                let _ = self.end(state, false).await;
                Err(word(&failure))
            }
        }
    }

    /// The same for a call of a scope.
    pub(crate) async fn by<T>(
        &self,
        scope: Scope,
        act: impl AsyncFnOnce(&mut State) -> Result<T, types::Failure>,
    ) -> Result<T, String> {
        self.play(self.call(scope), act).await
    }

    /// A row as it is committed.
    pub(crate) async fn row(&self, key: &Key) -> Option<Row> {
        self.store().get(key).await.unwrap()
    }
}

fn component(shared: &Arc<Shared>, manifest: Value) -> Arc<Component> {
    let manifest: Manifest = serde_json::from_value(manifest).unwrap();
    Arc::new(Component {
        digest: "sha256:00".into(),
        collections: CollectionPlan::all(&manifest),
        classes: classes(&manifest),
        http: true,
        public_web: false,
        pre: parts().pre.clone(),
        stats: shared.stats.primitive(&manifest.name),
        places: shared.admission.primitive(),
        manifest: Arc::new(manifest),
    })
}

/// A request of an operation, without a body.
pub(crate) fn handle(operation: &str) -> Entry {
    Entry::Handle(Request {
        operation: operation.into(),
        parameters: Vec::new(),
        query: "{}".into(),
        body: None,
        bytes: None,
        blob: None,
        headers: Vec::new(),
        context: Map::new(),
    })
}

/// The code of a failure, with its reason or its parameter.
pub(crate) fn word(failure: &types::Failure) -> String {
    match failure.reason.as_ref().or(failure.param.as_ref()) {
        Some(detail) => format!("{}:{detail}", failure.code),
        None => failure.code.clone(),
    }
}

fn abort_word(abort: &Abort) -> String {
    match abort {
        Abort::Refused(refused) => format!("commit:{}", word(&rule(refused).into())),
        Abort::Conflict(_) => "commit:conflict".into(),
        other => format!("commit:{other:?}"),
    }
}

/// A text of so many bytes.
pub(crate) fn long(bytes: usize) -> String {
    "x".repeat(bytes)
}

/// A guest's call, as what it has under way beside it knows that.
pub(crate) fn call_of(guest: &mut State) -> (Arc<Shared>, Arc<Call>, Arc<Marks>) {
    let work = guest.work().unwrap();
    (work.shared.clone(), work.call.clone(), work.story.marks.clone())
}

//! A database of its own for each test, an organization with one user in it, and the few words
//! that the tests are written in.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use charter_engine::{Engine, EngineConfig, Granted, Leave, Ungranted};
use charter_governance::approvals::Origin;
use charter_governance::gateway::CallGateway;
use charter_governance::sums::Sums;
use charter_governance::{Governance, caps};
use charter_kernel::governance::hold::{Hold, Step, Word, key as hold_key, meters_space};
use charter_kernel::meter::Meter;
use charter_kernel::refusal::Refusal;
use charter_kernel::role::Role;
use charter_kernel::time::{Clock, Instant};
use charter_kernel::unit::{FactKind, Key, Reach, Row, Unit, Write};
use charter_registry::components::Registry;
use charter_registry::served::Reserved;
use charter_registry::settings::{Breaker, Components, Primitives, Settings};
use charter_store::{CommitError, Query, Store, StoreConfig, Txn};
use charter_tenancy::directory::Directory;
use charter_tenancy::notices::Notices;
use charter_tenancy::records::Record;
use charter_tenancy::records::approval::Approval;
use charter_tenancy::records::kit::StoredKit;
use charter_tenancy::records::mail::{About, Notice};
use charter_tenancy::records::organization::Organization;
use charter_tenancy::records::project::Project;
use charter_tenancy::records::user::User;
use charter_tenancy::stored;
use serde_json::Value;

use crate::postgres::Postgres;
use crate::words::{self, id};

/// The moment at which every test begins: 15 January 2027, 08:00 in UTC.
pub const START: Instant = Instant(1_800_000_000_000);

/// How many approvals of the organization may wait.
pub const WAITING_MAX: u64 = 32;

/// A clock that tests move.
#[derive(Debug)]
pub struct Hands(pub AtomicI64);

impl Hands {
    pub fn forward_ms(&self, ms: i64) {
        self.0.fetch_add(ms, SeqCst);
    }
}

impl Clock for Hands {
    fn now(&self) -> Instant {
        Instant(self.0.load(SeqCst))
    }
}

/// Has people told by a row, as mail does.
#[derive(Debug, Default)]
pub struct Told {
    given: AtomicU32,
}

impl Notices for Told {
    fn notice(&self, about: About, now: Instant) -> Result<Option<Write>, Refusal> {
        let id = format!("notice-{}", self.given.fetch_add(1, SeqCst));
        let notice = Notice { id, about, created_at: now };
        let draft = notice.due(now).unwrap();
        Ok(Some(Write::Insert { key: notice.key(), draft }))
    }
}

/// A database, the governance on it, and an organization.
pub struct Bed {
    pub governance: Arc<Governance>,
    pub clock: Arc<Hands>,
    pub config: StoreConfig,
    told: Arc<Told>,
}

/// The private server, where the machine has the programs for one.
fn server() -> Option<&'static Postgres> {
    Postgres::if_installed("governance")
}

fn folder() -> PathBuf {
    static BEDS: AtomicU32 = AtomicU32::new(0);
    let name = format!("charter-governance-{}-{}", std::process::id(), BEDS.fetch_add(1, SeqCst));
    let folder = std::env::temp_dir().join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// Each function runs as a test on both databases.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(crate::bed::Bed::sqlite().await).await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                if let Some(bed) = crate::bed::Bed::postgres().await {
                    super::$name(bed).await;
                }
            })*
        }
    };
}
pub(crate) use on_both;

impl Bed {
    /// An organization that allows everything and bounds nothing.
    pub async fn sqlite() -> Self {
        Self::open(String::new()).await
    }

    pub async fn postgres() -> Option<Self> {
        Some(Self::open(server()?.database()).await)
    }

    /// The same on a database that grows to so many bytes at most.
    pub async fn bounded(bytes: u64) -> Self {
        Self::open_with(|config| config.size_bytes_max = Some(bytes)).await
    }

    async fn open(url: String) -> Self {
        Self::open_with(|config| config.url = url).await
    }

    async fn open_with(set: impl FnOnce(&mut StoreConfig)) -> Self {
        let clock = Arc::new(Hands(AtomicI64::new(START.0)));
        let mut config = StoreConfig::new(folder(), clock.clone());
        config.ballast_bytes = 1024 * 1024;
        set(&mut config);
        let store = Store::open(config.clone()).await.unwrap();
        let engine = EngineConfig { instances_max: 2, ..EngineConfig::default() };
        let engine = Engine::new(engine, store.clone(), clock.clone()).unwrap();
        Self::over(store, engine, config, clock).await
    }

    /// The same over a store and an engine that were opened elsewhere.
    pub async fn over(
        store: Store,
        engine: Engine,
        config: StoreConfig,
        clock: Arc<Hands>,
    ) -> Self {
        let told = Arc::new(Told::default());
        let governance = Arc::new(govern(store, engine, &clock, told.clone()));
        let bed = Self { governance, clock, config, told };
        let mut txn = bed.begin();
        insert(&mut txn, &words::organization_record()).await;
        insert(&mut txn, &words::project_record()).await;
        insert(&mut txn, &words::kit_record()).await;
        insert(&mut txn, &words::user_record(3)).await;
        txn.commit().await.unwrap();
        bed
    }

    /// Another host on the same database; of the embedded one there is one host only.
    pub async fn replica(&self) -> Arc<Governance> {
        if !self.store().is_shared() {
            return self.governance.clone();
        }
        let store = Store::open(self.config.clone()).await.unwrap();
        let engine = EngineConfig { instances_max: 2, ..EngineConfig::default() };
        let engine = Engine::new(engine, store.clone(), self.clock.clone()).unwrap();
        Arc::new(govern(store, engine, &self.clock, self.told.clone()))
    }

    pub fn store(&self) -> &Store {
        &self.governance.store
    }

    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    pub fn begin(&self) -> Txn {
        self.store().begin(&id(1))
    }

    /// How often people are told of something.
    pub async fn told(&self) -> u64 {
        let rows = Query::all(&words::organization_reach(), &Notice::space());
        self.store().count(&rows).await.unwrap()
    }

    /// Writes a record that is not there yet.
    pub async fn insert<R: Record>(&self, record: &R) {
        let mut txn = self.begin();
        insert(&mut txn, record).await;
        txn.commit().await.unwrap();
        self.catch_up().await;
    }

    pub async fn remove(&self, key: &Key) {
        let mut txn = self.begin();
        assert!(txn.remove(key, None).await.unwrap(), "there was nothing to remove");
        txn.commit().await.unwrap();
        self.catch_up().await;
    }

    /// Sets members of a record that is there, as a route does: where a budget comes, its cap
    /// begins.
    async fn set<R: Record>(&self, key: &Key, members: &Value, scope: Option<(&str, &Reach)>) {
        let mut txn = self.begin();
        let row = txn.get(key).await.unwrap().unwrap();
        let mut body: Value = serde_json::from_str(&row.body).unwrap();
        let begins = body["budget"].is_null() && members["budget"].is_object();
        body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
        let record: R = serde_json::from_value(body).unwrap();
        stored::replace(&mut txn, &record, "record").await.unwrap();
        if let Some((scope, reach)) = scope.filter(|_| begins) {
            caps::begin(&mut txn, scope, reach).await.unwrap();
        }
        txn.commit().await.unwrap();
        self.catch_up().await;
    }

    pub async fn set_organization(&self, members: Value) {
        let key = Organization::address(&words::organization());
        let scope = Some(("organization", &Reach::organization(&id(1))));
        self.set::<Organization>(&key, &members, scope).await;
    }

    pub async fn set_project(&self, members: Value) {
        let key = Project::address(&words::organization(), &words::project());
        self.set::<Project>(&key, &members, Some(("project", &Reach::project(&id(2))))).await;
    }

    pub async fn set_user(&self, members: Value) {
        let key = User::address(&words::project(), &words::user());
        self.set::<User>(&key, &members, Some(("user", &Reach::user(&id(3))))).await;
    }

    /// The cap of a kit does not begin: its meter counts at all times.
    pub async fn set_kit(&self, members: Value) {
        let key = StoredKit::address(&words::project(), &words::kit());
        self.set::<StoredKit>(&key, &members, None).await;
    }

    /// The caches know of every write until now.
    pub async fn catch_up(&self) {
        self.store().refresh_epoch().await.unwrap();
    }

    /// Makes members of these roles, with accounts from 1 on.
    pub async fn members(&self, roles: &[Role]) {
        let mut txn = self.begin();
        for (n, role) in (1..).zip(roles) {
            insert(&mut txn, &words::member(n, *role)).await;
        }
        txn.commit().await.unwrap();
    }

    /// Asks for leave, as a call from there.
    pub async fn ask_from(
        &self,
        origin: Option<Origin>,
        leave: Leave,
    ) -> Result<Granted, Ungranted> {
        ask_of(&self.governance, origin, leave).await
    }

    /// Asks for leave from nowhere.
    pub async fn ask(&self, leave: Leave) -> Result<Granted, Ungranted> {
        self.ask_from(None, leave).await
    }

    /// Leave that is given.
    pub async fn grant(&self, leave: Leave) -> Granted {
        self.ask(leave).await.unwrap()
    }

    /// The reason for which leave is refused, or else the code.
    pub async fn refuse(&self, leave: Leave) -> String {
        reason(self.ask(leave).await)
    }

    /// The details of the refusal.
    pub async fn refuse_with(&self, leave: Leave) -> Value {
        match self.ask(leave).await {
            Err(Ungranted::Refused(failure)) => {
                serde_json::from_str(&failure.details.unwrap_or_default()).unwrap()
            }
            other => panic!("not refused: {other:?}"),
        }
    }

    /// The approval that the leave of a client's request waits by.
    pub async fn wait(&self, leave: Leave) -> Approval {
        match self.ask_from(Some(words::client()), leave).await {
            Err(Ungranted::Pending { approval }) => self.approval(&approval).await,
            other => panic!("does not wait: {other:?}"),
        }
    }

    pub async fn row(&self, key: &Key) -> Option<Row> {
        self.store().get(key).await.unwrap()
    }

    pub async fn approval(&self, approval: &str) -> Approval {
        let row = self.row(&Approval::address(&id(1), approval)).await.unwrap();
        Approval::read(&row).unwrap()
    }

    pub async fn hold(&self, hold: &str) -> Hold {
        let row = self.row(&hold_key(&id(1), hold)).await.unwrap();
        serde_json::from_str(&row.body).unwrap()
    }

    /// The meter of a scope.
    pub async fn meter(&self, scope: &str, reach: &Reach) -> Meter {
        let key = Key::new(reach, &meters_space(), scope);
        serde_json::from_str(&self.row(&key).await.unwrap().body).unwrap()
    }

    /// Commits a step of a hold.
    pub async fn step(&self, step: Step) -> Result<(), CommitError> {
        let Step { guards, writes, .. } = step;
        self.commit(Unit { guards, writes, ..Unit::default() }).await
    }

    pub async fn commit(&self, unit: Unit) -> Result<(), CommitError> {
        self.store().commit(Unit { organization: id(1), ..unit }).await.map(drop)
    }

    /// Ends a hold with what was spent, as its own primitive says it.
    pub async fn capture(&self, hold: &str, actual: i64) {
        let held = self.hold(hold).await;
        let capture = held.admit_capture(actual, Word::Asker).unwrap();
        self.step(held.capture(hold, capture, self.now())).await.unwrap();
    }

    /// Ends a hold with what was spent, as a provider has signed it.
    pub async fn capture_signed(&self, hold: &str, actual: i64) {
        let held = self.hold(hold).await;
        let capture = held.admit_capture(actual, Word::Provider).unwrap();
        self.step(held.capture(hold, capture, self.now())).await.unwrap();
    }

    pub async fn void(&self, hold: &str) {
        let held = self.hold(hold).await;
        self.step(held.void(hold, self.now())).await.unwrap();
    }

    /// Leave for so much, captured whole.
    pub async fn spend(&self, amount: i64) {
        let granted = self.grant(words::leave(amount)).await;
        self.capture(&granted.id, amount).await;
    }

    /// The public halves of the audit log's rows, and their private ones.
    pub async fn audit(&self) -> Vec<(Value, Value)> {
        self.facts(FactKind::Audit)
            .await
            .into_iter()
            .map(|(_, body, private)| (body, private))
            .collect()
    }

    /// The names and bodies of the organization's events, each with its payload.
    pub async fn events(&self) -> Vec<(String, Value)> {
        let whole = |(name, mut body, private): (String, Value, Value)| {
            if !private.is_null() {
                body["payload"] = private;
            }
            (name, body)
        };
        self.facts(FactKind::Event).await.into_iter().map(whole).collect()
    }

    async fn facts(&self, kind: FactKind) -> Vec<(String, Value, Value)> {
        // Rows get their numbers behind their commit where committers are several.
        self.store().facts_head_settled(kind, &id(1)).await.unwrap();
        let found = self.store().facts(kind, &id(1), 0, 500).await.unwrap();
        let json = |text: &str| serde_json::from_str(text).unwrap();
        let of = |row: charter_store::SequencedFact| {
            let private = row.fact.private.as_deref().map_or(Value::Null, json);
            (row.fact.name.clone(), json(&row.fact.body), private)
        };
        found.into_iter().map(of).collect()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.config.data_dir);
    }
}

/// Asks a host for leave, as a call from there.
pub async fn ask_of(
    governance: &Arc<Governance>,
    origin: Option<Origin>,
    leave: Leave,
) -> Result<Granted, Ungranted> {
    CallGateway::open(governance, origin).authorize(leave).await
}

/// The reason for which leave was refused, or else the code.
pub fn reason(asked: Result<Granted, Ungranted>) -> String {
    match asked {
        Err(Ungranted::Refused(failure)) => failure.reason.unwrap_or(failure.code),
        other => panic!("not refused: {other:?}"),
    }
}

fn govern(store: Store, engine: Engine, clock: &Arc<Hands>, told: Arc<Told>) -> Governance {
    let breaker = Breaker { traps_min: 0, rate_min: 1.0, window_ms: 1 };
    let components =
        Components { dir: None, signing_keys: Vec::new(), replica_wait_ms: 0, breaker };
    let settings = Settings { components, primitives: Primitives::default(), resident_ms: 60_000 };
    let registry =
        Registry::new(store.clone(), engine, settings, Reserved::default(), clock.clone());
    Governance {
        directory: Directory::new(store.clone(), clock.clone(), 1).unwrap(),
        registry,
        store,
        notices: told,
        biller: "probe".into(),
        // No busy machine refuses what nobody asks to have refused.
        sums: Sums::new(1_000, Duration::from_secs(60)),
        approvals_waiting_max: WAITING_MAX,
        clock: clock.clone(),
    }
}

pub async fn insert<R: Record>(txn: &mut Txn, record: &R) {
    stored::insert(txn, record, "record").await.unwrap();
}

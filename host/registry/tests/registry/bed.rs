//! A registry of its own for each test, on a deployment that has seen the usual components before:
//! their code is cached, so that a test compiles nothing that another has compiled.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use charter_engine::{Engine, EngineConfig};
use charter_kernel::time::{Clock, Instant};
use charter_registry::components::{
    Activated, Caller, Consent, Installed, LifeCycleError, Registry, Upload, Version,
};
use charter_registry::served::{Live, Reserved};
use charter_registry::settings::{Breaker, Components, Primitives, Settings};
use charter_store::{Store, StoreConfig};

use crate::fixture::{fixture, probe};
use crate::postgres::Postgres;
use crate::template;
pub use crate::template::folder;

/// Builds of the probe whose code is cached from the start.
pub const BUILDS: [u32; 4] = [900_001, 900_002, 900_003, 900_004];

/// The operator agrees to whatever is asked for.
pub const ALL: Consent = Consent::All;

/// A clock that tests move.
pub struct Hands(AtomicI64);

impl Hands {
    pub fn forward_ms(&self, ms: i64) {
        self.0.fetch_add(ms, SeqCst);
    }
}

impl Clock for Hands {
    fn now(&self) -> Instant {
        // Each look is later: what was installed first is older.
        Instant(self.0.fetch_add(1, SeqCst))
    }
}

/// A deployment and its registry.
pub struct Bed {
    pub store: Store,
    pub engine: Engine,
    pub registry: Registry,
    pub clock: Arc<Hands>,
    /// The shared database; empty for the embedded one.
    pub url: String,
    folder: PathBuf,
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

/// The usual components.
fn usual() -> Vec<Vec<u8>> {
    BUILDS.into_iter().map(probe).chain([fixture("hostile")]).collect()
}

pub fn settings() -> Settings {
    Settings {
        components: Components {
            dir: None,
            signing_keys: Vec::new(),
            replica_wait_ms: 200,
            breaker: Breaker { traps_min: 4, rate_min: 0.5, window_ms: 60_000 },
        },
        primitives: Primitives::default(),
        resident_ms: 60_000,
    }
}

/// The private server, where the machine has the programs for one.
fn server() -> Option<&'static Postgres> {
    Postgres::if_installed("registry")
}

impl Bed {
    pub async fn new() -> Self {
        Self::with(settings(), Reserved::default()).await
    }

    pub async fn with(settings: Settings, reserved: Reserved) -> Self {
        Self::open(String::new(), settings, reserved).await
    }

    /// A deployment whose database other hosts may share.
    pub async fn shared(settings: Settings) -> Option<Self> {
        Some(Self::open(server()?.database(), settings, Reserved::default()).await)
    }

    async fn open(url: String, settings: Settings, reserved: Reserved) -> Self {
        let folder = folder();
        template::copy(&folder, usual).await;
        let clock = Arc::new(Hands(AtomicI64::new(1_800_000_000_000)));
        let (store, engine) = host(&folder, &url, &clock).await;
        let registry =
            Registry::new(store.clone(), engine.clone(), settings, reserved, clock.clone());
        registry.refresh().await.unwrap();
        Self { store, engine, registry, clock, url, folder }
    }

    /// Another registry over the same rows, as after a start with these settings.
    pub async fn restarted(&self, settings: Settings) -> Registry {
        let (store, engine) = (self.store.clone(), self.engine.clone());
        let registry =
            Registry::new(store, engine, settings, Reserved::default(), self.clock.clone());
        registry.refresh().await.unwrap();
        registry
    }

    pub async fn install(&self, wasm: Vec<u8>) -> Result<Installed, LifeCycleError> {
        self.registry.install(upload(wasm), &|_, _| None).await
    }

    /// Installs a build of the probe; its digest.
    pub async fn stage(&self, build: u32) -> String {
        self.install(probe(build)).await.unwrap().version.digest.clone()
    }

    pub async fn activate(&self, digest: &str) -> Result<Activated, LifeCycleError> {
        let name = self.registry.inventory().by_digest(digest).unwrap().name.clone();
        self.registry.activate(&name, digest, "operator", &Consent::All, &|_, _| None).await
    }

    /// Installs and activates a build of the probe; its digest.
    pub async fn serve(&self, build: u32) -> String {
        let digest = self.stage(build).await;
        self.activate(&digest).await.unwrap();
        digest
    }

    pub async fn rollback(&self, from: Option<&str>) -> Result<Activated, LifeCycleError> {
        self.registry.rollback("probe", from, "operator", &|_, _| None).await
    }

    /// The digest that a request of the probe gets now.
    pub fn serving(&self) -> Option<String> {
        let live = self.registry.current();
        live.primitive("probe").map(|primitive| primitive.active.digest().to_owned())
    }

    /// So many traps of calls of each of these organizations; the steps back that come of them.
    pub async fn trap(&self, digest: &str, organizations: &[&str], calls: u32) -> u64 {
        let before = self.registry.step_backs();
        let mut steps = Vec::new();
        for _ in 0..calls {
            for organization in organizations {
                steps.extend(self.registry.observe("probe", digest, proved(organization), true));
            }
        }
        for step in steps {
            step.await.unwrap();
        }
        self.registry.step_backs() - before
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    pub fn version(&self, digest: &str) -> Version {
        Version::clone(self.registry.inventory().by_digest(digest).unwrap())
    }
}

pub fn upload(wasm: Vec<u8>) -> Upload {
    Upload { name: None, bytes: wasm.into(), signature: None }
}

/// The reason of a step that was not taken, or all its faults.
pub fn reason(error: LifeCycleError) -> String {
    match error {
        LifeCycleError::State { reason, .. } => reason.to_owned(),
        LifeCycleError::Unfit(faults) => faults.iter().map(|fault| format!("{fault}\n")).collect(),
        other => other.to_string(),
    }
}

/// A store and an engine of the deployment in a folder, on this database.
pub async fn host(folder: &Path, url: &str, clock: &Arc<Hands>) -> (Store, Engine) {
    let mut config = StoreConfig::new(folder, clock.clone());
    config.url = url.to_owned();
    config.ballast_bytes = 1024 * 1024;
    let store = Store::open(config).await.unwrap();
    let code = Some(folder.join("code"));
    let config = EngineConfig { instances_max: 16, cache_dir: code, ..EngineConfig::default() };
    let engine = Engine::new(config, store.clone(), clock.clone()).unwrap();
    (store, engine)
}

/// The digest that these bytes are installed under.
pub fn digest(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    let hex: String =
        sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}")
}

/// An organization whose word counts.
pub fn proved(organization: &str) -> Caller<'_> {
    Caller { organization, proved: true }
}

/// Waits until another task has made live what holds.
pub async fn until(registry: &Registry, what: &str, holds: impl Fn(&Live) -> bool) {
    let mut changes = registry.changes();
    let waited = changes.wait_for(|live| holds(live));
    let patience = std::time::Duration::from_secs(60);
    assert!(tokio::time::timeout(patience, waited).await.is_ok(), "never: {what}");
}

/// The digest that a request of the probe gets from a table.
pub fn serves(live: &Live) -> Option<&str> {
    live.primitive("probe").map(|primitive| primitive.active.digest())
}

//! The component registry: what is installed, what is live, and the steps between.
//!
//! The database is the truth; a registry follows it and keeps one immutable [`Live`] for requests
//! to take. Knows no primitive by name. Invariant: a step either happened whole or changed nothing,
//! and no request ever waits for one.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

use charter_engine::Engine;
use charter_kernel::fault::Fault;
use charter_kernel::time::{Clock, Instant};
use charter_store::{ReadError, Store};
use tokio::sync::Mutex;
use tokio::sync::watch::{Receiver, Sender};
use tokio::task::JoinHandle;

use crate::served::{Live, Primitive, Reserved, Served};
use crate::settings::{Components, Settings};

mod activate;
mod backfill;
mod breaker;
mod fault;
mod install;
mod inventory;
mod record;
mod replicas;
mod report;
mod resident;
pub mod signature;
pub mod watch;

pub use activate::{Activated, StepAct};
pub use breaker::Caller;
pub use fault::{LifeCycleError, StoreFault};
pub use install::{Installed, Upload};
pub use inventory::Inventory;
pub use record::{Activation, Consent, Replica, State, Version};
pub use report::{ComponentDetail, ComponentReport, VersionReport};

use breaker::Breaker;
use replicas::Replicas;
use resident::Resident;

/// The registry. Cheap to clone.
#[derive(Clone)]
pub struct Registry {
    inner: Arc<Inner>,
}

struct Inner {
    store: Store,
    engine: Engine,
    settings: Components,
    reserved: Reserved,
    resident_ms: u64,
    clock: Arc<dyn Clock>,
    live: Sender<Arc<Live>>,
    inventory: RwLock<Arc<Inventory>>,
    resident: Resident,
    breaker: Breaker,
    replicas: Replicas,
    revision: AtomicU64,
    stepped_back: AtomicU64,
    /// One refresh at a time, so that an older state never replaces a newer one.
    refreshing: Mutex<()>,
    /// One activation at a time in this process; across processes the commit decides.
    stepping: Mutex<()>,
}

impl Registry {
    /// A registry that has read nothing yet: call [`Registry::refresh`].
    pub fn new(
        store: Store,
        engine: Engine,
        settings: Settings,
        reserved: Reserved,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let inner = Inner {
            resident: Resident::new(
                store.clone(),
                engine.clone(),
                clock.clone(),
                settings.primitives,
            ),
            replicas: Replicas::new(store.clone(), clock.clone()),
            breaker: Breaker::new(settings.components.breaker),
            settings: settings.components,
            reserved,
            resident_ms: settings.resident_ms,
            live: Sender::default(),
            inventory: RwLock::default(),
            revision: AtomicU64::new(0),
            stepped_back: AtomicU64::new(0),
            refreshing: Mutex::default(),
            stepping: Mutex::default(),
            store,
            engine,
            clock,
        };
        Self { inner: Arc::new(inner) }
    }

    /// The versions that are live now. A request takes it once and keeps it to its end.
    pub fn current(&self) -> Arc<Live> {
        self.inner.live.borrow().clone()
    }

    /// The versions that are live, for who waits until something serves.
    pub fn changes(&self) -> Receiver<Arc<Live>> {
        self.inner.live.subscribe()
    }

    /// The versions that are installed, as last read.
    pub fn inventory(&self) -> Arc<Inventory> {
        self.inner.inventory.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How often the breaker of this replica stepped back.
    pub fn step_backs(&self) -> u64 {
        self.inner.stepped_back.load(Relaxed)
    }

    /// The version of a primitive that a kit pins, loaded if it is not in memory; `None` where it
    /// is not installed, quarantined, or asks for what nobody has agreed to.
    pub async fn load_pinned(&self, name: &str, version: &str) -> Option<Arc<Served>> {
        let inventory = self.inventory();
        let known = inventory
            .by_number(name, version)
            .filter(|known| known.state != State::Quarantined)
            .filter(|known| inventory.missing_consents(known).is_empty())
            .cloned()?;
        if let Some(served) = self.inner.resident.get(&known.digest) {
            return Some(served);
        }
        match self.inner.resident.load(&known.digest).await {
            Ok(served) => {
                self.widen(&self.inventory());
                Some(served)
            }
            Err(faults) => {
                tracing::error!(
                    component = name,
                    version,
                    ?faults,
                    "a pinned version cannot be loaded"
                );
                None
            }
        }
    }

    /// Reads the rows and makes what they say live. A version that cannot be loaded leaves its
    /// primitive as it was.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn refresh(&self) -> Result<(), ReadError> {
        let _one = self.inner.refreshing.lock().await;
        let inventory = Inventory::read(&mut self.inner.store.begin(""), true).await?;
        self.inner.replicas.keep(|digest| inventory.by_digest(digest).is_some());
        // Before this replica says that it has a version, the others already write what that one
        // looks for.
        self.widen(&inventory);
        self.load_wanted(&inventory).await;
        self.widen(&inventory);
        let before = self.current();
        let mut primitives = Vec::new();
        for version in inventory.serving() {
            let active = self.inner.resident.get(&version.digest).or_else(|| {
                let former =
                    before.primitive(&version.name).map(|primitive| primitive.active.clone());
                tracing::error!(
                    component = version.name,
                    digest = version.digest,
                    "cannot be loaded: what served before still serves"
                );
                former
            });
            if let Some(active) = active {
                let others = self.pinnable_others(&inventory, &active);
                primitives.push(Primitive { name: version.name.clone(), active, others });
            }
        }
        let revision = self.inner.revision.fetch_add(1, Relaxed) + 1;
        let installed = inventory.live().map(|version| &version.manifest);
        match Live::new(revision, &self.inner.reserved, primitives, installed) {
            Ok(live) => drop(self.inner.live.send_replace(Arc::new(live))),
            Err(faults) => tracing::error!(
                ?faults,
                "the live components do not fit together: what served before still serves"
            ),
        }
        let wanted = digests_to_keep(&inventory);
        *self.inner.inventory.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(inventory);
        self.evict(&wanted);
        Ok(())
    }

    /// The operator's settings that do not fit the version that serves, or would be the first to.
    /// Settings of a primitive that is not installed are checked when it is.
    pub fn settings_faults(&self) -> Vec<Fault> {
        let inventory = self.inventory();
        let mut faults = Vec::new();
        for name in self.inner.resident.settings.names() {
            let active = inventory.active(name).and_then(|digest| inventory.find(name, digest));
            match active.or_else(|| inventory.versions.get(name)?.last()) {
                Some(version) => faults.extend(
                    self.inner.resident.fits(&version.manifest).err().into_iter().flatten(),
                ),
                None => tracing::warn!("[primitives.{name}] is for no primitive that is installed"),
            }
        }
        faults
    }

    /// Loads what is active, and compiles what is staged so that it can be activated at once;
    /// several at a time.
    async fn load_wanted(&self, inventory: &Inventory) {
        use futures::{FutureExt as _, StreamExt as _};
        let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let staged = inventory.live().filter(|version| {
            version.state == State::Staged && !self.inner.replicas.knows(&version.digest)
        });
        let digests: BTreeSet<String> = digests_to_keep(inventory)
            .into_iter()
            .chain(staged.map(|version| version.digest.clone()))
            .collect();
        let loads = digests.into_iter().map(|digest| self.load_noted(digest).boxed());
        futures::stream::iter(loads.collect::<Vec<_>>())
            .buffer_unordered(cores)
            .collect::<Vec<()>>()
            .await;
    }

    async fn load_noted(&self, digest: String) {
        let loaded = match self.inner.resident.get(&digest) {
            Some(_) => Ok(()),
            None => self.inner.resident.load(&digest).await.map(|_| ()),
        };
        self.inner.replicas.note(&digest, loaded.as_ref().err());
        if let Err(faults) = loaded {
            tracing::error!(digest, ?faults, "a component cannot be loaded");
        }
    }

    /// Has every version in memory write what its neighbours look for, those that only drain too.
    fn widen(&self, inventory: &Inventory) {
        for served in
            self.inner.resident.in_memory().into_iter().chain(self.inner.resident.drains())
        {
            if let Some(version) = inventory.by_digest(served.digest()) {
                served.component.stand_beside(&inventory.beside(version).collect::<Vec<_>>());
            }
        }
    }

    /// Further versions in memory that a kit may pin.
    fn pinnable_others(&self, inventory: &Inventory, active: &Arc<Served>) -> Vec<Arc<Served>> {
        let pinnable = |served: &Arc<Served>| {
            served.name() == active.name()
                && served.digest() != active.digest()
                && inventory.by_digest(served.digest()).is_some_and(|version| {
                    version.state != State::Quarantined
                        && inventory.missing_consents(version).is_empty()
                })
        };
        self.inner.resident.in_memory().into_iter().filter(pinnable).collect()
    }

    /// Drops versions that nobody wants. The live table keeps its own `Arc`s, so the next refresh
    /// frees them.
    pub fn sweep(&self) {
        let wanted = digests_to_keep(&self.inventory());
        self.evict(&wanted);
    }

    fn evict(&self, wanted: &BTreeSet<String>) {
        let before = self
            .inner
            .clock
            .now()
            .plus_ms(-i64::try_from(self.inner.resident_ms).unwrap_or(i64::MAX));
        if !self.inner.resident.evict(wanted, before) {
            return;
        }
        // The table must not keep alive what was dropped.
        let (inventory, live) = (self.inventory(), self.current());
        let primitives = live.primitives().map(|primitive| Primitive {
            name: primitive.name.clone(),
            active: primitive.active.clone(),
            others: self.pinnable_others(&inventory, &primitive.active),
        });
        let revision = self.inner.revision.fetch_add(1, Relaxed) + 1;
        if let Ok(live) = Live::new(
            revision,
            &self.inner.reserved,
            primitives.collect(),
            inventory.live().map(|version| &version.manifest),
        ) {
            self.inner.live.send_replace(Arc::new(live));
        }
    }

    /// Counts what became of a call, and steps back from a version that traps too much: by a task
    /// of its own, which is answered, so that no call waits for it.
    pub fn observe(
        &self,
        name: &str,
        digest: &str,
        caller: Caller<'_>,
        trapped: bool,
    ) -> Option<JoinHandle<()>> {
        if !self.inner.breaker.observe(digest, caller, trapped, self.now()) {
            return None;
        }
        let (registry, name, digest) = (self.clone(), name.to_owned(), digest.to_owned());
        Some(tokio::spawn(async move { registry.step_back(&name, &digest).await }))
    }

    /// Says that this replica lives and what it has compiled.
    ///
    /// # Errors
    /// When the store does not take it.
    pub async fn beat(&self) -> Result<(), StoreFault> {
        self.inner.replicas.beat().await
    }

    /// Takes this replica off the list, so that no activation waits for it.
    pub async fn leave(&self) {
        self.inner.replicas.leave().await;
    }

    fn now(&self) -> Instant {
        self.inner.clock.now()
    }
}

/// The digests that must stay in memory: of the versions that serve, and of those that a rollback
/// goes to.
fn digests_to_keep(inventory: &Inventory) -> BTreeSet<String> {
    let serving = inventory.serving().map(|version| version.digest.clone());
    let before = inventory
        .activations
        .keys()
        .filter_map(|name| inventory.predecessor(name))
        .map(|version| version.digest.clone());
    serving.chain(before).collect()
}

/// A digest as the API takes it: with or without `sha256:`.
pub fn digest_of(text: &str) -> String {
    if text.starts_with("sha256:") { text.to_owned() } else { format!("sha256:{text}") }
}

/// One fault of the document as a whole.
fn fault(message: impl Into<String>) -> Fault {
    Fault::new("", message)
}

impl Registry {
    /// Says at intervals, and whenever it compiled something, that this replica lives.
    pub async fn keep_alive(&self) {
        loop {
            if let Err(error) = self.beat().await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "this replica could not say that it lives"
                );
            }
            tokio::select! {
                () = tokio::time::sleep(replicas::BEAT_EVERY) => {}
                () = self.inner.replicas.news() => {}
            }
        }
    }

    /// Replicas that were heard of lately; none but this one where the database is not shared.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn replicas(&self) -> Result<Vec<Replica>, LifeCycleError> {
        self.inner.replicas.living().await
    }

    /// Removes what replicas that are long gone left behind.
    ///
    /// # Errors
    /// When the store does not take it.
    pub async fn forget_replicas(&self) -> Result<(), LifeCycleError> {
        self.inner.replicas.forget().await
    }
}

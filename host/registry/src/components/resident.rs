//! Component versions in memory: loaded once however many ask, kept while used, dropped when not.
//!
//! Knows nothing of which one is active. A request in flight holds its version by itself: what is
//! dropped here lives until the last such request ends, and is called draining until then.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use charter_engine::Engine;
use charter_kernel::fault::Fault;
use charter_kernel::manifest::Manifest;
use charter_kernel::time::{Clock, Instant};
use charter_kernel::unit::Reach;
use charter_store::{Query, ReadError, Store};
use charter_tenancy::records::Record;
use tokio::sync::OnceCell;

use super::record::Version;
use crate::served::Served;
use crate::settings::Primitives;

/// Versions beside the wanted ones that stay in memory at most, however lately they were used.
const SPARE_MAX: usize = 32;

/// The versions in memory.
pub(super) struct Resident {
    store: Store,
    engine: Engine,
    clock: Arc<dyn Clock>,
    /// The settings of primitives: a version that does not fit them is not served.
    pub(super) settings: Primitives,
    slots: Mutex<BTreeMap<String, Arc<Slot>>>,
    dropped: Mutex<Vec<(String, Weak<Served>)>>,
}

#[derive(Default)]
struct Slot {
    served: OnceCell<Arc<Served>>,
    used_at: AtomicI64,
}

impl Resident {
    pub(super) fn new(
        store: Store,
        engine: Engine,
        clock: Arc<dyn Clock>,
        settings: Primitives,
    ) -> Self {
        Self { store, engine, clock, settings, slots: Mutex::default(), dropped: Mutex::default() }
    }

    /// The version if it is in memory.
    pub(super) fn get(&self, digest: &str) -> Option<Arc<Served>> {
        let slot = self.slots().get(digest).cloned()?;
        slot.used_at.store(self.clock.now().0, Relaxed);
        slot.served.get().cloned()
    }

    /// The version, loaded from the code cache, or compiled from its blob.
    pub(super) async fn load(&self, digest: &str) -> Result<Arc<Served>, Vec<Fault>> {
        let slot = self.slots().entry(digest.to_owned()).or_default().clone();
        slot.used_at.store(self.clock.now().0, Relaxed);
        let (store, blob) = (self.store.clone(), digest.to_owned());
        let bytes = move || async move {
            match bytes_of(&store, &blob).await {
                Ok(bytes) => bytes.map(Into::into),
                Err(error) => {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        blob,
                        "a component's blob cannot be read"
                    );
                    None
                }
            }
        };
        let load = || async {
            let component = self.engine.open(digest, bytes).await?;
            let served = Served::prepare(component).await?;
            self.fits(&served.manifest)?;
            Ok(Arc::new(served))
        };
        slot.served.get_or_try_init(load).await.cloned()
    }

    /// Whether a version can run under what is set.
    pub(super) fn fits(&self, manifest: &Manifest) -> Result<(), Vec<Fault>> {
        let faults = self.settings.faults(manifest);
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }

    /// Takes in a version that was loaded elsewhere (just staged).
    pub(super) fn admit(&self, digest: &str, served: Arc<Served>) {
        let slot = self.slots().entry(digest.to_owned()).or_default().clone();
        slot.used_at.store(self.clock.now().0, Relaxed);
        // Somebody loaded it meanwhile: both are the same code.
        let _ = slot.served.set(served);
    }

    /// Drops what is neither wanted nor was used since `before`; true where anything was.
    pub(super) fn evict(&self, wanted: &BTreeSet<String>, before: Instant) -> bool {
        let mut slots = self.slots();
        let mut spare: Vec<(i64, String)> = slots
            .iter()
            .filter(|(digest, slot)| !wanted.contains(*digest) && slot.served.initialized())
            .map(|(digest, slot)| (slot.used_at.load(Relaxed), digest.clone()))
            .collect();
        spare.sort();
        let surplus = spare.len().saturating_sub(SPARE_MAX);
        let mut dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        let known = dropped.len();
        for (n, (used_at, digest)) in spare.into_iter().enumerate() {
            if n >= surplus && used_at >= before.0 {
                continue;
            }
            if let Some(served) =
                slots.remove(&digest).and_then(|slot| slot.served.get().map(Arc::downgrade))
            {
                dropped.push((digest, served));
            }
        }
        let any = dropped.len() > known;
        dropped.retain(|(_, served)| served.strong_count() > 0);
        any
    }

    /// Digests that nothing wants but requests in flight still run.
    pub(super) fn draining(&self) -> BTreeSet<String> {
        let dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        dropped
            .iter()
            .filter(|(_, served)| served.strong_count() > 0)
            .map(|(digest, _)| digest.clone())
            .collect()
    }

    /// The versions that nothing wants but requests in flight still run.
    pub(super) fn drains(&self) -> Vec<Arc<Served>> {
        let dropped = self.dropped.lock().unwrap_or_else(PoisonError::into_inner);
        dropped.iter().filter_map(|(_, served)| served.upgrade()).collect()
    }

    /// Everything in memory.
    pub(super) fn in_memory(&self) -> Vec<Arc<Served>> {
        self.slots().values().filter_map(|slot| slot.served.get().cloned()).collect()
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Slot>>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The bytes of the version that has this digest now.
async fn bytes_of(store: &Store, digest: &str) -> Result<Option<Vec<u8>>, ReadError> {
    let rows = Query::all(&Reach::deployment(), &Version::space()).equal("digest", digest).limit(1);
    let mut missing = None;
    loop {
        let found = store.begin("").find(&rows).await?.items;
        let version = found.first().and_then(|(_, row)| Version::read(row).ok());
        let blob = version.map(|version| version.blob());
        // Its bytes have another name if it was removed and came back meanwhile.
        let Some(blob) = blob.filter(|blob| missing.as_ref() != Some(blob)) else {
            return Ok(None);
        };
        match store.blob_get(&blob).await? {
            None => missing = Some(blob),
            bytes => return Ok(bytes),
        }
    }
}

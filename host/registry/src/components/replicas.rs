//! The replicas of a deployment: each says that it lives and what it has compiled, so that an
//! activation can wait for all.
//!
//! A replica that has not been heard of for a while counts as gone: nobody waits for the dead.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use charter_kernel::fault::Fault;
use charter_kernel::time::Clock;
use charter_store::{Store, Txn};
use charter_tenancy::records::Record;
use charter_tenancy::stored;
use tokio::sync::Notify;

use super::record::Replica;
use super::{LifeCycleError, StoreFault};

/// How often a replica says that it lives.
pub(crate) const BEAT_EVERY: Duration = Duration::from_secs(2);
/// Without a word for so long it counts as gone.
const GONE_AFTER_MS: i64 = 10_000;
/// Without a word for so long its row is removed.
const FORGOTTEN_AFTER_MS: i64 = 3_600_000;
/// How often the others are looked at while one waits for them.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// This replica's own row, and the others'.
pub(super) struct Replicas {
    store: Store,
    clock: Arc<dyn Clock>,
    id: String,
    known: Mutex<Known>,
    changed: Notify,
}

#[derive(Default)]
struct Known {
    compiled: BTreeSet<String>,
    failed: BTreeMap<String, String>,
}

impl Replicas {
    pub(super) fn new(store: Store, clock: Arc<dyn Clock>) -> Self {
        let id = uuid::Uuid::now_v7().to_string();
        Self { store, clock, id, known: Mutex::default(), changed: Notify::new() }
    }

    /// Whether this replica has tried to compile it.
    pub(super) fn knows(&self, digest: &str) -> bool {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.compiled.contains(digest) || known.failed.contains_key(digest)
    }

    /// Forgets what is not installed any more, so that this replica's row names what somebody may
    /// wait for.
    pub(super) fn keep(&self, installed: impl Fn(&str) -> bool) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.compiled.retain(|digest| installed(digest));
        known.failed.retain(|digest, _| installed(digest));
    }

    /// Notes that this replica has compiled it, or that it cannot.
    pub(super) fn note(&self, digest: &str, faults: Option<&Vec<Fault>>) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        let changed = match faults {
            None => {
                known.failed.remove(digest);
                known.compiled.insert(digest.to_owned())
            }
            Some(faults) => {
                let why = faults.first().map(ToString::to_string).unwrap_or_default();
                known.failed.insert(digest.to_owned(), why).is_none()
            }
        };
        if changed {
            self.changed.notify_one();
        }
    }

    /// Resolves when this replica has something new to say.
    pub(super) async fn news(&self) {
        self.changed.notified().await;
    }

    /// Says that this replica lives. Alone on its database it has nobody to say it to.
    pub(super) async fn beat(&self) -> Result<(), StoreFault> {
        if !self.store.is_shared() {
            return Ok(());
        }
        let row = {
            let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            Replica {
                id: self.id.clone(),
                host: format!("process {}", std::process::id()),
                seen_at: self.clock.now(),
                compiled: known.compiled.iter().cloned().collect(),
                failed: known
                    .failed
                    .iter()
                    .map(|(digest, why)| (digest.clone(), why.clone()))
                    .collect(),
            }
        };
        let mut txn = self.store.begin("");
        txn.write(charter_kernel::unit::Write::Put { key: row.key(), draft: row.draft()? });
        txn.commit().await?;
        Ok(())
    }

    /// All replicas that were heard of lately.
    pub(super) async fn living(&self) -> Result<Vec<Replica>, LifeCycleError> {
        let now = self.clock.now();
        let all = stored::all::<Replica>(&mut self.store.begin(""), true).await?;
        Ok(all
            .into_iter()
            .filter(|replica| replica.seen_at.plus_ms(GONE_AFTER_MS) >= now)
            .collect())
    }

    /// Waits until every other living replica has compiled it.
    pub(super) async fn wait(&self, digest: &str, at_most_ms: u64) -> Result<(), LifeCycleError> {
        if !self.store.is_shared() {
            return Ok(());
        }
        let deadline = tokio::time::Instant::now() + Duration::from_millis(at_most_ms);
        loop {
            let living = self.living().await?;
            let others = living.iter().filter(|replica| replica.id != self.id);
            let behind: Vec<&Replica> = others
                .filter(|replica| !replica.compiled.iter().any(|known| known == digest))
                .collect();
            let Some(first) = behind.first() else { return Ok(()) };
            if let Some((_, why)) = first.failed.iter().find(|(failed, _)| failed == digest) {
                let message = format!(
                    "the replica {} ({}) cannot load {digest}: {why}",
                    first.id, first.host
                );
                return Err(LifeCycleError::State { reason: "replica_cannot_load", message });
            }
            if tokio::time::Instant::now() >= deadline {
                let names: Vec<String> = behind
                    .iter()
                    .map(|replica| format!("{} ({})", replica.id, replica.host))
                    .collect();
                let message = format!(
                    "not compiled yet by the replica {}: nothing was activated; try again",
                    names.join(", ")
                );
                return Err(LifeCycleError::Lags(message));
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
    }

    /// Takes this replica off the list.
    pub(super) async fn leave(&self) {
        let key = Replica {
            id: self.id.clone(),
            host: String::new(),
            seen_at: self.clock.now(),
            compiled: vec![],
            failed: vec![],
        }
        .key();
        let mut txn: Txn = self.store.begin("");
        if self.store.is_shared() {
            txn.write(charter_kernel::unit::Write::Remove { key, expected: None });
            if let Err(error) = txn.commit().await {
                tracing::debug!(%error, "this replica's row is left behind; it counts as gone in a few seconds");
            }
        }
    }

    /// Removes the rows of replicas that are long gone.
    pub(super) async fn forget(&self) -> Result<(), LifeCycleError> {
        let now = self.clock.now();
        for replica in stored::all::<Replica>(&mut self.store.begin(""), true).await? {
            if replica.seen_at.plus_ms(FORGOTTEN_AFTER_MS) < now {
                let mut txn = self.store.begin("");
                txn.write(charter_kernel::unit::Write::Remove {
                    key: replica.key(),
                    expected: None,
                });
                txn.commit().await?;
            }
        }
        Ok(())
    }
}

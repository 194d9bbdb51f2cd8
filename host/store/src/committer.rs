//! The committer: units from concurrent requests, committed in batches.
//!
//! A lane takes what is waiting (no timer: an idle one commits a batch of one at once), reads in
//! one transaction every row that the batch touches, decides in memory with the kernel's rules,
//! writes in bulk under guards, commits, and then answers all. It must not know what the units are
//! about. Invariant: an answer leaves after its commit is on disk, and an error means that nothing
//! was committed.

mod attempt;
mod checkpoint;
mod each;
mod lane;
mod mark;
mod prefetch;
mod queue;
mod room;
mod trouble;
mod turn;
mod write;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use charter_kernel::unit::{Applied, Unit};
use tokio::sync::{Mutex, Notify, oneshot};
use tokio_util::sync::CancellationToken;

use crate::config::StoreConfig;
use crate::connection::Database;
use crate::epoch::Epochs;
use crate::error::{CommitError, OpenError};
use crate::shard::shard;
use crate::sql::Pool;
use crate::wake::Wakes;
use checkpoint::Beside;
use queue::{Job, Queue};
use room::DiskRoom;

/// Counters of all lanes.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    pub(crate) batches: AtomicU64,
    pub(crate) units: AtomicU64,
    pub(crate) retries: AtomicU64,
}

/// How the store is doing, for health and metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoreStatus {
    /// Why no mutations are taken, if so.
    pub read_only: Option<String>,
    /// Units that wait for the committers.
    pub queued_units: usize,
    /// Bytes of them.
    pub queued_bytes: usize,
    /// Batches committed since the start.
    pub batches: u64,
    /// Units committed since the start.
    pub units: u64,
    /// Batches run again because another committer came first.
    pub retries: u64,
}

/// The state that the lanes share.
pub(crate) struct Shared {
    pub(crate) config: StoreConfig,
    pub(crate) database: Database,
    pub(crate) wakes: Arc<Wakes>,
    pub(crate) epochs: Arc<Epochs>,
    pub(crate) room: DiskRoom,
    pub(crate) counts: Counts,
    /// Facts without numbers were committed.
    pub(crate) facts_written: Arc<Notify>,
    /// The place at SQLite's log: a batch's, or of who begins the log anew.
    pub(crate) at_log: Arc<Mutex<()>>,
}

/// The way to the lanes.
pub(crate) struct Committer {
    shared: Arc<Shared>,
    lanes: Vec<Arc<Queue>>,
}

impl Committer {
    pub(crate) async fn start(
        config: &StoreConfig,
        (database, readers): (&Database, &Pool),
        wakes: Arc<Wakes>,
        epochs: Arc<Epochs>,
        closing: &CancellationToken,
    ) -> Result<Self, OpenError> {
        let room = DiskRoom::open(config, database)?;
        let shared = Arc::new(Shared {
            config: config.clone(),
            database: database.clone(),
            wakes,
            epochs,
            room,
            counts: Counts::default(),
            facts_written: Arc::default(),
            at_log: Arc::default(),
        });
        let lanes = if database.is_postgres() { config.lanes.max(1) } else { 1 } as usize;
        let queues = (0..lanes).map(|_| {
            Arc::new(Queue::new(
                config.queue_units_max.div_ceil(lanes),
                config.queue_bytes_max.div_ceil(lanes),
            ))
        });
        let queues: Vec<_> = queues.collect();
        for queue in &queues {
            let (opened, open) = oneshot::channel();
            let lane = lane::run(shared.clone(), queue.clone(), closing.clone(), opened);
            database.spawn("committer", lane).map_err(|error| OpenError::Database(error.into()))?;
            open.await.unwrap_or(Err(sqlx::Error::WorkerCrashed)).map_err(OpenError::Database)?;
        }
        if let (Some(file), Some(readers)) = (database.file(), readers.of_sqlite()) {
            let beside = Beside {
                readers: readers.clone(),
                queues: queues.clone(),
                at_log: shared.at_log.clone(),
            };
            let started = checkpoint::start(database, file.clone(), beside, closing);
            started.map_err(|error| OpenError::Database(error.into()))?;
        }
        room::watch(shared.clone(), closing.clone());
        Ok(Self { shared, lanes: queues })
    }

    /// One that takes nothing, for a store that only looks.
    pub(crate) fn idle(
        config: &StoreConfig,
        database: &Database,
        wakes: Arc<Wakes>,
        epochs: Arc<Epochs>,
    ) -> Self {
        let shared = Shared {
            config: config.clone(),
            database: database.clone(),
            wakes,
            epochs,
            room: DiskRoom::looking(),
            counts: Counts::default(),
            facts_written: Arc::default(),
            at_log: Arc::default(),
        };
        Self { shared: Arc::new(shared), lanes: Vec::new() }
    }

    /// Wakes the sequencer.
    pub(crate) fn facts_written(&self) -> Arc<Notify> {
        self.shared.facts_written.clone()
    }

    /// Whether mutations are taken now.
    pub(crate) fn admits(&self) -> Result<(), CommitError> {
        self.shared.room.admits(false)
    }

    /// Queues a unit and waits for its outcome. The unit is decided whether or not anyone still
    /// waits.
    pub(crate) async fn submit(&self, unit: Unit, settling: bool) -> Result<Applied, CommitError> {
        self.shared.room.admits(settling)?;
        let (answer, answered) = oneshot::channel();
        let lane = shard(&unit.organization, self.lanes.len());
        self.lanes[lane].push(Job::new(unit, settling, answer))?;
        // A lane answers every unit; only a lane that was torn down with the runtime does not.
        answered.await.unwrap_or(Err(CommitError::Failed))
    }

    pub(crate) fn status(&self) -> StoreStatus {
        let queued = self.lanes.iter().map(|queue| queue.waiting());
        let (queued_units, queued_bytes) =
            queued.fold((0, 0), |(units, bytes), (u, b)| (units + u, bytes + b));
        let counts = &self.shared.counts;
        StoreStatus {
            read_only: self.shared.room.reason(),
            queued_units,
            queued_bytes,
            batches: counts.batches.load(Ordering::Relaxed),
            units: counts.units.load(Ordering::Relaxed),
            retries: counts.retries.load(Ordering::Relaxed),
        }
    }

    /// Takes no more units and waits until those taken are answered.
    pub(crate) async fn drain(&self) {
        for queue in &self.lanes {
            queue.close();
        }
        for queue in &self.lanes {
            while tokio::time::timeout(Duration::from_secs(1), queue.wait_for_end()).await.is_err()
            {
                tracing::info!("waiting for the committer to finish");
            }
        }
    }
}

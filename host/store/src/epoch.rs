//! Knowledge for caches of the host's own rows: whether any of them has changed, and how fresh that
//! knowledge is.
//!
//! Each batch that writes a `host.` space which is not declared quiet counts it in a row of the
//! revisions, spread over shards so that lanes do not wait for each other. Other replicas poll the
//! sums. Within the process a commit is seen before it is answered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use charter_kernel::unit::{Reach, Space};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::clock::DatabaseClock;
use crate::config::StoreConfig;
use crate::connection::{Database, reading};
use crate::error::ReadError;
use crate::shard::shard;
use crate::sql::{Pool, query};

/// Rows over which the writes of one space are counted.
const SHARDS: usize = 16;
/// Between polls; well below the second for which caches are trusted.
const POLL_MS: u64 = 200;

/// The sum of all counts, and the database's time in milliseconds. Only PostgreSQL is looked at.
const LOOK: &str = "SELECT CAST(COALESCE(SUM(revision), 0) AS BIGINT), \
                    CAST(EXTRACT(EPOCH FROM clock_timestamp()) * 1000 AS BIGINT) FROM revisions WHERE reach = 'epoch'";

/// How often the host's cached spaces were written, by space. Compare for equality; the numbers
/// mean nothing else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Epoch {
    /// Space, and a number that every write of it changes.
    pub spaces: BTreeMap<String, u64>,
}

pub(crate) struct Epochs {
    quiet: BTreeSet<Space>,
    now: watch::Sender<Epoch>,
    /// Writes of this process, which are seen at once; and what the last poll saw of all.
    counts: Mutex<Counts>,
    /// One look at a time: who comes meanwhile shares the next.
    looking: tokio::sync::Mutex<()>,
    polls: bool,
    /// The clock that is told the database's time at each look.
    clock: Option<Arc<DatabaseClock>>,
}

#[derive(Default)]
struct Counts {
    own: BTreeMap<String, u64>,
    polled: BTreeMap<String, u64>,
    at: Option<Instant>,
    /// When the last look that failed began.
    failed: Option<Instant>,
}

impl Epochs {
    fn new(config: &StoreConfig, polls: bool, clock: Option<Arc<DatabaseClock>>) -> Self {
        let quiet = config.quiet_spaces.iter().cloned().collect();
        let (now, counts, looking) =
            (watch::Sender::default(), Mutex::default(), tokio::sync::Mutex::default());
        Self { quiet, now, counts, looking, polls, clock }
    }

    fn counts_for(&self, space: &Space) -> bool {
        space.as_str().starts_with("host.") && !self.quiet.contains(space)
    }

    /// The counting rows that a batch bumps, sorted.
    pub(crate) fn shards<'a>(
        &self,
        written: impl Iterator<Item = (&'a Reach, &'a Space)>,
    ) -> Vec<String> {
        let counted = written.filter(|(_, space)| self.counts_for(space));
        let shards = counted
            .map(|(reach, space)| format!("{}#{}", space.as_str(), shard(reach.as_str(), SHARDS)));
        shards.collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// This process committed a write of these.
    pub(crate) fn note_writes<'a>(&self, spaces: impl Iterator<Item = &'a (Reach, Space)>) {
        let spaces: BTreeSet<_> =
            spaces.map(|(_, space)| space).filter(|space| self.counts_for(space)).collect();
        if spaces.is_empty() {
            return;
        }
        let mut counts = self.counts();
        for space in spaces {
            *counts.own.entry(space.as_str().to_owned()).or_default() += 1;
        }
        self.publish(&counts);
    }

    fn publish(&self, counts: &Counts) {
        let mut spaces = counts.polled.clone();
        for (space, n) in &counts.own {
            *spaces.entry(space.clone()).or_default() += n;
        }
        self.now.send_if_modified(|now| {
            let changed = now.spaces != spaces;
            now.spaces = spaces;
            changed
        });
    }

    /// Polls for other replicas' writes for as long as the store is open.
    pub(crate) async fn watch(
        self: Arc<Self>,
        readers: Pool,
        closing: &CancellationToken,
    ) -> Result<(), ReadError> {
        if !self.polls {
            return Ok(());
        }
        self.poll(&readers).await?;
        tokio::spawn(closing.clone().run_until_cancelled_owned(async move {
            loop {
                tokio::time::sleep(Duration::from_millis(POLL_MS)).await;
                if let Err(error) = self.catch_up(&readers).await {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "the epoch could not be polled"
                    );
                }
            }
        }));
        Ok(())
    }

    /// Looks, where others share the database, unless a look that began after this was called has
    /// ended meanwhile.
    pub(crate) async fn catch_up(&self, readers: &Pool) -> Result<(), ReadError> {
        if !self.polls {
            return Ok(());
        }
        let called = Instant::now();
        let _turn = self.looking.lock().await;
        let since = |look: Option<Instant>| look.is_some_and(|look| look >= called);
        let (seen, failed) = {
            let counts = self.counts();
            (since(counts.at), since(counts.failed))
        };
        if seen {
            return Ok(());
        }
        // A database that hangs is waited for once by all who came meanwhile, not by one after
        // another.
        if failed {
            return Err(ReadError::Unavailable(None));
        }
        let begun = Instant::now();
        let looked = self.poll(readers).await;
        if looked.is_err() {
            self.counts().failed = Some(begun);
        }
        looked
    }

    /// The current epoch and its changes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Epoch> {
        self.now.subscribe()
    }

    /// How long ago the last look was; nothing where no other replica shares the database.
    pub(crate) fn age(&self) -> Duration {
        let at = self.counts().at;
        if self.polls { at.map_or(Duration::MAX, |at| at.elapsed()) } else { Duration::ZERO }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn poll(&self, readers: &Pool) -> Result<(), ReadError> {
        let asked = Instant::now();
        let failed = |error| ReadError::Failed(Some(error));
        let sum = query(LOOK);
        let row = reading(sum.fetch_one(readers)).await?;
        let (sum, at): (i64, i64) =
            (row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
        if let Some(clock) = &self.clock {
            clock.synchronize(charter_kernel::time::Instant(at), asked);
        }
        {
            // They are only ever counted up, so the same sum is the same state.
            let mut counts = self.counts();
            if counts.at.is_some() && counts.polled.values().sum::<u64>() == sum as u64 {
                counts.at = Some(asked);
                return Ok(());
            }
        }
        let query = query("SELECT space, revision FROM revisions WHERE reach = 'epoch'");
        let rows = reading(query.fetch_all(readers)).await?;
        let mut polled = BTreeMap::new();
        for row in rows {
            let (name, n): (String, i64) =
                (row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
            let space = name.rsplit_once('#').map_or(name.as_str(), |(space, _)| space);
            *polled.entry(space.to_owned()).or_insert(0) += n as u64;
        }
        let mut counts = self.counts();
        counts.polled = polled;
        counts.at = Some(asked);
        self.publish(&counts);
        Ok(())
    }
}

impl Database {
    pub(crate) fn epochs(
        &self,
        config: &StoreConfig,
        clock: Option<Arc<DatabaseClock>>,
    ) -> Arc<Epochs> {
        Arc::new(Epochs::new(config, self.is_postgres(), clock))
    }
}

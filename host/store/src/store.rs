//! The handle: opening, committing, and what is too small for a file of its own.
//!
//! Each file below is what the handle answers in one matter. This one knows what the handle is made
//! of, and none of them.

mod blob;
mod change;
mod document;
mod expire;
mod fact;
mod find;
mod forget;
mod log;
mod presence;
mod put_off;
mod rotate;
mod scan;
mod seal;
mod search;
mod snapshot;
mod standing;

use std::fmt;
use std::sync::Arc;

use charter_kernel::time::{Clock, Instant};
use charter_kernel::unit::{Applied, Guard, Key, Rejection, Space, Unit};
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

use crate::bell::{Bell, Bells};
use crate::clock::{DatabaseClock, NoticingClock};
use crate::committer::{Committer, StoreStatus};
use crate::config::StoreConfig;
use crate::connection::Database;
use crate::epoch::Epochs;
use crate::error::{CommitError, OpenError};
use crate::reader::{Readers, Rows};
use crate::seal::Sealer;
use crate::sql::{Asker, Pool, query};
use crate::standing::Groups;
use crate::ticket::{Ticket, Tickets};
use crate::wake::Wakes;

pub use blob::BLOB_BYTES_MAX;
pub use presence::FolderLock;
pub use rotate::Rotation;
pub use snapshot::Snapshot;
pub(crate) use snapshot::standing_still;

/// The store. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
    /// The organization for which it reads; empty for the host itself.
    organization: Arc<str>,
}

pub(crate) struct Inner {
    pub(crate) config: StoreConfig,
    /// The clock of the configuration.
    noticing: Arc<NoticingClock>,
    pub(crate) database: Database,
    /// Connections that only read.
    pub(crate) readers: Pool,
    pub(crate) rows: Readers<Rows>,
    pub(crate) standings: Readers<Groups>,
    pub(crate) committer: Committer,
    pub(crate) wakes: Arc<Wakes>,
    bells: Bells,
    pub(crate) epochs: Arc<Epochs>,
    pub(crate) tickets: Arc<Tickets>,
    pub(crate) sealer: Sealer,
    /// The key that keys of other purposes are derived from.
    pub(crate) root: Zeroizing<[u8; 32]>,
    pub(crate) closing: CancellationToken,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.closing.cancel();
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the database, makes it if it is new, and brings its schema up to date. Makes the key
    /// file at the first start.
    pub async fn open(config: StoreConfig) -> Result<Self, OpenError> {
        let database = Database::new(&config)?;
        crate::migrate::migrate(&database).await?;
        Self::on(config, database, false).await
    }

    /// Opens what is there to read it, beside a running host too: nothing is made, migrated or
    /// committed.
    ///
    /// # Errors
    /// [`OpenError::Absent`] where there is no deployment.
    pub async fn look(config: StoreConfig) -> Result<Self, OpenError> {
        Self::is_there(&config).await?;
        let database = Database::new(&config)?;
        crate::migrate::check(&database).await?;
        Self::on(config, database, true).await
    }

    async fn on(
        mut config: StoreConfig,
        database: Database,
        looks: bool,
    ) -> Result<Self, OpenError> {
        let sealer = Sealer::open(&config, &database, !looks).await?;
        let readers = database.readers(config.readers.max(2)).await.map_err(OpenError::Database)?;
        let closing = CancellationToken::new();
        let wakes = Arc::new(Wakes::default());
        let clock = (config.database_time && database.is_postgres())
            .then(|| Arc::new(DatabaseClock::new(config.clock.clone())));
        if let Some(clock) = &clock {
            config.clock = clock.clone();
        }
        let noticing = Arc::new(NoticingClock::new(config.clock.clone()));
        config.clock = noticing.clone();
        let epochs = database.epochs(&config, clock);
        let connections = config.readers.max(2);
        let rows = Readers::start(Rows, &database, &readers, connections, &closing)
            .await
            .map_err(OpenError::Database)?;
        let groups = Groups { clock: config.clock.clone() };
        let standings = Readers::start(groups, &database, &readers, connections, &closing)
            .await
            .map_err(OpenError::Database)?;
        let committer = match looks {
            true => Committer::idle(&config, &database, wakes.clone(), epochs.clone()),
            false => {
                let of = (&database, &readers);
                Committer::start(&config, of, wakes.clone(), epochs.clone(), &closing).await?
            }
        };
        if database.is_postgres() && !looks {
            crate::sequencer::start(
                database.clone(),
                wakes.clone(),
                committer.facts_written(),
                &closing,
            );
            crate::wake::poll(readers.clone(), database.dialect, wakes.clone(), &closing);
        }
        let unread =
            |error| OpenError::Configuration(format!("the database cannot be read: {error}"));
        epochs.clone().watch(readers.clone(), &closing).await.map_err(unread)?;
        let tickets = Arc::new(Tickets::default());
        let root = Zeroizing::new([0; 32]);
        let inner = Inner {
            config,
            noticing,
            database,
            readers,
            rows,
            standings,
            committer,
            wakes,
            bells: Bells::default(),
            epochs,
            tickets,
            sealer,
            root,
            closing,
        };
        let mut store = Self { inner: Arc::new(inner), organization: Arc::from("") };
        let root = store.root().await?;
        match Arc::get_mut(&mut store.inner) {
            Some(inner) => inner.root = root,
            None => {
                return Err(OpenError::Configuration(
                    "the deployment's keys cannot be kept".into(),
                ));
            }
        }
        Ok(store)
    }

    /// The same store, whose long reads have the places of this organization.
    pub fn reading_for(&self, organization: &str) -> Self {
        let same = *self.organization == *organization;
        let organization = if same { self.organization.clone() } else { organization.into() };
        Self { inner: self.inner.clone(), organization }
    }

    fn readers(&self) -> Asker<'_> {
        self.readers_for(&self.organization)
    }

    fn readers_for<'a>(&'a self, organization: &'a str) -> Asker<'a> {
        Asker { pool: &self.inner.readers, organization }
    }

    /// The deployment's clock.
    pub fn clock(&self) -> Arc<dyn Clock> {
        self.inner.config.clock.clone()
    }

    /// The time now, by that clock.
    pub fn now(&self) -> Instant {
        self.inner.config.clock.now()
    }

    /// How often the clock was set back since the store was opened, by more than [`SET_BACK_MS`] of
    /// what anybody here was told.
    ///
    /// [`SET_BACK_MS`]: crate::SET_BACK_MS
    pub fn count_set_back(&self) -> u64 {
        self.inner.noticing.count_set_back()
    }

    /// Commits a unit. Once it is queued it is decided, whether or not the caller still waits.
    pub async fn commit(&self, unit: Unit) -> Result<Applied, CommitError> {
        self.submit(unit, false).await
    }

    /// Commits a unit that settles what has already happened (gives back, voids, audits): taken
    /// even while the store is read-only for want of space.
    pub async fn commit_settling(&self, unit: Unit) -> Result<Applied, CommitError> {
        self.submit(unit, true).await
    }

    /// Commits nothing, where these guards hold.
    ///
    /// # Errors
    /// As a unit under them.
    pub async fn require(&self, organization: &str, guards: Vec<Guard>) -> Result<(), CommitError> {
        if guards.is_empty() {
            return Ok(());
        }
        let unit = Unit { organization: organization.to_owned(), guards, ..Unit::default() };
        self.inner.committer.submit(unit, false).await.map(drop)
    }

    async fn submit(&self, unit: Unit, settling: bool) -> Result<Applied, CommitError> {
        if unit.is_empty() {
            return Ok(Applied::default());
        }
        charter_kernel::apply::check(&unit)
            .map_err(|refused| CommitError::Rejected(Rejection::Refused(refused)))?;
        let due = self.inner.bells.of(&unit, self.now());
        let applied = self.inner.committer.submit(unit, settling).await?;
        self.inner.bells.ring(&due);
        Ok(applied)
    }

    /// A bell that rings once this process has put rows that are due in a space of the host, as long as it is
    /// kept.
    pub fn bell(&self, space: &Space) -> Arc<Bell> {
        self.inner.bells.hang(space)
    }

    /// Waits for its turn at these hot rows; the turn is over when the ticket is dropped. A key
    /// with an empty id stands for its whole space.
    pub async fn ticket(&self, keys: &[Key]) -> Ticket {
        self.inner.tickets.take(keys).await
    }

    pub(crate) async fn ticket_if_hot(&self, key: &Key) -> Option<Ticket> {
        self.inner.tickets.take_if_hot(key).await
    }

    /// How the store is doing.
    pub fn status(&self) -> StoreStatus {
        self.inner.committer.status()
    }

    /// Whether the database answers now.
    pub async fn ping(&self) -> bool {
        query("SELECT 1").fetch_one(self.readers()).await.is_ok()
    }

    /// Whether other replicas can share the database.
    pub fn is_shared(&self) -> bool {
        self.inner.database.is_postgres()
    }

    /// Lets units in the committers' hands finish, then closes.
    pub async fn close(&self) {
        self.inner.committer.drain().await;
        self.inner.closing.cancel();
        self.inner.readers.close().await;
    }
}

//! The settings that a store is opened with.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use charter_kernel::time::Clock;
use charter_kernel::unit::Space;

/// The settings that a store is opened with.
#[derive(Clone)]
pub struct StoreConfig {
    /// `postgres://…`, `sqlite://path`, or empty for `charter.db` in the data folder.
    pub url: String,
    /// The folder of the embedded database, its ballast file and, unless given elsewhere, the key
    /// file.
    pub data_dir: PathBuf,
    /// The master key: 32 random bytes in base64, made at first start with mode 0600. `None`:
    /// `master.key` in the data folder.
    pub key_file: Option<PathBuf>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Go by the database's time instead, where replicas share one. A test that moves its clock
    /// does not.
    pub database_time: bool,
    /// Connections that read.
    pub readers: u32,
    /// Committers on PostgreSQL, each with its own connection; SQLite has one.
    pub lanes: u32,
    /// How long an answer of PostgreSQL is waited for, in milliseconds, ahead of a new connection:
    /// longer than a statement may take. A machine that died says nothing.
    pub answer_ms_max: u64,
    /// Units that may wait for the committers; above it, [`crate::CommitError::Overloaded`].
    pub queue_units_max: usize,
    /// Bytes of units that may wait.
    pub queue_bytes_max: usize,
    /// Bytes that the embedded database file may grow to; above it the store turns read-only as on
    /// a full disk.
    pub size_bytes_max: Option<u64>,
    /// Bytes of the ballast file that is freed when the disk is full.
    pub ballast_bytes: u64,
    /// Spaces of the host whose writes do not count as a change of what is cached
    /// ([`crate::Store::epoch`]): jobs, idempotency records. Every other `host.` space does, so
    /// that forgetting one costs time and not safety.
    pub quiet_spaces: Vec<Space>,
}

impl StoreConfig {
    /// The defaults for a data folder.
    pub fn new(data_dir: impl Into<PathBuf>, clock: Arc<dyn Clock>) -> Self {
        let cores = std::thread::available_parallelism().map_or(2, |n| n.get() as u32);
        Self {
            url: String::new(),
            data_dir: data_dir.into(),
            key_file: None,
            clock,
            database_time: false,
            readers: cores.max(2),
            lanes: 2,
            answer_ms_max: 32_000,
            queue_units_max: 8_192,
            queue_bytes_max: 64 * 1024 * 1024,
            size_bytes_max: None,
            ballast_bytes: 16 * 1024 * 1024,
            quiet_spaces: ["jobs", "idempotency", "facts", "schedules", "deliveries"]
                .map(Space::host)
                .into(),
        }
    }
}

impl fmt::Debug for StoreConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The URL may hold a password.
        f.debug_struct("StoreConfig").field("data_dir", &self.data_dir).finish_non_exhaustive()
    }
}

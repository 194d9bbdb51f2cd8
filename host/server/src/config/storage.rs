//! The folders and databases of stored data, and how long it is kept.

use std::path::PathBuf;

use super::Secret;
use super::source::Section;

/// `[data]`
#[derive(Clone, Debug)]
pub struct Data {
    /// The embedded database, the key file and the code cache.
    pub dir: PathBuf,
    /// The master key; `<dir>/master.key` where absent.
    pub key_file: Option<PathBuf>,
}

impl Data {
    pub(super) fn read(mut of: Section<'_>) -> Self {
        Self {
            dir: of.take(
                "dir",
                PathBuf::from("charter-data"),
                "holds the embedded database, the key file and the code cache",
            ),
            key_file: of.optional(
                "key_file",
                "the master key; master.key in the data directory if not set, made at first start",
            ),
        }
    }
    /// The folder of compiled components.
    pub fn code_cache(&self) -> PathBuf {
        self.dir.join("code")
    }
    /// The file of the master key.
    pub fn master_key(&self) -> PathBuf {
        self.key_file.clone().unwrap_or_else(|| self.dir.join("master.key"))
    }
}

/// `[database]`
#[derive(Clone, Debug)]
pub struct Database {
    /// `postgres://…` or `sqlite:…`; absent means the embedded one. Secret, because it can hold a
    /// password.
    pub url: Option<Secret>,
    /// Connections for reading.
    pub readers: u32,
    /// Committers of this replica, on PostgreSQL.
    pub lanes: u32,
    /// Units that may wait for the committer.
    pub queue_max: usize,
    /// Bytes of the embedded database's file; 0 for no limit of our own.
    pub file_bytes_max: u64,
}

impl Database {
    pub(super) fn read(mut of: Section<'_>) -> Self {
        let database = Self {
            url: of.optional("url", "postgres://user:password@host/name, or sqlite:PATH; the embedded SQLite if not set"),
            readers: of.within("readers", 8, (1, 256), "connections for reading"),
            lanes: of.within("lanes", 4, (1, 64), "committers of this replica, on PostgreSQL"),
            queue_max: of.within("queue_max", 4_096, (16, 1_000_000), "units that may wait for the committer before 503"),
            file_bytes_max: of.take("file_bytes_max", 0, "bytes of the embedded database's file; 0 for no limit"),
        };
        if let Some(url) = &database.url {
            let known = ["postgres://", "postgresql://", "sqlite:"];
            if !known.iter().any(|scheme| url.reveal().starts_with(scheme)) {
                of.fault("url", "must start with postgres:// or sqlite:");
            }
        }
        database
    }
}

/// `[retention]`
#[derive(Clone, Debug)]
pub struct Retention {
    /// Answers kept for replays of an idempotency key; at least 24.
    pub idempotency_hours: u32,
    /// Events; at least 72.
    pub events_hours: u32,
    /// Finished jobs.
    pub jobs_hours: u32,
    /// Retired component versions, beside the one to roll back to.
    pub component_versions: u32,
}

impl Retention {
    pub(super) fn read(mut of: Section<'_>) -> Self {
        Self {
            idempotency_hours: of.within(
                "idempotency_hours",
                24,
                (24, 24 * 90),
                "answers kept for replays of an Idempotency-Key",
            ),
            events_hours: of.within(
                "events_hours",
                24 * 7,
                (72, 24 * 365),
                "events kept for readers that resume",
            ),
            jobs_hours: of.within(
                "jobs_hours",
                24 * 7,
                (1, 24 * 365),
                "finished jobs kept for GET /v1/jobs",
            ),
            component_versions: of.within(
                "component_versions",
                20,
                (1, 1_000),
                "retired versions kept of each component",
            ),
        }
    }
}

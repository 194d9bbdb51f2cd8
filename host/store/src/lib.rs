//! Everything that must survive: rows, claims, logs, facts and blobs on SQLite or PostgreSQL,
//! written by the committer.
//!
//! The only crate that knows SQL and the databases' drivers. It must not know HTTP, WebAssembly or
//! any primitive. Invariant: a unit is committed whole, once, and only if what it read still holds;
//! an answer leaves after the commit is on disk.

mod backup;
mod blob;
mod clock;
mod committer;
mod config;
mod connection;
mod dialect;
mod document;
mod epoch;
mod error;
mod expire;
mod fact;
mod find;
mod forget;
mod log;
mod migrate;
mod presence;
mod query;
mod reader;
mod scan;
mod seal;
mod search;
mod sequencer;
mod snapshot;
mod sql;
mod standing;
mod store;
mod ticket;
mod transact;
mod txn;
mod wake;

pub use blob::BLOB_BYTES_MAX;
pub use config::StoreConfig;
pub use epoch::Epoch;
pub use error::{
    BackupError, CommitError, OpenError, ReadError, SealError, TransactError, WriteError,
};
pub use fact::audited;
pub use presence::Hold;
pub use query::{
    LogEntry, LogHead, Order, PAGE_ROWS_MAX, Page, Query, SequencedFact, Standing, TESTS_MAX, Test,
};
pub use snapshot::Snapshot;
pub use store::{Store, StoreStatus};
pub use ticket::Ticket;
pub use txn::Txn;
pub use wake::Changed;

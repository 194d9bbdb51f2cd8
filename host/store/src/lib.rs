//! Everything that must survive: rows, claims, logs, facts and blobs on SQLite or PostgreSQL,
//! written by the committer.
//!
//! The only crate that knows SQL and the databases' drivers. It must not know HTTP, WebAssembly or
//! any primitive. Invariant: a unit is committed whole, once, and only if what it read still holds;
//! an answer leaves after the commit is on disk.

pub mod at_work;
mod backup;
mod bell;
mod clock;
mod committer;
mod config;
mod connection;
mod dialect;
mod document;
mod epoch;
mod error;
mod fact;
mod lobby;
mod migrate;
mod patience;
mod priority;
mod query;
mod reader;
mod seal;
mod search;
mod sequencer;
mod shard;
mod sql;
mod standing;
mod store;
mod ticket;
mod transact;
mod txn;
mod wake;

pub use bell::Bell;
pub use clock::SET_BACK_MS;
pub use committer::StoreStatus;
pub use config::StoreConfig;
pub use epoch::Epoch;
pub use error::{
    BackupError, CommitError, OpenError, ReadError, RotateError, SealError, TransactError,
    WriteError,
};
pub use fact::audit_fact;
pub use lobby::{Lobby, Seat, SharedLobby, SharedSeat, Waiter};
pub use patience::Patience;
pub use priority::give_way;
pub use query::{
    GroupDue, GroupStanding, GroupsDue, LogEntry, LogHead, LogPage, Order, PAGE_BYTES_MAX,
    PAGE_ROWS_MAX, Page, PutOff, Query, SequencedFact, TESTS_MAX, Test,
};
pub use store::{BLOB_BYTES_MAX, FolderLock, Rotation, Snapshot, Store};
pub use ticket::Ticket;
pub use transact::Attempts;
pub use txn::Txn;
pub use wake::Changed;

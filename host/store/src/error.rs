//! Errors, told apart as callers need them.

use charter_kernel::unit::{Refused, Rejection};

/// The store could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The operator has to change something; the text says what.
    #[error("{0}")]
    Configuration(String),
    /// The database could not be reached or said no.
    #[error("the database cannot be opened")]
    Database(#[source] sqlx::Error),
    /// Another process holds the embedded database; the text says where it lies.
    #[error("a host is running on {0}, and an embedded database takes one")]
    Held(String),
    /// There is no deployment; the text says where.
    #[error("there is no deployment in {0}")]
    Absent(String),
    /// A file could not be read or written.
    #[error("{path} cannot be used")]
    File {
        /// The file.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// A read did not succeed; nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// More reads wait than the store takes on.
    #[error("too many reads wait")]
    Overloaded,
    /// The database could not be reached, or took too long.
    #[error("the database does not answer")]
    Unavailable(#[source] Option<sqlx::Error>),
    /// The database refused the statement, or answered what it should not.
    #[error("the database refused a read")]
    Failed(#[source] Option<sqlx::Error>),
    /// A position that this store did not hand out for this query.
    #[error("the position does not belong to this query")]
    Position,
}

/// A unit was not committed; provably nothing of it was.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// A rule or a conflict rejected it.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The queue is full.
    #[error("too many units wait")]
    Overloaded {
        /// When to try again.
        retry_after_s: u32,
    },
    /// The store takes no mutations now: the disk is full, or writing has failed.
    #[error("the store is read-only: {reason}")]
    ReadOnly {
        /// Why, in plain words.
        reason: String,
    },
    /// The database refused this very unit, or deciding it panicked; the log says why.
    #[error("the unit could not be committed")]
    Failed,
}

impl CommitError {
    /// The rule that refused the unit, if one did.
    pub fn refusal(&self) -> Option<&Refused> {
        match self {
            Self::Rejected(Rejection::Refused(refused)) => Some(refused),
            _ => None,
        }
    }
    /// Whether running the request again may succeed.
    pub fn is_conflict(&self) -> bool {
        matches!(self, Self::Rejected(Rejection::Conflict { .. }))
    }
}

/// A buffered write was refused at once, by what is committed now, or could not look.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A rule would refuse it.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The read that it needs failed.
    #[error(transparent)]
    Read(#[from] ReadError),
}

/// [`crate::Store::transact`] did not commit.
#[derive(Debug, thiserror::Error)]
pub enum TransactError<E> {
    /// The body said no.
    #[error("the body refused")]
    Body(E),
    /// The commit did not succeed, or conflicted each time.
    #[error(transparent)]
    Commit(CommitError),
}

impl<E: From<CommitError>> TransactError<E> {
    /// The body's kind of error for either of them.
    pub fn flatten(self) -> E {
        match self {
            Self::Body(error) => error,
            Self::Commit(error) => error.into(),
        }
    }
}

/// Sealing or unsealing failed.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The bytes were not sealed under this context, or were changed.
    #[error("the sealed value does not open")]
    Broken,
    /// The organization's data key could not be read.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// The organization's data key could not be stored.
    #[error(transparent)]
    Commit(#[from] CommitError),
    /// The key file could not be written.
    #[error("the key file cannot be written")]
    File(#[from] std::io::Error),
}

/// The master key was not rotated, or not wholly.
#[derive(Debug, thiserror::Error)]
pub enum RotateError {
    /// Nothing was changed; the text says why.
    #[error("the master key was not replaced: {0}")]
    Refused(String),
    /// Nothing was sealed under another key.
    #[error("the master key was not replaced")]
    Failed(#[source] SealError),
    /// The key file holds the new key and each that is still needed.
    #[error(
        "the master key is replaced in part, and the key file holds each key that is needed: the next rotation goes on with it"
    )]
    Unfinished(#[source] SealError),
}

/// A backup or a restore failed.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// The file cannot be read or written.
    #[error("the backup file cannot be used")]
    File(#[from] std::io::Error),
    /// The database said no.
    #[error("the database refused")]
    Database(#[from] sqlx::Error),
    /// The fault of the file or the target, in plain words.
    #[error("{0}")]
    Refused(String),
    /// Another backup is at work at the same name.
    #[error("another backup writes to this name: wait for it, or name another file")]
    Busy,
    /// The target could not be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
}

//! The moment that a connection's reads see: each its own, or, while nobody commits, that of the first of
//! them.
//!
//! To begin to read takes SQLite two locks of the operating system, which cost more than most reads.
//! A connection that stays where it is between two reads needs none for the second; whether it may
//! is said by a count of the commits, without asking SQLite. Invariant: a read that begins behind a
//! commit of this process sees it. Nobody else commits to a database that a host serves.

use std::cell::Cell;
use std::ffi::c_int;
use std::sync::atomic::{AtomicU64, Ordering};

use rusqlite::Connection;
use rusqlite::hooks::Wal;

/// The commits of this process to any database, each counted once whoever begins to read sees it.
static COMMITS: AtomicU64 = AtomicU64::new(0);

/// Counts the commits of a connection that writes.
pub(super) fn count_commits(connection: &mut Connection) -> rusqlite::Result<()> {
    // SQLite calls it behind the commit, and before the statement answers that made it.
    let count = |_: &mut Wal, _: c_int| {
        COMMITS.fetch_add(1, Ordering::Release);
        Ok(())
    };
    connection.wal_hook(Some(count))
}

/// The moment that a connection's reads see.
#[derive(Debug, Default)]
pub(super) struct Snapshot {
    /// The commits that it is behind, where the connection has one.
    commits: Cell<u64>,
}

impl Snapshot {
    /// Has the next reads see the database as it is now, and keeps that for those behind it.
    pub(super) fn renew(&self, connection: &Connection) -> rusqlite::Result<()> {
        // Counted first: what is committed in between is seen, and looked for once more.
        let commits = COMMITS.load(Ordering::Acquire);
        if is_kept(connection) && self.commits.get() == commits {
            return Ok(());
        }
        self.end(connection)?;
        connection.prepare_cached("BEGIN")?.raw_execute()?;
        self.commits.set(commits);
        Ok(())
    }

    /// Has each read see the database as it is then.
    pub(super) fn end(&self, connection: &Connection) -> rusqlite::Result<()> {
        match is_kept(connection) {
            true => connection.prepare_cached("COMMIT")?.raw_execute().map(drop),
            false => Ok(()),
        }
    }
}

fn is_kept(connection: &Connection) -> bool {
    !connection.is_autocommit()
}

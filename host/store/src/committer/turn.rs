//! Turns at rows that an organization's requests meet at, on whatever replicas.
//!
//! PostgreSQL only. Such rows are written by one batch after another. A lane waits for its turn
//! before it takes its batch, so that what comes in that time is in it; were it to wait for the
//! rows themselves, its batch would stay as small as when the waiting began. A turn ends with the
//! batch's writes: while those are brought to disk, the next lane takes its batch. Correctness does
//! not rest on it: the rows are locked and guarded in any case. Turns are taken in one order and
//! before any row, so that nobody waits in a circle.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};

use charter_kernel::unit::Key;
use sqlx::{AssertSqlSafe, SqlSafeStr, SqlStr};

use crate::dialect::Dialect;
use crate::sql::{Connection, run};

/// The class of the advisory locks: "turn" as bytes.
const CLASS: i32 = 0x7475_726e;
/// Turns of one batch; where it wants more, none of them is worth waiting for.
const TURNS_MAX: usize = 64;

/// The statement that ends the turns of a session, be its transaction committed or not.
pub(super) const END: &str = "pg_advisory_unlock_all()";
/// The statement that undoes a transaction of PostgreSQL and ends its turns.
const UNDO: &str = "ROLLBACK; SELECT pg_advisory_unlock_all()";

/// A place at a row. Rows that fall together share one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Turn(i32);

impl Turn {
    /// The same on every replica of one build.
    pub(super) fn at(key: &Key) -> Self {
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let bytes = hasher.finish().to_le_bytes();
        Self(i32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }
}

/// Begins a transaction and takes these turns; `None` where there is nothing to wait for.
pub(super) fn begin(turns: &BTreeSet<Turn>) -> Option<SqlStr> {
    if turns.is_empty() || turns.len() > TURNS_MAX {
        return None;
    }
    let mut sql = "BEGIN".to_owned();
    for Turn(turn) in turns {
        // Writing to a string cannot fail.
        let _ = write!(sql, "; SELECT pg_advisory_lock({CLASS}, {turn})");
    }
    Some(AssertSqlSafe(sql).into_sql_str())
}

/// Undoes what the connection has begun; on PostgreSQL its turns end.
pub(super) async fn undo(connection: &mut Connection, dialect: Dialect) -> sqlx::Result<()> {
    run(connection, if dialect == Dialect::Postgres { UNDO } else { "ROLLBACK" }).await
}

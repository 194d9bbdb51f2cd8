//! The mark that a lane leaves in each of its transactions, so that a COMMIT without an answer can
//! be asked after.
//!
//! PostgreSQL only. The number of a transaction is not enough: a database that crashes before
//! anything of a transaction was on disk gives the same number to another one later, and that one
//! may be committed. Invariant: a lane alone writes its row, one transaction after another, so the
//! row holds the number of the last batch that is on disk.

use crate::sql::{Connection, query};
use charter_kernel::time::Instant;

/// Marks of lanes that ended so long ago are removed: nobody asks after them any more.
const KEPT_MS: i64 = 30 * 24 * 3_600_000;

/// A lane's name, and the number of its batch.
pub(super) struct Mark {
    lane: String,
    batch: i64,
}

impl Mark {
    /// A mark that no other lane of any replica has.
    pub(super) fn new() -> std::io::Result<Self> {
        let mut name = [0; 16];
        getrandom::fill(&mut name).map_err(|error| std::io::Error::other(error.to_string()))?;
        Ok(Self { lane: name.iter().map(|byte| format!("{byte:02x}")).collect(), batch: 0 })
    }

    /// Another attempt begins.
    pub(super) fn advance(&mut self) {
        self.batch += 1;
    }

    /// The row that the transaction writes.
    pub(super) fn row(&self, now: Instant) -> (String, i64, i64) {
        (self.lane.clone(), self.batch, now.0)
    }

    /// Whether the last attempt is on disk, provided that it runs no more.
    pub(super) async fn is_there(&self, connection: &mut Connection) -> sqlx::Result<bool> {
        let query = query("SELECT revision FROM revisions WHERE reach = 'lane' AND space = $1")
            .bind(self.lane.clone());
        let Some(row) = query.fetch_optional(connection).await? else { return Ok(false) };
        let batch: i64 = row.try_get(0)?;
        Ok(batch == self.batch)
    }

    /// Removes the marks of lanes that are long gone.
    pub(super) async fn sweep(connection: &mut Connection, now: Instant) -> sqlx::Result<()> {
        let query =
            query("DELETE FROM revisions WHERE reach = 'lane' AND was < $1").bind(now.0 - KEPT_MS);
        query.execute(connection).await.map(drop)
    }
}

//! Forgetting in bulk: the rows and logs of a reach that is no more, and facts beyond their time.
//!
//! Rows go through the committer like every other change. A table that is only ever added to (log
//! entries, facts) has no other writer of its old rows, so they go by a statement of their own,
//! bounded, as blobs do.

use charter_kernel::governance::hold::{BOOKS, BOOKS_LOGS};
use charter_kernel::time::Instant;
use charter_kernel::unit::{Key, Reach, Space};

use super::Store;
use crate::connection::reading;
use crate::error::{CommitError, ReadError};
use crate::query::PAGE_ROWS_MAX;
use crate::sql::{Query, Row, query};

impl Store {
    /// Keys of rows within a reach, whatever their space, but for the books. Not validated, and not
    /// for requests.
    pub async fn reach_keys(
        &self,
        reach: &Reach,
        from: &str,
        limit: u32,
    ) -> Result<Vec<Key>, ReadError> {
        let sql = self.inner.database.dialect.sql(
            "SELECT space, id FROM documents WHERE reach = $1 AND space <> $3 AND space <> $4 AND space <> $5 AND space <> $6 \
             AND space <> $7 AND space >= $8 ORDER BY space, id LIMIT $2 + 0",
        );
        let query = query(sql).bind(reach.as_str()).bind(i64::from(limit.min(PAGE_ROWS_MAX)));
        let query = BOOKS.iter().fold(query, |query, space| query.bind(*space)).bind(from);
        let rows = reading(query.fetch_all(self.readers())).await?;
        let key = |row: &Row| -> sqlx::Result<Key> {
            Ok(Key {
                reach: reach.clone(),
                space: Space::from_store(row.try_get(0)?),
                id: row.try_get(1)?,
            })
        };
        rows.iter()
            .map(key)
            .collect::<sqlx::Result<_>>()
            .map_err(|error| ReadError::Failed(Some(error)))
    }

    /// Forgets at most `limit` entries of the logs within a reach, then the logs; true while
    /// anything may be left. The entries of accounts stay.
    pub async fn forget_logs(&self, reach: &Reach, limit: u32) -> Result<bool, CommitError> {
        let entries = self.inner.database.dialect.sql(
            "DELETE FROM log_entries WHERE reach = $1 AND (log, sequence) IN \
             (SELECT log, sequence FROM log_entries WHERE reach = $1 AND (log < $3 OR log >= $4) ORDER BY log, sequence LIMIT $2 + 0)",
        );
        // The first text behind all those that begin so.
        let (first, beyond) = (BOOKS_LOGS, format!("{}/", BOOKS_LOGS.trim_end_matches('.')));
        let entries = query(entries)
            .bind(reach.as_str())
            .bind(i64::from(limit))
            .bind(first)
            .bind(beyond.clone());
        if self.forget(entries).await? > 0 {
            return Ok(true);
        }
        let heads = self
            .inner
            .database
            .dialect
            .sql("DELETE FROM logs WHERE reach = $1 AND (log < $2 OR log >= $3)");
        self.forget(query(heads).bind(reach.as_str()).bind(first).bind(beyond)).await.map(|_| false)
    }

    /// Forgets at most `limit` numbered events that happened before; says how many. Their sequences
    /// are never given again, and audit rows stay.
    pub async fn forget_events(&self, before: Instant, limit: u32) -> Result<u64, CommitError> {
        let sql = self.inner.database.dialect.sql(
            "DELETE FROM facts WHERE ordinal IN (SELECT ordinal FROM facts WHERE kind = 'event' AND at < $1 \
             AND sequence IS NOT NULL ORDER BY at LIMIT $2 + 0)",
        );
        self.forget(query(sql).bind(before.0).bind(i64::from(limit))).await
    }

    /// Forgets what at most `limit` audit rows on behalf of a user have beside their leaves; true
    /// while any may be left.
    pub async fn forget_private(&self, user: &str, limit: u32) -> Result<bool, CommitError> {
        let sql = self.inner.database.dialect.sql(
            "UPDATE facts SET private = NULL WHERE ordinal IN (SELECT ordinal FROM facts WHERE user_id = $1 \
             AND private IS NOT NULL AND user_id IS NOT NULL ORDER BY ordinal LIMIT $2 + 0)",
        );
        let forgotten =
            self.forget(query(sql).bind(user.to_owned()).bind(i64::from(limit))).await?;
        Ok(forgotten == u64::from(limit))
    }

    async fn forget(&self, query: Query) -> Result<u64, CommitError> {
        self.inner.committer.admits()?;
        let database = self.inner.database.clone();
        let forgotten = self.inner.database.apart(async move {
            let mut connection = database.writer().await?;
            database.answer(query.execute(&mut connection)).await
        });
        forgotten.await.map_err(|error: sqlx::Error| {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "what is past its time could not be forgotten"
            );
            CommitError::Failed
        })
    }
}

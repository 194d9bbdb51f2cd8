//! Logs: append-only, numbered from 1 without gaps.

use charter_kernel::time::Instant;
use charter_kernel::unit::LogKey;

use super::Store;
use crate::connection::reading;
use crate::dialect::Dialect;
use crate::error::ReadError;
use crate::query::{LogEntry, LogHead, LogPage, PAGE_ROWS_MAX};
use crate::sql::{Ask, Row, query};

impl Store {
    /// Entries of a log after a sequence, oldest first.
    pub async fn log_read(
        &self,
        log: &LogKey,
        after: u64,
        limit: u32,
    ) -> Result<LogPage, ReadError> {
        entries(self.readers(), self.inner.database.dialect, log, after, limit).await
    }

    /// How far a log is.
    pub async fn log_head(&self, log: &LogKey) -> Result<LogHead, ReadError> {
        let sql = self
            .inner
            .database
            .dialect
            .sql("SELECT head, closed FROM logs WHERE reach = $1 AND log = $2");
        let query = query(sql).bind(log.reach.as_str()).bind(log.log.clone());
        let Some(row) = reading(query.fetch_optional(self.readers())).await? else {
            return Ok(LogHead::default());
        };
        let failed = |error| ReadError::Failed(Some(error));
        let (head, closed): (i64, i64) =
            (row.try_get(0).map_err(failed)?, row.try_get(1).map_err(failed)?);
        Ok(LogHead { head: head as u64, closed: closed != 0 })
    }
}

pub(crate) async fn entries(
    on: impl Ask,
    dialect: Dialect,
    log: &LogKey,
    after: u64,
    limit: u32,
) -> Result<LogPage, ReadError> {
    let sql = dialect.sql(
        "{within:sequence:name,payload}SELECT sequence, at, name, payload FROM log_entries WHERE reach = $1 AND log = $2 AND sequence > $3 \
         ORDER BY sequence LIMIT $4 + 0",
    );
    let query = query(sql).bind(log.reach.as_str()).bind(log.log.clone());
    let limit = limit.min(PAGE_ROWS_MAX);
    let query = query.bind(i64::try_from(after).unwrap_or(i64::MAX)).bind(i64::from(limit));
    let page = reading(query.fetch_page(on)).await?;
    let entry = |mut row: Row| -> sqlx::Result<LogEntry> {
        let sequence = row.try_get::<i64>(0)? as u64;
        Ok(LogEntry {
            sequence,
            at: Instant(row.try_get(1)?),
            name: row.take_text(2)?,
            payload: row.take_text(3)?,
        })
    };
    let full = page.cut || page.rows.len() == limit as usize;
    let entries = page.rows.into_iter().map(entry).collect::<sqlx::Result<_>>();
    Ok(LogPage { entries: entries.map_err(|error| ReadError::Failed(Some(error)))?, full })
}

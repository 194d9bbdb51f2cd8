//! Sweeping the host's own rows that are past their time, in all reaches at once, by an index.

use charter_kernel::unit::{Guard, Key, Reach, Space, Unit, Write};

use crate::connection::reading;
use crate::error::{CommitError, ReadError};
use crate::query::PAGE_ROWS_MAX;
use crate::sql::{Row, query};
use crate::store::Store;

impl Store {
    /// Keys of rows of a host space, in all reaches, whose indexed field has an encoded value below `before`; lowest first.
    pub async fn expired(&self, space: &Space, field: &str, before: &str, limit: u32) -> Result<Vec<Key>, ReadError> {
        let found = self.expired_rows(space, field, before, limit).await?;
        Ok(found.into_iter().map(|(key, _)| key).collect())
    }

    async fn expired_rows(
        &self,
        space: &Space,
        field: &str,
        before: &str,
        limit: u32,
    ) -> Result<Vec<(Key, String)>, ReadError> {
        let sql = self.inner.database.dialect.sql(
            "SELECT reach, id, value FROM document_index WHERE space = $1 AND field = $2 AND value < $3 \
             AND space >= 'host.' AND space < 'host/' ORDER BY value, reach, id LIMIT $4 + 0",
        );
        let query = query(sql).bind(space.as_str()).bind(field.to_owned()).bind(before.to_owned());
        let rows = reading(query.bind(i64::from(limit.min(PAGE_ROWS_MAX))).fetch_all(&self.inner.readers)).await?;
        let key = |row: &Row| -> sqlx::Result<(Key, String)> {
            let key = Key { reach: Reach::stored(row.try_get(0)?), space: space.clone(), id: row.try_get(1)? };
            Ok((key, row.try_get(2)?))
        };
        rows.iter().map(key).collect::<sqlx::Result<_>>().map_err(|error| ReadError::Failed(Some(error)))
    }

    /// Removes such rows, each in a unit of its own, at most `limit`; says how many. A row whose time was moved meanwhile stays.
    pub async fn expire(&self, space: &Space, field: &str, before: &str, limit: u32) -> Result<u32, CommitError> {
        let found = self.expired_rows(space, field, before, limit).await.map_err(|error| {
            tracing::warn!(error = &error as &dyn std::error::Error, "expired rows could not be read");
            CommitError::Failed
        })?;
        let removals = found.into_iter().map(|(key, value)| async {
            let guards = vec![Guard::Entry { key: key.clone(), field: field.to_owned(), value }];
            let unit = Unit { guards, writes: vec![Write::Remove { key, expected: None }], ..Unit::default() };
            self.commit(unit).await
        });
        let mut removed = 0;
        for answer in futures::future::join_all(removals).await {
            match answer {
                Ok(_) => removed += 1,
                Err(CommitError::Rejected(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(removed)
    }
}

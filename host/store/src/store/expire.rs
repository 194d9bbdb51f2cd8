//! Sweeping the host's own rows that are past their time, in all reaches at once, by an index.

use charter_kernel::unit::{Guard, Key, Reach, Row, Space, Unit, Write};

use super::Store;
use crate::connection::reading;
use crate::document::{columns, read_row};
use crate::error::{CommitError, ReadError};
use crate::query::PAGE_ROWS_MAX;
use crate::sql::{self, query};

impl Store {
    /// Keys of rows of a host space, in all reaches, whose indexed field has an encoded value below
    /// `before`; lowest first.
    pub async fn find_expired(
        &self,
        space: &Space,
        field: &str,
        before: &str,
        limit: u32,
    ) -> Result<Vec<Key>, ReadError> {
        let found = self.find_expired_entries(space, field, before, limit).await?;
        Ok(found.into_iter().map(|(key, _)| key).collect())
    }

    async fn find_expired_entries(
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
        let rows =
            reading(query.bind(i64::from(limit.min(PAGE_ROWS_MAX))).fetch_all(self.readers()))
                .await?;
        let key = |row: &sql::Row| -> sqlx::Result<(Key, String)> {
            let key = Key {
                reach: Reach::from_store(row.try_get(0)?),
                space: space.clone(),
                id: row.try_get(1)?,
            };
            Ok((key, row.try_get(2)?))
        };
        rows.iter()
            .map(key)
            .collect::<sqlx::Result<_>>()
            .map_err(|error| ReadError::Failed(Some(error)))
    }

    /// Rows of a host space, in all reaches, whose indexed field has an encoded value within these
    /// bounds, both inclusive: by value, behind the row `after` of the lower bound. Not validated,
    /// and not for guests: it crosses tenants.
    pub async fn find_indexed(
        &self,
        space: &Space,
        field: &str,
        (from, to): (&str, &str),
        after: Option<&Key>,
        limit: u32,
    ) -> Result<Vec<(String, Key, Row)>, ReadError> {
        let sql = self.inner.database.dialect.sql(concat!(
            "SELECT i.value, ",
            columns!(),
            " FROM document_index i JOIN documents d ON d.reach = i.reach AND d.space = i.space AND d.id = i.id \
             WHERE i.space = $1 AND i.field = $2 AND i.space >= 'host.' AND i.space < 'host/' AND i.value <= $3 \
             AND (i.value, i.reach, i.id) > ($4, $5, $6) \
             ORDER BY i.value, i.reach, i.id LIMIT $7 + 0"
        ));
        let (reach, id) = after.map_or(("", ""), |key| (key.reach.as_str(), key.id.as_str()));
        let query = query(sql)
            .bind(space.as_str())
            .bind(field.to_owned())
            .bind(to.to_owned())
            .bind(from.to_owned());
        let query = query
            .bind(reach.to_owned())
            .bind(id.to_owned())
            .bind(i64::from(limit.min(PAGE_ROWS_MAX)));
        let rows = reading(query.fetch_all(self.readers())).await?;
        let found = |mut row: sql::Row| -> sqlx::Result<(String, Key, Row)> {
            let (key, found) = read_row(&mut row, 1)?;
            Ok((row.try_get(0)?, key, found.row))
        };
        rows.into_iter()
            .map(found)
            .collect::<sqlx::Result<_>>()
            .map_err(|error| ReadError::Failed(Some(error)))
    }

    /// The sum of an integer member of such rows' bodies, all as of one moment; the upper bound is not one
    /// of them. `only` are those that have this text in another member.
    pub async fn sum_indexed(
        &self,
        space: &Space,
        field: &str,
        (from, behind): (&str, &str),
        member: &str,
        only: Option<(&str, &str)>,
        beside: &Key,
    ) -> Result<(i64, Option<String>), ReadError> {
        let sql = self.inner.database.dialect.sql(
            "SELECT CAST(COALESCE(SUM(CAST(d.body{json} ->> CAST($5 AS TEXT) AS BIGINT)), 0) AS BIGINT), \
             (SELECT b.body FROM documents b WHERE b.reach = $8 AND b.space = $9 AND b.id = $10) \
             FROM document_index i JOIN documents d ON d.reach = i.reach AND d.space = i.space AND d.id = i.id \
             WHERE i.space = $1 AND i.field = $2 AND i.space >= 'host.' AND i.space < 'host/' \
             AND i.value >= $3 AND i.value < $4 AND ($6 = '' OR d.body{json} ->> CAST($6 AS TEXT) = $7)",
        );
        let (other, text) = only.unwrap_or_default();
        let query = query(sql).bind(space.as_str()).bind(field.to_owned());
        let query = query.bind(from.to_owned()).bind(behind.to_owned()).bind(member.to_owned());
        let query = query.bind(other.to_owned()).bind(text.to_owned());
        let query = query.bind(beside.reach.as_str().to_owned());
        let query = query.bind(beside.space.as_str().to_owned()).bind(beside.id.clone());
        let row = reading(query.fetch_one(self.readers())).await?;
        let read = || Ok((row.try_get(0)?, row.try_get(1)?));
        read().map_err(|error| ReadError::Failed(Some(error)))
    }

    /// Removes such rows, each in a unit of its own, at most `limit`; says how many. A row whose
    /// time was moved meanwhile stays.
    pub async fn expire(
        &self,
        space: &Space,
        field: &str,
        before: &str,
        limit: u32,
    ) -> Result<u32, CommitError> {
        let found =
            self.find_expired_entries(space, field, before, limit).await.map_err(|error| {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "expired rows could not be read"
                );
                CommitError::Failed
            })?;
        let removals = found.into_iter().map(|(key, value)| async {
            let guards = vec![Guard::Entry { key: key.clone(), field: field.to_owned(), value }];
            let unit = Unit {
                guards,
                writes: vec![Write::Remove { key, expected: None }],
                ..Unit::default()
            };
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

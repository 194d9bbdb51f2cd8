//! Leased rows of the host that are due later than a moment, group by group.
//!
//! Must not know what is done with them, nor why they were put off.

use charter_kernel::time::Instant;
use charter_kernel::unit::{Key, Row, Space};

use super::Store;
use super::standing::{END, groups};
use crate::connection::reading;
use crate::document::{columns, read_row};
use crate::error::ReadError;
use crate::query::{PAGE_ROWS_MAX, PutOff};
use crate::sql::query;

impl Store {
    /// A page of the names of the groups of a space of the host, of whatever reach: so many behind
    /// this one, none behind the last.
    pub async fn groups_after(
        &self,
        space: &Space,
        after: &str,
        limit: u32,
    ) -> Result<Vec<String>, ReadError> {
        let sql = self
            .inner
            .database
            .dialect
            .sql(concat!(groups!(), "SELECT g.name FROM g WHERE g.name IS NOT NULL"));
        let query =
            query(sql).bind(space.as_str()).bind(after.to_owned()).bind(i64::from(limit)).bind(END);
        let rows = reading(query.fetch_all(self.readers())).await?;
        let names = rows.iter().map(|row| row.try_get::<String>(0)).collect::<sqlx::Result<_>>();
        let mut names: Vec<String> = names.map_err(|error| ReadError::Failed(Some(error)))?;
        names.sort();
        Ok(names)
    }

    /// Rows of a group of a space of the host, held or not, that are due later than a moment and at
    /// a time that a clock can show: by when they are due, behind one of them. Fewer than asked for
    /// where their bytes fill a page, none behind the last.
    pub async fn put_off(
        &self,
        (space, group): (&Space, &str),
        wanted: PutOff,
        after: Option<&(Instant, Key)>,
        limit: u32,
    ) -> Result<Vec<(Key, Row)>, ReadError> {
        let sql = self.inner.database.dialect.sql(concat!(
            "{within:due_at, id, reach:body,entries}SELECT ",
            columns!(),
            " FROM documents d WHERE d.space = $1 AND d.lease_group = $2 AND d.lease_group IS NOT NULL \
             AND d.space >= 'host.' AND d.space < 'host/' AND d.due_at >= $3 AND d.due_at <= $4 \
             AND (d.due_at > $3 OR d.id > $5 OR (d.id = $5 AND d.reach > $6)) \
             AND (d.lease_count > 0 OR d.created_at > $7) ORDER BY d.due_at, d.id, d.reach LIMIT $8 + 0"
        ));
        let (due, id, reach) = match after {
            Some((due, key)) => (due.0, key.id.as_str(), key.reach.as_str()),
            None => (wanted.beyond.0.saturating_add(1), "", ""),
        };
        let query = query(sql).bind(space.as_str()).bind(group.to_owned()).bind(due);
        let query = query.bind(Instant::LAST.0).bind(id.to_owned()).bind(reach.to_owned());
        let query = query.bind(wanted.inserted_after.0);
        let query = query.bind(i64::from(limit.min(PAGE_ROWS_MAX)));
        let page = reading(query.fetch_page(self.readers())).await?;
        page.rows
            .into_iter()
            .map(|mut row| read_row(&mut row, 0).map(|(key, stored)| (key, stored.row)))
            .collect::<sqlx::Result<_>>()
            .map_err(|error| ReadError::Failed(Some(error)))
    }
}

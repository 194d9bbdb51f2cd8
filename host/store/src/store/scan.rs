//! Walking all rows of a space, in every reach: what a new index is built by.

use charter_kernel::unit::{Key, Row, Space};

use super::Store;
use crate::connection::reading;
use crate::dialect::Dialect;
use crate::document::{columns, read_row};
use crate::error::ReadError;
use crate::query::PAGE_ROWS_MAX;
use crate::sql::{Ask, query};

impl Store {
    /// Rows of a space in all reaches, by reach and id, after one of them: fewer than asked for
    /// where their bytes fill a page, none behind the last. Not validated, and not
    /// for requests: it crosses tenants.
    pub async fn scan(
        &self,
        space: &Space,
        after: Option<&Key>,
        limit: u32,
    ) -> Result<Vec<(Key, Row)>, ReadError> {
        rows_of(self.readers(), self.inner.database.dialect, space, after, limit).await
    }
}

pub(crate) async fn rows_of(
    on: impl Ask,
    dialect: Dialect,
    space: &Space,
    after: Option<&Key>,
    limit: u32,
) -> Result<Vec<(Key, Row)>, ReadError> {
    let sql = dialect.sql(concat!(
        "{within:reach, id:body,entries}SELECT ",
        columns!(),
        " FROM documents d WHERE d.space = $1 AND (d.reach, d.id) > ($2, $3) ORDER BY d.reach, d.id LIMIT $4 + 0"
    ));
    let (reach, id) = after.map_or(("", ""), |key| (key.reach.as_str(), key.id.as_str()));
    let query = query(sql).bind(space.as_str()).bind(reach.to_owned()).bind(id.to_owned());
    let page = reading(query.bind(i64::from(limit.min(PAGE_ROWS_MAX))).fetch_page(on)).await?;
    let rows = page
        .rows
        .into_iter()
        .map(|mut row| read_row(&mut row, 0).map(|(key, stored)| (key, stored.row)));
    rows.collect::<sqlx::Result<_>>().map_err(|error| ReadError::Failed(Some(error)))
}

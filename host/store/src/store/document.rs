//! Single reads of the table of rows.

use charter_kernel::apply::{Stored, claim_fits, key_fits, text_fits};
use charter_kernel::unit::{Claim, Key, Reach, Row, Space};

use super::Store;
use crate::connection::reading;
use crate::document::parse_holder;
use crate::error::ReadError;
use crate::sql::query;

impl Store {
    /// A committed row.
    pub async fn get(&self, key: &Key) -> Result<Option<Row>, ReadError> {
        Ok(self.load(key).await?.map(|stored| stored.row))
    }

    pub(crate) async fn load(&self, key: &Key) -> Result<Option<Stored>, ReadError> {
        // Reads share their statements: one that the database refuses would fail its neighbours'.
        if !key_fits(key) {
            return Ok(None);
        }
        self.inner.rows.ask(key.clone(), &self.organization).await
    }

    /// The holder of a unique value or name.
    pub async fn lookup(&self, claim: &Claim) -> Result<Option<Key>, ReadError> {
        if !claim_fits(claim) {
            return Ok(None);
        }
        let sql = self
            .inner
            .database
            .dialect
            .sql("SELECT holder FROM claims WHERE reach = $1 AND space = $2 AND name = $3");
        let query = query(sql)
            .bind(claim.reach.as_str())
            .bind(claim.space.clone())
            .bind(claim.name.clone());
        let row = reading(query.fetch_optional(self.readers())).await?;
        let Some(row) = row else { return Ok(None) };
        let holder: String = row.try_get(0).map_err(|error| ReadError::Failed(Some(error)))?;
        parse_holder(&holder).map(Some).map_err(|error| ReadError::Failed(Some(error)))
    }

    /// Keys of a group's rows, earliest due first.
    pub(crate) async fn group_keys(
        &self,
        reach: &Reach,
        space: &Space,
        group: &str,
        limit: u32,
    ) -> Result<Vec<Key>, ReadError> {
        if !text_fits(group) {
            return Ok(Vec::new());
        }
        let sql = self.inner.database.dialect.sql(
            "SELECT id FROM documents WHERE reach = $1 AND space = $2 AND lease_group = $3 ORDER BY due_at, id LIMIT $4 + 0",
        );
        let query = query(sql).bind(reach.as_str()).bind(space.as_str());
        let rows =
            reading(query.bind(group.to_owned()).bind(i64::from(limit)).fetch_all(self.readers()))
                .await?;
        let ids = rows.iter().map(|row| row.try_get::<String>(0)).collect::<Result<Vec<_>, _>>();
        let ids = ids.map_err(|error| ReadError::Failed(Some(error)))?;
        Ok(ids.into_iter().map(|id| Key::new(reach, space, id)).collect())
    }
}

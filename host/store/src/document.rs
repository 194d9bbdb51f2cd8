//! The table of rows: how a row lies there, and single reads.

use charter_kernel::apply::{Stored, claim_fits, key_fits, text_fits};
use charter_kernel::time::Instant;
use charter_kernel::unit::{Claim, Key, Lease, Reach, Row, Space};
use serde::{Deserialize, Serialize};

use crate::connection::reading;
use crate::error::ReadError;
use crate::sql::{self, query};
use crate::store::Store;

/// The columns of a row, in the order in which [`stored`] reads them, of a table called `d`.
macro_rules! columns {
    () => {
        "d.reach, d.space, d.id, d.organization, d.user_id, d.body, d.entries, d.lease_group, d.lease_token, \
         d.version, d.stamp, d.created_at, d.updated_at, d.due_at, d.lease_count"
    };
}
pub(crate) use columns;

/// What else a row holds beside its columns.
#[derive(Default, Deserialize)]
#[serde(default)]
struct Entries {
    index: Vec<(String, String)>,
    unique: Vec<(String, String)>,
    text: Option<String>,
    names: Vec<(String, String, String)>,
}

/// The same, to be written.
#[derive(Serialize)]
struct EntriesOf<'a> {
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    index: &'a [(String, String)],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    unique: &'a [(String, String)],
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    names: Vec<(&'a str, &'a str, &'a str)>,
}

/// The text of the column `entries`; empty for a row that has none.
pub(crate) fn entries(stored: &Stored) -> String {
    let row = &stored.row;
    if row.index.is_empty()
        && row.unique.is_empty()
        && row.text.is_none()
        && stored.names.is_empty()
    {
        return String::new();
    }
    let names = stored
        .names
        .iter()
        .map(|claim| (claim.reach.as_str(), claim.space.as_str(), claim.name.as_str()));
    let text = row.text.as_deref();
    let entries =
        EntriesOf { index: &row.index, unique: &row.unique, text, names: names.collect() };
    serde_json::to_string(&entries).unwrap_or_default()
}

/// A row from columns that start at `at`, whose texts it takes.
pub(crate) fn stored(row: &mut sql::Row, at: usize) -> sqlx::Result<(Key, Stored)> {
    let mut text = |n: usize| row.take_text(at + n);
    let key = Key { reach: Reach::stored(text(0)?), space: Space::stored(text(1)?), id: text(2)? };
    let (organization, body, kept) = (text(3)?, text(5)?, text(6)?);
    let kept: Entries = match kept.as_str() {
        "" => Entries::default(),
        kept => serde_json::from_str(kept).map_err(|error| sqlx::Error::Decode(Box::new(error)))?,
    };
    let number = |n: usize| row.try_get::<i64>(at + n);
    let lease = match row.try_get::<Option<String>>(at + 7)? {
        None => None,
        Some(group) => Some(Lease {
            group,
            due_at: Instant(number(13)?),
            token: row.try_get(at + 8)?,
            count: u32::try_from(number(14)?).unwrap_or(u32::MAX),
        }),
    };
    let names = kept.names.into_iter().map(|(reach, space, name)| Claim {
        reach: Reach::stored(reach),
        space,
        name,
    });
    let stored = Stored {
        row: Row {
            version: number(9)? as u64,
            user: row.try_get(at + 4)?,
            created_at: Instant(number(11)?),
            updated_at: Instant(number(12)?),
            body,
            index: kept.index,
            unique: kept.unique,
            text: kept.text,
            lease,
        },
        stamp: number(10)? as u64,
        organization,
        names: names.collect(),
    };
    Ok((key, stored))
}

/// How the column `holder` names a row.
pub(crate) fn holder(key: &Key) -> String {
    serde_json::to_string(&(key.reach.as_str(), key.space.as_str(), &key.id)).unwrap_or_default()
}

/// The row that a column `holder` names.
pub(crate) fn held_by(holder: &str) -> sqlx::Result<Key> {
    let (reach, space, id) =
        serde_json::from_str(holder).map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
    Ok(Key { reach: Reach::stored(reach), space: Space::stored(space), id })
}

impl Store {
    /// A committed row.
    pub async fn get(&self, key: &Key) -> Result<Option<Row>, ReadError> {
        Ok(self.stored(key).await?.map(|stored| stored.row))
    }

    pub(crate) async fn stored(&self, key: &Key) -> Result<Option<Stored>, ReadError> {
        // Reads share their statements: one that the database refuses would fail its neighbours'.
        if !key_fits(key) {
            return Ok(None);
        }
        self.inner.rows.ask(key.clone()).await
    }

    /// Who holds a unique value or name.
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
        let row = reading(query.fetch_optional(&self.inner.readers)).await?;
        let Some(row) = row else { return Ok(None) };
        let holder: String = row.try_get(0).map_err(|error| ReadError::Failed(Some(error)))?;
        held_by(&holder).map(Some).map_err(|error| ReadError::Failed(Some(error)))
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
        let rows = reading(
            query.bind(group.to_owned()).bind(i64::from(limit)).fetch_all(&self.inner.readers),
        )
        .await?;
        let ids = rows.iter().map(|row| row.try_get::<String>(0)).collect::<Result<Vec<_>, _>>();
        let ids = ids.map_err(|error| ReadError::Failed(Some(error)))?;
        Ok(ids.into_iter().map(|id| Key::new(reach, space, id)).collect())
    }
}

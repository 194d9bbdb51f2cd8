//! The table of rows: how a row lies there.

use charter_kernel::apply::Stored;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Claim, Key, Lease, Reach, Row, Space};
use serde::{Deserialize, Serialize};

use crate::sql;

/// The columns of a row, in the order in which [`stored`] reads them, of a table called `d`.
macro_rules! columns {
    () => {
        "d.reach, d.space, d.id, d.organization, d.user_id, d.body, d.entries, d.lease_group, d.lease_token, \
         d.version, d.stamp, d.created_at, d.updated_at, d.due_at, d.lease_count"
    };
}
pub(crate) use columns;

/// The members of a row that have no column of their own.
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
pub(crate) fn read_row(row: &mut sql::Row, at: usize) -> sqlx::Result<(Key, Stored)> {
    let mut text = |n: usize| row.take_text(at + n);
    let key = Key {
        reach: Reach::from_store(text(0)?),
        space: Space::from_store(text(1)?),
        id: text(2)?,
    };
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
        reach: Reach::from_store(reach),
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
pub(crate) fn parse_holder(holder: &str) -> sqlx::Result<Key> {
    let (reach, space, id) =
        serde_json::from_str(holder).map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
    Ok(Key { reach: Reach::from_store(reach), space: Space::from_store(space), id })
}

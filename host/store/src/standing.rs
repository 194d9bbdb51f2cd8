//! What groups of leased rows hold.
//!
//! A group may hold millions of rows, so they are not counted one by one: the committer keeps each group's size, and only the
//! part of the index that lies in the future (held or put off), usually short, is counted, up to a bound.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use charter_kernel::apply::text_fits;
use charter_kernel::time::{Clock, Instant};
use charter_kernel::unit::{Reach, Space};
use sqlx::any::AnyRow;
use sqlx::{AnyConnection, Row};

use crate::connection::reading;
use crate::dialect::Dialect;
use crate::error::ReadError;
use crate::query::Standing;
use crate::reader::Questions;
use crate::store::Store;

/// Rows of the future that are counted one by one; beyond it held and put-off rows are told apart by this sample. Stands as a
/// number in the statements.
const COUNTED_MAX: i64 = 20_000;
/// What a held row counts beside the one that every row counts, so that one pass gives both numbers.
const HELD: i64 = 1_000_000;

/// A group of a leased collection.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Group {
    reach: Reach,
    space: Space,
    name: String,
}

/// What a group is seen to hold at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    total: i64,
    future: i64,
    held: i64,
    oldest: Option<i64>,
}

/// Standings of groups, by one statement for all who ask at one moment.
pub(crate) struct Groups {
    pub(crate) clock: Arc<dyn Clock>,
}

impl Questions for Groups {
    type Asked = Group;
    type Found = Seen;

    async fn read(
        &self,
        connection: &mut AnyConnection,
        dialect: Dialect,
        asked: &BTreeSet<Group>,
    ) -> Result<BTreeMap<Group, Seen>, ReadError> {
        let groups: Vec<_> = asked.iter().map(|group| (group.reach.as_str(), group.space.as_str(), &group.name)).collect();
        let groups = serde_json::to_string(&groups).map_err(|_| ReadError::Failed(None))?;
        // The size, then the future part: one statement, one moment.
        let sql = dialect.sql(
            "SELECT k.value->>0, k.value->>1, k.value->>2, \
             CAST(COALESCE((SELECT g.total FROM group_sizes g WHERE g.reach = k.value->>0 AND g.space = k.value->>1 \
               AND g.lease_group = k.value->>2), 0) AS BIGINT), \
             CAST(COALESCE((SELECT SUM(f.counted) FROM (SELECT CASE WHEN d.lease_token IS NULL THEN 1 ELSE 1000001 END AS counted \
               FROM documents d WHERE d.reach = k.value->>0 AND d.space = k.value->>1 AND d.lease_group = k.value->>2 \
               AND d.due_at > $2 ORDER BY d.due_at LIMIT 20000) f), 0) AS BIGINT), \
             (SELECT o.created_at FROM documents o WHERE o.reach = k.value->>0 AND o.space = k.value->>1 \
               AND o.lease_group = k.value->>2 AND (o.due_at <= $2 OR o.lease_token IS NULL) ORDER BY o.created_at LIMIT 1) \
             FROM {each:$1} k",
        );
        let rows = reading(sqlx::query(sql).bind(groups).bind(self.clock.now().0).fetch_all(connection)).await?;
        let read = |row: &AnyRow| -> sqlx::Result<(Group, Seen)> {
            let (reach, space) = (Reach::stored(row.try_get(0)?), Space::stored(row.try_get(1)?));
            let counted: i64 = row.try_get(4)?;
            let seen = Seen { total: row.try_get(3)?, future: counted % HELD, held: counted / HELD, oldest: row.try_get(5)? };
            Ok((Group { reach, space, name: row.try_get(2)? }, seen))
        };
        rows.iter().map(read).collect::<sqlx::Result<_>>().map_err(|error| ReadError::Failed(Some(error)))
    }
}

impl Store {
    /// What a group holds now. Exact while no more than 20,000 of its rows are held or put off.
    pub async fn standing(&self, reach: &Reach, space: &Space, group: &str) -> Result<Standing, ReadError> {
        if !text_fits(group) {
            return Ok(Standing::default());
        }
        let asked = Group { reach: reach.clone(), space: space.clone(), name: group.to_owned() };
        let Some(Seen { total, future, held, oldest }) = self.inner.standings.ask(asked).await? else {
            return Ok(Standing::default());
        };
        let oldest = oldest.map(Instant);
        if future < COUNTED_MAX {
            let ready = (total - future).max(0) as u64;
            return Ok(Standing { ready, held: held as u64, waiting: (future - held) as u64, oldest });
        }
        // Too many to count from this end: count the other, and let the sample say how many of the rest are held.
        let sql = self.inner.database.dialect.sql(
            "SELECT count(*) FROM (SELECT d.due_at FROM documents d WHERE d.reach = $1 AND d.space = $2 AND d.lease_group = $3 \
             AND d.due_at <= $4 LIMIT 20000) f",
        );
        let query = sqlx::query(sql).bind(reach.as_str().to_owned()).bind(space.as_str().to_owned()).bind(group.to_owned());
        let row = reading(query.bind(self.now().0).fetch_one(&self.inner.readers)).await?;
        let ready = row.try_get::<i64, _>(0).map_err(|error| ReadError::Failed(Some(error)))?;
        let future = (total - ready).max(future);
        let held = held * future / COUNTED_MAX;
        Ok(Standing { ready: ready as u64, held: held as u64, waiting: (future - held) as u64, oldest })
    }

    /// When the next row of a group is due; across all reaches for a space of the host where `reach` is `None`.
    pub async fn next_due(&self, reach: Option<&Reach>, space: &Space, group: &str) -> Result<Option<Instant>, ReadError> {
        if !text_fits(group) {
            return Ok(None);
        }
        let dialect = self.inner.database.dialect;
        let query = match reach {
            Some(reach) => {
                let sql =
                    "SELECT due_at FROM documents WHERE reach = $1 AND space = $2 AND lease_group = $3 ORDER BY due_at LIMIT 1";
                sqlx::query(dialect.sql(sql)).bind(reach.as_str().to_owned())
            }
            None => sqlx::query(dialect.sql(
                "SELECT due_at FROM documents WHERE space = $1 AND lease_group = $2 AND lease_group IS NOT NULL \
                 AND space >= 'host.' AND space < 'host/' ORDER BY due_at LIMIT 1",
            )),
        };
        let query = query.bind(space.as_str().to_owned()).bind(group.to_owned());
        let row = reading(query.fetch_optional(&self.inner.readers)).await?;
        let due: Option<i64> = row.map(|row| row.try_get(0)).transpose().map_err(|error| ReadError::Failed(Some(error)))?;
        Ok(due.map(Instant))
    }
}

//! What groups of leased rows hold.
//!
//! A group may hold millions of rows, so they are not counted one by one: the committer keeps each
//! group's size, and only the part of the index that lies in the future (held or put off), usually
//! short, is counted, up to a bound.

use std::collections::BTreeSet;
use std::sync::Arc;

use charter_kernel::apply::text_fits;
use charter_kernel::time::{Clock, Instant};
use charter_kernel::unit::{Reach, Space};

use crate::connection::reading;
use crate::dialect::Dialect;
use crate::error::ReadError;
use crate::query::Standing;
use crate::reader::Questions;
use crate::sql::{Query, Row, query};
use crate::store::Store;

/// Rows of the future that are counted one by one; beyond it held and put-off rows are told apart
/// by this sample. Stands as a number in the statements.
const COUNTED_MAX: i64 = 20_000;
/// What a held row counts beside the one that every row counts, so that one pass gives both
/// numbers.
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

/// The size, then the future part: one statement, one moment.
const STANDING: &str = "SELECT {reach}, {space}, {group}, \
     CAST(COALESCE((SELECT g.total FROM group_sizes g WHERE g.reach = {reach} AND g.space = {space} \
       AND g.lease_group = {group}), 0) AS BIGINT), \
     CAST(COALESCE((SELECT SUM(f.counted) FROM (SELECT CASE WHEN d.lease_token IS NULL THEN 1 ELSE 1000001 END AS counted \
       FROM documents d WHERE d.reach = {reach} AND d.space = {space} AND d.lease_group = {group} \
       AND d.due_at > {now} ORDER BY d.due_at LIMIT 20000) f), 0) AS BIGINT), \
     (SELECT o.created_at FROM documents o WHERE o.reach = {reach} AND o.space = {space} \
       AND o.lease_group = {group} AND (o.due_at <= {now} OR o.lease_token IS NULL) ORDER BY o.created_at LIMIT 1)";

/// The statement with the places of its parameters, or columns, filled in.
fn standing(places: [&str; 4]) -> String {
    let names = ["{reach}", "{space}", "{group}", "{now}"];
    names
        .iter()
        .zip(places)
        .fold(STANDING.to_owned(), |text, (name, place)| text.replace(name, place))
}

impl Questions for Groups {
    type Asked = Group;
    type Found = Seen;

    fn one(&self, dialect: Dialect, group: &Group) -> Query {
        let places = ["CAST($1 AS TEXT)", "CAST($2 AS TEXT)", "CAST($3 AS TEXT)", "$4"];
        let sql = dialect.assembled(&[STANDING, "one"], || standing(places));
        query(sql)
            .bind(group.reach.as_str())
            .bind(group.space.as_str())
            .bind(group.name.as_str())
            .bind(self.clock.now().0)
    }

    fn all(&self, dialect: Dialect, asked: &BTreeSet<Group>) -> Query {
        let groups: Vec<_> = asked
            .iter()
            .map(|group| (group.reach.as_str(), group.space.as_str(), &group.name))
            .collect();
        let places = ["k.value->>0", "k.value->>1", "k.value->>2", "$2"];
        let sql = dialect
            .assembled(&[STANDING, "all"], || format!("{} FROM {{each:$1}} k", standing(places)));
        query(sql).bind(serde_json::to_string(&groups).unwrap_or_default()).bind(self.clock.now().0)
    }

    fn found(row: Row) -> sqlx::Result<(Group, Seen)> {
        let (reach, space) = (Reach::stored(row.try_get(0)?), Space::stored(row.try_get(1)?));
        let counted: i64 = row.try_get(4)?;
        let seen = Seen {
            total: row.try_get(3)?,
            future: counted % HELD,
            held: counted / HELD,
            oldest: row.try_get(5)?,
        };
        Ok((Group { reach, space, name: row.try_get(2)? }, seen))
    }
}

impl Store {
    /// What a group holds now. Exact while no more than 20,000 of its rows are held or put off.
    pub async fn standing(
        &self,
        reach: &Reach,
        space: &Space,
        group: &str,
    ) -> Result<Standing, ReadError> {
        if !text_fits(group) {
            return Ok(Standing::default());
        }
        let asked = Group { reach: reach.clone(), space: space.clone(), name: group.to_owned() };
        let Some(Seen { total, future, held, oldest }) = self.inner.standings.ask(asked).await?
        else {
            return Ok(Standing::default());
        };
        let oldest = oldest.map(Instant);
        if future < COUNTED_MAX {
            let ready = (total - future).max(0) as u64;
            return Ok(Standing {
                ready,
                held: held as u64,
                waiting: (future - held) as u64,
                oldest,
            });
        }
        // Too many to count from this end: count the other, and let the sample say how many of the
        // rest are held.
        let sql = self.inner.database.dialect.sql(
            "SELECT count(*) FROM (SELECT d.due_at FROM documents d WHERE d.reach = $1 AND d.space = $2 AND d.lease_group = $3 \
             AND d.due_at <= $4 LIMIT 20000) f",
        );
        let query = query(sql).bind(reach.as_str()).bind(space.as_str()).bind(group.to_owned());
        let row = reading(query.bind(self.now().0).fetch_one(&self.inner.readers)).await?;
        let ready = row.try_get::<i64>(0).map_err(|error| ReadError::Failed(Some(error)))?;
        let future = (total - ready).max(future);
        let held = held * future / COUNTED_MAX;
        Ok(Standing {
            ready: ready as u64,
            held: held as u64,
            waiting: (future - held) as u64,
            oldest,
        })
    }

    /// Rows of a group in a space of the host, of whatever reach, held or not. Counts to 20,000 and
    /// no further.
    pub async fn in_group(&self, space: &Space, group: &str) -> Result<u64, ReadError> {
        let sql = self.inner.database.dialect.sql(
            "SELECT count(*) FROM (SELECT d.due_at FROM documents d WHERE d.space = $1 AND d.lease_group = $2 \
             AND d.lease_group IS NOT NULL AND d.space >= 'host.' AND d.space < 'host/' LIMIT 20000) f",
        );
        let query = query(sql).bind(space.as_str()).bind(group.to_owned());
        let row = reading(query.fetch_one(&self.inner.readers)).await?;
        let counted: i64 = row.try_get(0).map_err(|error| ReadError::Failed(Some(error)))?;
        Ok(counted as u64)
    }

    /// Groups of a space of the host, of whatever reach, whose next row is due; and when the next
    /// one of the others is.
    pub async fn groups_due(
        &self,
        space: &Space,
        limit: u32,
    ) -> Result<(Vec<String>, Option<Instant>), ReadError> {
        let sql = self.inner.database.dialect.sql(
            "WITH RECURSIVE g(name) AS ( \
               SELECT MIN(lease_group) FROM documents WHERE space = $1 AND lease_group IS NOT NULL \
                 AND space >= 'host.' AND space < 'host/' \
               UNION ALL SELECT (SELECT MIN(d.lease_group) FROM documents d WHERE d.space = $1 AND d.lease_group > g.name \
                 AND d.lease_group IS NOT NULL AND d.space >= 'host.' AND d.space < 'host/') FROM g WHERE g.name IS NOT NULL) \
             SELECT g.name, (SELECT MIN(d.due_at) FROM documents d WHERE d.space = $1 AND d.lease_group = g.name \
               AND d.lease_group IS NOT NULL AND d.space >= 'host.' AND d.space < 'host/') AS due \
             FROM g WHERE g.name IS NOT NULL ORDER BY due LIMIT $2 + 0",
        );
        let rows = reading(
            query(sql).bind(space.as_str()).bind(i64::from(limit)).fetch_all(&self.inner.readers),
        )
        .await?;
        let read = |row: &Row| -> sqlx::Result<(String, Instant)> {
            Ok((row.try_get(0)?, Instant(row.try_get(1)?)))
        };
        let rows: Vec<_> = rows
            .iter()
            .map(read)
            .collect::<sqlx::Result<_>>()
            .map_err(|error| ReadError::Failed(Some(error)))?;
        let now = self.now();
        let next = rows.iter().map(|(_, due)| *due).find(|due| *due > now);
        Ok((rows.into_iter().filter(|(_, due)| *due <= now).map(|(name, _)| name).collect(), next))
    }

    /// When the next row of a group is due; across all reaches for a space of the host where
    /// `reach` is `None`.
    pub async fn next_due(
        &self,
        reach: Option<&Reach>,
        space: &Space,
        group: &str,
    ) -> Result<Option<Instant>, ReadError> {
        if !text_fits(group) {
            return Ok(None);
        }
        let dialect = self.inner.database.dialect;
        let query = match reach {
            Some(reach) => {
                let sql =
                    "SELECT due_at FROM documents WHERE reach = $1 AND space = $2 AND lease_group = $3 ORDER BY due_at LIMIT 1";
                query(dialect.sql(sql)).bind(reach.as_str())
            }
            None => query(dialect.sql(
                "SELECT due_at FROM documents WHERE space = $1 AND lease_group = $2 AND lease_group IS NOT NULL \
                 AND space >= 'host.' AND space < 'host/' ORDER BY due_at LIMIT 1",
            )),
        };
        let query = query.bind(space.as_str()).bind(group.to_owned());
        let row = reading(query.fetch_optional(&self.inner.readers)).await?;
        let due: Option<i64> = row
            .map(|row| row.try_get(0))
            .transpose()
            .map_err(|error| ReadError::Failed(Some(error)))?;
        Ok(due.map(Instant))
    }
}

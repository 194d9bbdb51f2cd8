//! The numbers of groups of leased rows, and when the next of their rows is due, and whose it is.

use charter_kernel::apply::text_fits;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Reach, Space};

use super::Store;
use crate::connection::reading;
use crate::error::ReadError;
use crate::query::{GroupDue, GroupStanding, GroupsDue};
use crate::sql::{Row, query};
use crate::standing::{COUNTED_MAX, Group, Seen};

/// Names the groups of a space of the host (`$1`) behind one (`$2`) and before another (`$4`) as `g`, so
/// many of them (`$3`), each by one step through the index.
macro_rules! groups {
    () => {
        "WITH RECURSIVE g(name, n) AS ( \
           SELECT MIN(lease_group), CAST(1 AS BIGINT) FROM documents WHERE space = $1 AND lease_group > $2 AND lease_group < $4 \
             AND lease_group IS NOT NULL AND space >= 'host.' AND space < 'host/' \
           UNION ALL SELECT (SELECT MIN(d.lease_group) FROM documents d WHERE d.space = $1 AND d.lease_group > g.name \
             AND d.lease_group < $4 AND d.lease_group IS NOT NULL AND d.space >= 'host.' AND d.space < 'host/'), g.n + 1 FROM g \
             WHERE g.name IS NOT NULL AND g.n < $3) "
    };
}
pub(super) use groups;

/// Behind all names.
pub(super) const END: &str = "\u{10FFFF}";

impl Store {
    /// The numbers of a group now. Exact while no more than 20,000 of its rows are held or put off.
    pub async fn standing(
        &self,
        reach: &Reach,
        space: &Space,
        group: &str,
    ) -> Result<GroupStanding, ReadError> {
        if !text_fits(group) {
            return Ok(GroupStanding::default());
        }
        let asked = Group { reach: reach.clone(), space: space.clone(), name: group.to_owned() };
        let Some(Seen { total, future, held, oldest }) =
            self.inner.standings.ask(asked, &self.organization).await?
        else {
            return Ok(GroupStanding::default());
        };
        let oldest = oldest.map(Instant);
        if future < COUNTED_MAX {
            let ready = (total - future).max(0) as u64;
            return Ok(GroupStanding {
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
        let row = reading(query.bind(self.now().0).fetch_one(self.readers())).await?;
        let ready = row.try_get::<i64>(0).map_err(|error| ReadError::Failed(Some(error)))?;
        let future = (total - ready).max(future);
        let held = held * future / COUNTED_MAX;
        Ok(GroupStanding {
            ready: ready as u64,
            held: held as u64,
            waiting: (future - held) as u64,
            oldest,
        })
    }

    /// How many rows of a space of the host lie in the lease groups whose names begin so; counts to
    /// `max` and no further.
    pub async fn in_groups(&self, space: &Space, prefix: &str, max: u64) -> Result<u64, ReadError> {
        let sql = self.inner.database.dialect.sql(
            "SELECT count(*) FROM (SELECT d.due_at FROM documents d WHERE d.space = $1 AND d.lease_group >= $2 AND d.lease_group < $3 \
             AND d.lease_group IS NOT NULL AND d.space >= 'host.' AND d.space < 'host/' LIMIT $4 + 0) f",
        );
        let query = query(sql).bind(space.as_str()).bind(prefix.to_owned());
        let query = query.bind(format!("{prefix}{}", char::MAX));
        let query = query.bind(i64::try_from(max).unwrap_or(i64::MAX));
        let row = reading(query.fetch_one(self.readers())).await?;
        let counted: i64 = row.try_get(0).map_err(|error| ReadError::Failed(Some(error)))?;
        Ok(counted as u64)
    }

    /// The same by group.
    pub async fn rows_by_group(
        &self,
        space: &Space,
        prefix: &str,
        max: u64,
    ) -> Result<Vec<(String, u64)>, ReadError> {
        let sql = self.inner.database.dialect.sql(
            "SELECT f.name, count(*) FROM (SELECT d.lease_group AS name FROM documents d WHERE d.space = $1 AND d.lease_group >= $2 \
             AND d.lease_group < $3 AND d.lease_group IS NOT NULL AND d.space >= 'host.' AND d.space < 'host/' \
             ORDER BY d.lease_group LIMIT $4 + 0) f GROUP BY f.name",
        );
        let query = query(sql).bind(space.as_str()).bind(prefix.to_owned());
        let query = query.bind(format!("{prefix}{}", char::MAX));
        let query = query.bind(i64::try_from(max).unwrap_or(i64::MAX));
        let rows = reading(query.fetch_all(self.readers())).await?;
        let read = |row: &Row| -> sqlx::Result<(String, u64)> {
            Ok((row.try_get(0)?, row.try_get::<i64>(1)?.unsigned_abs()))
        };
        let rows = rows.iter().map(read).collect::<sqlx::Result<_>>();
        rows.map_err(|error| ReadError::Failed(Some(error)))
    }

    /// A page of the groups of a space of the host, of whatever reach, by their names: so many
    /// behind this one, and before the other if there is one. No name is empty, so that all are behind the
    /// empty one.
    pub async fn groups_due(
        &self,
        space: &Space,
        (after, before): (&str, Option<&str>),
        limit: u32,
    ) -> Result<GroupsDue, ReadError> {
        let sql = self.inner.database.dialect.sql(concat!(
            groups!(),
            "SELECT s.name, s.due, CASE WHEN s.due <= $5 THEN (SELECT d.reach FROM documents d WHERE d.space = $1 \
               AND d.lease_group = s.name AND d.lease_group IS NOT NULL AND d.space >= 'host.' AND d.space < 'host/' \
               ORDER BY d.due_at LIMIT 1) END \
             FROM (SELECT g.name AS name, (SELECT MIN(d.due_at) FROM documents d WHERE d.space = $1 AND d.lease_group = g.name \
               AND d.lease_group IS NOT NULL AND d.space >= 'host.' AND d.space < 'host/') AS due \
               FROM g WHERE g.name IS NOT NULL) s"
        ));
        let now = self.now();
        let query = query(sql).bind(space.as_str()).bind(after.to_owned());
        let query = query.bind(i64::from(limit)).bind(before.unwrap_or(END).to_owned()).bind(now.0);
        let rows = reading(query.fetch_all(self.readers())).await?;
        let read = |row: &Row| -> sqlx::Result<(String, Option<i64>, Option<String>)> {
            Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))
        };
        let mut rows: Vec<_> = rows
            .iter()
            .map(read)
            .collect::<sqlx::Result<_>>()
            .map_err(|error| ReadError::Failed(Some(error)))?;
        rows.sort();
        let is_full = rows.len() >= limit as usize;
        let mut page = GroupsDue {
            last: rows.last().filter(|_| is_full).map(|(name, ..)| name.clone()),
            ..GroupsDue::default()
        };
        for (name, due, reach) in rows {
            match (due.map(Instant), reach.map(Reach::from_store)) {
                (Some(due), Some(reach)) => page.due.push(GroupDue { name, due, reach }),
                (Some(due), None) if due > now => {
                    page.next = Some(page.next.map_or(due, |next| next.min(due)));
                }
                // Its rows went while the page was read.
                _ => {}
            }
        }
        Ok(page)
    }

    /// When the next row of a group is due.
    pub async fn next_due(
        &self,
        reach: &Reach,
        space: &Space,
        group: &str,
    ) -> Result<Option<Instant>, ReadError> {
        if !text_fits(group) {
            return Ok(None);
        }
        let sql = self.inner.database.dialect.sql(
            "SELECT due_at FROM documents WHERE reach = $1 AND space = $2 AND lease_group = $3 ORDER BY due_at LIMIT 1",
        );
        let query = query(sql).bind(reach.as_str()).bind(space.as_str()).bind(group.to_owned());
        let row = reading(query.fetch_optional(self.readers())).await?;
        let due: Option<i64> = row
            .map(|row| row.try_get(0))
            .transpose()
            .map_err(|error| ReadError::Failed(Some(error)))?;
        Ok(due.map(Instant))
    }
}

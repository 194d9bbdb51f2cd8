//! The numbers of groups of leased rows, and when the next of their rows is due, and whose it is.

use charter_kernel::apply::text_fits;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Reach, Space};

use super::Store;
use crate::connection::reading;
use crate::error::ReadError;
use crate::query::GroupStanding;
use crate::sql::{Row, query};
use crate::standing::{COUNTED_MAX, Group, Seen};

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
            query(sql).bind(space.as_str()).bind(i64::from(limit)).fetch_all(self.readers()),
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

    /// The reach of the next row of a group in a space of the host, held or not.
    pub async fn next_reach(&self, space: &Space, group: &str) -> Result<Option<Reach>, ReadError> {
        let sql = self.inner.database.dialect.sql(
            "SELECT reach FROM documents WHERE space = $1 AND lease_group = $2 AND lease_group IS NOT NULL \
             AND space >= 'host.' AND space < 'host/' ORDER BY due_at LIMIT 1",
        );
        let query = query(sql).bind(space.as_str()).bind(group.to_owned());
        let row = reading(query.fetch_optional(self.readers())).await?;
        let reach: Option<String> = row
            .map(|row| row.try_get(0))
            .transpose()
            .map_err(|error| ReadError::Failed(Some(error)))?;
        Ok(reach.map(Reach::from_store))
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

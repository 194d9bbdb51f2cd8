//! What groups of leased rows hold.
//!
//! A group may hold millions of rows, so they are not counted one by one: the committer keeps each group's size, and only the
//! part of the index that lies in the future (held or put off), usually short, is counted, up to a bound.

use charter_kernel::apply::text_fits;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Reach, Space};
use sqlx::Row;

use crate::connection::reading;
use crate::error::ReadError;
use crate::query::Standing;
use crate::store::Store;

/// Rows of the future that are counted one by one; beyond it held and put-off rows are told apart by this sample.
const COUNTED_MAX: i64 = 20_000;

impl Store {
    /// What a group holds now. Exact while no more than 20,000 of its rows are held or put off.
    pub async fn standing(&self, reach: &Reach, space: &Space, group: &str) -> Result<Standing, ReadError> {
        if !text_fits(group) {
            return Ok(Standing::default());
        }
        let now = self.now();
        // The size, then the future part: one statement, one moment.
        let sql = self.inner.database.dialect.sql(
            "SELECT CAST(COALESCE((SELECT g.total FROM group_sizes g WHERE g.reach = $1 AND g.space = $2 AND g.lease_group = $3), 0) \
               AS BIGINT), CAST(COALESCE(SUM(f.held), 0) AS BIGINT), count(*), \
             (SELECT o.created_at FROM documents o WHERE o.reach = $1 AND o.space = $2 AND o.lease_group = $3 \
               AND (o.due_at <= $4 OR o.lease_token IS NULL) ORDER BY o.created_at LIMIT 1) \
             FROM (SELECT CASE WHEN d.lease_token IS NULL THEN 0 ELSE 1 END AS held FROM documents d \
               WHERE d.reach = $1 AND d.space = $2 AND d.lease_group = $3 AND d.due_at > $4 ORDER BY d.due_at LIMIT $5) f",
        );
        let query = sqlx::query(sql).bind(reach.as_str().to_owned()).bind(space.as_str().to_owned()).bind(group.to_owned());
        let row = reading(query.bind(now.0).bind(COUNTED_MAX).fetch_one(&self.inner.readers)).await?;
        let failed = |error| ReadError::Failed(Some(error));
        let number = |n: usize| row.try_get::<i64, _>(n).map_err(failed);
        let (total, held, future) = (number(0)?, number(1)?, number(2)?);
        let oldest = row.try_get::<Option<i64>, _>(3).map_err(failed)?.map(Instant);
        if future < COUNTED_MAX {
            let ready = (total - future).max(0) as u64;
            return Ok(Standing { ready, held: held as u64, waiting: (future - held) as u64, oldest });
        }
        // Too many to count from this end: count the other, and let the sample say how many of the rest are held.
        let sql = self.inner.database.dialect.sql(
            "SELECT count(*) FROM (SELECT d.due_at FROM documents d WHERE d.reach = $1 AND d.space = $2 AND d.lease_group = $3 \
             AND d.due_at <= $4 LIMIT $5) f",
        );
        let query = sqlx::query(sql).bind(reach.as_str().to_owned()).bind(space.as_str().to_owned()).bind(group.to_owned());
        let row = reading(query.bind(now.0).bind(COUNTED_MAX).fetch_one(&self.inner.readers)).await?;
        let ready = row.try_get::<i64, _>(0).map_err(failed)?;
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

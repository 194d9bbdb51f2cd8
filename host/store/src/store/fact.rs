//! Facts that have their numbers: events and audit rows. Those without are shown to nobody.

use std::time::Duration;

use charter_kernel::apply::facts_log;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Fact, FactKind, Reach, Space};
use sqlx::SqlStr;

use super::Store;
use crate::connection::reading;
use crate::error::ReadError;
use crate::fact::kind_name;
use crate::query::{PAGE_ROWS_MAX, SequencedFact};
use crate::sql::{Row, query};
use crate::wake::Changed;

/// Audit rows that are read in place at most.
const IN_PLACE_ROWS: u32 = 200;
/// How long facts may stay without a number before who waits for it gives up.
const UNNUMBERED_MAX: Duration = Duration::from_secs(5);
/// Between looks at them, should nobody tell.
const UNNUMBERED_LOOK: Duration = Duration::from_millis(50);

impl Store {
    /// An organization's facts of a kind after a sequence, oldest first: fewer than asked for where
    /// their bytes fill a page.
    pub async fn facts(
        &self,
        kind: FactKind,
        organization: &str,
        after: u64,
        limit: u32,
    ) -> Result<Vec<SequencedFact>, ReadError> {
        let sql = self.inner.database.dialect.sql(
            "{within:sequence:name,body,private}SELECT sequence, id, at, name, body, private, user_id FROM facts \
             WHERE organization = $1 AND kind = $2 AND sequence > $3 \
             AND sequence IS NOT NULL ORDER BY sequence LIMIT $4 + 0",
        );
        self.list(sql, kind, organization, i64::try_from(after).unwrap_or(i64::MAX), limit).await
    }

    /// An organization's facts of a kind before a sequence, or of now, newest first: fewer than
    /// asked for where their bytes fill a page.
    pub async fn facts_before(
        &self,
        kind: FactKind,
        organization: &str,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<SequencedFact>, ReadError> {
        let sql = self.inner.database.dialect.sql(
            "{within:sequence DESC:name,body,private}SELECT sequence, id, at, name, body, private, user_id FROM facts \
             WHERE organization = $1 AND kind = $2 AND sequence < $3 \
             AND sequence IS NOT NULL ORDER BY sequence DESC LIMIT $4 + 0",
        );
        let before = before.and_then(|before| i64::try_from(before).ok()).unwrap_or(i64::MAX);
        self.list(sql, kind, organization, before, limit).await
    }

    async fn list(
        &self,
        sql: SqlStr,
        kind: FactKind,
        organization: &str,
        bound: i64,
        limit: u32,
    ) -> Result<Vec<SequencedFact>, ReadError> {
        let query = query(sql).bind(organization.to_owned()).bind(kind_name(kind)).bind(bound);
        let query = query.bind(i64::from(limit.min(PAGE_ROWS_MAX)));
        // A checkpoint asks for as many as there are; whoever follows events, for as many as fit.
        let is_long = kind == FactKind::Audit && limit > IN_PLACE_ROWS;
        let query = if is_long { query.long() } else { query };
        let rows = reading(query.fetch_page(self.readers_for(organization))).await?.rows;
        let fact = |row: &Row| -> sqlx::Result<SequencedFact> {
            let (id, at, organization) =
                (row.try_get(1)?, Instant(row.try_get(2)?), organization.to_owned());
            let (name, body, private, user) =
                (row.try_get(3)?, row.try_get(4)?, row.try_get(5)?, row.try_get(6)?);
            let fact = Fact { id, kind, organization, at, name, body, private, user };
            Ok(SequencedFact { sequence: row.try_get::<i64>(0)? as u64, fact })
        };
        rows.iter()
            .map(fact)
            .collect::<sqlx::Result<_>>()
            .map_err(|error| ReadError::Failed(Some(error)))
    }

    /// The organizations that have audit rows committed after an ordinal, and how many each, among
    /// the next `limit` facts; and the last ordinal looked at.
    pub async fn count_audit_rows_since(
        &self,
        ordinal: u64,
        limit: u32,
    ) -> Result<(Vec<(String, u64)>, u64), ReadError> {
        let sql = self.inner.database.dialect.sql(
            "SELECT f.organization, CAST(COUNT(CASE WHEN f.kind = 'audit' THEN 1 END) AS BIGINT), CAST(MAX(f.ordinal) AS BIGINT) \
             FROM (SELECT organization, kind, ordinal FROM facts WHERE ordinal > $1 ORDER BY ordinal LIMIT $2 + 0) f \
             GROUP BY f.organization",
        );
        let query =
            query(sql).bind(i64::try_from(ordinal).unwrap_or(i64::MAX)).bind(i64::from(limit));
        let rows = reading(query.fetch_all(self.readers())).await?;
        let found = |row: &Row| -> sqlx::Result<(String, i64, i64)> {
            Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))
        };
        let rows: Vec<_> = rows
            .iter()
            .map(found)
            .collect::<sqlx::Result<_>>()
            .map_err(|error| ReadError::Failed(Some(error)))?;
        let last = rows.iter().map(|(_, _, last)| *last as u64).max().unwrap_or(ordinal);
        let told = rows
            .into_iter()
            .filter(|(_, count, _)| *count > 0)
            .map(|(organization, count, _)| (organization, count as u64));
        Ok((told.collect(), last))
    }

    /// Reaches whose row of this id in a space of the host says, in the indexed field, that it has
    /// read fewer events than there are.
    pub async fn behind(
        &self,
        space: &Space,
        id: &str,
        field: &str,
        limit: u32,
    ) -> Result<Vec<Reach>, ReadError> {
        let sql = self.inner.database.dialect.sql(
            "SELECT i.reach FROM document_index i JOIN logs l ON l.reach = i.reach AND l.log = $4 \
             WHERE i.space = $1 AND i.field = $3 AND i.id = $2 AND i.space >= 'host.' AND i.space < 'host/' \
             AND CAST(i.value AS BIGINT) < l.head LIMIT $5 + 0",
        );
        let log = facts_log("", FactKind::Event).log;
        let query = query(sql)
            .bind(space.as_str())
            .bind(id.to_owned())
            .bind(field.to_owned())
            .bind(log)
            .bind(i64::from(limit));
        let rows = reading(query.fetch_all(self.readers())).await?;
        let reach = |row: &Row| -> sqlx::Result<Reach> { Ok(Reach::from_store(row.try_get(0)?)) };
        rows.iter()
            .map(reach)
            .collect::<sqlx::Result<_>>()
            .map_err(|error| ReadError::Failed(Some(error)))
    }

    /// Resolves at the first event of any organization that this process commits from now on.
    pub async fn next_event(&self) {
        self.inner.wakes.next_event().await;
    }

    /// The last sequence given to an organization's facts of a kind.
    pub async fn facts_head(&self, kind: FactKind, organization: &str) -> Result<u64, ReadError> {
        Ok(self.log_head(&facts_log(organization, kind)).await?.head)
    }

    /// The number of the last fact that was committed before this was called. One that has no
    /// number yet is waited for: it would be taken for a later one.
    ///
    /// # Errors
    /// When the database cannot be asked, or facts are not numbered in time.
    pub async fn facts_head_settled(
        &self,
        kind: FactKind,
        organization: &str,
    ) -> Result<u64, ReadError> {
        if self.is_shared() {
            let mut changed = self.facts_changes(kind, organization);
            let settled = async {
                let Some(last) = self.last_unnumbered(kind, organization, i64::MAX).await? else {
                    return Ok(());
                };
                while self.last_unnumbered(kind, organization, last).await?.is_some() {
                    let _ = tokio::time::timeout(UNNUMBERED_LOOK, changed.wait()).await;
                }
                Ok(())
            };
            tokio::time::timeout(UNNUMBERED_MAX, settled)
                .await
                .unwrap_or(Err(ReadError::Unavailable(None)))?;
        }
        self.facts_head(kind, organization).await
    }

    /// The last fact up to an ordinal that has no number yet.
    async fn last_unnumbered(
        &self,
        kind: FactKind,
        organization: &str,
        up_to: i64,
    ) -> Result<Option<i64>, ReadError> {
        let sql =
            self.inner.database.dialect.sql(
                "SELECT MAX(ordinal) FROM facts WHERE organization = $1 AND kind = $2 AND sequence IS NULL AND ordinal <= $3",
            );
        let query = query(sql).bind(organization.to_owned()).bind(kind_name(kind)).bind(up_to);
        let row = reading(query.fetch_one(self.readers())).await?;
        row.try_get(0).map_err(|error| ReadError::Failed(Some(error)))
    }

    /// Subscribes to an organization's new facts of a kind.
    pub fn facts_changes(&self, kind: FactKind, organization: &str) -> Changed {
        self.log_changes(&facts_log(organization, kind))
    }
}

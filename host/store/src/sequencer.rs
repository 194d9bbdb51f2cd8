//! Numbers facts right behind their commit, in bulk. PostgreSQL only: on SQLite the batch does it.
//!
//! One sequencer at a time in the deployment: the lock that says so belongs to the very transaction
//! that gives the numbers, so a paused one can never number after another has taken over. Batches
//! do not wait for it, nor it for them.

use std::sync::Arc;
use std::time::Duration;

use charter_kernel::unit::{LogKey, Reach};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::connection::Database;
use crate::sql::{Connection, query, run};
use crate::wake::Wakes;

/// Between looks for facts that another replica committed and did not live to number.
const LOOK_MS: u64 = 500;
/// Between attempts that follow each other, or while another sequencer is at it: what comes
/// meanwhile is numbered at once, and costs the disk one sync instead of one a batch.
const PAUSE_MS: u64 = 20;
/// Facts of one transaction.
const BATCH_MAX: i64 = 5_000;
/// The key of the advisory lock: "facts" as bytes.
const LOCK: &str = "SELECT pg_try_advisory_xact_lock(439804355699)";

/// Numbers what has none: heads are counted up per organization and kind, in the order in which
/// facts were committed.
const NUMBER: &str = "WITH pending AS MATERIALIZED ( \
       SELECT f.ordinal, f.organization, f.kind, row_number() OVER (PARTITION BY f.organization, f.kind ORDER BY f.ordinal) AS n \
       FROM (SELECT ordinal, organization, kind FROM facts WHERE sequence IS NULL ORDER BY ordinal LIMIT $1 + 0) f), \
     more AS MATERIALIZED (SELECT 'o/' || organization AS reach, 'host.facts.' || kind AS log, count(*) AS n \
       FROM pending GROUP BY organization, kind ORDER BY 1, 2), \
     heads AS (INSERT INTO logs (reach, log, head, was, closed) SELECT reach, log, n, 0, 0 FROM more \
       ON CONFLICT (reach, log) DO UPDATE SET was = logs.head, head = logs.head + excluded.head RETURNING reach, log, was), \
     given AS (UPDATE facts SET sequence = h.was + p.n FROM pending p, heads h \
       WHERE facts.ordinal = p.ordinal AND h.reach = 'o/' || p.organization AND h.log = 'host.facts.' || p.kind RETURNING 1) \
     SELECT h.reach, h.log, (SELECT count(*) FROM given) FROM heads h";

pub(crate) fn start(
    database: Database,
    wakes: Arc<Wakes>,
    written: Arc<Notify>,
    closing: &CancellationToken,
) {
    tokio::spawn(closing.clone().run_until_cancelled_owned(async move {
        let mut connection: Option<Connection> = None;
        loop {
            let connected = match &mut connection {
                Some(connection) => Ok(connection),
                None => database.writer().await.map(|new| connection.insert(new)),
            };
            let numbered = match connected {
                Ok(own) => database.answer(number(own, database.dialect.begin())).await,
                Err(error) => Err(error),
            };
            match numbered {
                Ok(Some((given, logs))) => {
                    wakes.wake(&[], &logs);
                    if given >= BATCH_MAX {
                        continue;
                    }
                    if given > 0 {
                        tokio::time::sleep(Duration::from_millis(PAUSE_MS)).await;
                    }
                }
                Ok(None) => {
                    // The other one may have looked before our facts were there.
                    tokio::time::sleep(Duration::from_millis(PAUSE_MS)).await;
                    continue;
                }
                Err(error) => {
                    connection = None;
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "facts could not be numbered; trying again"
                    );
                }
            }
            let _ = tokio::time::timeout(Duration::from_millis(LOOK_MS), written.notified()).await;
        }
    }));
}

/// Numbers what there is, unless another sequencer is at it. Says how many facts, and whose logs
/// grew.
async fn number(
    connection: &mut Connection,
    begin: &'static str,
) -> sqlx::Result<Option<(i64, Vec<LogKey>)>> {
    run(&mut *connection, begin).await?;
    let locked: bool = query(LOCK).fetch_one(&mut *connection).await?.try_get(0)?;
    let mut logs = Vec::new();
    let mut given = 0;
    if locked {
        for row in query(NUMBER).bind(BATCH_MAX).fetch_all(&mut *connection).await? {
            logs.push(LogKey { reach: Reach::from_store(row.try_get(0)?), log: row.try_get(1)? });
            given = row.try_get(2)?;
        }
    }
    run(connection, "COMMIT").await?;
    Ok(locked.then_some((given, logs)))
}

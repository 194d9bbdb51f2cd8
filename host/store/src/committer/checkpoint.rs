//! SQLite's checkpoints, on a connection and a thread of their own: no batch waits for the database
//! file.

use std::path::PathBuf;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::connection::Database;
use crate::sql::{Connection, query, run};

/// Between looks at the log.
const LOOK_MS: u64 = 250;
/// Bytes of the log above which it is written back.
const LOG_BYTES: u64 = 4 * 1024 * 1024;
/// Pages in use of the log above which it is also begun anew: 16 MiB.
const LOG_PAGES_LONG: i64 = 4_096;
/// Bytes of the log above which it is also cut, however long that takes: readers have kept it from
/// being begun anew for long.
const LOG_BYTES_MAX: u64 = 128 * 1024 * 1024;

pub(super) fn start(
    database: &Database,
    file: PathBuf,
    closing: CancellationToken,
) -> std::io::Result<()> {
    let mut log = file.into_os_string();
    log.push("-wal");
    let log = PathBuf::from(log);
    let opened = database.clone();
    let looking = closing.run_until_cancelled_owned(async move {
        let mut connection: Option<Connection> = None;
        let mut seen = None;
        loop {
            tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
            let Ok(found) = std::fs::metadata(&log) else { continue };
            let now = (found.len(), found.modified().ok());
            if found.len() < LOG_BYTES || seen == Some(now) {
                continue;
            }
            seen = Some(now);
            let done = match &mut connection {
                Some(connection) => write_back(connection, found.len()).await,
                None => match opened.writer().await {
                    Ok(new) => write_back(connection.insert(new), found.len()).await,
                    Err(error) => Err(error),
                },
            };
            if let Err(error) = done {
                tracing::warn!(error = &error as &dyn std::error::Error, "a checkpoint failed");
                connection = None;
            }
        }
    });
    database.spawn("checkpoints", async move {
        looking.await;
    })
}

/// Writes the log back while the committer goes on. A log that has grown long is also begun anew,
/// which keeps the committer waiting for those who read from it: for some milliseconds, and the next
/// look tries again. The file keeps its size: writing over it costs less than growing it.
async fn write_back(connection: &mut Connection, bytes: u64) -> sqlx::Result<()> {
    let told = query("PRAGMA wal_checkpoint(PASSIVE)").fetch_one(&mut *connection).await?;
    let pages: i64 = told.try_get(1)?;
    let begin_anew = if bytes > LOG_BYTES_MAX {
        "PRAGMA busy_timeout = 10000; PRAGMA wal_checkpoint(TRUNCATE)"
    } else if pages > LOG_PAGES_LONG {
        "PRAGMA busy_timeout = 5; PRAGMA wal_checkpoint(RESTART)"
    } else {
        return Ok(());
    };
    run(connection, begin_anew).await
}

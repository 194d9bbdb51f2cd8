//! SQLite's checkpoints, on a connection and a thread of their own: no batch waits for the database
//! file.

use std::path::PathBuf;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use crate::connection::Database;
use crate::sql::{Connection, run};

/// Between looks at the log.
const LOOK_MS: u64 = 250;
/// Bytes of the log above which it is written back.
const LOG_BYTES: u64 = 4 * 1024 * 1024;
/// Bytes of the log above which it is also begun anew.
const LOG_BYTES_LONG: u64 = 16 * 1024 * 1024;
/// Bytes of the log above which it is also cut: readers have kept it from being begun anew for
/// long.
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

/// Writes the log back while the committer goes on; where the log has grown long, also has it begun
/// anew, for which the committer waits as long as what it has added meanwhile takes. The file keeps
/// its size: writing over it costs less than growing it.
async fn write_back(connection: &mut Connection, bytes: u64) -> sqlx::Result<()> {
    run(connection, "PRAGMA wal_checkpoint(PASSIVE)").await?;
    if bytes > LOG_BYTES_MAX {
        return run(connection, "PRAGMA wal_checkpoint(TRUNCATE)").await;
    }
    if bytes > LOG_BYTES_LONG {
        run(connection, "PRAGMA wal_checkpoint(RESTART)").await
    } else {
        Ok(())
    }
}

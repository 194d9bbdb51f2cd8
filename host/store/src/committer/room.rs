//! Room on the disk: the ballast file, and why no mutations are taken.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::Shared;
use crate::config::StoreConfig;
use crate::connection::Database;
use crate::error::{CommitError, OpenError};
use crate::sql::{query, run};

/// Between looks whether there is room again.
const LOOK_MS: u64 = 500;

#[derive(Clone, Debug, PartialEq, Eq)]
enum Mode {
    Open,
    /// No room: what settles an effect is still taken.
    Full,
    /// Nobody knows what is on the disk.
    Stopped,
    /// Nothing is to be written.
    Looking,
}

/// Whether mutations are taken.
pub(crate) struct DiskRoom {
    mode: Mutex<Mode>,
    filled: Notify,
    ballast: Option<PathBuf>,
    ballast_bytes: u64,
}

impl DiskRoom {
    /// Makes the ballast file beside the embedded database.
    pub(crate) fn open(config: &StoreConfig, database: &Database) -> Result<Self, OpenError> {
        let ballast = database.file().map(|file| file.with_extension("ballast"));
        let room = Self {
            mode: Mutex::new(Mode::Open),
            filled: Notify::new(),
            ballast,
            ballast_bytes: config.ballast_bytes,
        };
        if let Some(path) = &room.ballast
            && fill(path, config.ballast_bytes).is_err()
        {
            tracing::warn!("there is no room for the ballast file: the disk is nearly full");
        }
        Ok(room)
    }

    /// For a store that only looks: no ballast, no mutations.
    pub(crate) fn looking() -> Self {
        Self {
            mode: Mutex::new(Mode::Looking),
            filled: Notify::new(),
            ballast: None,
            ballast_bytes: 0,
        }
    }

    fn mode(&self) -> Mode {
        self.mode.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, mode: Mode) {
        *self.mode.lock().unwrap_or_else(PoisonError::into_inner) = mode;
    }

    pub(crate) fn admits(&self, settling: bool) -> Result<(), CommitError> {
        match self.mode() {
            Mode::Open => Ok(()),
            Mode::Full if settling => Ok(()),
            _ => Err(self.refusal()),
        }
    }

    /// Why no mutations are taken.
    pub(crate) fn reason(&self) -> Option<String> {
        match self.mode() {
            Mode::Open => None,
            Mode::Full => Some("the disk is full".into()),
            Mode::Stopped => {
                Some("a commit could not be written to disk; the host must be restarted".into())
            }
            Mode::Looking => Some("it was opened to be looked at".into()),
        }
    }

    pub(super) fn refusal(&self) -> CommitError {
        CommitError::ReadOnly {
            reason: self.reason().unwrap_or_else(|| "the disk was full a moment ago".into()),
        }
    }

    /// The disk is full: frees the ballast. Whether that made any difference.
    pub(super) fn full(&self) -> bool {
        let first = self.mode() == Mode::Open;
        if first {
            self.set(Mode::Full);
            if let Some(path) = &self.ballast
                && let Err(error) = std::fs::remove_file(path)
            {
                tracing::warn!(%error, "the ballast file could not be freed");
            }
            self.filled.notify_one();
        }
        first
    }

    pub(super) fn stop(&self) {
        self.set(Mode::Stopped);
    }
}

/// Looks for room while there is none, and takes mutations again once the ballast fits beside the
/// database's own growth.
pub(super) fn watch(shared: Arc<Shared>, closing: CancellationToken) {
    tokio::spawn(closing.run_until_cancelled_owned(async move {
        loop {
            if shared.room.mode() != Mode::Full {
                shared.room.filled.notified().await;
            }
            tokio::time::sleep(Duration::from_millis(LOOK_MS)).await;
            let room = &shared.room;
            let ballast =
                room.ballast.as_ref().is_none_or(|path| fill(path, room.ballast_bytes).is_ok());
            if ballast
                && shared.database.apart(grows(shared.database.clone())).await.is_ok()
                && room.mode() == Mode::Full
            {
                tracing::info!("there is room on the disk again: mutations are taken");
                room.set(Mode::Open);
            }
        }
    }));
}

/// Whether the database takes a quarter of a megabyte more; nothing of it stays.
async fn grows(database: Database) -> sqlx::Result<()> {
    let mut connection = database.writer().await?;
    run(&mut connection, database.dialect.begin()).await?;
    let probe = query("INSERT INTO blobs (digest, part, bytes) VALUES ('room', 0, $1)")
        .bind(vec![1_u8; 256 * 1024]);
    probe.execute(&mut connection).await?;
    run(&mut connection, "ROLLBACK").await?;
    Ok(())
}

/// Writes the ballast file whole, or leaves none.
fn fill(path: &Path, bytes: u64) -> std::io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    if std::fs::metadata(path).is_ok_and(|found| found.len() == bytes) {
        return Ok(());
    }
    let write = || {
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path)?;
        // Not zeros: a file system that compresses must give the space all the same.
        let chunk: Vec<u8> =
            (0..65_536_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let mut left = bytes;
        while left > 0 {
            let now = left.min(chunk.len() as u64) as usize;
            file.write_all(&chunk[..now])?;
            left -= now as u64;
        }
        file.sync_all()
    };
    write().inspect_err(|_| {
        let _ = std::fs::remove_file(path);
    })
}

//! Whether a deployment is there, and the one process that may hold an embedded one.
//!
//! The lock is advisory and goes with the process, however that ends. Only SQLite needs it: what a
//! host remembers of its own rows is not told to another process, so that a key revoked through one
//! would go on working on the other.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::Store;
use crate::config::StoreConfig;
use crate::connection::Database;
use crate::error::OpenError;

/// How often the lock is looked at, and how long between.
const LOOKS_MAX: u32 = 25;
const LOOK: Duration = Duration::from_millis(20);

/// The embedded database, held by this process alone for as long as this lives.
#[derive(Debug)]
pub struct FolderLock(Option<(File, PathBuf)>);

impl FolderLock {
    /// Gives it up, and leaves no lock file behind.
    pub(crate) fn discard(self) {
        if let Some((_file, path)) = self.0 {
            let _ = std::fs::remove_file(path);
        }
    }
}

impl Store {
    /// Holds the embedded database; a PostgreSQL database is shared, and nothing is held.
    ///
    /// # Errors
    /// [`OpenError::Held`] while another process holds it.
    pub fn hold(config: &StoreConfig) -> Result<FolderLock, OpenError> {
        let database = Database::new(config)?;
        let Some(file) = database.file() else { return Ok(FolderLock(None)) };
        database.make_folder()?;
        let path = file.with_extension("lock");
        let failed = |source| OpenError::File { path: path.display().to_string(), source };
        let opened = open_lock(&path).map_err(failed)?;
        match lock(&opened) {
            Ok(()) => Ok(FolderLock(Some((opened, path)))),
            Err(TryLockError::WouldBlock) => Err(OpenError::Held(folder_of(file))),
            Err(TryLockError::Error(error)) if error.kind() == ErrorKind::Unsupported => {
                tracing::warn!(path = %path.display(), "this file system knows no locks: see to it that one host runs here");
                Ok(FolderLock(None))
            }
            Err(TryLockError::Error(error)) => Err(failed(error)),
        }
    }

    /// Fails with [`OpenError::Absent`] unless there is a deployment, and makes none.
    ///
    /// # Errors
    /// As a start fails, where none begins on what is there, or the database cannot be asked.
    pub async fn is_there(config: &StoreConfig) -> Result<(), OpenError> {
        let database = Database::new(config)?;
        let there = database.has_file()?
            && database.file().is_none_or(|file| file.is_file())
            && crate::migrate::is_migrated(&database).await?;
        let place = || {
            database
                .file()
                .map_or_else(|| "this PostgreSQL database".into(), |file| folder_of(file))
        };
        if there { Ok(()) } else { Err(OpenError::Absent(place())) }
    }
}

/// Opens a file for the sake of its lock.
pub(super) fn open_lock(path: &Path) -> std::io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Takes the lock; waits a moment for a process that is just ending, or a child of one that is just
/// beginning, to let go of it.
fn lock(file: &File) -> Result<(), TryLockError> {
    for _ in 0..LOOKS_MAX {
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => std::thread::sleep(LOOK),
            known => return known,
        }
    }
    file.try_lock()
}

fn folder_of(file: &Path) -> String {
    match file.parent().filter(|folder| !folder.as_os_str().is_empty()) {
        Some(folder) => folder.display().to_string(),
        None => ".".into(),
    }
}

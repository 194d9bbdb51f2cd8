//! Logs.
use charter_kernel::unit::LogKey;

use crate::error::ReadError;
use crate::query::{LogEntry, LogHead};
use crate::store::Store;

impl Store {
    /// Entries of a log after a sequence, oldest first.
    pub async fn log_read(&self, _log: &LogKey, _after: u64, _limit: u32) -> Result<Vec<LogEntry>, ReadError> {
        Err(ReadError::Failed(None))
    }
    /// How far a log is.
    pub async fn log_head(&self, _log: &LogKey) -> Result<LogHead, ReadError> {
        Err(ReadError::Failed(None))
    }
}

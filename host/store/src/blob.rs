//! Component binaries by digest.
use crate::error::{CommitError, ReadError};
use crate::store::Store;

/// Bytes of the largest blob.
pub const BLOB_BYTES_MAX: usize = 64 * 1024 * 1024;

impl Store {
    /// Keeps bytes under their digest; doing it again changes nothing.
    pub async fn blob_put(&self, _digest: &str, _bytes: &[u8]) -> Result<(), CommitError> {
        Err(CommitError::Failed)
    }
    /// The bytes of a digest.
    pub async fn blob_get(&self, _digest: &str) -> Result<Option<Vec<u8>>, ReadError> {
        Err(ReadError::Failed(None))
    }
    /// Whether the bytes are here.
    pub async fn blob_exists(&self, _digest: &str) -> Result<bool, ReadError> {
        Err(ReadError::Failed(None))
    }
    /// Forgets the bytes of a digest; false where there are none.
    pub async fn blob_remove(&self, _digest: &str) -> Result<bool, CommitError> {
        Err(CommitError::Failed)
    }
}

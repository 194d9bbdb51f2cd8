//! Sweeping rows that are past their time.
use charter_kernel::unit::{Key, Space};

use crate::error::ReadError;
use crate::store::Store;

impl Store {
    /// Keys of rows of a host space, in all reaches, whose indexed field has an encoded value below `before`; lowest first.
    /// The caller removes them in units of its own.
    pub async fn expired(&self, _space: &Space, _field: &str, _before: &str, _limit: u32) -> Result<Vec<Key>, ReadError> {
        Err(ReadError::Failed(None))
    }
    /// Removes such rows, at most `limit`; says how many.
    pub async fn expire(&self, _space: &Space, _field: &str, _before: &str, _limit: u32) -> Result<u32, ReadError> {
        Err(ReadError::Failed(None))
    }
}

//! Full-text search.
use charter_kernel::unit::{Key, Reach, Row, Space};

use crate::error::ReadError;
use crate::store::Store;

impl Store {
    /// Rows whose text has all the words, best first.
    pub async fn search(&self, _reach: &Reach, _space: &Space, _text: &str, _limit: u32) -> Result<Vec<(Key, Row)>, ReadError> {
        Err(ReadError::Failed(None))
    }
}

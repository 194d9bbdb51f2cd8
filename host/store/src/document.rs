//! The table of rows.
use charter_kernel::apply::Stored;
use charter_kernel::unit::{Claim, Key, Reach, Row, Space};

use crate::error::ReadError;
use crate::store::Store;

impl Store {
    /// A committed row.
    pub async fn get(&self, key: &Key) -> Result<Option<Row>, ReadError> {
        Ok(self.stored(key).await?.map(|stored| stored.row))
    }
    pub(crate) async fn stored(&self, _key: &Key) -> Result<Option<Stored>, ReadError> {
        Err(ReadError::Failed(None))
    }
    /// Who holds a unique value or name.
    pub async fn lookup(&self, _claim: &Claim) -> Result<Option<Key>, ReadError> {
        Err(ReadError::Failed(None))
    }
    pub(crate) async fn group_keys(
        &self,
        _reach: &Reach,
        _space: &Space,
        _group: &str,
        _limit: u32,
    ) -> Result<Vec<Key>, ReadError> {
        Err(ReadError::Failed(None))
    }
}

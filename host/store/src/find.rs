//! Pages and counts.
use crate::error::ReadError;
use crate::query::{Page, Query};
use crate::store::Store;

impl Store {
    /// Rows of a space.
    pub async fn find(&self, query: &Query) -> Result<Page, ReadError> {
        Ok(self.find_at(query).await?.0)
    }
    /// How many rows match.
    pub async fn count(&self, query: &Query) -> Result<u64, ReadError> {
        Ok(self.count_at(query).await?.0)
    }
    pub(crate) async fn find_at(&self, _query: &Query) -> Result<(Page, u64), ReadError> {
        Err(ReadError::Failed(None))
    }
    pub(crate) async fn count_at(&self, _query: &Query) -> Result<(u64, u64), ReadError> {
        Err(ReadError::Failed(None))
    }
}

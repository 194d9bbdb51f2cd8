//! What groups of leased rows hold.
use charter_kernel::time::Instant;
use charter_kernel::unit::{Reach, Space};

use crate::error::ReadError;
use crate::query::Standing;
use crate::store::Store;

impl Store {
    /// What a group holds now.
    pub async fn standing(&self, _reach: &Reach, _space: &Space, _group: &str) -> Result<Standing, ReadError> {
        Err(ReadError::Failed(None))
    }
    /// When the next row of a group is due; across all reaches for a space of the host where `reach` is `None`.
    pub async fn next_due(&self, _reach: Option<&Reach>, _space: &Space, _group: &str) -> Result<Option<Instant>, ReadError> {
        Err(ReadError::Failed(None))
    }
}

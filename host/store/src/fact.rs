//! Facts that have their numbers.
use charter_kernel::unit::FactKind;

use crate::error::ReadError;
use crate::query::SequencedFact;
use crate::store::Store;
use crate::wake::Changed;

impl Store {
    /// An organization's facts of a kind after a sequence, oldest first.
    pub async fn facts(
        &self,
        _kind: FactKind,
        _organization: &str,
        _after: u64,
        _limit: u32,
    ) -> Result<Vec<SequencedFact>, ReadError> {
        Err(ReadError::Failed(None))
    }
    /// The last sequence given.
    pub async fn facts_head(&self, _kind: FactKind, _organization: &str) -> Result<u64, ReadError> {
        Err(ReadError::Failed(None))
    }
    /// Wakes when an organization has new facts of a kind.
    pub fn facts_changed(&self, kind: FactKind, organization: &str) -> Changed {
        self.log_changed(&charter_kernel::apply::facts_log(organization, kind))
    }
}

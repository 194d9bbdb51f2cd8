//! The committer.
use crate::config::StoreConfig;
use crate::connection::Database;
use crate::epoch::Epochs;
use crate::error::{CommitError, OpenError};
use crate::store::StoreStatus;
use crate::wake::Wakes;
use charter_kernel::unit::{Applied, Unit};
use std::sync::Arc;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
pub(crate) struct Committer;
impl Committer {
    pub(crate) async fn start(
        _config: &StoreConfig,
        _database: &Database,
        _wakes: Arc<Wakes>,
        _epochs: Arc<Epochs>,
        _closing: &CancellationToken,
    ) -> Result<Self, OpenError> {
        Ok(Self)
    }
    pub(crate) fn facts_written(&self) -> Arc<Notify> {
        Arc::default()
    }
    pub(crate) async fn submit(&self, _unit: Unit, _settling: bool) -> Result<Applied, CommitError> {
        Err(CommitError::Failed)
    }
    pub(crate) fn status(&self) -> StoreStatus {
        StoreStatus::default()
    }
    pub(crate) async fn drain(&self) {}
}

//! Waking those who wait for a change.
use std::sync::Arc;

use charter_kernel::unit::{LogKey, Reach, Space};
use sqlx::AnyPool;
use tokio_util::sync::CancellationToken;

use crate::store::Store;

#[derive(Default)]
pub(crate) struct Wakes;

/// Subscribed to a change. Subscribe, then read, then wait: no change in between is missed.
#[derive(Debug)]
pub struct Changed {}
impl Changed {
    /// Resolves at the first commit since the subscription or the last wait; on another replica's within 500 ms. May resolve
    /// without a change.
    pub async fn wait(&mut self) {}
}
pub(crate) fn poll(_readers: AnyPool, _wakes: Arc<Wakes>, _closing: &CancellationToken) {}
impl Store {
    /// Subscribes to commits to a space.
    pub fn changed(&self, _reach: &Reach, _space: &Space) -> Changed {
        Changed {}
    }
    /// Subscribes to appends to a log and to its closing.
    pub fn log_changed(&self, _log: &LogKey) -> Changed {
        Changed {}
    }
}

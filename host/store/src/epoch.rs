//! What caches of the host's own rows need to know: whether any of them has changed.
use std::time::Duration;

use crate::config::StoreConfig;
use crate::connection::Database;
use crate::store::Store;
use sqlx::AnyPool;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// How often the host's cached spaces were written. Compare for equality.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Epoch {
    /// Space and how often it was written, in the whole deployment.
    pub spaces: std::collections::BTreeMap<String, u64>,
}

pub(crate) struct Epochs {
    now: tokio::sync::watch::Sender<Epoch>,
}
impl Epochs {
    pub(crate) fn new(_config: &StoreConfig) -> Self {
        Self { now: tokio::sync::watch::channel(Epoch::default()).0 }
    }
    pub(crate) async fn watch(
        self: Arc<Self>,
        _database: &Database,
        _readers: AnyPool,
        _closing: &CancellationToken,
    ) -> sqlx::Result<()> {
        Ok(())
    }
}
impl Store {
    /// The current epoch and its changes. A cache drops what it read before a change.
    pub fn epoch(&self) -> tokio::sync::watch::Receiver<Epoch> {
        self.inner.epochs.now.subscribe()
    }
    /// How old the knowledge behind [`Store::epoch`] is; caches are trusted only below a second. Always zero on SQLite.
    pub fn last_poll_age(&self) -> Duration {
        Duration::ZERO
    }
}

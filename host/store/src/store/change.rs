//! Waiting for a change: of a space, of a log, of what caches know.

use std::time::Duration;

use charter_kernel::unit::{LogKey, Reach, Space};
use tokio::sync::watch;

use super::Store;
use crate::epoch::Epoch;
use crate::error::ReadError;
use crate::wake::{Changed, Topic};

impl Store {
    /// Subscribes to commits to a space.
    pub fn space_changes(&self, reach: &Reach, space: &Space) -> Changed {
        self.inner.wakes.subscribe(Topic::Space(reach.clone(), space.clone()))
    }

    /// Subscribes to appends to a log and to its closing.
    pub fn log_changes(&self, log: &LogKey) -> Changed {
        self.inner.wakes.subscribe(Topic::Log(log.clone()))
    }

    /// The current epoch and its changes. A cache drops what it read before a change of the spaces
    /// it read.
    pub fn epoch(&self) -> watch::Receiver<Epoch> {
        self.inner.epochs.subscribe()
    }

    /// Knows afterwards of everything that was committed before this was called, on whatever
    /// replica. Callers of one moment share a look; where no replica shares the database there is
    /// nothing to ask.
    ///
    /// # Errors
    /// When the database cannot be asked.
    pub async fn refresh_epoch(&self) -> Result<(), ReadError> {
        self.inner.epochs.catch_up(&self.inner.readers).await
    }

    /// How old the knowledge behind [`Store::epoch`] is; caches are trusted only while it is below
    /// a second. Always zero where no replica shares the database.
    pub fn last_poll_age(&self) -> Duration {
        self.inner.epochs.age()
    }
}

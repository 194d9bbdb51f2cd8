//! The deployment's one clock: the database's, where replicas share one.
//!
//! The last reading goes on by the machine's steady clock, so that a machine whose wall clock is
//! wrong, or jumps, opens no budget's window early, ends no lease early, and signs nothing in the
//! future.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use charter_kernel::time::{Clock, Instant};
use tokio::time::Instant as Steady;

/// A reading that took longer says too little of when it was taken.
const READING_MAX: Duration = Duration::from_secs(1);

/// The database's time, as of the last look at it; the machine's own before the first.
pub(crate) struct DatabaseClock {
    own: Arc<dyn Clock>,
    read: RwLock<Option<(Instant, Steady)>>,
}

impl DatabaseClock {
    pub(crate) fn new(own: Arc<dyn Clock>) -> Self {
        Self { own, read: RwLock::default() }
    }

    /// The database said `at` in answer to what was asked at `asked` and is answered now. It meant
    /// the middle, more or less.
    pub(crate) fn synchronize(&self, at: Instant, asked: Steady) {
        let took = asked.elapsed();
        if took <= READING_MAX {
            *self.read.write().unwrap_or_else(PoisonError::into_inner) =
                Some((at, asked + took / 2));
        }
    }
}

impl Clock for DatabaseClock {
    fn now(&self) -> Instant {
        match *self.read.read().unwrap_or_else(PoisonError::into_inner) {
            Some((at, then)) => {
                at.plus_ms(i64::try_from(then.elapsed().as_millis()).unwrap_or(i64::MAX))
            }
            None => self.own.now(),
        }
    }
}

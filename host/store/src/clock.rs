//! The deployment's one clock: the database's, where replicas share one.
//!
//! The last reading goes on by the machine's steady clock, so that a machine whose wall clock is
//! wrong, or jumps, opens no budget's window early, ends no lease early, and signs nothing in the
//! future. Between two readings that are each a little off it stands still rather than go back: what
//! is due when it is written is due when it is looked for.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
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
    /// The latest time that was told.
    latest: AtomicI64,
}

impl DatabaseClock {
    pub(crate) fn new(own: Arc<dyn Clock>) -> Self {
        Self { own, read: RwLock::default(), latest: AtomicI64::new(i64::MIN) }
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
        let now = self.estimate();
        let latest = self.latest.fetch_max(now.0, Relaxed).max(now.0);
        // A step back that is longer than a reading can be off is one of the database's own clock.
        if latest.abs_diff(now.0) <= READING_MAX.as_millis().try_into().unwrap_or(u64::MAX) {
            return Instant(latest);
        }
        self.latest.store(now.0, Relaxed);
        now
    }
}

impl DatabaseClock {
    fn estimate(&self) -> Instant {
        match *self.read.read().unwrap_or_else(PoisonError::into_inner) {
            Some((at, then)) => {
                at.plus_ms(i64::try_from(then.elapsed().as_millis()).unwrap_or(i64::MAX))
            }
            None => self.own.now(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Still;

    impl Clock for Still {
        fn now(&self) -> Instant {
            Instant(0)
        }
    }

    #[test]
    fn between_readings_that_are_a_little_off_it_does_not_go_back() {
        let clock = DatabaseClock::new(Arc::new(Still));
        let read = |at: i64| {
            clock.synchronize(Instant(at), Steady::now());
            clock.now().0
        };
        assert!((10_000..10_500).contains(&read(10_000)));
        assert!((10_000..10_500).contains(&read(9_500)), "it stands still");
        assert!((10_800..11_300).contains(&read(10_800)));
        assert!((5_000..5_500).contains(&read(5_000)), "the database's own clock was set back");
    }
}

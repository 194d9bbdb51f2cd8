//! The deployment's one clock: the database's, where replicas share one.
//!
//! The last reading goes on by the machine's steady clock, so that a machine whose wall clock is
//! wrong, or jumps, opens no budget's window early, ends no lease early, and signs nothing in the
//! future. Between two readings that are each a little off it stands still rather than go back: what
//! is due when it is written is due when it is looked for.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use charter_kernel::time::{Clock, Instant};
use tokio::time::Instant as Steady;

/// A reading that took longer says too little of when it was taken.
const READING_MAX: Duration = Duration::from_secs(1);

/// A step back that is longer than this was of a clock that had been ahead, not of one that is read
/// by several.
pub const SET_BACK_MS: i64 = 600_000;

/// A clock that notices when it is set back.
pub(crate) struct NoticingClock {
    own: Arc<dyn Clock>,
    /// The latest time that was told since.
    latest: AtomicI64,
    set_back: AtomicU64,
}

impl NoticingClock {
    pub(crate) fn new(own: Arc<dyn Clock>) -> Self {
        Self { own, latest: AtomicI64::new(i64::MIN), set_back: AtomicU64::new(0) }
    }

    /// How often it was set back, by as much as was told.
    pub(crate) fn count_set_back(&self) -> u64 {
        self.set_back.load(Relaxed)
    }
}

impl Clock for NoticingClock {
    fn now(&self) -> Instant {
        let now = self.own.now();
        if self.latest.fetch_max(now.0, Relaxed) > now.0.saturating_add(SET_BACK_MS) {
            self.latest.store(now.0, Relaxed);
            self.set_back.fetch_add(1, Relaxed);
        }
        now
    }
}

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

    struct Hands(AtomicI64);

    impl Clock for Hands {
        fn now(&self) -> Instant {
            Instant(self.0.load(Relaxed))
        }
    }

    #[test]
    fn a_clock_that_is_set_back_is_noticed_once_and_by_a_little_not_at_all() {
        let hands = Arc::new(Hands(AtomicI64::new(0)));
        let clock = NoticingClock::new(hands.clone());
        let count_at = |at: i64| {
            hands.0.store(at, Relaxed);
            assert_eq!((clock.now(), clock.now()), (Instant(at), Instant(at)));
            clock.count_set_back()
        };
        assert_eq!(count_at(5 * SET_BACK_MS), 0);
        assert_eq!(count_at(4 * SET_BACK_MS), 0);
        assert_eq!(count_at(4 * SET_BACK_MS - 1), 1, "little by little");
        assert_eq!(count_at(4 * SET_BACK_MS), 1);
        assert_eq!(count_at(9 * SET_BACK_MS), 1);
        assert_eq!(count_at(0), 2);
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

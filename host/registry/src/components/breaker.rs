//! The trap-rate breaker: counts what became of calls, and says when a version has to go.
//!
//! Counting is a look-up and a few atomic operations. Knows nothing of how a version is stepped
//! back from. Traps of one organization alone never trip it, nor do those of a few among many:
//! tenants who find a crashing input must not decide what the others run. Organizations that anybody
//! can make in a moment count for nothing, neither for a version nor against it.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

use charter_kernel::time::Instant;

use crate::settings;

/// The caller whose call it was.
#[derive(Clone, Copy, Debug)]
pub struct Caller<'a> {
    /// The organization; empty where a call has none.
    pub organization: &'a str,
    /// Whether an owner of it has proved an address, or the operator made it.
    pub proved: bool,
}

/// Organizations that must have met a trap, and at least half of those that called.
const ORGANIZATIONS_MIN: u32 = 2;
/// Digests that are counted; beyond it the map starts anew.
const WINDOWS_MAX: usize = 1_024;

/// The counts.
#[derive(Debug)]
pub(super) struct Breaker {
    settings: settings::Breaker,
    windows: RwLock<BTreeMap<String, Arc<Window>>>,
}

/// One version's current window.
#[derive(Debug, Default)]
struct Window {
    began_at: AtomicI64,
    calls: AtomicU32,
    traps: AtomicU32,
    /// Those that called.
    callers: Distinct,
    /// Those that met a trap.
    trapped: Distinct,
}

/// How many different organizations there were, each a bit of its hash: exact for a few, too few
/// for very many.
#[derive(Debug, Default)]
struct Distinct([AtomicU64; 16]);

impl Distinct {
    fn add(&self, organization: &str) {
        let mut hasher = DefaultHasher::new();
        organization.hash(&mut hasher);
        let bit = hasher.finish() % (64 * self.0.len() as u64);
        self.0[(bit / 64) as usize].fetch_or(1 << (bit % 64), Relaxed);
    }
    fn count(&self) -> u32 {
        self.0.iter().map(|word| word.load(Relaxed).count_ones()).sum()
    }
    fn clear(&self) {
        self.0.iter().for_each(|word| word.store(0, Relaxed));
    }
}

impl Breaker {
    pub(super) fn new(settings: settings::Breaker) -> Self {
        Self { settings, windows: RwLock::default() }
    }

    /// Counts a call; true where this trap trips the breaker.
    pub(super) fn observe(
        &self,
        digest: &str,
        caller: Caller<'_>,
        trapped: bool,
        now: Instant,
    ) -> bool {
        if self.settings.traps_min == 0 || !caller.proved {
            return false;
        }
        let organization = caller.organization;
        let window = self.window(digest);
        window.turn(now, self.settings.window_ms);
        let calls = window.calls.fetch_add(1, Relaxed) + 1;
        window.callers.add(organization);
        if !trapped {
            return false;
        }
        let traps = window.traps.fetch_add(1, Relaxed) + 1;
        window.trapped.add(organization);
        let met = window.trapped.count();
        met >= ORGANIZATIONS_MIN
            && 2 * met >= window.callers.count()
            && traps >= self.settings.traps_min
            && f64::from(traps) >= self.settings.rate_min * f64::from(calls)
    }

    /// Whether a version trapped no more than it may within its window.
    pub(super) fn healthy(&self, digest: &str) -> bool {
        let window = self.window(digest);
        let (calls, traps) = (window.calls.load(Relaxed), window.traps.load(Relaxed));
        traps < self.settings.traps_min.max(1)
            || f64::from(traps) < self.settings.rate_min * f64::from(calls)
    }

    fn window(&self, digest: &str) -> Arc<Window> {
        if let Some(window) =
            self.windows.read().unwrap_or_else(PoisonError::into_inner).get(digest)
        {
            return window.clone();
        }
        let mut windows = self.windows.write().unwrap_or_else(PoisonError::into_inner);
        if windows.len() >= WINDOWS_MAX {
            windows.clear();
        }
        windows.entry(digest.to_owned()).or_default().clone()
    }
}

impl Window {
    /// Begins anew when the window is over.
    fn turn(&self, now: Instant, window_ms: u64) {
        let began_at = self.began_at.load(Relaxed);
        let over = now.0.saturating_sub(began_at).unsigned_abs() >= window_ms;
        if over && self.began_at.compare_exchange(began_at, now.0, Relaxed, Relaxed).is_ok() {
            self.calls.store(0, Relaxed);
            self.traps.store(0, Relaxed);
            self.callers.clear();
            self.trapped.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaker() -> Breaker {
        Breaker::new(settings::Breaker { traps_min: 4, rate_min: 0.5, window_ms: 1_000 })
    }

    fn observe(breaker: &Breaker, organization: &str, trapped: bool, at: i64) -> bool {
        breaker.observe("d", Caller { organization, proved: true }, trapped, Instant(at))
    }

    #[test]
    fn traps_of_one_organization_alone_never_trip_it() {
        let breaker = breaker();
        assert!((0..100).all(|_| !observe(&breaker, "one", true, 5_000)));
        assert!(observe(&breaker, "two", true, 5_000));
    }

    #[test]
    fn organizations_that_proved_nothing_count_neither_for_a_version_nor_against_it() {
        let breaker = breaker();
        let free = |n: usize, trapped| {
            let organization = format!("free-{n}");
            let caller = Caller { organization: &organization, proved: false };
            breaker.observe("d", caller, trapped, Instant(5_000))
        };
        assert!((0..100).all(|n| !free(n, true)), "two registrations are free");
        for n in 0..100 {
            free(n, false);
        }
        let mut met = (0..4).map(|n| observe(&breaker, ["one", "two"][n % 2], true, 5_000));
        assert!(met.any(|trips| trips), "calls of many that are free hide no trap");
    }

    #[test]
    fn a_few_of_many_do_not_trip_it_for_the_others() {
        let breaker = breaker();
        for caller in 0..5 {
            observe(&breaker, &format!("calm-{caller}"), false, 5_000);
        }
        for n in 0..100 {
            assert!(!observe(&breaker, if n % 2 == 0 { "one" } else { "two" }, true, 5_000), "{n}");
        }
    }

    #[test]
    fn it_takes_both_a_number_and_a_rate() {
        let breaker = breaker();
        for n in 0..100 {
            observe(&breaker, "one", false, 5_000 + n);
        }
        for n in 0..40 {
            assert!(!observe(&breaker, if n % 2 == 0 { "one" } else { "two" }, true, 5_100), "{n}");
        }
        assert!(breaker.healthy("d"));
    }

    #[test]
    fn a_window_forgets() {
        let breaker = breaker();
        for _ in 0..3 {
            observe(&breaker, "one", true, 5_000);
        }
        assert!(!observe(&breaker, "two", true, 7_000));
    }
}

//! Counts of what became of calls, for the server's metrics.
//!
//! Counters only, no labels beyond the primitive's name; reading them stops nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, RwLock};

/// Upper bounds of the latency buckets, in microseconds; the last bucket is open.
pub const LATENCY_BOUNDS_US: [u64; 16] = [
    100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200, 102_400, 204_800, 409_600,
    1_638_400, 6_553_600, 26_214_400,
];

/// The classes of outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(usize)]
pub enum OutcomeClass {
    /// The guest answered.
    Answered,
    /// The guest or a rule refused.
    Refused,
    /// The guest trapped.
    Trapped,
    /// A deadline passed.
    Deadline,
    /// The memory limit was met.
    OutOfMemory,
    /// Not admitted.
    Shed,
    /// The client left.
    ClientGone,
    /// Restarted, inactive or unavailable: no fault of the guest.
    Other,
}

impl OutcomeClass {
    /// All of them, in the order of the counters.
    pub const ALL: [Self; 8] = [
        Self::Answered,
        Self::Refused,
        Self::Trapped,
        Self::Deadline,
        Self::OutOfMemory,
        Self::Shed,
        Self::ClientGone,
        Self::Other,
    ];
    /// The label in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Refused => "refused",
            Self::Trapped => "trapped",
            Self::Deadline => "deadline",
            Self::OutOfMemory => "out_of_memory",
            Self::Shed => "shed",
            Self::ClientGone => "client_gone",
            Self::Other => "other",
        }
    }
}

/// The engine's counters.
#[derive(Debug, Default)]
pub struct Stats {
    primitives: RwLock<BTreeMap<String, Arc<PrimitiveStats>>>,
    /// Instances alive now.
    pub instances: AtomicI64,
    /// Guest memory in use now, in bytes.
    pub memory_bytes: Arc<AtomicI64>,
    /// Guests run again after a conflict.
    pub reruns: AtomicU64,
    /// Code cache: loads served from it.
    pub cache_hits: AtomicU64,
    /// Code cache: loads that compiled.
    pub cache_misses: AtomicU64,
}

/// One primitive's counters.
#[derive(Debug, Default)]
pub struct PrimitiveStats {
    outcomes: [AtomicU64; OutcomeClass::ALL.len()],
    latency: [AtomicU64; LATENCY_BOUNDS_US.len() + 1],
    latency_sum_us: AtomicU64,
}

impl PrimitiveStats {
    /// Counts one call.
    pub fn record(&self, class: OutcomeClass, elapsed_us: u64) {
        self.outcomes[class as usize].fetch_add(1, Relaxed);
        let bucket = LATENCY_BOUNDS_US.partition_point(|bound| *bound < elapsed_us);
        self.latency[bucket].fetch_add(1, Relaxed);
        self.latency_sum_us.fetch_add(elapsed_us, Relaxed);
    }
    /// Calls that ended this way.
    pub fn count(&self, class: OutcomeClass) -> u64 {
        self.outcomes[class as usize].load(Relaxed)
    }
    /// Calls a latency bucket, the open one last.
    pub fn latency(&self) -> Vec<u64> {
        self.latency.iter().map(|n| n.load(Relaxed)).collect()
    }
    /// The sum of all latencies, in microseconds.
    pub fn latency_sum_us(&self) -> u64 {
        self.latency_sum_us.load(Relaxed)
    }
    /// The upper bound of the bucket that holds this quantile, in microseconds; 0 before the first
    /// call.
    pub fn quantile_us(&self, quantile: f64) -> u64 {
        let counts = self.latency();
        let total: u64 = counts.iter().sum();
        if total == 0 {
            return 0;
        }
        let wanted = (total as f64 * quantile).ceil() as u64;
        let mut seen = 0;
        for (bucket, count) in counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return LATENCY_BOUNDS_US.get(bucket).copied().unwrap_or(u64::MAX);
            }
        }
        u64::MAX
    }
}

impl Stats {
    /// The counters of one primitive, made at first use. Callers keep the `Arc`.
    pub fn primitive(&self, name: &str) -> Arc<PrimitiveStats> {
        let read = self.primitives.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        if let Some(stats) = read.get(name) {
            return stats.clone();
        }
        drop(read);
        let mut write = self.primitives.write().unwrap_or_else(std::sync::PoisonError::into_inner);
        write.entry(name.to_owned()).or_default().clone()
    }
    /// All primitives with their counters.
    pub fn all(&self) -> Vec<(String, Arc<PrimitiveStats>)> {
        let read = self.primitives.read().unwrap_or_else(std::sync::PoisonError::into_inner);
        read.iter().map(|(name, stats)| (name.clone(), stats.clone())).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_call_is_counted_by_how_it_ended_and_how_long_it_took() {
        let stats = PrimitiveStats::default();
        assert_eq!((stats.quantile_us(0.99), stats.latency_sum_us()), (0, 0));
        for (at, class) in OutcomeClass::ALL.into_iter().enumerate() {
            assert_eq!(class as usize, at, "the order of the counters");
            for _ in 0..=at {
                stats.record(class, 100);
            }
            assert_eq!(stats.count(class), at as u64 + 1, "{}", class.label());
        }
        assert_eq!(stats.latency_sum_us(), 100 * (1..=8).sum::<u64>());
        let labels: std::collections::BTreeSet<_> =
            OutcomeClass::ALL.map(OutcomeClass::label).into();
        assert_eq!(labels.len(), OutcomeClass::ALL.len());
    }

    #[test]
    fn a_bound_belongs_to_the_bucket_below_it_and_the_last_is_open() {
        let stats = PrimitiveStats::default();
        for (us, bucket) in [
            (0, 0),
            (100, 0),
            (101, 1),
            (200, 1),
            (26_214_400, 15),
            (26_214_401, 16),
            (u64::MAX / 4, 16),
        ] {
            let before = stats.latency()[bucket];
            stats.record(OutcomeClass::Answered, us);
            assert_eq!(stats.latency()[bucket], before + 1, "{us}");
        }
        assert_eq!(stats.quantile_us(1.0), u64::MAX);
        assert_eq!(stats.quantile_us(0.0), 100, "at least the first that was seen");
    }

    #[test]
    fn a_primitive_has_one_set_of_counters() {
        let stats = Stats::default();
        assert!(stats.all().is_empty());
        let (one, again) = (stats.primitive("b"), stats.primitive("b"));
        stats.primitive("a");
        assert!(Arc::ptr_eq(&one, &again));
        let names: Vec<_> = stats.all().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["a", "b"]);
    }

    proptest! {
        #[test]
        fn a_quantile_is_a_bound_above_as_many_calls_as_it_says(
            times in prop::collection::vec(0_u64..30_000_000, 1..60),
            quantile in 0.01_f64..1.0,
        ) {
            let stats = PrimitiveStats::default();
            times.iter().for_each(|us| stats.record(OutcomeClass::Answered, *us));
            let bound = stats.quantile_us(quantile);
            let within = times.iter().filter(|us| **us <= bound).count() as f64;
            prop_assert!(within >= quantile * times.len() as f64, "{within} within {bound}");
            prop_assert!(stats.quantile_us(quantile / 2.0) <= bound);
            prop_assert_eq!(stats.latency().iter().sum::<u64>(), times.len() as u64);
        }
    }
}

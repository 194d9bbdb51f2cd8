//! How often a route was called, how that ended and how long it took.
//!
//! Counting is a few relaxed atomic additions on counters that a route keeps; nothing is locked or
//! looked up. Knows nothing of how the counters are shown.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Upper bounds of the latency buckets, in microseconds.
pub const BOUNDS_US: [u64; 14] = [
    250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 64_000, 128_000, 256_000, 1_000_000,
    5_000_000, 30_000_000,
];
/// The statuses that are counted by name; any other is counted as the first of its hundred.
const STATUSES: [u16; 36] = [
    100, 200, 201, 202, 204, 206, 300, 301, 302, 303, 304, 307, 308, 400, 401, 402, 403, 404, 405,
    406, 408, 409, 410, 412, 413, 415, 422, 423, 428, 429, 431, 500, 501, 502, 503, 504,
];

/// How a request ended, as a closed set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(usize)]
pub enum RequestOutcome {
    /// It was answered as asked.
    Answered,
    /// The host or the primitive refused it.
    Refused,
    /// It was answered from an idempotency record.
    Replayed,
    /// It failed on our side.
    Failed,
    /// The host had no room or time for it.
    Shed,
    /// A panic was caught.
    Panicked,
    /// The client left before the answer.
    ClientGone,
}

impl RequestOutcome {
    /// All of them, in the order of their counters.
    pub const ALL: [Self; 7] = [
        Self::Answered,
        Self::Refused,
        Self::Replayed,
        Self::Failed,
        Self::Shed,
        Self::Panicked,
        Self::ClientGone,
    ];
    /// The label.
    pub fn label(self) -> &'static str {
        match self {
            Self::Answered => "answered",
            Self::Refused => "refused",
            Self::Replayed => "replayed",
            Self::Failed => "failed",
            Self::Shed => "shed",
            Self::Panicked => "panicked",
            Self::ClientGone => "client_gone",
        }
    }
}

/// The counters of one route template.
#[derive(Debug)]
pub struct RouteStats {
    statuses: [AtomicU64; STATUSES.len()],
    outcomes: [AtomicU64; RequestOutcome::ALL.len()],
    latency: [AtomicU64; BOUNDS_US.len() + 1],
    latency_sum_us: AtomicU64,
}

impl Default for RouteStats {
    fn default() -> Self {
        let zeros = || std::array::from_fn(|_| AtomicU64::new(0));
        Self {
            statuses: std::array::from_fn(|_| AtomicU64::new(0)),
            outcomes: std::array::from_fn(|_| AtomicU64::new(0)),
            latency: zeros(),
            latency_sum_us: AtomicU64::new(0),
        }
    }
}

impl RouteStats {
    /// Counts one request.
    pub fn record(&self, status: u16, outcome: RequestOutcome, elapsed: Duration) {
        let slot = STATUSES
            .binary_search(&status)
            .or_else(|_| STATUSES.binary_search(&(status / 100 * 100)))
            .unwrap_or(0);
        self.statuses[slot].fetch_add(1, Relaxed);
        self.outcomes[outcome as usize].fetch_add(1, Relaxed);
        let us = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX);
        self.latency[BOUNDS_US.partition_point(|bound| *bound < us)].fetch_add(1, Relaxed);
        self.latency_sum_us.fetch_add(us, Relaxed);
    }
    /// How often each status was answered.
    pub fn statuses(&self) -> impl Iterator<Item = (u16, u64)> {
        STATUSES.into_iter().zip(self.statuses.iter().map(|count| count.load(Relaxed)))
    }

    /// How often requests ended so.
    pub fn count(&self, outcome: RequestOutcome) -> u64 {
        self.outcomes[outcome as usize].load(Relaxed)
    }

    /// How many took at most each of [`BOUNDS_US`], and how many took longer.
    pub fn latency(&self) -> Vec<u64> {
        self.latency.iter().map(|count| count.load(Relaxed)).collect()
    }

    /// All times together, in microseconds.
    pub fn latency_sum_us(&self) -> u64 {
        self.latency_sum_us.load(Relaxed)
    }
}

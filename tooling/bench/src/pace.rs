//! How long and how much is measured.

use std::time::Duration;

/// How thoroughly the benchmarks run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// As long as figures need that are compared.
    Measured,
    /// Just long enough to see that everything still runs: what the gate does, in a debug build.
    #[cfg_attr(not(test), expect(dead_code, reason = "only the gate glances"))]
    Glance,
}

impl Pace {
    /// How long a run lasts that measures for so many seconds.
    pub fn time(self, seconds: f64) -> Duration {
        Duration::from_secs_f64(match self {
            Self::Measured => seconds,
            Self::Glance => seconds.min(0.1),
        })
    }

    /// How many of something that is measured in such numbers.
    pub fn count(self, many: usize) -> usize {
        match self {
            Self::Measured => many,
            Self::Glance => many.min(2),
        }
    }
}

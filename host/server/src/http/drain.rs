//! The time of a drain: how long calls may go on, connections stay open, and background work goes
//! on, so that all of it ends within the configured time.

use std::time::Duration;

/// The time that a part of the end takes at most: to answer requests that were cut, to finish
/// background work, to leave the database.
const PART_MAX: Duration = Duration::from_secs(1);

/// Moments of a drain, from its beginning on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    /// Calls that have not ended are cut, and answered so.
    pub cut: Duration,
    /// Connections are closed, whatever is on them.
    pub closed: Duration,
    /// Background work that has not ended is left to the next start.
    pub left: Duration,
    /// The process ends.
    pub over: Duration,
}

impl Drain {
    /// A drain of so many milliseconds.
    pub fn of(ms: u64) -> Self {
        let over = Duration::from_millis(ms);
        let part = (over / 8).min(PART_MAX);
        Self { cut: over - 3 * part, closed: over - 2 * part, left: over - part, over }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_get_most_of_the_time_and_the_end_has_a_moment() {
        for (ms, moments) in [
            (30_000, [27_000, 28_000, 29_000, 30_000]),
            (8_000, [5_000, 6_000, 7_000, 8_000]),
            (800, [500, 600, 700, 800]),
            (0, [0, 0, 0, 0]),
        ] {
            let Drain { cut, closed, left, over } = Drain::of(ms);
            assert_eq!([cut, closed, left, over], moments.map(Duration::from_millis), "{ms}");
        }
    }
}

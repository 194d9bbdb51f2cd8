//! How often something may be done: at most so many times within any stretch of so many seconds, to
//! the millisecond.
//!
//! Each use is remembered as it was, by its moment, so that no stretch of time admits more than
//! another.

use serde::{Deserialize, Serialize};

use crate::time::Instant;

/// The most that a rate can admit at once: each is remembered.
pub const AMOUNT_MAX: u32 = 1_000;
/// The longest stretch, in seconds: 31 days.
pub const PER_SECONDS_MAX: u32 = 31 * 86_400;

/// When something was done, oldest first, as far as it still counts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rate {
    taken: Vec<i64>,
}

impl Rate {
    /// Takes one now, and answers the moment that is remembered; or how many milliseconds to wait
    /// where none is left.
    ///
    /// # Errors
    /// The wait.
    pub fn take(&mut self, amount: u32, per_seconds: u32, now: Instant) -> Result<Instant, i64> {
        let per = i64::from(per_seconds) * 1_000;
        self.taken.retain(|at| now.0.saturating_sub(*at) < per);
        let full = self.taken.len().saturating_sub(amount as usize);
        match self.taken.get(full).filter(|_| self.taken.len() >= amount as usize) {
            Some(oldest) => Err(oldest.saturating_add(per).saturating_sub(now.0)),
            None if amount == 0 => Err(per),
            None => {
                // A clock that steps back puts nothing out of order.
                let at = self.taken.last().map_or(now.0, |last| now.0.max(*last));
                self.taken.push(at);
                Ok(Instant(at))
            }
        }
    }

    /// Gives back one that was taken at this moment. Others that were taken since still count.
    pub fn give_back(&mut self, at: Instant) {
        if let Some(place) = self.taken.iter().rposition(|taken| *taken == at.0) {
            self.taken.remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn it_says_when_the_next_one_is_left() {
        let mut rate = Rate::default();
        let at = |ms| Ok(Instant(ms));
        assert_eq!(rate.take(2, 60, Instant(1_000)), at(1_000));
        assert_eq!(rate.take(2, 60, Instant(11_000)), at(11_000));
        assert_eq!(rate.take(2, 60, Instant(20_000)), Err(41_000));
        assert_eq!(rate.take(2, 60, Instant(61_000)), at(61_000));
        rate.give_back(Instant(61_000));
        assert_eq!(rate.take(2, 60, Instant(61_001)), at(61_001));
        // Given back late, it gives back nobody else's.
        rate.give_back(Instant(61_000));
        rate.give_back(Instant(1_000));
        assert_eq!(rate.take(2, 60, Instant(61_002)), Err(9_998));
        rate.give_back(Instant(11_000));
        assert_eq!(rate.take(2, 60, Instant(61_002)), at(61_002));
        assert_eq!(rate.take(0, 60, Instant(200_000)), Err(60_000));
        assert_eq!(
            rate.take(1, 60, Instant(200_000)),
            at(200_000),
            "a narrower rate counts what still counts"
        );
    }

    proptest! {
        #[test]
        fn no_stretch_admits_more(amount in 1_u32..6, per in 1_u32..10, steps in prop::collection::vec(0_i64..3_000, 1..200)) {
            let (mut rate, mut now, mut done) = (Rate::default(), 0, Vec::new());
            for step in steps {
                now += step;
                match rate.take(amount, per, Instant(now)) {
                    Ok(at) => {
                        prop_assert_eq!(at, Instant(now));
                        done.push(now);
                    }
                    Err(wait) => {
                        prop_assert!(wait > 0 && wait <= i64::from(per) * 1_000);
                        prop_assert!(rate.clone().take(amount, per, Instant(now + wait)).is_ok(), "the wait is enough");
                        prop_assert!(rate.clone().take(amount, per, Instant(now + wait - 1)).is_err(), "and not too long");
                    }
                }
            }
            for at in &done {
                let within = done.iter().filter(|other| **other >= *at && **other - at < i64::from(per) * 1_000).count();
                prop_assert!(within <= amount as usize);
            }
        }
    }
}

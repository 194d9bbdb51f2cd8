//! The rule by which those who share what an organization has leave some of it to the next one.
//!
//! Pure. Invariant: nobody has more of it than it leaves free, and the users of one project together no more
//! than three times as much, so that the next one finds some, however much those before it have.

use crate::scope::Sharer;

/// One part in so many of it is kept from pinned credentials and strangers.
const KEPT_PART: u64 = 4;
/// The users of one project together have so many times as much as they leave free.
const PROJECT_TIMES: u64 = 3;

/// How much there is of something, and how much of it those have who share it.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// All that there is of it.
    pub max: u64,
    /// How much of it all have together.
    pub all: u64,
    /// How much the project has in which the next one shares, or the next one itself.
    pub within: u64,
    /// How much the next one has itself.
    pub own: u64,
}

impl Held {
    /// Whether there is one more for this one.
    pub fn leaves_one_to(self, by: &Sharer) -> bool {
        let kept = if by.within.is_some() { self.max / KEPT_PART } else { 0 };
        leaves((self.max - kept).saturating_sub(self.all), self.within, self.own)
    }
}

/// The names under which what one has counts: its own, and that around it.
pub fn names_of(by: &Sharer) -> [&str; 2] {
    [&by.name, by.within.as_ref().unwrap_or(&by.name)]
}

/// Whether one that has so much of its own, and of a project that has so much together, has one more where so
/// much is free.
pub fn leaves(free: u64, of_project: u64, own: u64) -> bool {
    own < free && of_project < free.saturating_mul(PROJECT_TIMES)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sharer(within: Option<&str>, name: &str) -> Sharer {
        Sharer { within: within.map(Into::into), name: name.into() }
    }

    #[test]
    fn pinned_credentials_leave_a_quarter() {
        let (pinned, own) = (sharer(Some("p"), "u"), sharer(None, "a"));
        let held = Held { max: 100, all: 74, within: 2, own: 0 };
        assert!(held.leaves_one_to(&pinned) && held.leaves_one_to(&own));
        let held = Held { all: 75, ..held };
        assert!(!held.leaves_one_to(&pinned) && held.leaves_one_to(&own));
        assert!(!Held { all: 100, ..held }.leaves_one_to(&own));
    }

    #[test]
    fn what_one_has_counts_as_its_own_and_as_that_around_it() {
        assert_eq!(names_of(&sharer(Some("p"), "u")), ["u", "p"]);
        assert_eq!(names_of(&sharer(Some("p"), "p")), ["p", "p"]);
        assert_eq!(names_of(&sharer(None, "a")), ["a", "a"]);
    }

    #[test]
    fn nobody_has_more_than_it_leaves_free_nor_its_project_more_than_three_times_as_much() {
        for (free, of_project, own, expected) in [
            (0, 0, 0, false),
            (1, 0, 0, true),
            (5, 4, 4, true),
            (5, 5, 5, false),
            (5, 14, 0, true),
            (5, 15, 0, false),
            (u64::MAX, u64::MAX - 1, 0, true),
        ] {
            assert_eq!(leaves(free, of_project, own), expected, "{free} {of_project} {own}");
        }
    }
}

//! The rule by which those who share what an organization has leave some of it to the next one.
//!
//! Pure. Invariant: nobody has more of it than it leaves free, one who asks for several together no more than
//! twice as much, and the users of one project together no more than three times as much, so that the
//! next one finds some, however much those before it have.

use crate::scope::Asker;

/// One part in so many of it is kept from whoever does not govern the organization.
const KEPT_PART: u64 = 4;
/// One who asks for several users has so many times as much together as it leaves free.
const SHARER_TIMES: u64 = 2;
/// The users of one project together have so many times as much as they leave free.
const PROJECT_TIMES: u64 = 3;

/// How much there is of something, and how much of it those have who share it.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// All that there is of it.
    pub max: u64,
    /// How much of it all have together.
    pub all: u64,
    /// How much of it each of [`names_of`] has, in that order.
    pub of: [u64; 3],
}

impl Held {
    /// Whether there is one more for this one.
    pub fn leaves_one_to(self, by: &Asker) -> bool {
        let kept = if by.sharer.within.is_some() { self.max / KEPT_PART } else { 0 };
        let free = (self.max - kept).saturating_sub(self.all);
        let [own, of_sharer, of_project] = self.of;
        leaves(free, of_project, own) && of_sharer < free.saturating_mul(SHARER_TIMES)
    }
}

/// The names under which what one has counts: its own for whom it asks, its own, and that around it.
pub fn names_of(by: &Asker) -> [&str; 3] {
    let Asker { sharer, name } = by;
    [name, &sharer.name, sharer.within.as_ref().unwrap_or(&sharer.name)]
}

/// Whether one that has so much of its own, and of a project that has so much together, has one more where so
/// much is free.
pub fn leaves(free: u64, of_project: u64, own: u64) -> bool {
    own < free && of_project < free.saturating_mul(PROJECT_TIMES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scope::Sharer;

    fn asker(within: Option<&str>, sharer: &str, name: &str) -> Asker {
        let sharer = Sharer { within: within.map(Into::into), name: sharer.into() };
        Asker { sharer, name: name.into() }
    }

    #[test]
    fn pinned_credentials_leave_a_quarter() {
        let (pinned, own) = (asker(Some("p"), "u", "u"), asker(None, "a", "a"));
        let held = Held { max: 100, all: 74, of: [0, 0, 2] };
        assert!(held.leaves_one_to(&pinned) && held.leaves_one_to(&own));
        let held = Held { all: 75, ..held };
        assert!(!held.leaves_one_to(&pinned) && held.leaves_one_to(&own));
        assert!(!Held { all: 100, ..held }.leaves_one_to(&own));
    }

    #[test]
    fn who_asks_for_many_leaves_some_to_the_others() {
        let mut names: Vec<(Asker, u64)> = Vec::new();
        let fill = |names: &mut Vec<(Asker, u64)>, by: Asker| {
            names.push((by.clone(), 0));
            let at = names.len() - 1;
            loop {
                let of = names_of(&by).map(|name| {
                    let has = |(asker, _): &&(Asker, u64)| names_of(asker).contains(&name);
                    names.iter().filter(has).map(|(_, many)| many).sum()
                });
                let all = names.iter().map(|(_, many)| many).sum();
                if !(Held { max: 1_000, all, of }).leaves_one_to(&by) {
                    return names[at].1;
                }
                names[at].1 += 1;
            }
        };
        // A key of a project, a key of its user, and one of another project's.
        let named: Vec<_> = (0..5)
            .map(|n| fill(&mut names, asker(Some("p"), "p", &format!("p for {n}"))))
            .collect();
        assert_eq!(named, [375, 125, 0, 0, 0]);
        assert_eq!(fill(&mut names, asker(Some("p"), "u", "u")), 63);
        assert_eq!(fill(&mut names, asker(Some("q"), "q", "q")), 94);
        // Keys without pins.
        let named: Vec<_> =
            (0..5).map(|n| fill(&mut names, asker(None, "a", &format!("a for {n}")))).collect();
        assert_eq!(named, [172, 57, 0, 0, 0]);
        assert_eq!(fill(&mut names, asker(None, "b", "b")), 57);
    }

    #[test]
    fn what_one_has_counts_as_its_own_and_as_that_around_it() {
        assert_eq!(names_of(&asker(Some("p"), "u", "u")), ["u", "u", "p"]);
        assert_eq!(names_of(&asker(Some("p"), "p", "p for u")), ["p for u", "p", "p"]);
        assert_eq!(names_of(&asker(None, "a", "a")), ["a", "a", "a"]);
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

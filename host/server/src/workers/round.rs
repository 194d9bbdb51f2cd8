//! The order of rows that fall due: an organization after the other, however much of one waits and
//! however long.
//!
//! Pure: knows neither rows nor the store. Invariant: as many places are held as were picked and not
//! given back.

use std::collections::{HashMap, HashSet};

use charter_kernel::places::Places;

/// Rows of one group taken at once.
const GROUP_MAX: usize = 8;

/// The rounds of one kind of work.
#[derive(Debug)]
pub(super) struct Round {
    places: Places<String>,
    /// When each organization was picked from last, as far as it has more.
    picked: HashMap<String, u64>,
    picks: u64,
}

impl Round {
    /// Rounds over so many places.
    pub(super) fn new(places: usize) -> Self {
        Self { places: Places::with_reserve(places), picked: HashMap::new(), picks: 0 }
    }

    /// How many rows of each group to take: each group is given by its organization, the one that
    /// has been due the longest first.
    pub(super) fn pick(&mut self, due: &[&str]) -> Vec<usize> {
        let present: HashSet<&str> = due.iter().copied().collect();
        self.picked.retain(|organization, _| present.contains(organization.as_str()));
        let mut order: Vec<usize> = (0..due.len()).collect();
        let mut before: HashMap<&str, usize> = HashMap::new();
        // The first group of each, then the second ones.
        let rank: Vec<usize> = due
            .iter()
            .map(|organization| {
                let rank = before.entry(organization).or_default();
                *rank += 1;
                *rank
            })
            .collect();
        let last = |at: usize| self.picked.get(due[at]).copied().unwrap_or(0);
        order.sort_by_key(|at| (rank[*at], last(*at)));
        let mut counts = vec![0; due.len()];
        loop {
            let picked = self.picks;
            for at in &order {
                let organization = due[*at].to_owned();
                if counts[*at] < GROUP_MAX && self.places.enter(&organization) {
                    counts[*at] += 1;
                    self.picks += 1;
                    self.picked.insert(organization, self.picks);
                }
            }
            if picked == self.picks {
                return counts;
            }
        }
    }

    /// Gives a place back.
    pub(super) fn leave(&mut self, organization: &str) {
        self.places.leave(&organization.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn everybody_who_has_work_gets_some_of_the_places() {
        for (places, due, counts) in [
            (32, vec!["a"], vec![8]),
            (4, vec!["a"], vec![2]),
            (1, vec!["a", "b"], vec![1, 0]),
            (6, vec!["a", "b"], vec![2, 2]),
            (32, vec!["a", "a", "a", "b"], vec![5, 5, 4, 8]),
            (4, vec!["a", "a", "a", "b", "c"], vec![1, 0, 0, 1, 1]),
            (4, vec![], vec![]),
        ] {
            let picked = Round::new(places).pick(&due);
            assert!(picked.iter().sum::<usize>() <= places);
            assert_eq!(picked, counts, "{places} places, {due:?}");
        }
    }

    #[test]
    fn the_next_place_goes_to_who_was_picked_longest_ago() {
        let mut round = Round::new(1);
        let due = ["hog", "b", "c"];
        let mut turns = String::new();
        for _ in 0..6 {
            let counts = round.pick(&due);
            let at = counts.iter().position(|count| *count == 1).expect("one place, one row");
            turns += due[at];
            round.leave(due[at]);
        }
        assert_eq!(turns, "hogbchogbc");
        // An organization that had nothing to do for a while comes first, and one that had comes
        // back behind.
        assert_eq!(round.pick(&["hog", "new"]), [0, 1]);
    }

    proptest! {
        #[test]
        fn no_place_is_lost_and_nobody_starves(
            places in 1..12_usize,
            due in proptest::collection::vec(0..6_u8, 1..12),
        ) {
            let names: Vec<String> = due.iter().map(u8::to_string).collect();
            let due: Vec<&str> = names.iter().map(String::as_str).collect();
            let mut round = Round::new(places);
            let mut served: HashSet<&str> = HashSet::new();
            // As many rounds as there are organizations are enough for all of them.
            for _ in 0..6 {
                let counts = round.pick(&due);
                let all: usize = counts.iter().sum();
                prop_assert!((1..=places).contains(&all));
                for (organization, count) in due.iter().zip(counts) {
                    for _ in 0..count {
                        served.insert(organization);
                        round.leave(organization);
                    }
                }
                prop_assert_eq!(round.places.free(), places);
            }
            prop_assert_eq!(served, due.iter().copied().collect::<HashSet<_>>());
        }
    }
}

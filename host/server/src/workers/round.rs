//! The order of rows that fall due: an organization after the other, however much of one waits and
//! however long.
//!
//! Pure: knows neither rows nor the store. Invariant: as many places are held as were picked and not
//! given back.

use std::collections::{HashMap, HashSet};

use charter_kernel::places::Places;

/// Rows of one group taken at once.
const GROUP_MAX: usize = 8;

/// A group whose rows are due, and the organization that it is of.
pub(super) type Due<'a> = (&'a str, &'a str);

/// The rounds of one kind of work.
#[derive(Debug)]
pub(super) struct Round {
    places: Places<String>,
    /// When each organization was picked from last, as far as it has more.
    picked: HashMap<String, u64>,
    /// The same of each group.
    groups: HashMap<String, u64>,
    picks: u64,
}

impl Round {
    /// Rounds over so many places.
    pub(super) fn new(places: usize) -> Self {
        let (picked, groups) = (HashMap::new(), HashMap::new());
        Self { places: Places::with_reserve(places), picked, groups, picks: 0 }
    }

    /// How many rows of each group to take: the one that has been due the longest comes first, and of
    /// an organization's groups the one that was picked from the longest ago.
    pub(super) fn pick(&mut self, due: &[Due<'_>]) -> Vec<usize> {
        let present: HashSet<&str> = due.iter().flat_map(|(of, group)| [*of, *group]).collect();
        self.picked.retain(|organization, _| present.contains(organization.as_str()));
        self.groups.retain(|group, _| present.contains(group.as_str()));
        let mut order: Vec<usize> = (0..due.len()).collect();
        order.sort_by_key(|at| self.groups.get(due[*at].1).copied().unwrap_or(0));
        let mut before: HashMap<&str, usize> = HashMap::new();
        // The first group of each, then the second ones.
        let mut rank = vec![0; due.len()];
        for at in &order {
            let of_organization = before.entry(due[*at].0).or_default();
            *of_organization += 1;
            rank[*at] = *of_organization;
        }
        let last = |at: usize| self.picked.get(due[at].0).copied().unwrap_or(0);
        order.sort_by_key(|at| (rank[*at], last(*at), *at));
        let mut counts = vec![0; due.len()];
        loop {
            let picked = self.picks;
            for at in &order {
                let (organization, group) = due[*at];
                if counts[*at] < GROUP_MAX && self.places.enter(&organization.to_owned()) {
                    counts[*at] += 1;
                    self.picks += 1;
                    self.picked.insert(organization.to_owned(), self.picks);
                    self.groups.insert(group.to_owned(), self.picks);
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

    /// Groups of these organizations, one each, by their places.
    fn groups<'a>(due: &[&'a str], names: &'a [String]) -> Vec<Due<'a>> {
        due.iter().zip(names).map(|(organization, name)| (*organization, name.as_str())).collect()
    }

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("group {n}")).collect()
    }

    #[test]
    fn everybody_who_has_work_gets_some_of_the_places() {
        for (places, due, counts) in [
            (32, vec!["a"], vec![8]),
            (4, vec!["a"], vec![2]),
            (1, vec!["a", "b"], vec![1, 0]),
            (6, vec!["a", "b"], vec![2, 2]),
            (32, vec!["a", "a", "a", "b"], vec![4, 4, 4, 8]),
            (4, vec!["a", "a", "a", "b", "c"], vec![1, 0, 0, 1, 1]),
            (4, vec![], vec![]),
        ] {
            let picked = Round::new(places).pick(&groups(&due, &names(due.len())));
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
            let counts = round.pick(&groups(&due, &names(3)));
            let at = counts.iter().position(|count| *count == 1).expect("one place, one row");
            turns += due[at];
            round.leave(due[at]);
        }
        assert_eq!(turns, "hogbchogbc");
        // An organization that had nothing to do for a while comes first, and one that had comes
        // back behind.
        assert_eq!(round.pick(&groups(&["hog", "new"], &names(2))), [0, 1]);
    }

    #[test]
    fn groups_of_one_organization_take_turns_however_long_one_has_been_due() {
        let mut round = Round::new(1);
        let due = [("a", "long"), ("a", "short"), ("b", "other")];
        let mut turns = Vec::new();
        for _ in 0..8 {
            let counts = round.pick(&due);
            let at = counts.iter().position(|count| *count == 1).expect("one place, one row");
            turns.push(due[at].1);
            round.leave(due[at].0);
        }
        assert_eq!(turns[..4], ["long", "other", "short", "other"]);
        assert_eq!(turns[4..], turns[..4]);
    }

    proptest! {
        #[test]
        fn no_place_is_lost_and_nobody_starves(
            places in 1..12_usize,
            due in proptest::collection::vec(0..6_u8, 1..12),
        ) {
            let texts: Vec<String> = due.iter().map(u8::to_string).collect();
            let due: Vec<&str> = texts.iter().map(String::as_str).collect();
            let own = names(due.len());
            let mut round = Round::new(places);
            let mut served: HashSet<&str> = HashSet::new();
            // As many rounds as there are organizations are enough for all of them.
            for _ in 0..6 {
                let counts = round.pick(&groups(&due, &own));
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

//! The order of rows that fall due: an organization after the other, however much of one waits and
//! however long.
//!
//! Pure: knows neither rows nor the store. Invariant: as many places are held as were picked and not
//! given back.

use std::collections::{HashMap, HashSet};

use charter_kernel::places::{Places, Seating as _};

/// Rows of one group taken at once.
const GROUP_MAX: usize = 8;

/// A group whose rows are due.
#[derive(Clone, Copy, Debug)]
pub(super) struct DueGroup<'a> {
    /// Its name.
    pub(super) group: &'a str,
    /// The organization that it is of.
    pub(super) organization: &'a str,
    /// Whether it leaves places to the organization's others: see [`Round::enter`].
    pub(super) leaves_places: bool,
}

/// The rounds of one kind of work.
#[derive(Debug)]
pub(super) struct Round {
    places: Places<String>,
    /// The places of an organization's that those of its groups have which leave places to its others,
    /// by group.
    shared: HashMap<String, Places<String>>,
    /// How many these are: as many as one of those who share an organization's would have alone.
    shared_max: usize,
    /// When each organization was picked from last, as far as it has more.
    picked: HashMap<String, u64>,
    /// The same of each group.
    groups: HashMap<String, u64>,
    picks: u64,
}

impl Round {
    /// Rounds over so many places.
    pub(super) fn new(places: usize) -> Self {
        let (shared, picked, groups) = (HashMap::new(), HashMap::new(), HashMap::new());
        let places = Places::with_reserve(places);
        let shared_max = Places::<()>::with_reserve(places.alone()).alone();
        Self { places, shared, shared_max, picked, groups, picks: 0 }
    }

    /// How many rows of each group to take: the one that has been due the longest comes first, and of
    /// an organization's groups the one that was picked from the longest ago.
    pub(super) fn pick(&mut self, due: &[DueGroup<'_>]) -> Vec<usize> {
        let present: HashSet<&str> =
            due.iter().flat_map(|due| [due.organization, due.group]).collect();
        self.picked.retain(|organization, _| present.contains(organization.as_str()));
        self.groups.retain(|group, _| present.contains(group.as_str()));
        let mut order: Vec<usize> = (0..due.len()).collect();
        order.sort_by_key(|at| self.groups.get(due[*at].group).copied().unwrap_or(0));
        let mut before: HashMap<&str, usize> = HashMap::new();
        // The first group of each, then the second ones.
        let mut rank = vec![0; due.len()];
        for at in &order {
            let of_organization = before.entry(due[*at].organization).or_default();
            *of_organization += 1;
            rank[*at] = *of_organization;
        }
        let last = |at: usize| self.picked.get(due[at].organization).copied().unwrap_or(0);
        order.sort_by_key(|at| (rank[*at], last(*at), *at));
        let mut counts = vec![0; due.len()];
        loop {
            let picked = self.picks;
            for at in &order {
                let DueGroup { group, organization, .. } = due[*at];
                if counts[*at] < GROUP_MAX && self.enter(&due[*at]) {
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

    /// Takes a place for a row of this group, if there is one. Groups that leave places share
    /// a part of their organization's.
    fn enter(&mut self, due: &DueGroup<'_>) -> bool {
        if self.places.free() == 0 {
            return false;
        }
        let DueGroup { group, organization, leaves_places } = *due;
        if leaves_places {
            let (all, own) = (self.shared_max, self.shared.entry(organization.to_owned()));
            if !own.or_insert_with(|| Places::with_reserve(all)).enter(&group.to_owned()) {
                return false;
            }
        }
        let enters = self.places.enter(&organization.to_owned());
        if leaves_places && !enters {
            self.leave_shared(organization, group);
        }
        enters
    }

    /// Gives a place of a group back.
    pub(super) fn leave(&mut self, due: &DueGroup<'_>) {
        self.places.leave(&due.organization.to_owned());
        if due.leaves_places {
            self.leave_shared(due.organization, due.group);
        }
    }

    fn leave_shared(&mut self, organization: &str, group: &str) {
        let Some(own) = self.shared.get_mut(organization) else { return };
        own.leave(&group.to_owned());
        if own.is_idle() {
            self.shared.remove(organization);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Groups of these organizations, one each, by their places.
    fn groups<'a>(due: &[&'a str], names: &'a [String]) -> Vec<DueGroup<'a>> {
        due.iter().zip(names).map(|(organization, name)| of(organization, name)).collect()
    }

    fn of<'a>(organization: &'a str, group: &'a str) -> DueGroup<'a> {
        DueGroup { group, organization, leaves_places: group.contains('/') }
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
            round.leave(&groups(&due, &names(3))[at]);
        }
        assert_eq!(turns, "hogbchogbc");
        // An organization that had nothing to do for a while comes first, and one that had comes
        // back behind.
        assert_eq!(round.pick(&groups(&["hog", "new"], &names(2))), [0, 1]);
    }

    #[test]
    fn groups_of_one_organization_take_turns_however_long_one_has_been_due() {
        let mut round = Round::new(1);
        let due = [of("a", "long"), of("a", "short"), of("b", "other")];
        let mut turns = Vec::new();
        for _ in 0..8 {
            let counts = round.pick(&due);
            let at = counts.iter().position(|count| *count == 1).expect("one place, one row");
            turns.push(due[at].group);
            round.leave(&due[at]);
        }
        assert_eq!(turns[..4], ["long", "other", "short", "other"]);
        assert_eq!(turns[4..], turns[..4]);
    }

    #[test]
    fn agents_leave_places_to_each_other_and_to_who_governs_them() {
        let mut round = Round::new(32);
        let agents: Vec<String> = (0..20).map(|n| format!("shop/pinned/{n}")).collect();
        let mut due: Vec<_> = agents.iter().map(|name| of("a", name)).collect();
        let one = round.pick(&due[..1]);
        assert_eq!(one, [3], "half of what is for agents");
        let all: usize = round.pick(&due).iter().sum();
        assert_eq!(all, 3);
        due.push(of("a", "shop"));
        let own = round.pick(&due);
        assert!(own[20] >= 4 && own[..20].iter().all(|count| *count == 0), "{own:?}");
        due[..20]
            .iter()
            .zip(&one)
            .for_each(|(due, count)| (0..*count).for_each(|_| round.leave(due)));
        assert_eq!(
            round.pick(&due)[..20].iter().sum::<usize>(),
            3,
            "what one had is the next ones'"
        );
    }

    proptest! {
        #[test]
        fn no_place_is_lost_and_nobody_starves(
            places in 1..12_usize,
            due in proptest::collection::vec(0..6_u8, 1..12),
        ) {
            let texts: Vec<String> = due.iter().map(u8::to_string).collect();
            let due: Vec<&str> = texts.iter().map(String::as_str).collect();
            let own: Vec<_> = (0..due.len()).map(|n| [format!("g{n}"), format!("g/{n}")][n % 2].clone()).collect();
            let mut round = Round::new(places);
            let mut served: HashSet<&str> = HashSet::new();
            // As many rounds as there are organizations are enough for all of them.
            for _ in 0..6 {
                let counts = round.pick(&groups(&due, &own));
                let all: usize = counts.iter().sum();
                prop_assert!((1..=places).contains(&all));
                for (row, count) in groups(&due, &own).iter().zip(counts) {
                    for _ in 0..count {
                        served.insert(row.organization);
                        round.leave(row);
                    }
                }
                prop_assert_eq!(round.places.free(), places);
                prop_assert!(round.shared.is_empty());
            }
            prop_assert_eq!(served, due.iter().copied().collect::<HashSet<_>>());
        }
    }
}

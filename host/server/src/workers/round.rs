//! The order of rows that fall due: an organization after the other, of each what it asked for itself
//! and a project of its agents after the other, and of each project a user after the other, however much
//! of one waits and however long.
//!
//! Pure: knows neither rows nor the store. Invariant: as many places are held as were picked and not
//! given back.

use std::collections::{HashMap, HashSet};

use charter_kernel::places::{Places, Seating as _, SharedPlaces};
use charter_kernel::scope::Sharer;

/// Rows of one group taken at once.
const GROUP_MAX: usize = 8;

/// A group whose rows are due.
#[derive(Clone, Copy, Debug)]
pub(super) struct DueGroup<'a> {
    /// Its name.
    pub(super) group: &'a str,
    /// The organization that it is of.
    pub(super) organization: &'a str,
    /// The project and the user, or the project again, that it shares places as; none where it is the
    /// organization's own.
    pub(super) sharer: Option<(&'a str, &'a str)>,
}

/// The rounds of one kind of work.
#[derive(Debug)]
pub(super) struct Round {
    places: Places<String>,
    /// The places of an organization's that those share who are not the organization itself.
    shared: HashMap<String, SharedPlaces>,
    /// How many of an organization's there are.
    shared_max: usize,
    /// By the names of organizations, of projects and of groups, each as far as it has more or holds
    /// places.
    turns: HashMap<String, Turn>,
    picks: u64,
}

/// The turn of one of those who take turns.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    /// When it was picked from last.
    picked: u64,
    /// The places that it holds.
    held: usize,
}

impl Round {
    /// Rounds over so many places.
    pub(super) fn new(places: usize) -> Self {
        let places = Places::with_reserve(places);
        let shared_max = places.alone();
        let (shared, turns) = (HashMap::new(), HashMap::new());
        Self { places, shared, shared_max, turns, picks: 0 }
    }

    /// How many rows of each group to take. The one that was picked from the longest ago comes first; one
    /// that is new stands beside that, and of those beside each other the one that has been due the
    /// longest comes first.
    pub(super) fn pick(&mut self, due: &[DueGroup<'_>]) -> Vec<usize> {
        let levels: Vec<[String; 3]> = due.iter().map(levels_of).collect();
        self.note(&levels);
        let order = self.order(&levels);
        let mut counts = vec![0; due.len()];
        loop {
            let picked = self.picks;
            for at in &order {
                if counts[*at] < GROUP_MAX && self.enter(&due[*at]) {
                    counts[*at] += 1;
                    self.picks += 1;
                    for name in &levels[*at] {
                        let turn = self.turns.entry(name.clone()).or_default();
                        *turn = Turn { picked: self.picks, held: turn.held + 1 };
                    }
                }
            }
            if picked == self.picks {
                return counts;
            }
        }
    }

    /// Forgets who is not there any more, and gives who is new the turn of that of its kind beside it
    /// which was picked from the longest ago: it came last, and comes before all others of them.
    fn note(&mut self, levels: &[[String; 3]]) {
        let present: HashSet<&str> = levels.iter().flatten().map(String::as_str).collect();
        self.turns.retain(|name, turn| turn.held > 0 || present.contains(name.as_str()));
        for level in 0_usize..3 {
            let around =
                |names: &[String; 3]| level.checked_sub(1).map(|around| names[around].clone());
            let mut oldest: HashMap<Option<String>, u64> = HashMap::new();
            for names in levels {
                if let Some(turn) = self.turns.get(&names[level]) {
                    let oldest = oldest.entry(around(names)).or_insert(turn.picked);
                    *oldest = turn.picked.min(*oldest);
                }
            }
            for names in levels {
                let picked = oldest.get(&around(names)).copied().unwrap_or(0);
                let turn = Turn { picked, held: 0 };
                self.turns.entry(names[level].clone()).or_insert(turn);
            }
        }
    }

    /// The groups in their order: the first of each project, then the second ones, and so within the
    /// organizations and among them.
    fn order(&self, levels: &[[String; 3]]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..levels.len()).collect();
        // By level from the innermost: by the rank within the level below, then by turn.
        let mut ranks = vec![0; levels.len()];
        for level in (0..3_usize).rev() {
            let picked = |at: usize| self.turns.get(&levels[at][level]).map(|turn| turn.picked);
            order.sort_by_key(|at| (ranks[*at], picked(*at), *at));
            let Some(around) = level.checked_sub(1) else { break };
            let mut before: HashMap<&str, usize> = HashMap::new();
            for at in &order {
                let of_around = before.entry(levels[*at][around].as_str()).or_default();
                ranks[*at] = *of_around;
                *of_around += 1;
            }
        }
        order
    }

    /// Takes a place for a row of this group, if there is one.
    fn enter(&mut self, due: &DueGroup<'_>) -> bool {
        if self.places.free() == 0 {
            return false;
        }
        let organization = due.organization.to_owned();
        let sharer = sharer(due);
        if let Some(sharer) = &sharer {
            let (all, own) = (self.shared_max, self.shared.entry(organization.clone()));
            if !own.or_insert_with(|| SharedPlaces::new(all)).enter(sharer) {
                return false;
            }
        }
        let enters = self.places.enter(&organization);
        if let Some(sharer) = sharer.filter(|_| !enters) {
            self.leave_shared(&organization, &sharer);
        }
        enters
    }

    /// Gives a place of a group back.
    pub(super) fn leave(&mut self, due: &DueGroup<'_>) {
        self.places.leave(&due.organization.to_owned());
        if let Some(sharer) = sharer(due) {
            self.leave_shared(due.organization, &sharer);
        }
        for name in levels_of(due) {
            if let Some(turn) = self.turns.get_mut(&name) {
                turn.held = turn.held.saturating_sub(1);
            }
        }
    }

    fn leave_shared(&mut self, organization: &str, sharer: &Sharer) {
        let Some(own) = self.shared.get_mut(organization) else { return };
        own.leave(sharer);
        if own.is_idle() {
            self.shared.remove(organization);
        }
    }
}

/// The names by which a group takes turns: its organization's, its project's or, of the organization's
/// own, the group's, and the group's.
fn levels_of(due: &DueGroup<'_>) -> [String; 3] {
    let DueGroup { group, organization, sharer } = *due;
    // No name of one level is one of another: a group's begins with its organization and a slash.
    let project = match sharer {
        Some((project, _)) => format!("project {organization} {project}"),
        None => format!("own {group}"),
    };
    [format!("organization {organization}"), project, format!("group {group}")]
}

fn sharer(due: &DueGroup<'_>) -> Option<Sharer> {
    due.sharer.map(|(project, user)| Sharer { within: Some(project.into()), name: user.into() })
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
        DueGroup { group, organization, sharer: charter_engine::job::sharer_of(group) }
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
        // One that is new comes behind who was picked the longest ago, and before all others.
        let names = names(2);
        let due = groups(&["hog", "new"], &names);
        assert_eq!(round.pick(&due), [1, 0]);
        round.leave(&due[0]);
        assert_eq!(round.pick(&due), [0, 1]);
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

    #[test]
    fn one_that_has_a_job_at_a_time_and_comes_back_again_and_again_leaves_turns_to_who_waits() {
        let mut round = Round::new(1);
        let [chain, backlog] = [of("a", "shop/pinned/p/chain"), of("a", "shop/pinned/p/backlog")];
        assert_eq!(round.pick(&[chain]), [1]);
        let mut served = 0;
        for _ in 0..6 {
            // While its one job runs nothing of it is due, and it is due later than who waits.
            assert_eq!(round.pick(&[backlog]), [0]);
            round.leave(&chain);
            let counts = round.pick(&[backlog, chain]);
            served += counts[0];
            if counts[0] == 1 {
                round.leave(&backlog);
                assert_eq!(round.pick(&[chain]), [1]);
            }
        }
        assert!(served >= 3, "{served}");
    }

    #[test]
    fn a_project_of_many_users_takes_turns_with_another_of_one() {
        let mut round = Round::new(32);
        let many: Vec<_> = (0..120).map(|n| format!("shop/pinned/many/{n}")).collect();
        let mut due: Vec<_> = many.iter().map(|name| of("a", name)).collect();
        let before = round.pick(&due);
        assert!(before.iter().sum::<usize>() <= 4, "and leaves some to others");
        due.push(of("a", "shop/pinned/other/one"));
        assert_eq!(round.pick(&due)[120], 1);
        // With all places taken, the next one goes to the other project.
        let mut small = Round::new(1);
        let at = small.pick(&due[..120]).iter().position(|count| *count == 1).expect("a place");
        assert_eq!(small.pick(&due).iter().sum::<usize>(), 0);
        small.leave(&due[at]);
        let first = small.pick(&due);
        let second = {
            let at = first.iter().position(|count| *count == 1).expect("a place");
            small.leave(&due[at]);
            small.pick(&due)
        };
        assert_eq!(first[120] + second[120], 1);
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

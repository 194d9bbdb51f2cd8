//! Places that parties share: who may take one now, and who gets the next one.
//!
//! Pure: knows neither tasks nor time, nor what a place is for. Invariants: no more places are held
//! than there are; of [`Places`], a party that holds none waits only while none is free; the next place
//! goes to a waiting party that may have it and holds the fewest, and among equals they take turns.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::scope::Sharer;

/// One part in so many of places with a reserve is for parties that hold none.
const FIRST_PART: usize = 8;
/// Turns that are kept of those who are gone.
const TURNS_KEPT: usize = 256;
/// Fewer places than these keep no such part.
const FEW: usize = 5;

/// Places, those who hold them, and those who wait.
#[derive(Clone, Debug)]
pub struct Places<P> {
    all: usize,
    /// How many of those that are free a party may hold for one; 0 where it may take whatever is free.
    reserve: usize,
    taken: usize,
    held: BTreeMap<P, usize>,
    waiting: BTreeMap<P, Queue>,
    tickets: u64,
}

/// Those of one party that wait.
#[derive(Clone, Debug)]
struct Queue {
    /// The party's own place among the others: behind all of them each time that it was let in.
    turn: u64,
    tickets: VecDeque<u64>,
}

/// Places that parties share, and the order in which those who wait get them.
pub trait Seating {
    /// Those who hold places.
    type Party: Clone + Unpin;
    /// Takes a place where the party may have one now. Behind its own that wait already it may not.
    fn enter(&mut self, party: &Self::Party) -> bool;
    /// Waits for a place; the ticket is what [`Seating::admit_next`] calls.
    fn wait(&mut self, party: &Self::Party) -> u64;
    /// Waits no longer; false where the ticket was called already.
    fn give_up(&mut self, party: &Self::Party, ticket: u64) -> bool;
    /// Gives a place back. [`Seating::admit_next`] calls the waiting parties, until it names nobody.
    fn leave(&mut self, party: &Self::Party);
    /// Lets the next one in, if anybody may: of the parties that wait, one that holds the fewest,
    /// and of these the one whose turn is the longest ago.
    fn admit_next(&mut self) -> Option<(Self::Party, u64)>;
}

impl<P: Clone + Ord> Places<P> {
    /// Places that come back soon: a party may take whatever is free.
    pub fn open(all: usize) -> Self {
        Self {
            all,
            reserve: 0,
            taken: 0,
            held: BTreeMap::new(),
            waiting: BTreeMap::new(),
            tickets: 0,
        }
    }

    /// Places that may be held for long: a party takes one more only while it holds fewer than are
    /// free beside an eighth, which is for those who hold none. One alone gets nearly half of them, two
    /// less than a third each, and there is room for the next.
    pub fn with_reserve(all: usize) -> Self {
        Self { reserve: 1, ..Self::open(all) }
    }

    /// The same, where one party alone gets nearly three quarters: among parties that one bound around
    /// them leaves little.
    pub fn with_small_reserve(all: usize) -> Self {
        Self { reserve: 3, ..Self::open(all) }
    }

    /// How many one party alone may hold of them.
    pub fn alone(&self) -> usize {
        (0..self.all).take_while(|held| self.lets(*held, self.all - held)).count()
    }

    /// How many nobody holds.
    pub fn free(&self) -> usize {
        self.all.saturating_sub(self.taken)
    }

    /// Whether nobody holds one or waits.
    pub fn is_idle(&self) -> bool {
        self.taken == 0 && self.waiting.is_empty()
    }

    /// How many a party holds.
    pub fn count_held(&self, party: &P) -> usize {
        self.held.get(party).copied().unwrap_or(0)
    }

    /// How many of a party wait.
    pub fn count_waiting(&self, party: &P) -> usize {
        self.waiting.get(party).map_or(0, |queue| queue.tickets.len())
    }

    /// Whether the party's share, rather than the number of places, keeps it from one more.
    pub fn is_share_used(&self, party: &P) -> bool {
        self.free() > 0 && !self.admits(party)
    }

    fn admits(&self, party: &P) -> bool {
        self.lets(self.count_held(party), self.free())
    }

    /// Whether who holds so many may have one more where so many are free.
    fn lets(&self, held: usize, free: usize) -> bool {
        let kept = if held == 0 { 0 } else { first_part(self.all) };
        free > 0 && (self.reserve == 0 || held < self.reserve * free.saturating_sub(kept))
    }

    fn take(&mut self, party: &P) {
        self.taken += 1;
        *self.held.entry(party.clone()).or_default() += 1;
    }

    /// The one that is next of those that may come in: it holds the fewest, and of these it has waited the
    /// longest, by what `around` says of what it is in, and then by itself.
    fn next<K: Ord>(&self, may: impl Fn(&P) -> bool, around: impl Fn(&P) -> K) -> Option<P> {
        let may = self.waiting.iter().filter(|(party, _)| may(party));
        let next =
            may.min_by_key(|(party, queue)| (around(party), self.count_held(party), queue.turn));
        next.map(|(party, _)| party.clone())
    }

    /// Calls the first one of a party that waits.
    fn call(&mut self, party: P) -> Option<(P, u64)> {
        let queue = self.waiting.get_mut(&party)?;
        let ticket = queue.tickets.pop_front()?;
        self.tickets += 1;
        queue.turn = self.tickets;
        if queue.tickets.is_empty() {
            self.waiting.remove(&party);
        }
        Some((party, ticket))
    }
}

impl<P: Clone + Ord + Unpin> Seating for Places<P> {
    type Party = P;

    fn enter(&mut self, party: &P) -> bool {
        let enters = !self.waiting.contains_key(party) && self.admits(party);
        if enters {
            self.take(party);
        }
        enters
    }

    fn wait(&mut self, party: &P) -> u64 {
        self.tickets += 1;
        let ticket = self.tickets;
        let queue = || Queue { turn: ticket, tickets: VecDeque::new() };
        self.waiting.entry(party.clone()).or_insert_with(queue).tickets.push_back(ticket);
        ticket
    }

    fn give_up(&mut self, party: &P, ticket: u64) -> bool {
        let Some(queue) = self.waiting.get_mut(party) else { return false };
        let before = queue.tickets.len();
        queue.tickets.retain(|waiting| *waiting != ticket);
        let was_there = queue.tickets.len() != before;
        if queue.tickets.is_empty() {
            self.waiting.remove(party);
        }
        was_there
    }

    fn leave(&mut self, party: &P) {
        let Some(held) = self.held.get_mut(party) else { return };
        *held -= 1;
        if *held == 0 {
            self.held.remove(party);
        }
        self.taken -= 1;
    }

    fn admit_next(&mut self) -> Option<(P, u64)> {
        let party = self.next(|party| self.admits(party), |_| ())?;
        let called = self.call(party)?;
        self.take(&called.0);
        Some(called)
    }
}

/// How many of all places with a reserve are for parties that hold none.
fn first_part(all: usize) -> usize {
    if all < FEW { 0 } else { all.div_ceil(FIRST_PART) }
}

/// Places of one organization for those who share them: none of them has so many that the next finds
/// none, all that are pinned leave as many to the others, and so do those of one project. One that waits
/// for one bound keeps nobody from another. Projects take turns, and persons beside them, and of each
/// project those who share it.
#[derive(Clone, Debug)]
pub struct SharedPlaces {
    /// Each who holds some, or waits.
    each: Places<Sharer>,
    bounds: Bounds,
    /// When the last place went to one of a project, or to one that is in none.
    turns: BTreeMap<Arc<str>, u64>,
}

/// The bounds around those who share places.
#[derive(Clone, Debug)]
struct Bounds {
    /// Of all by name, with no name for those that are pinned.
    all: Places<Option<Arc<str>>>,
    /// Of those that are pinned, by project.
    projects: Places<Arc<str>>,
    /// Of the same, by user.
    users: Places<Arc<str>>,
}

impl SharedPlaces {
    /// So many places, of which those that are pinned have what one alone would.
    pub fn new(all: usize) -> Self {
        let (each, all) = (Places::open(all), Places::with_reserve(all));
        let pinned = all.alone();
        let (projects, users) = (Places::with_small_reserve(pinned), Places::with_reserve(pinned));
        Self { each, bounds: Bounds { all, projects, users }, turns: BTreeMap::new() }
    }

    /// Whether nobody holds one or waits.
    pub fn is_idle(&self) -> bool {
        self.each.is_idle()
    }

    fn take(&mut self, by: &Sharer) {
        self.each.take(by);
        self.bounds.take(by);
    }

    /// The one that is next: of the project, or of those beside it, that holds the fewest, and of these the
    /// one whose turn is the longest ago.
    fn next(&self) -> Option<Sharer> {
        let mut since: BTreeMap<&Arc<str>, u64> = BTreeMap::new();
        for (by, queue) in &self.each.waiting {
            let first = since.entry(around(by)).or_insert(queue.turn);
            *first = queue.turn.min(*first);
        }
        let turn = |by: &Sharer| self.turns.get(around(by)).max(since.get(around(by))).copied();
        self.each.next(|by| self.bounds.admits(by), |by| (self.bounds.count_held(by), turn(by)))
    }

    /// Notes that one has had its turn, and forgets those who are gone before they are many.
    fn note_turn(&mut self, by: &Sharer) {
        self.turns.insert(around(by).clone(), self.each.tickets);
        if self.turns.len() < TURNS_KEPT {
            return;
        }
        let present = self.each.waiting.keys().chain(self.each.held.keys()).map(around);
        let present: BTreeSet<_> = present.cloned().collect();
        self.turns.retain(|name, _| present.contains(name));
    }
}

/// The name of what one takes turns in: its project, or itself.
fn around(by: &Sharer) -> &Arc<str> {
    by.within.as_ref().unwrap_or(&by.name)
}

impl Seating for SharedPlaces {
    type Party = Sharer;

    fn enter(&mut self, by: &Sharer) -> bool {
        let enters = self.each.count_waiting(by) == 0 && self.bounds.admits(by);
        if enters {
            self.take(by);
        }
        enters
    }

    fn wait(&mut self, by: &Sharer) -> u64 {
        self.each.wait(by)
    }

    fn give_up(&mut self, by: &Sharer, ticket: u64) -> bool {
        self.each.give_up(by, ticket)
    }

    fn leave(&mut self, by: &Sharer) {
        self.each.leave(by);
        self.bounds.leave(by);
    }

    fn admit_next(&mut self) -> Option<(Sharer, u64)> {
        if self.bounds.all.free() == 0 {
            return None;
        }
        let next = self.next()?;
        let called = self.each.call(next)?;
        self.take(&called.0);
        self.note_turn(&called.0);
        Some(called)
    }
}

impl Bounds {
    fn admits(&self, by: &Sharer) -> bool {
        let is_within = |project| self.projects.admits(project) && self.users.admits(&by.name);
        self.all.admits(&party_of(by)) && by.within.as_ref().is_none_or(is_within)
    }

    /// How many its project holds, or it where it is in none.
    fn count_held(&self, by: &Sharer) -> usize {
        match &by.within {
            Some(project) => self.projects.count_held(project),
            None => self.all.count_held(&party_of(by)),
        }
    }

    fn take(&mut self, by: &Sharer) {
        self.all.take(&party_of(by));
        if let Some(project) = &by.within {
            self.projects.take(project);
            self.users.take(&by.name);
        }
    }

    fn leave(&mut self, by: &Sharer) {
        self.all.leave(&party_of(by));
        if let Some(project) = &by.within {
            self.projects.leave(project);
            self.users.leave(&by.name);
        }
    }
}

/// The party that one counts as among all.
fn party_of(by: &Sharer) -> Option<Arc<str>> {
    by.within.is_none().then(|| by.name.clone())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn one_party_alone_gets_half_of_what_is_reserved_at_most_and_all_of_what_is_open() {
        for (all, alone) in [(1, 1), (2, 1), (3, 2), (4, 2), (64, 28), (256, 112)] {
            let mut reserved = Places::with_reserve(all);
            assert_eq!(reserved.alone(), alone);
            assert_eq!(std::iter::from_fn(|| reserved.enter(&"a").then_some(())).count(), alone);
            assert!(all == 1 || reserved.is_share_used(&"a"), "{all}");
            let mut open = Places::open(all);
            assert_eq!(std::iter::from_fn(|| open.enter(&"a").then_some(())).count(), all);
        }
    }

    #[test]
    fn a_small_reserve_leaves_a_party_alone_nearly_three_quarters() {
        for (all, alone) in [(1, 1), (2, 2), (4, 3), (28, 18), (64, 42)] {
            let mut places = Places::with_small_reserve(all);
            assert_eq!(std::iter::from_fn(|| places.enter(&"a").then_some(())).count(), alone);
            assert!(all < 3 || places.enter(&"b"), "{all}");
        }
    }

    #[test]
    fn a_few_parties_leave_places_to_many_who_hold_none() {
        let mut places = Places::with_reserve(128);
        for party in 0..9 {
            while places.enter(&party) {}
        }
        let newcomers = (9..20).filter(|party| places.enter(party)).count();
        assert_eq!(newcomers, 11);
    }

    #[test]
    fn a_newcomer_gets_the_next_place_however_many_of_others_wait() {
        let mut places = Places::with_reserve(4);
        for party in ["a", "a", "b", "c"] {
            assert!(places.enter(&party), "{party}");
        }
        for _ in 0..10 {
            places.wait(&"a");
            places.wait(&"b");
        }
        let new = places.wait(&"new");
        places.leave(&"a");
        assert_eq!(places.admit_next(), Some(("new", new)));
        assert_eq!(places.admit_next(), None);
    }

    #[test]
    fn parties_take_turns_however_many_of_one_wait() {
        let mut places = Places::open(1);
        assert!(places.enter(&"a"));
        for party in ["a", "a", "a", "b", "b", "c"] {
            places.wait(&party);
        }
        let mut inside = "a";
        let turns = std::iter::from_fn(|| {
            places.leave(&inside);
            inside = places.admit_next()?.0;
            Some(inside)
        });
        assert_eq!(turns.collect::<String>(), "abcaba");
    }

    #[test]
    fn who_has_given_up_is_not_called() {
        let mut places = Places::open(1);
        assert!(places.enter(&"a"));
        let (first, second) = (places.wait(&"b"), places.wait(&"b"));
        assert!(places.give_up(&"b", first) && !places.give_up(&"b", first));
        places.leave(&"a");
        assert_eq!(places.admit_next(), Some(("b", second)));
        assert!(!places.give_up(&"b", second), "it was called");
    }

    fn agent(project: &str, user: &str) -> Sharer {
        Sharer { within: Some(project.into()), name: user.into() }
    }

    fn person(name: &str) -> Sharer {
        Sharer { within: None, name: name.into() }
    }

    /// Takes whatever one may have.
    fn fill(places: &mut SharedPlaces, by: &Sharer) -> usize {
        std::iter::from_fn(|| places.enter(by).then_some(())).count()
    }

    #[test]
    fn agents_leave_places_to_their_project_to_others_and_to_those_who_govern_them() {
        let mut places = SharedPlaces::new(64);
        let one = agent("project a", "user one");
        assert_eq!(fill(&mut places, &one), 12, "nearly half of what is for agents");
        assert!(places.enter(&agent("project a", "user two")));
        for n in 0..20 {
            fill(&mut places, &agent("project a", &format!("user {n}")));
        }
        assert!(fill(&mut places, &agent("project b", "user b")) >= 2);
        assert!(places.enter(&agent("project c", "user c")));
        assert!(fill(&mut places, &person("key ada")) >= 12);
        assert!(places.enter(&person("session ada")));
        let late = agent("project a", "user late");
        assert!(!places.enter(&late), "its project has what it may");
        let ticket = places.wait(&late);
        assert_eq!(places.admit_next(), None);
        (0..12).for_each(|_| places.leave(&one));
        assert_eq!(places.admit_next(), Some((late, ticket)));
    }

    #[test]
    fn users_who_wait_for_their_project_keep_nobody_of_another_from_coming_in() {
        let mut places = SharedPlaces::new(64);
        for n in 0..40 {
            let by = agent("project a", &format!("user {n}"));
            while places.enter(&by) {}
            places.wait(&by);
        }
        assert_eq!(places.admit_next(), None);
        assert!(fill(&mut places, &agent("project b", "user b")) >= 2);
        let mut small = SharedPlaces::new(1);
        let one = agent("project a", "user one");
        assert!(small.enter(&one) && !small.enter(&person("key ada")) && !small.is_idle());
        small.leave(&one);
        assert!(small.is_idle() && small.enter(&person("key ada")));
    }

    #[test]
    fn many_users_of_one_project_take_turns_with_another_and_with_who_governs_them() {
        let mut places = SharedPlaces::new(1);
        let mut inside = agent("project a", "user 0");
        assert!(places.enter(&inside));
        for n in 1..24 {
            places.wait(&agent("project a", &format!("user {n}")));
        }
        let late = [agent("project b", "user b"), person("key ada")];
        for by in &late {
            places.wait(by);
        }
        let turns = std::iter::from_fn(|| {
            places.leave(&inside);
            inside = places.admit_next()?.0;
            Some(inside.clone())
        });
        let turns: Vec<_> = turns.collect();
        assert_eq!(turns.len(), 25, "nobody is forgotten");
        assert!(late.iter().all(|by| turns[..4].contains(by)), "{:?}", &turns[..4]);
        assert!(places.is_idle());
        // One that comes back again and again is behind who waits.
        let (chain, waits) = (person("key chain"), person("key waits"));
        assert!(places.enter(&chain));
        let ticket = places.wait(&waits);
        places.wait(&chain);
        places.leave(&chain);
        assert_eq!(places.admit_next(), Some((waits, ticket)));
    }

    #[derive(Clone, Debug)]
    enum Step {
        Come(u8),
        Leave(usize),
        GiveUp(usize),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (0..5_u8).prop_map(Step::Come),
            2 => any::<usize>().prop_map(Step::Leave),
            1 => any::<usize>().prop_map(Step::GiveUp),
        ]
    }

    /// Those who are inside, and those who wait.
    type Inside<O> = Vec<<O as Seating>::Party>;
    type Outside<O> = Vec<(<O as Seating>::Party, u64)>;

    /// Takes steps, checks the places after each of them, and has everybody leave.
    fn play<O: Seating<Party: PartialEq>>(
        places: &mut O,
        steps: Vec<Step>,
        by: impl Fn(u8) -> O::Party,
        check: impl Fn(&O, &Inside<O>, &Outside<O>) -> Result<(), TestCaseError>,
    ) -> Result<(), TestCaseError> {
        let (mut inside, mut outside) = (Inside::<O>::new(), Outside::<O>::new());
        for step in steps {
            match step {
                Step::Come(party) if places.enter(&by(party)) => inside.push(by(party)),
                Step::Come(party) => outside.push((by(party), places.wait(&by(party)))),
                Step::Leave(n) if !inside.is_empty() => {
                    places.leave(&inside.remove(n % inside.len()));
                }
                Step::GiveUp(n) if !outside.is_empty() => {
                    let (party, ticket) = outside.remove(n % outside.len());
                    prop_assert!(places.give_up(&party, ticket));
                }
                Step::Leave(_) | Step::GiveUp(_) => {}
            }
            while let Some((party, ticket)) = places.admit_next() {
                let own = outside.iter().position(|(other, _)| *other == party);
                // Of one party, who came first goes first.
                let (_, first) = outside.remove(own.expect("only who waits is called"));
                prop_assert_eq!(ticket, first);
                inside.push(party);
            }
            check(places, &inside, &outside)?;
        }
        for (party, ticket) in outside {
            prop_assert!(places.give_up(&party, ticket));
        }
        inside.iter().for_each(|party| places.leave(party));
        Ok(())
    }

    proptest! {
        #[test]
        fn nobody_waits_who_could_be_let_in_and_nothing_is_lost(
            all in 1..20_usize,
            reserve in 0..3_usize,
            steps in proptest::collection::vec(step(), 0..200),
        ) {
            let mut places = match reserve {
                0 => Places::open(all),
                1 => Places::with_reserve(all),
                _ => Places::with_small_reserve(all),
            };
            play(&mut places, steps, |party| party, |places, inside, outside| {
                prop_assert!(inside.len() <= all);
                prop_assert_eq!(places.free(), all - inside.len());
                for (party, _) in outside {
                    let held = inside.iter().filter(|other| *other == party).count();
                    prop_assert_eq!(places.count_held(party), held);
                    let waiting = outside.iter().filter(|(other, _)| other == party).count();
                    prop_assert_eq!(places.count_waiting(party), waiting);
                    let share = if reserve > 0 && held > 0 { held + first_part(all) } else { 0 };
                    prop_assert!(places.free() <= share, "{} of {} free, {held} held", places.free(), all);
                }
                Ok(())
            })?;
            prop_assert_eq!(places.free(), all);
            prop_assert!(places.held.is_empty() && places.waiting.is_empty());
        }

        #[test]
        fn of_those_who_share_places_nobody_waits_who_could_be_let_in_and_nothing_is_lost(
            all in 1..40_usize,
            steps in proptest::collection::vec(step(), 0..200),
        ) {
            let sharers = [
                agent("project a", "user one"),
                agent("project a", "user two"),
                agent("project b", "user b"),
                person("key ada"),
                person("session ada"),
            ];
            let by = |party: u8| sharers[usize::from(party)].clone();
            let mut places = SharedPlaces::new(all);
            play(&mut places, steps, by, |places, inside, outside| {
                prop_assert!(inside.len() <= all);
                let pinned = inside.iter().filter(|by| by.within.is_some()).count();
                prop_assert!(pinned <= Places::<()>::with_reserve(all).alone());
                prop_assert!(outside.iter().all(|(by, _)| !places.bounds.admits(by)));
                Ok(())
            })?;
            prop_assert!(places.is_idle());
            prop_assert_eq!(places.bounds.all.free(), all);
            prop_assert!(places.bounds.projects.is_idle() && places.bounds.users.is_idle());
        }
    }
}

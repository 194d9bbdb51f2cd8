//! How many jobs may wait, and how many schedules there may be: an account for each organization
//! and kind, of all that calls of this process ask for and commit.
//!
//! Counts only; knows no row, and the names alone of those whose rows they are. Invariant: the rows of
//! the last count, all that this process has committed since that count began, and all that is in
//! flight are together no more than the limit.
//! A unit counts from the moment at which a guest asks for it until a count that began after its
//! commit. So calls of this process cannot go over a limit together, whatever they do between
//! asking and committing. An account may say too much, as rows end and a count may see a unit that
//! is in flight still; where it leaves no room, rows are counted anew. Each further replica may add
//! what its calls ask for until its next count.
//!
//! To count costs a look at each row. So a count is known for a moment, and one caller counts for
//! all; and so is, where many jobs were counted, that there is no room.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::job::room::{Beside, Part, Shared, Waiting};

/// How long a count is known far below the limit, and how long others rely on who counts anew.
const ROOM_KNOWN: Duration = Duration::from_millis(100);
/// How long it is known near the limit, and how long it is known that there is no room: little
/// beside the time after which to come again.
const NEAR_KNOWN: Duration = Duration::from_millis(25);
/// No count is relied on longer, whoever counts anew.
const KNOWN_MAX: Duration = Duration::from_secs(1);
/// Jobs that are counted as fast as anything is known.
const QUICK_MAX: u64 = 256;
/// Far below the limit is one part in so many of it.
const ROOM_PARTS: u64 = 4;
/// Accounts that are kept for later.
const ACCOUNTS_MAX: usize = 1_024;

/// The kind of work that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Jobs that wait or run.
    Job,
    /// Schedules.
    Schedule,
}

/// An account's name.
type Name = (Kind, String);

/// The accounts of all organizations.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    accounts: Mutex<HashMap<Name, Arc<Mutex<Account>>>>,
}

/// The work of one kind that an organization has, as far as this process knows.
#[derive(Debug, Default)]
struct Account {
    /// Asked for, and neither committed nor given up.
    in_flight: u64,
    /// Committed by this process since the account is kept; never less.
    committed: u64,
    /// The same of each project and user that shares what the organization has, by its name.
    shared: HashMap<String, Asked>,
    count: Option<Count>,
    /// When somebody began to count, until the first is done.
    counting: Option<Instant>,
}

/// The work that one of those who share has asked for.
#[derive(Debug, Default)]
struct Asked {
    in_flight: u64,
    /// Each commit since the last count: the account's `committed` behind it, and how much of that was this
    /// one's.
    committed: Vec<(u64, u64)>,
}

/// A count of committed rows.
#[derive(Debug)]
struct Count {
    rows: Waiting,
    /// The account's `committed` when it began: so many are surely among the rows, or have ended.
    start: CountStart,
    /// The greatest limit by which it left no room; 0 where there is none.
    full_at: u64,
    /// Those who had as much as they leave free.
    full_for: HashSet<String>,
    at: Instant,
}

/// The moment at which a count begins, as an account knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct CountStart(u64);

/// The answer to one who asks for one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// There is room, and it is taken.
    Admitted,
    /// There is no room.
    Full,
    /// Nobody knows: rows have to be counted from now on.
    Unknown(CountStart),
}

/// The work that one attempt has asked for and not committed; dropped, it is given up.
#[derive(Debug)]
pub(crate) struct AttemptCount {
    backlog: Arc<Backlog>,
    own: HashMap<Name, Own>,
}

#[derive(Debug)]
struct Own {
    /// Held, so that the account is kept.
    account: Arc<Mutex<Account>>,
    asked: u64,
    /// The same by the names of those who share.
    shared: HashMap<String, u64>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Backlog {
    /// An attempt that has asked for nothing yet.
    pub(crate) fn attempt(self: &Arc<Self>) -> AttemptCount {
        AttemptCount { backlog: self.clone(), own: HashMap::new() }
    }

    /// The account of that name. One that no attempt holds may be forgotten: nothing of it is in
    /// flight, and the next who asks counts.
    fn account(&self, name: &Name) -> Arc<Mutex<Account>> {
        let mut accounts = lock(&self.accounts);
        if let Some(account) = accounts.get(name) {
            return account.clone();
        }
        if accounts.len() >= ACCOUNTS_MAX {
            accounts.retain(|_, account| Arc::strong_count(account) > 1);
        }
        accounts.entry(name.clone()).or_default().clone()
    }
}

impl Account {
    /// No more than so many stand or are in flight beside those that were counted then.
    fn since(&self, count: &Count, part: &Part) -> Beside {
        let of = |name: &str| {
            self.shared.get(name).map_or(0, |asked| {
                let since = asked.committed.iter().filter(|(at, _)| *at > count.start.0);
                since.map(|(_, many)| many).sum::<u64>() + asked.in_flight
            })
        };
        let all = self.committed.saturating_sub(count.start.0).saturating_add(self.in_flight);
        match part.sharer() {
            Some(Shared { project, own }) => Beside { all, project: of(project), own: of(own) },
            None => Beside { all, ..Beside::default() },
        }
    }

    /// Counts one more that is in flight.
    fn add(&mut self, part: &Part) {
        self.in_flight += 1;
        for name in names(part) {
            self.shared.entry(name.to_owned()).or_default().in_flight += 1;
        }
    }

    /// So much is in flight no more; committed or given up.
    fn end(&mut self, asked: u64, shared: &HashMap<String, u64>, committed: bool) {
        self.in_flight = self.in_flight.saturating_sub(asked);
        if committed {
            self.committed = self.committed.saturating_add(asked);
        }
        for (name, many) in shared {
            let of_name = self.shared.entry(name.clone()).or_default();
            of_name.in_flight = of_name.in_flight.saturating_sub(*many);
            if committed {
                of_name.committed.push((self.committed, *many));
            }
        }
        self.forget();
    }

    /// Forgets what the last count has seen of each who shares.
    fn forget(&mut self) {
        let start = self.count.as_ref().map_or(0, |count| count.start.0);
        self.shared.retain(|_, asked| {
            asked.committed.retain(|(at, _)| *at > start);
            asked.in_flight > 0 || !asked.committed.is_empty()
        });
    }

    /// Asks for one more, without a count where enough is known.
    fn ask(&mut self, part: &Part) -> Verdict {
        if let Some(count) = &self.count {
            let (since, age) = (self.since(count, part), count.at.elapsed());
            if count.is_full(part) && age < NEAR_KNOWN {
                return Verdict::Full;
            }
            let most = count.rows.all().saturating_add(since.all);
            let is_far = most.saturating_mul(ROOM_PARTS) <= part.max();
            let known = if is_far { ROOM_KNOWN } else { NEAR_KNOWN };
            let others_count = self.counting.is_some_and(|begun| begun.elapsed() < ROOM_KNOWN);
            let leaves = count.rows.leaves_beside(since, part);
            if leaves && (age < known || (others_count && age < KNOWN_MAX)) {
                self.add(part);
                return Verdict::Admitted;
            }
        }
        self.counting = Some(Instant::now());
        Verdict::Unknown(CountStart(self.committed))
    }

    /// Asks for one more, once rows were counted. Of two counts the one that began later is kept.
    fn ask_by_count(&mut self, kind: Kind, start: CountStart, rows: Waiting, part: &Part) -> bool {
        self.counting = None;
        let mut count = match self.count.take() {
            Some(count) if count.start > start => count,
            _ => Count { rows, start, full_at: 0, full_for: HashSet::new(), at: Instant::now() },
        };
        let since = self.since(&count, part);
        let is_admitted = count.rows.leaves_beside(since, part);
        // The place of a removed schedule is free at once.
        if !is_admitted && kind == Kind::Job && count.rows.all() >= QUICK_MAX {
            let is_its_own = count.rows.all().saturating_add(since.all) < part.max();
            match part.sharer().filter(|_| is_its_own) {
                Some(sharer) => drop(count.full_for.insert(sharer.own.clone())),
                None => count.full_at = count.full_at.max(part.max()),
            }
        }
        self.count = Some(count);
        if is_admitted {
            self.add(part);
        }
        self.forget();
        is_admitted
    }
}

impl Count {
    /// Whether it left no room for this part, or for a larger one.
    fn is_full(&self, part: &Part) -> bool {
        let is_used = part.sharer().is_some_and(|sharer| self.full_for.contains(&sharer.own));
        is_used || part.max() <= self.full_at
    }
}

/// The names of those who share a part.
fn names(part: &Part) -> impl Iterator<Item = &str> {
    part.sharer().into_iter().flat_map(|Shared { project, own }| [project.as_str(), own.as_str()])
}

impl Own {
    fn add(&mut self, part: &Part) {
        self.asked += 1;
        for name in names(part) {
            *self.shared.entry(name.to_owned()).or_default() += 1;
        }
    }
}

impl AttemptCount {
    fn own(&mut self, kind: Kind, organization: &str) -> &mut Own {
        let backlog = &self.backlog;
        let own = self.own.entry((kind, organization.to_owned()));
        own.or_insert_with_key(|name| Own {
            account: backlog.account(name),
            asked: 0,
            shared: HashMap::new(),
        })
    }

    /// Asks for one more, in that part of what an organization may have.
    pub(crate) fn ask(&mut self, kind: Kind, organization: &str, part: &Part) -> Verdict {
        let own = self.own(kind, organization);
        let verdict = lock(&own.account).ask(part);
        if verdict == Verdict::Admitted {
            own.add(part);
        }
        verdict
    }

    /// The same once nobody knew, with the start of the count and the rows that it found. False
    /// where there is no room.
    pub(crate) fn ask_by_count(
        &mut self,
        kind: Kind,
        organization: &str,
        (start, rows): (CountStart, Waiting),
        part: &Part,
    ) -> bool {
        let own = self.own(kind, organization);
        let is_admitted = lock(&own.account).ask_by_count(kind, start, rows, part);
        if is_admitted {
            own.add(part);
        }
        is_admitted
    }

    /// All that was asked for so far is committed.
    pub(crate) fn commit(&mut self) {
        for own in self.own.values_mut() {
            let (asked, shared) = (std::mem::take(&mut own.asked), std::mem::take(&mut own.shared));
            lock(&own.account).end(asked, &shared, true);
        }
    }
}

impl Drop for AttemptCount {
    fn drop(&mut self) {
        for own in self.own.values() {
            lock(&own.account).end(own.asked, &own.shared, false);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Asks for one more, and counts so many rows where nobody knows.
    fn ask(attempt: &mut AttemptCount, (kind, organization): (Kind, &str), rows: u64) -> bool {
        let part = Part::whole(10);
        match attempt.ask(kind, organization, &part) {
            Verdict::Admitted => true,
            Verdict::Full => false,
            Verdict::Unknown(start) => {
                let counted = (start, Waiting::of_organization(rows));
                attempt.ask_by_count(kind, organization, counted, &part)
            }
        }
    }

    /// The start of a count that has to be made.
    fn start(attempt: &mut AttemptCount, kind: Kind, max: u64) -> CountStart {
        match attempt.ask(kind, "a", &Part::whole(max)) {
            Verdict::Unknown(start) => start,
            known => panic!("it is known: {known:?}"),
        }
    }

    /// Asks for one more of the organization's own by a count of its rows.
    fn count(
        attempt: &mut AttemptCount,
        kind: Kind,
        (start, rows): (CountStart, u64),
        max: u64,
    ) -> bool {
        let counted = (start, Waiting::of_organization(rows));
        attempt.ask_by_count(kind, "a", counted, &Part::whole(max))
    }

    #[test]
    fn calls_in_flight_do_not_go_over_a_limit_together() {
        let jobs = (Kind::Job, "a");
        let backlog = Arc::new(Backlog::default());
        let (mut first, mut second) = (backlog.attempt(), backlog.attempt());
        assert!(ask(&mut first, jobs, 7) && ask(&mut second, jobs, 7));
        assert!(ask(&mut first, jobs, 7), "the tenth");
        assert!(!ask(&mut first, jobs, 7) && !ask(&mut second, jobs, 7));
        assert!(ask(&mut second, (Kind::Job, "b"), 0), "another organization has its own room");
        assert!(ask(&mut second, (Kind::Schedule, "a"), 0), "and so have schedules");
        drop(first);
        assert!(ask(&mut second, jobs, 7), "what was not committed counts no more");
    }

    #[test]
    fn what_others_commit_counts_for_who_asked_before() {
        let jobs = (Kind::Job, "a");
        let backlog = Arc::new(Backlog::default());
        let mut attempts = [(); 3].map(|()| backlog.attempt());
        for attempt in &mut attempts {
            assert!(ask(attempt, jobs, 0));
        }
        let mut rows = 0;
        for mut attempt in attempts {
            let more = (0..10).filter(|_| ask(&mut attempt, jobs, rows)).count();
            assert_eq!(more, if rows == 0 { 7 } else { 0 }, "three are in flight from the start");
            attempt.commit();
            rows += 1 + u64::try_from(more).unwrap();
        }
        assert_eq!(rows, 10);
        assert!(!ask(&mut backlog.attempt(), jobs, rows));
        assert!(ask(&mut backlog.attempt(), jobs, rows - 1), "one has ended");
    }

    #[tokio::test]
    async fn a_count_is_known_for_a_moment_and_shorter_near_the_limit() {
        tokio::time::pause();
        let backlog = Arc::new(Backlog::default());
        let mut attempt = backlog.attempt();
        let first = start(&mut attempt, Kind::Job, 100);
        assert!(count(&mut attempt, Kind::Job, (first, 23), 100));
        tokio::time::advance(NEAR_KNOWN).await;
        assert_eq!(attempt.ask(Kind::Job, "a", &Part::whole(100)), Verdict::Admitted);
        assert_eq!(attempt.ask(Kind::Job, "a", &Part::whole(100)), Verdict::Admitted);
        // More than a quarter now.
        let second = start(&mut attempt, Kind::Job, 100);
        let mut other = backlog.attempt();
        assert_eq!(
            other.ask(Kind::Job, "a", &Part::whole(100)),
            Verdict::Admitted,
            "somebody counts already"
        );
        assert!(count(&mut attempt, Kind::Job, (second, 23), 100));
        assert_eq!(other.ask(Kind::Job, "a", &Part::whole(100)), Verdict::Admitted);
        tokio::time::advance(NEAR_KNOWN).await;
        start(&mut other, Kind::Job, 100);
        tokio::time::advance(ROOM_KNOWN).await;
        start(&mut other, Kind::Job, 100);
        tokio::time::advance(KNOWN_MAX).await;
        start(&mut attempt, Kind::Job, 100);
        start(&mut other, Kind::Job, 100);
    }

    #[tokio::test]
    async fn that_there_is_no_room_is_known_for_a_moment_where_many_jobs_were_counted() {
        tokio::time::pause();
        let backlog = Arc::new(Backlog::default());
        let mut attempt = backlog.attempt();
        for (kind, max, is_known) in
            [(Kind::Job, 9_000, true), (Kind::Job, 100, false), (Kind::Schedule, 9_000, false)]
        {
            let first = start(&mut attempt, kind, max);
            assert!(!count(&mut attempt, kind, (first, max), max));
            assert_eq!(
                attempt.ask(kind, "a", &Part::whole(max)) == Verdict::Full,
                is_known,
                "{kind:?} {max}"
            );
            tokio::time::advance(NEAR_KNOWN).await;
            start(&mut attempt, kind, max);
        }
    }

    #[tokio::test]
    async fn one_who_may_have_less_finds_no_room_where_others_do() {
        tokio::time::pause();
        let backlog = Arc::new(Backlog::default());
        let mut attempt = backlog.attempt();
        let first = start(&mut attempt, Kind::Job, 300);
        assert!(!count(&mut attempt, Kind::Job, (first, 300), 300));
        assert_eq!(attempt.ask(Kind::Job, "a", &Part::whole(300)), Verdict::Full);
        assert_eq!(attempt.ask(Kind::Job, "a", &Part::whole(600)), Verdict::Admitted);
        assert_eq!(attempt.ask(Kind::Job, "a", &Part::whole(200)), Verdict::Full);
    }

    #[tokio::test]
    async fn one_who_has_as_much_as_is_free_finds_no_more_and_others_do() {
        tokio::time::pause();
        let backlog = Arc::new(Backlog::default());
        let [mut attempt, mut other] = [(); 2].map(|()| backlog.attempt());
        let part = |user| Part::of_group(600, &format!("a/shop/pinned/p/{user}"));
        let counted = || Waiting::of_groups(&[("a/shop/pinned/p/one".to_owned(), 299)]);
        let ask = |attempt: &mut AttemptCount, user| match attempt.ask(Kind::Job, "a", &part(user))
        {
            Verdict::Unknown(start) => {
                attempt.ask_by_count(Kind::Job, "a", (start, counted()), &part(user))
            }
            known => known == Verdict::Admitted,
        };
        assert!(ask(&mut attempt, "one") && !ask(&mut attempt, "one"));
        // Without a count, for a moment.
        assert_eq!(attempt.ask(Kind::Job, "a", &part("one")), Verdict::Full);
        assert!((0..100).all(|_| ask(&mut other, "two")));
        assert_eq!(attempt.ask(Kind::Job, "a", &Part::whole(600)), Verdict::Admitted);
        tokio::time::advance(NEAR_KNOWN).await;
        assert!(matches!(attempt.ask(Kind::Job, "a", &part("one")), Verdict::Unknown(_)));
    }

    #[test]
    fn the_later_of_two_counts_is_kept() {
        let backlog = Arc::new(Backlog::default());
        let (mut first, mut second) = (backlog.attempt(), backlog.attempt());
        let early = start(&mut first, Kind::Job, 10);
        assert!(ask(&mut second, (Kind::Job, "a"), 0));
        second.commit();
        let late = start(&mut backlog.attempt(), Kind::Job, 1);
        assert!(late > early);
        assert!(count(&mut second, Kind::Job, (late, 0), 1));
        drop(second);
        // By the earlier one alone the job that has ended would still stand.
        assert!(count(&mut first, Kind::Job, (early, 0), 1));
    }

    #[test]
    fn accounts_that_nobody_holds_are_forgotten_before_they_are_many() {
        let backlog = Arc::new(Backlog::default());
        let mut held = backlog.attempt();
        assert!((0..10).all(|_| ask(&mut held, (Kind::Job, "a"), 0)));
        for n in 0..2 * ACCOUNTS_MAX {
            assert!(ask(&mut backlog.attempt(), (Kind::Job, &n.to_string()), 0));
        }
        assert!(lock(&backlog.accounts).len() <= ACCOUNTS_MAX);
        assert!(!ask(&mut backlog.attempt(), (Kind::Job, "a"), 0), "ten are in flight");
    }

    /// An attempt as a test plays it.
    struct Played {
        count: AttemptCount,
        /// Admitted and not committed.
        asked: u64,
        /// The unit is committed, and the attempt does not know it yet.
        landed: bool,
        /// A count that began, and the rows that it found.
        counting: Option<(CountStart, Option<u64>)>,
    }

    impl Played {
        fn new(backlog: &Arc<Backlog>) -> Self {
            Self { count: backlog.attempt(), asked: 0, landed: false, counting: None }
        }
    }

    proptest! {
        #[test]
        fn whatever_calls_do_between_asking_and_committing_the_limit_holds(
            steps in prop::collection::vec((0_usize..3, 0_u8..9), 0..120),
        ) {
            const MAX: u64 = 6;
            let backlog = Arc::new(Backlog::default());
            let mut attempts = [(); 3].map(|()| Played::new(&backlog));
            let mut rows = 0_u64;
            for (attempt, step) in steps {
                let played = &mut attempts[attempt];
                match (step, played.counting) {
                    // Rows end at any moment.
                    (0, _) => rows = rows.saturating_sub(1),
                    (1, _) if !played.landed => *played = Played::new(&backlog),
                    (2, None) if !played.landed => {
                        rows += played.asked;
                        played.landed = true;
                    }
                    (2, None) => {
                        played.count.commit();
                        (played.asked, played.landed) = (0, false);
                    }
                    (_, Some((start, None))) => played.counting = Some((start, Some(rows))),
                    (_, Some((start, Some(counted)))) => {
                        let counted = (start, counted.min(MAX));
                        let admitted = count(&mut played.count, Kind::Job, counted, MAX);
                        played.asked += u64::from(admitted);
                        played.counting = None;
                    }
                    (3.., None) if !played.landed => match played.count.ask(Kind::Job, "a", &Part::whole(MAX)) {
                        Verdict::Admitted => played.asked += 1,
                        Verdict::Full => {}
                        Verdict::Unknown(start) => played.counting = Some((start, None)),
                    },
                    _ => {}
                }
                let open = attempts.iter().filter(|played| !played.landed);
                let in_flight: u64 = open.map(|played| played.asked).sum();
                prop_assert!(rows + in_flight <= MAX, "{rows} rows, {in_flight} in flight");
            }
            for mut played in attempts {
                if played.landed {
                    played.count.commit();
                }
            }
            let mut last = backlog.attempt();
            let more = (0..=MAX).filter(|_| match last.ask(Kind::Job, "a", &Part::whole(MAX)) {
                Verdict::Admitted => true,
                Verdict::Full => false,
                Verdict::Unknown(start) => {
                    count(&mut last, Kind::Job, (start, rows), MAX)
                }
            });
            prop_assert_eq!(rows + u64::try_from(more.count()).unwrap(), MAX, "no less either");
        }
    }
}

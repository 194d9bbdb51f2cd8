//! How many jobs may wait, and how many schedules there may be: for each organization, what is
//! committed and what the calls in flight have asked for.
//!
//! Counts only; knows no row. Calls of this process cannot go over a limit together; each further
//! replica may add what its own calls in flight ask for.
//!
//! To count what is committed costs a look at each of it. So a count of jobs is known for a moment
//! where it is far below the limit; and so is, where many were counted, that there is no room.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How long a count is known that leaves room.
const ROOM_KNOWN: Duration = Duration::from_millis(100);
/// How long it is known that there is none: little beside the time after which to come again.
const FULL_KNOWN: Duration = Duration::from_millis(25);
/// Jobs that are counted as fast as anything is known.
const QUICK_MAX: u64 = 256;
/// A count is known below one part in so many of the limit, what was asked for since included.
const ROOM_PARTS: u64 = 4;
/// Organizations whose counts are known.
const KNOWN_MAX: usize = 1_024;

/// The kind of work that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    /// Jobs that wait or run.
    Job,
    /// Schedules.
    Schedule,
}

type Counts = HashMap<(Kind, String), u64>;

/// The work that all calls in flight have asked for.
#[derive(Debug, Default)]
pub(crate) struct Backlog {
    asked: Mutex<Counts>,
    /// Jobs, by organization.
    known: Mutex<HashMap<String, Known>>,
}

/// A count of committed jobs.
#[derive(Debug)]
struct Known {
    committed: u64,
    /// Asked for since, whatever became of it.
    since: u64,
    is_full: bool,
    at: Instant,
}

/// A guess about an organization's jobs without a count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guess {
    /// No more than so many are committed.
    Room(u64),
    /// There is no room for more.
    Full,
    /// Nothing.
    Unknown,
}

/// The work that one attempt has asked for; it counts until this is dropped.
#[derive(Debug)]
pub(crate) struct AttemptCount {
    backlog: Arc<Backlog>,
    own: Counts,
    committed: Counts,
}

impl Backlog {
    /// An attempt that has asked for nothing yet.
    pub(crate) fn attempt(self: &Arc<Self>) -> AttemptCount {
        AttemptCount { backlog: self.clone(), own: Counts::new(), committed: Counts::new() }
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lookup(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The guess about an organization's jobs.
    pub(crate) fn guess(&self, organization: &str, max: u64) -> Guess {
        let known = self.lookup();
        let Some(Known { committed, since, is_full, at }) = known.get(organization) else {
            return Guess::Unknown;
        };
        let (most, age) = (committed.saturating_add(*since), at.elapsed());
        if *is_full && age < FULL_KNOWN {
            Guess::Full
        } else if !is_full && age < ROOM_KNOWN && most.saturating_mul(ROOM_PARTS) <= max {
            Guess::Room(most)
        } else {
            Guess::Unknown
        }
    }

    /// Takes note of a count, and whether more were refused by it.
    pub(crate) fn note(&self, organization: &str, committed: u64, is_full: bool) {
        // Those in flight may be committed behind the count.
        let asked = self.counts().get(&(Kind::Job, organization.to_owned())).copied();
        let mut known = self.lookup();
        if known.len() >= KNOWN_MAX {
            known.retain(|_, known| known.at.elapsed() < ROOM_KNOWN);
        }
        if (is_full && committed < QUICK_MAX) || known.len() >= KNOWN_MAX {
            known.remove(organization);
            return;
        }
        let since = asked.unwrap_or(0);
        let counted = Known { committed, since, is_full, at: Instant::now() };
        known.insert(organization.to_owned(), counted);
    }
}

impl AttemptCount {
    /// How many were committed when this attempt first asked; `None` while it has not.
    pub(crate) fn count_at_start(&self, kind: Kind, organization: &str) -> Option<u64> {
        self.committed.get(&(kind, organization.to_owned())).copied()
    }

    /// Asks for one more beside those that are committed; false where there would be more than
    /// `max`.
    pub(crate) fn add(&mut self, kind: Kind, organization: &str, committed: u64, max: u64) -> bool {
        let key = (kind, organization.to_owned());
        self.committed.insert(key.clone(), committed);
        let mut counts = self.backlog.counts();
        let asked = counts.get(&key).copied().unwrap_or(0);
        if committed.saturating_add(asked) >= max {
            return false;
        }
        *counts.entry(key.clone()).or_default() += 1;
        *self.own.entry(key).or_default() += 1;
        drop(counts);
        if kind == Kind::Job
            && let Some(known) = self.backlog.lookup().get_mut(organization)
        {
            known.since += 1;
        }
        true
    }
}

impl Drop for AttemptCount {
    fn drop(&mut self) {
        if self.own.is_empty() {
            return;
        }
        let mut counts = self.backlog.counts();
        for (key, own) in self.own.drain() {
            let left = counts.get(&key).copied().unwrap_or(0).saturating_sub(own);
            match left {
                0 => counts.remove(&key),
                left => counts.insert(key, left),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn calls_in_flight_do_not_go_over_a_limit_together() {
        let backlog = Arc::new(Backlog::default());
        let (mut first, mut second) = (backlog.attempt(), backlog.attempt());
        assert!(first.add(Kind::Job, "a", 7, 10) && second.add(Kind::Job, "a", 7, 10));
        assert!(first.add(Kind::Job, "a", 7, 10), "the tenth");
        assert!(!first.add(Kind::Job, "a", 7, 10) && !second.add(Kind::Job, "a", 7, 10));
        assert!(second.add(Kind::Job, "b", 0, 10), "another organization has room of its own");
        assert!(second.add(Kind::Schedule, "a", 0, 10), "and so have schedules");
        drop(first);
        assert!(second.add(Kind::Job, "a", 7, 10), "what was not committed counts no more");
        assert_eq!(second.count_at_start(Kind::Job, "a"), Some(7));
        assert_eq!(second.count_at_start(Kind::Schedule, "b"), None);
        drop(second);
        assert!(backlog.counts().is_empty());
    }

    #[test]
    fn a_count_is_known_where_it_is_far_below_the_limit_and_a_refusal_where_many_were_counted() {
        let backlog = Arc::new(Backlog::default());
        assert_eq!(backlog.guess("a", 100), Guess::Unknown);
        backlog.note("a", 23, false);
        assert_eq!(backlog.guess("a", 100), Guess::Room(23));
        let mut attempt = backlog.attempt();
        assert!(attempt.add(Kind::Job, "a", 23, 100) && attempt.add(Kind::Schedule, "a", 0, 1));
        assert_eq!(backlog.guess("a", 100), Guess::Room(24), "whatever becomes of it");
        assert!(attempt.add(Kind::Job, "a", 23, 100) && attempt.add(Kind::Job, "a", 23, 100));
        assert_eq!(backlog.guess("a", 100), Guess::Unknown, "more than a quarter");
        backlog.note("a", 10, false);
        assert_eq!(backlog.guess("a", 100), Guess::Room(13), "three are in flight");
        backlog.note("a", 100, true);
        assert_eq!(backlog.guess("a", 100), Guess::Unknown, "these are counted again");
        backlog.note("a", 9_000, true);
        assert_eq!(backlog.guess("a", 10_000), Guess::Full, "what others ask for takes the rest");
        for n in 0..2 * KNOWN_MAX {
            backlog.note(&n.to_string(), 0, false);
        }
        assert!(backlog.lookup().len() <= KNOWN_MAX);
    }

    proptest! {
        #[test]
        fn whatever_is_asked_for_no_organization_goes_over_its_limit(
            asks in prop::collection::vec((0_usize..3, 0_usize..3, any::<bool>()), 0..60),
            committed in 0_u64..5,
        ) {
            const MAX: u64 = 6;
            let backlog = Arc::new(Backlog::default());
            let mut attempts: Vec<_> = (0..3).map(|_| (backlog.attempt(), [0_u64; 3])).collect();
            for (attempt, organization, ends) in asks {
                if ends {
                    attempts[attempt] = (backlog.attempt(), [0; 3]);
                    continue;
                }
                let asked: u64 = attempts.iter().map(|(_, own)| own[organization]).sum();
                let (own, granted) = &mut attempts[attempt];
                let name = ["a", "b", "c"][organization];
                let added = own.add(Kind::Job, name, committed, MAX);
                prop_assert_eq!(added, committed + asked < MAX, "neither more nor less");
                granted[organization] += u64::from(added);
            }
            drop(attempts);
            prop_assert!(backlog.counts().is_empty());
        }
    }
}

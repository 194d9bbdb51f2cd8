//! How many jobs may wait, and how many schedules there may be: for each organization, what is
//! committed and what the calls in flight have asked for.
//!
//! Counts only; knows no row. Calls of this process cannot go over a limit together; each further
//! replica may add what its own calls in flight ask for.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
pub(crate) struct Backlog(Mutex<Counts>);

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
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

//! The lease groups in which this process has just put rows that are due: whoever takes rows there is woken
//! and looks at those first, and finds the rest by reading.
//!
//! A hint is no promise: others may have taken the rows, and what finds no room here is read later.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use charter_kernel::time::Instant;
use charter_kernel::unit::{Space, Unit, Write};
use tokio::sync::Notify;

/// Groups of a space that one who asks has not been told of yet.
const HINTS_MAX: usize = 1_024;

/// Those who take due rows, by the space that they take from.
#[derive(Debug, Default)]
pub(crate) struct Hints(Mutex<HashMap<Space, Vec<Weak<Told>>>>);

/// The groups of one space for one who takes rows there.
#[derive(Debug, Default)]
pub struct Told {
    groups: Mutex<BTreeSet<String>>,
    named: Notify,
}

impl Told {
    /// Those that were named since it was asked the last time: many of them, and not always all.
    pub fn take(&self) -> BTreeSet<String> {
        std::mem::take(&mut *lock(&self.groups))
    }

    /// Waits until one is named, or returns at once where one was since it was waited for the last time.
    pub async fn wait(&self) {
        self.named.notified().await;
    }

    fn name(&self, group: &str) {
        let mut groups = lock(&self.groups);
        if groups.len() < HINTS_MAX {
            groups.insert(group.to_owned());
        }
        drop(groups);
        self.named.notify_one();
    }
}

impl Hints {
    /// For one who takes rows of this space, as long as it keeps this.
    pub(crate) fn subscribe(&self, space: &Space) -> Arc<Told> {
        let told = Arc::new(Told::default());
        let mut spaces = lock(&self.0);
        let all = spaces.entry(space.clone()).or_default();
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&told));
        told
    }

    /// The groups of a unit that are of a space which somebody takes rows from, and due.
    pub(crate) fn of(&self, unit: &Unit, now: Instant) -> Vec<(Space, String)> {
        let drafts = unit.writes.iter().filter_map(|write| match write {
            Write::Insert { key, draft } | Write::Replace { key, draft, .. } => {
                Some((key, draft.lease.as_ref()?))
            }
            _ => None,
        });
        let due = drafts.filter(|(key, (_, due_at))| *due_at <= now && is_host(&key.space));
        let due: Vec<_> = due.map(|(key, (group, _))| (key.space.clone(), group.clone())).collect();
        if due.is_empty() {
            return due;
        }
        let spaces = lock(&self.0);
        due.into_iter().filter(|(space, _)| spaces.contains_key(space)).collect()
    }

    /// These were committed.
    pub(crate) fn note(&self, found: &[(Space, String)]) {
        if found.is_empty() {
            return;
        }
        let spaces = lock(&self.0);
        for (space, group) in found {
            let all = spaces.get(space).into_iter().flatten().filter_map(Weak::upgrade);
            all.for_each(|told| told.name(group));
        }
    }
}

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

fn is_host(space: &Space) -> bool {
    space.as_str().starts_with("host.")
}

#[cfg(test)]
mod tests {
    use charter_kernel::unit::{Draft, Key, Reach};

    use super::*;

    fn insert(space: Space, group: &str, due_at: i64) -> Write {
        Write::Insert {
            key: Key::new(&Reach::organization("o"), &space, group),
            draft: Draft { lease: Some((group.to_owned(), Instant(due_at))), ..Draft::default() },
        }
    }

    #[test]
    fn groups_of_what_is_due_are_told_once_to_each_who_asks_for_their_space() {
        let (hints, now) = (Hints::default(), Instant(10));
        let jobs = || Space::host("jobs");
        let Write::Insert { key, draft } = insert(jobs(), "changed", 9) else { unreachable!() };
        let writes = vec![
            insert(jobs(), "due", 10),
            insert(jobs(), "later", 11),
            insert(Space::host("mails"), "other", 1),
            insert(Space::of("shelf", "books"), "guest's", 1),
            Write::Replace { key, draft, expected: None },
        ];
        let unit = Unit { writes, ..Unit::default() };
        assert!(hints.of(&unit, now).is_empty(), "nobody asks");
        let (one, other) = (hints.subscribe(&jobs()), hints.subscribe(&jobs()));
        hints.note(&hints.of(&unit, now));
        for told in [&one, &other] {
            assert_eq!(told.take(), BTreeSet::from(["due".to_owned(), "changed".to_owned()]));
            assert!(told.take().is_empty());
        }
        drop(one);
        hints.note(&hints.of(&unit, now));
        assert_eq!(other.take().len(), 2);
    }

    #[tokio::test]
    async fn who_waits_is_woken_and_what_was_named_before_ends_the_wait_at_once() {
        let (hints, space) = (Hints::default(), Space::host("jobs"));
        let told = hints.subscribe(&space);
        let unit = Unit { writes: vec![insert(space, "due", 1)], ..Unit::default() };
        hints.note(&hints.of(&unit, Instant(1)));
        told.wait().await;
        let mut wait = std::pin::pin!(told.wait());
        assert!(futures::poll!(wait.as_mut()).is_pending());
        hints.note(&hints.of(&unit, Instant(1)));
        wait.await;
    }
}

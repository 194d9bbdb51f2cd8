//! Bells: whoever takes due rows of a space is woken once this process has put some there, looks at their
//! lease groups first, and finds the rest by reading.
//!
//! A bell is no promise: others may have taken the rows, and what finds no room here is read later.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use charter_kernel::time::Instant;
use charter_kernel::unit::{Space, Unit, Write};
use tokio::sync::Notify;

/// Groups that a bell remembers.
const GROUPS_MAX: usize = 1_024;

/// The bells, by the space that their owners take rows from.
#[derive(Debug, Default)]
pub(crate) struct Bells(Mutex<HashMap<Space, Vec<Weak<Bell>>>>);

/// The bell of one who takes rows of one space.
#[derive(Debug, Default)]
pub struct Bell {
    groups: Mutex<BTreeSet<String>>,
    rung: Notify,
}

impl Bell {
    /// The groups that it was rung for since it was asked the last time: many of them, and not always all.
    pub fn take(&self) -> BTreeSet<String> {
        std::mem::take(&mut *lock(&self.groups))
    }

    /// Waits until it is rung, or returns at once where it was since it was waited for the last time.
    pub async fn wait(&self) {
        self.rung.notified().await;
    }

    fn ring(&self, group: &str) {
        let mut groups = lock(&self.groups);
        if groups.len() < GROUPS_MAX {
            groups.insert(group.to_owned());
        }
        drop(groups);
        self.rung.notify_one();
    }
}

impl Bells {
    /// One for this space, as long as it is kept.
    pub(crate) fn hang(&self, space: &Space) -> Arc<Bell> {
        let bell = Arc::new(Bell::default());
        let mut spaces = lock(&self.0);
        let all = spaces.entry(space.clone()).or_default();
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&bell));
        bell
    }

    /// The groups of a unit that are due, of a space that has a bell.
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
    pub(crate) fn ring(&self, found: &[(Space, String)]) {
        if found.is_empty() {
            return;
        }
        let spaces = lock(&self.0);
        for (space, group) in found {
            let all = spaces.get(space).into_iter().flatten().filter_map(Weak::upgrade);
            all.for_each(|bell| bell.ring(group));
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
    fn each_bell_of_a_space_rings_once_for_the_groups_of_what_is_due() {
        let (bells, now) = (Bells::default(), Instant(10));
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
        assert!(bells.of(&unit, now).is_empty(), "there is no bell");
        let (one, other) = (bells.hang(&jobs()), bells.hang(&jobs()));
        bells.ring(&bells.of(&unit, now));
        for bell in [&one, &other] {
            assert_eq!(bell.take(), BTreeSet::from(["due".to_owned(), "changed".to_owned()]));
            assert!(bell.take().is_empty());
        }
        drop(one);
        bells.ring(&bells.of(&unit, now));
        assert_eq!(other.take().len(), 2);
    }

    #[tokio::test]
    async fn a_bell_wakes_who_waits_and_ends_the_wait_at_once_where_it_was_rung_before() {
        let (bells, space) = (Bells::default(), Space::host("jobs"));
        let bell = bells.hang(&space);
        let unit = Unit { writes: vec![insert(space, "due", 1)], ..Unit::default() };
        bells.ring(&bells.of(&unit, Instant(1)));
        bell.wait().await;
        let mut wait = std::pin::pin!(bell.wait());
        assert!(futures::poll!(wait.as_mut()).is_pending());
        bells.ring(&bells.of(&unit, Instant(1)));
        wait.await;
    }
}

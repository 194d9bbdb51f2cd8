//! The lease groups in which this process has just put rows that are due: whoever takes rows there looks
//! at those first, and finds the rest by reading.
//!
//! A hint is no promise: others may have taken the rows, and what finds no room here is read later.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use charter_kernel::time::Instant;
use charter_kernel::unit::{Space, Unit, Write};

/// Groups of a space that nobody has asked for yet.
const HINTS_MAX: usize = 1_024;

/// The groups, by the spaces that somebody asks for.
#[derive(Debug, Default)]
pub(crate) struct Hints(Mutex<HashMap<Space, BTreeSet<String>>>);

impl Hints {
    /// The groups of a unit that are of a space which somebody asks for, and due.
    pub(crate) fn of(&self, unit: &Unit, now: Instant) -> Vec<(Space, String)> {
        let inserts = unit.writes.iter().filter_map(|write| match write {
            Write::Insert { key, draft } => Some((key, draft.lease.as_ref()?)),
            _ => None,
        });
        let due = inserts.filter(|(key, (_, due_at))| *due_at <= now && is_host(&key.space));
        let due: Vec<_> = due.map(|(key, (group, _))| (key.space.clone(), group.clone())).collect();
        if due.is_empty() {
            return due;
        }
        let spaces = self.lock();
        due.into_iter().filter(|(space, _)| spaces.contains_key(space)).collect()
    }

    /// These were committed.
    pub(crate) fn note(&self, found: Vec<(Space, String)>) {
        if found.is_empty() {
            return;
        }
        let mut spaces = self.lock();
        for (space, group) in found {
            if let Some(groups) = spaces.get_mut(&space).filter(|groups| groups.len() < HINTS_MAX) {
                groups.insert(group);
            }
        }
    }

    /// Those of a space since it was asked the last time.
    pub(crate) fn take(&self, space: &Space) -> BTreeSet<String> {
        std::mem::take(self.lock().entry(space.clone()).or_default())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Space, BTreeSet<String>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn is_host(space: &Space) -> bool {
    space.as_str().starts_with("host.")
}

#[cfg(test)]
mod tests {
    use charter_kernel::unit::{Draft, Key, Reach};

    use super::*;

    #[test]
    fn groups_of_what_is_due_are_told_once_to_who_asks_for_their_space() {
        let (hints, now) = (Hints::default(), Instant(10));
        let insert = |space: Space, group: &str, due_at| Write::Insert {
            key: Key::new(&Reach::organization("o"), &space, group),
            draft: Draft { lease: Some((group.to_owned(), Instant(due_at))), ..Draft::default() },
        };
        let jobs = || Space::host("jobs");
        let writes = vec![
            insert(jobs(), "due", 10),
            insert(jobs(), "later", 11),
            insert(Space::host("mails"), "other", 1),
            insert(Space::of("shelf", "books"), "guest's", 1),
        ];
        let unit = Unit { writes, ..Unit::default() };
        hints.note(hints.of(&unit, now));
        assert!(hints.take(&jobs()).is_empty(), "nobody had asked yet");
        hints.note(hints.of(&unit, now));
        assert_eq!(hints.take(&jobs()), BTreeSet::from(["due".to_owned()]));
        assert!(hints.take(&jobs()).is_empty());
    }
}

//! The committed rows: what a database would hold, and the one way to change it, which is the
//! kernel's decision on a unit.
//!
//! Knows no request. Invariant: a refused unit changes nothing.

use std::collections::BTreeMap;

use charter_kernel::apply::{Head, NewEntry, State, Stored, Touches, apply, check};
use charter_kernel::time::Instant;
use charter_kernel::unit::{Applied, Claim, Fact, Key, LogKey, Reach, Rejection, Row, Space, Unit};

/// All rows of a deployment.
#[derive(Debug, Default)]
pub(crate) struct Rows {
    rows: BTreeMap<Key, Stored>,
    claims: BTreeMap<Claim, Key>,
    revisions: BTreeMap<(Reach, Space), u64>,
    heads: BTreeMap<LogKey, Head>,
    entries: Vec<NewEntry>,
    facts: Vec<Fact>,
}

impl Rows {
    /// Commits a unit, as the committer does: what it touches is read, the kernel decides, and what
    /// was decided is written.
    pub(crate) fn commit(&mut self, unit: &Unit, now: Instant) -> Result<Applied, Rejection> {
        check(unit)?;
        let mut state = self.state_of(unit);
        let applied = apply(&mut state, unit, now)?;
        let changes = state.changes();
        for change in &changes.rows {
            match change.after {
                Some(after) => drop(self.rows.insert(change.key.clone(), after.clone())),
                None => drop(self.rows.remove(change.key)),
            }
        }
        for change in &changes.claims {
            match change.after {
                Some(holder) => drop(self.claims.insert(change.claim.clone(), holder.clone())),
                None => drop(self.claims.remove(change.claim)),
            }
        }
        for change in &changes.spaces {
            self.revisions.insert((change.reach.clone(), change.space.clone()), change.after);
        }
        self.heads.extend(changes.logs.iter().map(|change| (change.log.clone(), change.after)));
        self.entries.extend(changes.entries.iter().cloned());
        self.facts.extend(changes.facts.iter().map(|new| new.fact.clone()));
        Ok(applied)
    }

    /// The state that the unit touches, as it is now.
    fn state_of(&self, unit: &Unit) -> State {
        let mut touches = Touches::default();
        touches.add(unit, true);
        let mut state = State::new(true);
        for key in touches.rows.into_keys() {
            let stored = self.rows.get(&key).cloned();
            state.know_row(key, stored);
        }
        for claim in touches.claims {
            let holder = self.claims.get(&claim).cloned();
            state.know_claim(claim, holder);
        }
        for (reach, space) in touches.spaces {
            let revision = self.revisions.get(&(reach.clone(), space.clone())).copied();
            state.know_space(reach, space, revision);
        }
        for log in touches.logs {
            let head = self.heads.get(&log).copied();
            state.know_log(log, head);
        }
        for wanted in touches.groups.keys() {
            for (key, stored) in &self.rows {
                let lease = stored.row.lease.as_ref();
                let is_wanted = key.space == wanted.space
                    && wanted.reach.as_ref().is_none_or(|reach| key.reach == *reach)
                    && lease.is_some_and(|lease| lease.group == wanted.group);
                if is_wanted && !state.knows_row(key) {
                    state.know_row(key.clone(), Some(stored.clone()));
                }
            }
        }
        state
    }

    /// A row, with its stamp.
    pub(crate) fn find_stored(&self, key: &Key) -> Option<&Stored> {
        self.rows.get(key)
    }

    /// A row.
    pub(crate) fn row(&self, key: &Key) -> Option<&Row> {
        self.rows.get(key).map(|stored| &stored.row)
    }

    /// The rows of a space, by reach and id; of one reach where it is given.
    pub(crate) fn of<'a>(
        &'a self,
        reach: Option<&'a Reach>,
        space: &'a Space,
    ) -> impl DoubleEndedIterator<Item = (&'a Key, &'a Row)> {
        let rows = self.rows.iter().map(|(key, stored)| (key, &stored.row));
        rows.filter(move |(key, _)| {
            key.space == *space && reach.is_none_or(|reach| key.reach == *reach)
        })
    }

    /// The holder of a unique value or a name.
    pub(crate) fn holder(&self, claim: &Claim) -> Option<&Key> {
        self.claims.get(claim)
    }

    /// How often a space was written to.
    pub(crate) fn revision(&self, reach: &Reach, space: &Space) -> u64 {
        self.revisions.get(&(reach.clone(), space.clone())).copied().unwrap_or(0)
    }

    /// How far a log is.
    pub(crate) fn head(&self, log: &LogKey) -> u64 {
        self.heads.get(log).map_or(0, |head| head.head)
    }

    /// Entries of a log after a sequence, oldest first.
    pub(crate) fn entries<'a>(
        &'a self,
        log: &'a LogKey,
        after: u64,
    ) -> impl Iterator<Item = &'a NewEntry> {
        self.entries.iter().filter(move |entry| entry.log == *log && entry.sequence > after)
    }

    /// Events and audit rows, oldest first.
    pub(crate) fn facts(&self) -> &[Fact] {
        &self.facts
    }
}

//! The known part of the database while a batch is decided, and its changes.

use std::collections::{BTreeMap, BTreeSet};

use crate::governance::hold::is_book;
use crate::time::Instant;
use crate::unit::{Claim, Fact, Key, LogKey, Reach, Row, Space};

/// A row with what only the store needs to know of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The row, as its readers see it.
    pub row: Row,
    /// The revision of its space that its last write made, of a row of the books its version: never
    /// given twice.
    pub stamp: u64,
    /// The organization whose work inserted it.
    pub organization: String,
    /// Names claimed for it.
    pub names: Vec<Claim>,
}

/// How far a log is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Head {
    /// The last entry's sequence.
    pub head: u64,
    /// Whether it takes no more.
    pub closed: bool,
}

/// A log entry to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewEntry {
    /// The log.
    pub log: LogKey,
    /// Its number.
    pub sequence: u64,
    /// When.
    pub at: Instant,
    /// Its name.
    pub name: String,
    /// UTF-8 JSON text.
    pub payload: String,
}

/// A fact to write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewFact {
    /// The fact.
    pub fact: Fact,
    /// Its number, where the batch gives it.
    pub sequence: Option<u64>,
}

/// The changes of a unit, or of all accepted units of a batch.
#[derive(Clone, Debug, Default)]
pub(super) struct Overlay {
    pub(super) rows: BTreeMap<Key, Option<Stored>>,
    pub(super) claims: BTreeMap<Claim, Option<Key>>,
    pub(super) spaces: BTreeMap<(Reach, Space), u64>,
    pub(super) logs: BTreeMap<LogKey, Head>,
    pub(super) entries: Vec<NewEntry>,
    pub(super) facts: Vec<NewFact>,
    /// Rows that were relied on being absent.
    pub(super) absent_rows: BTreeSet<Key>,
    pub(super) absent_claims: BTreeSet<Claim>,
    pub(super) searched: BTreeSet<(Reach, Space)>,
    /// Holders of claims that were not prefetched by name, known from the row that holds them.
    pub(super) known: BTreeMap<Claim, Key>,
}

/// The prefetched rows of a batch, and on top of them what its accepted units changed.
#[derive(Clone, Debug, Default)]
pub struct State {
    rows: BTreeMap<Key, Option<Stored>>,
    claims: BTreeMap<Claim, Option<Key>>,
    spaces: BTreeMap<(Reach, Space), Option<u64>>,
    logs: BTreeMap<LogKey, Option<Head>>,
    /// Rows that have a lease, by when they are due.
    due: BTreeMap<(Space, String), BTreeSet<(Instant, Key)>>,
    pub(super) numbered: bool,
    merged: Overlay,
}

impl State {
    /// Nothing known yet. `numbered`: facts get their numbers in the batch.
    pub fn new(numbered: bool) -> Self {
        Self { numbered, ..Self::default() }
    }
    /// A row as the database has it, or that it has none.
    pub fn know_row(&mut self, key: Key, stored: Option<Stored>) {
        if let Some(lease) = stored.as_ref().and_then(|stored| stored.row.lease.as_ref()) {
            let due = self.due.entry((key.space.clone(), lease.group.clone())).or_default();
            due.insert((lease.due_at, key.clone()));
        }
        self.rows.insert(key, stored);
    }
    /// Hands none of these rows out.
    pub fn pass_over(&mut self, is_left: impl Fn(&Key) -> bool) {
        self.due.values_mut().for_each(|due| due.retain(|(_, key)| !is_left(key)));
    }
    /// The rows of a group, due or not.
    pub fn group(&self, space: &Space, group: &str) -> impl Iterator<Item = &Key> {
        let rows = self.due.get(&(space.clone(), group.to_owned()));
        rows.into_iter().flatten().map(|(_, key)| key)
    }
    /// Whether the row was prefetched.
    pub fn knows_row(&self, key: &Key) -> bool {
        self.rows.contains_key(key)
    }
    /// A claim's holder.
    pub fn know_claim(&mut self, claim: Claim, holder: Option<Key>) {
        self.claims.insert(claim, holder);
    }
    /// A space's revision; `None` where it never had one.
    pub fn know_space(&mut self, reach: Reach, space: Space, revision: Option<u64>) {
        self.spaces.insert((reach, space), revision);
    }
    /// Whether the space's revision was prefetched.
    pub fn knows_space(&self, reach: &Reach, space: &Space) -> bool {
        self.spaces.contains_key(&(reach.clone(), space.clone()))
    }
    /// A log's head; `None` where it has no entry yet.
    pub fn know_log(&mut self, log: LogKey, head: Option<Head>) {
        self.logs.insert(log, head);
    }

    pub(super) fn row<'a>(&'a self, over: &'a Overlay, key: &Key) -> Option<&'a Stored> {
        let changed = over.rows.get(key).or_else(|| self.merged.rows.get(key));
        changed.or_else(|| self.rows.get(key)).and_then(Option::as_ref)
    }
    pub(super) fn claim<'a>(&'a self, over: &'a Overlay, claim: &Claim) -> Option<&'a Key> {
        let changed = over.claims.get(claim).or_else(|| self.merged.claims.get(claim));
        changed.or_else(|| self.claims.get(claim)).and_then(Option::as_ref)
    }
    pub(super) fn knows_claim(&self, claim: &Claim) -> bool {
        self.claims.contains_key(claim)
    }
    pub(super) fn revision(&self, at: &(Reach, Space)) -> u64 {
        self.merged
            .spaces
            .get(at)
            .copied()
            .unwrap_or_else(|| self.spaces.get(at).copied().flatten().unwrap_or(0))
    }
    pub(super) fn log(&self, over: &Overlay, log: &LogKey) -> Head {
        let changed = over.logs.get(log).or_else(|| self.merged.logs.get(log)).copied();
        changed.unwrap_or_else(|| self.logs.get(log).copied().flatten().unwrap_or_default())
    }
    /// Rows of a group that are due, earliest first, as the unit sees them.
    pub(super) fn due(
        &self,
        over: &Overlay,
        space: &Space,
        group: &str,
        reach: Option<&Reach>,
        now: Instant,
    ) -> Vec<Key> {
        let empty = BTreeSet::new();
        let known = self.due.get(&(space.clone(), group.into())).unwrap_or(&empty);
        let known = known.iter().filter(|(_, key)| !over.rows.contains_key(key)).cloned();
        let own = over.rows.iter().filter_map(|(key, stored)| {
            let lease = stored.as_ref()?.row.lease.as_ref()?;
            (key.space == *space && lease.group == group).then(|| (lease.due_at, key.clone()))
        });
        let mut all: Vec<_> = known.chain(own).collect();
        all.retain(|(due_at, key)| *due_at <= now && reach.is_none_or(|reach| key.reach == *reach));
        all.sort();
        all.into_iter().map(|(_, key)| key).collect()
    }

    pub(super) fn merge(&mut self, over: Overlay) {
        for (claim, key) in over.known {
            self.claims.entry(claim).or_insert(Some(key));
        }
        for (key, stored) in over.rows {
            let old =
                self.merged.rows.get(&key).or_else(|| self.rows.get(&key)).and_then(Option::as_ref);
            if let Some(lease) = old.and_then(|old| old.row.lease.as_ref())
                && let Some(due) = self.due.get_mut(&(key.space.clone(), lease.group.clone()))
            {
                due.remove(&(lease.due_at, key.clone()));
            }
            if let Some(lease) = stored.as_ref().and_then(|stored| stored.row.lease.as_ref()) {
                let due = self.due.entry((key.space.clone(), lease.group.clone())).or_default();
                due.insert((lease.due_at, key.clone()));
            }
            self.merged.rows.insert(key, stored);
        }
        self.merged.claims.extend(over.claims);
        self.merged.spaces.extend(over.spaces);
        self.merged.logs.extend(over.logs);
        self.merged.entries.extend(over.entries);
        self.merged.facts.extend(over.facts);
        self.merged.absent_rows.extend(over.absent_rows);
        self.merged.absent_claims.extend(over.absent_claims);
        self.merged.searched.extend(over.searched);
    }

    /// The difference that the accepted units make to what was prefetched.
    pub fn changes(&self) -> Changes<'_> {
        let rows: Vec<_> = self.row_changes().collect();
        let mut groups: BTreeMap<(&Reach, &Space, &str), i64> = BTreeMap::new();
        for change in rows.iter().filter(|change| !is_book(&change.key.space)) {
            for (stored, by) in [(change.before, -1), (change.after, 1)] {
                if let Some(lease) = stored.and_then(|stored| stored.row.lease.as_ref()) {
                    *groups
                        .entry((&change.key.reach, &change.key.space, &lease.group))
                        .or_default() += by;
                }
            }
        }
        let claims = self.merged.claims.iter().filter_map(|(claim, after)| {
            let (before, after) = (self.claims.get(claim).and_then(Option::as_ref), after.as_ref());
            (before != after).then_some(ClaimChange { claim, before, after })
        });
        let bumped = self.merged.spaces.iter().map(|(at, after)| (at, *after));
        let searched = self
            .merged
            .searched
            .iter()
            .filter(|at| !self.merged.spaces.contains_key(at))
            .map(|at| (at, 0));
        let mut spaces: Vec<_> = bumped.chain(searched).collect();
        spaces.sort();
        let spaces = spaces.into_iter().map(|((reach, space), after)| {
            let before = self.spaces.get(&(reach.clone(), space.clone())).copied().flatten();
            SpaceChange { reach, space, before, after }
        });
        let logs = self.merged.logs.iter().map(|(log, after)| {
            let before = self.logs.get(log).copied().flatten();
            LogChange { log, before, after: *after }
        });
        Changes {
            groups: groups
                .into_iter()
                .filter(|(_, by)| *by != 0)
                .map(|((reach, space, group), by)| GroupChange { reach, space, group, by })
                .collect(),
            claims: claims.collect(),
            spaces: spaces.collect(),
            logs: logs.collect(),
            entries: &self.merged.entries,
            facts: &self.merged.facts,
            absent_rows: self
                .merged
                .absent_rows
                .iter()
                .filter(|key| !self.is_written(key))
                .collect(),
            absent_claims: self
                .merged
                .absent_claims
                .iter()
                .filter(|claim| !self.is_claimed(claim))
                .collect(),
            rows,
        }
    }

    /// Whether writing the row itself keeps others from inserting it.
    fn is_written(&self, key: &Key) -> bool {
        let known = |rows: &BTreeMap<Key, Option<Stored>>| matches!(rows.get(key), Some(Some(_)));
        known(&self.rows) || known(&self.merged.rows)
    }

    fn is_claimed(&self, claim: &Claim) -> bool {
        let known =
            |claims: &BTreeMap<Claim, Option<Key>>| matches!(claims.get(claim), Some(Some(_)));
        known(&self.claims) || known(&self.merged.claims)
    }

    fn row_changes(&self) -> impl Iterator<Item = RowChange<'_>> {
        self.merged.rows.iter().filter_map(|(key, after)| {
            let (before, after) = (self.rows.get(key).and_then(Option::as_ref), after.as_ref());
            (before.is_some() || after.is_some()).then_some(RowChange { key, before, after })
        })
    }
}

/// The writes of a batch, sorted by key.
#[derive(Debug)]
pub struct Changes<'a> {
    /// Rows inserted, changed or removed.
    pub rows: Vec<RowChange<'a>>,
    /// Claims taken or given up.
    pub claims: Vec<ClaimChange<'a>>,
    /// Revisions; those that were only searched, and never had one, are written as 0 so that others
    /// can lock them.
    pub spaces: Vec<SpaceChange<'a>>,
    /// How many more rows groups hold; nobody asks that of the books.
    pub groups: Vec<GroupChange<'a>>,
    /// Log heads.
    pub logs: Vec<LogChange<'a>>,
    /// Log entries.
    pub entries: &'a [NewEntry],
    /// Facts.
    pub facts: &'a [NewFact],
    /// Rows that must not come into being before the commit.
    pub absent_rows: Vec<&'a Key>,
    /// Claims that must not come into being before the commit.
    pub absent_claims: Vec<&'a Claim>,
}

impl Changes<'_> {
    /// Whether there is nothing to write.
    pub fn is_empty(&self) -> bool {
        let rows = self.rows.is_empty()
            && self.claims.is_empty()
            && self.spaces.is_empty()
            && self.logs.is_empty();
        rows && self.entries.is_empty() && self.facts.is_empty()
    }
}

/// One row's way from before the batch to after it.
#[derive(Clone, Copy, Debug)]
pub struct RowChange<'a> {
    /// The row.
    pub key: &'a Key,
    /// As prefetched.
    pub before: Option<&'a Stored>,
    /// As decided.
    pub after: Option<&'a Stored>,
}

/// One claim's way.
#[derive(Clone, Copy, Debug)]
pub struct ClaimChange<'a> {
    /// The claim.
    pub claim: &'a Claim,
    /// The holder before.
    pub before: Option<&'a Key>,
    /// The holder after.
    pub after: Option<&'a Key>,
}

/// One revision's way.
#[derive(Clone, Copy, Debug)]
pub struct SpaceChange<'a> {
    /// Its sharers.
    pub reach: &'a Reach,
    /// The space.
    pub space: &'a Space,
    /// As prefetched.
    pub before: Option<u64>,
    /// As decided.
    pub after: u64,
}

/// How the size of a group changed.
#[derive(Clone, Copy, Debug)]
pub struct GroupChange<'a> {
    /// Its sharers.
    pub reach: &'a Reach,
    /// In which space.
    pub space: &'a Space,
    /// The group.
    pub group: &'a str,
    /// By how many rows.
    pub by: i64,
}

/// One log's way.
#[derive(Clone, Copy, Debug)]
pub struct LogChange<'a> {
    /// The log.
    pub log: &'a LogKey,
    /// As prefetched.
    pub before: Option<Head>,
    /// As decided.
    pub after: Head,
}

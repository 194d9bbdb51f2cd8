//! Everything that a batch must have read, and locked, before it can be decided.
//!
//! Everything is kept sorted: two committers that lock in this order never wait for each other in a
//! circle.

use std::collections::{BTreeMap, BTreeSet};

use crate::calendar::Slot;
use crate::governance::hold::is_book;
use crate::unit::{Claim, Draft, FactKind, Guard, Key, LogKey, Reach, Space, Unit, Write};

/// How a row is held while the batch runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RowLock {
    /// Others may hold it too; nobody may write it.
    Shared,
    /// Nobody else may hold or write it.
    Alone,
}

/// A group of leased rows that is asked for some.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wanted {
    /// Within one reach, or across all.
    pub reach: Option<Reach>,
    /// The space.
    pub space: Space,
    /// The group.
    pub group: String,
}

/// The rows, claims, revisions, logs and groups that units touch.
#[derive(Clone, Debug, Default)]
pub struct Touches {
    /// Rows that are read or written.
    pub rows: BTreeMap<Key, RowLock>,
    /// Claims that are read, taken or given up by name.
    pub claims: BTreeSet<Claim>,
    /// Spaces that were searched or are written.
    pub spaces: BTreeSet<(Reach, Space)>,
    /// Logs that are appended to or closed.
    pub logs: BTreeSet<LogKey>,
    /// Groups, and how many rows are asked of each.
    pub groups: BTreeMap<Wanted, u32>,
}

/// The log whose head numbers an organization's facts of one kind.
pub fn facts_log(organization: &str, kind: FactKind) -> LogKey {
    let log = match kind {
        FactKind::Event => "host.facts.event",
        FactKind::Audit => "host.facts.audit",
    };
    LogKey { reach: Reach::organization(organization), log: log.into() }
}

/// Whether a log numbers some organization's events.
pub fn is_of_events(log: &LogKey) -> bool {
    log.log == facts_log("", FactKind::Event).log
}

/// The rows that a unit moves money in and that more than one user shares: requests of an
/// organization meet there, on whatever replicas.
pub fn meeting_rows(unit: &Unit) -> impl Iterator<Item = &Key> {
    let moved = unit.writes.iter().flat_map(|write| match write {
        Write::Transfer { from, to, .. } => [Some(from), Some(to)],
        // A scope without a cap has hardly ever a meter: nobody meets there.
        Write::Tally { slot, .. } if *slot == Slot::without_cap() => [None, None],
        Write::Open { meter, .. } | Write::Reserve { meter, .. } | Write::Tally { meter, .. } => {
            [Some(meter), None]
        }
        _ => [None, None],
    });
    moved.flatten().filter(|key| key.reach.is_shared())
}

impl Touches {
    /// Adds what a unit touches. `numbered`: its facts get their numbers in the batch.
    pub fn add(&mut self, unit: &Unit, numbered: bool) {
        for guard in &unit.guards {
            match guard {
                Guard::Entry { key, .. }
                | Guard::Unchanged { key, .. }
                | Guard::Inserted { key, .. } => self.row(key, RowLock::Shared),
                Guard::Version { key, .. }
                | Guard::Stamp { key, .. }
                | Guard::Lease { key, .. } => self.row(key, RowLock::Alone),
                Guard::Revision { reach, space, .. } => {
                    self.spaces.insert((reach.clone(), space.clone()));
                }
                Guard::Claim { claim, .. } => {
                    self.claims.insert(claim.clone());
                }
            }
        }
        for write in &unit.writes {
            self.write(write);
        }
        for take in &unit.takes {
            if let Some(reach) = &take.reach {
                self.spaces.insert((reach.clone(), take.space.clone()));
            }
            let wanted = Wanted {
                reach: take.reach.clone(),
                space: take.space.clone(),
                group: take.group.clone(),
            };
            *self.groups.entry(wanted).or_default() += take.tokens.len() as u32;
        }
        if numbered {
            self.logs
                .extend(unit.facts.iter().map(|fact| facts_log(&fact.organization, fact.kind)));
        }
    }

    fn write(&mut self, write: &Write) {
        match write {
            Write::Insert { key, draft }
            | Write::Replace { key, draft, .. }
            | Write::Put { key, draft }
            | Write::Ensure { key, draft } => {
                self.change(key);
                self.unique(key, draft);
            }
            Write::Remove { key, .. }
            | Write::Add { key, .. }
            | Write::Extend { key, .. }
            | Write::Release { key, .. }
            | Write::Settle { key, .. }
            | Write::Defer { key, .. }
            | Write::Open { meter: key, .. }
            | Write::Reserve { meter: key, .. }
            | Write::Tally { meter: key, .. }
            | Write::Freeze { account: key, .. } => self.change(key),
            Write::Transfer { from, to, .. } => {
                self.change(from);
                self.change(to);
            }
            // The holder's row keeps the list of its names, so that it takes them along when it is
            // removed.
            Write::Claim { claim, holder } | Write::Unclaim { claim, holder } => {
                self.claims.insert(claim.clone());
                self.change(holder);
            }
            Write::Append { log, .. } | Write::Close { log } => {
                self.logs.insert(log.clone());
            }
        }
    }

    fn row(&mut self, key: &Key, hold: RowLock) {
        let held = self.rows.entry(key.clone()).or_insert(hold);
        *held = (*held).max(hold);
    }

    fn change(&mut self, key: &Key) {
        self.row(key, RowLock::Alone);
        if !is_book(&key.space) {
            self.spaces.insert((key.reach.clone(), key.space.clone()));
        }
    }

    fn unique(&mut self, key: &Key, draft: &Draft) {
        let claims = draft
            .unique
            .iter()
            .map(|(field, value)| Claim::unique(&key.reach, &key.space, field, value));
        self.claims.extend(claims);
    }
}

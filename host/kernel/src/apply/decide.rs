//! One unit against the state: guards, then writes in order, then takes, then facts.

use std::collections::BTreeSet;

use super::body::{add_to_body, merge};
use super::state::{NewEntry, NewFact, Overlay, State, Stored};
use super::touches::facts_log;
use super::{lease, money};
use crate::governance::hold::is_book;
use crate::limits::TAKEN_BYTES_MAX;
use crate::time::Instant;
use crate::unit::{
    Applied, Claim, Draft, Guard, Key, Lease, LogKey, Reach, Refused, Rejection, Row, Space, Take,
    Taken, Unit, Write,
};

pub(super) fn decide(
    state: &State,
    unit: &Unit,
    now: Instant,
) -> Result<(Overlay, Applied), Rejection> {
    let mut on = Deciding {
        state,
        unit,
        now,
        over: Overlay::default(),
        applied: Applied::default(),
        touched: Vec::new(),
    };
    on.guards()?;
    for write in &unit.writes {
        on.write(write)?;
    }
    for take in &unit.takes {
        let taken = on.take(take);
        on.applied.taken.push(taken);
    }
    on.holders_exist()?;
    on.facts();
    for key in std::mem::take(&mut on.touched) {
        if let Some(stored) = on.find(&key) {
            let version = stored.row.version;
            on.applied.versions.push((key, version));
        }
    }
    Ok((on.over, on.applied))
}

struct Deciding<'a> {
    state: &'a State,
    unit: &'a Unit,
    now: Instant,
    over: Overlay,
    applied: Applied,
    /// Rows written, in the order of first touch.
    touched: Vec<Key>,
}

impl Deciding<'_> {
    fn find(&self, key: &Key) -> Option<&Stored> {
        debug_assert!(
            self.over.rows.contains_key(key) || self.state.knows_row(key),
            "a row was not prefetched"
        );
        self.state.row(&self.over, key)
    }

    fn row(&self, key: &Key) -> Option<&Row> {
        self.find(key).map(|stored| &stored.row)
    }

    /// Refusals first: a request of a revoked user is not run again.
    fn guards(&mut self) -> Result<(), Rejection> {
        let mut changed = BTreeSet::new();
        let mut conflict = false;
        for guard in &self.unit.guards {
            match guard {
                Guard::Entry { key, field, value } => {
                    let has = |row: &Row| row.index.iter().any(|(f, v)| f == field && v == value);
                    if !self.row(key).is_some_and(has) {
                        return Err(
                            Refused::Inactive { key: key.clone(), field: field.clone() }.into()
                        );
                    }
                }
                Guard::Lease { key, token } => {
                    lease::require(key, self.row(key), token)?;
                }
                Guard::Version { key, version } => {
                    if self.row(key).map(|row| row.version) != *version {
                        changed.insert(key.clone());
                    } else if version.is_none() {
                        self.over.absent_rows.insert(key.clone());
                    }
                }
                Guard::Unchanged { key, version } => {
                    if self.row(key).map(|row| row.version) != Some(*version) {
                        changed.insert(key.clone());
                    }
                }
                Guard::Inserted { key, at } => {
                    if self.row(key).map(|row| row.created_at) != Some(*at) {
                        changed.insert(key.clone());
                    }
                }
                Guard::Stamp { key, stamp } => {
                    if self.find(key).map(|stored| stored.stamp) != Some(*stamp) {
                        changed.insert(key.clone());
                    }
                }
                Guard::Revision { reach, space, revision } => {
                    if self.state.revision(&(reach.clone(), space.clone())) != *revision {
                        changed.insert(Key::new(reach, space, ""));
                    } else if *revision == 0 {
                        self.over.searched.insert((reach.clone(), space.clone()));
                    }
                }
                Guard::Claim { claim, holder } => {
                    let now = self.state.claim(&self.over, claim).map(|key| &key.id);
                    conflict |= now != holder.as_ref();
                    if holder.is_none() {
                        self.over.absent_claims.insert(claim.clone());
                    }
                }
            }
        }
        if conflict || !changed.is_empty() {
            return Err(Rejection::Conflict { keys: changed.into_iter().collect() });
        }
        Ok(())
    }

    fn write(&mut self, write: &Write) -> Result<(), Refused> {
        match write {
            Write::Insert { key, draft } => {
                if self.find(key).is_some() {
                    return Err(Refused::Exists { key: key.clone() });
                }
                self.content(key, draft)
            }
            Write::Replace { key, draft, expected } => {
                self.expect_version(key, *expected)?;
                self.content(key, draft)
            }
            Write::Put { key, draft } => self.content(key, draft),
            Write::Ensure { key, draft } => match self.find(key) {
                Some(_) => Ok(()),
                None => self.content(key, draft),
            },
            Write::Remove { key, expected } => {
                if expected.is_some() {
                    self.expect_version(key, *expected)?;
                }
                self.remove(key);
                Ok(())
            }
            Write::Add { key, field, amount } => {
                let body = add_to_body(key, &self.existing(key)?.body, field, *amount)?;
                self.change(key, |row| row.body = body);
                Ok(())
            }
            Write::Open { meter, slot, spent, since } => {
                let before = self.row(meter).map(|row| row.body.as_str());
                let (is_new, body) =
                    (before.is_none(), money::open(meter, before, slot, (*spent, *since))?);
                match is_new {
                    true => self.content(meter, &Draft { body, ..Draft::default() })?,
                    false => self.change(meter, |row| row.body = body),
                }
                Ok(())
            }
            Write::Reserve { meter, slot, amount, admission } => {
                let body =
                    money::reserve(meter, &self.existing(meter)?.body, slot, *amount, *admission)?;
                self.change(meter, |row| row.body = body);
                Ok(())
            }
            Write::Tally { meter, slot, tally } => {
                let Some(row) = self.row(meter) else {
                    // One that comes meanwhile has been summed up without it.
                    self.over.absent_rows.insert(meter.clone());
                    return Ok(());
                };
                let body = money::tally(meter, &row.body, slot, *tally)?;
                self.change(meter, |row| row.body = body);
                Ok(())
            }
            Write::Transfer { from, to, amount, phase } => {
                let sides = (self.existing(from)?.body.as_str(), self.existing(to)?.body.as_str());
                let (debited, credited) = money::transfer((from, to), sides, *amount, *phase)?;
                self.change(from, |row| row.body = debited);
                self.change(to, |row| row.body = credited);
                Ok(())
            }
            Write::Freeze { account, frozen } => {
                let body = money::freeze(account, &self.existing(account)?.body, *frozen)?;
                self.change(account, |row| row.body = body);
                Ok(())
            }
            Write::Claim { claim, holder } => self.claim(claim, holder),
            Write::Unclaim { claim, holder } => {
                if self.state.claim(&self.over, claim) == Some(holder) {
                    self.over.claims.insert(claim.clone(), None);
                }
                Ok(())
            }
            Write::Append { log, name, payload } => {
                if self.state.log(&self.over, log).closed {
                    return Err(Refused::LogClosed { log: log.clone() });
                }
                let sequence = self.next(log);
                let (name, payload) = (name.clone(), payload.clone());
                self.over.entries.push(NewEntry {
                    log: log.clone(),
                    sequence,
                    at: self.now,
                    name,
                    payload,
                });
                self.applied.sequences.push(sequence);
                Ok(())
            }
            Write::Close { log } => {
                let mut head = self.state.log(&self.over, log);
                head.closed = true;
                self.over.logs.insert(log.clone(), head);
                Ok(())
            }
            Write::Extend { key, token, until } => {
                let lease =
                    Lease { due_at: *until, ..lease::require(key, self.row(key), token)?.clone() };
                self.change(key, |row| row.lease = Some(lease));
                Ok(())
            }
            Write::Release { key, token, due_at, undo } => {
                let lease =
                    lease::release(lease::require(key, self.row(key), token)?, *due_at, *undo);
                self.change(key, |row| row.lease = Some(lease));
                Ok(())
            }
            Write::Settle { key, token } => {
                lease::require(key, self.row(key), token)?;
                self.remove(key);
                Ok(())
            }
            Write::Defer { key, due_at } => {
                let lease = lease::defer(key, self.existing(key)?, *due_at, self.now)?;
                self.change(key, |row| row.lease = Some(lease));
                Ok(())
            }
        }
    }

    fn existing(&self, key: &Key) -> Result<&Row, Refused> {
        self.row(key).ok_or_else(|| Refused::Missing { key: key.clone() })
    }

    fn expect_version(&self, key: &Key, expected: Option<u64>) -> Result<(), Refused> {
        let current = self.existing(key)?.version;
        match expected {
            Some(expected) if expected != current => {
                Err(Refused::Stale { key: key.clone(), current })
            }
            _ => Ok(()),
        }
    }

    /// The revision that this unit makes of a space: one more, however much of it the unit writes.
    fn bump(&mut self, reach: &Reach, space: &Space) -> u64 {
        let at = (reach.clone(), space.clone());
        let next = self.state.revision(&at) + 1;
        self.over.spaces.insert(at, next);
        next
    }

    /// The stamp of a row that is written.
    fn touch(&mut self, key: &Key, version: u64) -> u64 {
        if !self.over.rows.contains_key(key) {
            self.touched.push(key.clone());
        }
        self.stamp(key, version)
    }

    fn stamp(&mut self, key: &Key, version: u64) -> u64 {
        if is_book(&key.space) { version } else { self.bump(&key.reach, &key.space) }
    }

    /// Inserts or replaces, with the claims that the draft has and the old row no longer.
    fn content(&mut self, key: &Key, draft: &Draft) -> Result<(), Refused> {
        let old = self.find(key).cloned();
        let row = merge(
            old.as_ref().map(|old| &old.row),
            draft,
            self.unit.at.unwrap_or(self.now),
            self.now,
        );
        if let Some(old) = &old {
            let gone = old.row.unique.iter().filter(|pair| !row.unique.contains(pair));
            let gone: Vec<_> = gone
                .map(|(field, value)| Claim::unique(&key.reach, &key.space, field, value))
                .collect();
            self.give_up(key, gone);
        }
        for (field, value) in &row.unique {
            if old
                .as_ref()
                .is_some_and(|old| old.row.unique.iter().any(|(f, v)| f == field && v == value))
            {
                continue;
            }
            let claim = Claim::unique(&key.reach, &key.space, field, value);
            match self.state.claim(&self.over, &claim) {
                Some(holder) if holder != key => {
                    return Err(Refused::ClaimLost { claim, holder: holder.clone() });
                }
                _ => {
                    self.over.claims.insert(claim, Some(key.clone()));
                }
            }
        }
        let stamp = self.touch(key, row.version);
        let (organization, names) = match old {
            Some(old) => (old.organization, old.names),
            None => (self.unit.organization.clone(), Vec::new()),
        };
        self.over.rows.insert(key.clone(), Some(Stored { row, stamp, organization, names }));
        Ok(())
    }

    /// Changes a row that is known to exist.
    fn change(&mut self, key: &Key, how: impl FnOnce(&mut Row)) {
        let at = self.unit.at.unwrap_or(self.now);
        let how = |stored: &mut Stored| {
            how(&mut stored.row);
            stored.row.version += 1;
            stored.row.updated_at = stored.row.updated_at.max(at);
        };
        if let Some(Some(own)) = self.over.rows.get_mut(key) {
            how(own);
            // A row that this unit wrote before has the stamp of its space already.
            if is_book(&key.space) {
                own.stamp = own.row.version;
            }
            return;
        }
        let Some(mut stored) = self.find(key).cloned() else { return };
        how(&mut stored);
        stored.stamp = self.touch(key, stored.row.version);
        self.over.rows.insert(key.clone(), Some(stored));
    }

    fn remove(&mut self, key: &Key) {
        let Some(old) = self.find(key).cloned() else { return };
        let unique = old
            .row
            .unique
            .iter()
            .map(|(field, value)| Claim::unique(&key.reach, &key.space, field, value));
        let all = unique.chain(old.names).collect();
        self.give_up(key, all);
        self.touch(key, old.row.version + 1);
        self.over.rows.insert(key.clone(), None);
    }

    /// A row's own claims need no prefetch: that the row lists them says who holds them.
    fn give_up(&mut self, key: &Key, claims: Vec<Claim>) {
        for claim in claims {
            let unknown = !self.state.knows_claim(&claim) && !self.over.claims.contains_key(&claim);
            if unknown {
                self.over.known.insert(claim.clone(), key.clone());
            }
            if unknown || self.state.claim(&self.over, &claim) == Some(key) {
                self.over.claims.insert(claim, None);
            }
        }
    }

    fn claim(&mut self, claim: &Claim, holder: &Key) -> Result<(), Refused> {
        match self.state.claim(&self.over, claim) {
            Some(other) if other != holder => {
                Err(Refused::ClaimLost { claim: claim.clone(), holder: other.clone() })
            }
            _ => {
                self.over.claims.insert(claim.clone(), Some(holder.clone()));
                Ok(())
            }
        }
    }

    /// Names are kept with the rows that hold them, so that a row takes them along when it is
    /// removed. A name may be claimed before its row is inserted; at the end of the unit the row
    /// must be there.
    fn holders_exist(&mut self) -> Result<(), Refused> {
        for write in &self.unit.writes {
            let (claim, holder) = match write {
                Write::Claim { claim, holder } | Write::Unclaim { claim, holder } => {
                    (claim, holder)
                }
                _ => continue,
            };
            let holds = self.state.claim(&self.over, claim) == Some(holder);
            let Some(stored) = self.find(holder) else {
                if holds {
                    return Err(Refused::Missing { key: holder.clone() });
                }
                continue;
            };
            let listed = stored.names.contains(claim);
            if holds == listed {
                continue;
            }
            let mut stored = stored.clone();
            if holds {
                stored.names.push(claim.clone());
            } else {
                stored.names.retain(|name| name != claim);
            }
            // The row's readers see no difference, so its version stays.
            stored.stamp = self.stamp(holder, stored.row.version);
            self.over.rows.insert(holder.clone(), Some(stored));
        }
        Ok(())
    }

    fn take(&mut self, take: &Take) -> Vec<Taken> {
        let due =
            self.state.due(&self.over, &take.space, &take.group, take.reach.as_ref(), self.now);
        // Even a lease that would end at once keeps the row from the others of this batch.
        let until = take.until.max(self.now.plus_ms(1));
        let (mut taken, mut bytes) = (Vec::new(), 0);
        for (key, token) in due.into_iter().zip(&take.tokens) {
            let Some(row) = self.row(&key) else { continue };
            let Some(old) = row.lease.clone() else { continue };
            bytes += row.body.len();
            if bytes > TAKEN_BYTES_MAX && !taken.is_empty() {
                break;
            }
            self.change(&key, |row| row.lease = Some(lease::hand_out(&old, token, until)));
            if let Some(row) = self.row(&key).cloned() {
                taken.push(Taken { key, row, token: token.clone(), due_at: old.due_at });
            }
        }
        taken
    }

    fn facts(&mut self) {
        for fact in &self.unit.facts {
            let sequence =
                self.state.numbered.then(|| self.next(&facts_log(&fact.organization, fact.kind)));
            self.over.facts.push(NewFact { fact: fact.clone(), sequence });
        }
    }

    fn next(&mut self, log: &LogKey) -> u64 {
        let mut head = self.state.log(&self.over, log);
        head.head += 1;
        self.over.logs.insert(log.clone(), head);
        head.head
    }
}

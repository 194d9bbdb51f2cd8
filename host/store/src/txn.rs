//! One request's work: reads that are validated at the commit, writes that are buffered until then.
//!
//! Must not know what the work is about. Invariant: nothing that was read through `get`, `find`,
//! `count` and `lookup` can have changed when the unit commits; dropping a transaction changes
//! nothing.

use std::collections::BTreeMap;

use charter_kernel::apply::{Stored, add_to_body, claim_fits, key_fits, merge};
use charter_kernel::audit::Change;
use charter_kernel::governance::hold::is_book;
use charter_kernel::time::Instant;
use charter_kernel::unit::{
    Applied, Claim, Draft, Fact, Guard, Key, LogKey, Reach, Refused, Row, Space, Take, Taken, Unit,
    Write,
};

use crate::error::{CommitError, ReadError, WriteError};
use crate::query::{GroupStanding, LogHead, LogPage, Page, Query};
use crate::store::Store;
use crate::ticket::Ticket;

/// Reads of one request, its buffered writes, and what must still hold when they are committed.
#[derive(Debug)]
pub struct Txn {
    store: Store,
    unit: Unit,
    /// This request's own rows; `None` where it removed one.
    own: BTreeMap<Key, Option<Row>>,
    /// Additions to rows that this request did not read.
    adds: BTreeMap<Key, Vec<(String, i64)>>,
    /// The holder of each unique value or name, as far as it was asked or changed here.
    claims: BTreeMap<(Reach, String, String), Option<Key>>,
    /// The rows that were read, so that a second look sees the same: the first is what the commit
    /// validates.
    seen: BTreeMap<Key, Option<Stored>>,
    /// Conditions of the next commit alone: of a step that the commit itself makes.
    once: Vec<Guard>,
    taken: Vec<Taken>,
    tickets: Vec<Ticket>,
    reading: bool,
    held_bytes: usize,
}

/// Memory that a row costs beside its texts, about.
const HELD_ROW_BYTES: usize = 512;

fn draft_bytes(draft: &Draft) -> usize {
    let pairs = draft.index.iter().chain(&draft.unique);
    let entries: usize = pairs.map(|(field, value)| field.len() + value.len()).sum();
    let group = draft.lease.as_ref().map_or(0, |(group, _)| group.len());
    draft.body.len() + entries + group + draft.text.as_ref().map_or(0, String::len)
}

fn claim_bytes(claim: &Claim) -> usize {
    claim.space.len() + claim.name.len()
}

fn guard_bytes(guard: &Guard) -> usize {
    match guard {
        Guard::Version { key, .. }
        | Guard::Unchanged { key, .. }
        | Guard::Inserted { key, .. }
        | Guard::Stamp { key, .. } => key.id.len(),
        Guard::Revision { reach, space, .. } => reach.as_str().len() + space.as_str().len(),
        Guard::Claim { claim, holder } => {
            claim_bytes(claim) + holder.as_ref().map_or(0, String::len)
        }
        Guard::Entry { key, field, value } => key.id.len() + field.len() + value.len(),
        Guard::Lease { key, token } => key.id.len() + token.len(),
    }
}

fn write_bytes(write: &Write) -> usize {
    match write {
        Write::Insert { key, draft }
        | Write::Replace { key, draft, .. }
        | Write::Put { key, draft }
        | Write::Ensure { key, draft } => key.id.len() + draft_bytes(draft),
        Write::Remove { key, .. }
        | Write::Defer { key, .. }
        | Write::Open { meter: key, .. }
        | Write::Reserve { meter: key, .. }
        | Write::Tally { meter: key, .. }
        | Write::Freeze { account: key, .. } => key.id.len(),
        Write::Add { key, field, .. } => key.id.len() + field.len(),
        Write::Transfer { from, to, .. } => from.id.len() + to.id.len(),
        Write::Claim { claim, holder } | Write::Unclaim { claim, holder } => {
            claim_bytes(claim) + holder.id.len()
        }
        Write::Append { log, name, payload } => log.log.len() + name.len() + payload.len(),
        Write::Close { log } => log.log.len(),
        Write::Extend { key, token, .. }
        | Write::Release { key, token, .. }
        | Write::Settle { key, token } => key.id.len() + token.len(),
    }
}

fn fact_bytes(fact: &Fact) -> usize {
    fact.name.len() + fact.body.len() + fact.private.as_ref().map_or(0, String::len)
}

impl Store {
    /// Starts one request's work.
    pub fn begin(&self, organization: &str) -> Txn {
        Txn::new(self, organization)
    }
}

impl Txn {
    pub(crate) fn new(store: &Store, organization: &str) -> Self {
        Self {
            unit: Unit {
                organization: organization.into(),
                at: Some(store.now()),
                ..Unit::default()
            },
            store: store.reading_for(organization),
            own: BTreeMap::new(),
            adds: BTreeMap::new(),
            claims: BTreeMap::new(),
            seen: BTreeMap::new(),
            once: Vec::new(),
            taken: Vec::new(),
            tickets: Vec::new(),
            reading: false,
            held_bytes: 0,
        }
    }

    /// Bytes of what was read, written and handed out here, about: it stays in memory until the
    /// commit. Every text that is kept here counts, whatever it is of.
    pub fn memory_bytes(&self) -> usize {
        self.held_bytes
    }

    fn hold_bytes(&mut self, bytes: usize) {
        self.held_bytes += bytes + HELD_ROW_BYTES;
    }

    fn push_guard(&mut self, guard: Guard) {
        self.hold_bytes(guard_bytes(&guard));
        self.unit.guards.push(guard);
    }

    fn push_write(&mut self, write: Write) {
        self.hold_bytes(write_bytes(&write));
        self.unit.writes.push(write);
    }

    /// The row as this request leaves it.
    fn set_own(&mut self, key: &Key, row: Option<Row>) {
        self.hold_bytes(key.id.len() + row.as_ref().map_or(0, Row::text_bytes));
        self.own.insert(key.clone(), row);
    }

    /// The holder of a value as it was read, or as this request leaves it.
    fn set_holder(&mut self, claim: &Claim, holder: Option<Key>) {
        self.hold_bytes(claim_bytes(claim) + holder.as_ref().map_or(0, |key| key.id.len()));
        let at = (claim.reach.clone(), claim.space.clone(), claim.name.clone());
        self.claims.insert(at, holder);
    }

    /// The store that it reads and commits to.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The organization whose work it is.
    pub fn organization(&self) -> &str {
        &self.unit.organization
    }

    /// The unit that would be committed now.
    pub fn unit(&self) -> &Unit {
        &self.unit
    }

    /// Each row that this request writes itself, before and after, as far as it was read or written
    /// here: at most `limit`.
    pub fn changes(&self, limit: usize) -> Vec<Change> {
        let digest = |key: &Key, row: &Row| self.store.digest(key, &row.body);
        let changes = self.own.iter().take(limit).map(|(key, after)| Change {
            what: key.label(),
            before: self
                .seen
                .get(key)
                .and_then(Option::as_ref)
                .map(|before| digest(key, &before.row)),
            after: after.as_ref().map(|after| digest(key, after)),
        });
        changes.collect()
    }

    /// For a request that changes nothing: its reads record no guards and wait for no hot row.
    pub fn reading(mut self) -> Self {
        self.reading = true;
        self
    }

    /// Keeps a place in the queues of hot rows until this transaction ends.
    pub fn hold(&mut self, ticket: Ticket) {
        self.tickets.push(ticket);
    }

    /// The row, own writes first. Validated at the commit.
    pub async fn get(&mut self, key: &Key) -> Result<Option<Row>, ReadError> {
        if let Some(own) = self.own.get(key) {
            return Ok(own.clone());
        }
        let stored = self.read(key).await?;
        Ok(self.with_adds(key, stored.map(|stored| stored.row)))
    }

    /// The row, own writes first. Not validated.
    pub async fn get_relaxed(&self, key: &Key) -> Result<Option<Row>, ReadError> {
        if let Some(own) = self.own.get(key) {
            return Ok(own.clone());
        }
        let row = self.store.get(key).await?;
        Ok(self.with_adds(key, row))
    }

    /// The organization whose work inserted a row, empty for the deployment's own. Not validated.
    pub async fn organization_of(&self, key: &Key) -> Result<Option<String>, ReadError> {
        match self.own.get(key) {
            Some(own) => Ok(own.as_ref().map(|_| self.unit.organization.clone())),
            None => Ok(self.store.load(key).await?.map(|stored| stored.organization)),
        }
    }

    fn with_adds(&self, key: &Key, row: Option<Row>) -> Option<Row> {
        let mut row = row?;
        for (field, amount) in self.adds.get(key).into_iter().flatten() {
            if let Ok(body) = add_to_body(key, &row.body, field, *amount) {
                row.body = body;
                row.version += 1;
            }
        }
        Some(row)
    }

    /// Reads the committed row and records what was read.
    async fn read(&mut self, key: &Key) -> Result<Option<Stored>, ReadError> {
        // An address that no row can have needs no validation.
        if self.reading || !key_fits(key) {
            return self.store.load(key).await;
        }
        if let Some(seen) = self.seen.get(key) {
            return Ok(seen.clone());
        }
        // A caller that already holds a place waits for no other: nobody waits in a circle.
        if self.tickets.is_empty()
            && let Some(ticket) = self.store.ticket_if_hot(key).await
        {
            self.tickets.push(ticket);
        }
        let stored = self.store.load(key).await?;
        self.push_guard(match &stored {
            Some(stored) => Guard::Stamp { key: key.clone(), stamp: stored.stamp },
            None => Guard::Version { key: key.clone(), version: None },
        });
        self.hold_bytes(key.id.len() + stored.as_ref().map_or(0, |stored| stored.row.text_bytes()));
        self.seen.insert(key.clone(), stored.clone());
        Ok(stored)
    }

    /// Rows of a space. Committed state: own writes are seen by `get` only. Validated unless
    /// relaxed.
    pub async fn find(&mut self, query: &Query) -> Result<Page, ReadError> {
        let (page, revision) = self.store.find_at(query).await?;
        self.guard_revision(&query.reach, &query.space, query.relaxed, revision);
        Ok(page)
    }

    /// How many rows the query's tests match; order, limit, position and offset do not count.
    /// Validated unless relaxed.
    pub async fn count(&mut self, query: &Query) -> Result<u64, ReadError> {
        let (count, revision) = self.store.count_at(query).await?;
        self.guard_revision(&query.reach, &query.space, query.relaxed, revision);
        Ok(count)
    }

    fn guard_revision(&mut self, reach: &Reach, space: &Space, relaxed: bool, revision: u64) {
        if relaxed || self.reading {
            return;
        }
        assert!(!is_book(space), "the books have no revisions: they are searched relaxed");
        let seen = |guard: &Guard| matches!(guard, Guard::Revision { reach: r, space: s, .. } if r == reach && s == space);
        if !self.unit.guards.iter().any(seen) {
            self.push_guard(Guard::Revision {
                reach: reach.clone(),
                space: space.clone(),
                revision,
            });
        }
    }

    /// The holder of the unique value or name, own writes first. Validated by the value alone.
    pub async fn lookup(&mut self, claim: &Claim) -> Result<Option<Key>, ReadError> {
        let at = (claim.reach.clone(), claim.space.clone(), claim.name.clone());
        if let Some(own) = self.claims.get(&at) {
            return Ok(own.clone());
        }
        let holder = self.store.lookup(claim).await?;
        // A value that nobody can hold needs no validation, and is the same whenever it is asked.
        if !claim_fits(claim) {
            return Ok(holder);
        }
        if !self.reading {
            self.guard(Guard::Claim {
                claim: claim.clone(),
                holder: holder.as_ref().map(|key| key.id.clone()),
            });
        }
        // Asked again within this transaction, the answer is the same; the guard finds out at the
        // commit. Otherwise a caller that saw a value free would be refused for it at its insert,
        // instead of being run again.
        self.set_holder(claim, holder.clone());
        Ok(holder)
    }

    /// Rows whose text has all the words, best first. Not validated.
    pub async fn search(
        &self,
        reach: &Reach,
        space: &Space,
        text: &str,
        limit: u32,
    ) -> Result<Vec<(Key, Row)>, ReadError> {
        self.store.search(reach, space, text, limit).await
    }

    /// The numbers of a group of a leased space. Not validated.
    pub async fn standing(
        &self,
        reach: &Reach,
        space: &Space,
        group: &str,
    ) -> Result<GroupStanding, ReadError> {
        self.store.standing(reach, space, group).await
    }

    /// The row as the commit will make it.
    fn merge(&self, old: Option<&Row>, draft: &Draft) -> Row {
        let now = self.store.now();
        merge(old, draft, self.unit.at.unwrap_or(now), now)
    }

    /// A new row. Refused at once where another row holds one of its unique values; a taken key is
    /// found at the commit.
    pub async fn insert(&mut self, key: Key, draft: Draft) -> Result<Row, WriteError> {
        if let Some(Some(_)) = self.own.get(&key) {
            return Err(Refused::Exists { key }.into());
        }
        self.claim_values(&key, None, &draft).await?;
        let row = self.merge(None, &draft);
        self.set_own(&key, Some(row.clone()));
        self.push_write(Write::Insert { key, draft });
        Ok(row)
    }

    /// An existing row's new content. Refused at once where the row is absent or not at the
    /// expected version.
    pub async fn replace(
        &mut self,
        key: Key,
        draft: Draft,
        expected: Option<u64>,
    ) -> Result<Row, WriteError> {
        let Some(old) = self.get(&key).await? else { return Err(Refused::Missing { key }.into()) };
        if expected.is_some_and(|expected| expected != old.version) {
            return Err(Refused::Stale { key, current: old.version }.into());
        }
        self.claim_values(&key, Some(&old), &draft).await?;
        let row = self.merge(Some(&old), &draft);
        self.set_own(&key, Some(row.clone()));
        self.push_write(Write::Replace { key, draft, expected: None });
        Ok(row)
    }

    /// Inserts or replaces, whichever fits what is there now.
    pub async fn put(&mut self, key: Key, draft: Draft) -> Result<Row, WriteError> {
        let old = self.get(&key).await?;
        self.claim_values(&key, old.as_ref(), &draft).await?;
        let row = self.merge(old.as_ref(), &draft);
        self.set_own(&key, Some(row.clone()));
        self.push_write(Write::Put { key, draft });
        Ok(row)
    }

    /// Removes a row; false where there is none.
    pub async fn remove(&mut self, key: &Key, expected: Option<u64>) -> Result<bool, WriteError> {
        let Some(old) = self.get(key).await? else { return Ok(false) };
        if expected.is_some_and(|expected| expected != old.version) {
            return Err(Refused::Stale { key: key.clone(), current: old.version }.into());
        }
        self.forget_values(key, &old);
        self.set_own(key, None);
        self.push_write(Write::Remove { key: key.clone(), expected: None });
        Ok(true)
    }

    /// Looks whether the draft's unique values are free, so that the caller can word the refusal,
    /// and notes them as its own.
    async fn claim_values(
        &mut self,
        key: &Key,
        old: Option<&Row>,
        draft: &Draft,
    ) -> Result<(), WriteError> {
        for (field, value) in &draft.unique {
            let claim = Claim::unique(&key.reach, &key.space, field, value);
            if old.is_some_and(|old| old.unique.iter().any(|(f, v)| f == field && v == value)) {
                continue;
            }
            match self.lookup(&claim).await? {
                // A holder that was gone when it was read: the guards of both reads cannot hold, and the
                // unit is run again.
                Some(holder) if matches!(self.seen.get(&holder), Some(None)) => {}
                Some(holder) if holder != *key => {
                    return Err(Refused::ClaimLost { claim, holder }.into());
                }
                _ => {}
            }
        }
        if let Some(old) = old {
            self.forget_values(key, old);
        }
        for (field, value) in &draft.unique {
            let claim = Claim::unique(&key.reach, &key.space, field, value);
            self.set_holder(&claim, Some(key.clone()));
        }
        Ok(())
    }

    fn forget_values(&mut self, key: &Key, old: &Row) {
        for (field, value) in &old.unique {
            let claim = Claim::unique(&key.reach, &key.space, field, value);
            self.set_holder(&claim, None);
        }
    }

    /// Adds to an integer field of a row that must exist. Commutes: never a conflict, unless the
    /// row was also read.
    pub fn add(&mut self, key: &Key, field: &str, amount: i64) -> Result<(), Refused> {
        match self.own.get_mut(key) {
            Some(None) => return Err(Refused::Missing { key: key.clone() }),
            Some(Some(row)) => {
                row.body = add_to_body(key, &row.body, field, amount)?;
                row.version += 1;
            }
            None => self.adds.entry(key.clone()).or_default().push((field.into(), amount)),
        }
        self.hold_bytes(key.id.len() + field.len());
        self.push_write(Write::Add { key: key.clone(), field: field.into(), amount });
        Ok(())
    }

    /// Claims a name for a row, which must exist when the unit commits; false where another row
    /// holds it.
    pub async fn claim(&mut self, claim: &Claim, holder: &Key) -> Result<bool, ReadError> {
        if self.lookup(claim).await?.is_some_and(|other| other != *holder) {
            return Ok(false);
        }
        self.set_holder(claim, Some(holder.clone()));
        self.push_write(Write::Claim { claim: claim.clone(), holder: holder.clone() });
        Ok(true)
    }

    /// Gives a name up; nothing happens unless `holder` holds it.
    pub fn unclaim(&mut self, claim: &Claim, holder: &Key) {
        self.set_holder(claim, None);
        self.push_write(Write::Unclaim { claim: claim.clone(), holder: holder.clone() });
    }

    /// Appends to a log.
    pub fn append(&mut self, log: &LogKey, name: &str, payload: String) {
        self.push_write(Write::Append { log: log.clone(), name: name.into(), payload });
    }

    /// Closes a log.
    pub fn close(&mut self, log: &LogKey) {
        self.push_write(Write::Close { log: log.clone() });
    }

    /// Committed entries of a log. Not validated.
    pub async fn log_read(
        &self,
        log: &LogKey,
        after: u64,
        limit: u32,
    ) -> Result<LogPage, ReadError> {
        self.store.log_read(log, after, limit).await
    }

    /// How far a log is. Not validated.
    pub async fn log_head(&self, log: &LogKey) -> Result<LogHead, ReadError> {
        self.store.log_head(log).await
    }

    /// Moves a lease's end.
    pub fn extend(&mut self, key: &Key, token: &str, until: Instant) {
        self.push_write(Write::Extend { key: key.clone(), token: token.into(), until });
    }

    /// Ends a lease; the row is due again at `due_at`.
    pub fn release(&mut self, key: &Key, token: &str, due_at: Instant) {
        let token = token.into();
        self.push_write(Write::Release { key: key.clone(), token, due_at, undo: false });
    }

    /// Ends a lease and removes the row.
    pub fn settle(&mut self, key: &Key, token: &str) {
        self.set_own(key, None);
        self.push_write(Write::Settle { key: key.clone(), token: token.into() });
    }

    /// Not handed out before this.
    pub fn defer(&mut self, key: &Key, due_at: Instant) {
        self.push_write(Write::Defer { key: key.clone(), due_at });
    }

    /// Removes rows of a group, held or not, at most `limit`; true while more is left. Not
    /// validated.
    pub async fn purge(
        &mut self,
        reach: &Reach,
        space: &Space,
        group: &str,
        limit: u32,
    ) -> Result<bool, ReadError> {
        let keys = self.store.group_keys(reach, space, group, limit.saturating_add(1)).await?;
        let more = keys.len() > limit as usize;
        for key in keys.into_iter().take(limit as usize) {
            self.set_own(&key, None);
            self.push_write(Write::Remove { key, expected: None });
        }
        Ok(more)
    }

    /// Tells others.
    pub fn fact(&mut self, fact: Fact) {
        self.hold_bytes(fact_bytes(&fact));
        self.unit.facts.push(fact);
    }

    /// Something else that must still hold; said twice it is asked once.
    pub fn guard(&mut self, guard: Guard) {
        if !self.unit.guards.contains(&guard) {
            self.push_guard(guard);
        }
    }

    /// Writes that make a step from what the guards say: they must hold at the next commit, which
    /// makes them untrue.
    pub fn step(&mut self, guards: Vec<Guard>, writes: Vec<Write>) {
        for guard in guards {
            self.hold_bytes(guard_bytes(&guard));
            self.once.push(guard);
        }
        writes.into_iter().for_each(|write| self.push_write(write));
    }

    /// A write as it is: nothing is read for it, and `get` does not see it.
    pub fn write(&mut self, write: Write) {
        self.push_write(write);
    }

    /// Rows handed out to this caller alone. Commits at once, under this transaction's entry and
    /// lease guards; remembered, so that [`Txn::abandon`] gives them back.
    pub async fn take(&mut self, take: Take) -> Result<Vec<Taken>, CommitError> {
        let unit = Unit {
            organization: self.unit.organization.clone(),
            guards: self.unit.guards.iter().filter(|guard| guard.is_fence()).cloned().collect(),
            takes: vec![take],
            ..Unit::default()
        };
        let taken = self.store.commit(unit).await?.taken.into_iter().flatten().collect::<Vec<_>>();
        for taken in &taken {
            let texts = taken.key.id.len() + taken.token.len();
            self.hold_bytes(taken.row.text_bytes() + texts);
        }
        self.taken.extend(taken.iter().cloned());
        Ok(taken)
    }

    /// The rows that were handed out so far.
    pub fn takes(&self) -> &[Taken] {
        &self.taken
    }

    /// The request failed: gives back what was handed out, uncounted and in its old place, and
    /// forgets everything else.
    pub async fn abandon(self) -> Result<(), CommitError> {
        if self.taken.is_empty() {
            return Ok(());
        }
        // One by one: a lease that has ended meanwhile must not keep the others from going back.
        let mut last = Ok(());
        for Taken { key, token, due_at, .. } in self.taken {
            let writes = vec![Write::Release { key, token, due_at, undo: true }];
            let unit =
                Unit { organization: self.unit.organization.clone(), writes, ..Unit::default() };
            match self.store.commit_settling(unit).await {
                Err(error) if error.refusal().is_none() => last = Err(error),
                _ => {}
            }
        }
        last
    }

    /// Commits. Rows that were handed out stay handed out.
    pub async fn commit(mut self) -> Result<Applied, CommitError> {
        self.unit.guards.append(&mut self.once);
        self.store.commit(self.unit).await
    }

    /// Commits a unit that settles what has already happened: taken even while the store is
    /// read-only for want of space.
    pub async fn commit_settling(mut self) -> Result<Applied, CommitError> {
        self.unit.guards.append(&mut self.once);
        self.store.commit_settling(self.unit).await
    }

    /// Commits what there is so far and goes on; later reads are validated anew. Entry and lease
    /// guards stay. Rows that were handed out before are part of it: they stay handed out.
    pub async fn checkpoint(&mut self) -> Result<Applied, CommitError> {
        let organization = self.unit.organization.clone();
        let guards = self.unit.guards.iter().filter(|guard| guard.is_fence()).cloned().collect();
        let mut unit = std::mem::replace(
            &mut self.unit,
            Unit { organization, at: Some(self.store.now()), guards, ..Unit::default() },
        );
        unit.guards.append(&mut self.once);
        let applied = self.store.commit(unit).await?;
        self.own.clear();
        self.adds.clear();
        self.claims.clear();
        self.seen.clear();
        self.tickets.clear();
        self.taken.clear();
        let kept = self.unit.guards.iter().map(|guard| guard_bytes(guard) + HELD_ROW_BYTES);
        self.held_bytes = kept.sum();
        Ok(applied)
    }

    /// The unit, for who commits it otherwise: with all that must still hold.
    pub fn into_unit(mut self) -> Unit {
        self.unit.guards.append(&mut self.once);
        self.unit
    }
}

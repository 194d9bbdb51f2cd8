//! The reads and writes of one attempt: reads become guards of its unit, writes wait in it, and the
//! commit decides.
//!
//! Knows no interface. Invariant: what was read through `get`, `find`, `count` and `lookup` cannot
//! have changed when the unit commits.

use std::collections::BTreeMap;

use charter_kernel::apply::{Stored, add_to_body, key_fits, merge};
use charter_kernel::time::Instant;
use charter_kernel::unit::{Claim, Draft, Guard, Key, Refused, Row, Unit, Write};

use crate::find::{Page, Query};
use crate::rows::Rows;

/// One attempt's view of the rows.
#[derive(Debug)]
pub(crate) struct Txn {
    pub(crate) unit: Unit,
    is_reading: bool,
    now: Instant,
    /// The attempt's own rows; `None` where it removed one.
    own: BTreeMap<Key, Option<Row>>,
    adds: BTreeMap<Key, Vec<(String, i64)>>,
    claims: BTreeMap<Claim, Option<Key>>,
    seen: BTreeMap<Key, Option<Stored>>,
}

impl Txn {
    /// Of an organization's request. One that reads only records no guards.
    pub(crate) fn new(organization: &str, now: Instant, is_reading: bool) -> Self {
        let unit = Unit { organization: organization.into(), at: Some(now), ..Unit::default() };
        Self {
            unit,
            is_reading,
            now,
            own: BTreeMap::new(),
            adds: BTreeMap::new(),
            claims: BTreeMap::new(),
            seen: BTreeMap::new(),
        }
    }

    /// The row, own writes first. Validated at the commit.
    pub(crate) fn get(&mut self, rows: &Rows, key: &Key) -> Option<Row> {
        if let Some(own) = self.own.get(key) {
            return own.clone();
        }
        let stored = match self.seen.get(key) {
            Some(seen) => seen.clone(),
            None => self.read(rows, key),
        };
        self.with_adds(key, stored.map(|stored| stored.row))
    }

    fn read(&mut self, rows: &Rows, key: &Key) -> Option<Stored> {
        let stored = rows.find_stored(key).cloned();
        if !self.is_reading && key_fits(key) {
            self.unit.guards.push(match &stored {
                Some(stored) => Guard::Stamp { key: key.clone(), stamp: stored.stamp },
                None => Guard::Version { key: key.clone(), version: None },
            });
            self.seen.insert(key.clone(), stored.clone());
        }
        stored
    }

    /// The row, own writes first. Not validated.
    pub(crate) fn get_relaxed(&self, rows: &Rows, key: &Key) -> Option<Row> {
        match self.own.get(key) {
            Some(own) => own.clone(),
            None => self.with_adds(key, rows.row(key).cloned()),
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

    /// A page of committed rows. Validated unless relaxed.
    pub(crate) fn find(&mut self, rows: &Rows, query: &Query) -> Page {
        self.guard_revision(rows, query);
        rows.find(query)
    }

    /// How many committed rows match. Validated unless relaxed.
    pub(crate) fn count(&mut self, rows: &Rows, query: &Query) -> u64 {
        self.guard_revision(rows, query);
        rows.count(query)
    }

    fn guard_revision(&mut self, rows: &Rows, query: &Query) {
        if query.relaxed || self.is_reading {
            return;
        }
        let (reach, space) = (query.reach.clone(), query.space.clone());
        let is_guarded = self.unit.guards.iter().any(|guard| {
            matches!(guard, Guard::Revision { reach: of, space: to, .. } if *of == reach && *to == space)
        });
        if !is_guarded {
            let revision = rows.revision(&reach, &space);
            self.unit.guards.push(Guard::Revision { reach, space, revision });
        }
    }

    /// The holder of a unique value or a name, own writes first. Validated by the value alone.
    pub(crate) fn lookup(&mut self, rows: &Rows, claim: &Claim) -> Option<Key> {
        if let Some(own) = self.claims.get(claim) {
            return own.clone();
        }
        let holder = rows.holder(claim).cloned();
        if !self.is_reading {
            let holder = holder.as_ref().map(|key| key.id.clone());
            self.guard(Guard::Claim { claim: claim.clone(), holder });
        }
        self.claims.insert(claim.clone(), holder.clone());
        holder
    }

    /// A new row. Refused at once where another holds one of its unique values.
    pub(crate) fn insert(&mut self, rows: &Rows, key: Key, draft: Draft) -> Result<Row, Refused> {
        self.claim_values(rows, &key, None, &draft)?;
        let row = self.make_row(key.clone(), None, &draft);
        self.unit.writes.push(Write::Insert { key, draft });
        Ok(row)
    }

    /// New content of a row. Refused at once where it is absent or at another version.
    pub(crate) fn replace(
        &mut self,
        rows: &Rows,
        key: Key,
        draft: Draft,
        expected: Option<u64>,
    ) -> Result<Row, Refused> {
        let Some(old) = self.get(rows, &key) else { return Err(Refused::Missing { key }) };
        is_expected(&key, &old, expected)?;
        self.claim_values(rows, &key, Some(&old), &draft)?;
        let row = self.make_row(key.clone(), Some(&old), &draft);
        self.unit.writes.push(Write::Replace { key, draft, expected: None });
        Ok(row)
    }

    /// Inserts or replaces, whichever fits.
    pub(crate) fn put(&mut self, rows: &Rows, key: Key, draft: Draft) -> Result<Row, Refused> {
        let old = self.get(rows, &key);
        self.claim_values(rows, &key, old.as_ref(), &draft)?;
        let row = self.make_row(key.clone(), old.as_ref(), &draft);
        self.unit.writes.push(Write::Put { key, draft });
        Ok(row)
    }

    /// Removes a row; false where there is none.
    pub(crate) fn remove(
        &mut self,
        rows: &Rows,
        key: &Key,
        expected: Option<u64>,
    ) -> Result<bool, Refused> {
        let Some(old) = self.get(rows, key) else { return Ok(false) };
        is_expected(key, &old, expected)?;
        self.forget_values(key, &old);
        self.hide(key);
        self.unit.writes.push(Write::Remove { key: key.clone(), expected: None });
        Ok(true)
    }

    /// The row is gone for this attempt's own reads.
    pub(crate) fn hide(&mut self, key: &Key) {
        self.own.insert(key.clone(), None);
    }

    /// Adds to an integer member. Commutes.
    pub(crate) fn add(&mut self, key: &Key, field: &str, amount: i64) -> Result<(), Refused> {
        match self.own.get_mut(key) {
            Some(None) => return Err(Refused::Missing { key: key.clone() }),
            Some(Some(row)) => {
                row.body = add_to_body(key, &row.body, field, amount)?;
                row.version += 1;
            }
            None => self.adds.entry(key.clone()).or_default().push((field.into(), amount)),
        }
        self.write(Write::Add { key: key.clone(), field: field.into(), amount });
        Ok(())
    }

    /// A write as it is: nothing is read for it, and `get` does not see it.
    pub(crate) fn write(&mut self, write: Write) {
        self.unit.writes.push(write);
    }

    /// Something else that must still hold; said twice it is asked once.
    pub(crate) fn guard(&mut self, guard: Guard) {
        if !self.unit.guards.contains(&guard) {
            self.unit.guards.push(guard);
        }
    }

    /// The unit so far, to be committed now; what is read later is read anew.
    pub(crate) fn begin_anew(&mut self) -> Unit {
        let next = Self::new(&self.unit.organization, self.now, self.is_reading);
        std::mem::replace(self, next).unit
    }

    fn make_row(&mut self, key: Key, old: Option<&Row>, draft: &Draft) -> Row {
        let row = merge(old, draft, self.now, self.now);
        self.own.insert(key, Some(row.clone()));
        row
    }

    fn claim_values(
        &mut self,
        rows: &Rows,
        key: &Key,
        old: Option<&Row>,
        draft: &Draft,
    ) -> Result<(), Refused> {
        let claim =
            |(field, value): &(String, String)| Claim::unique(&key.reach, &key.space, field, value);
        let is_new = |pair: &&(String, String)| old.is_none_or(|old| !old.unique.contains(pair));
        for claim in draft.unique.iter().filter(is_new).map(claim) {
            if let Some(holder) = self.lookup(rows, &claim).filter(|holder| holder != key) {
                return Err(Refused::ClaimLost { claim, holder });
            }
        }
        if let Some(old) = old {
            self.forget_values(key, old);
        }
        self.claims.extend(draft.unique.iter().map(claim).map(|claim| (claim, Some(key.clone()))));
        Ok(())
    }

    fn forget_values(&mut self, key: &Key, old: &Row) {
        for (field, value) in &old.unique {
            self.claims.insert(Claim::unique(&key.reach, &key.space, field, value), None);
        }
    }
}

fn is_expected(key: &Key, row: &Row, expected: Option<u64>) -> Result<(), Refused> {
    match expected {
        Some(expected) if expected != row.version => {
            Err(Refused::Stale { key: key.clone(), current: row.version })
        }
        _ => Ok(()),
    }
}

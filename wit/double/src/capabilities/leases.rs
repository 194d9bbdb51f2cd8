//! `leases`: handed out by the kernel's decision, at once.

use charter_kernel::apply::rule;
use charter_kernel::limits::LEASE_MS_MAX;
use charter_kernel::refusal::Failure;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Key, Reach, Refused, Space, Take, Taken, Unit, Write};
use charter_sdk::bindings::charter::primitive::leases::{Leased, Standing};
use charter_sdk::native::{Answer, Leases};

use super::documents::document;
use crate::call::{TakeRecord, Work};
use crate::world::{Double, World};

/// Documents that one call hands out.
const TAKEN_MAX: u32 = 100;
/// Documents that one call of `purge` removes.
const PURGED_MAX: usize = 500;

impl Work {
    fn leased_place(
        &self,
        world: &World,
        collection: &str,
        is_written: bool,
    ) -> Result<(Reach, Space), Failure> {
        let (declared, reach, space) = self.place(world, collection, is_written)?;
        match declared.leased {
            Some(_) => Ok((reach, space)),
            None => Err(Failure::undeclared(format!(
                "the collection `{collection}` is not declared leased"
            ))),
        }
    }

    /// The rows that this place of the request was handed out before, if it asks for the same
    /// again.
    fn repeat_take(&mut self, collection: &str, group: &str, limit: u32) -> Option<Vec<Taken>> {
        let attempt = self.story.attempt;
        let record = self.story.takes.get_mut(self.asked.takes)?;
        let is_same =
            record.collection == collection && record.group == group && record.limit == limit;
        if !is_same || record.attempt == attempt {
            return None;
        }
        record.attempt = attempt;
        Some(record.taken.clone())
    }

    fn take(
        &mut self,
        world: &mut World,
        (collection, group): (&str, &str),
        limit: u32,
        until: Instant,
    ) -> Result<Vec<Taken>, Failure> {
        let (reach, space) = self.leased_place(world, collection, true)?;
        if let Some(taken) = self.repeat_take(collection, group, limit) {
            self.asked.takes += 1;
            return Ok(taken);
        }
        let tokens = (0..limit).map(|_| world.fresh_id()).collect();
        let take = Take { reach: Some(reach), space, group: group.to_owned(), until, tokens };
        let organization = self.call.scope.lane().to_owned();
        let unit = Unit { organization, takes: vec![take], ..Unit::default() };
        let applied =
            world.rows.commit(&unit, world.now).map_err(|rejection| self.reject(rejection))?;
        let taken: Vec<Taken> = applied.taken.into_iter().flatten().collect();
        if !taken.is_empty() {
            let record = TakeRecord {
                collection: collection.to_owned(),
                group: group.to_owned(),
                limit,
                taken: taken.clone(),
                attempt: self.story.attempt,
            };
            let place = self.asked.takes.min(self.story.takes.len());
            self.story.takes.insert(place, record);
            self.asked.takes += 1;
        }
        Ok(taken)
    }

    /// The row and the random half behind a token, while it holds; the commit decides.
    fn parse_token(&mut self, world: &World, token: &str) -> Result<(Key, String), Failure> {
        let mut parts = token.splitn(3, '~');
        let (Some(random), Some(collection), Some(id)) = (parts.next(), parts.next(), parts.next())
        else {
            return Err(Failure::invalid("token", "this is no token of a lease"));
        };
        let (reach, space) = self.leased_place(world, collection, true)?;
        let key = Key::new(&reach, &space, id);
        let lease = self.txn.get_relaxed(&world.rows, &key).and_then(|row| row.lease);
        let holds = lease.is_some_and(|lease| {
            lease.token.as_deref() == Some(random) && lease.due_at > world.now
        });
        if holds { Ok((key, random.to_owned())) } else { Err(rule(&Refused::LeaseLost { key })) }
    }
}

fn lease_end(world: &World, until: i64) -> Instant {
    Instant(until).min(world.now.plus_ms(LEASE_MS_MAX))
}

impl Leases for Double {
    fn take(&self, collection: &str, group: &str, limit: u32, until: i64) -> Answer<Vec<Leased>> {
        self.changing("leases", |world, work| {
            let limit = limit.min(TAKEN_MAX);
            if limit == 0 {
                return Ok(Vec::new());
            }
            let until = lease_end(world, until);
            let taken = work.take(world, (collection, group), limit, until)?;
            let leased = taken.into_iter().map(|Taken { key, row, token, .. }| {
                let lease = row.lease.clone();
                Leased {
                    token: format!("{token}~{collection}~{}", key.id),
                    count: lease.as_ref().map_or(0, |lease| lease.count),
                    until: lease.map_or(until.0, |lease| lease.due_at.0),
                    document: document(&key.id, row),
                }
            });
            Ok(leased.collect())
        })
    }

    fn extend(&self, token: &str, until: i64) -> Answer<()> {
        self.changing("leases", |world, work| {
            let (key, token) = work.parse_token(world, token)?;
            let until = lease_end(world, until);
            work.txn.write(Write::Extend { key, token, until });
            Ok(())
        })
    }

    fn release(&self, token: &str, due_at: i64) -> Answer<()> {
        self.changing("leases", |world, work| {
            let (key, token) = work.parse_token(world, token)?;
            let due_at = Instant::nearest(due_at);
            work.txn.write(Write::Release { key, token, due_at, undo: false });
            Ok(())
        })
    }

    fn settle(&self, token: &str) -> Answer<()> {
        self.changing("leases", |world, work| {
            let (key, token) = work.parse_token(world, token)?;
            work.txn.hide(&key);
            work.txn.write(Write::Settle { key, token });
            Ok(())
        })
    }

    fn defer(&self, collection: &str, id: &str, due_at: i64) -> Answer<()> {
        self.changing("leases", |world, work| {
            let (reach, space) = work.leased_place(world, collection, true)?;
            let (key, due_at) = (Key::new(&reach, &space, id), Instant::nearest(due_at));
            work.txn.write(Write::Defer { key, due_at });
            Ok(())
        })
    }

    fn standing_of(&self, collection: &str, group: &str) -> Answer<Standing> {
        self.reading("leases", |world, work| {
            let (reach, space) = work.leased_place(world, collection, false)?;
            let standing = world.rows.standing(&reach, &space, group, world.now);
            Ok(Standing {
                ready: standing.ready,
                held: standing.held,
                waiting: standing.waiting,
                oldest: standing.oldest.map(|at| at.0),
            })
        })
    }

    fn purge(&self, collection: &str, group: &str) -> Answer<bool> {
        self.changing("leases", |world, work| {
            let (reach, space) = work.leased_place(world, collection, true)?;
            let is_of = |lease: &charter_kernel::unit::Lease| lease.group == group;
            let rows = world.rows.of(Some(&reach), &space);
            let rows = rows.filter(|(_, row)| row.lease.as_ref().is_some_and(is_of));
            let keys: Vec<Key> = rows.take(PURGED_MAX + 1).map(|(key, _)| key.clone()).collect();
            for key in keys.iter().take(PURGED_MAX) {
                work.txn.hide(key);
                work.txn.write(Write::Remove { key: key.clone(), expected: None });
            }
            Ok(keys.len() > PURGED_MAX)
        })
    }
}

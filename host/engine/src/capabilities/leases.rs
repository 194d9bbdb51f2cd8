//! `leases`: documents handed out one at a time, decided by the committer.
//!
//! The token that a guest holds names the row, so that a later request can settle it by the token
//! alone; the committer compares the random half. A take is known by its place in the request: a
//! re-run gets the same rows.

mod token;

use charter_kernel::limits::LEASE_MS_MAX;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Key, Reach, Space, Take, Taken};

use self::token::Token;
use super::documents::document;
use crate::bindings::charter::primitive::leases::{Host, Leased, Standing};
use crate::bindings::charter::primitive::types::Failure;
use crate::component::CollectionPlan;
use crate::failure::{undeclared, unread};
use crate::state::{State, Work};
use crate::story::TakeRecord;

/// Documents that one call hands out.
const TAKEN_MAX: u32 = 100;
/// Documents that one call of `purge` removes.
const PURGED_MAX: u32 = 500;
/// Groups that one attempt waits for. All that falls due in others it sees a few seconds later.
const GROUPS_MAX: usize = 100;

fn require_leases(plan: &CollectionPlan) -> Result<&CollectionPlan, Failure> {
    if plan.declared.leased.is_none() {
        return Err(undeclared(format!(
            "the collection `{}` is not declared leased",
            plan.declared.name
        ))
        .into());
    }
    Ok(plan)
}

impl Work {
    /// The row and the random half behind a token.
    fn parse_token(&self, token: &str) -> Result<(Key, String), Failure> {
        let token = Token::parse(token)?;
        require_leases(self.component.collection(&token.collection)?)?;
        let key = self.key(&token.collection, &token.id, true)?;
        Ok((key, token.random))
    }

    /// When a lease ends that is asked for until then.
    fn lease_end(&self, until: i64) -> Instant {
        Instant(until).min(self.now.plus_ms(LEASE_MS_MAX))
    }

    /// Has an `again` wait for what falls due in a group, too.
    fn watch(&mut self, reach: &Reach, space: &Space, group: &str) {
        let known = self.groups.iter().any(|(r, s, g)| r == reach && s == space && g == group);
        if !known && self.groups.len() < GROUPS_MAX {
            self.groups.push((reach.clone(), space.clone(), group.to_owned()));
        }
    }

    /// The rows that this place of the request was handed out before, if it asks for the same
    /// again.
    fn repeat_take(&mut self, collection: &str, group: &str, limit: u32) -> Option<Vec<Taken>> {
        let attempt = self.story.attempt;
        let record = self.story.takes.get_mut(self.takes)?;
        if record.collection != collection
            || record.group != group
            || record.limit != limit
            || record.attempt == attempt
        {
            return None;
        }
        record.attempt = attempt;
        Some(record.taken.clone())
    }

    async fn take(
        &mut self,
        collection: &str,
        group: &str,
        limit: u32,
        until: Instant,
    ) -> Result<Vec<Taken>, Failure> {
        let plan_key = self.key(collection, "", true)?;
        require_leases(self.component.collection(collection)?)?;
        self.watch(&plan_key.reach, &plan_key.space, group);
        if let Some(taken) = self.repeat_take(collection, group, limit) {
            self.takes += 1;
            return Ok(taken);
        }
        let mut tokens = Vec::with_capacity(limit as usize);
        for _ in 0..limit {
            tokens.push(Token::random(&self.shared)?);
        }
        let take = Take {
            reach: Some(plan_key.reach),
            space: plan_key.space,
            group: group.to_owned(),
            until,
            tokens,
        };
        let _commit = self.story.marks.begin_commit().await?;
        let taken = match self.txn.take(take).await {
            Ok(taken) => taken,
            Err(error) => return Err(self.abort_commit(error)),
        };
        if taken.is_empty() {
            // Nothing was handed out, so there is nothing to repeat: a request that waits must see
            // what has come since.
            return Ok(taken);
        }
        let record = TakeRecord {
            collection: collection.to_owned(),
            group: group.to_owned(),
            limit,
            taken: taken.clone(),
            attempt: self.story.attempt,
        };
        // Rows that an earlier attempt was handed out at this place, and this one did not ask for,
        // go back at the end.
        self.story.keep_take(self.takes, record);
        self.takes += 1;
        Ok(taken)
    }
}

impl Host for State {
    async fn take(
        &mut self,
        collection: String,
        group: String,
        limit: u32,
        until: i64,
    ) -> Result<Vec<Leased>, Failure> {
        self.hold(collection.len() + group.len())?;
        let work = self.mutation()?;
        super::check_key("group", &group)?;
        let limit = limit.min(TAKEN_MAX);
        if limit == 0 {
            return Ok(Vec::new());
        }
        let until = work.lease_end(until);
        let taken = work.take(&collection, &group, limit, until).await?;
        // Rows that were handed out stay so, and go back with the attempt where there is no room.
        self.hold(taken.iter().map(|taken| taken.row.body.len()).sum())?;
        let lease = |taken: Taken| {
            let (count, until) = taken
                .row
                .lease
                .as_ref()
                .map_or((0, until.0), |lease| (lease.count, lease.due_at.0));
            let token = Token {
                random: taken.token,
                collection: collection.clone(),
                id: taken.key.id.clone(),
            };
            Leased {
                document: document(&taken.key.id, taken.row),
                token: token.text(),
                count,
                until,
            }
        };
        Ok(taken.into_iter().map(lease).collect())
    }

    async fn extend(&mut self, token: String, until: i64) -> Result<(), Failure> {
        self.hold(token.len())?;
        let work = self.mutation()?;
        let (key, token) = work.parse_token(&token)?;
        work.still_held(&key, &token).await?;
        let until = work.lease_end(until);
        work.txn.extend(&key, &token, until);
        Ok(())
    }

    async fn release(&mut self, token: String, due_at: i64) -> Result<(), Failure> {
        self.hold(token.len())?;
        let work = self.mutation()?;
        let (key, token) = work.parse_token(&token)?;
        work.still_held(&key, &token).await?;
        work.txn.release(&key, &token, Instant::nearest(due_at));
        Ok(())
    }

    async fn settle(&mut self, token: String) -> Result<(), Failure> {
        self.hold(token.len())?;
        let work = self.mutation()?;
        let (key, token) = work.parse_token(&token)?;
        work.still_held(&key, &token).await?;
        work.txn.settle(&key, &token);
        Ok(())
    }

    async fn defer(&mut self, collection: String, id: String, due_at: i64) -> Result<(), Failure> {
        self.hold(collection.len() + id.len())?;
        let work = self.mutation()?;
        super::check_key("id", &id)?;
        let key = work.key(&collection, &id, true)?;
        require_leases(work.component.collection(&collection)?)?;
        work.txn.defer(&key, Instant::nearest(due_at));
        Ok(())
    }

    async fn standing_of(
        &mut self,
        collection: String,
        group: String,
    ) -> Result<Standing, Failure> {
        let work = self.work()?;
        super::check_key("group", &group)?;
        let key = work.key(&collection, "", false)?;
        require_leases(work.component.collection(&collection)?)?;
        let standing = work
            .txn
            .standing(&key.reach, &key.space, &group)
            .await
            .map_err(|error| unread(&error))?;
        work.watch(&key.reach, &key.space, &group);
        Ok(Standing {
            ready: standing.ready,
            held: standing.held,
            waiting: standing.waiting,
            oldest: standing.oldest.map(|at| at.0),
        })
    }

    async fn purge(&mut self, collection: String, group: String) -> Result<bool, Failure> {
        self.hold(collection.len() + group.len())?;
        let work = self.mutation()?;
        super::check_key("group", &group)?;
        let key = work.key(&collection, "", true)?;
        require_leases(work.component.collection(&collection)?)?;
        let more = work.txn.purge(&key.reach, &key.space, &group, PURGED_MAX).await;
        Ok(more.map_err(|error| unread(&error))?)
    }
}

impl Work {
    /// Looks whether the lease still holds, so that the guest can word the refusal; the commit
    /// decides.
    async fn still_held(&mut self, key: &Key, token: &str) -> Result<(), Failure> {
        let row = self.txn.get_relaxed(key).await.map_err(|error| unread(&error))?;
        let lease = row.and_then(|row| row.lease);
        if lease
            .is_some_and(|lease| lease.token.as_deref() == Some(token) && lease.due_at > self.now)
        {
            return Ok(());
        }
        Err(crate::failure::rule(&charter_kernel::unit::Refused::LeaseLost { key: key.clone() })
            .into())
    }
}

#[cfg(test)]
mod tests;

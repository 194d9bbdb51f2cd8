//! Rates of a primitive's own: taken at once, because what they bound may leave the host in the
//! same request, and given back where the request comes to nothing.

use charter_kernel::governance::rate::{AMOUNT_MAX, PER_SECONDS_MAX};
use charter_kernel::manifest::CollectionReach;
use charter_kernel::refusal::Failure as Refusal;
use charter_kernel::unit::{Key, Space};
use charter_store::{TransactError, Txn};

use crate::bindings::charter::primitive::types::Failure;
use crate::failure::{failure, invalid, undeclared};
use crate::state::Work;
use crate::story::rates::{RateRecord, change};

/// Rates that one request takes from.
const TAKEN_MAX: usize = 20;
/// Bytes of a rate's name.
const NAME_BYTES_MAX: usize = 100;

impl Work {
    /// Takes one from a rate, unless this place of the request has it from before.
    pub(super) async fn take_rate(
        &mut self,
        name: &str,
        reach: &str,
        amount: u32,
        per_seconds: u32,
    ) -> Result<(), Failure> {
        let key = self.rate_key(name, reach)?;
        if name.is_empty()
            || name.len() > NAME_BYTES_MAX
            || amount > AMOUNT_MAX
            || !(1..=PER_SECONDS_MAX).contains(&per_seconds)
        {
            let told = format!(
                "a rate has a name, at most {AMOUNT_MAX} and 1 to {PER_SECONDS_MAX} seconds"
            );
            return Err(invalid("rate", told).into());
        }
        let now = self.shared.clock.now();
        let mut wanted =
            RateRecord { key, amount, per_seconds, at: now, attempt: self.story.attempt };
        if let Some(record) = self.story.rates.get_mut(self.rates)
            && record.attempt != wanted.attempt
            && *record == (RateRecord { at: record.at, attempt: record.attempt, ..wanted.clone() })
        {
            record.attempt = wanted.attempt;
            self.rates += 1;
            return Ok(());
        }
        if self.rates >= TAKEN_MAX {
            return Err(
                undeclared(format!("one request takes from at most {TAKEN_MAX} rates")).into()
            );
        }
        let _commit = self.story.marks.begin_commit().await?;
        let call = &self.call;
        let taken = self.shared.store.transact(call.scope.lane(), async |txn: &mut Txn| {
            let fences = call.guards.iter().filter(|guard| guard.is_fence());
            fences.for_each(|fence| txn.guard(fence.clone()));
            change(txn, &wanted.key, |rate| {
                rate.take(amount, per_seconds, now).map_err(|wait_ms| {
                    // An earlier request may have been run again since, by a clock that read less.
                    let wait =
                        u32::try_from((wait_ms + 999) / 1_000).unwrap_or(u32::MAX).min(per_seconds);
                    Refusal {
                        retry_after_seconds: Some(wait),
                        ..failure("rate_limited", "this is done too often")
                    }
                })
            })
            .await
        });
        match taken.await {
            Ok(at) => wanted.at = at,
            Err(TransactError::Body(refused)) => return Err(refused.into()),
            Err(TransactError::Commit(error)) => return Err(self.abort_commit(error)),
        }
        // An amount that an earlier attempt took at this place, and this one did not ask for, goes
        // back at the end.
        self.story.rates.insert(self.rates.min(self.story.rates.len()), wanted);
        self.rates += 1;
        Ok(())
    }

    /// The row of a rate that those of this reach share.
    fn rate_key(&self, name: &str, reach: &str) -> Result<Key, Refusal> {
        let levels =
            [CollectionReach::User, CollectionReach::Project, CollectionReach::Organization];
        let level = levels.into_iter().find(|level| name_of(*level) == reach).ok_or_else(|| {
            invalid("reach", "a rate is shared by a `user`, a `project` or an `organization`")
        })?;
        let of =
            self.call.scope.reach(level).ok_or_else(|| invalid("reach", "the caller has none"))?;
        let id = format!("{}.{name}", self.component.manifest.name);
        Ok(Key::new(&of, &Space::host("rates"), id))
    }
}

/// How a manifest names it.
fn name_of(level: CollectionReach) -> &'static str {
    match level {
        CollectionReach::User => "user",
        CollectionReach::Project => "project",
        CollectionReach::Organization => "organization",
        CollectionReach::Deployment => "deployment",
    }
}

#[cfg(test)]
mod tests;

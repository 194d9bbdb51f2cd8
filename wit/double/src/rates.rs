//! Rates of a primitive's own: taken at once, given back where the request comes to nothing.
//!
//! Knows no interface; the rule is the kernel's.

use charter_kernel::governance::rate::{AMOUNT_MAX, PER_SECONDS_MAX, Rate};
use charter_kernel::manifest::CollectionReach;
use charter_kernel::refusal::Failure;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Draft, Key, Space, Unit, Write};

use crate::call::Work;
use crate::world::World;

/// The amount that one request took of a rate, by its place in the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RateRecord {
    key: Key,
    amount: u32,
    per_seconds: u32,
    /// The moment at which it was taken.
    at: Instant,
    /// The attempt that asked for it last, or [`COMMITTED`](crate::call::COMMITTED).
    pub(crate) attempt: u32,
}

impl RateRecord {
    pub(crate) fn give_back(self, world: &mut World) {
        let mut rate = read(world, &self.key);
        rate.give_back(self.at);
        write(world, &self.key, &rate);
    }
}

fn read(world: &World, key: &Key) -> Rate {
    let row = world.rows.row(key);
    row.and_then(|row| serde_json::from_str(&row.body).ok()).unwrap_or_default()
}

fn write(world: &mut World, key: &Key, rate: &Rate) {
    let body = serde_json::to_string(rate).unwrap_or_default();
    let draft = Draft { body, ..Draft::default() };
    let writes = vec![Write::Put { key: key.clone(), draft }];
    // A row that is put is refused by no rule.
    let _ = world.commit(&Unit { writes, ..Unit::default() });
}

impl Work {
    /// Takes one from a rate, unless this place of the request has it from before.
    pub(crate) fn take_rate(
        &mut self,
        world: &mut World,
        name: &str,
        reach: &str,
        (amount, per_seconds): (u32, u32),
    ) -> Result<(), Failure> {
        let level = match reach {
            "user" => CollectionReach::User,
            "project" => CollectionReach::Project,
            "organization" => CollectionReach::Organization,
            _ => {
                let told = "a rate is shared by a `user`, a `project` or an `organization`";
                return Err(Failure::invalid("reach", told));
            }
        };
        let reach = self.call.scope.reach(level);
        let reach = reach.ok_or_else(|| Failure::invalid("reach", "the caller has none"))?;
        let fits = !name.is_empty() && amount <= AMOUNT_MAX;
        if !fits || !(1..=PER_SECONDS_MAX).contains(&per_seconds) {
            let told = format!(
                "a rate has a name, at most {AMOUNT_MAX} and 1 to {PER_SECONDS_MAX} seconds"
            );
            return Err(Failure::invalid("rate", told));
        }
        let key = Key::new(&reach, &Space::host("rates"), format!("{}.{name}", world.name()));
        let attempt = self.story.attempt;
        let mut wanted = RateRecord { key, amount, per_seconds, at: world.now, attempt };
        let place = self.asked.rates;
        self.asked.rates += 1;
        if let Some(record) = self.story.rates.get_mut(place)
            && record.attempt != wanted.attempt
            && *record == (RateRecord { at: record.at, attempt: record.attempt, ..wanted.clone() })
        {
            record.attempt = wanted.attempt;
            return Ok(());
        }
        let mut rate = read(world, &wanted.key);
        wanted.at = rate.take(amount, per_seconds, world.now).map_err(|wait_ms| {
            let wait = u32::try_from((wait_ms + 999) / 1_000).unwrap_or(u32::MAX).min(per_seconds);
            Failure {
                retry_after_seconds: Some(wait),
                ..Failure::new("rate_limited", "this is done too often")
            }
        })?;
        write(world, &wanted.key, &rate);
        self.story.rates.insert(place.min(self.story.rates.len()), wanted);
        Ok(())
    }
}

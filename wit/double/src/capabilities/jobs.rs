//! `jobs`: rows that are written with the request's commit. The test runs those that are due.
//!
//! Schedules are not there: a test enqueues what an occurrence would.

use charter_kernel::apply::rule;
use charter_kernel::refusal::Failure;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Claim, Draft, Key, Space};
use charter_sdk::bindings::charter::primitive::jobs::{Job, Schedule};
use charter_sdk::native::{Answer, Jobs};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::rest::refuse_unsupported;
use crate::call::Work;
use crate::world::{Double, World};

/// Runs of one job.
const ATTEMPTS_MAX: u32 = 100;
/// Bytes of a job's payload.
const PAYLOAD_BYTES_MAX: usize = 256 << 10;
/// Bytes of a job's name and key.
const NAME_BYTES_MAX: usize = 200;
/// How long after its first failure a job is tried again; twice as long after each further one.
const BACKOFF_MS: i64 = 1_000;

/// A job, as its row keeps it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct JobRecord {
    pub(crate) name: String,
    pub(crate) payload: Value,
    pub(crate) key: Option<String>,
    pub(crate) attempts_max: u32,
    /// Runs so far.
    pub(crate) attempt: u32,
    pub(crate) user: Option<String>,
}

/// The space of jobs.
pub(crate) fn jobs() -> Space {
    Space::host("jobs")
}

impl JobRecord {
    /// Its row, due then.
    pub(crate) fn draft(&self, primitive: &str, due_at: Instant) -> Draft {
        let unique = self.key.iter().map(|key| ("key".into(), format!("{primitive}/{key}")));
        Draft {
            body: serde_json::to_string(self).unwrap_or_default(),
            unique: unique.collect(),
            lease: Some((primitive.to_owned(), due_at)),
            ..Draft::default()
        }
    }

    /// When it is tried again after a failure; `None` once it has been tried often enough.
    pub(crate) fn again(&self, now: Instant) -> Option<Instant> {
        let wait = BACKOFF_MS.saturating_mul(1 << self.attempt.saturating_sub(1).min(20));
        (self.attempt < self.attempts_max).then(|| now.plus_ms(wait))
    }
}

impl Work {
    fn record(&self, job: &Job) -> Result<JobRecord, Failure> {
        let fits =
            |text: &str| !text.is_empty() && text.len() <= NAME_BYTES_MAX && !text.contains('\0');
        if !fits(&job.name) || !job.key.as_deref().is_none_or(fits) {
            let told = format!("a job's name and key have 1 to {NAME_BYTES_MAX} bytes");
            return Err(Failure::invalid("job", told));
        }
        if job.payload.len() > PAYLOAD_BYTES_MAX {
            let told = format!("a job's payload has at most {PAYLOAD_BYTES_MAX} bytes");
            return Err(Failure::new("payload_too_large", told));
        }
        Ok(JobRecord {
            name: job.name.clone(),
            payload: super::events::json("payload", &job.payload)?,
            key: job.key.clone(),
            attempts_max: job.attempts_max.clamp(1, ATTEMPTS_MAX),
            attempt: 0,
            user: self.call.scope.user().map(|id| id.as_str().to_owned()),
        })
    }

    /// The live job under a key.
    fn find_live(&mut self, world: &World, key: &str) -> Option<Key> {
        let key = format!("{}/{key}", world.name());
        let claim = Claim::unique(&self.call.scope.narrowest(), &jobs(), "key", &key);
        self.txn.lookup(&world.rows, &claim)
    }
}

impl Jobs for Double {
    fn enqueue(&self, job: &Job) -> Answer<String> {
        self.changing("jobs", |world, work| {
            if let Some(live) = job.key.as_deref().and_then(|key| work.find_live(world, key)) {
                return Ok(live.id);
            }
            let record = work.record(job)?;
            let due_at = job.run_at.map_or(world.now, Instant::nearest);
            let draft = record.draft(world.name(), due_at);
            let id = world.fresh_id();
            let key = Key::new(&work.call.scope.narrowest(), &jobs(), id.clone());
            work.txn.insert(&world.rows, key, draft).map_err(|refused| rule(&refused))?;
            Ok(id)
        })
    }

    fn cancel(&self, id: &str) -> Answer<bool> {
        self.changing("jobs", |world, work| {
            let key = Key::new(&work.call.scope.narrowest(), &jobs(), id);
            work.txn.remove(&world.rows, &key, None).map_err(|refused| rule(&refused))
        })
    }

    fn cancel_key(&self, key: &str) -> Answer<bool> {
        self.changing("jobs", |world, work| {
            let Some(live) = work.find_live(world, key) else { return Ok(false) };
            work.txn.remove(&world.rows, &live, None).map_err(|refused| rule(&refused))
        })
    }

    fn progress(&self, id: &str, _: f32, _: &str) -> Answer<()> {
        self.changing("jobs", |world, work| {
            let key = Key::new(&work.call.scope.narrowest(), &jobs(), id);
            match work.txn.get(&world.rows, &key) {
                Some(_) => Ok(()),
                None => Err(Failure::not_found("the job")),
            }
        })
    }

    fn set_schedule(&self, _: &Schedule) -> Answer<i64> {
        refuse_unsupported("schedules")
    }

    fn remove_schedule(&self, _: &str) -> Answer<bool> {
        refuse_unsupported("schedules")
    }
}

//! Durable work after the commit: what must happen exactly as recorded (a mail, a provider's
//! mutation) is a job.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::bindings::charter::primitive::jobs as raw;
use crate::failure::Result;
use crate::host::jobs as host;
use crate::signals::Signal;
use crate::time::Instant;

/// A job to be. Nothing happens before [`Job::enqueue`] or [`Job::every`].
#[must_use]
#[derive(Clone, Debug)]
pub struct Job(raw::Job);

impl Job {
    /// A job that [`crate::Primitive::job`] of this name runs, with this payload: at once, five
    /// attempts.
    pub fn new<T: Serialize>(name: &str, payload: &T) -> Result<Self> {
        let payload = serde_json::to_string(payload)?;
        let job = raw::Job {
            name: name.into(),
            payload,
            run_at: None,
            key: None,
            attempts_max: 5,
            deadline_ms: None,
            public: false,
        };
        Ok(Self(job))
    }
    /// Not before this.
    pub fn at(mut self, run_at: Instant) -> Self {
        self.0.run_at = Some(run_at.as_ms());
        self
    }
    /// One live job a key: a second enqueue answers the first one's id.
    pub fn key(mut self, key: &str) -> Self {
        self.0.key = Some(key.into());
        self
    }
    /// How often it is tried at most.
    pub fn attempts(mut self, most: u32) -> Self {
        self.0.attempts_max = most;
        self
    }
    /// How long one run may take.
    pub fn deadline_ms(mut self, ms: u32) -> Self {
        self.0.deadline_ms = Some(ms);
        self
    }
    /// Shown by `GET /v1/jobs`.
    pub fn public(mut self) -> Self {
        self.0.public = true;
        self
    }
    /// Enqueues it with the request's commit; answers its id.
    pub fn enqueue(self) -> Result<String> {
        Ok(host::enqueue(&self.0)?)
    }
    /// Runs it at each occurrence of a five-field cron in an IANA zone, once in the deployment.
    /// Answers the next occurrence.
    pub fn every(self, key: &str, cron: &str, time_zone: &str) -> Result<Instant> {
        let schedule = raw::Schedule {
            key: key.into(),
            cron: cron.into(),
            time_zone: time_zone.into(),
            job: self.0,
        };
        Ok(Instant::from_ms(host::set_schedule(&schedule)?))
    }
}

/// Cancels a job that has not begun.
pub fn cancel(id: &str) -> Result<bool> {
    Ok(host::cancel(id)?)
}

/// Cancels the live job of this key.
pub fn cancel_key(key: &str) -> Result<bool> {
    Ok(host::cancel_key(key)?)
}

/// Removes a schedule.
pub fn remove_schedule(key: &str) -> Result<bool> {
    Ok(host::remove_schedule(key)?)
}

/// One run of a job that is due.
#[derive(Clone, Debug)]
pub struct Run {
    /// The job's id.
    pub id: String,
    /// From 1.
    pub attempt: u32,
    /// As enqueued.
    pub payload: Value,
    /// The signal as it came.
    pub signal: Signal,
}

impl Run {
    pub(crate) fn of(signal: &Signal) -> Result<Self> {
        let id = signal.payload["id"].as_str().unwrap_or_default().into();
        let attempt = signal.payload["attempt"]
            .as_u64()
            .and_then(|attempt| u32::try_from(attempt).ok())
            .unwrap_or(1);
        Ok(Self { id, attempt, payload: signal.payload["payload"].clone(), signal: signal.clone() })
    }
    /// The payload, typed.
    pub fn read<T: DeserializeOwned>(&self) -> Result<T> {
        Ok(serde_json::from_value(self.payload.clone())?)
    }
    /// How far it is, for who watches `GET /v1/jobs/{id}`.
    pub fn progress(&self, fraction: f32, note: &str) -> Result<()> {
        Ok(host::progress(&self.id, fraction, note)?)
    }
}

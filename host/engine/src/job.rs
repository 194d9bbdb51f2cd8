//! The rows of `host.jobs` and `host.schedules`: what the capability `jobs` writes and the server's
//! workers run.
//!
//! Knows nothing of the worker. A job is a leased row whose group is the primitive that runs it;
//! the worker takes rows across all reaches, rebuilds the scope from the record, and calls
//! [`crate::Engine::call`] with [`crate::Entry::React`].

use charter_kernel::time::Instant;
use charter_kernel::unit::{Draft, Reach, Space};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The space of jobs.
pub fn jobs() -> Space {
    Space::host("jobs")
}

/// The space of schedules.
pub fn schedules() -> Space {
    Space::host("schedules")
}

/// The unique field of a live job and of a schedule: `<primitive>/<key>` within the caller's reach.
pub const UNIQUE_KEY: &str = "key";

/// The group of jobs that have ended: nothing hands them out any more.
pub const ENDED_GROUP: &str = "ended";

/// The group of jobs of which people decide an action: they run by their approval, and nothing else
/// hands them out.
pub const PARKED_GROUP: &str = "parked";

/// The indexed moment of the end, by which finished jobs are swept.
pub const ENDED_AT: &str = "ended_at";

/// When a job that has ended is due: far beyond every clock.
pub const NEVER: Instant = Instant(i64::MAX / 4);

/// The lease group of schedules.
pub const SCHEDULE_GROUP: &str = "schedule";

/// Whose work a row is, kept with it so that the worker can act in the same scope.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    /// Organization id.
    pub organization: String,
    /// Project id.
    pub project: String,
    /// Tenant user id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The account of the person who set it up, where a person stands behind it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub root: Option<String>,
}

impl Owner {
    /// What a row tells of its owner: its reach, and the organization whose work inserted it. A
    /// user's project is not known from it; the worker finds it. Rows of the deployment's reach are
    /// nobody's, and who wrote a row that many share is no part of whose it is.
    pub fn of_reach(reach: &Reach, organization: Option<String>) -> Self {
        if *reach == Reach::deployment() {
            return Self::default();
        }
        let (kind, id) = reach.as_str().split_once('/').unwrap_or_default();
        let id = |wanted: &str| if kind == wanted { id.to_owned() } else { String::new() };
        let user = Some(id("u")).filter(|id| !id.is_empty());
        let organization = organization.unwrap_or_else(|| id("o"));
        Self { organization, project: id("p"), user, root: None }
    }
}

impl JobRecord {
    /// The row's index entries: what `GET /v1/jobs` asks by.
    pub fn index(&self) -> Vec<(String, String)> {
        let entries = [
            ("organization", self.owner.organization.as_str()),
            ("primitive", &self.primitive),
            ("public", if self.public { "1" } else { "0" }),
            ("state", &self.state),
        ];
        entries.map(|(field, value)| (field.to_owned(), value.to_owned())).into()
    }

    /// The row of a job that ended then: its key is free for the next one, nothing hands it out
    /// again, and the sweeper finds it.
    ///
    /// # Errors
    /// Never: its maps have text keys.
    pub fn ended(&self, user: Option<String>, at: Instant) -> serde_json::Result<Draft> {
        let mut index = self.index();
        index.push((ENDED_AT.to_owned(), at.to_string()));
        let lease = Some((ENDED_GROUP.to_owned(), NEVER));
        Ok(Draft { user, body: serde_json::to_string(self)?, index, lease, ..Draft::default() })
    }
}

/// The body of a row in `host.jobs`. Its id is a UUIDv7.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobRecord {
    /// The primitive that runs it; also the lease group.
    pub primitive: String,
    /// The signal kind that `react` gets: `job`, `name`, ….
    pub signal: String,
    /// The job's name, chosen by the primitive.
    pub name: String,
    /// Handed to `react` inside the signal's payload.
    pub payload: Value,
    /// Whose work it is.
    pub owner: Owner,
    /// The unique key within the primitive and reach, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// How often it is run at most.
    pub attempts_max: u32,
    /// How long one run may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u32>,
    /// Whether `GET /v1/jobs` shows it.
    pub public: bool,
    /// When it is to run first.
    pub run_at: Instant,
    /// `queued`, `succeeded`, `failed` or `cancelled`; `running` is a held lease.
    pub state: String,
    /// 0 to 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fraction: Option<f32>,
    /// What the primitive says of its progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What it answered, once it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Code and message of the last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Value>,
    /// The approval that it waits by, or ran by last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<String>,
    /// The request that made it, for the logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

/// The body of a row in `host.schedules`, leased in the group `schedule` and due at its next
/// occurrence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScheduleRecord {
    /// The key within the primitive and reach; the row's id is `<primitive>/<key>`.
    pub key: String,
    /// Five-field cron.
    pub cron: String,
    /// IANA zone.
    pub time_zone: String,
    /// What is enqueued at each occurrence; `run_at` is replaced.
    pub job: JobRecord,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_known_by_its_reach_and_the_organization_that_wrote_it() {
        let of = |reach: Reach| Owner::of_reach(&reach, Some("org".into()));
        let owner = |organization: &str, project: &str, user: Option<&str>| Owner {
            organization: organization.into(),
            project: project.into(),
            user: user.map(Into::into),
            root: None,
        };
        assert_eq!(of(Reach::user("a")), owner("org", "", Some("a")));
        assert_eq!(of(Reach::project("p")), owner("org", "p", None));
        assert_eq!(of(Reach::organization("org")), owner("org", "", None));
        assert_eq!(of(Reach::deployment()), owner("", "", None));
    }
}

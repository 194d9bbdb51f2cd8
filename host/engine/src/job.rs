//! The rows of `host.jobs` and `host.schedules`: what the capability `jobs` writes and the server's
//! workers run.
//!
//! Knows nothing of the worker. A job is a leased row whose group is its organization and the
//! primitive that runs it; the worker takes rows across all reaches, an organization after the
//! other, rebuilds the scope from the record, and calls [`crate::Engine::call`] with
//! [`crate::Entry::React`].

pub mod room;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use charter_kernel::lease;
use charter_kernel::refusal::Refusal;
use charter_kernel::scope::{Behind, Principal};
use charter_kernel::time::Instant;
use charter_kernel::unit::{Draft, Reach, Space};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

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

/// Before the group of a job of which people decide an action: it runs by its approval, and nothing else
/// hands it out or looks at it.
const PARKED: &str = "parked:";

/// The signal by which a primitive hears of what somebody has sent to a name that it holds.
pub const NAME: &str = "name";

/// The end of the names of groups of what was sent to names, behind their primitive and before the
/// sender.
const SENT: &str = "/names";
/// The same of what pinned credentials and callers of inbound URLs asked for, before the names of the
/// project and the user that it is of.
const PINNED: &str = "/pinned/";

/// The indexed moment of the end, by which finished jobs are swept.
pub const ENDED_AT: &str = "ended_at";

/// When a job that has ended is due: far beyond every clock.
pub const NEVER: Instant = Instant(i64::MAX / 4);

/// The owner of a row's work, kept with the row so that the worker can act in the same scope.
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
    /// The owner as far as a row tells: its reach, and the organization whose work inserted it. A
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

/// The prefix of the groups of an organization's jobs of which people decide an action.
fn parked_groups_of(organization: &str) -> String {
    format!("{PARKED}{}", lease::groups_of(organization))
}

/// The primitive whose jobs are in groups of this kind.
pub fn primitive_of(kind: &str) -> &str {
    kind.split_once('/').map_or(kind, |(primitive, _)| primitive)
}

/// The project, and the user or the project again, that share places as one of those who asked for
/// what groups of this kind hold: others than the organization itself, which leave places to it and to
/// each other. None of the organization's own.
pub fn sharer_of(kind: &str) -> Option<(&str, &str)> {
    let (_, line) = kind.split_once('/')?;
    let whose = line.strip_prefix(&PINNED[1..]).unwrap_or(line);
    Some(whose.split_once('/').unwrap_or((whose, whose)))
}

/// The line in which questions about this owner's holds wait: the beginning of their groups' names.
pub fn line_of(primitive: &str, owner: &Owner) -> String {
    let signal = JobRecord::of_signal(primitive, "", owner.clone(), Instant(0));
    JobRecord { pinned: true, ..signal }.group()
}

fn is_zero(settled: &u32) -> bool {
    *settled == 0
}

impl JobRecord {
    /// A signal that waits for its first run: asked for by nobody, under no key, shown to nobody, due
    /// at once. A job that somebody asked for says more.
    pub fn of_signal(primitive: &str, signal: &str, owner: Owner, now: Instant) -> Self {
        Self {
            primitive: primitive.to_owned(),
            signal: signal.to_owned(),
            name: signal.to_owned(),
            payload: Payload::from(Value::Null),
            owner,
            asked: None,
            pinned: false,
            sender: None,
            key: None,
            attempts_max: 1,
            deadline_ms: None,
            public: false,
            run_at: now,
            state: "queued".into(),
            fraction: None,
            note: None,
            result: None,
            result_not_kept: false,
            error: None,
            acted: false,
            settled: 0,
            approval: None,
            request: None,
        }
    }

    /// Notes that the run of this number is heard of. Of one before it that nobody settled nobody
    /// knows what it did.
    pub fn note_run(&mut self, attempt: u32) {
        self.acted |= attempt > self.settled.saturating_add(1);
        self.settled = self.settled.max(attempt);
    }

    /// The row's lease group while it waits or runs. All that one has sent to names has one of its own,
    /// and so has what pinned credentials and strangers asked for, of each user and project another,
    /// so that it delays nothing else of the organization's.
    pub fn group(&self) -> String {
        let group = lease::group(&self.owner.organization, &self.primitive);
        match (self.signal == NAME, self.pinned) {
            (true, _) => {
                let sender = self.sender.as_ref().map(|sender| format!("/{sender}"));
                group + SENT + &sender.unwrap_or_default()
            }
            (false, true) => group + PINNED + &self.whose(),
            (false, false) => group,
        }
    }

    /// The row's group while people decide an action of it: it counts among what waits of whom it is of.
    pub fn parked_group(&self) -> String {
        format!("{PARKED}{}", self.group())
    }

    /// The project that stands behind what a pinned credential or a stranger asked for, and the user of
    /// it, if one does.
    fn whose(&self) -> String {
        let behind = self.asked.as_ref().map(Principal::behind);
        let user = self.owner.user.as_deref().filter(|_| behind != Some(Behind::Project));
        let user = user.map(|user| format!("/{user}")).unwrap_or_default();
        format!("{}{user}", self.owner.project)
    }

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

    /// The end of the job, once it has one: its result, or why it has none, as records keep it.
    pub fn outcome(&self) -> Option<Result<Value, Value>> {
        match self.state.as_str() {
            "succeeded" => Some(Ok(self.result.clone().unwrap_or_default())),
            "failed" => Some(Err(self.error.clone().unwrap_or_default())),
            "cancelled" => {
                let cancelled = Refusal::state_conflict("job_cancelled", "The job was cancelled.");
                Some(Err(cancelled.to_rest()))
            }
            _ => None,
        }
    }

    /// The row of a job that ended then: its key is free for the next one, nothing hands it out
    /// again, and the sweeper finds it.
    ///
    /// # Errors
    /// Never: its maps have text keys.
    pub fn end(&self, user: Option<String>, at: Instant) -> serde_json::Result<Draft> {
        let mut index = self.index();
        index.push((ENDED_AT.to_owned(), at.to_string()));
        let lease = Some((ENDED_GROUP.to_owned(), NEVER));
        Ok(Draft { user, body: serde_json::to_string(self)?, index, lease, ..Draft::default() })
    }
}

/// The content of a signal, as it is written: its values take many times the room of their text, and
/// work that runs has it for minutes.
#[derive(Clone, Debug)]
pub struct Payload(Arc<RawValue>);

impl Payload {
    /// Its JSON.
    pub fn text(&self) -> &str {
        self.0.get()
    }

    /// Its value.
    pub fn value(&self) -> Value {
        serde_json::from_str(self.text()).unwrap_or_default()
    }

    /// Members of it; `null` for each that it has not.
    pub fn members<const N: usize>(&self, names: [&str; N]) -> [Value; N] {
        let members: BTreeMap<Cow<'_, str>, &RawValue> =
            serde_json::from_str(self.text()).unwrap_or_default();
        names.map(|name| {
            let member = members.get(name).and_then(|text| serde_json::from_str(text.get()).ok());
            member.unwrap_or_default()
        })
    }
}

impl From<Value> for Payload {
    fn from(value: Value) -> Self {
        // A value has text keys, and so is always written.
        Self(to_raw_value(&value).unwrap_or_default().into())
    }
}

impl PartialEq for Payload {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl Serialize for Payload {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(|text| Self(text.into()))
    }
}

/// The body of a row in `host.jobs`. Its id is a UUIDv7.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobRecord {
    /// The primitive that runs it.
    pub primitive: String,
    /// The signal kind that `react` gets: `job`, `name`, ….
    pub signal: String,
    /// The job's name, chosen by the primitive.
    pub name: String,
    /// Handed to `react` inside the signal's payload.
    pub payload: Payload,
    /// The owner of the work.
    pub owner: Owner,
    /// The principal who asked for it, as the host acts for them later. Absent for signals of the
    /// host, and in rows of earlier builds: the profile's own authority.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<Principal>,
    /// Whether a pinned credential or a stranger had asked for it, or for the run that left it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
    /// The organization that has sent it to a name, and who of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<String>,
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
    /// The primitive's note of its progress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Its answer, once it succeeded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// Whether it succeeded with an answer that may show a secret, which is kept nowhere.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub result_not_kept: bool,
    /// Code and message of the last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Value>,
    /// Whether a run of it has failed after an effect, or may have had one when its host was gone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub acted: bool,
    /// The last run that was heard of ([`JobRecord::note_run`]). 0 in rows of earlier builds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub settled: u32,
    /// The approval that it waits by, or ran by last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub approval: Option<String>,
    /// The request that made it, for the logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<String>,
}

/// The body of a row in `host.schedules`, leased in its job's group and due at its next occurrence.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ScheduleRecord {
    /// The key within the primitive and reach; the row's id is `<primitive>/<key>`.
    pub key: String,
    /// Five-field cron.
    pub cron: String,
    /// IANA zone.
    pub time_zone: String,
    /// The job that is enqueued at each occurrence; `run_at` is replaced.
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

    fn record() -> JobRecord {
        let body = serde_json::json!({
            "primitive": "shop", "signal": "job", "name": "count", "payload": {},
            "owner": { "organization": "o", "project": "p", "user": "u" },
            "key": "k", "attempts_max": 3, "public": true,
            "run_at": "2026-01-01T00:00:00.000Z", "state": "queued",
        });
        // As an earlier build has written it: without what has come since.
        serde_json::from_value(body).unwrap()
    }

    #[test]
    fn a_row_of_an_earlier_build_is_read_and_written_alike() {
        let job = record();
        assert_eq!((job.asked.as_ref(), job.request.as_ref()), (None, None));
        let again = serde_json::to_string(&job).unwrap();
        assert!(!again.contains("asked") && !again.contains("null"), "{again}");
        assert_eq!(serde_json::from_str::<JobRecord>(&again).unwrap(), job);
    }

    #[test]
    fn a_job_has_an_outcome_once_it_has_ended() {
        let told = serde_json::json!({ "code": "card_declined" });
        let ended = |state: &str| JobRecord {
            state: state.into(),
            result: Some(serde_json::json!(1)),
            error: Some(told.clone()),
            ..record()
        };
        assert_eq!(record().outcome(), None);
        assert_eq!(ended("queued").outcome(), None, "another run follows");
        assert_eq!(ended("succeeded").outcome(), Some(Ok(serde_json::json!(1))));
        assert_eq!(ended("failed").outcome(), Some(Err(told.clone())));
        let cancelled = ended("cancelled").outcome().unwrap().unwrap_err();
        assert_eq!(cancelled["reason"], "job_cancelled");
        let silent = JobRecord { result: None, ..ended("succeeded") };
        assert_eq!(silent.outcome(), Some(Ok(Value::Null)));
    }

    #[test]
    fn a_job_that_ended_is_handed_out_no_more_and_frees_its_key() {
        let job = JobRecord { state: "succeeded".into(), ..record() };
        assert_eq!(job.group(), "o/shop");
        let sent = JobRecord { signal: NAME.into(), ..record() };
        let (organization, kind) = ("o", "shop/names");
        assert_eq!(lease::organization_and_kind(&sent.group()), (organization, kind));
        assert_eq!((primitive_of(kind), primitive_of("shop")), ("shop", "shop"));
        let draft = job.end(Some("u".into()), Instant(5)).unwrap();
        assert_eq!(draft.lease, Some((ENDED_GROUP.to_owned(), NEVER)));
        assert!(draft.unique.is_empty(), "its key is free for the next");
        let entry = |field: &str| {
            let found = draft.index.iter().find(|(name, _)| name == field);
            found.map(|(_, value)| value.as_str())
        };
        assert_eq!(entry(ENDED_AT), Some("1970-01-01T00:00:00.005Z"));
        assert_eq!((entry("state"), entry("public")), (Some("succeeded"), Some("1")));
        assert_eq!((entry("organization"), entry("primitive")), (Some("o"), Some("shop")));
        assert_eq!(draft.user.as_deref(), Some("u"));
        assert!(NEVER > Instant::LAST);
    }
}

//! The manifest of a primitive: the single source of its routes, schemas, documentation and rights.
//!
//! These are the shapes; [`faults`] holds the rules, and `wit/manifest.schema.json` the published
//! schema. Every struct tolerates unknown members, so that a component of a newer minor interface
//! still loads.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::Value;

pub use crate::refusal::{Catalogue, ErrorCode};

pub mod faults;
mod words;

/// One primitive, as its `describe` answers it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Manifest {
    /// Lower-case kebab name, 1–40 characters; `host` is reserved.
    pub name: String,
    /// Semantic version (semver 2.0).
    pub version: String,
    /// For people, in lists.
    pub title: String,
    /// One line.
    #[serde(default)]
    pub summary: String,
    /// Markdown.
    #[serde(default)]
    pub description: String,
    /// The gate for kits that do not name it.
    #[serde(default)]
    pub gate: Gate,
    /// The imports it uses, by interface name (`documents`, `leases`, `http`, `public-web`).
    #[serde(default)]
    pub capabilities: Vec<String>,
    /// Its routes.
    #[serde(default)]
    pub operations: Vec<Operation>,
    /// Its regulated actions.
    #[serde(default)]
    pub actions: Vec<Action>,
    /// Its documents.
    #[serde(default)]
    pub collections: Vec<Collection>,
    /// The events it emits.
    #[serde(default)]
    pub events: Vec<Event>,
    /// Error codes of its own.
    #[serde(default)]
    pub errors: Vec<ErrorCode>,
    /// The providers it can be bound to.
    #[serde(default)]
    pub providers: Vec<Provider>,
    /// The settings of an operator or a kit.
    #[serde(default)]
    pub settings: Vec<Setting>,
    /// Signal kinds it wants in `react`.
    #[serde(default)]
    pub signals: Vec<String>,
    /// Further first words of its events and audit actions, beside its name: only where the
    /// operator has agreed when it was activated.
    #[serde(default)]
    pub speaks_for: Vec<String>,
    /// Present where the whole family is deprecated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deprecation: Option<Deprecation>,
}

impl Manifest {
    /// Everything that it asks of the operator beyond the capabilities that its imports show, and
    /// does not serve without: each provider by its name (its calls carry the operator's credential),
    /// each open route at the root as `GET /path`, each word that it speaks for as `word.*`.
    pub fn asks(&self) -> BTreeSet<String> {
        let providers = self.providers.iter().map(|provider| provider.name.clone());
        let open = self.operations.iter().filter(|operation| {
            operation.auth == "none" && operation.mounts().contains(&Mount::Root)
        });
        let open = open.map(|operation| format!("{} {}", operation.method, operation.path));
        let words = self.speaks_for.iter().map(|word| format!("{word}.*"));
        providers.chain(open).chain(words).collect()
    }

    /// Whether it keeps documents, and all of them in that reach.
    pub fn keeps_all_in(&self, reach: CollectionReach) -> bool {
        let mut reaches = self.collections.iter().map(|collection| collection.reach);
        reaches.next() == Some(reach) && reaches.all(|other| other == reach)
    }

    /// Whether an event or an audit action is its own to tell: `<name>.…`, or one of a word that it
    /// speaks for.
    pub fn tells(&self, name: &str) -> bool {
        let words = self.speaks_for.iter().map(String::as_str);
        words.chain([self.name.as_str()]).any(|word| words::belongs(name, word))
    }
}

/// The gate for kits that do not name the primitive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// Allowed.
    #[default]
    Open,
    /// Denied.
    Strict,
    /// Denied, and the default kit leaves it off.
    OptIn,
}

/// One declared route.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Operation {
    /// `<primitive>.<verb>`, such as `queue.purge`; as a tool `queue_purge`.
    pub id: String,
    /// `GET`, `POST`, `PUT`, `PATCH` or `DELETE`.
    pub method: String,
    /// Below `/v1`: `/queue/{id}/messages`. A literal beats a parameter; `{path*}` takes the rest;
    /// `reconcile-{name}` is allowed.
    pub path: String,
    /// The mounts it is served at; company and user if empty.
    #[serde(default)]
    pub mounts: Vec<Mount>,
    /// `key`, `session`, `operator`, `hook`, `shared_secret:<binding>` or `none`.
    #[serde(default = "default_auth")]
    pub auth: String,
    /// The role it needs.
    #[serde(default)]
    pub access: Access,
    /// The class of the operation, where that does not follow from the rest: see
    /// [`Class::of`](crate::authority::Class::of).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<crate::class::Class>,
    /// One line.
    #[serde(default)]
    pub summary: String,
    /// Markdown.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of the path parameters, an object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_schema: Option<Value>,
    /// JSON Schema of the query, an object; an integer or boolean property is read from its text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub query: Option<Value>,
    /// JSON Schema of the body; absent means that no JSON body is expected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
    /// JSON Schema of the successful answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<Value>,
    /// Further answers by status.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub answers: BTreeMap<String, Value>,
    /// The status of a successful answer that names none.
    #[serde(default = "default_status")]
    pub status: u16,
    /// Media type of a body that is not JSON; such a body reaches the guest as bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consumes: Option<String>,
    /// Media type of an answer that is not JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub produces: Option<String>,
    /// Request headers that it may see, lower case.
    #[serde(default)]
    pub headers: Vec<String>,
    /// The error catalogue of its refusals.
    #[serde(default)]
    pub catalogue: Catalogue,
    /// The list style.
    #[serde(default)]
    pub paging: Paging,
    /// The regulated action it takes, for documentation and sweeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub action: Option<String>,
    /// Whether it can answer as an event stream.
    #[serde(default)]
    pub streams: bool,
    /// Whether it is offered as a tool.
    #[serde(default = "yes")]
    pub tool: bool,
    /// Providers without which the host answers 501 before the guest runs.
    #[serde(default)]
    pub needs: Vec<String>,
    /// How long a call may take, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline_ms: Option<u32>,
    /// Long calls have their own concurrency.
    #[serde(default)]
    pub class: CallLength,
    /// False where the family's deprecation does not hold for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deprecated: Option<bool>,
    /// Its part in paying, where the primitive is the one that bills: a caller that is refused for
    /// not having paid is sent here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pays: Option<Pays>,
    /// Whether it routes to a language model, which only bought credit pays for.
    #[serde(default)]
    pub llm_routing: bool,
}

impl Operation {
    /// The mounts it is served at.
    pub fn mounts(&self) -> &[Mount] {
        if self.mounts.is_empty() { &[Mount::Company, Mount::User] } else { &self.mounts }
    }
    /// Whether it changes anything: every method but GET.
    pub fn mutates(&self) -> bool {
        self.method != "GET"
    }
}

/// The part of an operation in paying.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pays {
    /// Buys credit.
    Topup,
    /// Subscribes to a plan.
    Subscribe,
    /// Shows the plans.
    ViewPlans,
}

impl Pays {
    /// All of it, in the order in which it is told.
    pub const ALL: [Self; 3] = [Self::Topup, Self::Subscribe, Self::ViewPlans];

    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Topup => "topup",
            Self::Subscribe => "subscribe",
            Self::ViewPlans => "view_plans",
        }
    }
}

fn default_auth() -> String {
    "key".into()
}
fn default_status() -> u16 {
    200
}
fn yes() -> bool {
    true
}

/// A place at which an operation is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mount {
    /// `/v1/…`, for the account's default profile or the one in `X-Service-User-Id`.
    Company,
    /// `/v1/users/{user_id}/…`.
    User,
    /// At the root, without `/v1`.
    Root,
    /// `/v1/operator/…`.
    Operator,
}

/// The role an operation needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    /// Any role.
    Read,
    /// Developer and above.
    #[default]
    Write,
    /// Admin and above.
    Admin,
}

/// The three list styles of the specification, and two more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Paging {
    /// Not a list.
    #[default]
    None,
    /// `limit` (default 20, max 200) and `offset`.
    Offset,
    /// `limit` (max 200) and an opaque `cursor`.
    Cursor,
    /// `limit` (1–100) and `after`; answers `{data, has_more, next_cursor}`.
    Envelope,
    /// `after_seq`, oldest first.
    Log,
}

/// How long calls of an operation are expected to take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallLength {
    /// Milliseconds.
    #[default]
    Short,
    /// Seconds: long polls, streams, outside calls.
    Long,
}

/// A regulated action: it spends, sends or binds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Action {
    /// `<primitive>.<verb>`.
    pub name: String,
    /// For people.
    pub title: String,
    /// For people.
    #[serde(default)]
    pub description: String,
    /// `low`, `medium` or `high`.
    #[serde(default)]
    pub risk: String,
    /// Whether its amount counts against caps.
    #[serde(default)]
    pub spends: bool,
    /// How many times what was held a capture may be, where the cost is known afterwards only and
    /// no account of the ledger pays it: 1 to 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overrun: Option<f64>,
}

/// The range of [`Action::overrun`].
pub const OVERRUN: std::ops::RangeInclusive<f64> = 1.0..=2.0;

impl Action {
    /// The most that may be captured under leave for an amount, in micro-US-dollars. An action that
    /// an account of the ledger pays (`is_paid`) captures no more than was set aside there.
    pub fn capturable(&self, amount: i64, is_paid: bool) -> i64 {
        let factor = self.overrun.filter(|factor| !is_paid && OVERRUN.contains(factor));
        // Hundredths: money is never counted in floating point.
        let hundredths = factor.map_or(100, |factor| (factor * 100.0).round() as i128);
        i64::try_from(i128::from(amount) * hundredths / 100).unwrap_or(i64::MAX)
    }
}

/// A collection of documents.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Collection {
    /// Lower-case name, unique within the primitive.
    pub name: String,
    /// The sharers of its documents.
    #[serde(default)]
    pub reach: CollectionReach,
    /// Fields that queries may match.
    #[serde(default)]
    pub indexes: Vec<Index>,
    /// Fields whose values are unique within the reach; absent values are not claimed.
    #[serde(default)]
    pub unique: Vec<String>,
    /// Fields that full-text search reads.
    #[serde(default)]
    pub searchable: Vec<String>,
    /// Present where documents are handed out under leases.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leased: Option<Leased>,
    /// JSON Schema of a document's body.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
}

/// How a collection is handed out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Leased {
    /// Documents are handed out within one value of this text field.
    pub by: String,
}

/// The sharers of a collection's documents.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CollectionReach {
    /// One tenant user.
    #[default]
    User,
    /// All users of a project.
    Project,
    /// All projects of an organization.
    Organization,
    /// Everyone; for catalogues that the operator fills.
    Deployment,
}

/// A field that queries may match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Index {
    /// A member of the body, dotted for nested ones.
    pub field: String,
    /// How values compare.
    #[serde(rename = "type", default)]
    pub kind: IndexType,
}

/// How indexed values compare.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IndexType {
    /// By bytes.
    #[default]
    Text,
    /// As 64-bit integers.
    Integer,
    /// As milliseconds since the Unix epoch.
    Instant,
}

/// An event that the primitive emits.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Event {
    /// `<noun>.<past participle>`.
    pub name: String,
    /// For people.
    #[serde(default)]
    pub description: String,
    /// JSON Schema of the payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
    /// Whether webhooks can subscribe to it.
    #[serde(default)]
    pub webhook: bool,
    /// The names that it had before: a webhook that asks for one of them hears it still.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub formerly: Vec<String>,
}

/// A provider that the primitive can be bound to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Provider {
    /// The binding's name, as in `https://<name>.binding/`.
    pub name: String,
    /// For people.
    #[serde(default)]
    pub description: String,
    /// The protocols it may speak.
    #[serde(default)]
    pub kinds: Vec<String>,
    /// Whether the primitive does nothing useful without it.
    #[serde(default)]
    pub required: bool,
}

/// Something that can be set.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Setting {
    /// Its name.
    pub key: String,
    /// JSON Schema of its value.
    #[serde(default)]
    pub schema: Value,
    /// The value that holds when it is not set.
    #[serde(default)]
    pub default: Value,
    /// `operator` or `kit`.
    #[serde(default)]
    pub by: String,
    /// For people.
    #[serde(default)]
    pub description: String,
}

/// Headers on every answer of a deprecated family's routes, refusals included.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Deprecation {
    /// `X-Service-Deprecation-Id`.
    pub id: String,
    /// The date it was announced, `2026-07-29`.
    pub announced: String,
    /// The address at which it is explained.
    #[serde(default)]
    pub link: String,
    /// Its text.
    #[serde(default)]
    pub note: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_overruns_as_declared_and_never_what_an_account_pays() {
        let action = |overrun| Action {
            name: "notes.guess".into(),
            title: "Guess".into(),
            description: String::new(),
            risk: String::new(),
            spends: true,
            overrun,
        };
        assert_eq!(action(None).capturable(1_000, false), 1_000);
        assert_eq!(action(Some(1.25)).capturable(1_001, false), 1_251);
        assert_eq!(
            action(Some(2.0)).capturable(9_000_000_000_000_000, false),
            18_000_000_000_000_000
        );
        assert_eq!(action(Some(2.0)).capturable(1_000, true), 1_000);
        assert_eq!(action(Some(9.0)).capturable(1_000, false), 1_000, "what no manifest may say");
    }
}

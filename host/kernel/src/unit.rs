//! A unit of work: everything one request wants to read-validate and write, as one value.
//!
//! A unit is data. The committer (in the store) reads the rows it touches, [`crate::apply`] decides
//! in memory, the committer writes what was decided. Nothing here knows how.

use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

use crate::calendar::Slot;
use crate::meter::{Admission, Count, Tally, Told};
use crate::time::Instant;

/// The sharers of a row: `u/<user>`, `p/<project>`, `o/<organization>`, or `d` for the whole
/// deployment.
///
/// Only [`crate::scope::Scope`] and the host's own routes make one; a guest never sees or names a
/// reach.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(from = "String")]
pub struct Reach(Arc<str>);

impl Reach {
    /// One tenant user.
    pub fn user(id: &str) -> Self {
        Self(["u/", id].concat().into())
    }
    /// One project.
    pub fn project(id: &str) -> Self {
        Self(["p/", id].concat().into())
    }
    /// One organization.
    pub fn organization(id: &str) -> Self {
        Self(["o/", id].concat().into())
    }
    /// The deployment.
    pub fn deployment() -> Self {
        Self("d".into())
    }
    /// The organization whose reach it is.
    pub fn of_organization(&self) -> Option<&str> {
        self.0.strip_prefix("o/")
    }
    /// A reach as the store kept it.
    pub fn from_store(text: String) -> Self {
        Self(text.into())
    }
    /// The text that the store keeps.
    pub fn as_str(&self) -> &str {
        &self.0
    }
    /// Whether it is more than one tenant user's.
    pub fn is_shared(&self) -> bool {
        !self.0.starts_with("u/")
    }
}

/// A kind of row within a reach: `<primitive>.<collection>`, or `host.<collection>` for the host's
/// own.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize)]
#[serde(from = "String")]
pub struct Space(Arc<str>);

impl Space {
    /// A collection of a primitive. Primitive names hold no dot, so no primitive can reach `host.*`
    /// or another's.
    pub fn of(primitive: &str, collection: &str) -> Self {
        Self([primitive, ".", collection].concat().into())
    }
    /// A collection of the host itself.
    pub fn host(collection: &str) -> Self {
        Self(["host.", collection].concat().into())
    }
    /// A space as the store kept it.
    pub fn from_store(text: String) -> Self {
        Self(text.into())
    }
    /// The text that the store keeps.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for Reach {
    fn from(text: String) -> Self {
        Self::from_store(text)
    }
}

impl From<String> for Space {
    fn from(text: String) -> Self {
        Self::from_store(text)
    }
}

impl Serialize for Reach {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0)
    }
}

impl Serialize for Space {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&self.0)
    }
}

/// The address of one row.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    /// Its sharers.
    pub reach: Reach,
    /// The kind of row.
    pub space: Space,
    /// Its id within the space; at most 512 bytes, no NUL.
    pub id: String,
}

impl Key {
    /// The key of `id` in `space` of `reach`.
    pub fn new(reach: &Reach, space: &Space, id: impl Into<String>) -> Self {
        Self { reach: reach.clone(), space: space.clone(), id: id.into() }
    }

    /// The row as others read of it: `<space>/<id>`. The id of an inbound URL is what its callers are
    /// known by, and stands there by its beginning.
    pub fn label(&self) -> String {
        let space = self.space.as_str();
        if self.space == Space::host(HOOKS) {
            return format!("{space}/{}", beginning(&self.id));
        }
        format!("{space}/{}", self.id)
    }
}

/// The host's collection of inbound URLs.
pub const HOOKS: &str = "hooks";
/// Characters of a credential that others see.
const CHARS_SHOWN: usize = 8;

/// The beginning of a credential: enough to tell it from others.
pub fn beginning(credential: &str) -> String {
    credential.chars().take(CHARS_SHOWN).chain(['…']).collect()
}

/// One committed row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// 1 at insert, one more at each write.
    pub version: u64,
    /// The tenant user it belongs to.
    pub user: Option<String>,
    /// When it was inserted.
    pub created_at: Instant,
    /// When it was last written.
    pub updated_at: Instant,
    /// UTF-8 JSON text.
    pub body: String,
    /// Declared index entries: field and encoded value ([`crate::index`]), sorted.
    pub index: Vec<(String, String)>,
    /// Claims on unique values within the reach: field and encoded value, sorted.
    pub unique: Vec<(String, String)>,
    /// The text that full-text search finds it by.
    pub text: Option<String>,
    /// Present where the collection is leased.
    pub lease: Option<Lease>,
}

impl Row {
    /// The bytes of its texts.
    pub fn text_bytes(&self) -> usize {
        let pairs = self.index.iter().chain(&self.unique);
        let entries: usize = pairs.map(|(field, value)| field.len() + value.len()).sum();
        self.body.len() + entries + self.text.as_ref().map_or(0, String::len)
    }
}

/// When a leased row is handed out, and to whom.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Rows are handed out within one group (a queue's id, a job kind).
    pub group: String,
    /// Not handed out before this; while leased, the end of the lease.
    pub due_at: Instant,
    /// The current holder's token; absent while nobody holds it.
    pub token: Option<String>,
    /// How often it was handed out.
    pub count: u32,
}

/// The content that a write gives a row.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Draft {
    /// The tenant user it belongs to; kept from the old row when absent in a replace.
    pub user: Option<String>,
    /// UTF-8 JSON text.
    pub body: String,
    /// See [`Row::index`].
    pub index: Vec<(String, String)>,
    /// See [`Row::unique`].
    pub unique: Vec<(String, String)>,
    /// See [`Row::text`].
    pub text: Option<String>,
    /// Group and first due time, where the collection is leased; a replace keeps the row's lease
    /// when absent.
    pub lease: Option<(String, Instant)>,
    /// A replace takes the row's lease away: it falls due no more.
    pub unleased: bool,
}

/// A fact that a unit read, and therefore needs to be still true at its commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Guard {
    /// The row has this version, or does not exist. Broken: conflict.
    Version {
        /// The row.
        key: Key,
        /// Its version when read; `None` if it was absent.
        version: Option<u64>,
    },
    /// The row has this version still: one that requests are decided by and that hardly ever
    /// changes (a kit, a membership). Several units may hold it at once. Broken: conflict.
    Unchanged {
        /// The row.
        key: Key,
        /// Its version when read.
        version: u64,
    },
    /// The row is the one that was inserted then: one that was removed and inserted anew, whose
    /// version starts at 1 again, is not taken for it. Beside [`Guard::Unchanged`], for what can come
    /// again under its key (a membership). Several units may hold it at once. Broken: conflict.
    Inserted {
        /// The row.
        key: Key,
        /// When it was inserted, as it was read.
        at: Instant,
    },
    /// The row is the very one that was read: its stamp is given by each write and never again, so
    /// that a row removed and inserted anew, whose version starts at 1 again, is not taken for the
    /// old one. Broken: conflict. `Txn` records this one.
    Stamp {
        /// The row.
        key: Key,
        /// Its stamp when read.
        stamp: u64,
    },
    /// Nothing was written to the space within the reach since. Broken: conflict. Of the books
    /// ([`crate::governance::hold::is_book`]) there is none.
    Revision {
        /// The reach that was searched.
        reach: Reach,
        /// The space that was searched.
        space: Space,
        /// Its revision when read; 0 if it never had one.
        revision: u64,
    },
    /// The unique value or name is held by this id, or by nobody. Broken: conflict.
    Claim {
        /// The claim.
        claim: Claim,
        /// The holder's id when read.
        holder: Option<String>,
    },
    /// The row exists and has this index entry (a user's `status=active`). Broken: refused. Several
    /// units may hold it at once; a writer of the row waits for them, so a revocation lands between
    /// two batches and never within one.
    Entry {
        /// The row.
        key: Key,
        /// The indexed field.
        field: String,
        /// The encoded value it must have.
        value: String,
    },
    /// The row is still leased under this token: the fence of a job run or an idempotency owner.
    /// Broken: refused.
    Lease {
        /// The row.
        key: Key,
        /// The token that must still hold.
        token: String,
    },
}

impl Guard {
    /// The row is the one that was read, unchanged: no other that came under its key since, whose
    /// version begins at 1 again. Several units may hold these at once.
    pub fn same(key: Key, read: &Row) -> [Self; 2] {
        let inserted = Self::Inserted { key: key.clone(), at: read.created_at };
        [Self::Unchanged { key, version: read.version }, inserted]
    }

    /// Whether every unit of a request is committed under it, also after an effect: somebody is
    /// revoked, the work is cancelled, or another has taken it up.
    pub fn is_fence(&self) -> bool {
        matches!(self, Self::Entry { .. } | Self::Lease { .. })
    }

    /// Whether a conflict about these rows is about a record that it requires as it was read:
    /// whoever was admitted by that record is admitted anew.
    pub fn conflicts_on(&self, keys: &[Key]) -> bool {
        match self {
            Self::Unchanged { key, .. } | Self::Inserted { key, .. } => keys.contains(key),
            _ => false,
        }
    }
}

/// The address of a unique value: `space` is `<space>#<field>` for a declared unique field, or a
/// space of names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Claim {
    /// Within whom it is unique.
    pub reach: Reach,
    /// The space of values.
    pub space: String,
    /// The value.
    pub name: String,
}

impl Claim {
    /// The claim behind a declared unique field of a collection.
    pub fn unique(reach: &Reach, space: &Space, field: &str, value: &str) -> Self {
        Self {
            reach: reach.clone(),
            space: format!("{}#{field}", space.as_str()),
            name: value.into(),
        }
    }
    /// The declared unique field behind it, if it is no name.
    pub fn field(&self) -> Option<&str> {
        self.space
            .split_once('#')
            .filter(|(space, _)| !space.starts_with("name:"))
            .map(|(_, field)| field)
    }
    /// A name unique in the whole deployment.
    pub fn name(space: &str, name: &str) -> Self {
        Self { reach: Reach::deployment(), space: format!("name:{space}"), name: name.into() }
    }
}

/// An append-only log: gap-free sequence numbers from 1, given at the commit.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LogKey {
    /// Its sharers.
    pub reach: Reach,
    /// The log's name: `<primitive>.<name>`, or the host's own.
    pub log: String,
}

/// One thing that a unit changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Write {
    /// A new row; refused when the key exists.
    Insert {
        /// The address.
        key: Key,
        /// The content.
        draft: Draft,
    },
    /// An existing row's new content; refused when it is absent, or at another version than
    /// `expected`.
    Replace {
        /// The address.
        key: Key,
        /// The content.
        draft: Draft,
        /// The version it must have.
        expected: Option<u64>,
    },
    /// Inserts or replaces, whichever fits.
    Put {
        /// The address.
        key: Key,
        /// The content.
        draft: Draft,
    },
    /// A row that is there afterwards: inserted where it is missing, left as it is otherwise.
    /// Commutes: it never conflicts.
    Ensure {
        /// The address.
        key: Key,
        /// The content of a row that is missing.
        draft: Draft,
    },
    /// Removes a row and its claims; an absent row is not an error unless a version was expected.
    Remove {
        /// The row.
        key: Key,
        /// The version it must have.
        expected: Option<u64>,
    },
    /// Adds to an integer field of the body. Commutes: it never conflicts.
    Add {
        /// The row; refused when absent.
        key: Key,
        /// A top-level member of the body; absent counts as 0.
        field: String,
        /// The summand.
        amount: i64,
    },
    /// Has a meter count in a window from a sum of what was spent, inserted where it is missing.
    /// One that counts there already is left as it is. Commutes with its like.
    Open {
        /// The meter's row.
        meter: Key,
        /// The window that counts from now on.
        slot: Slot,
        /// The amount that was spent in it.
        spent: i64,
        /// The tallies that the meter had been told of at the moment of that sum; absent where a guard says that
        /// it is told of nothing more.
        since: Option<Told>,
    },
    /// Reserves an amount of a cap; refused when the meter does not admit it. Commutes with its
    /// like: no caller conflicts.
    Reserve {
        /// The meter's row ([`crate::meter::Meter`]); refused when absent.
        meter: Key,
        /// The window that it is to count in.
        slot: Slot,
        /// How much.
        amount: i64,
        /// Under which rule.
        admission: Admission,
    },
    /// Ends what was reserved. Never refused; commutes.
    Tally {
        /// The meter's row; nothing happens when absent.
        meter: Key,
        /// The window that admitted it.
        slot: Slot,
        /// The end of it.
        tally: Tally,
    },
    /// Moves money between two accounts ([`crate::ledger::Account`]); refused when a side may not.
    /// Commutes with its like.
    Transfer {
        /// The account that is debited; refused when absent.
        from: Key,
        /// The account that is credited; refused when absent.
        to: Key,
        /// How much, in micro-US-dollars.
        amount: i64,
        /// The step.
        phase: Phase,
    },
    /// Freezes an account, or thaws it: what it holds stays as the writes before left it.
    Freeze {
        /// The account; refused when absent.
        account: Key,
        /// Whether it takes part in nothing new.
        frozen: bool,
    },
    /// Claims a name for a row; refused when another row holds it.
    Claim {
        /// The name.
        claim: Claim,
        /// The row that gets it.
        holder: Key,
    },
    /// Gives a name up; nothing happens unless `holder` holds it.
    Unclaim {
        /// The name.
        claim: Claim,
        /// The row that must hold it.
        holder: Key,
    },
    /// Appends to a log. Commutes.
    Append {
        /// The log; refused when closed.
        log: LogKey,
        /// The entry's name.
        name: String,
        /// UTF-8 JSON text.
        payload: String,
    },
    /// Closes a log: later appends are refused.
    Close {
        /// The log.
        log: LogKey,
    },
    /// Moves a lease's end; refused when the token no longer holds.
    Extend {
        /// The row.
        key: Key,
        /// The lease's token.
        token: String,
        /// The new end.
        until: Instant,
    },
    /// Ends a lease, so that the row is handed out again from `due_at` on; refused when the token
    /// no longer holds.
    Release {
        /// The row.
        key: Key,
        /// The lease's token.
        token: String,
        /// When it is due again.
        due_at: Instant,
        /// Whether the hand-out is taken back (the count goes down): the taker's request failed.
        undo: bool,
    },
    /// Ends a lease and removes the row; refused when the token no longer holds.
    Settle {
        /// The row.
        key: Key,
        /// The lease's token.
        token: String,
    },
    /// A row that nobody holds is not handed out before this.
    Defer {
        /// The row.
        key: Key,
        /// When it is due.
        due_at: Instant,
    },
}

/// The step that a transfer makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Moves the amount at once.
    Post,
    /// Sets the amount aside on both sides.
    Reserve,
    /// Moves the amount, and ends what had been set aside for it. Never refused: it has happened.
    Settle {
        /// The amount that had been set aside.
        reserved: i64,
    },
    /// Gives back the amount that had been set aside. Never refused.
    Void,
}

/// Asks for rows that are due, for this caller alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Take {
    /// The reach that is searched; `None` takes across all reaches (the host's job runner).
    pub reach: Option<Reach>,
    /// The space that is searched.
    pub space: Space,
    /// The group within it.
    pub group: String,
    /// The end of the leases.
    pub until: Instant,
    /// One fresh random token a row: as many rows are taken at most.
    pub tokens: Vec<String>,
}

/// A row handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taken {
    /// Its address.
    pub key: Key,
    /// Its state after the hand-out.
    pub row: Row,
    /// The token that holds it.
    pub token: String,
    /// When it had been due: given back with this, it keeps its place.
    pub due_at: Instant,
}

/// The member of an event's body that says what happened.
const PAYLOAD: &str = "payload";

/// A fact for others, committed unnumbered and sequenced right behind: an event or an audit row.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// UUIDv7.
    pub id: String,
    /// `event` or `audit`.
    pub kind: FactKind,
    /// The organization it belongs to.
    pub organization: String,
    /// When it happened.
    pub at: Instant,
    /// The event's type or the audited action.
    pub name: String,
    /// UTF-8 JSON text.
    pub body: String,
    /// UTF-8 JSON text that goes when the user is erased, or earlier: what an audit row has beside
    /// its leaf, and the payload of an event about a user.
    pub private: Option<String>,
    /// The tenant user whose erasure takes the private text with it.
    pub user: Option<String>,
}

impl Fact {
    /// An event for the live stream and webhooks. The payload of one about a user is its private
    /// text.
    pub fn event(
        id: String,
        organization: impl Into<String>,
        at: Instant,
        name: impl Into<String>,
        body: &serde_json::Value,
    ) -> Self {
        let (organization, name) = (organization.into(), name.into());
        let kind = FactKind::Event;
        let (Some(members), Some(user)) = (body.as_object(), body["user"].as_str()) else {
            let body = body.to_string();
            return Self { id, kind, organization, at, name, body, private: None, user: None };
        };
        let public = members.iter().filter(|(member, _)| *member != PAYLOAD);
        let public: serde_json::Map<String, serde_json::Value> =
            public.map(|(member, value)| (member.clone(), value.clone())).collect();
        Self {
            id,
            kind,
            organization,
            at,
            name,
            body: serde_json::Value::Object(public).to_string(),
            private: members.get(PAYLOAD).map(ToString::to_string),
            user: Some(user.to_owned()),
        }
    }

    /// The payload of an event with this body; `None` where it went with its user.
    pub fn payload(&self, body: &serde_json::Value) -> Option<serde_json::Value> {
        match (&self.private, body.get(PAYLOAD)) {
            (Some(private), _) => serde_json::from_str(private).ok(),
            (None, Some(payload)) => Some(payload.clone()),
            (None, None) => self.user.is_none().then(|| body.clone()),
        }
    }
}

/// The readers of a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FactKind {
    /// The live stream and webhooks.
    Event,
    /// The audit log.
    Audit,
}

/// Everything that one request commits at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unit {
    /// The organization at work: the committer's lane and its fair turn. Empty for the deployment's
    /// own.
    pub organization: String,
    /// When it was begun: the time that its rows bear, so that what an answer says of them is what
    /// later reads say. The commit's own time where nobody was told of it before.
    pub at: Option<Instant>,
    /// Conditions that must still be true.
    pub guards: Vec<Guard>,
    /// Changes, in order.
    pub writes: Vec<Write>,
    /// Rows that are asked to be handed out.
    pub takes: Vec<Take>,
    /// Events and audit rows for others.
    pub facts: Vec<Fact>,
}

impl Unit {
    /// Whether committing it would change nothing.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty() && self.takes.is_empty() && self.facts.is_empty()
    }
}

/// The answer of a commit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// The version of each row written, in the order of first touch.
    pub versions: Vec<(Key, u64)>,
    /// The rows that each [`Take`] got, in order.
    pub taken: Vec<Vec<Taken>>,
    /// The sequence given to each [`Write::Append`], in order.
    pub sequences: Vec<u64>,
}

/// Why a unit was not applied.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// Something that it read has changed: run the request again.
    #[error("what the unit read has changed")]
    Conflict {
        /// The rows that changed; a key with an empty id stands for its whole space (a revision).
        keys: Vec<Key>,
    },
    /// A rule said no: the request decides what that means to its caller.
    #[error(transparent)]
    Refused(#[from] Refused),
}

/// The rules that a unit can break.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// An insert found the key taken.
    #[error("the row exists")]
    Exists {
        /// The row.
        key: Key,
    },
    /// The row to change is not there.
    #[error("the row does not exist")]
    Missing {
        /// The row.
        key: Key,
    },
    /// The row is at another version than expected.
    #[error("the row is at version {current}")]
    Stale {
        /// The row.
        key: Key,
        /// The version it has.
        current: u64,
    },
    /// Another row holds the unique value or name.
    #[error("another row holds the value")]
    ClaimLost {
        /// The claim.
        claim: Claim,
        /// The row that holds it.
        holder: Key,
    },
    /// The token no longer holds the lease.
    #[error("the lease has ended")]
    LeaseLost {
        /// The row.
        key: Key,
    },
    /// A [`Guard::Entry`] no longer holds: a user, key or organization was revoked.
    #[error("{field} is no longer what the request was admitted under")]
    Inactive {
        /// The row.
        key: Key,
        /// The field.
        field: String,
    },
    /// [`Write::Add`] on something that is no integer, or beyond its range.
    #[error("{field} is no integer within range")]
    NotAddable {
        /// The row.
        key: Key,
        /// The field.
        field: String,
    },
    /// A cap does not admit the amount.
    #[error("the cap admits no more than {cap}")]
    OverCap {
        /// The meter.
        meter: Key,
        /// The amounts in its window.
        count: Count,
        /// The cap.
        cap: i64,
    },
    /// The meter counts in a later window, or by another period: ask again by what it has now.
    #[error("the meter counts in another window")]
    Moved {
        /// The meter.
        meter: Key,
    },
    /// A meter or an account is frozen.
    #[error("it is frozen")]
    Frozen {
        /// The row.
        key: Key,
    },
    /// An account would fall below zero.
    #[error("the account has {available} available")]
    Overdrawn {
        /// The account.
        account: Key,
        /// Its available amount, in micro-US-dollars.
        available: i64,
    },
    /// An append to a closed log.
    #[error("the log is closed")]
    LogClosed {
        /// The log.
        log: LogKey,
    },
    /// More rows, bytes or longer keys than a unit may have.
    #[error("the unit exceeds {limit}")]
    TooLarge {
        /// The limit's name.
        limit: &'static str,
    },
}

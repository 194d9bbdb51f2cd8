//! Leave to take a regulated action, as the engine asks the server for it.
//!
//! The engine knows who asks and what became of it; which rules and caps decide is the server's.

use std::sync::Arc;

use charter_kernel::governance::hold::Hold;
use charter_kernel::refusal::Failure;
use charter_kernel::scope::Scope;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Fact, Guard, Key, Unit};
use charter_store::{CommitError, Txn};
use futures::future::BoxFuture;
use serde_json::Value;

/// A regulated action that a primitive wants to take.
#[derive(Clone, Debug, PartialEq)]
pub struct Proposal {
    /// One of the actions that its manifest declares.
    pub action: String,
    /// Whether its amount counts against caps, as declared.
    pub spends: bool,
    /// In micro-US-dollars; absent where none is known.
    pub amount: Option<i64>,
    /// The most that may be captured of it, as declared.
    pub capturable: i64,
    /// Whether a provider has signed that it happened: neither rules nor caps are asked then.
    pub reported: bool,
    /// The entity of the action.
    pub entity: String,
    /// Caps of the primitive's own, outermost first: scope and id.
    pub scopes: Vec<(String, String)>,
    /// The purpose of the money, in spend reports.
    pub component: String,
    /// For the person who decides.
    pub title: String,
    /// For the person who decides.
    pub message: String,
    /// For the person who decides.
    pub context: Value,
    /// The accounts that the capture posts between: debited and credited.
    pub pay: Option<(Key, Key)>,
}

/// Memory that a value costs beside its text, about: as a node of a tree, with its name.
const VALUE_BYTES: usize = 64;
/// Memory that a proposal and its hold cost beside their texts, about.
const PROPOSAL_BYTES: usize = 4 << 10;

fn value_bytes(value: &Value) -> usize {
    VALUE_BYTES
        + match value {
            Value::String(text) => text.len(),
            Value::Array(items) => items.iter().map(value_bytes).sum(),
            Value::Object(members) => {
                members.iter().map(|(name, value)| name.len() + value_bytes(value)).sum()
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        }
}

impl Proposal {
    /// The memory that it takes beside the hold of it, about. Most of its texts are in both.
    pub(crate) fn memory_bytes(&self) -> usize {
        let scopes: usize = self.scopes.iter().map(|(scope, id)| scope.len() + id.len()).sum();
        let texts = [&self.entity, &self.component, &self.title, &self.message];
        let texts: usize = texts.into_iter().map(String::len).sum();
        PROPOSAL_BYTES + 2 * (texts + scopes) + value_bytes(&self.context)
    }
}

/// A proposal, and on whose behalf it is made.
#[derive(Clone, Debug)]
pub struct Leave {
    /// The caller.
    pub scope: Scope,
    /// The primitive that asks.
    pub primitive: String,
    /// The request.
    pub request: String,
    /// Its place among the request's proposals.
    pub ordinal: u32,
    /// The proposal that leave is asked for.
    pub proposal: Proposal,
    /// The guards that admitted the request: the hold is taken only while they hold.
    pub guards: Vec<Guard>,
    /// When the hold ends by itself, should nobody settle it.
    pub until: Instant,
    /// Whether the hold may be taken with the request's own commit, because nothing leaves the host
    /// before that.
    pub defers: bool,
    /// The request's own part of the unit by which it waits for a person, where it has one.
    pub waiting: Option<Arc<dyn Waits>>,
}

/// The request's own part of the unit by which it waits for a person: that it waits is known under
/// its key from the moment at which somebody can decide.
pub trait Waits: std::fmt::Debug + Send + Sync {
    /// Adds it. `approval` is decided on; `record` is the body of its row.
    ///
    /// # Errors
    /// When it cannot be added: then the request does not wait.
    fn note<'a>(
        &'a self,
        txn: &'a mut Txn,
        approval: &'a str,
        record: &'a str,
    ) -> BoxFuture<'a, Result<(), CommitError>>;
    /// Whether a conflict is about the claim of the request's key.
    fn conflicts_on(&self, keys: &[Key]) -> bool;
}

/// The gateway of one call: the server's side, which knows where the call came from and how it is
/// made again.
pub trait Gateway: Send + Sync + 'static {
    /// Asks for leave to take a regulated action, and takes the hold at once.
    fn authorize(&self, leave: Leave) -> BoxFuture<'_, Result<Granted, Ungranted>>;
    /// Whether the call can be made again once a person has decided.
    fn is_repeatable(&self) -> bool;
}

/// Leave that was given.
#[derive(Clone, Debug)]
pub struct Granted {
    /// The hold's id.
    pub id: String,
    /// The hold.
    pub hold: Hold,
    /// Guards on the credential that must hold as long as the leave is used, beside those that the
    /// request was admitted under.
    pub conditions: Vec<Guard>,
    /// The hold's part of a unit, if it is not taken yet.
    pub untaken: Option<Deferred>,
}

/// A hold that is taken later than leave was given for it, or never.
#[derive(Clone, Debug)]
pub struct Deferred {
    /// The unit that is committed with it.
    pub unit: Unit,
    /// The facts in place of the unit's, where it is never taken: they name no hold.
    pub facts: Vec<Fact>,
}

/// Why leave was not given.
#[derive(Debug)]
pub enum Ungranted {
    /// A rule or a cap says no.
    Refused(Box<Failure>),
    /// A person decides. The funds are held, and the request ends here, whatever the guest says.
    Pending {
        /// The approval that is decided.
        approval: String,
    },
    /// The guards that admitted the request do not hold any more, or the store took nothing.
    Uncommitted(CommitError),
}

impl From<Failure> for Ungranted {
    fn from(failure: Failure) -> Self {
        Self::Refused(Box::new(failure))
    }
}

/// The space of caps that primitives set for scopes of their own.
pub fn caps_space() -> charter_kernel::unit::Space {
    charter_kernel::unit::Space::host("caps")
}

/// The id of a primitive's own scope, among caps and meters.
pub fn own_scope(primitive: &str, scope: &str, id: &str) -> String {
    format!("{primitive}.{scope}:{id}")
}

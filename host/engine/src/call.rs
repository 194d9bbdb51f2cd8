//! One call of a component, as the pipeline or a worker asks for it.
//!
//! Holds the proof of scope and what the commit must still find true. The loop that runs it is in
//! `call/`.

use std::sync::Arc;

use bytes::Bytes;
use charter_kernel::governance::hold::Word;
use charter_kernel::idempotency::Lineage;
use charter_kernel::manifest::Class;
use charter_kernel::scope::{ActorKind, Scope};
use charter_kernel::unit::{Guard, Key, Write};
use charter_store::Txn;
use futures::future::BoxFuture;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

mod attempt;
pub(crate) mod permits;
pub(crate) mod run;
mod unit;
mod wit;

use crate::answer::Answer;
use crate::hook::SIGNAL;
use crate::leave::Origin;
use charter_kernel::refusal::Failure;

/// One call of a component.
pub struct Call {
    /// The request's id; shown to the guest and in logs.
    pub request_id: String,
    /// Whose documents, secrets and names it reaches, and whom the guest sees as its caller.
    pub scope: Scope,
    /// Which export, with what.
    pub entry: Entry,
    /// Re-checked at the commit; a conflict on one of them is [`crate::Outcome::Restart`].
    pub guards: Vec<Guard>,
    /// The idempotency claim, where the request has a key.
    pub claim: Option<Claiming>,
    /// Adds the audit row and the idempotent answer to the commit.
    pub finish: Arc<dyn Finish>,
    /// False for a GET: nothing it writes is committed but its facts.
    pub mutates: bool,
    /// Wall time until [`crate::Outcome::Deadline`].
    pub deadline_ms: u32,
    /// Short and long calls have their own concurrency.
    pub class: Class,
    /// Which call of the request it is: what keys of nested changes derive from.
    pub lineage: Lineage,
    /// Cancelled when the client leaves.
    pub client_gone: CancellationToken,
    /// Comes back with each [`crate::Leave`].
    pub origin: Option<Origin>,
}

impl Call {
    /// Whose word the call is. What a bound provider has signed is told as a signal of its hook, by
    /// the host alone; the answer to its question is the guest's own.
    pub(crate) fn word(&self) -> Word {
        let Entry::React(signal) = &self.entry else { return Word::Asker };
        let is_hooks = self.scope.actor().kind == ActorKind::Hook && signal.kind == SIGNAL;
        // Only read where more may hang on it: a payload holds all that the provider sent.
        let provider = || -> Option<Value> {
            let payload: Value = serde_json::from_str(&signal.payload).ok()?;
            payload.get("provider").filter(|name| name.is_string()).cloned()
        };
        match is_hooks && provider().is_some() {
            true => Word::Provider,
            false => Word::Asker,
        }
    }

    /// Bytes that the call holds in memory for its caller.
    pub(crate) fn body_bytes(&self) -> usize {
        match &self.entry {
            Entry::Handle(request) => {
                request.body.as_ref().map_or(0, String::len)
                    + request.bytes.as_ref().map_or(0, Bytes::len)
                    + request.query.len()
            }
            Entry::React(signal) => signal.payload.len(),
        }
    }
}

/// Which export is called.
#[derive(Clone, Debug)]
pub enum Entry {
    /// `handle`.
    Handle(Request),
    /// `react`.
    React(Signal),
}

/// One request, validated by the server.
#[derive(Clone, Debug)]
pub struct Request {
    /// The operation's id.
    pub operation: String,
    /// Path parameters.
    pub parameters: Vec<(String, String)>,
    /// The query as JSON text.
    pub query: String,
    /// The JSON body's text.
    pub body: Option<String>,
    /// The raw body where no JSON is declared.
    pub bytes: Option<Bytes>,
    /// Or the key of the object that holds it.
    pub blob: Option<String>,
    /// Those that the operation declares.
    pub headers: Vec<(String, String)>,
    /// Facts that may grow; `attempt` is added by the engine.
    pub context: Map<String, Value>,
}

/// One signal.
#[derive(Clone, Debug)]
pub struct Signal {
    /// `job`, `hook`, `mail`, `name`, `approval`, `event`, `created`, `revoked`, ….
    pub kind: String,
    /// JSON text.
    pub payload: String,
    /// Large content.
    pub blob: Option<String>,
}

/// The idempotency claim. It rides in the request's first commit: usually that is the only one, and
/// [`Finish`] writes the finished record at once. Before a checkpoint or an effect the engine
/// commits `guards` and `writes` by themselves, and from then on adds `fence` to each further unit.
#[derive(Clone, Debug)]
pub struct Claiming {
    /// The record's row: a refusal about it means that another owner has it, and is
    /// [`crate::Outcome::Restart`].
    pub key: Key,
    /// What makes the claim.
    pub writes: Vec<Write>,
    /// What must be true for it.
    pub guards: Vec<Guard>,
    /// What shows that it is still ours.
    pub fence: Guard,
}

/// What the unit says of the request beside the guest's writes.
pub trait Finish: Send + Sync + 'static {
    /// Adds audit row, idempotent answer, job settlement and the like. Called once an attempt,
    /// right before the commit; what it adds must follow from its arguments, as an attempt can be
    /// run again. It commits nothing itself.
    fn finish<'a>(&'a self, txn: &'a mut Txn, ending: Ending<'a>) -> BoxFuture<'a, ()>;
}

/// What a unit is about to say of the request.
#[derive(Clone, Copy, Debug)]
pub struct Ending<'a> {
    /// How it ends.
    pub result: EndingResult<'a>,
    /// Whether [`Claiming::writes`] are already committed: the record is then replaced rather than
    /// inserted.
    pub claimed: bool,
    /// Whether an effect has left the host, so that the outcome must be recorded whatever it is.
    pub dispatched: bool,
}

/// How a request ends.
#[derive(Clone, Copy, Debug)]
pub enum EndingResult<'a> {
    /// Answered.
    Answered(&'a Answer),
    /// Refused by the guest or by a rule.
    Refused(&'a Failure),
    /// Waits for a person, by this approval.
    Pending(&'a str),
    /// Trapped, with the incident's id.
    Trapped(&'a str),
    /// Past its wall or CPU deadline.
    Deadline,
    /// Out of memory.
    OutOfMemory,
    /// The client left.
    ClientGone,
}

//! One call of a component, as the pipeline or a worker asks for it.
//!
//! Holds the proof of scope and what the commit must still find true. The loop that runs it is in
//! `run.rs`.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

use bytes::Bytes;
use charter_kernel::governance::hold::Word;
use charter_kernel::idempotency::Lineage;
use charter_kernel::manifest::CallLength;
use charter_kernel::scope::{ActorKind, Scope};
use charter_kernel::unit::{Guard, Key, Write};
use charter_store::{CommitError, Txn};
use futures::future::BoxFuture;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::answer::Answer;
use crate::hook::SIGNAL;
use crate::leave::Gateway;
use charter_kernel::refusal::Failure;

/// One call of a component.
pub struct Call {
    /// The request's id; shown to the guest and in logs.
    pub request_id: String,
    /// The scope whose documents, secrets and names it reaches, and whose principal the guest sees
    /// as its caller.
    pub scope: Scope,
    /// The export to call, with its input.
    pub entry: Entry,
    /// Re-checked at the commit; a conflict on one of them is [`crate::Outcome::Restart`].
    pub guards: Vec<Guard>,
    /// Those of them that are the credential's own: the changes that the call has others make are
    /// committed under these as well.
    pub credential: Vec<Guard>,
    /// The idempotency claim, where the request has a key.
    pub claim: Option<Claiming>,
    /// Adds the audit row and the idempotent answer to the commit.
    pub finish: Arc<dyn Finish>,
    /// False for a GET: nothing it writes is committed but its facts.
    pub mutates: bool,
    /// Wall time until [`crate::Outcome::Deadline`].
    pub deadline_ms: u32,
    /// Short and long calls have their own concurrency.
    pub class: CallLength,
    /// The call's place in the request: keys of nested changes derive from it.
    pub lineage: Lineage,
    /// Cancelled when the client leaves.
    pub client_gone: CancellationToken,
    /// Gives leave to its regulated actions; without one none is given.
    pub gateway: Option<Arc<dyn Gateway>>,
    /// Whether another primitive has shown it a secret.
    pub shown: Shown,
}

/// Set once a nested call has answered with a secret: from then on the answer of the call that asked
/// may hold it, and is kept nowhere either.
#[derive(Clone, Debug, Default)]
pub struct Shown(Arc<AtomicBool>);

impl Shown {
    /// Whether it was.
    pub fn is_set(&self) -> bool {
        self.0.load(SeqCst)
    }

    pub(crate) fn set(&self) {
        self.0.store(true, SeqCst);
    }
}

impl Call {
    /// The word that the call counts as. A provider's signed event is told as a signal of its hook,
    /// by the host alone; the answer to its question is the guest's own.
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

/// The export to call.
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
/// [`Finish`] writes the finished record at once. `guards` and `writes` come with the first portion
/// of one that works in checkpoints, are committed by themselves before an effect, and from then on
/// each further unit has `fence`.
#[derive(Clone, Debug)]
pub struct Claiming {
    /// The record's row: a refusal about it means that another owner has it, and is
    /// [`crate::Outcome::Restart`].
    pub key: Key,
    /// The writes that make the claim.
    pub writes: Vec<Write>,
    /// The writes that take it back, where nothing was done under it.
    pub undo: Vec<Write>,
    /// The guards that must hold for it.
    pub guards: Vec<Guard>,
    /// The guard that shows that it is still ours.
    pub fence: Guard,
}

/// The writer of the request's own part of a unit, beside the guest's writes.
pub trait Finish: Send + Sync + 'static {
    /// Adds audit row, idempotent answer, job settlement and the like. Called once an attempt,
    /// right before the commit; what it adds must follow from its arguments, as an attempt can be
    /// run again. It commits nothing itself.
    ///
    /// # Errors
    /// When it cannot be added: then nothing of the unit is committed.
    fn finish<'a>(
        &'a self,
        txn: &'a mut Txn,
        ending: Ending<'a>,
    ) -> BoxFuture<'a, Result<(), CommitError>>;

    /// Whether there is room for an answer that is about to be committed. Asked where nothing has
    /// left the host: without room the request is not made, and is shed as its tenant's.
    fn has_room(&self, _: &Answer) -> bool {
        true
    }
}

/// The end that a unit is about to report of the request.
#[derive(Clone, Copy, Debug)]
pub struct Ending<'a> {
    /// How it ends.
    pub result: EndingResult<'a>,
    /// Whether [`Claiming::writes`] are already committed: the record is then replaced rather than
    /// inserted.
    pub claimed: bool,
    /// Whether an effect has left the host, so that the outcome must be recorded whatever it is. Of
    /// a refusal: but for changes of other primitives that say that nothing was done.
    pub dispatched: bool,
    /// Whether another primitive has shown the call a secret: nothing keeps its answer.
    pub shown: bool,
}

/// How a request ends.
#[derive(Clone, Copy, Debug)]
pub enum EndingResult<'a> {
    /// Answered.
    Answered(&'a Answer),
    /// Refused by the guest or by a rule.
    Refused(&'a Failure),
    /// Waits for a person; in the unit by which it does.
    Pending {
        /// The approval that is decided on.
        approval: &'a str,
        /// The body of its row.
        record: &'a str,
    },
    /// Trapped, with the incident's id.
    Trapped(&'a str),
    /// Past its wall or CPU deadline.
    Deadline,
    /// Out of memory.
    OutOfMemory,
    /// The client left.
    ClientGone,
}

#[cfg(test)]
mod tests {
    use charter_kernel::scope::{Actor, Principal};

    use super::*;
    use crate::run::bed::{Bed, handle, scope, user};

    #[tokio::test]
    async fn a_call_holds_the_bytes_of_all_that_was_sent_with_it() {
        let bed = Bed::new().await;
        let Entry::Handle(request) = handle("shop.do") else { panic!("it is a request") };
        let bytes = |request: Request| {
            Call { entry: Entry::Handle(request), ..bed.call(user(3)) }.body_bytes()
        };
        let empty = Request { query: String::new(), ..request };
        assert_eq!(bytes(empty.clone()), 0);
        assert_eq!(bytes(Request { query: "{}".into(), ..empty.clone() }), 2);
        assert_eq!(bytes(Request { body: Some("[1]".into()), ..empty.clone() }), 3);
        let raw = Bytes::from_static(&[0; 9]);
        assert_eq!(bytes(Request { bytes: Some(raw), query: "{}".into(), ..empty }), 11);
        let signal = Signal { kind: "job".into(), payload: "1234".into(), blob: None };
        let call = Call { entry: Entry::React(signal), ..bed.call(user(3)) };
        assert_eq!(call.body_bytes(), 4);
    }

    #[tokio::test]
    async fn a_request_is_its_askers_word_whatever_its_body_says() {
        let bed = Bed::new().await;
        let hook = Principal::of(Actor::new(ActorKind::Hook, "h"));
        let Entry::Handle(request) = handle("shop.do") else { panic!("it is a request") };
        let body = Some(r#"{"provider":"shop.peer"}"#.into());
        let entry = Entry::Handle(Request { body, ..request });
        let call = Call { entry, ..bed.call(scope(hook, 1, Some(2), Some(3))) };
        assert_eq!(call.word(), Word::Asker);
    }
}

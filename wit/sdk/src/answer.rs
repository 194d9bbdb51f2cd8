//! The answers of handlers, and each kind's own declaration.
//!
//! A return type is the contract: its schema and status go into the manifest, so the two cannot
//! drift apart.

use schemars::JsonSchema;
use serde::Serialize;

use crate::bindings::{Answer as Raw, AnswerBody};
use crate::contract::Contract;
use crate::failure::Result;
use crate::schema;
use crate::time::Instant;

/// The header by which [`Wait`] tells the host when its patience ends; it never leaves the host.
pub(crate) const WAIT_UNTIL: &str = "wait-until";

/// Something a handler can answer.
pub trait Respond {
    /// Declares the answer in the manifest.
    fn declare(contract: &mut Contract);
    /// The answer itself.
    fn respond(self) -> Result<Answer>;
}

/// 200 with JSON.
impl<T: Serialize + JsonSchema> Respond for T {
    fn declare(contract: &mut Contract) {
        contract.answer = Some(schema::of_answer::<T>());
    }
    fn respond(self) -> Result<Answer> {
        Answer::json(&self)
    }
}

/// 201 with JSON: a thing was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Created<T>(pub T);

impl<T: Serialize + JsonSchema> Respond for Created<T> {
    fn declare(contract: &mut Contract) {
        T::declare(contract);
        contract.status = 201;
    }
    fn respond(self) -> Result<Answer> {
        Answer::json(&self.0)
    }
}

/// 204 without content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoContent;

impl Respond for NoContent {
    fn declare(contract: &mut Contract) {
        contract.status = 204;
    }
    fn respond(self) -> Result<Answer> {
        Ok(Answer(Raw { status: None, headers: Vec::new(), body: AnswerBody::None }))
    }
}

/// 200 with `{"ok": true}`: it is done, and there is nothing more to say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Done {
    /// Always true: a failure is a refusal, never `false`.
    ok: bool,
}

impl Done {
    /// The one value there is.
    pub const fn new() -> Self {
        Self { ok: true }
    }
}

impl Default for Done {
    fn default() -> Self {
        Self::new()
    }
}

/// A long poll: an answer, or the wish to be asked again when a collection changes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait<T> {
    /// The answer.
    Ready(T),
    /// Nothing yet. The host runs the request again when the collection changes, when one of its
    /// leased documents falls due, and at the latest at `until`: no guest is kept alive meanwhile.
    For {
        /// The collection that is watched.
        collection: &'static str,
        /// When patience ends.
        until: Instant,
    },
}

impl<T: Serialize + JsonSchema> Respond for Wait<T> {
    fn declare(contract: &mut Contract) {
        T::declare(contract);
        contract.long = true;
    }
    fn respond(self) -> Result<Answer> {
        match self {
            Self::Ready(answer) => Answer::json(&answer),
            Self::For { collection, until } => Ok(Answer(Raw {
                status: None,
                headers: vec![(WAIT_UNTIL.into(), until.as_ms().to_string())],
                body: AnswerBody::Again(collection.into()),
            })),
        }
    }
}

/// An answer that is there at once, or the result of a job that this request enqueued: the host
/// runs it right after the commit and answers what it answers, or 202 `{job}` past the deadline.
/// The job's answer has the same shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Soon<T> {
    /// The answer.
    Now(T),
    /// The job's id.
    Job(String),
}

impl<T> Soon<T> {
    /// The same about what is made of the answer that is there; a job's has its status by the
    /// declaration.
    pub fn map<U>(self, of: impl FnOnce(T) -> U) -> Soon<U> {
        match self {
            Self::Now(answer) => Soon::Now(of(answer)),
            Self::Job(id) => Soon::Job(id),
        }
    }
}

impl<T: Respond> Respond for Soon<T> {
    fn declare(contract: &mut Contract) {
        T::declare(contract);
    }
    fn respond(self) -> Result<Answer> {
        match self {
            Self::Now(answer) => answer.respond(),
            Self::Job(id) => Ok(Answer::job(&id)),
        }
    }
}

/// An answer put together by hand, for what the typed ones cannot say. It declares nothing: see
/// [`crate::Operation::answers`].
#[derive(Debug)]
pub struct Answer(pub(crate) Raw);

impl Answer {
    fn of(body: AnswerBody) -> Self {
        Self(Raw { status: None, headers: Vec::new(), body })
    }
    /// JSON.
    pub fn json<T: Serialize>(body: &T) -> Result<Self> {
        Ok(Self::of(AnswerBody::Json(serde_json::to_string(body)?)))
    }
    /// Bytes of a media type.
    pub fn bytes(content_type: &str, bytes: Vec<u8>) -> Self {
        Self::of(AnswerBody::Bytes((content_type.into(), bytes)))
    }
    /// An object of the store, sent by the host.
    pub fn blob(key: &str) -> Self {
        Self::of(AnswerBody::Blob(key.into()))
    }
    /// The result of a job that this request enqueued: the host runs it at once, and answers 202
    /// `{job}` past the deadline.
    pub fn job(id: &str) -> Self {
        Self::of(AnswerBody::Job(id.into()))
    }
    /// A log as an event stream, from the sequence after `after`.
    pub fn follow(log: &str, after: u64) -> Self {
        Self::of(AnswerBody::Follow((log.into(), after)))
    }
    /// Another status than the declared one.
    #[must_use]
    pub fn status(mut self, status: u16) -> Self {
        self.0.status = Some(status);
        self
    }
    /// A response header; the name in lower case.
    #[must_use]
    pub fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.0.headers.push((name.into(), value.into()));
        self
    }
}

impl Respond for Answer {
    fn declare(_: &mut Contract) {}
    fn respond(self) -> Result<Answer> {
        Ok(self)
    }
}

//! Plain functions as handlers: `async fn(&App, &HostRequest, &mut Txn, …)` with up to two
//! arguments that say what they read of the request, and an answer that says what it holds. The
//! schemas that validate, and those of the description, come from these types alone.
//!
//! An argument is read before the handler runs, from a request that its schema has admitted: what
//! fails then is a number beyond its type.

use std::future::{Future, ready};
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use charter_kernel::refusal::Refusal;
use charter_store::Txn;
use http::{HeaderName, StatusCode};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::app::App;
use crate::reply::{AuditLog, Reply};
use crate::request::HostRequest;
use crate::schema;

/// The run of a handler.
pub type Run<'a> = Pin<Box<dyn Future<Output = Result<Reply, Refusal>> + Send + 'a>>;

/// A handler, as the list keeps it.
pub type Handler = for<'a> fn(&'a App, &'a HostRequest, &'a mut Txn) -> Run<'a>;

/// The schemas that a handler's types say, and the status of its successful answer.
#[derive(Clone, Copy, Debug)]
pub struct Shapes {
    /// JSON Schema of the query.
    pub query: Option<fn() -> Value>,
    /// JSON Schema of the body.
    pub body: Option<fn() -> Value>,
    /// JSON Schema of the successful answer.
    pub answer: Option<fn() -> Value>,
    /// The status of the successful answer.
    pub status: u16,
}

impl Default for Shapes {
    fn default() -> Self {
        Self { query: None, body: None, answer: None, status: 200 }
    }
}

/// An argument of a handler.
pub trait Extract: Sized + Send {
    /// Adds its schema.
    fn declare(shapes: &mut Shapes);
    /// Reads it from a request that was validated.
    ///
    /// # Errors
    /// `invalid_input` for a number beyond its type.
    fn extract(request: &HostRequest) -> Result<Self, Refusal>;
}

/// The JSON body.
pub struct Body<T>(pub T);

impl<T: DeserializeOwned + JsonSchema + Send> Extract for Body<T> {
    fn declare(shapes: &mut Shapes) {
        shapes.body = Some(schema::of_request::<T>);
    }
    fn extract(request: &HostRequest) -> Result<Self, Refusal> {
        request.body_as().map(Self)
    }
}

/// The query, without the words of paging.
pub struct Params<T>(pub T);

impl<T: DeserializeOwned + JsonSchema + Send> Extract for Params<T> {
    fn declare(shapes: &mut Shapes) {
        shapes.query = Some(schema::of_request::<T>);
    }
    fn extract(request: &HostRequest) -> Result<Self, Refusal> {
        T::deserialize(&request.query)
            .map(Self)
            .map_err(|error| Refusal::invalid("query", error.to_string()))
    }
}

/// The outcome of a handler.
pub trait Respond {
    /// Adds its status and schema.
    fn declare(shapes: &mut Shapes);
    /// The reply to send.
    fn respond(self) -> Reply;
}

/// A text, a page, a stream: it has no schema.
impl Respond for Reply {
    fn declare(_: &mut Shapes) {}
    fn respond(self) -> Reply {
        self
    }
}

/// A JSON answer of this type and status.
#[derive(Debug)]
pub struct Answer<T, const STATUS: u16 = 200> {
    reply: Reply,
    body: PhantomData<fn() -> T>,
}

/// The answer of a route that makes something.
pub type Created<T> = Answer<T, 201>;

/// The answer of a route that sets something going.
pub type Accepted<T> = Answer<T, 202>;

impl<T: Serialize, const STATUS: u16> Answer<T, STATUS> {
    /// The answer with this body. Its members stand in the order of their names, whatever the order
    /// of the type's: clients may hash an answer that they know.
    pub fn of(body: &T) -> Self {
        // Texts are the only keys of the host's maps, so that each type has a value.
        let body = serde_json::to_value(body).unwrap_or_default();
        let status = StatusCode::from_u16(STATUS).unwrap_or_default();
        Self::other(Reply::json(status, &body))
    }
}

impl<T, const STATUS: u16> Answer<T, STATUS> {
    /// An answer of another media type, or put together elsewhere.
    pub fn other(reply: Reply) -> Self {
        Self { reply, body: PhantomData }
    }
    /// The same under another status than the declared one.
    #[must_use]
    pub fn status(mut self, status: StatusCode) -> Self {
        self.reply.status = status;
        self
    }
    /// See [`Reply::header`].
    #[must_use]
    pub fn header(self, name: HeaderName, value: &str) -> Self {
        Self::other(self.reply.header(name, value))
    }
    /// See [`Reply::about`].
    #[must_use]
    pub fn about(self, kind: &'static str, id: impl Into<String>) -> Self {
        Self::other(self.reply.about(kind, id))
    }
    /// See [`Reply::with_log`].
    #[must_use]
    pub fn with_log(self, log: AuditLog) -> Self {
        Self::other(self.reply.with_log(log))
    }
    /// See [`Reply::noting`].
    #[must_use]
    pub fn noting(self, details: Value) -> Self {
        Self::other(self.reply.noting(details))
    }
    /// See [`Reply::mark_audited`].
    #[must_use]
    pub fn mark_audited(self) -> Self {
        Self::other(self.reply.mark_audited())
    }
    /// See [`Reply::counting`].
    #[must_use]
    pub fn counting(self, counter: &Arc<AtomicU64>) -> Self {
        Self::other(self.reply.counting(counter))
    }
}

impl<T: Serialize + JsonSchema, const STATUS: u16> Respond for Answer<T, STATUS> {
    fn declare(shapes: &mut Shapes) {
        shapes.answer = Some(schema::of_answer::<T>);
        shapes.status = STATUS;
    }
    fn respond(self) -> Reply {
        self.reply
    }
}

/// A function that serves a route. `A` is the tuple of its extracted arguments.
pub trait Serve<'a, A>: Sized {
    /// The schemas of its signature.
    fn shapes() -> Shapes;
    /// Runs it.
    fn serve(self, app: &'a App, request: &'a HostRequest, txn: &'a mut Txn) -> Run<'a>;
}

macro_rules! serve {
    ($($argument:ident),*) => {
        impl<'a, F, R, A, $($argument),*> Serve<'a, ($($argument,)*)> for F
        where
            F: Fn(&'a App, &'a HostRequest, &'a mut Txn, $($argument),*) -> A,
            A: Future<Output = Result<R, Refusal>> + Send + 'a,
            R: Respond,
            $($argument: Extract,)*
        {
            fn shapes() -> Shapes {
                let mut shapes = Shapes::default();
                $($argument::declare(&mut shapes);)*
                R::declare(&mut shapes);
                shapes
            }
            fn serve(self, app: &'a App, request: &'a HostRequest, txn: &'a mut Txn) -> Run<'a> {
                $(
                    #[expect(non_snake_case, reason = "each argument is named by its type")]
                    let $argument = match $argument::extract(request) {
                        Ok(argument) => argument,
                        Err(refusal) => return Box::pin(ready(Err(refusal))),
                    };
                )*
                let answering = self(app, request, txn, $($argument),*);
                Box::pin(async move { answering.await.map(Respond::respond) })
            }
        }
    };
}

serve!();
serve!(B);
serve!(B, C);

/// A handler with the schemas of its signature: what [`handler!`](crate::handler) makes.
#[derive(Clone, Copy)]
pub struct BoundHandler {
    /// Runs it.
    pub run: Handler,
    /// The schemas of its types.
    pub shapes: Shapes,
}

/// The schemas of a function's signature.
pub fn shapes<'a, F: Serve<'a, A>, A>(_: F) -> Shapes {
    F::shapes()
}

/// Makes a [`BoundHandler`] of the path of a handler.
#[macro_export]
macro_rules! handler {
    ($function:path) => {
        $crate::serve::BoundHandler {
            run: |app, request, txn| $crate::serve::Serve::serve($function, app, request, txn),
            shapes: $crate::serve::shapes($function),
        }
    };
}

//! Serving a request as the host would: route, check by the schemas, run to the commit, answer; and
//! the signals that the host itself sends.
//!
//! Decides nothing that a rule decides. Waiting moves the test's clock.

use std::rc::Rc;

use charter_kernel::authority::Class;
use charter_kernel::governance::hold::Word;
use charter_kernel::idempotency::Lineage;
use charter_kernel::limits::WAITING_REQUEST_BYTES_MAX;
use charter_kernel::refusal::Failure;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Key, Reach, Space};
use charter_sdk::bindings::{Answer, AnswerBody, Request, Signal};
use charter_sdk::{Caller, Primitive};
use serde_json::{Value, json};

use crate::call::Call;
use crate::caller;
use crate::run::Ending;
use crate::world::Double;

/// How often a waiting request is run again.
const RUNS_MAX: usize = 100;
/// The header by which an answer says when its patience ends.
const WAIT_UNTIL: &str = "wait-until";

/// A successful answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Reply {
    /// The status.
    pub status: u16,
    /// The JSON body, or null.
    pub body: Value,
    /// The bytes of a body that is not JSON.
    pub bytes: Vec<u8>,
}

/// A signal on its way, and what its reaction can claim.
pub(crate) struct Sent<'a> {
    pub(crate) kind: &'a str,
    pub(crate) payload: Value,
    pub(crate) caller: Caller,
    pub(crate) word: Word,
    /// The lineage from which its nested calls derive their keys.
    pub(crate) lineage: Lineage,
}

impl Double {
    /// Serves a request of this caller.
    pub(crate) fn serve(
        self: &Rc<Self>,
        primitive: &Primitive,
        from: &Caller,
        (method, address): (&str, &str),
        body: Option<Value>,
    ) -> Result<Reply, Failure> {
        let installed = self.with(|world| world.installed.clone());
        let routed = installed.route(method, address)?;
        let operation = routed.operation.id.clone();
        if let Some(body) = &body {
            installed.check_body(&operation, body)?;
        }
        let (id, started) = self.with(|world| (world.fresh_id(), world.now.0));
        let request = Request {
            id,
            operation,
            caller: caller::of_scope(&caller::scope(from)),
            parameters: routed.parameters,
            query: routed.query.to_string(),
            body: body.map(|body| body.to_string()),
            bytes: None,
            blob: None,
            headers: Vec::new(),
            context: json!({ "started_at": started }).to_string(),
        };
        self.handle(primitive, from, &request)
    }

    /// Runs a request that is put together by hand.
    pub(crate) fn handle(
        self: &Rc<Self>,
        primitive: &Primitive,
        from: &Caller,
        request: &Request,
    ) -> Result<Reply, Failure> {
        let installed = self.with(|world| world.installed.clone());
        let operation = installed.operation(&request.operation);
        let operation = operation.ok_or_else(|| Failure::not_found("the operation"))?;
        let mut answer = self.answer_request(primitive, from, request, operation.mutates())?;
        if let AnswerBody::Job(id) = &answer.body {
            if Class::of(&installed.manifest, operation).shows_secret() {
                let told = "an operation that shows a secret of a profile answers from the request itself, and by no job";
                return Err(Failure::undeclared(told));
            }
            answer.body = self.await_job(primitive, from, id)?;
        }
        let status = answer.status.unwrap_or(operation.status);
        let unreadable = |error: serde_json::Error| {
            Failure::new("internal_error", format!("the answer is not JSON: {error}"))
        };
        let (body, bytes) = match answer.body {
            AnswerBody::Json(text) => {
                (serde_json::from_str(&text).map_err(unreadable)?, Vec::new())
            }
            AnswerBody::Bytes((_, bytes)) => (Value::Null, bytes),
            _ => (Value::Null, Vec::new()),
        };
        Ok(Reply { status, body, bytes })
    }

    /// Runs until there is an answer. Waiting moves the clock: to the next moment at which a leased
    /// document is due, or to the end of the request's patience.
    fn answer_request(
        self: &Rc<Self>,
        primitive: &Primitive,
        from: &Caller,
        request: &Request,
        mutates: bool,
    ) -> Result<Answer, Failure> {
        let scope = caller::scope(from);
        for _ in 0..RUNS_MAX {
            let call = Call {
                scope: scope.clone(),
                request: request.id.clone(),
                mutates,
                word: Word::Asker,
                lineage: Lineage::outermost(request.id.clone()),
            };
            let answer = self.run(call, |attempt| {
                let mut facts: Value = serde_json::from_str(&request.context).unwrap_or_default();
                facts["attempt"] = attempt.into();
                let request = Request { context: facts.to_string(), ..request.clone() };
                let answer = primitive.handle(&request)?;
                Ok(match answer.body {
                    AnswerBody::Again(_) => Ending::Wait(answer),
                    _ => Ending::Answer(answer),
                })
            })?;
            let AnswerBody::Again(collection) = &answer.body else { return Ok(answer) };
            let body = request.body.as_ref().map_or(0, String::len);
            let bytes = request.bytes.as_ref().map_or(0, Vec::len);
            if body + bytes + request.query.len() > WAITING_REQUEST_BYTES_MAX {
                let told = "a request that waits holds more than it may";
                return Err(Failure::new("payload_too_large", told));
            }
            let mut headers = answer.headers.iter().filter(|(name, _)| name == WAIT_UNTIL);
            let until = headers.next().and_then(|(_, value)| value.parse().ok()).map(Instant);
            let until =
                until.ok_or_else(|| Failure::new("internal_error", "a wait needs its end"))?;
            self.wait(&scope.narrowest(), collection, until);
        }
        Err(Failure::new("internal_error", "the operation waits without end"))
    }

    fn wait(&self, reach: &Reach, collection: &str, until: Instant) {
        self.with(|world| {
            let space = Space::of(world.name(), collection);
            let due = world.rows.next_due(reach, &space, world.now).unwrap_or(until);
            world.now = due.min(until).max(world.now.plus_ms(1));
        });
    }

    /// Runs a job that somebody waits for, as the host does: at once, and alone.
    fn await_job(
        self: &Rc<Self>,
        primitive: &Primitive,
        from: &Caller,
        id: &str,
    ) -> Result<AnswerBody, Failure> {
        let key = Key::new(&caller::scope(from).narrowest(), &crate::capabilities::jobs(), id);
        let answered = self.run_job(primitive, &key)?;
        Ok(answered.map_or_else(|| AnswerBody::Json("null".into()), |answer| answer.body))
    }

    /// Has the primitive react to a signal.
    pub(crate) fn send(
        self: &Rc<Self>,
        primitive: &Primitive,
        sent: &Sent<'_>,
    ) -> Result<Option<Answer>, Failure> {
        let request = self.with(|world| world.fresh_id());
        let scope = caller::scope(&sent.caller);
        let call = Call {
            scope: scope.clone(),
            request,
            mutates: true,
            word: sent.word,
            lineage: sent.lineage.clone(),
        };
        self.run(call, |_| {
            let payload = sent.payload.to_string();
            let signal = Signal { kind: sent.kind.into(), payload, blob: None };
            primitive.react(caller::of_scope(&scope), signal).map(Ending::Answer)
        })
    }
}

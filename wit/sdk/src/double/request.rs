//! Serving one request as the host would: match the route, read the query by its schema, run, keep
//! or roll back.

use serde_json::{Map, Value};

use super::state::{self, State};
use crate::answer::WAIT_UNTIL;
use crate::bindings::{Answer, AnswerBody, Failure as RawFailure, Request, Signal};
use crate::failure::Failure;
use crate::manifest::{Operation, Primitive};

/// How often a waiting request is run again.
const RUNS_MAX: usize = 100;

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

/// A refusal; reads as its [`Failure`].
pub type Refusal = Failure;

pub(super) fn serve(
    primitive: &Primitive,
    method: &str,
    path: &str,
    body: Option<Value>,
) -> Result<Reply, Refusal> {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let matched = primitive.operations.iter().filter(|operation| operation.method == method);
    // A literal beats a parameter: of all matches the one with the fewest parameters is served.
    let matched =
        matched.filter_map(|operation| Some((operation, parameters(operation.path, path)?)));
    let (operation, parameters) = matched
        .min_by_key(|(_, parameters)| parameters.len())
        .ok_or_else(|| Failure::not_found("route"))?;
    let contract = operation.contract();
    let started_at = super::clock::now_ms();
    let request = Request {
        id: "request".into(),
        operation: operation.id.into(),
        caller: super::caller(),
        parameters,
        query: read_query(contract.query.as_ref(), query).to_string(),
        body: body.map(|body| body.to_string()),
        bytes: None,
        blob: None,
        headers: Vec::new(),
        context: serde_json::json!({ "started_at": started_at }).to_string(),
    };
    let mut answer = run(primitive, operation, &request)?;
    if let AnswerBody::Job(id) = &answer.body {
        answer = Answer { body: job(primitive, id)?, ..answer };
    }
    let status = answer.status.unwrap_or(if contract.status == 0 { 200 } else { contract.status });
    let (body, bytes) = match answer.body {
        AnswerBody::Json(text) => (serde_json::from_str(&text)?, Vec::new()),
        AnswerBody::Bytes((_, bytes)) => (Value::Null, bytes),
        _ => (Value::Null, Vec::new()),
    };
    Ok(Reply { status, body, bytes })
}

/// Runs until there is an answer. Waiting moves the clock: to the next moment at which a leased
/// document is due, or to the end of the request's patience.
fn run(primitive: &Primitive, operation: &Operation, request: &Request) -> Result<Answer, Failure> {
    for _ in 0..RUNS_MAX {
        let answer = transact(|| primitive.handle(request))?;
        let AnswerBody::Again(collection) = &answer.body else { return Ok(answer) };
        let until = answer
            .headers
            .iter()
            .find(|(name, _)| name == WAIT_UNTIL)
            .and_then(|(_, value)| value.parse().ok());
        let until: i64 = until.ok_or_else(|| Failure::internal("a wait needs its end"))?;
        state::with(|state| {
            state.now_ms =
                next_due(state, collection).unwrap_or(until).min(until).max(state.now_ms + 1)
        });
    }
    Err(Failure::internal(format!("{} waits without end", operation.id)))
}

/// Runs a job that somebody waits for, as the host does: at once, and alone.
fn job(primitive: &Primitive, id: &str) -> Result<AnswerBody, Failure> {
    let job = state::with(|state| state.jobs.remove(id))
        .ok_or_else(|| Failure::internal("there is no such job"))?;
    let payload: Value = serde_json::from_str(&job.payload)?;
    let payload =
        serde_json::json!({ "id": id, "name": job.name, "payload": payload, "attempt": 1 });
    let signal = Signal { kind: "job".into(), payload: payload.to_string(), blob: None };
    let answered = transact(|| primitive.react(super::caller(), signal))?;
    Ok(answered.map_or_else(|| AnswerBody::Json("null".into()), |answer| answer.body))
}

fn next_due(state: &State, collection: &str) -> Option<i64> {
    state
        .rows
        .get(collection)?
        .values()
        .map(|row| row.due_at)
        .filter(|due| *due > state.now_ms)
        .min()
}

/// All or nothing; facts stay.
pub(super) fn transact<T>(act: impl FnOnce() -> Result<T, RawFailure>) -> Result<T, RawFailure> {
    state::with(State::commit);
    let result = act();
    state::with(|state| if result.is_ok() { state.committed = None } else { state.roll_back() });
    result
}

fn parameters(template: &str, path: &str) -> Option<Vec<(String, String)>> {
    let mut found = Vec::new();
    let (mut wanted, mut given) = (template.split('/'), path.split('/'));
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return Some(found),
            (Some(part), Some(value)) => {
                match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
                    Some(name) => found.push((name.to_owned(), value.to_owned())),
                    None if part == value => {}
                    None => return None,
                }
            }
            _ => return None,
        }
    }
}

fn read_query(schema: Option<&Value>, query: &str) -> Value {
    let mut read = Map::new();
    let properties = schema.and_then(|schema| schema["properties"].as_object());
    for (name, property) in properties.into_iter().flatten() {
        if let Some(default) = property.get("default").filter(|default| !default.is_null()) {
            read.insert(name.clone(), default.clone());
        }
    }
    for (name, value) in query.split('&').filter_map(|pair| pair.split_once('=')) {
        let kind = properties
            .and_then(|properties| properties.get(name))
            .map(|property| property["type"].to_string());
        let typed = kind.is_some_and(|kind| kind.contains("integer") || kind.contains("boolean"));
        let value = if typed {
            serde_json::from_str(value).unwrap_or_else(|_| value.into())
        } else {
            value.into()
        };
        read.insert(name.to_owned(), value);
    }
    read.into()
}

//! A call and its answer across the interface: what the guest is told of its caller, and what its
//! answer may be.

use charter_kernel::scope::Scope;
use serde_json::json;

use crate::answer::{Answer, AnswerBody};
use crate::bindings;
use crate::call::{Call, Request, Signal};
use crate::state::Work;

/// The caller, as the guest sees it.
pub(super) fn caller(scope: &Scope) -> bindings::Caller {
    bindings::Caller {
        organization: scope.lane().to_owned(),
        project: scope.project().map_or_else(String::new, |id| id.as_str().to_owned()),
        user: scope.user().map(|id| id.as_str().to_owned()),
        subject: scope.subject().as_str().to_owned(),
        actor: (scope.actor().kind.as_str().to_owned(), scope.actor().id.clone()),
        role: scope.principal().power().map(|role| role.as_str().to_owned()),
    }
}

/// The request, as the guest sees it; `started` is when it was admitted, the same in every attempt.
pub(super) fn request(
    call: &Call,
    request: &Request,
    attempt: u32,
    started: i64,
) -> bindings::Request {
    let mut context = request.context.clone();
    context.insert("attempt".into(), json!(attempt));
    context.entry("started_at").or_insert_with(|| json!(started));
    bindings::Request {
        id: call.request_id.clone(),
        operation: request.operation.clone(),
        caller: caller(&call.scope),
        parameters: request.parameters.clone(),
        query: request.query.clone(),
        body: request.body.clone(),
        bytes: request.bytes.as_ref().map(|bytes| bytes.to_vec()),
        blob: request.blob.clone(),
        headers: request.headers.clone(),
        context: serde_json::Value::Object(context).to_string(),
    }
}

/// The signal, as the guest sees it.
pub(super) fn signal(signal: &Signal) -> bindings::Signal {
    bindings::Signal {
        kind: signal.kind.clone(),
        payload: signal.payload.clone(),
        blob: signal.blob.clone(),
    }
}

/// What an answer turned out to be.
pub(super) enum Said {
    Answer(Answer),
    /// Run again when this collection changes, or at this moment.
    Again {
        collection: String,
        until: Option<i64>,
    },
}

/// Headers that a guest does not set: the host's own, and those of the connection.
const OWN_HEADERS: [&str; 16] = [
    "alt-svc",
    "connection",
    "content-length",
    "content-type",
    "date",
    "idempotent-replayed",
    "keep-alive",
    "proxy-connection",
    "server",
    "set-cookie",
    "strict-transport-security",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "x-request-id",
];
/// How long a guest may ask to wait is said in this header; it never leaves the host.
const WAIT_UNTIL: &str = "wait-until";

/// Checks an answer; the error says what is wrong with it.
pub(super) fn said(work: &Work, answer: bindings::Answer) -> Result<Said, String> {
    use bindings::AnswerBody as Body;
    let max = work.shared.config.answer_bytes_max;
    let sized = |bytes: usize| {
        if bytes > max {
            Err(format!("the answer has {bytes} bytes; at most {max} are taken"))
        } else {
            Ok(())
        }
    };
    let mut headers = answer.headers;
    for (name, _) in &mut headers {
        name.make_ascii_lowercase();
    }
    let until = headers
        .iter()
        .find(|(name, _)| name == WAIT_UNTIL)
        .and_then(|(_, value)| value.parse().ok());
    headers.retain(|(name, value)| {
        name != WAIT_UNTIL
            && !OWN_HEADERS.contains(&name.as_str())
            && http::HeaderName::from_bytes(name.as_bytes()).is_ok()
            && http::HeaderValue::from_str(value).is_ok()
    });
    sized(headers.iter().map(|(name, value)| name.len() + value.len()).sum())?;
    if let Some(status) = answer.status
        && !(200..=599).contains(&status)
    {
        return Err(format!("the answer has the status {status}"));
    }
    let body = match answer.body {
        Body::None => AnswerBody::None,
        Body::Json(text) => {
            sized(text.len())?;
            serde_json::from_str::<serde::de::IgnoredAny>(&text)
                .map_err(|error| format!("the answer is not JSON: {error}"))?;
            AnswerBody::Json(text)
        }
        Body::Bytes((content_type, bytes)) => {
            sized(bytes.len())?;
            http::HeaderValue::from_str(&content_type)
                .map_err(|_| "the answer's media type is malformed".to_owned())?;
            AnswerBody::Bytes { content_type, bytes: bytes.into() }
        }
        Body::Blob(key) => AnswerBody::Blob(key),
        Body::Job(id) => AnswerBody::Job(id),
        Body::Follow((log, after)) => {
            AnswerBody::Follow { log: work.log(&log).map_err(|failure| failure.message)?, after }
        }
        Body::Again(collection) => return Ok(Said::Again { collection, until }),
        Body::Written => return Err("the answer says that it was written, and it was not".into()),
    };
    Ok(Said::Answer(Answer { status: answer.status, headers, body }))
}

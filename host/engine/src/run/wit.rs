//! A call and its answer across the interface: what the guest is told of its caller, and what its
//! answer may be.

use charter_kernel::schema::check_json;
use charter_kernel::scope::Scope;
use serde_json::json;

use crate::answer::{Answer, AnswerBody};
use crate::bindings;
use crate::call::{Call, Entry, Request, Signal};
use crate::state::Work;

mod headers;

/// The caller, as the guest sees it.
pub(super) fn caller(scope: &Scope) -> bindings::Caller {
    bindings::Caller {
        organization: scope.lane().to_owned(),
        project: scope.project().map_or_else(String::new, |id| id.as_str().to_owned()),
        user: scope.user().map(|id| id.as_str().to_owned()),
        subject: scope.subject().as_str().to_owned(),
        actor: (scope.actor().kind.as_str().to_owned(), scope.actor().id.clone()),
        role: scope.power().map(|role| role.as_str().to_owned()),
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

impl Work {
    /// Whether the operation that is called declares an answer of this status.
    fn declares(&self, status: Option<u16>) -> bool {
        let (Entry::Handle(request), Some(status)) = (&self.call.entry, status) else {
            return false;
        };
        let operation =
            self.component.manifest.operations.iter().find(|known| known.id == request.operation);
        operation.is_some_and(|known| {
            known.status == status || known.answers.contains_key(&status.to_string())
        })
    }

    /// Whether an answer of the operation that is called shows a secret.
    fn shows_secret(&self) -> bool {
        match &self.call.entry {
            Entry::Handle(request) => self.component.class(&request.operation).shows_secret(),
            Entry::React(_) => false,
        }
    }
}

/// The kinds of answer.
pub(super) enum Said {
    Answer(Answer),
    /// Run again when this collection changes, or at this moment.
    Again {
        collection: String,
        until: Option<i64>,
    },
}

/// How long a guest may ask to wait is said in this header; it never leaves the host.
const WAIT_UNTIL: &str = "wait-until";

/// Checks an answer; the error says what is wrong with it.
pub(super) fn check_answer(work: &Work, answer: bindings::Answer) -> Result<Said, String> {
    use bindings::AnswerBody as Body;
    let max = work.shared.config.answer_bytes_max;
    let sized = |bytes: usize| {
        if bytes > max {
            Err(format!("the answer has {bytes} bytes; at most {max} are taken"))
        } else {
            Ok(())
        }
    };
    let until = answer
        .headers
        .iter()
        .find(|(name, _)| name.eq_ignore_ascii_case(WAIT_UNTIL))
        .and_then(|(_, value)| value.parse().ok());
    let status = answer.status;
    if let Some(status) = status
        && !(200..=599).contains(&status)
    {
        return Err(format!("the answer has the status {status}"));
    }
    let redirects = status.is_some_and(|status| (300..400).contains(&status) && status != 304);
    if redirects && !work.declares(status) {
        return Err(format!(
            "the answer has the status {}, which is not among the operation's `answers`",
            status.unwrap_or_default()
        ));
    }
    let headers = headers::admit(answer.headers, redirects)?;
    let body = match answer.body {
        Body::None => AnswerBody::None,
        Body::Json(text) => {
            sized(text.len())?;
            check_json(&text).map_err(|error| format!("the answer is not JSON: {error}"))?;
            AnswerBody::Json(text)
        }
        Body::Bytes((content_type, bytes)) => {
            sized(bytes.len())?;
            headers::media_type(&content_type, &bytes)?;
            AnswerBody::Bytes { content_type, bytes: bytes.into() }
        }
        Body::Blob(key) => AnswerBody::Blob(key),
        // A job keeps its result, and shows it to others than who asked for the secret.
        Body::Job(_) if work.shows_secret() => {
            return Err("the answer is a job's, and the operation shows a secret of a profile: \
                 answer it from the request itself, and leave to the job what is no secret"
                .into());
        }
        Body::Job(id) => AnswerBody::Job(id),
        Body::Follow((log, after)) => {
            AnswerBody::Follow { log: work.log(&log).map_err(|failure| failure.message)?, after }
        }
        Body::Again(collection) => return Ok(Said::Again { collection, until }),
        Body::Written => return Err("the answer says that it was written, and it was not".into()),
    };
    Ok(Said::Answer(Answer { status, headers, body }))
}

#[cfg(test)]
mod tests;

//! The call of an operation as a client over HTTP asks for it, and what came of it as that client
//! gets it: a log is followed, a job is waited for, a kept answer is marked.

use std::sync::Arc;

use charter_engine::AnswerBody;
use charter_kernel::idempotency::Lineage;
use charter_kernel::refusal::Refusal;
use charter_registry::served::{BodyRule, Served, ServedOperation};
use http::{HeaderMap, HeaderValue, header};
use serde_json::Map;
use tokio_util::sync::CancellationToken;

use super::accept::Accepted;
use super::call::{Again, Ended, Way};
use super::caller::Caller;
use super::claim::{Claim, Claimed};
use super::matched::Operation;
use super::respond::{self, Answered};
use super::trail::Trail;
use super::validate::Validated;
use super::{answer, follow, job};
use crate::app::App;
use crate::events::Source;
use crate::metrics::RequestOutcome;

/// The additions of a request over HTTP to the call of its operation.
pub fn way(
    trail: &Trail,
    validated: &Validated,
    operation: &ServedOperation,
    accepted: &Accepted,
    claim: Option<Arc<Claim>>,
    gone: &CancellationToken,
) -> Way {
    let seen = operation.headers.iter().filter_map(|name| {
        let value = accepted.headers.get(name)?.to_str().ok()?;
        Some((name.as_str().to_owned(), value.to_owned()))
    });
    let mut context = Map::new();
    if operation.streams && accepts_events(&accepted.headers) {
        context.insert("stream".into(), true.into());
    }
    let raw = matches!(operation.contract.body, BodyRule::Raw { .. });
    Way {
        claim,
        lineage: Lineage::outermost(trail.id.as_str()),
        deadline_ms: u32::MAX,
        gone: gone.clone(),
        again: Again::AsAsked(None),
        context,
        headers: seen.collect(),
        raw: raw.then(|| validated.bytes().clone()),
        room: trail.room.clone(),
    }
}

/// Whether the client asks for an event stream.
fn accepts_events(headers: &HeaderMap) -> bool {
    let accepts =
        |line: &HeaderValue| line.to_str().is_ok_and(|line| line.contains("text/event-stream"));
    headers.get_all(header::ACCEPT).iter().any(accepts)
}

/// The answer as a client gets it: a log is followed, a job is waited for. Nothing where the request
/// begins from the top.
///
/// # Errors
/// Why the job failed, or the log cannot be followed.
pub async fn deliver(
    app: &Arc<App>,
    caller: &Caller,
    served: &Served,
    operation: &ServedOperation,
    ended: Ended,
    gone: &CancellationToken,
) -> Result<Option<Answered>, Refusal> {
    let (answer, rendered) = match ended {
        Ended::Again => return Ok(None),
        Ended::Pending(waiting) => return Ok(Some(waiting)),
        Ended::Answered(answer, rendered) => (answer, rendered),
    };
    let answered = match &answer.body {
        AnswerBody::Follow { log, after } => {
            let source = Source::Log(log.clone(), *after);
            follow::stream(app, caller, Some((served, operation)), source)
        }
        AnswerBody::Job(id) => job::result(app, caller, served, operation, id, gone).await,
        AnswerBody::Blob(_) => Err(Refusal::not_configured(&["object_store"])),
        AnswerBody::None | AnswerBody::Json(_) | AnswerBody::Bytes { .. } => Ok(rendered),
    };
    answered.map(Some)
}

/// The outcome of the request that had the key: the same as its caller was told, or would have been
/// told had it waited longer.
///
/// # Errors
/// 500 where the key is of no request at all.
pub async fn replay(
    app: &App,
    trail: &mut Trail,
    validated: &Validated,
    known: Claimed,
    gone: &CancellationToken,
) -> Result<Answered, Refusal> {
    trail.outcome = Some(RequestOutcome::Replayed);
    let caller = validated.caller();
    let became = match (known, validated.operation()) {
        (Claimed::Replay(answered), _) => return Ok(answered),
        (Claimed::Job(id), Operation::Guest(served, operation)) => {
            job::result(app, caller, served, operation, &id, gone).await
        }
        (Claimed::Approval(id), operation) => {
            answer::approval_answer(app, caller.organization(), operation, &id).await
        }
        (Claimed::Job(_), Operation::Host(_)) | (Claimed::Free(_), _) => {
            return Err(Refusal::internal());
        }
    };
    let refused = |refusal| respond::render_refusal(&trail.wording(), &refusal);
    Ok(became.unwrap_or_else(refused).mark_replayed())
}

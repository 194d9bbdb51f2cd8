//! The outcome of a call, as an answer or a refusal.

use charter_engine::{Answer, AnswerBody, Outcome};
use charter_governance::approvals;
use charter_kernel::refusal::{Code, Failure, Refusal};
use charter_registry::served::{Served, ServedOperation};
use charter_store::CommitError;
use charter_tenancy::records::Record as _;
use charter_tenancy::records::approval::{Approval, Status};
use charter_tenancy::stored;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::claim;
use super::job;
use super::matched::Operation;
use super::respond::{Answered, JSON};
use super::trail::Trail;
use super::validate::Validated;
use crate::app::App;
use crate::http::body::Body;
use crate::metrics;
use crate::paging::{self, Page};

/// The one place where the outcomes of a call become refusals. `None`: begin from the top.
///
/// # Errors
/// The refusal of the guest, a rule or a limit.
pub fn decide(
    app: &App,
    trail: &mut Trail,
    validated: &Validated,
    served: &Served,
    outcome: Outcome,
) -> Result<Option<Answer>, Refusal> {
    // If a unit ends with the call, the finisher has put the audit row into it.
    trail.audited = validated.operation().contract().mutates
        && !matches!(
            outcome,
            Outcome::Restart
                | Outcome::Inactive
                | Outcome::Shed { .. }
                | Outcome::Unavailable { .. }
        );
    match outcome {
        Outcome::Answered(answer) => Ok(Some(answer)),
        Outcome::Refused(failure) => Err(word_failure(served, &failure)),
        // Revoked while it ran: the second look finds out who, and words it.
        Outcome::Restart | Outcome::Inactive => Ok(None),
        Outcome::Trapped { id } => Err(Refusal::internal().detail("incident", id)),
        Outcome::OutOfMemory => Err(Refusal::internal().reason("out_of_memory")),
        Outcome::Deadline => Err(Refusal::deadline_exceeded()),
        Outcome::Shed { retry_after_s, tenant: true } => Err(Refusal::rate_limited(retry_after_s)),
        Outcome::Shed { retry_after_s, tenant: false } => Err(Refusal::overloaded(retry_after_s)),
        Outcome::Unavailable { retry_after_s } => Err(match app.store.status().read_only {
            Some(reason) => {
                charter_tenancy::stored::commit_refusal(&CommitError::ReadOnly { reason })
            }
            None if app.draining.is_cancelled() => Refusal::stopping(),
            None => Refusal::overloaded(retry_after_s),
        }),
        // A caller that can be told of an approval has looked for it before.
        Outcome::Pending { .. } => Err(Refusal::internal()),
        Outcome::ClientGone => {
            trail.outcome = Some(metrics::RequestOutcome::ClientGone);
            Err(Refusal::overloaded(1))
        }
    }
}

/// A guest's failure in the words of the wire. A code that nobody declared is a fault of the
/// component.
pub fn word_failure(served: &Served, failure: &Failure) -> Refusal {
    Refusal::guest(failure.clone(), served.errors()).unwrap_or_else(|| {
        tracing::error!(
            primitive = served.name(),
            code = failure.code,
            message = failure.message,
            "a component refused with an undeclared code"
        );
        Refusal::internal()
    })
}

/// The answer as far as it is known at the commit: a job's is its acceptance, a followed log's is a
/// stream.
pub fn render(operation: &ServedOperation, page: &Page, answer: &Answer) -> Answered {
    let status =
        |default| StatusCode::from_u16(answer.status.unwrap_or(default)).unwrap_or(StatusCode::OK);
    let headers = headers(&answer.headers);
    let mut answered = match &answer.body {
        AnswerBody::None => Answered {
            status: status(if operation.status == 200 { 204 } else { operation.status }),
            headers,
            body: Body::empty(),
        },
        AnswerBody::Json(text) => {
            let text = paging::seal_answer(page, text.clone());
            Answered { status: status(operation.status), headers, body: Body::whole(text) }
                .with_media_type(JSON)
        }
        AnswerBody::Bytes { content_type, bytes } => {
            let answered = Answered {
                status: status(operation.status),
                headers,
                body: Body::whole(bytes.clone()),
            };
            match HeaderValue::from_str(content_type) {
                Ok(media_type) => answered.with_media_type(media_type),
                Err(_) => answered,
            }
        }
        AnswerBody::Job(id) => job::acceptance(id),
        AnswerBody::Follow { .. } | AnswerBody::Blob(_) => {
            let (_, never) = tokio::sync::mpsc::channel(1);
            Answered { status: status(operation.status), headers, body: Body::pieces(never) }
        }
    };
    // These have no content, whatever the guest put into them (RFC 9110, 15.3.5, 15.3.6, 15.4.5).
    if matches!(answered.status.as_u16(), 204 | 205 | 304) {
        answered.headers.remove(header::CONTENT_TYPE);
        answered.body = Body::empty();
    }
    answered
}

/// The state of an approval, in the place of its request's answer: that it waits, its answer, or
/// why it has none. That of a job which answers is in the job's record, whole.
///
/// # Errors
/// Why the request was not made, or failed.
pub async fn approval_answer(
    app: &App,
    organization: &str,
    operation: &Operation,
    id: &str,
) -> Result<Answered, Refusal> {
    let row = app.store.get(&Approval::address(organization, id)).await.map_err(stored::reading)?;
    let approval =
        Approval::read(&row.ok_or_else(Refusal::not_found)?).map_err(stored::unreadable)?;
    if let (Some(job), Operation::Guest(served, operation)) = (&approval.answered_by, operation)
        && let Some(answered) = job::look(app, served, operation, job).await?
    {
        return Ok(answered);
    }
    if let Some(reason) = approval.status.reason() {
        let what = approval.status.as_str();
        let told = format!("The approval that the request waited for is {what}.");
        return Err(Refusal::forbidden(reason, told).detail("approval_id", approval.id));
    }
    match approval.status {
        Status::Succeeded if approval.result_not_kept => Err(claim::answer_not_kept()),
        Status::Succeeded => {
            let status = StatusCode::from_u16(approval.result_status.unwrap_or(200))
                .unwrap_or(StatusCode::OK);
            Ok(Answered::json(status, approval.result.unwrap_or_default().to_string()))
        }
        Status::Failed => {
            let error = approval.error.unwrap_or_default();
            Err(Refusal::from_rest(&error, "The approved request failed.").for_good())
        }
        _ => Ok(waiting(&approval)),
    }
}

/// That the request waits for people.
pub fn waiting(approval: &Approval) -> Answered {
    Answered::json(StatusCode::ACCEPTED, approvals::pending(approval).to_string())
}

/// The guest's own headers, which the engine has let through.
fn headers(given: &[(String, String)]) -> HeaderMap {
    let mut headers = HeaderMap::with_capacity(given.len() + 8);
    for (name, value) in given {
        if let (Ok(name), Ok(value)) =
            (HeaderName::try_from(name.as_str()), HeaderValue::from_str(value))
        {
            headers.insert(name, value);
        }
    }
    headers
}

impl Answered {
    /// With this media type.
    fn with_media_type(mut self, media_type: HeaderValue) -> Self {
        self.headers.insert(header::CONTENT_TYPE, media_type);
        self
    }
}

/// The code that a refused outcome is counted under.
pub fn class(refusal: &Refusal) -> metrics::RequestOutcome {
    match refusal.code {
        Code::Overloaded | Code::DeadlineExceeded | Code::RateLimited => {
            metrics::RequestOutcome::Shed
        }
        Code::InternalError => metrics::RequestOutcome::Failed,
        _ => metrics::RequestOutcome::Refused,
    }
}

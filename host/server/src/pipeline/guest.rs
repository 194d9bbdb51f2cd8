//! Calls the component, and turns what became of the call into an answer or a refusal.

use std::sync::Arc;

use charter_engine::leave::Origin;
use charter_engine::{Answer, AnswerBody, Call, Entry, Finish, Outcome, Request};
use charter_kernel::idempotency::Lineage;
use charter_kernel::refusal::{Code, Failure, Refusal};
use charter_kernel::scope::{Actor, ActorKind};
use charter_store::CommitError;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::admit::Admitted;
use super::audit::Subject;
use super::claim::Claim;
use super::finish::Finisher;
use super::host::{Ended, guards};
use super::matched::Operation;
use super::page::{self, Page};
use super::respond::Answered;
use super::trail::Trail;
use super::validate::Validated;
use super::{follow, job};
use crate::app::App;
use crate::governance::approvals;
use crate::http::body::Body;
use crate::metrics;
use crate::place;
use crate::public;
use crate::records::Record as _;
use crate::records::approval::{Approval, Status};
use crate::request::Identity;
use crate::routes::stored;
use crate::served::{BodyRule, Served, ServedOperation};

/// Runs the operation.
pub async fn run(
    app: &Arc<App>,
    trail: &mut Trail,
    validated: &Validated,
    claim: Option<&Arc<Claim>>,
    gone: &CancellationToken,
) -> Result<Ended, Refusal> {
    let matched = &validated.admitted.matched;
    let Operation::Guest(served, operation) = &matched.operation else {
        return Err(Refusal::internal());
    };
    let scope = match &trail.place {
        Some(place) => place.scope.clone(),
        None => place::of_deployment(nobody(&trail.identity)),
    };
    let finisher = Finisher {
        store: app.store.clone(),
        // A read leaves a row only where it is forbidden, and that one is written with the refusal.
        subject: if trail.mutates {
            Subject::of(trail, entity(served, &matched.parameters))
        } else {
            None
        },
        claim: claim.cloned(),
        wording: trail.wording(),
        served: served.clone(),
        operation: operation.clone(),
        page: validated.page.clone(),
        approved: None,
    };
    let call = Call {
        request_id: trail.id.as_str().to_owned(),
        scope,
        entry: Entry::Handle(request(trail, served, operation, validated)),
        guards: if trail.mutates {
            mutation_guards(trail, &validated.admitted)
        } else {
            Vec::new()
        },
        claim: claim.map(|claim| claim.claiming()),
        finish: Arc::new(finisher) as Arc<dyn Finish>,
        mutates: trail.mutates,
        deadline_ms: operation.deadline_ms.unwrap_or(app.config.http.deadline_ms),
        class: operation.class,
        lineage: Lineage::outermost(trail.id.as_str()),
        client_gone: gone.clone(),
        origin: again(app, trail, served, operation, validated),
    };
    let organization = call.scope.lane().to_owned();
    let outcome = app.engine.call(&served.component, call).await;
    app.registry.observe(
        served.name(),
        served.digest(),
        &organization,
        matches!(outcome, Outcome::Trapped { .. }),
    );
    if let Outcome::Pending { approval } = outcome {
        trail.audited = true;
        return Ok(Ended::Answered(approval_answer(app, trail, &approval).await?));
    }
    match ended(app, trail, served, outcome)? {
        None => Ok(Ended::Restart),
        Some(answer) => answered(app, trail, (served, operation), &validated.page, answer)
            .await
            .map(Ended::Answered),
    }
}

/// The request as it can be made again once a person has approved it: only where anything of its
/// primitive is regulated.
fn again(
    app: &App,
    trail: &Trail,
    served: &Served,
    operation: &ServedOperation,
    validated: &Validated,
) -> Option<Origin> {
    let place =
        trail.place.as_ref().filter(|_| trail.mutates && !served.manifest.actions.is_empty())?;
    let matched = &validated.admitted.matched;
    let accepted = &matched.gated.scoped.identified.located.accepted;
    let body = match &operation.contract.body {
        BodyRule::Json(_) if !validated.bytes.is_empty() => {
            String::from_utf8(validated.bytes.to_vec()).ok()
        }
        // What comes as bytes is not kept: such an operation is refused where it needs a person.
        BodyRule::Raw { .. } => return None,
        _ => None,
    };
    let actor = place.scope.actor();
    Some(approvals::carried(approvals::Origin::Request(Box::new(approvals::Request {
        operation: operation.contract.id.to_string(),
        parameters: matched.parameters.iter().chain(&accepted.query).cloned().collect(),
        body,
        organization: place.organization.id.to_string(),
        project: (place.project.id.to_string(), place.project.test),
        user: place.user.as_ref().map(|user| user.id.to_string()),
        actor: (actor.kind.as_str().to_owned(), actor.id.clone()),
        account: place.scope.principal().root.clone(),
        role: place.scope.role(),
        principal: Some(place.scope.principal().clone()),
        base: public::base(&app.adapters),
        tells: None,
        job: None,
    }))))
}

/// What became of an approval so far, in the place of its request's answer: that it waits, its
/// answer, or why it has none.
///
/// # Errors
/// Why the request was not made, or failed.
pub async fn approval_answer(app: &App, trail: &Trail, id: &str) -> Result<Answered, Refusal> {
    let organization = trail.place.as_ref().map_or("", |place| place.organization.id.as_str());
    let row = app.store.get(&Approval::address(organization, id)).await.map_err(stored::reading)?;
    let approval =
        Approval::read(&row.ok_or_else(Refusal::not_found)?).map_err(stored::unreadable)?;
    let over = |what: &str| {
        let refusal = Refusal::forbidden(
            format!("approval_{what}"),
            format!("The approval that the request waited for is {what}."),
        );
        refusal.detail("approval_id", approval.id.clone())
    };
    match approval.status {
        Status::Succeeded => {
            let status = StatusCode::from_u16(approval.result_status.unwrap_or(200))
                .unwrap_or(StatusCode::OK);
            Ok(Answered::json(status, approval.result.unwrap_or_default().to_string()))
        }
        Status::Failed => {
            let error = approval.error.unwrap_or_default();
            let code = error["code"].as_str().and_then(Code::named).unwrap_or(Code::InternalError);
            let mut refusal = Refusal::new(
                code,
                error["message"].as_str().unwrap_or("The approved request failed."),
            );
            refusal.reason = error["reason"].as_str().map(str::to_owned).or(refusal.reason);
            refusal.details = error["details"].as_object().cloned().unwrap_or_default();
            Err(refusal)
        }
        Status::Denied | Status::Expired | Status::Canceled => Err(over(approval.status.as_str())),
        Status::PendingApproval | Status::Approved | Status::Executing => Ok(waiting(&approval)),
    }
}

/// That the request waits for people.
pub fn waiting(approval: &Approval) -> Answered {
    Answered::json(StatusCode::ACCEPTED, approvals::pending(approval).to_string())
}

fn nobody(identity: &Identity) -> Actor {
    match identity {
        Identity::Operator => Actor::new(ActorKind::Operator, "operator"),
        _ => Actor::anonymous(),
    }
}

/// The same as for the host's routes, and always the tenant user: a primitive acts for a profile.
fn mutation_guards(trail: &Trail, admitted: &Admitted) -> Vec<charter_kernel::unit::Guard> {
    let mut all = guards(&trail.identity, trail.place.as_ref());
    if let Some(user) = trail.place.as_ref().and_then(|place| place.user.as_ref()) {
        let guard = user.guard();
        if !all.contains(&guard) {
            all.push(guard);
        }
        all.push(user.guard_kit());
    }
    all.extend(trail.place.iter().filter_map(|place| Some(place.kit.as_deref()?.guard())));
    all.extend(admitted.standing.clone());
    all
}

fn request(
    trail: &Trail,
    served: &Served,
    operation: &ServedOperation,
    validated: &Validated,
) -> Request {
    let matched = &validated.admitted.matched;
    let accepted = &matched.gated.scoped.identified.located.accepted;
    let mut query = validated.query.clone();
    validated.page.show(&mut query);
    let (body, bytes) = match &operation.contract.body {
        BodyRule::None => (None, None),
        // Checked to be UTF-8 when it was parsed; an absent body was validated as an empty object.
        BodyRule::Json(_) if validated.bytes.is_empty() => (Some("{}".to_owned()), None),
        BodyRule::Json(_) => (String::from_utf8(validated.bytes.to_vec()).ok(), None),
        BodyRule::Raw { .. } => (None, Some(validated.bytes.clone())),
    };
    let seen = operation.headers.iter().filter_map(|name| {
        let value = accepted.headers.get(name)?.to_str().ok()?;
        Some((name.as_str().to_owned(), value.to_owned()))
    });
    let mut context = Map::new();
    context.insert("component".into(), Value::from(served.digest()));
    if trail.place.as_ref().is_some_and(|place| place.project.test) {
        context.insert("test".into(), true.into());
    }
    if operation.streams && accepts_events(&accepted.headers) {
        context.insert("stream".into(), true.into());
    }
    Request {
        operation: operation.contract.id.to_string(),
        parameters: matched.parameters.clone(),
        query: if query.is_empty() { "{}".into() } else { Value::Object(query).to_string() },
        body,
        bytes,
        blob: None,
        headers: seen.collect(),
        context,
    }
}

/// Whether the client asks for an event stream.
fn accepts_events(headers: &HeaderMap) -> bool {
    let accepts =
        |line: &HeaderValue| line.to_str().is_ok_and(|line| line.contains("text/event-stream"));
    headers.get_all(header::ACCEPT).iter().any(accepts)
}

/// What the audit row names: the thing that the path's last id names, as the primitive calls
/// itself.
fn entity(served: &Served, parameters: &[(String, String)]) -> Option<(String, String)> {
    parameters.last().map(|(_, id)| (served.name().to_owned(), id.clone()))
}

/// The one place where the outcomes of a call become refusals. `None`: begin from the top.
pub(super) fn ended(
    app: &App,
    trail: &mut Trail,
    served: &Served,
    outcome: Outcome,
) -> Result<Option<Answer>, Refusal> {
    // Where a unit ends with the call, the finisher has put the audit row into it.
    trail.audited = trail.mutates
        && !matches!(
            outcome,
            Outcome::Restart
                | Outcome::Inactive
                | Outcome::Shed { .. }
                | Outcome::Unavailable { .. }
        );
    match outcome {
        Outcome::Answered(answer) => Ok(Some(answer)),
        Outcome::Refused(failure) => Err(worded(served, &failure)),
        // Revoked while it ran: the second look finds out who, and words it.
        Outcome::Restart | Outcome::Inactive => Ok(None),
        Outcome::Trapped { id } => Err(Refusal::internal().detail("incident", id)),
        Outcome::OutOfMemory => Err(Refusal::internal().reason("out_of_memory")),
        Outcome::Deadline => Err(Refusal::deadline_exceeded()),
        Outcome::Shed { retry_after_s, tenant: true } => Err(Refusal::rate_limited(retry_after_s)),
        Outcome::Shed { retry_after_s, tenant: false } => Err(Refusal::overloaded(retry_after_s)),
        Outcome::Unavailable { retry_after_s } => Err(match app.store.status().read_only {
            Some(reason) => charter_tenancy::stored::uncommitted(&CommitError::ReadOnly { reason }),
            None => Refusal::overloaded(retry_after_s),
        }),
        // Whoever can be told of an approval has looked for it before.
        Outcome::Pending { .. } => Err(Refusal::internal()),
        Outcome::ClientGone => {
            trail.outcome = Some(metrics::Outcome::ClientGone);
            Err(Refusal::overloaded(1))
        }
    }
}

/// A guest's failure in the words of the wire. A code that nobody declared is a fault of the
/// component.
pub fn worded(served: &Served, failure: &Failure) -> Refusal {
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
pub fn rendered(operation: &ServedOperation, page: &Page, answer: &Answer) -> Answered {
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
            let text = page::seal_answer(page, text.clone());
            Answered { headers, ..Answered::json(status(operation.status), text) }
                .typed("application/json")
        }
        AnswerBody::Bytes { content_type, bytes } => {
            Answered { status: status(operation.status), headers, body: Body::whole(bytes.clone()) }
                .typed(content_type)
        }
        AnswerBody::Job(id) => job::accepted(id),
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

async fn answered(
    app: &Arc<App>,
    trail: &Trail,
    (served, operation): (&Served, &ServedOperation),
    page: &Page,
    answer: Answer,
) -> Result<Answered, Refusal> {
    match &answer.body {
        AnswerBody::Follow { log, after } => {
            follow::stream(app, trail, follow::Source::Log(log.clone(), *after))
        }
        AnswerBody::Job(id) => job::result(app, trail, served, operation, id).await,
        AnswerBody::Blob(_) => Err(Refusal::not_configured(&["object_store"])),
        AnswerBody::None | AnswerBody::Json(_) | AnswerBody::Bytes { .. } => {
            Ok(rendered(operation, page, &answer))
        }
    }
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
    fn typed(mut self, content_type: &str) -> Self {
        if let Ok(value) = HeaderValue::from_str(content_type) {
            self.headers.insert(header::CONTENT_TYPE, value);
        }
        self
    }
}

/// Which code a refused outcome is counted under.
pub fn class(refusal: &Refusal) -> metrics::Outcome {
    match refusal.code {
        Code::Overloaded | Code::DeadlineExceeded | Code::RateLimited => metrics::Outcome::Shed,
        Code::InternalError => metrics::Outcome::Failed,
        _ => metrics::Outcome::Refused,
    }
}

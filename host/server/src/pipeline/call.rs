//! The one place where components are called: an operation of an admitted and well-formed request,
//! or a signal of admitted work.
//!
//! Each call is observed for the breaker, carries what its caller must still be at each commit, and
//! says how it is made again where people are asked.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;

use charter_adapters::public;
use charter_engine::{
    Answer, Call, Claiming, Component, Entry, Finish, Outcome, Request, Shown, Signal,
};
use charter_governance::approvals::{self, Origin, Run};
use charter_governance::gateway::CallGateway;
use charter_kernel::idempotency::Lineage;
use charter_kernel::manifest::CallLength;
use charter_kernel::refusal::{EFFECT_WITHOUT_RECORD, Refusal};
use charter_registry::served::{BodyRule, Served, ServedOperation};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::audit::Subject;
use super::claim::Claim;
use super::finish::{Approved, Finisher};
use super::matched::Operation;
use super::owner::Admitted;
use super::respond::Answered;
use super::trail::Trail;
use super::validate::Validated;
use super::{answer, unread};
use crate::app::App;
use crate::bounds::answers::AnswerRoom;
use crate::metrics::RequestOutcome;

/// The additions of one face to the call of an operation.
pub struct Way {
    /// The idempotency claim.
    pub claim: Option<Arc<Claim>>,
    /// The call's place in the request.
    pub lineage: Lineage,
    /// The rest of the waiting caller's time.
    pub deadline_ms: u32,
    /// Cancelled when the client leaves.
    pub gone: CancellationToken,
    /// How the call is made again where a person decides.
    pub again: Again,
    /// Facts for the guest, beside the component's digest.
    pub context: Map<String, Value>,
    /// Request headers that the operation declares.
    pub headers: Vec<(String, String)>,
    /// The body where it is no JSON.
    pub raw: Option<bytes::Bytes>,
    /// The room for the answer, where it goes to a client.
    pub room: Option<Arc<AnswerRoom>>,
}

/// The fact that names the primitive that calls.
pub const NESTED: &str = "nested";

/// How a call is made again where a person decides.
pub enum Again {
    /// Not at all.
    Never,
    /// As the same request; the primitive of this name is told what became of it.
    AsAsked(Option<String>),
    /// It is made again now, because people have approved it.
    Approved(Arc<Run>),
}

/// How a call of an operation ended.
pub enum Ended {
    /// The guest's answer, and its rendering, which is that of its record.
    Answered(Answer, Answered),
    /// It waits for people, and this says so.
    Pending(Answered),
    /// The terms that it was admitted under have changed: begin from the top.
    Again,
}

/// Calls an operation.
///
/// # Errors
/// The refusal of the guest, a rule or a limit.
pub async fn handle(
    app: &App,
    trail: &mut Trail,
    validated: &Validated,
    way: Way,
) -> Result<Ended, Refusal> {
    let Operation::Guest(served, operation) = validated.operation() else {
        return Err(Refusal::internal());
    };
    let mutates = operation.contract.mutates;
    let (approved, origin) = match way.again {
        Again::Never => (None, None),
        Again::AsAsked(tells) => {
            let seen = (way.headers.as_slice(), way.context.get(NESTED));
            (None, origin(app, served, operation, validated, seen, tells))
        }
        Again::Approved(run) => (Some(run.clone()), Some(Origin::Approved(run))),
    };
    let claiming = match (&way.claim, &approved) {
        (Some(claim), _) => Some(claim.claiming()),
        (None, Some(run)) => Some(run.claiming()),
        (None, None) => None,
    };
    let scope = validated.caller().scope();
    let approved = approved.map(|run| Approved { run, reach: scope.narrowest() });
    let finisher = Arc::new(Finisher {
        store: app.store.clone(),
        // A read leaves a row only where it is forbidden, and that one is written with the refusal.
        subject: if mutates { Subject::of(trail, entity(served, validated)) } else { None },
        claim: way.claim,
        wording: trail.wording(),
        served: served.clone(),
        operation: operation.clone(),
        page: validated.page().clone(),
        approved,
        room: way.room.filter(|_| mutates),
        acted: AtomicBool::new(false),
        rendered: Default::default(),
    });
    let shown = Shown::default();
    let call = Call {
        request_id: trail.id.as_str().to_owned(),
        scope,
        guards: if mutates { validated.guards() } else { Vec::new() },
        credential: if mutates { validated.caller().credential() } else { Vec::new() },
        claim: claiming,
        finish: finisher.clone() as Arc<dyn Finish>,
        mutates,
        deadline_ms: way
            .deadline_ms
            .min(operation.deadline_ms.unwrap_or(app.config.http.deadline_ms)),
        class: operation.class,
        lineage: way.lineage,
        client_gone: way.gone,
        gateway: Some(CallGateway::open(&app.governance, origin)),
        shown: shown.clone(),
        entry: Entry::Handle(request(
            served,
            operation,
            validated,
            way.context,
            way.headers,
            way.raw,
        )),
    };
    let outcome = call_component(app, served, call).await;
    let rendered = finisher.take_rendered();
    if matches!(outcome, Outcome::Pending { .. }) {
        let waiting = rendered.ok_or_else(|| Refusal::overloaded(1))?;
        trail.audited = true;
        return Ok(Ended::Pending(waiting));
    }
    if let (Outcome::Shed { .. }, Some(full)) = (&outcome, finisher.no_room()) {
        trail.outcome = Some(RequestOutcome::Shed);
        return Err(unread::refusal(full));
    }
    let decided = answer::decide(app, trail, validated, served, outcome);
    let decided = match finisher.acted.load(SeqCst) {
        true => decided.map_err(|refusal| refusal.reason(EFFECT_WITHOUT_RECORD)),
        false => decided,
    };
    let Some(answer) = decided? else { return Ok(Ended::Again) };
    trail.shows_secret = operation.contract.class.shows_secret() || shown.is_set();
    // A read commits nothing, and so has no record.
    let rendered = rendered.unwrap_or_else(|| answer::render(operation, validated.page(), &answer));
    Ok(Ended::Answered(answer, rendered))
}

/// A signal that a primitive is called with.
pub(crate) struct Signaled {
    /// The id of what it is a call of: it is shown to the guest and in logs.
    pub(crate) id: String,
    /// The kind, and the JSON of what it says.
    pub(crate) signal: (String, String),
    /// The claim on the work, where it may commit in several units.
    pub(crate) claim: Option<Claiming>,
    /// The finish, which says of the work in its commit.
    pub(crate) finish: Arc<dyn Finish>,
    /// Wall time.
    pub(crate) deadline_ms: u32,
    /// The concurrency class that it counts against.
    pub(crate) class: CallLength,
    /// How it is run again where a person decides.
    pub(crate) origin: Option<Origin>,
}

/// Calls a primitive with a signal.
pub(crate) async fn react(app: &App, admitted: Admitted, signaled: Signaled) -> Outcome {
    let (scope, [party, work], served) = admitted.into_parts();
    let (kind, payload) = signaled.signal;
    let call = Call {
        lineage: Lineage::outermost(&signaled.id),
        request_id: signaled.id,
        scope,
        entry: Entry::React(Signal { kind, payload, blob: None }),
        // Work of the host's is no credential's: other primitives change things for it as long as
        // it is not cancelled and nobody else has taken it up. They ask whose it is themselves.
        credential: work.iter().filter(|guard| guard.is_fence()).cloned().collect(),
        guards: [party, work].concat(),
        claim: signaled.claim,
        finish: signaled.finish,
        mutates: true,
        deadline_ms: signaled.deadline_ms,
        class: signaled.class,
        client_gone: CancellationToken::new(),
        gateway: Some(CallGateway::open(&app.governance, signaled.origin)),
        shown: Shown::default(),
    };
    call_component(app, &served, call).await
}

/// Calls the component, and has the breaker know whether it trapped.
async fn call_component(app: &App, served: &Served, call: Call) -> Outcome {
    let organization = call.scope.organization().cloned();
    let component: &Arc<Component> = &served.component;
    let outcome = app.engine.call(component, call).await;
    app.observe(served, organization.as_ref(), &outcome).await;
    outcome
}

/// The request as the guest sees it.
fn request(
    served: &Served,
    operation: &ServedOperation,
    validated: &Validated,
    mut context: Map<String, Value>,
    headers: Vec<(String, String)>,
    raw: Option<bytes::Bytes>,
) -> Request {
    let mut query = validated.query().clone();
    validated.page().show(&mut query);
    let (body, bytes) = match &operation.contract.body {
        BodyRule::None => (None, None),
        // Checked to be UTF-8 when it was parsed; an absent body was validated as an empty object.
        BodyRule::Json(_) if validated.bytes().is_empty() => (Some("{}".to_owned()), None),
        BodyRule::Json(_) => (text(validated), None),
        BodyRule::Raw { .. } => (None, raw),
    };
    context.insert("component".into(), Value::from(served.digest()));
    if validated.caller().place().is_some_and(|place| place.project().test) {
        context.insert("test".into(), true.into());
    }
    Request {
        operation: operation.contract.id.to_string(),
        parameters: validated.parameters().to_vec(),
        query: if query.is_empty() { "{}".into() } else { Value::Object(query).to_string() },
        body,
        bytes,
        blob: None,
        headers,
        context,
    }
}

fn text(validated: &Validated) -> Option<String> {
    String::from_utf8(validated.bytes().to_vec()).ok()
}

/// The entity that the audit row names: the thing of the path's last id, as the primitive calls
/// itself.
fn entity(served: &Served, validated: &Validated) -> Option<(String, String)> {
    validated.parameters().last().map(|(_, id)| (served.name().to_owned(), id.clone()))
}

/// The request as it can be made again once a person has approved it: only where anything of its
/// primitive is regulated.
fn origin(
    app: &App,
    served: &Served,
    operation: &ServedOperation,
    validated: &Validated,
    (headers, nested): (&[(String, String)], Option<&Value>),
    tells: Option<String>,
) -> Option<Origin> {
    let regulated = operation.contract.mutates && !served.manifest.actions.is_empty();
    let place = validated.caller().place().filter(|_| regulated)?;
    let body = match &operation.contract.body {
        BodyRule::Json(_) if !validated.bytes().is_empty() => text(validated),
        // A body of bytes is not kept: such an operation is refused where it needs a person.
        BodyRule::Raw { .. } => return None,
        _ => None,
    };
    let actor = place.scope().actor();
    Some(Origin::Request(Box::new(approvals::Request {
        operation: operation.contract.id.to_string(),
        parameters: validated.parameters().iter().chain(validated.pairs()).cloned().collect(),
        body,
        headers: headers.to_vec(),
        organization: place.organization().id.to_string(),
        project: (place.project().id.to_string(), place.project().test),
        user: place.user().map(|user| user.id.to_string()),
        naming: Some(place.scope().naming()),
        actor: (actor.kind.as_str().to_owned(), actor.id.clone()),
        account: place.scope().principal().root.clone(),
        role: place.scope().role(),
        principal: Some(place.scope().principal().clone()),
        base: public::base(&app.adapters),
        tells,
        nested: nested.and_then(Value::as_str).map(Into::into),
        job: None,
        salt: None,
    })))
}

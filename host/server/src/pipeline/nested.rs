//! A call from one primitive to another, as the same caller: kit, role, revocation, needs, schemas
//! and idempotency hold as they do for a request that comes by HTTP. A change commits on its own.

use std::sync::Arc;

use bytes::Bytes;
use charter_engine::{Call, Entry, Finish, Nested, Outcome, Reply, Request};
use charter_kernel::authority;
use charter_kernel::fault::Fault;
use charter_kernel::id::{KeyId, RequestId};
use charter_kernel::idempotency;
use charter_kernel::refusal::{Code, Failure, Refusal};
use charter_kernel::route::{Segment, Template};
use charter_kernel::scope::ActorKind;
use charter_kernel::unit::Guard;
use charter_tenancy::directory::profile_revoked;
use http::{HeaderMap, HeaderValue};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::audit::Subject;
use super::claim::{self, Asked, Claim, Claimed};
use super::finish::Finisher;
use super::page::{Page, Seal};
use super::respond::Answered;
use super::trail::Trail;
use super::{gate, guest, job, standing, validate};
use crate::app::App;
use crate::directory::KitRecord;
use crate::governance::approvals::{self, Origin, Run};
use crate::http::Door;
use crate::lifecycle;
use crate::public;
use crate::records::key::ApiKey;
use crate::records::{Record as _, still_active};
use crate::request::Place;
use crate::routes::stored;
use crate::served::{Auth, Served, ServedOperation};

/// Runs of one call.
const RUNS_MAX: u32 = 4;

/// Calls another primitive.
///
/// # Errors
/// What a client would have been refused with.
pub async fn call(app: &App, nested: Nested) -> Result<Reply, Failure> {
    run(app, &nested, None).await.and_then(reply).map_err(|refusal| refusal.to_failure())
}

/// Makes an approved request, as who asked for it. Its end is written with it.
///
/// # Errors
/// Why it was not made: nothing was written then.
pub async fn approved(app: &App, nested: &Nested, approved: &Arc<Run>) -> Result<(), Refusal> {
    run(app, nested, Some(approved)).await.map(drop)
}

/// A call that is admitted and well formed.
struct Ready {
    served: Arc<Served>,
    operation: Arc<ServedOperation>,
    parameters: Vec<(String, String)>,
    pairs: Vec<(String, String)>,
    query: Map<String, Value>,
    page: Page,
    standing: Option<Guard>,
}

async fn run(app: &App, nested: &Nested, approved: Option<&Arc<Run>>) -> Result<Answered, Refusal> {
    for _ in 0..RUNS_MAX {
        let place = app.directory.place_again(&nested.scope).await?;
        let mut trail = trail(app, nested, place);
        let ready = admitted(app, &mut trail, nested).await?;
        // An approved request is made once because its approval is: the key that it was asked under
        // is answered by that.
        let claimed = match approved {
            Some(_) => Claimed::Free(None),
            None => claimed(app, &trail, nested, &ready).await?,
        };
        let claim = match claimed {
            Claimed::Replay(answered) => return Ok(answered),
            // A job outlives the call that made it; its caller asks for it by its id.
            Claimed::Job(id) => return Ok(job::accepted(&id)),
            Claimed::Approval(id) => return guest::approval_answer(app, &trail, &id).await,
            Claimed::Free(claim) => claim,
        };
        let guards = guards(app, &trail, &ready).await?;
        let outcome = app
            .engine
            .call(
                &ready.served.component,
                to_engine(app, &trail, nested, &ready, claim.as_ref(), guards, approved),
            )
            .await;
        if let Outcome::Pending { approval } = &outcome {
            return guest::approval_answer(app, &trail, approval).await;
        }
        if let Some(answer) = guest::ended(app, &mut trail, &ready.served, outcome)? {
            return Ok(guest::rendered(&ready.operation, &ready.page, &answer));
        }
    }
    Err(Refusal::overloaded(1))
}

fn trail(app: &App, nested: &Nested, place: Place) -> Trail {
    let at = app.clock.now();
    // The outer request's id: what a nested call did is found by it.
    let id = RequestId::parse(&nested.request).unwrap_or_else(|| RequestId::new(at, [0; 10]));
    let mut trail = Trail::begin(id, at, Door::Both, true);
    trail.place = Some(place);
    trail
}

async fn admitted(app: &App, trail: &mut Trail, nested: &Nested) -> Result<Ready, Refusal> {
    let live = app.registry.current();
    let unknown = || Refusal::resource_not_found("operation");
    let known = live.operation(&nested.operation).ok_or_else(unknown)?;
    let place = trail.place.as_ref().ok_or_else(Refusal::not_found)?;
    let served = gate::decide(app, &known.primitive, place.kit.as_deref()).await?;
    let operation = served.operation(&nested.operation).ok_or_else(unknown)?.clone();
    let contract = &operation.contract;
    if contract.auth != Auth::Key {
        return Err(Refusal::forbidden(
            "not_callable",
            "Only operations that take an API key can be called by primitives.",
        ));
    }
    if contract.mutates && !known.operation.contract.mutates {
        // The outer request was armed for a read, which is what the version asked before has under
        // this id.
        return Err(Refusal::forbidden(
            "not_callable",
            "The version that the kit pins changes something where another one reads.",
        ));
    }
    authority::admit(&place.scope, contract.class, contract.access)?;
    if contract.mutates && place.user.as_ref().is_some_and(|user| !user.active) {
        return Err(profile_revoked());
    }
    let standing =
        standing::ask(app, &place.organization.id, served.name(), operation.llm_routing).await?;
    let missing = app.adapters.providers.missing(&place.scope, &operation.needs);
    if !missing.is_empty() {
        return Err(Refusal::not_configured(&missing));
    }
    trail.mutates = contract.mutates;
    trail.catalogue = contract.catalogue;
    trail.operation = Some(contract.id.clone());
    checked(app, trail, nested, (served, standing), operation).await
}

async fn checked(
    app: &App,
    trail: &Trail,
    nested: &Nested,
    (served, standing): (Arc<Served>, Option<Guard>),
    operation: Arc<ServedOperation>,
) -> Result<Ready, Refusal> {
    let contract = &operation.contract;
    let template = Template::parse(&contract.path).map_err(|_| Refusal::internal())?;
    let mut faults = Vec::new();
    let mut parameters = Vec::new();
    for name in template.parameters() {
        match nested.parameters.iter().find(|(own, _)| own == name) {
            Some((_, value)) if !value.is_empty() => {
                parameters.push((name.to_owned(), value.clone()))
            }
            _ => faults.push(Fault::new(name, "is required")),
        }
    }
    let in_path = |name: &str| template.parameters().any(|own| own == name);
    let pairs: Vec<(String, String)> =
        nested.parameters.iter().filter(|(name, _)| !in_path(name)).cloned().collect();
    validate::path(contract, &parameters, &mut faults);
    let seal = || Seal::new(app.cursor_key, &validate::tenant(trail), &contract.id, &pairs);
    let page = Page::read(contract.paging, &pairs, seal).unwrap_or_else(|found| {
        faults.extend(found);
        Page::default()
    });
    let query = validate::query(contract, &pairs, &mut faults);
    let body = Bytes::from(nested.body.clone().unwrap_or_default());
    validate::body(app, trail, contract, &body, &mut faults).await?;
    if faults.is_empty() {
        Ok(Ready { served, operation, parameters, pairs, query, page, standing })
    } else {
        Err(Refusal::faults(faults))
    }
}

async fn claimed(
    app: &App,
    trail: &Trail,
    nested: &Nested,
    ready: &Ready,
) -> Result<Claimed, Refusal> {
    let Ok(key) = HeaderValue::from_str(&nested.idempotency_key) else {
        return Err(Refusal::invalid(
            "idempotency_key",
            "must be 1 to 255 visible ASCII characters",
        ));
    };
    let headers: HeaderMap = [(claim::HEADER, key)].into_iter().collect();
    let contract = &ready.operation.contract;
    let template = Template::parse(&contract.path).map_err(|_| Refusal::internal())?;
    let path = filled(&template, &ready.parameters);
    let asked = Asked {
        operation: &contract.id,
        request: idempotency::Request {
            method: contract.method,
            path: &path,
            query: &ready.pairs,
            content_type: "application/json",
            body: nested.body.as_deref().unwrap_or_default().as_bytes(),
        },
        headers: &headers,
    };
    claim::claim(app, trail, asked).await
}

/// The path that a client would have asked for, below the mount.
fn filled(template: &Template, parameters: &[(String, String)]) -> String {
    let value =
        |name: &str| parameters.iter().find(|(own, _)| own == name).map_or("", |(_, value)| value);
    let segment = |segment: &Segment| match segment {
        Segment::Literal(text) => text.clone(),
        Segment::Parameter { prefix, name } => format!("{prefix}{}", value(name)),
        Segment::Tail(name) => value(name).to_owned(),
    };
    template.segments().iter().map(segment).collect::<Vec<_>>().join("/")
}

fn to_engine(
    app: &App,
    trail: &Trail,
    nested: &Nested,
    ready: &Ready,
    claim: Option<&Arc<Claim>>,
    guards: Vec<Guard>,
    approved: Option<&Arc<Run>>,
) -> Call {
    let mut query = ready.query.clone();
    ready.page.show(&mut query);
    let entity =
        ready.parameters.last().map(|(_, id)| (ready.served.name().to_owned(), id.clone()));
    let finisher = Finisher {
        store: app.store.clone(),
        subject: if trail.mutates { Subject::of(trail, entity) } else { None },
        claim: claim.cloned(),
        wording: trail.wording(),
        served: ready.served.clone(),
        operation: ready.operation.clone(),
        page: ready.page.clone(),
        approved: approved.cloned(),
    };
    let context =
        [("component", json!(ready.served.digest())), ("nested", json!(nested.primitive))];
    let takes_body = matches!(ready.operation.contract.body, crate::served::BodyRule::Json(_));
    Call {
        request_id: trail.id.as_str().to_owned(),
        scope: nested.scope.clone(),
        entry: Entry::Handle(Request {
            operation: nested.operation.clone(),
            parameters: ready.parameters.clone(),
            query: Value::Object(query).to_string(),
            body: takes_body.then(|| nested.body.clone().unwrap_or_else(|| "{}".into())),
            bytes: None,
            blob: None,
            headers: Vec::new(),
            context: context.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
        }),
        guards,
        claim: claim
            .map(|claim| claim.claiming())
            .or_else(|| approved.and_then(|run| run.claiming(trail.at))),
        finish: Arc::new(finisher) as Arc<dyn Finish>,
        mutates: trail.mutates,
        deadline_ms: nested
            .deadline_ms
            .min(ready.operation.deadline_ms.unwrap_or(app.config.http.deadline_ms)),
        class: ready.operation.class,
        lineage: nested.lineage.clone(),
        client_gone: CancellationToken::new(),
        origin: match approved {
            Some(run) => Some(approvals::carried(Origin::Approved(run.clone()))),
            None => again(app, trail, nested, ready),
        },
    }
}

/// The call as it can be made again once a person has approved it, as who made the outermost
/// request.
fn again(
    app: &App,
    trail: &Trail,
    nested: &Nested,
    ready: &Ready,
) -> Option<charter_engine::leave::Origin> {
    let place = trail
        .place
        .as_ref()
        .filter(|_| trail.mutates && !ready.served.manifest.actions.is_empty())?;
    nested.origin.as_ref().and_then(|origin| origin.downcast_ref::<Origin>())?;
    let actor = nested.scope.actor();
    let live = app.registry.current();
    Some(approvals::carried(Origin::Request(Box::new(approvals::Request {
        operation: nested.operation.clone(),
        parameters: nested.parameters.clone(),
        body: nested.body.clone(),
        organization: place.organization.id.to_string(),
        project: (place.project.id.to_string(), place.project.test),
        user: place.user.as_ref().map(|user| user.id.to_string()),
        actor: (actor.kind.as_str().to_owned(), actor.id.clone()),
        account: nested.scope.principal().root.clone(),
        role: nested.scope.role(),
        principal: Some(nested.scope.principal().clone()),
        base: public::base(&app.adapters),
        tells: live.listeners(lifecycle::APPROVAL).find(|name| **name == nested.primitive).cloned(),
        job: None,
    }))))
}

/// The outer caller's key, with those that it descends from, its organization, user and kit must go
/// on to count.
async fn guards(app: &App, trail: &Trail, ready: &Ready) -> Result<Vec<Guard>, Refusal> {
    let Some(place) = trail.place.as_ref().filter(|_| trail.mutates) else { return Ok(Vec::new()) };
    let mut guards = vec![place.organization.guard()];
    guards.extend(place.user.iter().flat_map(|user| [user.guard(), user.guard_kit()]));
    guards.extend(place.kit.as_deref().map(KitRecord::guard));
    guards.extend(ready.standing.clone());
    let actor = place.scope.actor();
    if actor.kind == ActorKind::Key {
        let revoked = || Refusal::unauthorized("The credential was revoked.");
        let address = |id: &KeyId| ApiKey::address(&place.organization.id, id);
        let id = KeyId::parse(&actor.id).ok_or_else(revoked)?;
        let row =
            app.store.get(&address(&id)).await.map_err(stored::reading)?.ok_or_else(revoked)?;
        let key = ApiKey::read(&row).map_err(stored::unreadable)?;
        guards.extend(
            std::iter::once(&key.id).chain(&key.ancestors).map(|id| still_active(address(id))),
        );
    }
    Ok(guards)
}

fn reply(answered: Answered) -> Result<Reply, Refusal> {
    let status = answered.status.as_u16();
    let Some(bytes) = answered.body.as_whole() else {
        return Err(Refusal::state_conflict(
            "streamed",
            "An operation that streams cannot be called by a primitive.",
        ));
    };
    let body = if bytes.is_empty() {
        "null".to_owned()
    } else {
        String::from_utf8_lossy(bytes).into_owned()
    };
    if status < 400 { Ok(Reply { status, body }) } else { Err(replayed(&body)) }
}

/// A refusal that was kept under the call's key.
fn replayed(body: &str) -> Refusal {
    let kept: Value = serde_json::from_str(body).unwrap_or_default();
    let error = kept.get("error").unwrap_or(&Value::Null);
    let text = |name: &str| error.get(name).and_then(Value::as_str);
    let code = text("code").and_then(Code::named).unwrap_or(Code::InternalError);
    let mut refusal = Refusal::new(code, text("message").unwrap_or("The call was refused."));
    refusal.hint = text("hint").map(Into::into);
    refusal.reason = text("reason").map(Into::into);
    refusal.param = text("param").map(Into::into);
    refusal
}

/// The operations that the caller's kit offers as tools: `[{name, operation, description, mutates,
/// input_schema}]`.
///
/// # Errors
/// When the directory cannot be asked.
pub async fn tools(app: &App, scope: &charter_kernel::scope::Scope) -> Result<Value, Failure> {
    let place = app.directory.place_again(scope).await.map_err(|refusal| refusal.to_failure())?;
    let mut tools = Vec::new();
    for primitive in app.registry.current().primitives() {
        let Ok(served) = gate::decide(app, primitive, place.kit.as_deref()).await else {
            continue;
        };
        for declared in served
            .manifest
            .operations
            .iter()
            .filter(|declared| declared.tool && declared.auth == "key")
        {
            tools.push(json!({
                "name": declared.id.replace(['.', '-'], "_"),
                "operation": declared.id,
                "description": if declared.description.is_empty() { &declared.summary } else { &declared.description },
                "mutates": declared.mutates(),
                "input_schema": {"path": declared.path_schema, "query": declared.query, "body": declared.body},
            }));
        }
    }
    Ok(Value::Array(tools))
}

/// The value that the caller's kit sets, where the primitive lets a kit set it; else the
/// operator's.
///
/// # Errors
/// When the directory cannot be asked.
pub async fn setting(
    app: &App,
    scope: &charter_kernel::scope::Scope,
    primitive: &str,
    key: &str,
) -> Result<Option<Value>, Failure> {
    let set = app.config.primitives.get(primitive, key).cloned();
    let live = app.registry.current();
    let declared = live
        .primitive(primitive)
        .and_then(|found| found.active().manifest.settings.iter().find(|own| own.key == key));
    if declared.is_none_or(|declared| declared.by != "kit") {
        return Ok(set);
    }
    let place = app.directory.place_again(scope).await.map_err(|refusal| refusal.to_failure())?;
    let policy = place.kit.and_then(|kit| kit.kit.primitives.get(primitive)?.policy.clone());
    Ok(policy.and_then(|policy| policy.get(key).cloned()).or(set))
}

//! A call from one primitive to another, as the same caller, and an approved request, as who asked
//! for it: the line's stages from the kit gate on, as for a request that comes by HTTP. A change
//! commits on its own.

use std::sync::Arc;

use bytes::Bytes;
use charter_engine::{Nested, Reply};
use charter_governance::approvals::Run;
use charter_governance::lifecycle;
use charter_kernel::fault::Fault;
use charter_kernel::id::RequestId;
use charter_kernel::refusal::{Failure, Refusal};
use charter_kernel::route::{Segment, Template};
use charter_registry::served::{Auth, Contract};
use http::HeaderValue;
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use super::admit::{Admitted, Unpaced};
use super::again::Runs;
use super::call::{self, Again, Ended, Way};
use super::caller::Caller;
use super::claim::{self, Claimed, Form};
use super::matched::Matched;
use super::respond::Answered;
use super::trail::Trail;
use super::validate::{self, Sent, Validated};
use super::{admit, answer, gate, job};
use crate::app::App;
use crate::http::Door;

/// Calls another primitive.
///
/// # Errors
/// The failure that a client would have been refused with.
pub async fn call(app: &App, nested: Nested) -> Result<Reply, Failure> {
    run(app, &nested, None).await.and_then(reply).map_err(|refusal| refusal.to_failure())
}

/// Makes an approved request, as who asked for it. Its end is written with it.
///
/// # Errors
/// Why it was not made: nothing was written then.
pub async fn run_approved(app: &App, nested: &Nested, approved: &Arc<Run>) -> Result<(), Refusal> {
    run(app, nested, Some(approved)).await.map(drop)
}

async fn run(app: &App, nested: &Nested, approved: Option<&Arc<Run>>) -> Result<Answered, Refusal> {
    let mut runs = Runs::default();
    loop {
        runs.begin()?;
        if let Some(answered) = call_once(app, nested, approved).await? {
            return Ok(answered);
        }
    }
}

/// Nothing where the call begins from the top.
async fn call_once(
    app: &App,
    nested: &Nested,
    approved: Option<&Arc<Run>>,
) -> Result<Option<Answered>, Refusal> {
    let caller = Caller::resolve_again(app, &nested.scope).await?;
    let mut trail = trail(app, nested);
    let admitted = admit_call(app, &mut trail, nested, caller).await?;
    let organization = admitted.caller().organization().to_owned();
    let sent = call_input(nested, &admitted, approved.is_some())?;
    let validated = validate::validate(app, admitted, sent).await?;
    let claim = match claim_key(app, &trail, &validated).await? {
        Claimed::Replay(answered) => return Ok(Some(answered)),
        // A job outlives the call that made it; its caller asks for it by its id.
        Claimed::Job(id) => return Ok(Some(job::acceptance(&id))),
        Claimed::Approval(id) => {
            return answer::approval_answer(app, &organization, &id).await.map(Some);
        }
        Claimed::Free(claim) => claim,
    };
    let way = Way {
        claim: claim.as_ref(),
        lineage: nested.lineage.clone(),
        deadline_ms: nested.deadline_ms,
        gone: CancellationToken::new(),
        again: repetition(app, nested, approved),
        context: Map::from_iter([("nested".to_owned(), json!(nested.primitive))]),
        headers: Vec::new(),
        raw: None,
    };
    match call::handle(app, &mut trail, &validated, way).await? {
        Ended::Again => Ok(None),
        Ended::Pending(id) => answer::approval_answer(app, &organization, &id).await.map(Some),
        Ended::Answered(_, rendered) => Ok(Some(rendered)),
    }
}

fn trail(app: &App, nested: &Nested) -> Trail {
    let at = app.clock.now();
    // The outer request's id: what a nested call did is found by it.
    let id = RequestId::parse(&nested.request).unwrap_or_else(|| RequestId::new(at, [0; 10]));
    Trail::begin(id, at, Door::Both, true)
}

/// Passes the gate and is admitted, where primitives may call the operation at all.
async fn admit_call(
    app: &App,
    trail: &mut Trail,
    nested: &Nested,
    caller: Caller,
) -> Result<Admitted, Refusal> {
    let live = app.registry.current();
    let unknown = || Refusal::resource_not_found("operation");
    let known = live.operation(&nested.operation).ok_or_else(unknown)?;
    // A change goes on only as long as the outer caller's credential counts.
    let caller = match known.operation.contract.mutates {
        true => caller.require_credential(app).await?,
        false => caller,
    };
    let gated = gate::gate(app, Arc::new(caller), &known.primitive).await?;
    let matched = Matched::by_id(gated, &nested.operation, &nested.parameters);
    let matched = matched.ok_or_else(unknown)?;
    callable(matched.operation().contract(), &known.operation.contract)?;
    let admitted = admit::admit(app, matched, &mut Unpaced).await?;
    trail.caller = Some(admitted.caller().clone());
    trail.note(admitted.operation().contract());
    Ok(admitted)
}

/// Whether primitives may call an operation, which another version is `armed` for.
fn callable(contract: &Contract, armed: &Contract) -> Result<(), Refusal> {
    if contract.auth != Auth::Key {
        return Err(Refusal::forbidden(
            "not_callable",
            "Only operations that take an API key can be called by primitives.",
        ));
    }
    if contract.mutates && !armed.mutates {
        // The outer request was armed for a read, which is what the version asked before has under
        // this id.
        return Err(Refusal::forbidden(
            "not_callable",
            "The version that the kit pins changes something where another one reads.",
        ));
    }
    Ok(())
}

/// The input of the call: members that are no path parameters are the query's. An approved request
/// is made once because its approval is, and needs no key: the key that it was asked under is
/// answered by the approval.
fn call_input(nested: &Nested, admitted: &Admitted, approved: bool) -> Result<Sent, Refusal> {
    let contract = admitted.operation().contract();
    let template = Template::parse(&contract.path).map_err(|_| Refusal::internal())?;
    let in_path = |name: &str| template.parameters().any(|own| own == name);
    let found = |name: &str| admitted.parameters().iter().any(|(own, _)| own == name);
    let missing = template.parameters().filter(|name| !found(name));
    let key = HeaderValue::from_str(&nested.idempotency_key).map_err(|_| {
        Refusal::invalid("idempotency_key", "must be 1 to 255 visible ASCII characters")
    });
    Ok(Sent {
        pairs: nested.parameters.iter().filter(|(name, _)| !in_path(name)).cloned().collect(),
        bytes: Bytes::from(nested.body.clone().unwrap_or_default()),
        key: if approved { None } else { Some(key?) },
        faults: missing.map(|name| Fault::new(name, "is required")).collect(),
    })
}

async fn claim_key(app: &App, trail: &Trail, validated: &Validated) -> Result<Claimed, Refusal> {
    let contract = validated.operation().contract();
    let template = Template::parse(&contract.path).map_err(|_| Refusal::internal())?;
    let path = fill_path(&template, validated.parameters());
    let form = Form { method: contract.method, path: &path, content_type: "application/json" };
    claim::claim(app, &trail.id, validated, form).await
}

/// The path that a client would have asked for, below the mount.
fn fill_path(template: &Template, parameters: &[(String, String)]) -> String {
    let value =
        |name: &str| parameters.iter().find(|(own, _)| own == name).map_or("", |(_, value)| value);
    let segment = |segment: &Segment| match segment {
        Segment::Literal(text) => text.clone(),
        Segment::Parameter { prefix, name } => format!("{prefix}{}", value(name)),
        Segment::Tail(name) => value(name).to_owned(),
    };
    template.segments().iter().map(segment).collect::<Vec<_>>().join("/")
}

/// The call can be made again where the outermost request can, as who made that.
fn repetition<'a>(app: &App, nested: &Nested, approved: Option<&'a Arc<Run>>) -> Again<'a> {
    match (approved, nested.repeatable) {
        (Some(run), _) => Again::Approved(run),
        (None, false) => Again::Never,
        (None, true) => {
            let live = app.registry.current();
            let listens = |name: &&String| **name == nested.primitive;
            Again::AsAsked(live.listeners(lifecycle::APPROVAL).find(listens).cloned())
        }
    }
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
    if status < 400 {
        return Ok(Reply { status, body });
    }
    // A refusal that was kept under the call's key.
    let kept: Value = serde_json::from_str(&body).unwrap_or_default();
    Err(Refusal::from_rest(&kept["error"], "The call was refused."))
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

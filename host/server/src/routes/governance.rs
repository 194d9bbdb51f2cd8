//! The organization's policy, and what it would say: `/v1/governance`.

use std::collections::BTreeSet;

use charter_kernel::governance::leave::{self, Asked, Person};
use charter_kernel::governance::limit::{self, LIMITS_MAX, Limit};
use charter_kernel::governance::policy::{Grant, Policy};
use charter_kernel::id::UserId;
use charter_kernel::refusal::{Code, Refusal};
use charter_store::Txn;
use serde::Deserialize;
use serde_json::{Value, json};

use super::shape::{budget, checked, id, nullable, object, reference};
use super::stored;
use crate::app::App;
use crate::governance::gateway;
use crate::records::organization::Organization;
use crate::reply::Reply;
use crate::request::HostRequest;

/// Rules of a policy.
const RULES_MAX: usize = charter_kernel::governance::policy::RULES_MAX;
/// Ids, actions or entities that one rule names.
const NAMED_MAX: usize = 200;

fn texts() -> Value {
    json!({"type": "array", "minItems": 1, "maxItems": NAMED_MAX, "items": {"type": "string", "minLength": 1, "maxLength": 200}})
}

fn rules() -> Value {
    let day = json!({"enum": ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]});
    let time = json!({"type": "string", "pattern": "^[0-9]{2}:[0-9]{2}$", "x-words": "must be a time of day such as `09:30`"});
    let hours = object(&[
        ("from", time.clone()),
        ("to", time),
        ("days?", json!({"type": "array", "minItems": 1, "maxItems": 7, "items": day})),
    ]);
    let when = object(&[
        ("amount_over_micro_usd?", json!({"type": "integer", "minimum": 0})),
        ("users?", texts()),
        ("kits?", texts()),
        ("projects?", texts()),
        ("entities?", texts()),
        ("hours?", hours),
    ]);
    let rule = object(&[
        ("id", json!({"type": "string", "minLength": 1, "maxLength": 200})),
        ("effect", json!({"enum": ["allow", "deny", "require_approval"]})),
        ("actions", texts()),
        ("when?", when),
        ("mode?", json!({"enum": ["enforce", "shadow"]})),
        ("approvals_required?", json!({"type": "integer", "minimum": 1, "maximum": 10})),
    ]);
    json!({"type": "array", "maxItems": RULES_MAX, "items": rule})
}

fn otherwise() -> Value {
    json!({"enum": ["allow", "deny"]})
}

fn version() -> Value {
    json!({"type": "integer", "minimum": 0})
}

/// The answer of the policy's routes.
pub fn policy_answer() -> Value {
    let cap = object(&[
        ("scope", json!({"enum": ["organization", "project", "kit"]})),
        ("budget", nullable(&budget())),
        ("open", json!({"type": "boolean"})),
    ]);
    object(&[(
        "policy",
        object(&[
            ("rules", rules()),
            ("default", otherwise()),
            ("version", version()),
            ("caps", json!({"type": "array", "items": cap})),
        ]),
    )])
}

fn view(organization: &Organization) -> Value {
    json!({"policy": {
        "rules": organization.policy.rules,
        "default": organization.policy.default,
        "version": organization.policy_version,
    }})
}

/// The policy, and which caps stand open behind it: of all of the organization, of the project that
/// is selected, and of each user of its default kit.
async fn view_with_caps(
    app: &App,
    request: &HostRequest,
    organization: &Organization,
) -> Result<Value, Refusal> {
    let project = &request.place()?.project;
    let kit = app.directory.kit(project, None).await.map_err(|_| Refusal::overloaded(1))?;
    let scopes = [
        ("organization", organization.budget),
        ("project", project.budget),
        ("kit", kit.and_then(|kit| kit.kit.budget)),
    ];
    let caps = scopes
        .map(|(scope, budget)| json!({"scope": scope, "budget": budget, "open": budget.is_none()}));
    let mut shown = view(organization);
    shown["policy"]["caps"] = json!(caps);
    Ok(shown)
}

async fn own(request: &HostRequest, txn: &mut Txn) -> Result<Organization, Refusal> {
    let id = &request.place()?.organization.id;
    let found = stored::get::<Organization>(txn, &Organization::address(id)).await?;
    Ok(found.ok_or_else(Refusal::not_found)?.record)
}

/// `GET /v1/governance/policy`
///
/// # Errors
/// When the store cannot be asked.
pub async fn policy(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let organization = own(request, txn).await?;
    Ok(Reply::ok(&view_with_caps(app, request, &organization).await?))
}

#[derive(Deserialize)]
struct Put {
    rules: Value,
    #[serde(default)]
    default: charter_kernel::governance::policy::Otherwise,
    expected_version: Option<u64>,
}

/// The body of a new policy: it replaces the one before.
pub fn policy_body() -> Value {
    object(&[("rules", rules()), ("default?", otherwise()), ("expected_version?", version())])
}

/// `PUT /v1/governance/policy`
///
/// # Errors
/// 409 for a stale `expected_version`, 403 where it would loosen without the authority to.
pub async fn put_policy(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let body: Put = request.body_as()?;
    let rules = serde_json::from_value(body.rules)
        .map_err(|error| Refusal::invalid("rules", error.to_string()))?;
    let wanted = Policy { rules, default: body.default };
    checked(wanted.faults())?;
    let mut organization = own(request, txn).await?;
    if body.expected_version.is_some_and(|expected| expected != organization.policy_version) {
        return Err(Refusal::version_conflict(organization.policy_version));
    }
    let loosens = organization.policy.is_loosened_by(&wanted);
    if loosens {
        request.place()?.may_loosen()?;
    }
    let before = view(&organization);
    organization.policy = wanted;
    organization.policy_version += 1;
    stored::replace(txn, &organization, "rules").await?;
    let shown = view(&organization);
    let note = json!({"before": before["policy"], "after": shown["policy"], "loosens": loosens});
    let shown = view_with_caps(app, request, &organization).await?;
    Ok(Reply::ok(&shown).about("policy", organization.id.to_string()).noting(note))
}

fn limits() -> Value {
    let most = json!({"type": ["integer", "null"], "minimum": 0});
    let limit = object(&[
        ("id", json!({"type": "string", "minLength": 1, "maxLength": 100})),
        ("actions", texts()),
        ("users?", texts()),
        ("period", json!({"enum": ["day", "week", "month", "year", "total"]})),
        ("max_count?", most.clone()),
        ("max_amount_micro_usd?", most),
    ]);
    json!({"type": "array", "maxItems": LIMITS_MAX, "items": limit})
}

/// The limits of an organization: their answer, and their body.
pub fn limits_schema() -> Value {
    object(&[("limits", limits())])
}

/// `GET /v1/governance/limits`
///
/// # Errors
/// When the store cannot be asked.
pub async fn get_limits(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    Ok(Reply::ok(&json!({"limits": own(request, txn).await?.limits})))
}

#[derive(Deserialize)]
struct Limits {
    limits: Vec<Limit>,
}

/// `PUT /v1/governance/limits`: the list replaces the one before.
///
/// # Errors
/// 403 where it would loosen without the authority to.
pub async fn put_limits(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let body: Limits = request.body_as()?;
    checked(limit::faults(&body.limits))?;
    let mut organization = own(request, txn).await?;
    let loosens = limit::is_loosened(&organization.limits, &body.limits);
    if loosens {
        request.place()?.may_loosen()?;
    }
    let before = std::mem::replace(&mut organization.limits, body.limits);
    stored::replace(txn, &organization, "limits").await?;
    let note = json!({"before": before, "after": organization.limits, "loosens": loosens});
    let shown = json!({"limits": organization.limits});
    Ok(Reply::ok(&shown).about("limits", organization.id.to_string()).noting(note))
}

#[derive(Deserialize)]
struct Simulate {
    action: String,
    amount_micro_usd: Option<i64>,
    entity: Option<String>,
    user_id: Option<String>,
}

/// The body of a question.
pub fn simulate_body() -> Value {
    object(&[
        ("action", json!({"type": "string", "minLength": 3, "maxLength": 200})),
        ("amount_micro_usd?", nullable(&json!({"type": "integer", "minimum": 0}))),
        ("entity?", nullable(&json!({"type": "string", "maxLength": 2_000}))),
        ("user_id?", nullable(&reference())),
    ])
}

/// The answer of a question.
pub fn simulate_answer() -> Value {
    let amount = json!({"type": ["integer", "null"]});
    let cap = object(&[
        ("scope", json!({"type": "string"})),
        ("cap_micro_usd", amount),
        ("spent_micro_usd", json!({"type": "integer"})),
        ("reserved_micro_usd", json!({"type": "integer"})),
        ("resets_at", json!({"type": ["string", "null"]})),
        ("admits", json!({"type": "boolean"})),
    ]);
    object(&[
        ("verdict", json!({"enum": ["allow", "deny", "require_approval"]})),
        ("reason", json!({"type": ["string", "null"]})),
        ("policy_ids", json!({"type": "array", "items": {"type": "string"}})),
        (
            "shadow",
            json!({"type": "array", "items": object(&[("rule", json!({"type": "string"})), ("effect", json!({"type": "string"}))])}),
        ),
        ("user_id", nullable(&id())),
        ("caps", json!({"type": "array", "items": cap})),
    ])
}

/// `POST /v1/governance/simulate`: the verdict that the action would get now, without effect.
///
/// # Errors
/// 404 for another project's user, 400 for an action that no primitive declares.
pub async fn simulate(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let body: Simulate = request.body_as()?;
    let place = request.place()?;
    let live = app.registry.current();
    let declared = live.action(&body.action);
    let (primitive, spends) = declared.ok_or_else(|| {
        Refusal::invalid("action", "No installed primitive declares this action.")
    })?;
    let user = match &body.user_id {
        Some(text) => UserId::parse(text).ok_or_else(|| Refusal::resource_not_found("user_id"))?,
        None => request.principal()?.user.as_ref().unwrap_or(&place.project.default_user).clone(),
    };
    let absent = |refusal: Refusal| match refusal.code {
        Code::NotFound => Refusal::resource_not_found("user_id"),
        _ => refusal,
    };
    let tenant = app.directory.place_of_user(place, &place.project.id, &user).await;
    let tenant = tenant.map_err(absent)?;
    let revoked = tenant.user.as_ref().is_some_and(|user| !user.active);
    let case = gateway::case(&app.governance, &tenant.scope).await?;
    let now = app.clock.now();
    let asked = Asked {
        action: &body.action,
        entity: body.entity.as_deref().unwrap_or_default(),
        spends,
        amount: body.amount_micro_usd,
    };
    let grants: Vec<Grant> = gateway::grants(&app.governance, &case)
        .await?
        .into_iter()
        .map(|(grant, _)| grant)
        .collect();
    let subject = case.subject(Default::default());
    let decision =
        case.grounds(&subject, &case.zone()?, now).decide(&asked, &grants, &BTreeSet::new());
    let amount = body.amount_micro_usd.unwrap_or(0);
    let limits = case.limits(&app.governance, txn, &body.action, now).await?;
    let limited = limits.iter().any(|gauge| !gauge.admits(amount));
    let gauges = case.gauges(&app.governance, txn, &primitive.name, &[], now).await?;
    let mut over = None;
    let mut caps = Vec::new();
    for gauge in gauges.iter().filter(|gauge| gauge.cap.most.is_some()) {
        let admits = gauge.admits(if spends { amount } else { 0 });
        over = over.or((!admits && spends).then_some(gauge.cap.hard));
        caps.push(json!({
            "scope": gauge.cap.scope,
            "cap_micro_usd": gauge.cap.most,
            "spent_micro_usd": gauge.count.spent,
            "reserved_micro_usd": gauge.count.reserved,
            "resets_at": gauge.window.ends.map(|at| at.to_string()),
            "admits": admits,
        }));
    }
    let kit = case
        .kit
        .as_ref()
        .and_then(|kit| kit.decide(&primitive.name, primitive.active.manifest.gate).err());
    let no = leave::course(&decision, false, Person::Absent).err();
    let refusal = no.map(|no| no.refusal(&decision));
    let (verdict, reason) = match (revoked, kit.is_some(), refusal, over) {
        (true, ..) => ("deny", Some("profile_revoked".to_owned())),
        (_, true, ..) => ("deny", Some("primitive_disabled_by_kit".to_owned())),
        (.., Some(refusal), _) if refusal.reason.as_deref() == Some("policy_denied") => {
            ("deny", refusal.reason)
        }
        _ if limited => ("deny", Some("limit_exceeded".to_owned())),
        (.., Some(true)) => ("deny", Some("budget_exceeded".to_owned())),
        (.., Some(refusal), _) => ("require_approval", refusal.reason),
        (.., Some(false)) => ("require_approval", Some("budget_exceeded".to_owned())),
        (.., None) => ("allow", None),
    };
    Ok(Reply::ok(&json!({
        "verdict": verdict,
        "reason": reason,
        "policy_ids": decision.rules,
        "shadow": decision.shadow,
        "user_id": user,
        "caps": caps,
    })))
}

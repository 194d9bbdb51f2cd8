//! What waits for people, and their word: `/v1/approvals`.
//!
//! Only people decide: a session whose role decides, and never on what that very person asked for, unless nobody else could.

use charter_kernel::refusal::Refusal;
use charter_kernel::unit::{Reach, Space, Write};
use charter_store::{Query, Txn};
use serde::Deserialize;
use serde_json::{Value, json};

use super::shape::{self, id, instant, nullable, object};
use super::stored::{self, Versioned};
use crate::app::App;
use crate::authority::pinned_user;
use crate::governance::approvals;
use crate::records::Record as _;
use crate::records::approval::{Approval, Status, Word};
use crate::records::member::Member;
use crate::reply::Reply;
use crate::request::{HostRequest, Identity};

/// Members looked at for somebody else who could decide.
const MEMBERS_MAX: u32 = 1_000;

fn status() -> Value {
    json!({"enum": ["pending_approval", "approved", "executing", "succeeded", "failed", "denied", "expired", "canceled"]})
}

fn item() -> Value {
    let text = json!({"type": "string"});
    let any = json!({});
    object(&[
        ("id", id()),
        ("status", status()),
        ("action", text.clone()),
        ("primitive", text.clone()),
        ("entity", text.clone()),
        ("title", text.clone()),
        ("message", text.clone()),
        ("context", any.clone()),
        ("amount_micro_usd", json!({"type": ["integer", "null"]})),
        ("user_id", nullable(&id())),
        ("requested_by", object(&[("type", text.clone()), ("id", text.clone())])),
        ("request_id", text.clone()),
        ("request_sha256", text.clone()),
        ("policy_ids", json!({"type": "array", "items": text})),
        ("approvals_required", json!({"type": "integer"})),
        ("decisions", json!({"type": "array", "items": {"type": "object"}})),
        ("expires_at", instant()),
        ("created_at", instant()),
        ("resolved_at", nullable(&instant())),
        ("reason", json!({"type": ["string", "null"]})),
        ("result", any),
        ("error", json!({"type": ["object", "null"]})),
        ("version", json!({"type": "integer"})),
    ])
}

/// One approval.
pub fn answer() -> Value {
    object(&[("approval", item())])
}

/// A page of approvals.
pub fn list_answer() -> Value {
    shape::cursor_page("approvals", &item())
}

/// The query of the list.
pub fn list_query() -> Value {
    json!({"type": "object", "properties": {"status": status()}, "additionalProperties": false})
}

/// The body of a decision.
pub fn decide_body() -> Value {
    object(&[("reason?", nullable(&json!({"type": "string", "maxLength": 1_000})))])
}

fn view(approval: &Approval, version: u64) -> Value {
    json!({
        "id": approval.id,
        "status": approval.status,
        "action": approval.action,
        "primitive": approval.primitive,
        "entity": approval.entity,
        "title": approval.title,
        "message": approval.message,
        "context": approval.context,
        "amount_micro_usd": approval.amount_micro_usd,
        "user_id": approval.subject.user,
        "requested_by": {"type": approval.subject.actor.0, "id": approval.subject.actor.1},
        "request_id": approval.request_id,
        "request_sha256": approval.request_sha256,
        "policy_ids": approval.policy_ids,
        "approvals_required": approval.approvals_required,
        "decisions": approval.decisions,
        "expires_at": approval.expires_at,
        "created_at": approval.created_at,
        "resolved_at": approval.resolved_at,
        "reason": approval.reason,
        "result": approval.result,
        "error": approval.error,
        "version": version,
    })
}

async fn named(request: &HostRequest, txn: &mut Txn) -> Result<Versioned<Approval>, Refusal> {
    let organization = &request.place()?.organization.id;
    let key = Approval::address(organization.as_str(), request.parameter("id"));
    let found = stored::get::<Approval>(txn, &key).await?.ok_or_else(Refusal::not_found)?;
    match pinned_user(&request.identity) {
        Some(pinned) if found.record.subject.user.as_deref() != Some(pinned.as_str()) => Err(Refusal::not_found()),
        _ => Ok(found),
    }
}

/// `GET /v1/approvals`, newest first; a key that is pinned to a user sees that user's.
///
/// # Errors
/// When the store cannot be asked.
pub async fn list(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let reach = Reach::organization(request.place()?.organization.id.as_str());
    let limit = request.page.limit;
    let mut query = Query::all(&reach, &Space::host(Approval::COLLECTION)).limit(limit + 1).relaxed();
    query.after.clone_from(&request.page.position);
    if let Some(status) = request.query_text("status") {
        query = query.equal("status", status);
    }
    if let Some(pinned) = pinned_user(&request.identity) {
        query = query.equal("user", pinned.as_str());
    }
    let page = txn.find(&query).await.map_err(stored::reading)?;
    let mut items = Vec::new();
    for (_, row) in page.items.iter().take(limit as usize) {
        items.push(view(&Approval::read(row).map_err(stored::unreadable)?, row.version));
    }
    let more = page.items.len() > limit as usize;
    let last = page.items.iter().take(limit as usize).next_back().map(|(key, _)| key.id.as_str());
    Ok(Reply::ok(&shape::listed_at("approvals", items, &request.page, last.filter(|_| more))))
}

/// `GET /v1/approvals/{id}`
///
/// # Errors
/// 404 for another organization's, and to a pinned key for another user's.
pub async fn get(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let found = named(request, txn).await?;
    Ok(Reply::ok(&json!({"approval": view(&found.record, found.version)})))
}

#[derive(Deserialize)]
struct Decide {
    reason: Option<String>,
}

/// `POST /v1/approvals/{id}/approve`
///
/// # Errors
/// 403 for whoever may not decide, 409 where it is decided otherwise already.
pub async fn approve(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    decide(app, request, txn, "approve").await
}

/// `POST /v1/approvals/{id}/deny`
///
/// # Errors
/// The same.
pub async fn deny(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    decide(app, request, txn, "deny").await
}

async fn decide(app: &App, request: &HostRequest, txn: &mut Txn, decision: &str) -> Result<Reply, Refusal> {
    let person = "Only people decide: it takes the session of an owner, admin or approver.";
    let Identity::Session(session) = &request.identity else {
        return Err(Refusal::forbidden("person_required", person).hint("Sign in with POST /v1/auth/login."));
    };
    if !session.role.decides() {
        return Err(Refusal::forbidden("role_insufficient", person));
    }
    let body: Option<Decide> = if request.body.is_null() { None } else { Some(request.body_as()?) };
    let found = named(request, txn).await?;
    let mut approval = found.record;
    let account = session.account.to_string();
    if let Some(said) = approval.decisions.iter().find(|word| word.by == account) {
        // The same word again changes nothing; another one does not take it back.
        if said.decision == decision {
            return Ok(Reply::ok(&json!({"approval": view(&approval, found.version)})));
        }
        return Err(conflict(&approval));
    }
    if approval.status != Status::PendingApproval || request.now >= approval.expires_at {
        return Err(conflict(&approval));
    }
    let own = approval.asked_by.as_deref() == Some(account.as_str());
    if own && others_decide(txn, request, &account).await? {
        return Err(Refusal::forbidden("own_request", "Nobody decides on what they have asked for themselves."));
    }
    let reason = body.and_then(|body| body.reason);
    let word = Word { by: account, decision: decision.into(), reason: reason.clone(), self_approved: own, at: request.now };
    approval.decisions.push(word);
    let due_at = if decision == "deny" {
        (approval.status, approval.reason, approval.resolved_at) = (Status::Denied, reason, Some(request.now));
        approvals::release(txn, &approval, request.now).await?;
        approvals::unpark(txn, &approval, request.now).await?;
        approvals::tell(txn, &approval, request.now)?;
        request.now.plus_ms(crate::records::approval::KEPT_MS)
    } else if approval.decisions.len() >= usize::from(approval.approvals_required) {
        approval.status = Status::Approved;
        request.now
    } else {
        approval.expires_at
    };
    let draft = approval.due(due_at).map_err(stored::unreadable)?;
    txn.write(Write::Replace { key: approval.key(), draft, expected: Some(found.version) });
    let note = json!({
        "decision": decision, "action": approval.action, "request_sha256": approval.request_sha256, "self_approved": own,
        "before": {"status": "pending_approval"}, "after": {"status": approval.status},
    });
    app.job_wanted.notify_one();
    let shown = json!({"approval": view(&approval, found.version + 1)});
    Ok(Reply::ok(&shown).about("approval", approval.id.clone()).noting(note))
}

fn conflict(approval: &Approval) -> Refusal {
    let told = format!("The approval is {} already.", approval.status.as_str().replace('_', " "));
    Refusal::state_conflict("approval_decided", told).detail("status", approval.status.as_str())
}

/// Whether anybody else of the organization could decide.
async fn others_decide(txn: &mut Txn, request: &HostRequest, account: &str) -> Result<bool, Refusal> {
    let reach = Reach::organization(request.place()?.organization.id.as_str());
    let (members, _) = stored::list::<Member>(txn, &reach, &[], MEMBERS_MAX, 0).await?;
    Ok(members.iter().any(|member| member.record.role.decides() && member.record.account.as_str() != account))
}

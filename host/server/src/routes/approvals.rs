//! What waits for people, and their word: `/v1/approvals`.
//!
//! Only people decide: a session whose role decides, and never on what that very person asked for,
//! unless nobody else could.

use charter_kernel::id::UserId;
use charter_kernel::refusal::Refusal;
use charter_kernel::scope::Level;
use charter_kernel::unit::{Reach, Space};
use charter_store::{Query, Txn};
use serde::Deserialize;
use serde_json::{Value, json};

use super::shape::{self, id, instant, nullable, object};
use super::stored::{self, Versioned};
use crate::app::App;
use crate::governance::decide::{self, Decision, Person};
use crate::records::Record as _;
use crate::records::approval::{Approval, PROJECT};
use crate::records::link::{self, Link, Purpose};
use crate::reply::Reply;
use crate::request::{HostRequest, Identity};

/// Links of one approval that are shown.
const LINKS_MAX: u32 = 200;

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
        ("mails?", json!({"type": "array", "items": mail()})),
    ])
}

/// What became of telling one person.
fn mail() -> Value {
    object(&[
        ("account_id", id()),
        ("status", json!({"enum": ["waiting", "sent", "failed", "withheld"]})),
        ("reason", json!({"type": ["string", "null"]})),
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
    let place = request.place()?;
    let key = Approval::address(place.organization.id.as_str(), request.parameter("id"));
    let found = stored::get::<Approval>(txn, &key).await?.ok_or_else(Refusal::not_found)?;
    let subject = &found.record.subject;
    let within = match place.scope.level() {
        Level::User => subject.user.as_deref() == place.scope.named_user().map(UserId::as_str),
        Level::Project => subject.project.as_deref() == Some(place.project.id.as_str()),
        Level::Organization => true,
    };
    if within { Ok(found) } else { Err(Refusal::not_found()) }
}

/// `GET /v1/approvals`, newest first; a key that is pinned to a user sees that user's.
///
/// # Errors
/// When the store cannot be asked.
pub async fn list(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let place = request.place()?;
    let reach = Reach::organization(place.organization.id.as_str());
    let limit = request.page.limit;
    let mut query =
        Query::all(&reach, &Space::host(Approval::COLLECTION)).limit(limit + 1).relaxed();
    query.after.clone_from(&request.page.position);
    if let Some(status) = request.query_text("status") {
        query = query.equal("status", status);
    }
    match place.scope.level() {
        Level::User => {
            let user = place.scope.named_user().map(UserId::as_str).unwrap_or_default();
            query = query.equal("user", user);
        }
        Level::Project => query = query.equal(PROJECT, place.project.id.as_str()),
        Level::Organization => {}
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
    let mut shown = view(&found.record, found.version);
    shown["mails"] = Value::Array(mails(txn, &found.record).await?);
    Ok(Reply::ok(&json!({"approval": shown})))
}

/// Who was told of it by mail, and whether that arrived at the relay.
async fn mails(txn: &mut Txn, approval: &Approval) -> Result<Vec<Value>, Refusal> {
    let (links, _) = stored::list::<Link>(
        txn,
        &Reach::deployment(),
        &[(link::APPROVAL, &approval.id)],
        LINKS_MAX,
        0,
    )
    .await?;
    let own = |link: &Link| matches!(&link.purpose, Purpose::Approval { organization, .. } if *organization == approval.organization.as_str());
    let shown = |link: &Link| json!({"account_id": link.account, "status": link.mailed.as_str(), "reason": link.reason});
    Ok(links.iter().map(|link| &link.record).filter(|link| own(link)).map(shown).collect())
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
    decide(app, request, txn, Decision::Approve).await
}

/// `POST /v1/approvals/{id}/deny`
///
/// # Errors
/// The same.
pub async fn deny(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    decide(app, request, txn, Decision::Deny).await
}

async fn decide(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    decision: Decision,
) -> Result<Reply, Refusal> {
    let Identity::Session(session) = &request.identity else { return Err(Refusal::internal()) };
    let body: Option<Decide> = if request.body.is_null() { None } else { Some(request.body_as()?) };
    let found = named(request, txn).await?;
    let organization = &request.place()?.organization.id;
    let person = Person {
        organization,
        account: session.account.as_str(),
        role: session.role,
        via: "session",
    };
    let reason = body.and_then(|body| body.reason);
    let said =
        decide::decide(&app.governance, txn, &person, found, decision, reason, request.now).await?;
    let shown = Reply::ok(&json!({"approval": view(&said.approval, said.version)}));
    Ok(match said.note {
        Some(note) => shown.about("approval", said.approval.id).noting(note),
        None => shown,
    })
}

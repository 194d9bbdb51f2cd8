//! A person's session: reading it, ending it, and moving it to another of the person's
//! organizations.

use charter_kernel::id::{AccountId, OrganizationId, SessionId};
use charter_kernel::refusal::Refusal;
use charter_kernel::time::Instant;
use charter_kernel::unit::Reach;
use charter_store::Txn;
use charter_tenancy::secret::Plain;
use serde::Deserialize;
use serde_json::{Value, json};

use super::addresses::{account_schema, account_view};
use super::shape::{id, instant, name, object};
use super::stored;
use crate::app::App;
use crate::directory::SessionRecord;
use crate::directory::csrf_token;
use crate::public;
use crate::records::account::Account;
use crate::records::member::Member;
use crate::records::organization::Organization;
use crate::records::session::Session;
use crate::reply::Reply;
use crate::request::{HostRequest, Identity};

/// The cookie's name.
pub const COOKIE: &str = "service_session";

/// How many sessions one account has at once; the oldest ends when there are more.
const SESSIONS_MAX: u32 = 50;

/// Opens a session, and ends those of the account that have expired or are too many.
///
/// # Errors
/// When the store cannot be asked.
pub async fn open(
    txn: &mut Txn,
    id: SessionId,
    token: &Plain,
    account: &Account,
    organization: &OrganizationId,
    now: Instant,
    lifetime_ms: i64,
) -> Result<Session, Refusal> {
    let held = held(txn, &account.id).await?;
    let full = held.len() >= SESSIONS_MAX as usize;
    let oldest = held.iter().map(|held| held.created_at).min();
    for held in held
        .iter()
        .filter(|held| held.expires_at <= now || (full && Some(held.created_at) == oldest))
    {
        stored::remove(txn, held).await?;
    }
    let session = Session {
        id,
        digest: token.digest().stored(),
        account: account.id.clone(),
        organization: organization.clone(),
        password_version: account.password_version,
        created_at: now,
        expires_at: now.plus_ms(lifetime_ms),
    };
    stored::insert(txn, &session, "id").await?;
    Ok(session)
}

/// What the wire shows of a session.
pub fn view(session: &Session, token: &Plain) -> Value {
    json!({"id": session.id, "expires_at": session.expires_at, "csrf_token": csrf_token(token).reveal()})
}

/// The cookie that holds a session's token; `lifetime_ms` 0 removes it. `secure`: browsers send it
/// by encrypted connections alone.
pub fn cookie(token: &str, lifetime_ms: i64, secure: bool) -> String {
    let secure = if secure { "; Secure" } else { "" };
    format!(
        "{COOKIE}={token}; Path=/; HttpOnly; SameSite=Lax; Max-Age={}{secure}",
        lifetime_ms / 1000
    )
}

/// The session of a request.
///
/// # Errors
/// 401 without one.
pub fn of(request: &HostRequest) -> Result<&SessionRecord, Refusal> {
    match &request.identity {
        Identity::Session(session) => Ok(session),
        _ => Err(Refusal::unauthorized("This takes a session; sign in with POST /v1/auth/login.")),
    }
}

/// The answer of the session's routes.
pub fn answer() -> Value {
    let session = object(&[
        ("id", id()),
        ("expires_at", instant()),
        ("csrf_token", json!({"type": "string"})),
    ]);
    let organization = object(&[("id", id()), ("name", name())]);
    object(&[
        ("account", account_schema()),
        ("organization", organization.clone()),
        ("organizations", json!({"type": "array", "items": organization})),
        ("role", json!({"type": "string"})),
        ("session", session),
    ])
}

/// The answer to a session whose person was removed while it was being asked.
pub fn gone() -> Refusal {
    Refusal::unauthorized("The session has ended.").hint("Sign in with POST /v1/auth/login.")
}

async fn shown(
    txn: &mut Txn,
    session: &SessionRecord,
    selected: &OrganizationId,
    role: &str,
) -> Result<Value, Refusal> {
    let account = stored::get::<Account>(txn, &Account::address(&session.account)).await?;
    let account = account.ok_or_else(gone)?.record;
    let mut organizations = Vec::new();
    for id in &account.organizations {
        if let Some(organization) =
            stored::get::<Organization>(txn, &Organization::address(id)).await?
        {
            organizations.push(json!({"id": id, "name": organization.record.name}));
        }
    }
    let current =
        organizations.iter().find(|organization| organization["id"] == selected.as_str()).cloned();
    Ok(json!({
        "account": account_view(&account),
        "organization": current.ok_or_else(gone)?,
        "organizations": organizations,
        "role": role,
        "session": {"id": session.id, "expires_at": session.expires_at, "csrf_token": session.csrf_token.reveal()},
    }))
}

/// The session, its CSRF token again, and the organizations it can be moved to.
///
/// # Errors
/// 401 without a session.
pub async fn get(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let session = of(request)?;
    let answer = shown(txn, session, &session.organization, session.role.as_str()).await?;
    Ok(Reply::ok(&answer))
}

/// What ending a session answers.
pub fn ended() -> Value {
    object(&[("ok", json!({"const": true}))])
}

/// Ends the session.
///
/// # Errors
/// 401 without a session.
pub async fn delete(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let session = of(request)?;
    if let Some(found) = stored::get::<Session>(txn, &Session::address(&session.digest)).await? {
        stored::remove(txn, &found.record).await?;
    }
    let cleared = cookie("", 0, public::is_secure(&app.adapters, request.tls));
    Ok(Reply::ok(&json!({"ok": true}))
        .header(http::header::SET_COOKIE, &cleared)
        .about("session", session.id.to_string()))
}

fn item() -> Value {
    object(&[
        ("id", id()),
        ("organization_id", id()),
        ("current", json!({"type": "boolean"})),
        ("created_at", instant()),
        ("expires_at", instant()),
    ])
}

/// The answer of the list.
pub fn list_answer() -> Value {
    object(&[("sessions", json!({"type": "array", "items": item()}))])
}

async fn held(txn: &mut Txn, account: &AccountId) -> Result<Vec<Session>, Refusal> {
    let of = [("account", account.as_str())];
    let (held, _) =
        stored::list::<Session>(txn, &Reach::deployment(), &of, SESSIONS_MAX, 0).await?;
    Ok(held.into_iter().map(|held| held.record).collect())
}

/// The sessions of the person, oldest first: there are never more than `SESSIONS_MAX`.
///
/// # Errors
/// 401 without a session.
pub async fn list(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let session = of(request)?;
    let held = held(txn, &session.account).await?;
    let live = held.iter().filter(|held| request.now < held.expires_at);
    let shown = live.map(|held| {
        json!({
            "id": held.id,
            "organization_id": held.organization,
            "current": held.id == session.id,
            "created_at": held.created_at,
            "expires_at": held.expires_at,
        })
    });
    Ok(Reply::ok(&json!({"sessions": shown.collect::<Vec<_>>()})))
}

/// Ends one session of the person.
///
/// # Errors
/// 404 for a session that is not theirs, or has ended.
pub async fn revoke(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let session = of(request)?;
    let held = held(txn, &session.account).await?;
    let found = held.into_iter().find(|held| held.id.as_str() == request.parameter("id"));
    let found = found.ok_or_else(Refusal::not_found)?;
    stored::remove(txn, &found).await?;
    let answer = json!({"id": found.id, "deleted": true});
    Ok(Reply::ok(&answer).about("session", found.id.to_string()))
}

/// How many sessions ended.
pub fn revoked_answer() -> Value {
    object(&[("sessions_ended", json!({"type": "integer", "minimum": 0}))])
}

/// Ends all sessions of the person but the one that asks.
///
/// # Errors
/// 401 without a session.
pub async fn revoke_others(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Reply, Refusal> {
    let session = of(request)?;
    let ended = end_all(txn, &session.account, Some(&session.digest)).await?;
    Ok(Reply::ok(&json!({"sessions_ended": ended}))
        .about("account", session.account.to_string())
        .noting(json!({"sessions_ended": ended})))
}

/// Ends the sessions of an account in the caller's commit, but the one of this digest; answers how
/// many there were.
///
/// # Errors
/// When the store cannot be asked.
pub async fn end_all(
    txn: &mut Txn,
    account: &AccountId,
    but: Option<&str>,
) -> Result<usize, Refusal> {
    let mut ended = 0;
    for session in held(txn, account).await? {
        if but != Some(session.digest.as_str()) {
            stored::remove(txn, &session).await?;
            ended += 1;
        }
    }
    Ok(ended)
}

#[derive(Deserialize)]
struct Switch {
    company_id: String,
}

/// The body of a move to another organization.
pub fn switch_body() -> Value {
    object(&[("company_id", json!({"type": "string", "minLength": 1, "maxLength": 64}))])
}

/// Moves the session to another organization that the person is a member of.
///
/// # Errors
/// 403 when they are not.
pub async fn switch_company(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Reply, Refusal> {
    let session = of(request)?;
    let body: Switch = request.body_as()?;
    // An organization that does not exist and one of others read the same.
    let foreign =
        || Refusal::forbidden("not_a_member", "The account is not a member of this company.");
    let target = OrganizationId::parse(&body.company_id).ok_or_else(foreign)?;
    let member = stored::get::<Member>(txn, &Member::address(&target, &session.account))
        .await?
        .ok_or_else(foreign)?;
    let mut held =
        stored::get::<Session>(txn, &Session::address(&session.digest)).await?.ok_or_else(gone)?;
    let before = std::mem::replace(&mut held.record.organization, target.clone());
    stored::replace(txn, &held.record, "company_id").await?;
    let answer = shown(txn, session, &target, member.record.role.as_str()).await?;
    let note = json!({"before": {"organization_id": before}, "after": {"organization_id": target}});
    Ok(Reply::ok(&answer).about("session", session.id.to_string()).noting(note))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cookie_is_kept_from_scripts_other_sites_and_plain_connections() {
        assert_eq!(
            cookie("t", 14 * 24 * 3_600_000, true),
            "service_session=t; Path=/; HttpOnly; SameSite=Lax; Max-Age=1209600; Secure"
        );
        assert_eq!(
            cookie("", 0, false),
            "service_session=; Path=/; HttpOnly; SameSite=Lax; Max-Age=0"
        );
    }
}

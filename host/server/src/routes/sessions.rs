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

use super::shape::{id, instant, name, object};
use super::stored;
use crate::app::App;
use crate::directory::SessionRecord;
use crate::directory::csrf_token;
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
    account: &AccountId,
    organization: &OrganizationId,
    now: Instant,
    lifetime_ms: i64,
) -> Result<Session, Refusal> {
    let (held, _) = stored::list::<Session>(
        txn,
        &Reach::deployment(),
        &[("account", account.as_str())],
        SESSIONS_MAX,
        0,
    )
    .await?;
    let full = held.len() >= SESSIONS_MAX as usize;
    let oldest = held.iter().map(|held| held.record.created_at).min();
    for held in held.iter().filter(|held| {
        held.record.expires_at <= now || (full && Some(held.record.created_at) == oldest)
    }) {
        stored::remove(txn, &held.record).await?;
    }
    let session = Session {
        id,
        digest: token.digest().stored(),
        account: account.clone(),
        organization: organization.clone(),
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

/// The cookie that holds a session's token; `lifetime_ms` 0 removes it.
pub fn cookie(token: &str, lifetime_ms: i64, tls: bool) -> String {
    let secure = if tls { "; Secure" } else { "" };
    format!(
        "{COOKIE}={token}; Path=/; HttpOnly; SameSite=Lax; Max-Age={}{secure}",
        lifetime_ms / 1000
    )
}

fn of(request: &HostRequest) -> Result<&SessionRecord, Refusal> {
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
        ("account", object(&[("id", id()), ("email", json!({"type": "string"}))])),
        ("organization", organization.clone()),
        ("organizations", json!({"type": "array", "items": organization})),
        ("role", json!({"type": "string"})),
        ("session", session),
    ])
}

/// The answer to a session whose person was removed while it was being asked.
fn gone() -> Refusal {
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
        "account": {"id": account.id, "email": account.email},
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
pub async fn delete(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let session = of(request)?;
    if let Some(found) = stored::get::<Session>(txn, &Session::address(&session.digest)).await? {
        stored::remove(txn, &found.record).await?;
    }
    let cleared = cookie("", 0, request.tls);
    Ok(Reply::ok(&json!({"ok": true}))
        .header(http::header::SET_COOKIE, &cleared)
        .about("session", session.id.to_string()))
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

//! A person's session: reading it, ending it, and moving it to another of the person's
//! organizations.

use std::collections::BTreeSet;

use charter_adapters::public;
use charter_kernel::authority::Class;
use charter_kernel::id::{AccountId, OrganizationId, SessionId};
use charter_kernel::refusal::{Code, Refusal};
use charter_kernel::role::Role;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Reach, Write};
use charter_store::Txn;
use charter_tenancy::directory::{SessionRecord, csrf_token};
use charter_tenancy::identity::Identity;
use charter_tenancy::records::Record as _;
use charter_tenancy::records::account::Account;
use charter_tenancy::records::member::Member;
use charter_tenancy::records::organization::Organization;
use charter_tenancy::records::session::Session;
use charter_tenancy::secret::Plain;
use charter_tenancy::stored;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::auth;
use super::shape::{AccountItem, Deleted, EndedSessions, Named, Reference, Yes};
use crate::app::App;
use crate::handler;
use crate::request::HostRequest;
use crate::route::HostRoute;
use crate::serve::{Answer, Body};

/// The cookie's name.
pub const COOKIE: &str = "service_session";

/// How many sessions one account has; the oldest end when there are more. Sign-ins at the same
/// moment make a few more, until the next one.
const SESSIONS_MAX: u32 = 50;
/// How many rows of one account are looked at. Any beyond end with the others all the same: their
/// account or their membership says so.
const HELD_MAX: usize = 1_000;

/// Opens a session, and ends those of the account that are over or too many.
///
/// # Errors
/// When the store cannot be asked.
pub async fn open(
    txn: &mut Txn,
    id: SessionId,
    token: &Plain,
    account: &Account,
    member: &Member,
    now: Instant,
    lifetime_ms: i64,
) -> Result<Session, Refusal> {
    let is_over = |held: &Session| held.expires_at <= now || account.has_ended(held);
    let held = list_held(txn, &account.id).await?.into_iter();
    let (over, mut live): (Vec<_>, Vec<_>) = held.partition(is_over);
    live.sort_by_key(|held| held.created_at);
    let more = (live.len() + 1).saturating_sub(SESSIONS_MAX as usize);
    over.iter().chain(live.iter().take(more)).for_each(|held| remove(txn, &held.digest));
    let session = Session {
        id,
        digest: token.digest().hex(),
        account: account.id.clone(),
        organization: member.organization.clone(),
        password_version: account.password_version,
        sessions_version: account.sessions_version,
        member_since: Some(member.created_at),
        created_at: now,
        expires_at: now.plus_ms(lifetime_ms),
    };
    stored::insert(txn, &session, "id").await?;
    Ok(session)
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

/// The answer to a session whose person was removed while it was being asked.
pub fn person_gone() -> Refusal {
    Refusal::unauthorized("The session has ended.").hint("Sign in with POST /v1/auth/login.")
}

/// The rows of sessions.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::get(Class::OwnSession, "session.get", "/auth/session", handler!(get_session))
            .session()
            .summary("The session and its CSRF token"),
        HostRoute::delete(Class::OwnSession, "session.end", "/auth/session", handler!(end_session))
            .session()
            .summary("Sign out"),
        HostRoute::get(
            Class::OwnSession,
            "sessions.list",
            "/auth/sessions",
            handler!(list_sessions),
        )
        .session()
        .summary("The sessions of the person"),
        HostRoute::delete(
            Class::OwnSession,
            "sessions.revoke",
            "/auth/sessions/{id}",
            handler!(revoke_session),
        )
        .session()
        .summary("End a session of the person")
        .refuses(&[Code::NotFound]),
        HostRoute::delete(
            Class::OwnSession,
            "sessions.revoke_others",
            "/auth/sessions",
            handler!(revoke_other_sessions),
        )
        .session()
        .summary("End all other sessions of the person"),
        HostRoute::post(
            Class::OwnSession,
            "session.switch_company",
            "/auth/session/switch-company",
            handler!(switch_company),
        )
        .session()
        .summary("Move the session to another organization of the person"),
    ]
}

/// A session, with the token that its changes send in `X-Service-CSRF`.
#[derive(Serialize, JsonSchema)]
pub struct SessionItem {
    /// The session's id.
    id: SessionId,
    /// The moment of its end.
    expires_at: Instant,
    /// The token of its changes.
    csrf_token: String,
}

impl SessionItem {
    /// The answer's part of a session that was opened with this secret.
    pub fn of(session: &Session, token: &Plain) -> Self {
        Self {
            id: session.id.clone(),
            expires_at: session.expires_at,
            csrf_token: csrf_token(token).reveal().to_owned(),
        }
    }
}

/// The session, and the organizations that it can be moved to.
#[derive(Serialize, JsonSchema)]
pub struct SessionAnswer {
    account: AccountItem,
    /// The organization that it acts in.
    organization: Named,
    /// The person's organizations.
    organizations: Vec<Named>,
    /// The person's role in the one that it acts in.
    role: Role,
    session: SessionItem,
}

async fn describe(
    txn: &mut Txn,
    session: &SessionRecord,
    selected: &OrganizationId,
    role: Role,
) -> Result<SessionAnswer, Refusal> {
    let account = account_of(txn, session).await?;
    let mut organizations = Vec::new();
    for id in &account.organizations {
        if let Some(organization) =
            stored::get::<Organization>(txn, &Organization::address(id)).await?
        {
            organizations.push(Named::of(id.as_str(), &organization.record.name));
        }
    }
    let current = organizations.iter().find(|organization| &*organization.id == selected.as_str());
    Ok(SessionAnswer {
        account: AccountItem::of(&account),
        organization: current.ok_or_else(person_gone)?.clone(),
        organizations,
        role,
        session: SessionItem {
            id: session.id.clone(),
            expires_at: session.expires_at,
            csrf_token: session.csrf_token.reveal().to_owned(),
        },
    })
}

/// The answer to a sign-out.
#[derive(Serialize, JsonSchema)]
pub struct SignedOut {
    ok: Yes,
}

/// One of the person's sessions.
#[derive(Serialize, JsonSchema)]
struct OwnSession {
    /// The session's id.
    id: SessionId,
    /// The organization that it acts in.
    organization_id: OrganizationId,
    /// Whether it is the one that asks.
    current: bool,
    /// The moment of the sign-in.
    created_at: Instant,
    /// The moment of its end.
    expires_at: Instant,
}

/// The person's sessions.
#[derive(Serialize, JsonSchema)]
pub struct SessionList {
    sessions: Vec<OwnSession>,
}

/// The session, its CSRF token again, and the organizations it can be moved to.
///
/// # Errors
/// 401 without a session.
pub async fn get_session(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<SessionAnswer>, Refusal> {
    let session = of(request)?;
    Ok(Answer::of(&describe(txn, session, &session.organization, session.membership.role).await?))
}

/// Ends the session.
///
/// # Errors
/// 401 without a session.
pub async fn end_session(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<SignedOut>, Refusal> {
    let session = of(request)?;
    remove(txn, &session.digest);
    let cleared = cookie("", 0, public::is_secure(&app.adapters, request.tls));
    Ok(Answer::of(&SignedOut { ok: Yes })
        .header(http::header::SET_COOKIE, &cleared)
        .about("session", session.id.to_string()))
}

/// Removes a session's row unread: a request that moves the session meanwhile keeps it from nothing.
fn remove(txn: &mut Txn, digest: &str) {
    txn.write(Write::Remove { key: Session::address(digest), expected: None });
}

/// The rows of sessions of an account, also where they are more than `SESSIONS_MAX`.
async fn list_held(txn: &mut Txn, account: &AccountId) -> Result<Vec<Session>, Refusal> {
    let of = [("account", account.as_str())];
    let mut held = Vec::new();
    while held.len() < HELD_MAX {
        let offset = u32::try_from(held.len()).unwrap_or(u32::MAX);
        let (page, more) =
            stored::list::<Session>(txn, &Reach::deployment(), &of, SESSIONS_MAX, offset).await?;
        held.extend(page.into_iter().map(|held| held.record));
        if !more {
            break;
        }
    }
    Ok(held)
}

/// Those of an account's sessions that count. Nothing of it is validated at the commit.
async fn keep_live(
    txn: &mut Txn,
    account: &Account,
    mut held: Vec<Session>,
    now: Instant,
) -> Result<Vec<Session>, Refusal> {
    held.retain(|held| now < held.expires_at && account.admits(held));
    let selected: BTreeSet<_> = held.iter().map(|held| held.organization.clone()).collect();
    let mut members = Vec::new();
    for organization in &selected {
        let address = Member::address(organization, &account.id);
        let row = txn.get_relaxed(&address).await.map_err(stored::reading)?;
        let member = row.map(|row| Member::read(&row)).transpose();
        members.extend(member.map_err(stored::unreadable)?);
    }
    held.retain(|held| members.iter().any(|member| held.is_of(member)));
    Ok(held)
}

async fn account_of(txn: &mut Txn, session: &SessionRecord) -> Result<Account, Refusal> {
    let found = stored::get::<Account>(txn, &Account::address(&session.account)).await?;
    Ok(found.ok_or_else(person_gone)?.record)
}

/// The sessions of the person, oldest first.
///
/// # Errors
/// 401 without a session.
pub async fn list_sessions(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<SessionList>, Refusal> {
    let session = of(request)?;
    let account = account_of(txn, session).await?;
    let held = list_held(txn, &account.id).await?;
    let live = keep_live(txn, &account, held, request.now).await?;
    let sessions = live.into_iter().map(|held| OwnSession {
        organization_id: held.organization,
        current: held.id == session.id,
        id: held.id,
        created_at: held.created_at,
        expires_at: held.expires_at,
    });
    Ok(Answer::of(&SessionList { sessions: sessions.collect() }))
}

/// Ends one session of the person.
///
/// # Errors
/// 404 for a session that is not theirs, or has ended.
pub async fn revoke_session(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<Deleted>, Refusal> {
    let session = of(request)?;
    let account = account_of(txn, session).await?;
    let held = list_held(txn, &account.id).await?;
    let mut live = keep_live(txn, &account, held, request.now).await?.into_iter();
    let found = live.find(|held| held.id.as_str() == request.parameter("id"));
    let found = found.ok_or_else(Refusal::not_found)?;
    remove(txn, &found.digest);
    let answer = Deleted::of(found.id.as_str());
    Ok(Answer::of(&answer).about("session", found.id.to_string()))
}

/// Ends all sessions of the person but the one that asks.
///
/// # Errors
/// 401 without a session.
pub async fn revoke_other_sessions(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<EndedSessions>, Refusal> {
    let session = of(request)?;
    let mut account = account_of(txn, session).await?;
    let ended = end_all(txn, &mut account, Some(&session.id), request.now).await?;
    stored::replace(txn, &account, "email").await?;
    Ok(Answer::of(&EndedSessions { sessions_ended: ended })
        .about("account", session.account.to_string())
        .noting(json!({"sessions_ended": ended})))
}

/// Ends the sessions of an account, but this one, with the commit in which the caller writes the
/// account; answers how many there were. The account's word ends them all: the rows go unread, so
/// that no request of theirs delays it, and any that is not found goes at the next sign-in.
///
/// # Errors
/// When the store cannot be asked.
pub async fn end_all(
    txn: &mut Txn,
    account: &mut Account,
    but: Option<&SessionId>,
    now: Instant,
) -> Result<usize, Refusal> {
    let others = |held: &Session| but != Some(&held.id);
    let mut held = list_held(txn, &account.id).await?;
    held.retain(others);
    held.iter().for_each(|held| remove(txn, &held.digest));
    let ended = keep_live(txn, account, held, now).await?.len();
    account.end_sessions(but);
    Ok(ended)
}

/// Removes the rows of an account's sessions of an organization. They end with the membership: who
/// is invited anew has another one, and signs in anew.
///
/// # Errors
/// When the store cannot be asked.
pub async fn end_of(
    txn: &mut Txn,
    account: &AccountId,
    organization: &OrganizationId,
) -> Result<(), Refusal> {
    let held = list_held(txn, account).await?.into_iter();
    held.filter(|held| held.organization == *organization)
        .for_each(|held| remove(txn, &held.digest));
    Ok(())
}

/// The body of a move to another organization.
#[derive(Deserialize, JsonSchema)]
pub struct Switch {
    /// The organization's id.
    company_id: Reference,
}

/// Moves the session to another organization that the person is a member of.
///
/// # Errors
/// 403 when they are not.
pub async fn switch_company(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Body(body): Body<Switch>,
) -> Result<Answer<SessionAnswer>, Refusal> {
    let session = of(request)?;
    // An organization that does not exist and one of others read the same.
    let foreign =
        || Refusal::forbidden("not_a_member", "The account is not a member of this company.");
    let target = OrganizationId::parse(&body.company_id).ok_or_else(foreign)?;
    let member = stored::get::<Member>(txn, &Member::address(&target, &session.account))
        .await?
        .ok_or_else(foreign)?;
    let mut held = stored::get::<Session>(txn, &Session::address(&session.digest))
        .await?
        .ok_or_else(person_gone)?;
    held.record.organization = target.clone();
    held.record.member_since = Some(member.record.created_at);
    stored::replace(txn, &held.record, "company_id").await?;
    let answer = describe(txn, session, &target, member.record.role).await?;
    // Each organization hears of its own part: of another one that its member is in, it hears nothing.
    auth::audit(txn, request, "session.enter", 200, &target, &session.account)?;
    Ok(Answer::of(&answer).about("session", session.id.to_string()))
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

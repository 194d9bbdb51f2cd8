//! Invitations into an organization.
//!
//! The one-time token is handed to the inviter, who can hand it on; with a mail relay it is mailed
//! as well. Only its digest is kept. Whoever accepts proves the token, and the password of the
//! account if the address has one.
//!
//! An invitation is worth what its inviter is: it ends with the membership or the key that offered
//! it.

use charter_kernel::id::{AccountId, InvitationId, KeyId, OrganizationId};
use charter_kernel::refusal::Refusal;
use charter_kernel::role::Role;
use charter_kernel::time::Instant;
use charter_kernel::unit::Reach;
use charter_store::Txn;
use charter_tenancy::secret::Plain;
use serde::Deserialize;
use serde_json::{Value, json};

use super::shape::{self, check, checked, id, instant, name, object};
use super::{auth, links, members, stored};
use crate::app::App;
use crate::config::Registration;
use crate::directory::password;
use crate::mail;
use crate::records::Record as _;
use crate::records::account::{Account, ORGANIZATIONS_MAX, email_fault, normalised};
use crate::records::invitation::{INVITER, Invitation, LIFETIME_MS};
use crate::records::key::ApiKey;
use crate::records::member::Member;
use crate::records::organization::{Loosening, Organization};
use crate::reply::Reply;
use crate::request::{HostRequest, Identity};
use crate::routes::Head;
use crate::strangers;

/// How many invitations go with the commit that ends their inviter. Any beyond lead nowhere, and
/// are removed at their end.
const ENDED_MAX: u32 = 200;

fn item() -> Value {
    object(&[
        ("id", id()),
        ("email", json!({"type": "string"})),
        ("role", members::role_schema()),
        ("accept_token?", json!({"type": "string"})),
        ("mail?", json!({"enum": ["queued", "not_configured", "withheld", "rate_limited"]})),
        ("created_at", instant()),
        ("expires_at", instant()),
    ])
}

/// The answer to a new invitation: the only one that shows its token.
pub fn create_answer() -> Value {
    object(&[("invitation", item())])
}

/// The answer of the list.
pub fn list_answer() -> Value {
    shape::page("invitations", &item())
}

fn view(invitation: &Invitation) -> Value {
    json!({
        "id": invitation.id,
        "email": invitation.email,
        "role": invitation.role,
        "created_at": invitation.created_at,
        "expires_at": invitation.expires_at,
    })
}

#[derive(Deserialize)]
struct Create {
    email: String,
    role: Role,
}

/// The body of a new invitation.
pub fn create_body() -> Value {
    object(&[("email", shape::email()), ("role", members::role_schema())])
}

/// Whether the client may invite once more, ahead of the body.
///
/// # Errors
/// 429 after too many.
pub async fn may_invite(app: &App, head: Head<'_>) -> Result<(), Refusal> {
    app.strangers.admit(&app.strangers.invitation(head.peer), head.began)
}

/// Invites somebody. An earlier invitation of the same address ends.
///
/// # Errors
/// 403 where the caller may not, 409 for somebody who is a member.
pub async fn create(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let place = request.place()?;
    place.may_loosen()?;
    let body: Create = request.body_as()?;
    let email = body.email.trim().to_owned();
    let mut faults = Vec::new();
    check(&mut faults, "email", email_fault(&email));
    checked(faults)?;
    members::may_own(&request.identity, None, Some(body.role))?;
    if let Some(account) = stored::holder::<Account>(txn, &Account::claim(&email)).await? {
        let address = Member::address(&place.organization.id, &account.record.id);
        if stored::get::<Member>(txn, &address).await?.is_some() {
            return Err(Refusal::duplicate("email", "This person is a member already.")
                .hint("Change their role with PATCH."));
        }
    }
    let reach = Reach::organization(place.organization.id.as_str());
    let earlier = [("email", normalised(&email))];
    let earlier = earlier.each_ref().map(|(field, value)| (*field, value.as_str()));
    let (pending, _) =
        stored::list::<Invitation>(txn, &reach, &earlier, shape::PAGE_MAX, 0).await?;
    for invitation in &pending {
        remove(txn, &invitation.record).await?;
    }
    let token = Plain::generate("inv_").map_err(stored::no_randomness)?;
    let (ancestors, end) = match &request.identity {
        Identity::Key(key) => (key.ancestors.clone(), key.expires_at),
        _ => (Vec::new(), None),
    };
    let lifetime = request.now.plus_ms(LIFETIME_MS);
    let invitation = Invitation {
        id: InvitationId::new(request.now, stored::random()?),
        organization: place.organization.id.clone(),
        email,
        role: body.role,
        digest: token.digest().stored(),
        invited_by: request.identity.actor(),
        ancestors,
        created_at: request.now,
        // A key offers nothing for longer than it lives.
        expires_at: end.map_or(lifetime, |end| end.min(lifetime)),
    };
    // Validated at the commit: a demotion that comes first refuses this.
    if !standing(txn, &invitation, request.now).await? {
        return Err(Refusal::forbidden("role_insufficient", "The role does not invite any more."));
    }
    stored::insert(txn, &invitation, "email").await?;
    txn.claim(&Invitation::claim(&invitation.digest), &invitation.key())
        .await
        .map_err(stored::reading)?;
    let mailed = mail::invited::mailed(
        &app.adapters,
        txn,
        &invitation,
        &token,
        super::pages::invitation::PATH,
    )
    .await?;
    let mut shown = view(&invitation);
    shown["accept_token"] = json!(token.reveal());
    shown["mail"] = json!(mailed);
    let note = json!({"after": view(&invitation), "mail": mailed});
    Ok(Reply::created(&json!({"invitation": shown}))
        .about("invitation", invitation.id.to_string())
        .noting(note))
}

async fn remove(txn: &mut Txn, invitation: &Invitation) -> Result<(), Refusal> {
    txn.unclaim(&Invitation::claim(&invitation.digest), &invitation.key());
    stored::remove(txn, invitation).await
}

/// Whether whoever offered the invitation could offer it still: the member or the key is there,
/// with all keys that it descends from, and has the role for it. What is read is validated at the
/// commit.
///
/// # Errors
/// When the store cannot be asked.
async fn standing(txn: &mut Txn, invitation: &Invitation, now: Instant) -> Result<bool, Refusal> {
    let (organization, (kind, id)) = (&invitation.organization, &invitation.invited_by);
    if now >= invitation.expires_at {
        return Ok(false);
    }
    match kind.as_str() {
        "account" => {
            let Some(account) = AccountId::parse(id) else { return Ok(false) };
            let member =
                stored::get::<Member>(txn, &Member::address(organization, &account)).await?;
            // Somebody who left and came back begins anew.
            Ok(member.is_some_and(|member| {
                member.record.role.invites(invitation.role)
                    && member.record.created_at <= invitation.created_at
            }))
        }
        "key" => key_standing(txn, invitation, id, now).await,
        _ => Ok(false),
    }
}

async fn key_standing(
    txn: &mut Txn,
    invitation: &Invitation,
    id: &str,
    now: Instant,
) -> Result<bool, Refusal> {
    let Some(id) = KeyId::parse(id) else { return Ok(false) };
    let organization = &invitation.organization;
    let Some(key) = stored::get::<ApiKey>(txn, &ApiKey::address(organization, &id)).await? else {
        return Ok(false);
    };
    let key = key.record;
    if !key.role.invites(invitation.role) || key.expires_at.is_some_and(|end| now >= end) {
        return Ok(false);
    }
    for ancestor in &key.ancestors {
        if stored::get::<ApiKey>(txn, &ApiKey::address(organization, ancestor)).await?.is_none() {
            return Ok(false);
        }
    }
    // An organization that asks for a person's session by now takes no key's word.
    let found = stored::get::<Organization>(txn, &Organization::address(organization)).await?;
    Ok(found.is_some_and(|found| found.record.loosening != Loosening::Session))
}

/// Ends what a member or a key has offered, in the caller's commit; answers the ids. `keeps` is the
/// role that the inviter has from now on, if any: what that role may offer stays.
///
/// # Errors
/// When the store cannot be asked.
pub async fn end_of(
    txn: &mut Txn,
    organization: &OrganizationId,
    inviter: &str,
    keeps: Option<Role>,
) -> Result<Vec<InvitationId>, Refusal> {
    let reach = Reach::organization(organization.as_str());
    let (offered, _) =
        stored::list::<Invitation>(txn, &reach, &[(INVITER, inviter)], ENDED_MAX, 0).await?;
    let mut ended = Vec::new();
    for offered in offered {
        if keeps.is_some_and(|role| role.invites(offered.record.role)) {
            continue;
        }
        remove(txn, &offered.record).await?;
        ended.push(offered.record.id);
    }
    Ok(ended)
}

/// The invitations that can be accepted.
///
/// # Errors
/// 403 for a key that is pinned to a user.
pub async fn list(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let reach = Reach::organization(request.place()?.organization.id.as_str());
    let (limit, offset) = (request.page.limit, request.page.offset);
    let (invitations, more) = stored::list::<Invitation>(txn, &reach, &[], limit, offset).await?;
    let mut items = Vec::new();
    for invitation in &invitations {
        if standing(txn, &invitation.record, request.now).await? {
            items.push(view(&invitation.record));
        }
    }
    Ok(Reply::ok(&shape::listed("invitations", items, (limit, offset), more)))
}

/// Takes an invitation back.
///
/// # Errors
/// 404 for one that does not exist.
pub async fn delete(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let organization = &request.place()?.organization.id;
    let id = InvitationId::parse(request.parameter("id")).ok_or_else(Refusal::not_found)?;
    let found = stored::get::<Invitation>(txn, &Invitation::address(organization, &id)).await?;
    let invitation = found.ok_or_else(Refusal::not_found)?.record;
    remove(txn, &invitation).await?;
    let note = json!({"before": view(&invitation)});
    Ok(Reply::ok(&json!({"id": id, "deleted": true}))
        .about("invitation", id.to_string())
        .noting(note))
}

#[derive(Deserialize)]
struct Accept {
    token: String,
    password: String,
}

/// The body of an acceptance.
pub fn accept_body() -> Value {
    object(&[
        ("token", json!({"type": "string", "minLength": 1, "maxLength": 200})),
        ("password", shape::new_password()),
    ])
}

/// Its answer.
pub fn accept_answer() -> Value {
    object(&[
        ("account", object(&[("id", id()), ("email", json!({"type": "string"}))])),
        ("organization", object(&[("id", id()), ("name", name())])),
        ("role", members::role_schema()),
    ])
}

/// Accepts an invitation: with the password of the account that the address has, or with that of a
/// new one.
///
/// # Errors
/// 401 for a token that is unknown or has expired, or a wrong password, 429 after too many.
pub async fn accept(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let body: Accept = request.body_as()?;
    let attempt = links::throttled(app, request)?;
    let accepted = taken_up(app, request, txn, &body.token, body.password).await?;
    app.strangers.give_back(&attempt);
    let Accepted { account, organization, role } = accepted;
    let answer = json!({
        "account": {"id": account.id, "email": account.email},
        "organization": {"id": organization.id, "name": organization.name},
        "role": role,
    });
    Ok(Reply::created(&answer).about("member", account.id.to_string()))
}

/// The invitation of a token as long as it counts, the organization that it leads into, and whether
/// its address has an account.
///
/// # Errors
/// When the store cannot be asked.
pub async fn offered(
    txn: &mut Txn,
    token: &str,
    now: Instant,
) -> Result<Option<(Invitation, Organization, bool)>, Refusal> {
    let Some(invitation) = standing_of(txn, token, now).await? else { return Ok(None) };
    let organization =
        stored::get::<Organization>(txn, &Organization::address(&invitation.organization)).await?;
    let Some(organization) = organization else { return Ok(None) };
    let known =
        txn.lookup(&Account::claim(&invitation.email)).await.map_err(stored::reading)?.is_some();
    Ok(Some((invitation, organization.record, known)))
}

/// The invitation of a token, if it could be offered still.
async fn standing_of(
    txn: &mut Txn,
    token: &str,
    now: Instant,
) -> Result<Option<Invitation>, Refusal> {
    let digest = Plain::presented(token).digest();
    let invitation = stored::holder::<Invitation>(txn, &Invitation::claim(&digest.stored()))
        .await?
        .map(|found| found.record);
    let Some(invitation) = invitation.filter(|found| digest.is(&found.digest)) else {
        return Ok(None);
    };
    Ok(standing(txn, &invitation, now).await?.then_some(invitation))
}

/// An invitation that was accepted.
pub struct Accepted {
    /// By whom.
    pub account: Account,
    /// Into what.
    pub organization: Organization,
    /// As what.
    pub role: Role,
}

/// Accepts it, with the password of the account that its address has, or with that of a new one.
///
/// # Errors
/// As of [`accept`].
pub async fn taken_up(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    token: &str,
    password: String,
) -> Result<Accepted, Refusal> {
    let ended = || {
        Refusal::unauthorized("The invitation does not exist, was accepted, or has ended.")
            .hint("Ask for a new one.")
    };
    let invitation = standing_of(txn, token, request.now).await?.ok_or_else(ended)?;
    let organization =
        stored::get::<Organization>(txn, &Organization::address(&invitation.organization)).await?;
    let organization = organization.ok_or_else(Refusal::not_found)?.record;
    let account = match stored::holder::<Account>(txn, &Account::claim(&invitation.email)).await? {
        Some(_) => existing(app, request, txn, &invitation, password).await?,
        None => fresh(app, request, txn, &invitation, password).await?,
    };
    let member = Member {
        organization: organization.id.clone(),
        account: account.id.clone(),
        email: account.email.clone(),
        role: invitation.role,
        created_at: request.now,
    };
    stored::insert(txn, &member, "token").await?;
    remove(txn, &invitation).await?;
    auth::audited(txn, request, "auth.accept", 201, &organization.id, &account.id)?;
    Ok(Accepted { account, organization, role: member.role })
}

async fn existing(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    invitation: &Invitation,
    password: String,
) -> Result<Account, Refusal> {
    let proven = auth::authenticate(app, request, &invitation.email, password).await?;
    let proven = proven
        .ok_or_else(|| Refusal::unauthorized("The password of this address's account is wrong."))?;
    let found = stored::get::<Account>(txn, &Account::address(&proven.id)).await?;
    let mut account = found.ok_or_else(Refusal::internal)?.record;
    if account.organizations.contains(&invitation.organization) {
        return Err(Refusal::duplicate("token", "This person is a member already."));
    }
    if account.organizations.len() >= ORGANIZATIONS_MAX {
        return Err(Refusal::state_conflict(
            "too_many_organizations",
            "The account is a member of as many organizations as it can be.",
        ));
    }
    account.organizations.push(invitation.organization.clone());
    stored::replace(txn, &account, "email").await?;
    Ok(account)
}

async fn fresh(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    invitation: &Invitation,
    password: String,
) -> Result<Account, Refusal> {
    if app.config.auth.registration == Registration::Closed {
        return Err(Refusal::forbidden(
            "registration_closed",
            "This deployment makes no new accounts.",
        )
        .hint("Ask the operator of this deployment for an account."));
    }
    let mut faults = Vec::new();
    check(&mut faults, "password", password::fault(&password, &invitation.email));
    checked(faults)?;
    let client = strangers::client(request.peer);
    let password_hash =
        app.directory.passwords().hash(&client, password).await.map_err(auth::busy)?;
    let account = Account {
        id: AccountId::new(request.now, stored::random()?),
        email: invitation.email.clone(),
        password_hash,
        organizations: vec![invitation.organization.clone()],
        created_at: request.now,
    };
    stored::insert(txn, &account, "email").await?;
    Ok(account)
}

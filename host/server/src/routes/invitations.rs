//! Invitations into an organization.
//!
//! Without a mail relay the one-time token is handed to the inviter, who hands it on; only its digest is kept. Whoever accepts
//! proves the token, and the password of the account if the address has one.

use charter_kernel::id::{AccountId, InvitationId};
use charter_kernel::refusal::Refusal;
use charter_kernel::role::Role;
use charter_kernel::unit::Reach;
use charter_store::Txn;
use serde::Deserialize;
use serde_json::{Value, json};

use super::shape::{self, check, checked, id, instant, name, object};
use super::{auth, members, stored};
use crate::app::App;
use crate::authority::{actor, loosen, organization_wide, sees_organization};
use crate::config::Registration;
use crate::directory::password;
use crate::directory::secret::Plain;
use crate::records::Record as _;
use crate::records::account::{Account, ORGANIZATIONS_MAX, email_fault, normalised};
use crate::records::invitation::{Invitation, LIFETIME_MS};
use crate::records::member::Member;
use crate::records::organization::Organization;
use crate::reply::Reply;
use crate::request::HostRequest;

fn item() -> Value {
    object(&[
        ("id", id()),
        ("email", json!({"type": "string"})),
        ("role", members::role_schema()),
        ("accept_token?", json!({"type": "string"})),
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
    object(&[("email", json!({"type": "string", "maxLength": 254})), ("role", members::role_schema())])
}

/// Invites somebody. An earlier invitation of the same address ends.
///
/// # Errors
/// 403 where the caller may not, 409 for somebody who is a member.
pub async fn create(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    organization_wide(&request.identity)?;
    let place = request.place()?;
    loosen(&request.identity, &place.organization)?;
    let body: Create = request.body_as()?;
    let email = body.email.trim().to_owned();
    let mut faults = Vec::new();
    check(&mut faults, "email", email_fault(&email));
    checked(faults)?;
    members::may_own(&request.identity, None, Some(body.role))?;
    if let Some(account) = stored::holder::<Account>(txn, &Account::claim(&email)).await? {
        let address = Member::address(&place.organization.id, &account.record.id);
        if stored::get::<Member>(txn, &address).await?.is_some() {
            return Err(Refusal::duplicate("email", "This person is a member already.").hint("Change their role with PATCH."));
        }
    }
    let reach = Reach::organization(place.organization.id.as_str());
    let earlier = [("email", normalised(&email))];
    let earlier = earlier.each_ref().map(|(field, value)| (*field, value.as_str()));
    let (pending, _) = stored::list::<Invitation>(txn, &reach, &earlier, shape::PAGE_MAX, 0).await?;
    for invitation in &pending {
        remove(txn, &invitation.record).await?;
    }
    let token = Plain::generate("inv_").map_err(stored::no_randomness)?;
    let invitation = Invitation {
        id: InvitationId::new(request.now, stored::random()?),
        organization: place.organization.id.clone(),
        email,
        role: body.role,
        digest: token.digest().stored(),
        invited_by: actor(&request.identity),
        created_at: request.now,
        expires_at: request.now.plus_ms(LIFETIME_MS),
    };
    stored::insert(txn, &invitation, "email").await?;
    txn.claim(&Invitation::claim(&invitation.digest), &invitation.key()).await.map_err(stored::reading)?;
    let mut shown = view(&invitation);
    shown["accept_token"] = json!(token.reveal());
    let note = json!({"after": view(&invitation)});
    Ok(Reply::created(&json!({"invitation": shown})).about("invitation", invitation.id.to_string()).noting(note))
}

async fn remove(txn: &mut Txn, invitation: &Invitation) -> Result<(), Refusal> {
    txn.unclaim(&Invitation::claim(&invitation.digest), &invitation.key());
    stored::remove(txn, invitation).await
}

/// The invitations that were not accepted.
///
/// # Errors
/// 403 for a key that is pinned to a user.
pub async fn list(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    sees_organization(&request.identity)?;
    let reach = Reach::organization(request.place()?.organization.id.as_str());
    let (limit, offset) = (request.page.limit, request.page.offset);
    let (invitations, more) = stored::list::<Invitation>(txn, &reach, &[], limit, offset).await?;
    let items = invitations.iter().map(|invitation| view(&invitation.record)).collect();
    Ok(Reply::ok(&shape::listed("invitations", items, (limit, offset), more)))
}

/// Takes an invitation back.
///
/// # Errors
/// 404 for one that does not exist.
pub async fn delete(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    organization_wide(&request.identity)?;
    let organization = &request.place()?.organization.id;
    let id = InvitationId::parse(request.parameter("id")).ok_or_else(Refusal::not_found)?;
    let found = stored::get::<Invitation>(txn, &Invitation::address(organization, &id)).await?;
    let invitation = found.ok_or_else(Refusal::not_found)?.record;
    remove(txn, &invitation).await?;
    let note = json!({"before": view(&invitation)});
    Ok(Reply::ok(&json!({"id": id, "deleted": true})).about("invitation", id.to_string()).noting(note))
}

#[derive(Deserialize)]
struct Accept {
    token: String,
    password: String,
}

/// The body of an acceptance.
pub fn accept_body() -> Value {
    object(&[("token", json!({"type": "string", "minLength": 1, "maxLength": 200})), ("password", json!({"type": "string"}))])
}

/// Its answer.
pub fn accept_answer() -> Value {
    object(&[
        ("account", object(&[("id", id()), ("email", json!({"type": "string"}))])),
        ("organization", object(&[("id", id()), ("name", name())])),
        ("role", members::role_schema()),
    ])
}

/// Accepts an invitation: with the password of the account that the address has, or with that of a new one.
///
/// # Errors
/// 401 for a token that is unknown or has expired, or a wrong password.
pub async fn accept(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let body: Accept = request.body_as()?;
    let digest = Plain::presented(&body.token).digest();
    let invitation = stored::holder::<Invitation>(txn, &Invitation::claim(&digest.stored())).await?.map(|found| found.record);
    let invitation =
        invitation.filter(|found| digest.is(&found.digest) && request.now < found.expires_at).ok_or_else(|| {
            Refusal::unauthorized("The invitation does not exist, was accepted, or has expired.").hint("Ask for a new one.")
        })?;
    let organization = stored::get::<Organization>(txn, &Organization::address(&invitation.organization)).await?;
    let organization = organization.ok_or_else(Refusal::not_found)?.record;
    let account = match stored::holder::<Account>(txn, &Account::claim(&invitation.email)).await? {
        Some(_) => existing(app, request, txn, &invitation, body.password).await?,
        None => fresh(app, request, txn, &invitation, body.password).await?,
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
    let answer = json!({
        "account": {"id": account.id, "email": account.email},
        "organization": {"id": organization.id, "name": organization.name},
        "role": member.role,
    });
    auth::audited(txn, request, "auth.accept", 201, &organization.id, &account.id)?;
    Ok(Reply::created(&answer).about("member", account.id.to_string()))
}

async fn existing(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    invitation: &Invitation,
    password: String,
) -> Result<Account, Refusal> {
    let proven = auth::authenticate(app, request, &invitation.email, password).await?;
    let proven = proven.ok_or_else(|| Refusal::unauthorized("The password of this address's account is wrong."))?;
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
        return Err(Refusal::forbidden("registration_closed", "This deployment makes no new accounts.")
            .hint("Ask the operator of this deployment for an account."));
    }
    let mut faults = Vec::new();
    check(&mut faults, "password", password::fault(&password, &invitation.email));
    checked(faults)?;
    let account = Account {
        id: AccountId::new(request.now, stored::random()?),
        email: invitation.email.clone(),
        password_hash: app.directory.passwords().hash(password).await.map_err(auth::busy)?,
        organizations: vec![invitation.organization.clone()],
        created_at: request.now,
    };
    stored::insert(txn, &account, "email").await?;
    Ok(account)
}

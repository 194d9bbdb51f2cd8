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

use super::addresses::{self, account_schema, account_view};
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
    // One of its own: the inviter was never mailed it, and so it proves the address.
    let mailed_token = Plain::generate("inv_").map_err(stored::no_randomness)?;
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
        mailed: mail::ready(&app.adapters).is_ok().then(|| mailed_token.digest().stored()),
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
    for digest in invitation.digests() {
        txn.claim(&Invitation::claim(digest), &invitation.key()).await.map_err(stored::reading)?;
    }
    let mailed = mail::invited::mailed(
        &app.adapters,
        txn,
        &invitation,
        &mailed_token,
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
    for digest in invitation.digests() {
        txn.unclaim(&Invitation::claim(digest), &invitation.key());
    }
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

/// How an invitation is accepted.
#[derive(Deserialize)]
pub struct Accept {
    /// The one-time token.
    pub token: String,
    /// The password of the account that its address has, or of a new one.
    pub password: String,
    /// Whether a new account is made although the address has one that was not proved.
    #[serde(default)]
    pub new_account: bool,
}

/// The body of an acceptance.
pub fn accept_body() -> Value {
    object(&[
        ("token", json!({"type": "string", "minLength": 1, "maxLength": 200})),
        ("password", shape::new_password()),
        ("new_account?", json!({"type": "boolean", "default": false})),
    ])
}

/// Its answer.
pub fn accept_answer() -> Value {
    object(&[
        ("account", account_schema()),
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
    let accepted = taken_up(app, request, txn, body).await?;
    app.strangers.give_back(&attempt);
    let Accepted { account, organization, role } = accepted;
    let answer = json!({
        "account": account_view(&account),
        "organization": {"id": organization.id, "name": organization.name},
        "role": role,
    });
    Ok(Reply::created(&answer).about("member", account.id.to_string()))
}

/// What the token of an invitation leads to.
pub struct Offered {
    /// The invitation.
    pub invitation: Invitation,
    /// The organization that it leads into.
    pub organization: Organization,
    /// The account that its address has.
    pub account: Option<Account>,
    /// Whether the token is the one that was mailed.
    pub by_mail: bool,
}

/// The invitation of a token as long as it counts.
///
/// # Errors
/// When the store cannot be asked.
pub async fn offered(txn: &mut Txn, token: &str, now: Instant) -> Result<Option<Offered>, Refusal> {
    let Some((invitation, by_mail)) = standing_of(txn, token, now).await? else { return Ok(None) };
    let organization =
        stored::get::<Organization>(txn, &Organization::address(&invitation.organization)).await?;
    let Some(organization) = organization else { return Ok(None) };
    let account = stored::holder::<Account>(txn, &Account::claim(&invitation.email)).await?;
    let account = account.map(|found| found.record);
    Ok(Some(Offered { invitation, organization: organization.record, account, by_mail }))
}

/// The invitation of a token, if it could be offered still, and whether the token was mailed.
async fn standing_of(
    txn: &mut Txn,
    token: &str,
    now: Instant,
) -> Result<Option<(Invitation, bool)>, Refusal> {
    let digest = Plain::presented(token).digest();
    let invitation = stored::holder::<Invitation>(txn, &Invitation::claim(&digest.stored()))
        .await?
        .map(|found| found.record);
    let is_one = |found: &Invitation| found.digests().any(|known| digest.is(known));
    let Some(invitation) = invitation.filter(is_one) else { return Ok(None) };
    let by_mail = invitation.mailed.as_deref().is_some_and(|mailed| digest.is(mailed));
    Ok(standing(txn, &invitation, now).await?.then_some((invitation, by_mail)))
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

/// Accepts it, with the password of the account that its address has, or with that of a new one. A
/// mailed token proves the address: it makes a new account even where the address has one that was
/// not proved, and that one then loses it.
///
/// # Errors
/// As of [`accept`].
pub async fn taken_up(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    wanted: Accept,
) -> Result<Accepted, Refusal> {
    let ended = || {
        Refusal::unauthorized("The invitation does not exist, was accepted, or has ended.")
            .hint("Ask for a new one.")
    };
    let offered = offered(txn, &wanted.token, request.now).await?.ok_or_else(ended)?;
    let Offered { invitation, organization, account, by_mail } = offered;
    let proved_at = by_mail.then_some(request.now);
    let account = match account {
        Some(holder) if wanted.new_account => {
            if !by_mail {
                return Err(not_mailed());
            }
            addresses::take_from(txn, request, holder).await?;
            fresh(app, request, txn, &invitation, wanted.password, proved_at).await?
        }
        Some(_) => existing(app, request, txn, &invitation, wanted.password, proved_at).await?,
        None => fresh(app, request, txn, &invitation, wanted.password, proved_at).await?,
    };
    addresses::prove_by(txn, &organization.id, &account, invitation.role).await?;
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

/// The token that the inviter has proves nothing of the address.
fn not_mailed() -> Refusal {
    Refusal::forbidden(
        "address_not_proved",
        "The address has an account, and this token does not prove that the address is yours.",
    )
    .hint("Take the link of the mailed invitation, or accept with the password of that account.")
}

async fn existing(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    invitation: &Invitation,
    password: String,
    proved_at: Option<Instant>,
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
    if let Some(at) = proved_at {
        addresses::verify(txn, &mut account, at).await?;
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
    email_verified_at: Option<Instant>,
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
        password_version: 0,
        organizations: vec![invitation.organization.clone()],
        email_verified_at,
        created_at: request.now,
    };
    stored::insert(txn, &account, "email").await?;
    Ok(account)
}

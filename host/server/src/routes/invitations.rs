//! Invitations into an organization.
//!
//! The one-time token is handed to the inviter, who can hand it on; with a mail relay it is mailed
//! as well. Only its digest is kept. Accepting takes the token, and the password of the account if
//! the address has one.
//!
//! An invitation is worth what its inviter is: it ends with the membership or the key that offered
//! it.

use charter_adapters::mail;
use charter_kernel::authority::Class;
use charter_kernel::id::{AccountId, InvitationId, KeyId, OrganizationId};
use charter_kernel::manifest::{Access, Paging};
use charter_kernel::refusal::{Code, Refusal};
use charter_kernel::role::Role;
use charter_kernel::time::Instant;
use charter_kernel::unit::Reach;
use charter_store::Txn;
use charter_tenancy::directory::password;
use charter_tenancy::identity::Identity;
use charter_tenancy::records::Record as _;
use charter_tenancy::records::account::{Account, ORGANIZATIONS_MAX, email_fault, normalize};
use charter_tenancy::records::invitation::{INVITER, Invitation, LIFETIME_MS};
use charter_tenancy::records::key::ApiKey;
use charter_tenancy::records::member::Member;
use charter_tenancy::records::organization::{Loosening, Organization};
use charter_tenancy::secret::Plain;
use charter_tenancy::stored;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::addresses;
use super::shape::{
    self, AccountItem, Deleted, Email, Named, NewPassword, Offset, Token, check, refuse_faults,
};
use super::{auth, links, members};
use crate::app::App;
use crate::bounds::strangers;
use crate::config::Registration;
use crate::reply::AuditLog;
use crate::request::HostRequest;
use crate::route::{Head, HostRoute};
use crate::serve::{Answer, Body, Created};
use crate::{ahead, handler};

/// The path that a mailed invitation leads to.
pub const PATH: &str = "/invitation";
/// How many invitations go with the commit that ends or demotes their inviter. Any beyond lead
/// nowhere for good, and are removed at their end.
const ENDED_MAX: u32 = 200;

/// The rows of invitations.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::post(
            Class::Open,
            "auth.accept",
            "/auth/invitations/accept",
            handler!(accept_invitation),
        )
        .open()
        .summary("Accept an invitation")
        .refuses(&[
            Code::Unauthorized,
            Code::DuplicateRecord,
            Code::StateConflict,
            Code::RateLimited,
        ]),
        HostRoute::post(
            Class::Loosening,
            "members.invite",
            "/organization/members",
            handler!(invite_member),
        )
        .summary("Invite somebody into the organization")
        .ahead(ahead!(may_invite))
        .refuses(&[Code::RateLimited]),
        HostRoute::get(
            Class::OrganizationRead,
            "invitations.list",
            "/organization/invitations",
            handler!(list_invitations),
        )
        .summary("List invitations that were not accepted")
        .paging(Paging::Offset),
        HostRoute::delete(
            Class::OrganizationChange,
            "invitations.revoke",
            "/organization/invitations/{id}",
            handler!(revoke_invitation),
        )
        .access(Access::Admin)
        .summary("Take an invitation back"),
    ]
}

/// The body of a new invitation.
#[derive(Deserialize, JsonSchema)]
pub struct NewInvitation {
    /// The address of the person.
    email: Email,
    /// The role that is offered.
    role: Role,
}

/// An invitation that was not accepted.
#[derive(Serialize, JsonSchema)]
struct InvitationItem {
    /// The invitation's id.
    id: InvitationId,
    /// The address of the person.
    email: String,
    /// The role that is offered.
    role: Role,
    /// The token that accepts it, in the only answer that shows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    accept_token: Option<String>,
    /// Whether it is mailed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "MailState")]
    mail: Option<&'static str>,
    /// The moment of its creation.
    created_at: Instant,
    /// The moment of its end.
    expires_at: Instant,
}

/// Whether an invitation is mailed.
#[derive(JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "the mail's own module has the texts; this is their schema")]
enum MailState {
    Queued,
    NotConfigured,
    Withheld,
    RateLimited,
}

impl InvitationItem {
    fn of(invitation: &Invitation) -> Self {
        Self {
            id: invitation.id.clone(),
            email: invitation.email.clone(),
            role: invitation.role,
            accept_token: None,
            mail: None,
            created_at: invitation.created_at,
            expires_at: invitation.expires_at,
        }
    }
}

/// A new invitation.
#[derive(Serialize, JsonSchema)]
pub struct MadeInvitation {
    invitation: InvitationItem,
}

/// A page of invitations.
#[derive(Serialize, JsonSchema)]
pub struct InvitationPage {
    invitations: Vec<InvitationItem>,
    #[serde(flatten)]
    page: Offset,
}

/// Whether the client may invite once more, ahead of the body.
///
/// # Errors
/// 429 after too many.
pub async fn may_invite(app: &App, head: Head<'_>) -> Result<(), Refusal> {
    app.bounds.strangers.admit(&app.bounds.strangers.invitation(head.peer), head.began)
}

/// Invites somebody. An earlier invitation of the same address ends.
///
/// # Errors
/// 403 where the caller may not, 409 for somebody who is a member.
pub async fn invite_member(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Body(body): Body<NewInvitation>,
) -> Result<Created<MadeInvitation>, Refusal> {
    let place = request.place()?;
    place.may_loosen()?;
    let email = body.email.trim().to_owned();
    let mut faults = Vec::new();
    check(&mut faults, "email", email_fault(&email));
    refuse_faults(faults)?;
    members::may_own(&request.identity, None, Some(body.role))?;
    members::may_appoint(&request.identity, body.role)?;
    if let Some(account) = stored::holder::<Account>(txn, &Account::claim(&email)).await? {
        let address = Member::address(&place.organization().id, &account.record.id);
        if stored::get::<Member>(txn, &address).await?.is_some() {
            return Err(Refusal::duplicate("email", "This person is a member already.")
                .hint("Change their role with PATCH."));
        }
    }
    end_earlier(txn, &place.organization().id, &email).await?;
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
        organization: place.organization().id.clone(),
        email,
        role: body.role,
        digest: token.digest().hex(),
        mailed: mail::ready(&app.adapters).is_ok().then(|| mailed_token.digest().hex()),
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
    let mailed =
        mail::invited::enqueue(&app.adapters, txn, &invitation, &mailed_token, PATH).await?;
    let shown = InvitationItem::of(&invitation);
    let note = json!({"after": shown, "mail": mailed});
    let (accept_token, mail) = (Some(token.reveal().to_owned()), Some(mailed));
    let invitation_item = InvitationItem { accept_token, mail, ..shown };
    Ok(Created::of(&MadeInvitation { invitation: invitation_item })
        .about("invitation", invitation.id.to_string())
        .with_log(AuditLog::Organization)
        .noting(note))
}

async fn end_earlier(
    txn: &mut Txn,
    organization: &OrganizationId,
    email: &str,
) -> Result<(), Refusal> {
    let (reach, email) = (Reach::organization(organization.as_str()), normalize(email));
    let of_address = [("email", email.as_str())];
    let (pending, _) =
        stored::list::<Invitation>(txn, &reach, &of_address, shape::PAGE_MAX, 0).await?;
    for invitation in &pending {
        remove(txn, &invitation.record).await?;
    }
    Ok(())
}

async fn remove(txn: &mut Txn, invitation: &Invitation) -> Result<(), Refusal> {
    for digest in invitation.digests() {
        txn.unclaim(&Invitation::claim(digest), &invitation.key());
    }
    stored::remove(txn, invitation).await
}

/// Whether whoever offered the invitation could offer it ever since: the member or the key is there,
/// with all keys that it descends from, and has the role for it. Every read is validated at the
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
            Ok(member.is_some_and(|member| {
                member.record.offers_since(invitation.role, invitation.created_at)
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
    // An organization that asks for a person's session takes no key's word, nor one from before.
    let found = stored::get::<Organization>(txn, &Organization::address(organization)).await?;
    Ok(found.map(|found| found.record).is_some_and(|found| {
        found.loosening != Loosening::Session
            && found.loosening_since.is_none_or(|since| invitation.created_at >= since)
    }))
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
pub async fn list_invitations(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<InvitationPage>, Refusal> {
    let reach = Reach::organization(request.place()?.organization().id.as_str());
    let (limit, offset) = (request.page.limit, request.page.offset);
    let (invitations, more) = stored::list::<Invitation>(txn, &reach, &[], limit, offset).await?;
    let mut items = Vec::new();
    for invitation in &invitations {
        if standing(txn, &invitation.record, request.now).await? {
            items.push(InvitationItem::of(&invitation.record));
        }
    }
    let page = Offset::of(&request.page, more);
    Ok(Answer::of(&InvitationPage { invitations: items, page }))
}

/// Takes an invitation back.
///
/// # Errors
/// 404 for one that does not exist.
pub async fn revoke_invitation(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<Deleted>, Refusal> {
    let organization = &request.place()?.organization().id;
    let id = InvitationId::parse(request.parameter("id")).ok_or_else(Refusal::not_found)?;
    let found = stored::get::<Invitation>(txn, &Invitation::address(organization, &id)).await?;
    let invitation = found.ok_or_else(Refusal::not_found)?.record;
    remove(txn, &invitation).await?;
    let note = json!({"before": InvitationItem::of(&invitation)});
    let answer = Deleted::of(id.as_str());
    Ok(Answer::of(&answer)
        .about("invitation", id.to_string())
        .with_log(AuditLog::Organization)
        .noting(note))
}

/// The body of an acceptance.
#[derive(Deserialize, JsonSchema)]
pub struct Acceptance {
    /// The one-time token.
    pub token: Token,
    /// The password of the account that its address has, or of a new one.
    pub password: NewPassword,
    /// Whether a new account is made although the address has one that was not proved.
    #[serde(default)]
    pub new_account: bool,
}

/// A membership that was accepted.
#[derive(Serialize, JsonSchema)]
pub struct AcceptedInvitation {
    account: AccountItem,
    organization: Named,
    /// The person's role.
    role: Role,
}

/// Accepts an invitation: with the password of the account that the address has, or with that of a
/// new one.
///
/// # Errors
/// 401 for a token that is unknown or has expired, or a wrong password, 429 after too many.
pub async fn accept_invitation(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Body(body): Body<Acceptance>,
) -> Result<Created<AcceptedInvitation>, Refusal> {
    let attempt = links::throttle(app, request)?;
    let accepted = accept(app, request, txn, body).await?;
    app.bounds.strangers.give_back(&attempt);
    let Accepted { account, organization, role } = accepted;
    let answer = AcceptedInvitation {
        account: AccountItem::of(&account),
        organization: Named::of(organization.id.as_str(), &organization.name),
        role,
    };
    Ok(Created::of(&answer).about("member", account.id.to_string()))
}

/// The organization, role and address that an invitation's token leads to.
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
pub async fn find_offer(
    txn: &mut Txn,
    token: &str,
    now: Instant,
) -> Result<Option<Offered>, Refusal> {
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
    let digest = Plain::from_client(token).digest();
    let invitation = stored::holder::<Invitation>(txn, &Invitation::claim(&digest.hex()))
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
/// As of [`accept_invitation`].
pub async fn accept(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    wanted: Acceptance,
) -> Result<Accepted, Refusal> {
    let ended = || {
        Refusal::unauthorized("The invitation does not exist, was accepted, or has ended.")
            .hint("Ask for a new one.")
    };
    let offered = find_offer(txn, &wanted.token, request.now).await?.ok_or_else(ended)?;
    let Offered { invitation, organization, account, by_mail } = offered;
    let proved_at = by_mail.then_some(request.now);
    let account = match account {
        Some(holder) if wanted.new_account => {
            if !by_mail {
                return Err(not_mailed());
            }
            addresses::take_from(txn, request, holder).await?;
            make_account(app, request, txn, &invitation, wanted.password.0, proved_at).await?
        }
        Some(_) => existing(app, request, txn, &invitation, wanted.password.0, proved_at).await?,
        None => make_account(app, request, txn, &invitation, wanted.password.0, proved_at).await?,
    };
    addresses::prove_by(txn, &organization.id, &account, invitation.role).await?;
    let member = Member {
        organization: organization.id.clone(),
        account: account.id.clone(),
        email: account.email.clone(),
        role: invitation.role,
        created_at: request.now,
        decides_since: None,
        offers_since: Vec::new(),
    };
    stored::insert(txn, &member, "token").await?;
    remove(txn, &invitation).await?;
    auth::audit(txn, request, "auth.accept", 201, &organization.id, &account.id)?;
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

async fn make_account(
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
    refuse_faults(faults)?;
    let client = strangers::client(request.peer);
    let password_hash =
        app.directory.passwords().hash(&client, password).await.map_err(auth::busy)?;
    let account = Account {
        id: AccountId::new(request.now, stored::random()?),
        email: invitation.email.clone(),
        password_hash,
        password_version: 0,
        sessions_version: 0,
        session_kept: None,
        organizations: vec![invitation.organization.clone()],
        email_verified_at,
        created_at: request.now,
    };
    stored::insert(txn, &account, "email").await?;
    Ok(account)
}

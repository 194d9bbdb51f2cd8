//! The people of an organization and their roles. A change of members that could loosen needs the
//! authority to loosen; ownership is given and taken by owners alone, and the last owner stays.

use charter_kernel::authority::Class;
use charter_kernel::id::{AccountId, InvitationId, KeyId};
use charter_kernel::manifest::Paging;
use charter_kernel::refusal::Refusal;
use charter_kernel::role::Role;
use charter_kernel::time::Instant;
use charter_kernel::unit::Reach;
use charter_store::Txn;
use charter_tenancy::identity::Identity;
use charter_tenancy::records::Record as _;
use charter_tenancy::records::account::Account;
use charter_tenancy::records::former::FormerMember;
use charter_tenancy::records::key::ApiKey;
use charter_tenancy::records::member::Member;
use charter_tenancy::stored;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::shape::{Deleted, Offset};
use super::{addresses, invitations, sessions};
use crate::app::App;
use crate::handler;
use crate::reply::AuditLog;
use crate::request::HostRequest;
use crate::route::HostRoute;
use crate::serve::{Answer, Body};

/// How many keys of somebody who leaves or is demoted are named in the answer.
const KEYS_NAMED_MAX: u32 = 1_000;

/// The rows of members.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::get(
            Class::OrganizationRead,
            "members.list",
            "/organization/members",
            handler!(list_members),
        )
        .summary("List members")
        .paging(Paging::Offset),
        HostRoute::get(
            Class::OrganizationRead,
            "members.get",
            "/organization/members/{id}",
            handler!(get_member),
        )
        .summary("One member"),
        HostRoute::patch(
            Class::Loosening,
            "members.update",
            "/organization/members/{id}",
            handler!(update_member),
        )
        .summary("Give a member another role"),
        HostRoute::delete(
            Class::Membership,
            "members.remove",
            "/organization/members/{id}",
            handler!(remove_member),
        )
        .summary("Remove a member, or leave"),
    ]
}

/// A member of the organization.
#[derive(Serialize, JsonSchema)]
struct MemberItem {
    /// The id of the member's account.
    id: AccountId,
    /// The member's address.
    email: String,
    /// The member's role.
    role: Role,
    /// The moment of joining.
    created_at: Instant,
}

impl MemberItem {
    fn of(member: &Member) -> Self {
        Self {
            id: member.account.clone(),
            email: member.email.clone(),
            role: member.role,
            created_at: member.created_at,
        }
    }
}

/// One member.
#[derive(Serialize, JsonSchema)]
pub struct MemberAnswer {
    member: MemberItem,
}

/// A page of members.
#[derive(Serialize, JsonSchema)]
pub struct MemberPage {
    members: Vec<MemberItem>,
    #[serde(flatten)]
    page: Offset,
}

/// The body of a change.
#[derive(Deserialize, JsonSchema)]
pub struct MemberChange {
    /// The member's role from now on.
    role: Role,
}

/// A member whose role was changed.
#[derive(Serialize, JsonSchema)]
pub struct ChangedMember {
    member: MemberItem,
    /// The keys that the person has made, which go on working as they are.
    keys: Vec<KeyId>,
    /// The member's invitations that ended, since the new role does not offer them.
    invitations: Vec<InvitationId>,
}

/// The answer to a removal.
#[derive(Serialize, JsonSchema)]
pub struct RemovedMember {
    #[serde(flatten)]
    gone: Deleted,
    /// The keys that the person has made, which go on working.
    keys: Vec<KeyId>,
    /// The invitations that the person had offered, which ended.
    invitations: Vec<InvitationId>,
}

/// The organization's members.
///
/// # Errors
/// 404 for a key that is pinned to a user.
pub async fn list_members(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<MemberPage>, Refusal> {
    let reach = Reach::organization(request.place()?.organization().id.as_str());
    let (limit, offset) = (request.page.limit, request.page.offset);
    let (members, more) = stored::list::<Member>(txn, &reach, &[], limit, offset).await?;
    let members = members.iter().map(|member| MemberItem::of(&member.record)).collect();
    Ok(Answer::of(&MemberPage { members, page: Offset::of(&request.page, more) }))
}

/// One member.
///
/// # Errors
/// 404 for an account that is no member.
pub async fn get_member(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<MemberAnswer>, Refusal> {
    let member = MemberItem::of(&find(request, txn).await?);
    Ok(Answer::of(&MemberAnswer { member }))
}

async fn find(request: &HostRequest, txn: &mut Txn) -> Result<Member, Refusal> {
    let account = match (request.parameter("id"), &request.identity) {
        ("me", Identity::Session(session)) => session.account.clone(),
        (text, _) => AccountId::parse(text).ok_or_else(Refusal::not_found)?,
    };
    let organization = &request.place()?.organization().id;
    let found = stored::get::<Member>(txn, &Member::address(organization, &account)).await?;
    Ok(found.ok_or_else(Refusal::not_found)?.record)
}

/// Whether the caller may give or take ownership.
///
/// # Errors
/// 403 for anybody but owners.
pub fn may_own(
    identity: &Identity,
    role_before: Option<Role>,
    role_after: Option<Role>,
) -> Result<(), Refusal> {
    let concerns_ownership = [role_before, role_after].into_iter().flatten().any(Role::owns);
    if concerns_ownership && !identity.role().is_some_and(Role::owns) {
        return Err(Refusal::forbidden("ownership", "Ownership is given and taken by owners.")
            .hint("An owner does this in a session."));
    }
    Ok(())
}

/// Whether the caller may make somebody one who decides: people do, since a key that made its own
/// approver would decide.
///
/// # Errors
/// 403 for keys.
pub fn may_appoint(identity: &Identity, role: Role) -> Result<(), Refusal> {
    if role.decides() && !matches!(identity, Identity::Session(_)) {
        let told = "Only a person makes somebody an approver, an admin or an owner.";
        return Err(Refusal::forbidden("session_required", told)
            .hint("An owner or admin does this in a session."));
    }
    Ok(())
}

/// Refuses to lose the last owner.
async fn keep_an_owner(txn: &mut Txn, member: &Member) -> Result<(), Refusal> {
    if !member.role.owns() {
        return Ok(());
    }
    let reach = Reach::organization(member.organization.as_str());
    // Validated at the commit: of two owners that leave at once, one stays.
    let owners = stored::count::<Member>(txn, &reach, &[("role", Role::Owner.as_str())]).await?;
    if owners > 1 {
        return Ok(());
    }
    Err(Refusal::state_conflict("last_owner", "The last owner of an organization stays one.")
        .hint("Make somebody else an owner first."))
}

/// Gives a member another role. Invitations that the person could not offer in it end; the answer
/// names them, and after a demotion the keys that the person has made.
///
/// # Errors
/// 403 where the caller may not, 409 for the last owner.
pub async fn update_member(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Body(body): Body<MemberChange>,
) -> Result<Answer<ChangedMember>, Refusal> {
    request.place()?.may_loosen()?;
    let member = find(request, txn).await?;
    let before = member.role;
    may_own(&request.identity, Some(before), Some(body.role))?;
    may_appoint(&request.identity, body.role)?;
    if !body.role.owns() {
        keep_an_owner(txn, &member).await?;
    }
    let member = member.in_role(body.role, request.now);
    stored::replace(txn, &member, "role").await?;
    if let Some(account) = stored::get::<Account>(txn, &Account::address(&member.account)).await? {
        addresses::prove_by(txn, &member.organization, &account.record, member.role).await?;
    }
    let ended =
        invitations::end_of(txn, &member.organization, member.account.as_str(), Some(member.role))
            .await?;
    // A member who may do less than before may have kept a key that does more.
    let keys = match before.no_higher_than(member.role) {
        true => Vec::new(),
        false => keys_made_by(txn, &member).await?,
    };
    let note =
        json!({"before": {"role": before}, "after": {"role": member.role}, "invitations": ended});
    let answer = ChangedMember { member: MemberItem::of(&member), keys, invitations: ended };
    Ok(Answer::of(&answer)
        .about("member", member.account.to_string())
        .with_log(AuditLog::Organization)
        .noting(note))
}

/// The keys that a person has made: they are the organization's, and can be replaced.
async fn keys_made_by(txn: &mut Txn, member: &Member) -> Result<Vec<KeyId>, Refusal> {
    let reach = Reach::organization(member.organization.as_str());
    let made = [("maker", member.account.as_str())];
    // Not validated at the commit: whoever makes keys without end would put it off as long.
    let (keys, _) = stored::list::<ApiKey>(txn, &reach, &made, KEYS_NAMED_MAX, 0).await?;
    Ok(keys.into_iter().map(|key| key.record.id).collect())
}

/// Keeps the role that a member had at the end.
async fn note_former(txn: &mut Txn, member: &Member, left_at: Instant) -> Result<(), Refusal> {
    let (organization, account) = (member.organization.clone(), member.account.clone());
    let former = FormerMember { organization, account, role: member.role, left_at };
    match stored::get::<FormerMember>(txn, &former.key()).await? {
        Some(_) => stored::replace(txn, &former, "account").await.map(drop),
        None => stored::insert(txn, &former, "account").await.map(drop),
    }
}

/// Removes a member; anybody can leave. Keys are the organization's and go on working: the answer
/// names those that the person made, so that they can be replaced. Invitations that the person has
/// offered end, and are named beside them; the person's sessions of the organization end too.
///
/// # Errors
/// 403 where the caller may not, 409 for the last owner.
pub async fn remove_member(
    _: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Answer<RemovedMember>, Refusal> {
    let member = find(request, txn).await?;
    let leaves = matches!(&request.identity, Identity::Session(session) if session.account == member.account);
    if !leaves {
        request.place()?.may_loosen()?;
        may_own(&request.identity, Some(member.role), None)?;
    }
    keep_an_owner(txn, &member).await?;
    stored::remove(txn, &member).await?;
    note_former(txn, &member, request.now).await?;
    if let Some(mut account) =
        stored::get::<Account>(txn, &Account::address(&member.account)).await?
    {
        account.record.organizations.retain(|organization| *organization != member.organization);
        stored::replace(txn, &account.record, "email").await?;
    }
    sessions::end_of(txn, &member.account, &member.organization).await?;
    let keys = keys_made_by(txn, &member).await?;
    let ended =
        invitations::end_of(txn, &member.organization, member.account.as_str(), None).await?;
    let note = json!({"before": MemberItem::of(&member), "invitations": ended});
    let answer =
        RemovedMember { gone: Deleted::of(member.account.as_str()), keys, invitations: ended };
    Ok(Answer::of(&answer)
        .about("member", member.account.to_string())
        .with_log(AuditLog::Organization)
        .noting(note))
}

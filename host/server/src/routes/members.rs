//! The people of an organization and their roles. Whoever could loosen by adding, promoting or
//! removing somebody needs the authority to loosen; ownership is given and taken by owners alone,
//! and the last owner stays.

use charter_kernel::id::AccountId;
use charter_kernel::refusal::Refusal;
use charter_kernel::role::Role;
use charter_kernel::unit::Reach;
use charter_store::Txn;
use serde::Deserialize;
use serde_json::{Value, json};

use super::shape::{self, id, instant, object};
use super::{addresses, invitations, stored};
use crate::app::App;
use crate::records::account::Account;
use crate::records::key::ApiKey;
use crate::records::member::Member;
use crate::reply::Reply;
use crate::request::{HostRequest, Identity};

/// How many keys of somebody who leaves are named in the answer.
const KEYS_NAMED_MAX: u32 = 200;

/// A role, in a schema.
pub fn role_schema() -> Value {
    json!({"enum": Role::ALL.map(Role::as_str)})
}

fn item() -> Value {
    object(&[
        ("id", id()),
        ("email", json!({"type": "string"})),
        ("role", role_schema()),
        ("created_at", instant()),
    ])
}

/// The answer of one member's routes.
pub fn answer() -> Value {
    object(&[("member", item())])
}

/// The answer of the list.
pub fn list_answer() -> Value {
    shape::page("members", &item())
}

/// The answer of a change: the member, and what it can no longer offer.
pub fn change_answer() -> Value {
    object(&[("member", item()), ("invitations", ids())])
}

fn ids() -> Value {
    json!({"type": "array", "items": id()})
}

/// What the wire shows of a member; the id is the account's.
pub fn view(member: &Member) -> Value {
    json!({"id": member.account, "email": member.email, "role": member.role, "created_at": member.created_at})
}

/// The organization's members.
///
/// # Errors
/// 404 for a key that is pinned to a user.
pub async fn list(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let reach = Reach::organization(request.place()?.organization.id.as_str());
    let (limit, offset) = (request.page.limit, request.page.offset);
    let (members, more) = stored::list::<Member>(txn, &reach, &[], limit, offset).await?;
    let items = members.iter().map(|member| view(&member.record)).collect();
    Ok(Reply::ok(&shape::listed("members", items, (limit, offset), more)))
}

/// One member.
///
/// # Errors
/// 404 for an account that is no member.
pub async fn get(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let member = named(request, txn).await?;
    Ok(Reply::ok(&json!({"member": view(&member)})))
}

async fn named(request: &HostRequest, txn: &mut Txn) -> Result<Member, Refusal> {
    let account = match (request.parameter("id"), &request.identity) {
        ("me", Identity::Session(session)) => session.account.clone(),
        (text, _) => AccountId::parse(text).ok_or_else(Refusal::not_found)?,
    };
    let organization = &request.place()?.organization.id;
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

/// The last owner stays one.
async fn another_owner(txn: &mut Txn, member: &Member) -> Result<(), Refusal> {
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

#[derive(Deserialize)]
struct Change {
    role: Role,
}

/// The body of a change.
pub fn change_body() -> Value {
    object(&[("role", role_schema())])
}

/// Gives a member another role. What they have offered and could not offer in it ends, and the
/// answer names it.
///
/// # Errors
/// 403 where the caller may not, 409 for the last owner.
pub async fn patch(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    request.place()?.may_loosen()?;
    let body: Change = request.body_as()?;
    let mut member = named(request, txn).await?;
    let before = member.role;
    may_own(&request.identity, Some(before), Some(body.role))?;
    if !body.role.owns() {
        another_owner(txn, &member).await?;
    }
    member.role = body.role;
    stored::replace(txn, &member, "role").await?;
    if let Some(account) = stored::get::<Account>(txn, &Account::address(&member.account)).await? {
        addresses::prove_by(txn, &member.organization, &account.record, member.role).await?;
    }
    let ended =
        invitations::end_of(txn, &member.organization, member.account.as_str(), Some(member.role))
            .await?;
    let note =
        json!({"before": {"role": before}, "after": {"role": member.role}, "invitations": ended});
    Ok(Reply::ok(&json!({"member": view(&member), "invitations": ended}))
        .about("member", member.account.to_string())
        .noting(note))
}

/// What a removal answers.
pub fn deleted() -> Value {
    object(&[
        ("id", id()),
        ("deleted", json!({"const": true})),
        ("keys", ids()),
        ("invitations", ids()),
    ])
}

/// Removes a member; anybody can leave. Keys are the organization's and go on working: the answer
/// names those that the person made, so that they can be replaced. What the person has offered
/// ends, and is named beside them.
///
/// # Errors
/// 403 where the caller may not, 409 for the last owner.
pub async fn delete(_: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let member = named(request, txn).await?;
    let leaves = matches!(&request.identity, Identity::Session(session) if session.account == member.account);
    if !leaves {
        request.place()?.may_loosen()?;
        may_own(&request.identity, Some(member.role), None)?;
    }
    another_owner(txn, &member).await?;
    stored::remove(txn, &member).await?;
    if let Some(mut account) =
        stored::get::<Account>(txn, &Account::address(&member.account)).await?
    {
        account.record.organizations.retain(|organization| *organization != member.organization);
        stored::replace(txn, &account.record, "email").await?;
    }
    let reach = Reach::organization(member.organization.as_str());
    let made = [("maker", member.account.as_str())];
    let (keys, _) = stored::list::<ApiKey>(txn, &reach, &made, KEYS_NAMED_MAX, 0).await?;
    let keys: Vec<_> = keys.into_iter().map(|key| key.record.id).collect();
    let ended =
        invitations::end_of(txn, &member.organization, member.account.as_str(), None).await?;
    let answer = json!({"id": member.account, "deleted": true, "keys": keys, "invitations": ended});
    let note = json!({"before": view(&member), "invitations": ended});
    Ok(Reply::ok(&answer).about("member", member.account.to_string()).noting(note))
}

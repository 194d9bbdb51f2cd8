//! E-mail addresses: the proof, by a mailed one-time link, that an address is its account's, and
//! what becomes of an account that cannot give it.
//!
//! An address that was not proved keeps nobody out: whoever gives the proof takes it from the
//! account that has it. That account keeps its organizations, keys and sessions, and goes by an
//! address from then on that no mail ever reaches.

use charter_adapters::mail;
use charter_kernel::audit::AuditRow;
use charter_kernel::authority::Class;
use charter_kernel::id::OrganizationId;
use charter_kernel::refusal::{Code, Refusal};
use charter_kernel::role::Role;
use charter_kernel::time::Instant;
use charter_store::{Txn, audit_fact};
use charter_tenancy::records::account::{Account, is_email, normalize};
use charter_tenancy::records::link::{Link, Purpose};
use charter_tenancy::records::mail::About;
use charter_tenancy::records::member::Member;
use charter_tenancy::records::organization::Organization;
use charter_tenancy::stored;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::shape::{AccountItem, KnownEmail, Nothing, Token};
use super::{auth, links};
use crate::app::App;
use crate::handler;
use crate::request::HostRequest;
use crate::route::HostRoute;
use crate::serve::{Accepted, Answer, Body};

/// The rows of proofs.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::post(Class::Open, "auth.prove", "/auth/proof", handler!(mail_proof))
            .open()
            .summary("Mail a one-time link that proves an address")
            .refuses(&[Code::NotConfigured, Code::RateLimited]),
        HostRoute::post(
            Class::Open,
            "auth.confirm",
            "/auth/proof/confirm",
            handler!(confirm_address),
        )
        .open()
        .summary("Prove the address of an account by a mailed link")
        .refuses(&[Code::NotFound, Code::RateLimited]),
    ]
}

/// The body of a request for a link.
#[derive(Deserialize, JsonSchema)]
pub struct LinkRequest {
    /// The address that the link is mailed to.
    email: KnownEmail,
}

/// The body of a confirmation.
#[derive(Deserialize, JsonSchema)]
pub struct Confirmation {
    /// The secret of the mailed link.
    token: Token,
}

/// An account whose address is proved.
#[derive(Serialize, JsonSchema)]
pub struct ConfirmedAccount {
    account: AccountItem,
}

/// Mails a link that proves an address. Whether anybody has the address is found out behind
/// the answer.
///
/// # Errors
/// 501 without a relay, 429 after too many.
pub async fn mail_proof(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Body(body): Body<LinkRequest>,
) -> Result<Accepted<Nothing>, Refusal> {
    mail_link(app, request, txn, &body, ("proof of an address", |email| About::Proof { email }))
}

/// Mails a link to the address of the body: `what` it is, and what the mail is about.
///
/// # Errors
/// 501 without a relay, 429 after too many.
pub fn mail_link(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    body: &LinkRequest,
    (what, about): (&str, fn(String) -> About),
) -> Result<Accepted<Nothing>, Refusal> {
    mail::ready(&app.adapters).map_err(|missing| missing.refusal(what))?;
    let email = body.email.trim();
    // Not given back: each asks for a mail.
    app.bounds
        .strangers
        .admit(&app.bounds.strangers.link(request.peer, &normalize(email)), request.began)?;
    if is_email(email) {
        let about = about(email.to_owned());
        mail::notice(&app.adapters, about, request.now)?
            .into_iter()
            .for_each(|write| txn.write(write));
    }
    Ok(Accepted::of(&Nothing {}))
}

/// Confirms that the account which has the address is of whoever has the link.
///
/// # Errors
/// 404 for a link that does not count, or where nobody has the address any more.
pub async fn confirm_address(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Body(body): Body<Confirmation>,
) -> Result<Answer<ConfirmedAccount>, Refusal> {
    let account = confirm(app, request, txn, &body.token).await?;
    Ok(Answer::of(&ConfirmedAccount { account: AccountItem::of(&account) }))
}

/// Confirms it for a page too.
///
/// # Errors
/// As of [`confirm_address`].
pub async fn confirm(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    token: &str,
) -> Result<Account, Refusal> {
    let link = links::find_for_purpose(app, request, txn, token, &Purpose::Proof).await?;
    let mut account = links::account(txn, &link).await?;
    verify(txn, &mut account, request.now).await?;
    stored::replace(txn, &account, "email").await?;
    stored::remove(txn, &link).await?;
    audit_for(txn, request, "auth.confirm", &account)?;
    Ok(account)
}

/// Leaves an audit row in each organization that an account is a member of.
///
/// # Errors
/// When the operating system gives no randomness.
pub fn audit_for(
    txn: &mut Txn,
    request: &HostRequest,
    operation: &str,
    account: &Account,
) -> Result<(), Refusal> {
    for organization in &account.organizations {
        auth::audit(txn, request, operation, 200, organization, &account.id)?;
    }
    Ok(())
}

/// The link behind a proof of this address. It goes with the caller's commit.
///
/// # Errors
/// 404 for a link that does not count, or is of another address.
pub async fn proof(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    token: &str,
    email: &str,
) -> Result<Link, Refusal> {
    let link = links::find_for_purpose(app, request, txn, token, &Purpose::Proof).await?;
    if normalize(&link.email) != normalize(email) {
        return Err(links::no_such_link());
    }
    stored::remove(txn, &link).await?;
    Ok(link)
}

/// Notes that the account's address is proved; the caller writes the account. The proof covers
/// everything that the account owns.
///
/// # Errors
/// When the store cannot be asked.
pub async fn verify(txn: &mut Txn, account: &mut Account, now: Instant) -> Result<(), Refusal> {
    account.email_verified_at.get_or_insert(now);
    for organization in &account.organizations {
        let member =
            stored::get::<Member>(txn, &Member::address(organization, &account.id)).await?;
        if member.is_some_and(|member| member.record.role == Role::Owner) {
            prove(txn, organization).await?;
        }
    }
    Ok(())
}

/// Notes that an owner of the organization has an address that was proved.
///
/// # Errors
/// When the store cannot be asked.
pub async fn prove(txn: &mut Txn, organization: &OrganizationId) -> Result<(), Refusal> {
    let found = stored::get::<Organization>(txn, &Organization::address(organization)).await?;
    if let Some(found) = found.map(|found| found.record).filter(|found| !found.proved) {
        stored::replace(txn, &Organization { proved: true, ..found }, "id").await?;
    }
    Ok(())
}

/// Notes it where the account has such an address.
///
/// # Errors
/// When the store cannot be asked.
pub async fn prove_by(
    txn: &mut Txn,
    organization: &OrganizationId,
    account: &Account,
    role: Role,
) -> Result<(), Refusal> {
    match account.is_verified() && role == Role::Owner {
        true => prove(txn, organization).await,
        false => Ok(()),
    }
}

/// Takes the address from an account that has not proved it, for whoever has. The account's
/// organizations are told so by their audit logs.
///
/// # Errors
/// 409 for an address that was proved, or when the store cannot be asked.
pub async fn take_from(
    txn: &mut Txn,
    request: &HostRequest,
    mut account: Account,
) -> Result<(), Refusal> {
    if account.is_verified() {
        return Err(auth::duplicate_account());
    }
    let before = std::mem::take(&mut account.email);
    account.email = account.address_without_mail();
    for organization in &account.organizations {
        let address = Member::address(organization, &account.id);
        if let Some(member) = stored::get::<Member>(txn, &address).await? {
            let member = Member { email: account.email.clone(), ..member.record };
            stored::replace(txn, &member, "email").await?;
        }
        let id = account.id.as_str();
        let details = json!({"before": {"email": before}, "after": {"email": account.email}});
        let row = AuditRow {
            organization: organization.as_str(),
            at: request.now,
            actor: ("system", "proof"),
            action: "account.lose_address",
            entity_type: Some("account"),
            entity_id: Some(id),
            decision: "allowed",
            request: &request.id,
            details: Some(&details),
            ..AuditRow::default()
        };
        txn.fact(audit_fact(&row).map_err(stored::no_randomness)?);
    }
    links::end_of(txn, &account.id).await?;
    stored::replace(txn, &account, "email").await.map(drop)
}

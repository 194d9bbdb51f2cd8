//! E-mail addresses: the proof, by a mailed one-time link, that an address is its account's, and
//! what becomes of an account that cannot give it.
//!
//! An address that was not proved keeps nobody out: whoever gives the proof takes it from the
//! account that has it. That account keeps its organizations, keys and sessions, and goes by an
//! address from then on that no mail ever reaches.

use charter_kernel::audit::Row;
use charter_kernel::id::OrganizationId;
use charter_kernel::refusal::Refusal;
use charter_kernel::role::Role;
use charter_kernel::time::Instant;
use charter_store::{Txn, audited};
use serde::Deserialize;
use serde_json::{Value, json};

use super::shape::{self, id, object};
use super::{auth, links, stored};
use crate::app::App;
use crate::mail;
use crate::records::account::{Account, email_fault, normalised};
use crate::records::link::{Link, Purpose};
use crate::records::mail::About;
use crate::records::member::Member;
use crate::records::organization::Organization;
use crate::reply::Reply;
use crate::request::HostRequest;

#[derive(Deserialize)]
struct Asked {
    email: String,
}

/// The body of a request for a link.
pub fn asked_body() -> Value {
    object(&[("email", shape::known_email())])
}

/// The secret of a link, in a schema.
pub fn token() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 200})
}

/// Has a link mailed that proves an address. Whether anybody has the address is found out behind
/// the answer.
///
/// # Errors
/// 501 without a relay, 429 after too many.
pub async fn ask(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    mailed(app, request, txn, "proof of an address", |email| About::Proof { email })
}

/// Has a link mailed to the address of the body.
///
/// # Errors
/// 501 without a relay, 429 after too many.
pub fn mailed(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    what: &str,
    about: fn(String) -> About,
) -> Result<Reply, Refusal> {
    let body: Asked = request.body_as()?;
    mail::ready(&app.adapters).map_err(|missing| missing.refusal(what))?;
    let email = body.email.trim();
    // Not given back: each asks for a mail.
    app.strangers.admit(&app.strangers.link(request.peer, &normalised(email)), request.began)?;
    if email_fault(email).is_none() {
        let about = about(email.to_owned());
        mail::notice(&app.adapters, about, request.now)?
            .into_iter()
            .for_each(|write| txn.write(write));
        app.adapters.mail_wanted.notify_one();
    }
    Ok(Reply::accepted(&json!({})))
}

#[derive(Deserialize)]
struct Presented {
    token: String,
}

/// The body of a confirmation.
pub fn confirm_body() -> Value {
    object(&[("token", token())])
}

/// An account with what is known of its address, in a schema.
pub fn account_schema() -> Value {
    object(&[
        ("id", id()),
        ("email", json!({"type": "string"})),
        ("email_verified", json!({"type": "boolean"})),
    ])
}

/// The same of an account.
pub fn account_view(account: &Account) -> Value {
    json!({
        "id": account.id,
        "email": account.email,
        "email_verified": account.is_verified(),
    })
}

/// The answer of a confirmation.
pub fn confirm_answer() -> Value {
    object(&[("account", account_schema())])
}

/// Confirms that the account which has the address is of whoever has the link.
///
/// # Errors
/// 404 for a link that does not count, or where nobody has the address any more.
pub async fn confirm(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let body: Presented = request.body_as()?;
    let account = confirmed(app, request, txn, &body.token).await?;
    Ok(Reply::ok(&json!({"account": account_view(&account)})))
}

/// The same, of a page too.
///
/// # Errors
/// As of [`confirm`].
pub async fn confirmed(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    token: &str,
) -> Result<Account, Refusal> {
    let link = links::presented_for(app, request, txn, token, &Purpose::Proof).await?;
    let mut account = links::account(txn, &link).await?;
    verify(txn, &mut account, request.now).await?;
    stored::replace(txn, &account, "email").await?;
    stored::remove(txn, &link).await?;
    audited_for(txn, request, "auth.confirm", &account)?;
    Ok(account)
}

/// Leaves an audit row in the first organization of an account.
///
/// # Errors
/// When the operating system gives no randomness.
pub fn audited_for(
    txn: &mut Txn,
    request: &HostRequest,
    operation: &str,
    account: &Account,
) -> Result<(), Refusal> {
    match account.organizations.first() {
        Some(organization) => {
            auth::audited(txn, request, operation, 200, organization, &account.id)
        }
        None => Ok(()),
    }
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
    let link = links::presented_for(app, request, txn, token, &Purpose::Proof).await?;
    if normalised(&link.email) != normalised(email) {
        return Err(links::gone());
    }
    stored::remove(txn, &link).await?;
    Ok(link)
}

/// Notes that the account's address is proved; the caller writes the account. What the account owns
/// is proved by it.
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
        return Err(auth::taken());
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
        let row = Row {
            organization: organization.as_str(),
            at: request.now,
            actor: ("system", "proof"),
            action: "account.lose_address",
            entity_type: Some("account"),
            entity_id: Some(id),
            decision: "allowed",
            request: &request.id,
            details: Some(&details),
            ..Row::default()
        };
        txn.fact(audited(&row).map_err(stored::no_randomness)?);
    }
    links::end_of(txn, &account.id).await?;
    stored::replace(txn, &account, "email").await.map(drop)
}

//! A person's password: changing it in a session, and setting a new one by a mailed one-time link.
//!
//! An intruder who knew the old one is out with the commit that sets the new one: the account's
//! other sessions end with it, and so does every link that was mailed before.

use charter_kernel::authority::Class;
use charter_kernel::fault::Fault;
use charter_kernel::refusal::{Code, Refusal};
use charter_store::Txn;
use charter_tenancy::directory::password;
use charter_tenancy::records::account::Account;
use charter_tenancy::records::link::Purpose;
use charter_tenancy::records::mail::About;
use charter_tenancy::stored;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::addresses::{self, LinkRequest};
use super::shape::{
    AccountItem, EndedSessions, NewPassword, Nothing, Token, TriedPassword, check, refuse_faults,
};
use super::{auth, links, sessions};
use crate::app::App;
use crate::bounds::strangers;
use crate::handler;
use crate::request::HostRequest;
use crate::route::HostRoute;
use crate::serve::{Accepted, Answer, Body};

/// The rows of passwords.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::post(
            Class::Open,
            "auth.forget",
            "/auth/password/forgotten",
            handler!(forget_password),
        )
        .open()
        .summary("Mail a one-time link that sets a new password")
        .refuses(&[Code::NotConfigured, Code::RateLimited]),
        HostRoute::post(
            Class::Open,
            "auth.reset",
            "/auth/password/reset",
            handler!(reset_password),
        )
        .open()
        .summary("Set a new password by a mailed link, and end all sessions")
        .refuses(&[Code::NotFound, Code::RateLimited]),
        HostRoute::put(
            Class::OwnSession,
            "auth.change_password",
            "/auth/password",
            handler!(change_password),
        )
        .session()
        .summary("Change the own password, and end the other sessions")
        .refuses(&[Code::RateLimited]),
    ]
}

/// The body of a change.
#[derive(Deserialize, JsonSchema)]
pub struct PasswordChange {
    /// The password of now.
    password: TriedPassword,
    /// The new one.
    new_password: NewPassword,
}

/// Changes the password of the session's person, and ends their other sessions.
///
/// # Errors
/// 403 for a wrong password, 429 after too many, 400 for a new one that does not fit.
pub async fn change_password(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Body(body): Body<PasswordChange>,
) -> Result<Answer<EndedSessions>, Refusal> {
    let session = sessions::of(request)?;
    let found = stored::get::<Account>(txn, &Account::address(&session.account)).await?;
    let mut account = found.ok_or_else(sessions::person_gone)?.record;
    check_new("new_password", &body.new_password, &account.email)?;
    auth::authenticate(app, request, &account.email, body.password.0)
        .await?
        .filter(|proven| proven.id == account.id)
        .ok_or_else(|| {
            Refusal::forbidden("password_wrong", "The password is wrong.").param("password")
        })?;
    let hash = hash(app, request, body.new_password.0).await?;
    let ended = sessions::end_all(txn, &mut account, Some(&session.id), request.now).await?;
    set(txn, &mut account, hash).await?;
    Ok(Answer::of(&EndedSessions { sessions_ended: ended })
        .about("account", account.id.to_string())
        .noting(json!({"sessions_ended": ended})))
}

fn check_new(field: &str, password: &str, email: &str) -> Result<(), Refusal> {
    let mut faults: Vec<Fault> = Vec::new();
    check(&mut faults, field, password::fault(password, email));
    refuse_faults(faults)
}

/// The hash of a new password: it takes its time, so that sessions are looked for behind it.
async fn hash(app: &App, request: &HostRequest, password: String) -> Result<String, Refusal> {
    let client = strangers::client(request.peer);
    app.directory.passwords().hash(&client, password).await.map_err(auth::busy)
}

/// Writes the account with its new password; what was mailed before leads nowhere any more.
async fn set(txn: &mut Txn, account: &mut Account, hash: String) -> Result<(), Refusal> {
    account.password_hash = hash;
    account.password_version += 1;
    links::end_of(txn, &account.id).await?;
    stored::replace(txn, account, "email").await.map(drop)
}

/// Mails a link that sets a new password. Whether anybody has the address is found out behind
/// the answer.
///
/// # Errors
/// 501 without a relay, 429 after too many.
pub async fn forget_password(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Body(body): Body<LinkRequest>,
) -> Result<Accepted<Nothing>, Refusal> {
    let about =
        ("link for a new password", (|email| About::Reset { email }) as fn(String) -> About);
    addresses::mail_link(app, request, txn, &body, about)
}

/// The body that sets a new password.
#[derive(Deserialize, JsonSchema)]
pub struct PasswordReset {
    /// The secret of the mailed link.
    token: Token,
    /// The new password.
    password: NewPassword,
}

/// The account of a new password.
#[derive(Serialize, JsonSchema)]
pub struct ResetAccount {
    account: AccountItem,
    #[serde(flatten)]
    ended: EndedSessions,
}

/// Sets a new password by a link, and ends all sessions of the account.
///
/// # Errors
/// 404 for a link that does not count, 400 for a password that does not fit.
pub async fn reset_password(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Body(body): Body<PasswordReset>,
) -> Result<Answer<ResetAccount>, Refusal> {
    let (account, ended) = reset(app, request, txn, &body.token, body.password.0).await?;
    let (account, ended) = (AccountItem::of(&account), EndedSessions { sessions_ended: ended });
    Ok(Answer::of(&ResetAccount { account, ended }))
}

/// Sets it for a page too. The link proves the address as well.
///
/// # Errors
/// As of [`reset_password`].
pub async fn reset(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    token: &str,
    password: String,
) -> Result<(Account, usize), Refusal> {
    let link = links::find_for_purpose(app, request, txn, token, &Purpose::Reset).await?;
    let mut account = links::account(txn, &link).await?;
    check_new("password", &password, &account.email)?;
    stored::remove(txn, &link).await?;
    addresses::verify(txn, &mut account, request.now).await?;
    let hash = hash(app, request, password).await?;
    let ended = sessions::end_all(txn, &mut account, None, request.now).await?;
    set(txn, &mut account, hash).await?;
    addresses::audit_for(txn, request, "auth.reset", &account)?;
    Ok((account, ended))
}

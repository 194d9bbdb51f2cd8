//! A person's password: changing it in a session, and setting a new one by a mailed one-time link.
//!
//! Whoever knew the old one is out with the commit that sets the new one: the account's other
//! sessions end with it, and so does every link that was mailed before.

use charter_kernel::fault::Fault;
use charter_kernel::refusal::Refusal;
use charter_store::Txn;
use serde::Deserialize;
use serde_json::{Value, json};

use super::addresses::{self, account_schema, account_view};
use super::shape::{self, check, checked, object};
use super::{auth, links, sessions, stored};
use crate::app::App;
use crate::directory::password;
use crate::records::account::Account;
use crate::records::link::Purpose;
use crate::records::mail::About;
use crate::records::session::Session;
use crate::reply::Reply;
use crate::request::HostRequest;
use crate::strangers;

/// How many sessions ended, in a schema.
fn number() -> Value {
    json!({"type": "integer", "minimum": 0})
}

#[derive(Deserialize)]
struct Change {
    password: String,
    new_password: String,
}

/// The body of a change.
pub fn change_body() -> Value {
    object(&[("password", shape::tried_password()), ("new_password", shape::new_password())])
}

/// Its answer.
pub fn change_answer() -> Value {
    object(&[("sessions_ended", number())])
}

/// Changes the password of the session's person, and ends their other sessions.
///
/// # Errors
/// 403 for a wrong password, 429 after too many, 400 for a new one that does not fit.
pub async fn change(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let session = sessions::of(request)?;
    let body: Change = request.body_as()?;
    let found = stored::get::<Account>(txn, &Account::address(&session.account)).await?;
    let mut account = found.ok_or_else(sessions::gone)?.record;
    fits("new_password", &body.new_password, &account.email)?;
    auth::authenticate(app, request, &account.email, body.password)
        .await?
        .filter(|proven| proven.id == account.id)
        .ok_or_else(|| {
            Refusal::forbidden("password_wrong", "The password is wrong.").param("password")
        })?;
    set(app, request, txn, &mut account, body.new_password).await?;
    let own = stored::get::<Session>(txn, &Session::address(&session.digest)).await?;
    let own = own.ok_or_else(sessions::gone)?.record;
    let own = Session { password_version: account.password_version, ..own };
    stored::replace(txn, &own, "id").await?;
    let ended = sessions::end_all(txn, &account.id, Some(&session.digest)).await?;
    Ok(Reply::ok(&json!({"sessions_ended": ended}))
        .about("account", account.id.to_string())
        .noting(json!({"sessions_ended": ended})))
}

fn fits(field: &str, password: &str, email: &str) -> Result<(), Refusal> {
    let mut faults: Vec<Fault> = Vec::new();
    check(&mut faults, field, password::fault(password, email));
    checked(faults)
}

/// Writes the account with its new password; what was mailed before leads nowhere any more.
async fn set(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    account: &mut Account,
    password: String,
) -> Result<(), Refusal> {
    let client = strangers::client(request.peer);
    account.password_hash =
        app.directory.passwords().hash(&client, password).await.map_err(auth::busy)?;
    account.password_version += 1;
    links::end_of(txn, &account.id).await?;
    stored::replace(txn, account, "email").await.map(drop)
}

/// Has a link mailed that sets a new password. Whether anybody has the address is found out behind
/// the answer.
///
/// # Errors
/// 501 without a relay, 429 after too many.
pub async fn forget(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    addresses::mailed(app, request, txn, "link for a new password", |email| About::Reset { email })
}

#[derive(Deserialize)]
struct Reset {
    token: String,
    password: String,
}

/// The body that sets a new password.
pub fn reset_body() -> Value {
    object(&[("token", addresses::token()), ("password", shape::new_password())])
}

/// Its answer.
pub fn reset_answer() -> Value {
    object(&[("account", account_schema()), ("sessions_ended", number())])
}

/// Sets a new password by a link, and ends all sessions of the account.
///
/// # Errors
/// 404 for a link that does not count, 400 for a password that does not fit.
pub async fn reset(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let body: Reset = request.body_as()?;
    let (account, ended) = renewed(app, request, txn, &body.token, body.password).await?;
    Ok(Reply::ok(&json!({"account": account_view(&account), "sessions_ended": ended})))
}

/// The same, of a page too. The link proves the address as well.
///
/// # Errors
/// As of [`reset`].
pub async fn renewed(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    token: &str,
    password: String,
) -> Result<(Account, usize), Refusal> {
    let link = links::presented_for(app, request, txn, token, &Purpose::Reset).await?;
    let mut account = links::account(txn, &link).await?;
    fits("password", &password, &account.email)?;
    stored::remove(txn, &link).await?;
    addresses::verify(txn, &mut account, request.now).await?;
    set(app, request, txn, &mut account, password).await?;
    let ended = sessions::end_all(txn, &account.id, None).await?;
    addresses::audited_for(txn, request, "auth.reset", &account)?;
    Ok((account, ended))
}

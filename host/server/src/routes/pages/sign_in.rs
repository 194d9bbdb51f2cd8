//! What a sign-in link leads to: the page, and its button, which opens the session.

use charter_kernel::refusal::Refusal;
use charter_store::Txn;
use http::{StatusCode, header};

use super::{Form, escape, page};
use crate::app::App;
use crate::records::account::Account;
use crate::records::link::{Link, Purpose};
use crate::reply::Reply;
use crate::request::HostRequest;
use crate::routes::links;
use crate::routes::{auth, stored};

/// Where the link leads.
pub const PATH: &str = "/sign-in";

async fn opened(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    token: &str,
) -> Result<(Link, Account), Refusal> {
    let link = links::presented_for(app, request, txn, token, &Purpose::SignIn).await?;
    let account = links::account(txn, &link).await?;
    Ok((link, account))
}

/// `GET /sign-in?token=…`: shows who is about to sign in, and opens nothing.
///
/// # Errors
/// 404 for a link that does not count.
pub async fn show(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let token = request.query_text("token").unwrap_or_default();
    let (_, account) = opened(app, request, txn, token).await?;
    let (email, token) = (escape(&account.email), escape(token));
    let action = PATH.trim_start_matches('/');
    let body = format!(
        "<p>You sign in as {email}.</p>\n<form method=\"post\" action=\"{action}\">\n\
         <input type=\"hidden\" name=\"token\" value=\"{token}\">\n<p><button>Sign in</button></p>\n</form>"
    );
    Ok(page(StatusCode::OK, "Sign in", &body))
}

/// `POST /sign-in`: opens the session, once.
///
/// # Errors
/// 404 for a link that does not count, 403 for a member of no organization.
pub async fn open(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let form = Form::read(app, request)?;
    let (link, account) = opened(app, request, txn, form.field("token")).await?;
    let opened = auth::signed_in(app, request, txn, &account).await?;
    stored::remove(txn, &link).await?;
    auth::audited(txn, request, "auth.link", 200, &opened.organization.id, &account.id)?;
    let body = format!(
        "<p>You are signed in to {} as {}, until {}.</p>",
        escape(&opened.organization.name),
        escape(&account.email),
        opened.session.expires_at
    );
    Ok(page(StatusCode::OK, "You are signed in", &body).header(header::SET_COOKIE, &opened.cookie))
}

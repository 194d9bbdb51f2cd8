//! The target of a sign-in link: the page, and its button, which opens the session.

use charter_kernel::authority::Class;
use charter_kernel::refusal::{Code, Refusal};
use charter_store::Txn;
use charter_tenancy::records::link::Purpose;
use charter_tenancy::stored;
use http::{StatusCode, header};

use super::{FORM_BYTES_MAX, Form, LinkQuery, caution};
use crate::app::App;
use crate::handler;
use crate::html::{FORM, escape, page};
use crate::reply::Reply;
use crate::request::HostRequest;
use crate::route::HostRoute;
use crate::routes::{auth, links};
use crate::serve::Params;

/// The path that the link leads to.
pub const PATH: &str = "/sign-in";

/// The rows of these pages.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::get(Class::Open, "pages.sign_in", PATH, handler!(show_sign_in))
            .summary("Whom a mailed sign-in link is for")
            .refuses(&[Code::NotFound, Code::RateLimited]),
        HostRoute::post(Class::Open, "pages.open_session", PATH, handler!(open_session))
            .summary("Sign in by a mailed link")
            .consumes(FORM, FORM_BYTES_MAX)
            .refuses(&[Code::NotFound, Code::RateLimited]),
    ]
}

/// `GET /sign-in?token=…`: shows who is about to sign in, and opens nothing.
///
/// # Errors
/// 404 for a link that does not count.
pub async fn show_sign_in(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Params(asked): Params<LinkQuery>,
) -> Result<Reply, Refusal> {
    let token = asked.token();
    let (_, account) = links::find_account(app, request, txn, token, &Purpose::SignIn).await?;
    let caution = caution(&account, "do not sign in here");
    let (email, token) = (escape(&account.email), escape(token));
    let action = PATH.trim_start_matches('/');
    let body = format!(
        "<p>You sign in as {email}.</p>\n{caution}<form method=\"post\" action=\"{action}\">\n\
         <input type=\"hidden\" name=\"token\" value=\"{token}\">\n<p><button>Sign in</button></p>\n</form>"
    );
    Ok(page(StatusCode::OK, "Sign in", &body))
}

/// `POST /sign-in`: opens the session, once.
///
/// # Errors
/// 404 for a link that does not count, 403 for a member of no organization.
pub async fn open_session(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Reply, Refusal> {
    let form = Form::read(app, request)?;
    let (link, account) =
        links::find_account(app, request, txn, form.field("token"), &Purpose::SignIn).await?;
    let opened = auth::sign_in(app, request, txn, &account).await?;
    stored::remove(txn, &link).await?;
    auth::audit(txn, request, "auth.link", 200, &opened.organization.id, &account.id)?;
    let body = format!(
        "<p>You are signed in to {} as {}, until {}.</p>",
        escape(&opened.organization.name),
        escape(&account.email),
        opened.session.expires_at
    );
    Ok(page(StatusCode::OK, "You are signed in", &body).header(header::SET_COOKIE, &opened.cookie))
}

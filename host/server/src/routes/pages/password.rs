//! The target of the link for a new password: the page that asks for one, and the change.

use charter_kernel::authority::Class;
use charter_kernel::refusal::{Code, Refusal};
use charter_store::Txn;
use charter_tenancy::directory::password::{PASSWORD_BYTES_MAX, PASSWORD_CHARACTERS_MIN};
use charter_tenancy::records::link::Purpose;
use http::StatusCode;

use super::{FORM_BYTES_MAX, Form, LinkQuery, caution};
use crate::app::App;
use crate::handler;
use crate::html::{FORM, escape, page};
use crate::reply::Reply;
use crate::request::HostRequest;
use crate::route::HostRoute;
use crate::routes::{links, passwords};
use crate::serve::Params;

/// The path that the link leads to.
pub const PATH: &str = "/password";

/// The `autocomplete` of a password that an account has, and of one that it gets (HTML, 4.10.18.7).
pub const CURRENT: &str = "current-password";
/// See [`CURRENT`].
pub const NEW: &str = "new-password";

/// The field of a form that asks for a password; browsers fill it in by `autocomplete`.
pub fn field(label: &str, autocomplete: &str) -> String {
    format!(
        "<p><label>{label}<br><input type=\"password\" name=\"password\" autocomplete=\"{autocomplete}\" required \
         minlength=\"{PASSWORD_CHARACTERS_MIN}\" maxlength=\"{PASSWORD_BYTES_MAX}\"></label></p>"
    )
}

/// The rows of these pages.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::get(Class::Open, "pages.password", PATH, handler!(show_password_form))
            .summary("Whose password a mailed link sets")
            .refuses(&[Code::NotFound, Code::RateLimited]),
        HostRoute::post(Class::Open, "pages.reset", PATH, handler!(set_password))
            .summary("Set a new password by a mailed link")
            .consumes(FORM, FORM_BYTES_MAX)
            .refuses(&[Code::NotFound, Code::RateLimited]),
    ]
}

/// `GET /password?token=…`: asks for a new password, and changes nothing.
///
/// # Errors
/// 404 for a link that does not count.
pub async fn show_password_form(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Params(asked): Params<LinkQuery>,
) -> Result<Reply, Refusal> {
    let token = asked.token();
    let (_, account) = links::find_account(app, request, txn, token, &Purpose::Reset).await?;
    let caution = caution(&account, "set no password here");
    let (email, token, field) =
        (escape(&account.email), escape(token), field("A new password", NEW));
    let action = PATH.trim_start_matches('/');
    let body = format!(
        "<p>You set a new password for {email}. All sessions of the account end.</p>\n{caution}\
         <form method=\"post\" action=\"{action}\">\n\
         <input type=\"hidden\" name=\"token\" value=\"{token}\">\n{field}\n\
         <p><button>Set the password</button></p>\n</form>"
    );
    Ok(page(StatusCode::OK, "A new password", &body))
}

/// `POST /password`: sets it, once.
///
/// # Errors
/// As of `POST /v1/auth/password/reset`.
pub async fn set_password(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Reply, Refusal> {
    let form = Form::read(app, request)?;
    let (token, password) = (form.field("token"), form.field("password").to_owned());
    let (account, ended) = passwords::reset(app, request, txn, token, password).await?;
    let body = format!(
        "<p>The password of {} is set. Sessions that ended: {ended}. Sign in with it.</p>",
        escape(&account.email)
    );
    Ok(page(StatusCode::OK, "Your password is set", &body))
}

//! What the link for a new password leads to: the page that asks for one, and the change.

use charter_kernel::refusal::Refusal;
use charter_store::Txn;
use http::StatusCode;

use super::{Form, escape, page};
use crate::app::App;
use crate::directory::password::{PASSWORD_BYTES_MAX, PASSWORD_CHARACTERS_MIN};
use crate::records::link::Purpose;
use crate::reply::Reply;
use crate::request::HostRequest;
use crate::routes::{links, passwords};

/// Where the link leads.
pub const PATH: &str = "/password";

/// The field of a form that asks for a new password.
pub fn field(label: &str) -> String {
    format!(
        "<p><label>{label}<br><input type=\"password\" name=\"password\" autocomplete=\"new-password\" required \
         minlength=\"{PASSWORD_CHARACTERS_MIN}\" maxlength=\"{PASSWORD_BYTES_MAX}\"></label></p>"
    )
}

/// `GET /password?token=…`: asks for a new password, and changes nothing.
///
/// # Errors
/// 404 for a link that does not count.
pub async fn show(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let token = request.query_text("token").unwrap_or_default();
    let link = links::presented_for(app, request, txn, token, &Purpose::Reset).await?;
    let account = links::account(txn, &link).await?;
    let caution = match account.is_verified() {
        true => String::new(),
        false => format!(
            "<p>Nobody has proved this address yet. Who registered with it did so at {}: if that was not you, set no \
             password here, and ask for a proof of your address instead.</p>\n",
            account.created_at
        ),
    };
    let (email, token, field) = (escape(&account.email), escape(token), field("A new password"));
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
pub async fn set(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let form = Form::read(app, request)?;
    let (token, password) = (form.field("token"), form.field("password").to_owned());
    let (account, ended) = passwords::renewed(app, request, txn, token, password).await?;
    let body = format!(
        "<p>The password of {} is set. Sessions that ended: {ended}. Sign in with it.</p>",
        escape(&account.email)
    );
    Ok(page(StatusCode::OK, "Your password is set", &body))
}

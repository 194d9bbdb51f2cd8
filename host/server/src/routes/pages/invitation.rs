//! What the link of a mailed invitation leads to: the page that asks for a password, and the
//! acceptance.

use charter_kernel::refusal::Refusal;
use charter_store::Txn;
use http::StatusCode;

use super::{Form, escape, page};
use crate::app::App;
use crate::directory::password::{PASSWORD_BYTES_MAX, PASSWORD_CHARACTERS_MIN};
use crate::reply::Reply;
use crate::request::HostRequest;
use crate::routes::invitations::{self, Accept, Offered};
use crate::routes::links;

/// Where the link leads.
pub const PATH: &str = "/invitation";

/// `GET /invitation?token=…`: shows what is offered, and accepts nothing.
///
/// # Errors
/// 404 for an invitation that does not count.
pub async fn show(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let token = request.query_text("token").unwrap_or_default();
    let attempt = links::throttled(app, request)?;
    let offered = invitations::offered(txn, token, request.now).await?.ok_or_else(links::gone)?;
    app.strangers.give_back(&attempt);
    let Offered { invitation, organization, account, by_mail } = offered;
    let (name, role, email) =
        (escape(&organization.name), invitation.role.as_str(), escape(&invitation.email));
    let (ask, kind) = match account {
        Some(_) => ("The password of your account", "current-password"),
        None => ("A password for your new account", "new-password"),
    };
    // Somebody else may have registered with the address.
    let anew = match account.filter(|account| by_mail && !account.is_verified()) {
        Some(account) => format!(
            "<p><label><input type=\"checkbox\" name=\"new_account\" value=\"true\"> I have not registered with this address \
             (somebody did at {}): make a new account with this password, and take the address from the other one</label></p>\n",
            account.created_at
        ),
        None => String::new(),
    };
    let (action, token) = (PATH.trim_start_matches('/'), escape(token));
    let body = format!(
        "<p>You are invited into {name} as {role}, with the address {email}.</p>\n<form method=\"post\" action=\"{action}\">\n\
         <input type=\"hidden\" name=\"token\" value=\"{token}\">\n\
         <p><label>{ask}<br><input type=\"password\" name=\"password\" autocomplete=\"{kind}\" required \
         minlength=\"{PASSWORD_CHARACTERS_MIN}\" maxlength=\"{PASSWORD_BYTES_MAX}\"></label></p>\n{anew}\
         <p><button>Accept</button></p>\n</form>"
    );
    Ok(page(StatusCode::OK, "An invitation", &body))
}

/// `POST /invitation`: accepts it.
///
/// # Errors
/// As of `POST /v1/auth/invitations/accept`.
pub async fn accept(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let form = Form::read(app, request)?;
    let attempt = links::throttled(app, request)?;
    let wanted = Accept {
        token: form.field("token").to_owned(),
        password: form.field("password").to_owned(),
        new_account: form.field("new_account") == "true",
    };
    let accepted = invitations::taken_up(app, request, txn, wanted).await?;
    app.strangers.give_back(&attempt);
    let body = format!(
        "<p>{} is a member of {} now, as {}.</p>",
        escape(&accepted.account.email),
        escape(&accepted.organization.name),
        accepted.role.as_str()
    );
    Ok(page(StatusCode::CREATED, "Welcome", &body))
}

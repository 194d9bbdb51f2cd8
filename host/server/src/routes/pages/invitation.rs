//! The target of a mailed invitation's link: the page that asks for a password, and the acceptance.

use charter_kernel::authority::Class;
use charter_kernel::refusal::{Code, Refusal};
use charter_store::Txn;
use http::StatusCode;

use super::password::{CURRENT, NEW, field};
use super::{FORM_BYTES_MAX, Form, LinkQuery};
use crate::app::App;
use crate::handler;
use crate::html::{FORM, escape, page};
use crate::reply::Reply;
use crate::request::HostRequest;
use crate::route::HostRoute;
use crate::routes::invitations::{self, Acceptance, Offered, PATH};
use crate::routes::links;
use crate::serve::Params;

/// The rows of these pages.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::get(Class::Open, "pages.invitation", PATH, handler!(show_invitation))
            .summary("What a mailed invitation offers")
            .refuses(&[Code::NotFound, Code::RateLimited]),
        HostRoute::post(Class::Open, "pages.accept", PATH, handler!(accept_invitation))
            .summary("Accept a mailed invitation")
            .consumes(FORM, FORM_BYTES_MAX)
            .refuses(&[
                Code::Unauthorized,
                Code::DuplicateRecord,
                Code::StateConflict,
                Code::RateLimited,
            ]),
    ]
}

/// `GET /invitation?token=…`: shows what is offered, and accepts nothing.
///
/// # Errors
/// 404 for an invitation that does not count.
pub async fn show_invitation(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Params(asked): Params<LinkQuery>,
) -> Result<Reply, Refusal> {
    let token = asked.token();
    let attempt = links::throttle(app, request)?;
    let offered =
        invitations::find_offer(txn, token, request.now).await?.ok_or_else(links::no_such_link)?;
    app.bounds.strangers.give_back(&attempt);
    let Offered { invitation, organization, account, by_mail } = offered;
    let (name, role, email) =
        (escape(&organization.name), invitation.role.as_str(), escape(&invitation.email));
    let (ask, kind) = match account {
        Some(_) => ("The password of your account", CURRENT),
        None => ("A password for your new account", NEW),
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
    let field = field(ask, kind);
    let body = format!(
        "<p>You are invited into {name} as {role}, with the address {email}.</p>\n<form method=\"post\" action=\"{action}\">\n\
         <input type=\"hidden\" name=\"token\" value=\"{token}\">\n\
         {field}\n{anew}\
         <p><button>Accept</button></p>\n</form>"
    );
    Ok(page(StatusCode::OK, "An invitation", &body))
}

/// `POST /invitation`: accepts it.
///
/// # Errors
/// As of `POST /v1/auth/invitations/accept`.
pub async fn accept_invitation(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Reply, Refusal> {
    let form = Form::read(app, request)?;
    let attempt = links::throttle(app, request)?;
    let wanted = Acceptance {
        token: form.field("token").into(),
        password: form.field("password").into(),
        new_account: form.field("new_account") == "true",
    };
    let accepted = invitations::accept(app, request, txn, wanted).await?;
    app.bounds.strangers.give_back(&attempt);
    let body = format!(
        "<p>{} is a member of {} now, as {}.</p>",
        escape(&accepted.account.email),
        escape(&accepted.organization.name),
        accepted.role.as_str()
    );
    Ok(page(StatusCode::CREATED, "Welcome", &body))
}

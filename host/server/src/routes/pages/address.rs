//! The target of the link that proves an address: the page that says who has it, and what its two
//! buttons do, which is to confirm that account, or to register a new one that takes the address.

use charter_kernel::authority::Class;
use charter_kernel::refusal::{Code, Refusal};
use charter_store::Txn;
use charter_tenancy::records::account::Account;
use charter_tenancy::records::link::Purpose;
use charter_tenancy::records::organization::Organization;
use charter_tenancy::stored;
use http::StatusCode;

use super::password::{NEW, field};
use super::{FORM_BYTES_MAX, Form, LinkQuery};
use crate::app::App;
use crate::handler;
use crate::html::{FORM, escape, fact, page};
use crate::reply::Reply;
use crate::request::HostRequest;
use crate::route::HostRoute;
use crate::routes::shape::{Email, Name, Optional};
use crate::routes::{addresses, auth, links};
use crate::serve::Params;

/// The path that the link leads to.
pub const PATH: &str = "/address";

/// The rows of these pages.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::get(Class::Open, "pages.address", PATH, handler!(show_address))
            .summary("Who has the address that a mailed link proves")
            .refuses(&[Code::NotFound, Code::RateLimited]),
        HostRoute::post(Class::Open, "pages.prove", PATH, handler!(choose_account))
            .summary("Prove an address by a mailed link, or register with it")
            .consumes(FORM, FORM_BYTES_MAX)
            .refuses(&[Code::NotFound, Code::DuplicateRecord, Code::RateLimited]),
    ]
}

/// `GET /address?token=…`: shows who has the address, and changes nothing.
///
/// # Errors
/// 404 for a link that does not count.
pub async fn show_address(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    Params(asked): Params<LinkQuery>,
) -> Result<Reply, Refusal> {
    let token = asked.token();
    let link = links::find_for_purpose(app, request, txn, token, &Purpose::Proof).await?;
    let account = stored::holder::<Account>(txn, &Account::claim(&link.email)).await?;
    let mut body = format!("<p>You have proved that {} is yours.</p>\n", escape(&link.email));
    let form = |choice: &str, fields: &str, button: &str| {
        let (action, token) = (PATH.trim_start_matches('/'), escape(token));
        format!(
            "<form method=\"post\" action=\"{action}\">\n<input type=\"hidden\" name=\"token\" value=\"{token}\">\n\
             <input type=\"hidden\" name=\"choice\" value=\"{choice}\">\n{fields}<p><button>{button}</button></p>\n</form>\n"
        )
    };
    if let Some(account) = account.map(|found| found.record) {
        let mut facts = fact("Registered at", &account.created_at.to_string());
        for organization in &account.organizations {
            let address = Organization::address(organization);
            if let Some(found) = stored::get::<Organization>(txn, &address).await? {
                facts.push_str(&fact("Organization", &found.record.name));
            }
        }
        body.push_str(&format!(
            "<p>Somebody has registered with it:</p>\n<dl>\n{facts}</dl>\n<p>If that was you:</p>\n"
        ));
        body.push_str(&form("confirm", "", "It is my account"));
        body.push_str(
            "<p>If it was not, register. That account then loses the address, and keeps what is its own.</p>\n",
        );
    }
    let fields = format!(
        "{}\n<p><label>Your organization's name<br><input type=\"text\" name=\"company_name\" maxlength=\"128\"></label></p>\n",
        field("A password for your new account", NEW)
    );
    body.push_str(&form("register", &fields, "Register"));
    Ok(page(StatusCode::OK, "Your address", &body))
}

/// `POST /address`: confirms, or registers.
///
/// # Errors
/// 404 for a link that does not count, and as of `POST /v1/auth/register`.
pub async fn choose_account(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
) -> Result<Reply, Refusal> {
    let form = Form::read(app, request)?;
    let token = form.field("token");
    match form.field("choice") {
        "confirm" => {
            let account = addresses::confirm(app, request, txn, token).await?;
            let body = format!("<p>{} is proved.</p>", escape(&account.email));
            Ok(page(StatusCode::OK, "Your address is proved", &body))
        }
        "register" => {
            let link = links::find_for_purpose(app, request, txn, token, &Purpose::Proof).await?;
            let name = Some(form.field("company_name").trim()).filter(|name| !name.is_empty());
            let wanted = auth::Registering {
                email: Email(link.email),
                password: form.field("password").into(),
                company_name: Optional(name.map(Name::from)),
                proof: Optional(Some(token.into())),
            };
            let founded = auth::create_account(app, request, txn, wanted).await?;
            let facts = [
                fact("Organization", &founded.organization.name),
                fact("API key, shown this once", founded.secret.reveal()),
            ];
            let body = format!("<dl>\n{}</dl>", facts.concat());
            Ok(page(StatusCode::CREATED, "You are registered", &body))
        }
        _ => Err(Refusal::invalid("choice", "must be confirm or register")),
    }
}

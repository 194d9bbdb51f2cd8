//! What the link leads to that proves an address: the page that says who has it, and what its two
//! buttons do, which is to confirm that account, or to register a new one that takes the address.

use charter_kernel::refusal::Refusal;
use charter_store::Txn;
use http::StatusCode;

use super::password::field;
use super::{Form, escape, fact, page};
use crate::app::App;
use crate::records::account::Account;
use crate::records::link::Purpose;
use crate::records::organization::Organization;
use crate::reply::Reply;
use crate::request::HostRequest;
use crate::routes::{addresses, auth, links, stored};

/// Where the link leads.
pub const PATH: &str = "/address";

/// `GET /address?token=…`: shows who has the address, and changes nothing.
///
/// # Errors
/// 404 for a link that does not count.
pub async fn show(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let token = request.query_text("token").unwrap_or_default();
    let link = links::presented_for(app, request, txn, token, &Purpose::Proof).await?;
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
        field("A password for your new account")
    );
    body.push_str(&form("register", &fields, "Register"));
    Ok(page(StatusCode::OK, "Your address", &body))
}

/// `POST /address`: confirms, or registers.
///
/// # Errors
/// 404 for a link that does not count, and as of `POST /v1/auth/register`.
pub async fn choose(app: &App, request: &HostRequest, txn: &mut Txn) -> Result<Reply, Refusal> {
    let form = Form::read(app, request)?;
    let token = form.field("token");
    match form.field("choice") {
        "confirm" => {
            let account = addresses::confirmed(app, request, txn, token).await?;
            let body = format!("<p>{} is proved.</p>", escape(&account.email));
            Ok(page(StatusCode::OK, "Your address is proved", &body))
        }
        "register" => {
            let link = links::presented_for(app, request, txn, token, &Purpose::Proof).await?;
            let name = Some(form.field("company_name").trim()).filter(|name| !name.is_empty());
            let wanted = auth::Register {
                email: link.email,
                password: form.field("password").to_owned(),
                company_name: name.map(str::to_owned),
                proof: Some(token.to_owned()),
            };
            let founded = auth::registered(app, request, txn, wanted).await?;
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

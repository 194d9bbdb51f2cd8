//! The payment provider's own pages, where one is bound.

use charter_sdk::prelude::*;
use charter_sdk::{http, settings};

use crate::invoices::PROVIDER;

#[derive(Serialize, JsonSchema)]
pub(crate) struct Portal {
    /// Where a person manages how the organization pays.
    url: String,
}

/// What the provider answers.
#[derive(Deserialize)]
struct Session {
    url: String,
}

pub(crate) fn open() -> Result<Portal> {
    let binding = settings::binding(PROVIDER)?.ok_or_else(|| Failure::not_configured(&[PROVIDER]))?;
    let customer = binding.option("customer").filter(|id| id.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_'));
    let customer = customer.ok_or_else(|| Failure::not_configured(&["stripe.customer"]))?;
    let mut request = http::binding(PROVIDER).post("/v1/billing_portal/sessions");
    request.body = format!("customer={customer}").into_bytes();
    let answer = request.header("content-type", "application/x-www-form-urlencoded").send()?;
    if !answer.is_success() {
        return Err(Failure::provider(format!("the payment provider answered {}", answer.status)));
    }
    let session: Session = answer.json()?;
    Ok(Portal { url: session.url })
}

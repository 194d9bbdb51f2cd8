//! The payment provider's own pages, where one is bound.

use charter_sdk::prelude::*;

use crate::stripe::{self, Form, PROVIDER};
use crate::{account, customer};

#[derive(Serialize, JsonSchema)]
pub(crate) struct Portal {
    /// The page on which a person manages how the organization pays.
    url: String,
}

pub(crate) fn open(caller: Caller, context: Context) -> Result<Portal> {
    let binding = customer::provider()?.ok_or_else(|| Failure::not_configured(&[PROVIDER]))?;
    let customer = match (customer::configured_customer(&binding), account::find()?) {
        (Some(named), _) => named,
        (None, Some(account)) => customer::of(&binding, account, &caller.organization)?,
        // An organization that is not billed here has no customer either.
        (None, None) => return Err(Failure::not_configured(&["stripe.customer"])),
    };
    let mut form = Form::default().with("customer", &customer);
    if let Some(back) = binding.option("return_url") {
        form = form.with("return_url", back);
    }
    // A session is for whoever asks now: each request has its own.
    let session = stripe::STRIPE.post(
        "/v1/billing_portal/sessions",
        form,
        &format!("charter-portal-{}", context.request_id),
    )?;
    Ok(Portal { url: stripe::text(&session, "url")? })
}

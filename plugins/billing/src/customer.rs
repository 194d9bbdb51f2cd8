//! The organization's customer at the payment provider: created on first need, and kept in the
//! organization's account.

use charter_sdk::documents;
use charter_sdk::prelude::*;
use charter_sdk::settings::{self, Binding};

use crate::account::{ACCOUNTS, Account};
use crate::stripe::{self, Form, PROVIDER, Refused};

/// The provider, where it is bound.
pub(crate) fn provider() -> Result<Option<Binding>> {
    settings::binding(PROVIDER)
}

/// The option that names the customer, where the operator has set one for this organization.
pub(crate) fn configured_customer(binding: &Binding) -> Option<String> {
    binding.option("customer").filter(|id| stripe::is_id(id)).map(str::to_owned)
}

/// The customer of an account. It is committed as soon as it is made: whatever becomes of the rest,
/// it is not made again.
///
/// Commits what was read and written before it asks the provider, and reads the account anew once it
/// has answered: what others write meanwhile neither ends this request nor is lost.
pub(crate) fn of(
    binding: &Binding,
    account: Doc<Account>,
    organization: &str,
) -> Result<String, Refused> {
    if let Some(customer) = configured_customer(binding).or(account.body.customer) {
        return Ok(customer);
    }
    documents::checkpoint().map_err(Refused::Unsure)?;
    let form = Form::default()
        .with("description", &format!("Organization {organization}"))
        .with("metadata[charter_organization]", organization);
    let made =
        stripe::STRIPE.post("/v1/customers", form, &format!("charter-customer-{}", account.id))?;
    let customer = stripe::text(&made, "id")?;
    let kept = || {
        let account = ACCOUNTS.get(&account.id)?.or_not_found("account")?;
        // Of several who ask at once, each is answered the same customer.
        if account.body.customer.is_none() {
            ACCOUNTS.replace(account.at(), account.body.with_customer(customer.clone()))?;
            documents::checkpoint()?;
        }
        Ok(())
    };
    kept().map_err(Refused::Unsure)?;
    Ok(customer)
}

//! The organization's customer at the payment provider: created on first need, and kept.

use charter_sdk::prelude::*;
use charter_sdk::settings::{self, Binding};
use charter_sdk::{Reach, documents};

use crate::account::Account;
use crate::stripe::{self, Form, PROVIDER, Refused};

/// The organization's customers at the provider. Of several who ask at once each keeps what it was
/// answered, which is one and the same: none of them waits for another, or is in its way.
pub(crate) const CUSTOMERS: Collection<Customer> =
    Collection::new("customers").reach(Reach::Organization);

/// A customer.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Customer {
    /// Its id at the provider.
    id: String,
}

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
/// Commits what was read and written before it asks the provider: what others write meanwhile neither
/// ends this request nor is lost.
pub(crate) fn of(
    binding: &Binding,
    account: Doc<Account>,
    organization: &str,
) -> Result<String, Refused> {
    if let Some(customer) = configured_customer(binding).or(account.body.customer) {
        return Ok(customer);
    }
    if let Some(customer) =
        CUSTOMERS.all().oldest_first().relax().first().map_err(Refused::Unsure)?
    {
        return Ok(customer.body.id);
    }
    documents::checkpoint().map_err(Refused::Unsure)?;
    let form = Form::default()
        .with("description", &format!("Organization {organization}"))
        .with("metadata[charter_organization]", organization);
    let made =
        stripe::STRIPE.post("/v1/customers", form, &format!("charter-customer-{}", account.id))?;
    let id = stripe::text(&made, "id")?;
    let kept = CUSTOMERS.insert(Customer { id: id.clone() }).map(drop);
    kept.and_then(|()| documents::checkpoint()).map_err(Refused::Unsure)?;
    Ok(id)
}

//! Billing: plans, packs of credit, invoices, and the trial before. Invoices are paid in a closed
//! loop, by what the operator notes, or by card where a payment provider is bound.
//!
//! This file is the declaration. `plans` holds what can be bought, `invoices` what is owed and what
//! becomes of a payment, `subscriptions` the plan that an organization has, `account` how it stands
//! and what is due next. `payments` is what is asked of the provider, `receipts` what it says it
//! received, `customer` and `portal` who the organization is there, `stripe` its interface.

mod account;
mod calendar;
mod customer;
mod invoices;
mod payments;
mod plans;
mod portal;
mod receipts;
mod stripe;
mod subscriptions;

#[cfg(test)]
mod tests;

use charter_sdk::manifest::{Action, Pays};
use charter_sdk::prelude::*;

/// The primitive.
pub fn primitive() -> Primitive {
    Primitive::new("billing", env!("CARGO_PKG_VERSION"))
        .title("Billing")
        .summary("Plans, packs of credit, invoices and the trial before.")
        .description(include_str!("billing.md"))
        .uses("ledger")
        .uses("primitives")
        .uses("jobs")
        .collection(&account::ACCOUNTS)
        .collection(&customer::CUSTOMERS)
        .collection(&invoices::INVOICES)
        .collection(&subscriptions::SUBSCRIPTIONS)
        .collection(&payments::PAYMENTS)
        .collection(&receipts::RECEIPTS)
        .setting(plans::plans_setting)
        .setting(plans::packs_setting)
        .setting(plans::trial_setting)
        .setting(plans::signup_setting)
        .provider(
            stripe::PROVIDER,
            &[stripe::KIND],
            "The payment provider. Options: `customer`, who the organization is there, else one is made; `return_url`, where its pages lead back to.",
        )
        .action(Action {
            name: payments::TOP_UP,
            title: "Buy credit by card",
            description: "Charges a payment method for credit, or for an open invoice.",
            risk: "high",
            spends: true,
        })
        .action(Action {
            name: payments::SUBSCRIBE,
            title: "Subscribe by card",
            description: "Charges a payment method for the first period of a plan.",
            risk: "high",
            spends: true,
        })
        .action(Action {
            name: payments::UPGRADE,
            title: "Upgrade by card",
            description: "Charges a payment method for the way to a dearer plan.",
            risk: "high",
            spends: true,
        })
        .action(Action {
            name: receipts::REFUND,
            title: "Take back what was refunded",
            description: "Takes what the provider has given back to the payer from credit that is set aside. It has happened: nobody is asked.",
            risk: "medium",
            spends: false,
        })
        .event("billing.invoice.updated", "An invoice was opened, paid or voided.")
        .formerly("invoice.updated")
        .event("billing.subscription.updated", "A subscription was changed, or has ended.")
        .formerly("subscription.updated")
        .on("registered", |_| account::settle(account::Change::default()).map(drop))
        .on("credit", |signal| invoices::settle_by_credit(&signal))
        .on("doubt", |signal| payments::settle_doubt(&signal))
        .hook(|call| receipts::hear(&call))
        .job(payments::PAY, |run| payments::pay(&run))
        .job(account::TURN, |_| account::settle(account::Change::default()).map(drop))
        .operation(
            get("billing.plans", "/billing/plans", plans::list)
                .summary("List the plans")
                .authority(Authority::ProfileRead)
                .pays(Pays::ViewPlans),
        )
        .operation(
            get("billing.packs", "/billing/packs", plans::packs)
                .summary("List the packs of credit")
                .authority(Authority::ProfileRead),
        )
        .operation(
            post("billing.subscribe", "/billing/subscribe", subscriptions::subscribe)
                .summary("Subscribe to a plan; it counts once its invoice is paid")
                .description("409 `state_conflict` where there is a subscription already. It is paid as credit is: see `POST /billing/topup`.")
                .access(Access::Admin)
                .authority(Authority::OrganizationChange)
                .action(payments::SUBSCRIBE)
                .pays(Pays::Subscribe),
        )
        .operation(
            post("billing.credits_subscription", "/credits/subscription", subscriptions::subscribe)
                .summary("Subscribe to a plan; the same as below /billing")
                .access(Access::Admin)
                .authority(Authority::OrganizationChange)
                .action(payments::SUBSCRIBE)
                .no_tool(),
        )
        .operation(
            post("billing.upgrade", "/billing/upgrade", subscriptions::upgrade)
                .summary("Change to a dearer plan; it counts once the difference is paid")
                .description("409 `state_conflict` where the plan is no dearer, and where an invoice is overdue.")
                .access(Access::Admin)
                .authority(Authority::OrganizationChange)
                .action(payments::UPGRADE),
        )
        .operation(
            get("billing.subscription", "/billing/subscription", subscriptions::read).summary("The subscription and the trial"),
        )
        .operation(
            post("billing.cancel", "/billing/cancel", subscriptions::cancel)
                .summary("Cancel the subscription, at the end of its period or at once")
                .description("What was not paid for yet ends at once.")
                .access(Access::Admin),
        )
        .operation(
            post("billing.portal", "/billing/portal", portal::open)
                .summary("Where a person manages how the organization pays")
                .access(Access::Admin)
                .needs(&[stripe::PROVIDER]),
        )
        .operation(
            post("billing.top_up", "/billing/topup", invoices::top_up)
                .summary("Buy credit: an amount or a pack; or pay an open invoice by card")
                .description(include_str!("topup.md"))
                .authority(Authority::OrganizationChange)
                .action(payments::TOP_UP)
                .pays(Pays::Topup),
        )
        .operation(get("billing.invoices", "/billing/invoices", invoices::list).summary("List invoices, oldest first"))
        .operation(get("billing.invoice", "/billing/invoices/{id}", invoices::read).summary("One invoice"))
}

charter_sdk::export!(primitive);

//! Payments between the users of a project, in a closed loop: charges and their refunds, transfers,
//! and requests to be paid.
//!
//! This file is the declaration. `payments` holds what a user made, `requests` what one asks of
//! another, `moves` the postings behind both with the balance, `money` who pays whom and the words
//! for it. Whether money may move is the host's to say: every move but the last one of a deleted
//! user asks for leave first.

mod money;
mod moves;
mod payments;
mod requests;

#[cfg(test)]
mod tests;

use charter_sdk::manifest::Action;
use charter_sdk::prelude::*;

/// The primitive.
pub fn primitive() -> Primitive {
    Primitive::new("payments", env!("CARGO_PKG_VERSION"))
        .title("Payments")
        .summary("Charges, refunds, transfers and payment requests between users, in a closed loop.")
        .description(include_str!("payments.md"))
        .uses("ledger")
        .collection(&payments::PAYMENTS)
        .collection(&moves::MOVES)
        .collection(&requests::REQUESTS)
        .action(Action {
            name: money::CHARGE,
            title: "Charge a user",
            description: "Takes money from another user's balance.",
            risk: "high",
            spends: false,
        })
        .action(Action {
            name: money::REFUND,
            title: "Refund a charge",
            description: "Gives a charge back to the user that it was taken from.",
            risk: "medium",
            spends: true,
        })
        .action(Action {
            name: money::TRANSFER,
            title: "Transfer money",
            description: "Moves money to a user, from one's own balance or from the organization's credit.",
            risk: "high",
            spends: true,
        })
        .event("payments.updated", "A payment was made or refunded.")
        .formerly("payment.updated")
        .event("payments.request.updated", "A payment request was made, paid, declined or canceled.")
        .formerly("payment.request.updated")
        .on("deleted", |signal| {
            requests::close_all(&signal)?;
            moves::close()
        })
        .operation(
            post("payments.charge", "/payments/charge", payments::charge)
                .summary("Take money from another user's balance")
                .description(
                    "402 `insufficient_credits` where that balance does not cover it. 403 `pinned_to_user` for a credential that is \
                     pinned to one user.",
                )
                .action(money::CHARGE),
        )
        .operation(
            post("payments.refund", "/payments/{id}/refund", payments::refund)
                .summary("Refund a charge; no amount means the rest")
                .description("409 `state_conflict` where nothing is left to refund, and for a payment that is no charge.")
                .action(money::REFUND),
        )
        .operation(
            post("payments.transfer", "/payments/transfer", payments::transfer)
                .summary("Move money to a user, or credit to one's own balance")
                .description(
                    "From one's own balance, or with `source: credit` from the organization's credit: that one may also go to \
                     oneself, and is 403 `pinned_to_user` for a credential that is pinned to one user.",
                )
                .action(money::TRANSFER),
        )
        .operation(get("payments.list", "/payments", payments::list).summary("List the payments that one made"))
        .operation(get("payments.read", "/payments/{id}", payments::read).summary("One payment"))
        .operation(get("payments.balance", "/payments/balance", moves::balance).summary("What one's balance holds"))
        .operation(
            get("payments.transactions", "/payments/transactions", moves::transactions)
                .summary("What came to one's balance and left it, oldest first"),
        )
        .operation(
            post("payments.request", "/payments/requests", requests::create)
                .summary("Ask another user for money")
                .description("Whether there is such a user is found out when it pays."),
        )
        .operation(
            get("payments.requests", "/payments/requests", requests::list)
                .summary("List what one is asked to pay, or what one asked others for"),
        )
        .operation(
            get("payments.request_read", "/payments/requests/{id}", requests::read)
                .summary("One payment request, for who asked and who is asked"),
        )
        .operation(
            post("payments.request_pay", "/payments/requests/{id}/pay", requests::pay)
                .summary("Pay what one is asked for, from one's own balance")
                .action(money::TRANSFER),
        )
        .operation(
            post("payments.request_decline", "/payments/requests/{id}/decline", requests::decline)
                .summary("Decline what one is asked for"),
        )
        .operation(
            post("payments.request_cancel", "/payments/requests/{id}/cancel", requests::cancel).summary("Take a request back"),
        )
}

charter_sdk::export!(primitive);

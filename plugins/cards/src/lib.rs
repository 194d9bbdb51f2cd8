//! Cards of a profile: topped up from the organization's credit, authorized under a cap, captured,
//! reversed and refunded; in a closed loop, or at the merchants of a card network where an issuer
//! is bound.
//!
//! This file is the declaration. `cards` holds the card itself, `authorizations` what merchants do
//! with it, `money` the accounts, `issuer` what a card network adds. Whether money may move is the
//! host's to say: each move that leaves asks for leave first, and nothing here counts a cap.

mod authorizations;
mod cards;
mod issuer;
mod money;

#[cfg(test)]
mod tests;

use charter_sdk::manifest::Action;
use charter_sdk::prelude::*;
use charter_sdk::stripe;

/// The primitive.
pub fn primitive() -> Primitive {
    Primitive::new("cards", env!("CARGO_PKG_VERSION"))
        .title("Cards")
        .summary("Spend-capped cards, in a closed loop or of a card network: top-ups, authorizations, captures, reversals and refunds.")
        .description(include_str!("cards.md"))
        .uses("ledger")
        .uses("settings")
        .collection(&cards::CARDS)
        .collection(&authorizations::AUTHORIZATIONS)
        .collection(&issuer::MOVES)
        .collection(&issuer::ENDED)
        .provider(
            issuer::ISSUER,
            &[stripe::KIND],
            "The issuer of open-loop cards, which asks here before each payment. Option: `cardholder`, the issuer's id of whose cards they are \
             where a request names nobody.",
        )
        .action(Action {
            name: money::TOP_UP,
            title: "Top up a card",
            description: "Moves the organization's credit to a card.",
            risk: "medium",
            spends: true,
        })
        .action(Action {
            name: money::AUTHORIZE,
            title: "Authorize a card payment",
            description: "Sets money of a card aside for a merchant.",
            risk: "high",
            spends: true,
        })
        .action(Action {
            name: money::REFUND,
            title: "Refund a card payment",
            description: "Gives what a merchant of the closed loop took back to its card.",
            risk: "medium",
            spends: false,
        })
        .event("cards.updated", "A card was created, changed, frozen, unfrozen or canceled.")
        .formerly("card.updated")
        .event("cards.authorization.updated", "An authorization was made, captured, reversed or refunded.")
        .formerly("card.authorization.updated")
        .event("cards.revealed", "The number of a card was shown.")
        .formerly("card.revealed")
        .on("deleted", |_| cards::close_all())
        .question(|call| issuer::decide(&call))
        .hook(|call| issuer::hear(&call))
        .job(issuer::ISSUE, |run| issuer::issue(&run))
        .job(issuer::MIRROR, |run| issuer::mirror(&run))
        .job(cards::RETURN, |run| cards::return_later(&run))
        .operation(post("cards.create", "/cards", cards::create).summary("Create a card").description(
            "`network: open_loop` has an issuer make a card of a card network: 501 where none is bound. The issuer asks before each payment, \
             and hears yes only where policy, caps and the card's balance admit it.",
        ))
        .operation(get("cards.list", "/cards", cards::list).summary("List cards"))
        .operation(get("cards.read", "/cards/{id}", cards::read).summary("One card with its balance"))
        // People loosen caps by hand too: an organization may ask that nothing else does.
        .operation(
            patch("cards.update", "/cards/{id}", cards::update)
                .summary("Change a card's label and cap")
                .authority(Authority::DeskChange),
        )
        .operation(
            post("cards.freeze", "/cards/{id}/freeze", cards::freeze)
                .summary("Freeze a card: nothing new is authorized, what was authorized can be captured"),
        )
        .operation(
            post("cards.unfreeze", "/cards/{id}/unfreeze", cards::unfreeze)
                .summary("Let a frozen card be used again")
                .authority(Authority::DeskChange),
        )
        .operation(
            post("cards.cancel", "/cards/{id}/cancel", cards::cancel)
                .summary("Cancel a card for good; its balance returns to credit")
                .description(
                    "409 `state_conflict` unless the card is active or frozen, no authorization is open and none waits for approval. Of a card \
                     that was canceled minutes ago and still has a balance, the balance returns; without one it is 409.",
                ),
        )
        .operation(
            post("cards.top_up", "/cards/{id}/top-up", cards::top_up)
                .summary("Move credit of the organization to a card")
                .action(money::TOP_UP),
        )
        .operation(
            post("cards.number", "/cards/{id}/number", issuer::number)
                .summary("What a merchant asks for: an open-loop card's number, security code and expiry")
                .description(
                    "Asked of the issuer each time, and kept nowhere; each time is a row of the audit log. 409 `closed_loop` for a \
                     card that has none, and while the card is frozen.",
                )
                .authority(Authority::ProfileSecret)
                .no_tool(),
        )
        .operation(
            get("cards.transactions", "/cards/{id}/transactions", cards::transactions)
                .summary("What moved on a card, oldest first"),
        )
        .operation(
            post("cards.authorize", "/cards/{id}/authorizations", authorizations::create)
                .summary("Set money aside for a merchant")
                .action(money::AUTHORIZE),
        )
        .operation(
            get("cards.authorizations", "/cards/{id}/authorizations", authorizations::list).summary("List a card's authorizations"),
        )
        .operation(
            get("cards.authorization", "/cards/{id}/authorizations/{authorization_id}", authorizations::read)
                .summary("One authorization"),
        )
        .operation(
            post("cards.capture", "/cards/{id}/authorizations/{authorization_id}/capture", authorizations::capture)
                .summary("Capture an authorization: all of it, or part of it")
                .description(
                    "What is not captured returns to the card. More than was authorized is 409 `state_conflict`, with `left_micro_usd`, and \
                     the authorization stays as it is.",
                ),
        )
        .operation(
            post("cards.reverse", "/cards/{id}/authorizations/{authorization_id}/reverse", authorizations::reverse)
                .summary("Give an authorization back"),
        )
        .operation(
            post("cards.refund", "/cards/{id}/authorizations/{authorization_id}/refund", authorizations::refund)
                .summary("Refund a capture to its card; no amount means the rest")
                .description("409 `state_conflict` where nothing is left to refund.")
                .action(money::REFUND),
        )
}

charter_sdk::export!(primitive);

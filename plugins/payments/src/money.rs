//! The parties of a payment, their accounts, and the words for it.

use charter_sdk::ledger;
use charter_sdk::prelude::*;

/// The regulated action of a charge.
pub(crate) const CHARGE: &str = "payments.charge";
/// The regulated action of a refund.
pub(crate) const REFUND: &str = "payments.refund";
/// The regulated action of a transfer, asked for or not.
pub(crate) const TRANSFER: &str = "payments.transfer";
/// The account of each user.
pub(crate) const BALANCE: &str = "balance";
/// How a user's id is written.
pub(crate) const USER_ID: &str = "^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$";

/// The loop that the money moves in.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Network {
    ClosedLoop,
}

/// The currency of amounts.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Currency {
    #[default]
    Usd,
}

/// One side of a move.
#[derive(Clone, Debug)]
pub(crate) enum Party {
    /// The organization.
    Credit,
    /// The caller.
    Me(String),
    /// Another user of the project.
    User(String),
}

impl Party {
    /// Its account, as the ledger names it for the caller.
    pub(crate) fn account(&self) -> String {
        match self {
            Party::Credit => ledger::CREDIT.into(),
            Party::Me(_) => BALANCE.into(),
            Party::User(id) => ledger::of_user(id, BALANCE),
        }
    }

    /// The user, unless it is the organization.
    pub(crate) fn user(&self) -> Option<&str> {
        match self {
            Party::Credit => None,
            Party::Me(id) | Party::User(id) => Some(id),
        }
    }
}

/// The purpose, behind a sentence's last word.
pub(crate) fn purpose(description: Option<&str>) -> String {
    description.map_or_else(String::new, |text| format!(", for \"{text}\""))
}

/// The calling user: a payment is always somebody's.
pub(crate) fn user(caller: &Caller) -> Result<&str> {
    let hint = "Call it below /users/{user_id}, or name the user in X-Service-User-Id.";
    let nobody = || {
        Failure::new("invalid_input", "a payment is a user's, and the caller names none").hint(hint)
    };
    caller.user.as_deref().ok_or_else(nobody)
}

/// Refuses the organization's credit to a caller whose credential is pinned to one user.
pub(crate) fn takes_credit(caller: &Caller) -> Result<()> {
    if caller.subject != "credential" {
        return Ok(());
    }
    let told =
        "a credential that is pinned to one user takes nothing from the organization's credit";
    Err(Failure::forbidden(told).reason("pinned_to_user"))
}

/// The failure for an absent user whom this member of the body named.
pub(crate) fn absent(param: &str) -> impl Fn(Failure) -> Failure {
    move |failure| if failure.is("resource_not_found") { failure.param(param) } else { failure }
}

/// The failure for an absent user whom an earlier request named.
pub(crate) fn user_gone(failure: Failure) -> Failure {
    if !failure.is("resource_not_found") {
        return failure;
    }
    Failure::conflict("the other user is no user of the project").reason("user_gone")
}

//! The accounts behind cards, and the actions that move money.

use charter_sdk::ledger;
use charter_sdk::money::cents;
use charter_sdk::prelude::*;

/// The regulated action of a top-up.
pub(crate) const TOP_UP: &str = "cards.top_up";
/// The regulated action of an authorization.
pub(crate) const AUTHORIZE: &str = "cards.authorize";
/// The regulated action of a refund in the closed loop.
pub(crate) const REFUND: &str = "cards.refund";
/// The account of merchants' captures, in the closed loop.
pub(crate) const MERCHANTS: &str = "merchants";
/// The scope of a card's own cap.
pub(crate) const SCOPE: &str = "card";

/// The account of a card.
pub(crate) fn account(card: &str) -> String {
    format!("card/{card}")
}

/// The balance of an account, in cents.
pub(crate) fn there(account: &str) -> Result<u64> {
    Ok(u64::try_from(cents(ledger::balance(account)?.available)).unwrap_or_default())
}

/// The debt of an account, in cents.
pub(crate) fn debt(account: &str) -> Result<u64> {
    Ok(u64::try_from(-cents(ledger::balance(account)?.posted)).unwrap_or_default())
}

/// Refuses callers that may not loosen: an agent's own key, and roles below admin.
pub(crate) fn loosens(caller: &charter_sdk::Caller) -> Result<()> {
    let admin = matches!(caller.role.as_deref(), Some("owner" | "admin"));
    // The host tells the role of a pinned credential without the power to administer, and so it
    // does of a key's where the organization asks for a person.
    if admin {
        return Ok(());
    }
    let told = "This would loosen what bounds the card.";
    let hint = "It takes the session of an owner or admin, or an admin key without pins where the organization lets keys loosen.";
    Err(Failure::forbidden(told).reason("loosening_not_allowed").hint(hint))
}

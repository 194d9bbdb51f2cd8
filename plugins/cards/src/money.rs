//! The accounts behind cards, and the actions that move money.

use charter_sdk::prelude::*;

/// The regulated action of a top-up.
pub(crate) const TOP_UP: &str = "cards.top_up";
/// The regulated action of an authorization.
pub(crate) const AUTHORIZE: &str = "cards.authorize";
/// What merchants have captured, in the closed loop.
pub(crate) const MERCHANTS: &str = "merchants";
/// The scope of a card's own cap.
pub(crate) const SCOPE: &str = "card";

/// Micro-US-dollars of a cent.
const MICRO_USD_PER_CENT: i64 = 10_000;

/// The account of a card.
pub(crate) fn account(card: &str) -> String {
    format!("card/{card}")
}

/// Cents as the ledger counts. The schemas bound them far below the integer's range.
pub(crate) fn micro_usd(cents: u64) -> i64 {
    i64::try_from(cents).unwrap_or(i64::MAX).saturating_mul(MICRO_USD_PER_CENT)
}

/// Whole cents of what the ledger counts.
pub(crate) fn cents(micro_usd: i64) -> i64 {
    micro_usd.div_euclid(MICRO_USD_PER_CENT)
}

/// Refuses callers that may not loosen: an agent's own key, and roles below admin.
pub(crate) fn loosens(caller: &charter_sdk::Caller) -> Result<()> {
    let admin = matches!(caller.role.as_deref(), Some("owner" | "admin"));
    if admin && caller.subject != "credential" {
        return Ok(());
    }
    let told = "This would loosen what bounds the card.";
    let hint = "It takes an owner's or admin's credential that is not pinned to one user.";
    Err(Failure::forbidden(told).reason("loosening_not_allowed").hint(hint))
}

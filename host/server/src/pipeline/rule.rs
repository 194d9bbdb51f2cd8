//! Rules of the store that a commit was rejected by: what they are about, and their words on the
//! wire where a handler of the host could not word them.

use charter_kernel::refusal::{Code, Refusal};
use charter_kernel::unit::{Guard, Key, Refused, Rejection};
use charter_tenancy::directory::profile_revoked;

/// Whether a commit was rejected for what its request was admitted under: another request has taken
/// its idempotency key, or what a guard of its caller has read has changed.
pub fn is_of_admission(rejection: &Rejection, standing: &[Guard], claim: Option<&Key>) -> bool {
    match rejection {
        Rejection::Conflict { keys } => {
            claim.is_some_and(|key| keys.contains(key))
                || standing.iter().any(|guard| guard.conflicts_on(keys))
        }
        Rejection::Refused(refused) => claim.is_some() && refused_row(refused) == claim,
    }
}

/// Whether a refusal is about what a guard of ours requires: the credential, or who it acts for. A
/// handler that is run again finds its own requirements unmet, and words that.
pub fn is_of(guard: &Guard, refused: &Refused) -> bool {
    matches!((guard, refused), (Guard::Entry { key, .. }, Refused::Inactive { key: about, .. }) if key == about)
}

/// The row that a refusal is about.
fn refused_row(refused: &Refused) -> Option<&Key> {
    match refused {
        Refused::Exists { key }
        | Refused::Missing { key }
        | Refused::Stale { key, .. }
        | Refused::LeaseLost { key }
        | Refused::Inactive { key, .. }
        | Refused::OverCap { meter: key, .. }
        | Refused::Moved { meter: key }
        | Refused::Frozen { key }
        | Refused::Overdrawn { account: key, .. }
        | Refused::NotAddable { key, .. } => Some(key),
        Refused::ClaimLost { .. } | Refused::LogClosed { .. } | Refused::TooLarge { .. } => None,
    }
}

/// A rule of the store in the words of the wire, where the handler could not word it.
pub fn word(refused: &Refused) -> Refusal {
    match refused {
        Refused::Exists { .. } | Refused::ClaimLost { .. } => {
            Refusal::new(Code::DuplicateRecord, "Another one with these values exists.")
        }
        Refused::Missing { .. } => Refusal::not_found(),
        Refused::Stale { current, .. } => Refusal::version_conflict(*current),
        Refused::LeaseLost { .. } => Refusal::state_conflict("lease_lost", "The lease has ended."),
        Refused::LogClosed { .. } => Refusal::state_conflict("log_closed", "The log is closed."),
        Refused::TooLarge { limit } => {
            Refusal::new(Code::PayloadTooLarge, format!("The change exceeds {limit}."))
        }
        Refused::Overdrawn { available, .. } => {
            let refusal =
                Refusal::new(Code::InsufficientCredits, "The account does not cover the amount.");
            refusal.detail("available_micro_usd", *available)
        }
        Refused::Frozen { .. } => {
            Refusal::state_conflict("account_frozen", "The account is frozen.")
        }
        Refused::OverCap { cap, .. } => {
            Refusal::new(Code::BudgetExceeded, "The budget does not admit the amount.")
                .detail("cap_micro_usd", *cap)
        }
        Refused::Moved { .. } => Refusal::overloaded(1),
        Refused::Inactive { key, .. } => inactive(key.space.as_str()),
        Refused::NotAddable { .. } => {
            tracing::error!(%refused, "a request broke a rule of the store");
            Refusal::internal()
        }
    }
}

/// The credential, its organization or the tenant user was revoked while the request ran.
fn inactive(space: &str) -> Refusal {
    match space {
        "host.users" => profile_revoked(),
        _ => Refusal::unauthorized("The credential was revoked."),
    }
}

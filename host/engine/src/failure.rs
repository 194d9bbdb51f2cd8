//! The failures that the engine itself hands to guests, and the way of a failure across the
//! interface.
//!
//! Knows codes only as text: `kernel::refusal` holds the list and the statuses.

use charter_kernel::refusal::Failure;
use charter_kernel::unit::Refused;
use charter_store::{ReadError, WriteError};
use serde_json::json;

use crate::bindings::charter::primitive::types;

/// A failure of this code and message.
pub(crate) fn failure(code: &str, message: impl Into<String>) -> Failure {
    Failure { code: code.into(), message: message.into(), ..Failure::default() }
}

/// The capability is linked, but this deployment lacks what it stands on; `missing` names that.
pub(crate) fn not_configured(what: &str, missing: &str) -> Failure {
    Failure {
        hint: Some(format!("{missing} has to be set up by the operator")),
        details: Some(json!({ "missing": [missing] }).to_string()),
        ..failure("not_configured", format!("{what} is not configured on this deployment"))
    }
}

/// The component breaks its own declaration: a fault of the component, which reads as ours to its
/// caller.
pub(crate) fn undeclared(message: impl Into<String>) -> Failure {
    Failure { reason: Some("UNDECLARED".into()), ..failure("internal_error", message) }
}

/// What the component handed over is not what the interface asks for.
pub(crate) fn invalid(param: &str, message: impl Into<String>) -> Failure {
    Failure { param: Some(param.into()), ..failure("invalid_input", message) }
}

/// The document is not there, or another's.
pub(crate) fn not_found(what: &str) -> Failure {
    failure("not_found", format!("{what} was not found"))
}

/// The store did not answer a read. The cause goes to the log, not to the guest.
pub(crate) fn unread(error: &ReadError) -> Failure {
    match error {
        ReadError::Position => invalid("after", "this position does not belong to this query"),
        ReadError::Overloaded => {
            Failure { retry_after_seconds: Some(1), ..failure("overloaded", "too many reads wait") }
        }
        ReadError::Unavailable(source) | ReadError::Failed(source) => {
            tracing::error!(error = %error, source = ?source, "a read for a guest failed");
            Failure {
                retry_after_seconds: Some(1),
                ..failure("overloaded", "the store does not answer")
            }
        }
    }
}

/// A write that was refused at once.
pub(crate) fn unwritten(error: &WriteError) -> Failure {
    match error {
        WriteError::Refused(refused) => rule(refused),
        WriteError::Read(error) => unread(error),
    }
}

/// What a rule's refusal says when no guest words it.
pub(crate) fn rule(refused: &Refused) -> Failure {
    match refused {
        Refused::Exists { .. } => failure("duplicate_record", "a document with this id exists"),
        Refused::Missing { .. } => not_found("the document"),
        Refused::Stale { current, .. } => Failure {
            details: Some(json!({ "current_version": current }).to_string()),
            ..failure("version_conflict", "the document has changed since it was read")
        },
        Refused::ClaimLost { claim, .. } => match claim.field() {
            Some(field) => Failure {
                param: Some(field.into()),
                ..failure(
                    "duplicate_record",
                    format!("another document holds this value of `{field}`"),
                )
            },
            None => failure("duplicate_record", "another document holds this value"),
        },
        Refused::LeaseLost { .. } => Failure {
            reason: Some("LEASE_LOST".into()),
            hint: Some("take it again".into()),
            ..failure("state_conflict", "the lease has ended")
        },
        Refused::Inactive { .. } => failure("forbidden", "the caller was revoked"),
        Refused::NotAddable { field, .. } => {
            invalid(field, format!("{field} is no integer, or the sum is out of range"))
        }
        // What the host reserves it words itself; a primitive's own transfers end here.
        Refused::Overdrawn { available, .. } => Failure {
            reason: Some("OVERDRAWN".into()),
            details: Some(json!({ "available_micro_usd": available }).to_string()),
            ..failure("insufficient_credits", "the account does not have that much")
        },
        Refused::Frozen { .. } => Failure {
            reason: Some("FROZEN".into()),
            ..failure("state_conflict", "the account or scope is frozen until a person has looked")
        },
        Refused::OverCap { cap, .. } => Failure {
            details: Some(json!({ "cap_micro_usd": cap }).to_string()),
            ..failure("budget_exceeded", "the cap does not admit this amount")
        },
        Refused::Moved { .. } => failure("state_conflict", "the period has changed meanwhile"),
        Refused::LogClosed { .. } => failure("state_conflict", "the log is closed"),
        Refused::TooLarge { limit } => {
            failure("payload_too_large", format!("one request may not change more than {limit}"))
        }
    }
}

impl From<Failure> for types::Failure {
    fn from(from: Failure) -> Self {
        Self {
            code: from.code,
            message: from.message,
            hint: from.hint,
            reason: from.reason,
            param: from.param,
            details: from.details,
            retry_after_seconds: from.retry_after_seconds,
        }
    }
}

impl From<types::Failure> for Failure {
    fn from(from: types::Failure) -> Self {
        Self {
            code: from.code,
            message: from.message,
            hint: from.hint,
            reason: from.reason,
            param: from.param,
            details: from.details,
            retry_after_seconds: from.retry_after_seconds,
        }
    }
}

#[cfg(test)]
mod tests {
    use charter_kernel::unit::{Claim, Key, Reach, Space};

    use super::*;

    #[test]
    fn a_value_that_another_holds_names_its_field() {
        let (reach, space) = (Reach::user("u"), Space::of("shelf", "books"));
        let holder = Key::new(&reach, &space, "a");
        let lost = |claim: Claim| rule(&Refused::ClaimLost { claim, holder: holder.clone() });
        let unique = lost(Claim::unique(&reach, &space, "isbn", "1"));
        assert_eq!(
            (unique.code.as_str(), unique.param.as_deref()),
            ("duplicate_record", Some("isbn"))
        );
        assert_eq!(lost(Claim::name("domain#a", "example.org")).param, None);
    }
}

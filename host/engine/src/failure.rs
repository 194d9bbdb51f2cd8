//! The failures that the engine itself hands to guests, and the way of a failure across the
//! interface.
//!
//! Knows codes only as text: `kernel::refusal` holds the list and the statuses.

pub(crate) use charter_kernel::apply::rule;
use charter_kernel::limits::WAITING_REQUEST_BYTES_MAX;
use charter_kernel::refusal::Failure;
use charter_store::{ReadError, WriteError};
use serde_json::json;

use crate::bindings::charter::primitive::types;
use crate::job::room::RETRY_SECONDS;
use crate::limiter::MemoryLimit;

/// A failure of this code and message.
pub(crate) fn failure(code: &str, message: impl Into<String>) -> Failure {
    Failure::new(code, message)
}

/// The capability is linked, but this deployment lacks what it stands on; `missing` names that.
pub(crate) fn not_configured(what: &str, missing: &str) -> Failure {
    Failure {
        hint: Some(format!("{missing} has to be set up by the operator")),
        details: Some(json!({ "missing": [missing] }).to_string()),
        ..failure("not_configured", format!("{what} is not configured on this deployment"))
    }
}

/// See [`Failure::undeclared`].
pub(crate) fn undeclared(message: impl Into<String>) -> Failure {
    Failure::undeclared(message)
}

/// See [`Failure::invalid`].
pub(crate) fn invalid(param: &str, message: impl Into<String>) -> Failure {
    Failure::invalid(param, message)
}

/// See [`Failure::not_found`].
pub(crate) fn not_found(what: &str) -> Failure {
    Failure::not_found(what)
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

/// There is no room for one more job that waits; `why` says so.
pub(crate) fn jobs_full(why: impl Into<String>) -> Failure {
    Failure {
        reason: Some("jobs_full".into()),
        hint: Some("wait until some have run, or cancel some".into()),
        retry_after_seconds: Some(RETRY_SECONDS),
        ..failure("rate_limited", why)
    }
}

/// The call holds as much memory as it may, or others hold what it shares with them.
pub(crate) fn too_much_held(limit: MemoryLimit) -> Failure {
    match limit {
        MemoryLimit::Call => Failure {
            reason: Some("too_much_held".into()),
            hint: Some("read less at a time, or commit what there is so far".into()),
            ..failure(
                "payload_too_large",
                "the call holds as much of what it read and wrote as it may",
            )
        },
        MemoryLimit::Room => Failure {
            retry_after_seconds: Some(1),
            hint: Some("ask again, or run fewer calls at once".into()),
            ..failure("overloaded", "other calls hold the memory")
        },
    }
}

/// A request that holds more than one that waits may.
pub(crate) fn too_large_to_wait() -> Failure {
    let told = format!("a request of more than {WAITING_REQUEST_BYTES_MAX} bytes cannot wait");
    Failure {
        hint: Some("send less, or ask for an answer at once".into()),
        ..failure("payload_too_large", told)
    }
}

/// A write that was refused at once.
pub(crate) fn write_failure(error: &WriteError) -> Failure {
    match error {
        WriteError::Refused(refused) => rule(refused),
        WriteError::Read(error) => unread(error),
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
    use charter_kernel::unit::{Key, Reach, Refused, Space};

    use super::*;

    #[test]
    fn a_failure_crosses_the_interface_whole_and_back() {
        let given = Failure {
            code: "state_conflict".into(),
            message: "no".into(),
            hint: Some("hint".into()),
            reason: Some("REASON".into()),
            param: Some("a.b".into()),
            details: Some("{\"n\":1}".into()),
            retry_after_seconds: Some(7),
        };
        let crossed = types::Failure::from(given.clone());
        assert_eq!(Failure::from(crossed), given);
    }

    #[test]
    fn a_read_that_failed_says_nothing_of_the_database() {
        for (error, code, wait) in [
            (ReadError::Position, "invalid_input", None),
            (ReadError::Overloaded, "overloaded", Some(1)),
            (ReadError::Unavailable(None), "overloaded", Some(1)),
            (ReadError::Failed(None), "overloaded", Some(1)),
        ] {
            let told = unread(&error);
            assert_eq!((told.code.as_str(), told.retry_after_seconds), (code, wait), "{error:?}");
            assert_eq!(told.details, None);
            assert_eq!(write_failure(&WriteError::Read(error)), told);
        }
    }

    #[test]
    fn a_write_that_a_rule_refuses_is_worded_as_at_the_commit() {
        let key = Key::new(&Reach::user("u"), &Space::host("things"), "a");
        let refused = Refused::Stale { key, current: 3 };
        assert_eq!(write_failure(&WriteError::Refused(refused.clone())), rule(&refused));
    }

    #[test]
    fn what_is_not_configured_is_named_for_people_and_for_programs() {
        let told = not_configured("outbound mail", "mail_transport");
        assert_eq!(told.code, "not_configured");
        assert_eq!(told.details.as_deref(), Some("{\"missing\":[\"mail_transport\"]}"));
        assert!(told.message.contains("outbound mail"));
        assert!(told.hint.is_some_and(|hint| hint.contains("mail_transport")));
    }
}

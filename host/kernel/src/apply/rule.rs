//! The failure that a guest sees where a rule has refused its unit.
//!
//! Knows no call: the same words stand at the write that is refused at once and at the commit.

use serde_json::json;

use crate::refusal::Failure;
use crate::unit::Refused;

/// The failure of a rule's refusal, where no guest words it.
pub fn rule(refused: &Refused) -> Failure {
    match refused {
        Refused::Exists { .. } => {
            Failure::new("duplicate_record", "a document with this id exists")
        }
        Refused::Missing { .. } => Failure::not_found("the document"),
        Refused::Stale { current, .. } => Failure {
            details: Some(json!({ "current_version": current }).to_string()),
            ..Failure::new("version_conflict", "the document has changed since it was read")
        },
        Refused::ClaimLost { claim, .. } => match claim.field() {
            Some(field) => Failure {
                param: Some(field.into()),
                ..Failure::new(
                    "duplicate_record",
                    format!("another document holds this value of `{field}`"),
                )
            },
            None => Failure::new("duplicate_record", "another document holds this value"),
        },
        Refused::LeaseLost { .. } => Failure {
            reason: Some("LEASE_LOST".into()),
            hint: Some("take it again".into()),
            ..Failure::new("state_conflict", "the lease has ended")
        },
        Refused::Inactive { .. } => Failure::new("forbidden", "the caller was revoked"),
        Refused::NotAddable { field, .. } => {
            Failure::invalid(field, format!("{field} is no integer, or the sum is out of range"))
        }
        // The host words its own reservations; a primitive's own transfers end here.
        Refused::Overdrawn { available, .. } => Failure {
            reason: Some("OVERDRAWN".into()),
            details: Some(json!({ "available_micro_usd": available }).to_string()),
            ..Failure::new("insufficient_credits", "the account does not have that much")
        },
        Refused::Frozen { .. } => Failure {
            reason: Some("FROZEN".into()),
            ..Failure::new(
                "state_conflict",
                "the account or scope is frozen until a person has looked",
            )
        },
        Refused::OverCap { cap, .. } => Failure {
            details: Some(json!({ "cap_micro_usd": cap }).to_string()),
            ..Failure::new("budget_exceeded", "the cap does not admit this amount")
        },
        Refused::Moved { .. } => Failure::new("state_conflict", "the period has changed meanwhile"),
        Refused::LogClosed { .. } => Failure::new("state_conflict", "the log is closed"),
        Refused::TooLarge { limit } => Failure::new(
            "payload_too_large",
            format!("one request may not change more than {limit}"),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meter::Count;
    use crate::unit::{Claim, Key, Reach, Space};

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
    #[test]
    fn a_refusal_says_its_reason_and_what_it_takes() {
        let key = Key::new(&Reach::user("u"), &Space::of("shelf", "books"), "a");
        let of = |refused: Refused| {
            let Failure { code, reason, details, hint, .. } = rule(&refused);
            [Some(code), reason, details, hint].map(Option::unwrap_or_default)
        };
        let key = || key.clone();
        for (refused, words) in [
            (
                Refused::Stale { key: key(), current: 7 },
                ["version_conflict", "", r#"{"current_version":7}"#, ""],
            ),
            (
                Refused::LeaseLost { key: key() },
                ["state_conflict", "LEASE_LOST", "", "take it again"],
            ),
            (
                Refused::Overdrawn { account: key(), available: 3 },
                ["insufficient_credits", "OVERDRAWN", r#"{"available_micro_usd":3}"#, ""],
            ),
            (Refused::Frozen { key: key() }, ["state_conflict", "FROZEN", "", ""]),
            (
                Refused::OverCap { meter: key(), count: Count::default(), cap: 5 },
                ["budget_exceeded", "", r#"{"cap_micro_usd":5}"#, ""],
            ),
        ] {
            assert_eq!(of(refused.clone()), words, "{refused:?}");
        }
    }
}

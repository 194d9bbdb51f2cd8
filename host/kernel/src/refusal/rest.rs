//! A refusal as records keep it: written here and read here, whoever keeps it.
//!
//! Own codes of primitives are kept by name and without their status: a reader that has the
//! component's declarations words them anew.
//!
//! A refusal is worded for its caller, and a record is read by others too, whose pins may hide more.
//! So a record keeps no amounts.

use serde_json::{Map, Value, json};

use super::{Code, Failure, Refusal};

/// The facts of a refusal that a record keeps: those that every reader of the record may see. Sums
/// of wider scopes are none of them.
const KEPT: &[&str] = &[
    "faults",
    "incident",
    "limit_id",
    "missing",
    "policy_ids",
    "primitive",
    "reason",
    "resets_at",
    "scope",
    "state",
];

impl Refusal {
    /// The refusal as a record keeps it.
    pub fn to_rest(&self) -> Value {
        let kept = |(name, _): &(&String, &Value)| KEPT.contains(&name.as_str());
        let details = self.details.iter().filter(kept);
        let details: Map<String, Value> =
            details.map(|(name, value)| (name.clone(), value.clone())).collect();
        json!({
            "code": self.code.own_name(), "message": self.message, "reason": self.reason,
            "param": self.param, "details": details,
        })
    }

    /// The refusal that a record keeps; `message` stands in where the record has none. A code that
    /// is not the host's reads as an internal error.
    pub fn from_rest(kept: &Value, message: &str) -> Self {
        let code = text(kept, "code").and_then(|code| Code::parse(&code));
        let message = text(kept, "message").unwrap_or_else(|| message.to_owned());
        let mut refusal = Self::new(code.unwrap_or(Code::InternalError), message);
        refusal.hint = text(kept, "hint");
        refusal.reason = text(kept, "reason").or(refusal.reason);
        refusal.param = text(kept, "param");
        refusal.details = kept["details"].as_object().cloned().unwrap_or_default();
        refusal
    }
}

impl Failure {
    /// The failure as a record keeps it.
    pub fn to_rest(&self) -> Value {
        json!({"code": self.code, "message": self.message, "reason": self.reason})
    }

    /// The failure that a record keeps under a code that is not the host's.
    pub fn from_rest(kept: &Value, message: &str) -> Self {
        Self {
            code: text(kept, "code").unwrap_or_else(|| Code::InternalError.own_name().to_owned()),
            message: text(kept, "message").unwrap_or_else(|| message.to_owned()),
            hint: None,
            reason: text(kept, "reason"),
            param: None,
            details: None,
            retry_after_seconds: None,
        }
    }
}

fn text(kept: &Value, name: &str) -> Option<String> {
    kept.get(name).and_then(Value::as_str).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_reads_as_it_was_kept() {
        let refusal =
            Refusal::forbidden("pinned", "Not yours.").param("user").detail("state", "held");
        assert_eq!(Refusal::from_rest(&refusal.to_rest(), ""), refusal);
        let own = json!({"code": "card_lost", "message": "The card is lost."});
        assert_eq!(Refusal::from_rest(&own, "").code, Code::InternalError);
        assert_eq!(Failure::from_rest(&own, "").code, "card_lost");
    }

    #[test]
    fn a_record_keeps_the_scope_of_a_refusal_and_no_sum() {
        let refusal = Refusal::new(Code::BudgetExceeded, "Full.").detail("scope", "organization");
        let sums =
            ["cap_micro_usd", "spent_micro_usd", "reserved_micro_usd", "available_micro_usd"];
        let told = sums.iter().fold(refusal.clone(), |told, sum| told.detail(sum, 3));
        assert_eq!(Refusal::from_rest(&told.to_rest(), ""), refusal);
    }

    #[test]
    fn a_record_without_a_refusal_says_so_in_the_readers_words() {
        let refusal = Refusal::from_rest(&Value::Null, "The job has failed.");
        assert_eq!(refusal, Refusal::new(Code::InternalError, "The job has failed."));
    }
}

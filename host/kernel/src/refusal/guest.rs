//! A guest's failure as a refusal, and back.
//!
//! A guest names a code of the host's list, in either catalogue, or one that its manifest declares.
//! Anything else is a bug of the guest and reads as our fault. Texts are bounded: a guest cannot
//! make an error of any size.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Catalogue, Code, Refusal};
use crate::fault::Fault;
use crate::limits::{REFUSAL_DETAILS_BYTES_MAX, REFUSAL_TEXT_CHARS_MAX, RETRY_AFTER_SECONDS_MAX};

/// A failure as it crosses the interface, in either direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// A code of the host's list, or one that the manifest declares.
    pub code: String,
    /// For people.
    pub message: String,
    /// The way out.
    pub hint: Option<String>,
    /// The granular reason.
    pub reason: Option<String>,
    /// The offending request field, dotted.
    pub param: Option<String>,
    /// A JSON object, as text.
    pub details: Option<String>,
    /// When trying again makes sense.
    pub retry_after_seconds: Option<u32>,
}

impl Failure {
    /// A failure of this code and message.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), ..Self::default() }
    }

    /// The component breaks its own declaration: a fault of the component, which reads as ours to
    /// its caller.
    pub fn undeclared(message: impl Into<String>) -> Self {
        Self { reason: Some("UNDECLARED".into()), ..Self::new("internal_error", message) }
    }

    /// The component handed over something else than the interface asks for.
    pub fn invalid(param: &str, message: impl Into<String>) -> Self {
        Self { param: Some(param.into()), ..Self::new("invalid_input", message) }
    }

    /// The thing is not there, or another's.
    pub fn not_found(what: &str) -> Self {
        Self::new("not_found", format!("{what} was not found"))
    }

    /// Something has left the host or was committed, and the rest was not: nothing that a client
    /// could take for "try again".
    pub fn effect_without_record(code: &str, message: impl Into<String>) -> Self {
        Self { reason: Some(EFFECT_WITHOUT_RECORD.into()), ..Self::new(code, message) }
    }

    /// The failure of a request that ran out of time after it had acted: a 504 says that provably
    /// nothing was done.
    pub fn late_after_effect() -> Self {
        Self::effect_without_record(
            "internal_error",
            "the request ran out of time after it had acted",
        )
    }

    /// Whether it says that provably nothing was done.
    pub fn denies_effect(&self) -> bool {
        let nothing =
            [Code::RequestTimeout, Code::RateLimited, Code::Overloaded, Code::DeadlineExceeded];
        Code::parse(&self.code).is_some_and(|code| nothing.contains(&code))
    }

    /// The failure of a request that has acted. One that would ask its client to send the request
    /// again says instead that it has acted, because the same request would act twice. One that ends
    /// as a 5xx keeps its code and words, and has that reason: without it a 500 says that nothing was
    /// committed. So does one of a code that `declared` does not have, which may end as a 500. A
    /// refusal that ends as a 4xx stays as it is, and so does a provider's failure: neither says that
    /// nothing was done.
    #[must_use]
    pub fn after_effect(self, declared: &[ErrorCode]) -> Self {
        match Refusal::guest(self.clone(), declared) {
            Some(refusal) if refusal.code == Code::ProviderError => self,
            Some(refusal) if refusal.should_retry() => self.without_record(),
            Some(refusal) if refusal.status(Catalogue::Primary) < 500 => self,
            _ => Self { reason: Some(EFFECT_WITHOUT_RECORD.into()), ..self },
        }
    }

    /// The final failure that takes the place of one which asks its client to send the request again.
    fn without_record(self) -> Self {
        let message = format!(
            "the request had acted when it was refused, and its later documents were not written; \
             it was refused with {}: {}",
            self.code, self.message
        );
        Self {
            hint: Some("read what is there; do not send the request again".into()),
            param: self.param,
            details: self.details,
            ..Self::effect_without_record("state_conflict", message)
        }
    }
}

/// The reason of a failure after an effect.
pub const EFFECT_WITHOUT_RECORD: &str = "EFFECT_WITHOUT_RECORD";

/// A code of a primitive's own, with its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// Its name in both catalogues.
    pub code: String,
    /// Its HTTP status.
    pub status: u16,
}

/// An error code of the primitive's own.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ErrorCode {
    /// Lower-case snake name that the host's list does not have.
    pub code: String,
    /// 4xx.
    pub status: u16,
    /// The catalogue it belongs to.
    #[serde(default)]
    pub catalogue: Catalogue,
    /// For people.
    #[serde(default)]
    pub meaning: String,
}

/// Members of `error` that accompany refusals about spending; a guest puts them into its details.
const SPENDING_MEMBERS: [&str; 5] =
    ["block_reason", "credit_kind", "balance", "balance_note", "actions"];

impl Refusal {
    /// The refusal that a guest's failure means. `None` if its code is neither the host's nor
    /// declared: the caller logs that and answers [`Refusal::internal`]. After an effect such a code
    /// is an internal error too, and its answer says that the request had acted.
    pub fn guest(failure: Failure, declared: &[ErrorCode]) -> Option<Self> {
        let own = declared.iter().find(|own| own.code == failure.code);
        let code = match (own, Code::parse(&failure.code)) {
            (Some(own), _) => nearest(own.status),
            (None, Some(code)) => code,
            (None, None) if failure.reason.as_deref() == Some(EFFECT_WITHOUT_RECORD) => {
                return Some(undeclared_after_effect(&failure));
            }
            (None, None) => return None,
        };
        let mut refusal = Self::new(code, shorten(failure.message));
        refusal.own = own.map(|own| Declared { code: own.code.clone(), status: own.status });
        refusal.hint = failure.hint.map(shorten);
        refusal.reason = failure.reason.map(shorten).or(refusal.reason);
        refusal.param = failure.param.map(shorten);
        refusal.details = details(failure.details);
        refusal.retry_after_seconds =
            failure.retry_after_seconds.map(|seconds| seconds.min(RETRY_AFTER_SECONDS_MAX));
        if code == Code::InvalidInput && !refusal.details.contains_key("faults") {
            let fault =
                Fault::new(refusal.param.clone().unwrap_or_default(), refusal.message.clone());
            refusal.details.insert("faults".into(), json!([fault]));
        }
        if is_about_spending(code) {
            for name in SPENDING_MEMBERS {
                if let Some(value) = refusal.details.remove(name) {
                    refusal.extra.insert(name.into(), value);
                }
            }
        }
        Some(refusal)
    }

    /// The failure that a guest sees when the host refuses one of its calls.
    pub fn to_failure(&self) -> Failure {
        let name = match &self.own {
            Some(own) => own.code.clone(),
            None => self.code.own_name().into(),
        };
        let mut details = self.details.clone();
        if is_about_spending(self.code) {
            // A guest that hands it on puts them back where its caller looks for them.
            details.extend(self.extra.clone());
        }
        Failure {
            code: name,
            message: self.message.clone(),
            hint: self.hint.clone(),
            reason: self.reason.clone(),
            param: self.param.clone(),
            details: (!details.is_empty()).then(|| Value::Object(details).to_string()),
            retry_after_seconds: self.retry_after_seconds,
        }
    }
}

/// The refusal of a request that had acted and was then refused with a code that nobody declares. It
/// names that code: nothing else tells it to whoever mends the component.
fn undeclared_after_effect(failure: &Failure) -> Refusal {
    let message = format!(
        "The request had acted when it was refused with a code that nobody declares, {}: {}",
        failure.code, failure.message
    );
    Refusal::new(Code::InternalError, shorten(message)).reason(EFFECT_WITHOUT_RECORD)
}

/// The host's row that a declared code is counted under.
fn nearest(status: u16) -> Code {
    match status {
        401 => Code::Unauthorized,
        402 => Code::InsufficientCredits,
        403 => Code::Forbidden,
        404 => Code::NotFound,
        409 => Code::StateConflict,
        429 => Code::RateLimited,
        400..=499 => Code::InvalidInput,
        _ => Code::InternalError,
    }
}

fn is_about_spending(code: Code) -> bool {
    matches!(
        code,
        Code::InsufficientCredits
            | Code::BillingBlocked
            | Code::LlmRoutingRequiresPayment
            | Code::PaymentRejected
            | Code::SubscriptionRequired
    )
}

fn shorten(text: String) -> String {
    match text.char_indices().nth(REFUSAL_TEXT_CHARS_MAX) {
        Some((end, _)) => text[..end].to_owned(),
        None => text,
    }
}

/// Details that are too large, too deep or no object are left out: the refusal itself must still
/// arrive.
fn details(text: Option<String>) -> Map<String, Value> {
    match text
        .filter(|text| text.len() <= REFUSAL_DETAILS_BYTES_MAX)
        .map(|text| crate::schema::parse_json(text.as_bytes()))
    {
        Some(Ok(Value::Object(members))) => members,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn declared() -> Vec<ErrorCode> {
        vec![serde_json::from_value(json!({"code": "mailbox_full", "status": 409})).unwrap()]
    }

    fn failure(code: &str) -> Failure {
        Failure { code: code.into(), message: "m".into(), ..Failure::default() }
    }

    #[test]
    fn a_host_code_of_either_catalogue_is_rendered_in_the_operations_own() {
        for code in ["invalid_input", "validation_failed"] {
            let refusal = Refusal::guest(failure(code), &[]).unwrap();
            assert_eq!(refusal.row(Catalogue::Primary), ("invalid_input", 400));
            assert_eq!(refusal.row(Catalogue::Typed), ("validation_failed", 400));
        }
    }

    #[test]
    fn a_declared_code_keeps_its_name_and_status() {
        let refusal = Refusal::guest(failure("mailbox_full"), &declared()).unwrap();
        assert_eq!(refusal.row(Catalogue::Typed), ("mailbox_full", 409));
        assert!(!refusal.should_retry());
    }

    #[test]
    fn after_an_effect_no_failure_asks_its_client_to_send_the_request_again() {
        let mut errors = declared();
        errors.push(serde_json::from_value(json!({"code": "queue_full", "status": 429})).unwrap());
        for code in [
            "rate_limited",
            "overloaded",
            "deadline_exceeded",
            "request_timeout",
            "job_not_ready",
            "compliance_pending",
            "queue_full",
        ] {
            let asked = Failure {
                retry_after_seconds: Some(3),
                details: Some("{\"rate\":\"send\"}".into()),
                ..failure(code)
            };
            assert!(Refusal::guest(asked.clone(), &errors).unwrap().should_retry(), "{code}");
            let told = Refusal::guest(asked.after_effect(&errors), &errors).unwrap();
            assert_eq!((told.code, told.should_retry()), (Code::StateConflict, false), "{code}");
            assert_eq!(told.reason.as_deref(), Some("EFFECT_WITHOUT_RECORD"), "{code}");
            assert!(told.message.ends_with(&format!("{code}: m")), "{}", told.message);
            assert_eq!(told.retry_after_seconds, None, "{code}");
            assert_eq!(told.details["rate"], "send", "{code}");
        }
        for code in ["not_found", "state_conflict", "mailbox_full", "provider_error"] {
            let worded = Failure { reason: Some("own".into()), ..failure(code) };
            assert_eq!(worded.clone().after_effect(&errors), worded);
        }
    }

    #[test]
    fn after_an_effect_no_answer_of_ours_says_that_nothing_was_committed() {
        for (code, status) in
            [("internal_error", 500), ("not_configured", 501), ("invalid_request", 500)]
        {
            let worded = Failure { reason: Some("own".into()), ..failure(code) };
            let told = worded.after_effect(&declared());
            assert_eq!((told.code.as_str(), told.message.as_str()), (code, "m"), "it stays known");
            let refusal = Refusal::guest(told.clone(), &declared()).unwrap();
            assert_eq!(refusal.status(Catalogue::Primary), status, "{code}");
            assert_eq!(refusal.reason.as_deref(), Some(EFFECT_WITHOUT_RECORD), "{code}");
            assert!(refusal.message.ends_with('m') && !refusal.should_retry(), "{refusal:?}");
            assert_eq!(told.clone().after_effect(&declared()), told, "{code} twice");
        }
    }

    #[test]
    fn an_unknown_code_is_no_refusal() {
        assert_eq!(Refusal::guest(failure("mailbox_full"), &[]), None);
        assert_eq!(Refusal::guest(failure(""), &declared()), None);
    }

    #[test]
    fn texts_are_bounded_and_odd_details_left_out() {
        let mut long = failure("not_found");
        long.message = "ä".repeat(REFUSAL_TEXT_CHARS_MAX + 1);
        assert_eq!(
            Refusal::guest(long, &[]).unwrap().message.chars().count(),
            REFUSAL_TEXT_CHARS_MAX
        );
        for odd in [
            "[1]",
            "{",
            "{\"a\":1}garbage",
            &format!("{{\"a\":\"{}\"}}", "x".repeat(REFUSAL_DETAILS_BYTES_MAX)),
        ] {
            let mut failure = failure("not_found");
            failure.details = Some(odd.into());
            assert!(Refusal::guest(failure, &[]).unwrap().details.is_empty());
        }
    }

    #[test]
    fn a_guest_has_nobody_wait_for_longer_than_a_day() {
        for (asked, told) in [
            (None, None),
            (Some(0), Some(0)),
            (Some(RETRY_AFTER_SECONDS_MAX), Some(RETRY_AFTER_SECONDS_MAX)),
            (Some(RETRY_AFTER_SECONDS_MAX + 1), Some(RETRY_AFTER_SECONDS_MAX)),
            (Some(u32::MAX), Some(RETRY_AFTER_SECONDS_MAX)),
        ] {
            let busy = Failure { retry_after_seconds: asked, ..failure("rate_limited") };
            assert_eq!(Refusal::guest(busy, &[]).unwrap().retry_after_seconds, told, "{asked:?}");
        }
    }

    #[test]
    fn a_field_that_a_guest_refuses_is_listed_like_those_that_the_host_does() {
        let mut wrong = failure("validation_failed");
        wrong.param = Some("url".into());
        let (_, body) = Refusal::guest(wrong, &[]).unwrap().render(Catalogue::Primary, "r");
        assert_eq!(body["error"]["details"]["faults"], json!([{"path": "url", "message": "m"}]));
    }

    #[test]
    fn spending_fields_stand_beside_the_code() {
        let mut blocked = failure("billing_blocked");
        blocked.details =
            Some(r#"{"block_reason":"trial_expired","balance":4,"since":"x"}"#.into());
        let (_, body) = Refusal::guest(blocked, &[]).unwrap().render(Catalogue::Primary, "r");
        assert_eq!(body["error"]["block_reason"], "trial_expired");
        assert_eq!(body["error"]["details"], json!({"since": "x"}));
    }

    #[test]
    fn a_refusal_survives_the_way_through_a_guest() {
        let refusal =
            Refusal::new(Code::BudgetExceeded, "over").detail("scope", "user").retry_after(3);
        assert_eq!(Refusal::guest(refusal.to_failure(), &[]), Some(refusal));
    }
}

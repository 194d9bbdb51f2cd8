//! A refusal, worded for the caller. The host maps the code to its status and to the operation's
//! catalogue.
//!
//! Knows nothing of statuses: the host's list of codes does.

use std::borrow::Cow;

use serde_json::{Value, json};

use crate::bindings::charter::primitive::types::Failure as Raw;

/// The result of every handler and capability.
pub type Result<T, E = Failure> = std::result::Result<T, E>;

/// A refusal: a code, a sentence for people, and where it hurts.
///
/// `?` works on every capability call. The documents that the request wrote so far roll back; its
/// audit rows and events stay.
#[derive(Clone)]
pub struct Failure(Box<Raw>);

impl Failure {
    /// Any code of the host's list (docs/errors.md), or one that the manifest declares.
    pub fn new(code: &str, message: impl Into<String>) -> Self {
        let (message, details) = (message.into(), None);
        Self(Box::new(Raw {
            code: code.into(),
            message,
            hint: None,
            reason: None,
            param: None,
            details,
            retry_after_seconds: None,
        }))
    }
    /// 400: a value that the schema cannot rule out. `param` is the dotted field.
    pub fn invalid(param: &str, message: impl Into<String>) -> Self {
        Self::new("invalid_input", message).param(param)
    }
    /// 404: the addressed thing is absent (or another tenant's, which looks the same). `what` is
    /// the noun: `queue`.
    pub fn not_found(what: &str) -> Self {
        Self::new("not_found", format!("no such {what}"))
    }
    /// 404: a thing named in the body is absent. `param` is the field that names it.
    pub fn resource_not_found(param: &str, what: &str) -> Self {
        Self::new("resource_not_found", format!("no such {what}")).param(param)
    }
    /// 409: the thing's life cycle does not admit it.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new("state_conflict", message)
    }
    /// 409: the thing exists already.
    pub fn duplicate(param: &str, message: impl Into<String>) -> Self {
        Self::new("duplicate_record", message).param(param)
    }
    /// 403: not for this caller.
    pub fn forbidden(message: impl Into<String>) -> Self {
        Self::new("forbidden", message)
    }
    /// 413: more than a limit admits.
    pub fn too_large(param: &str, message: impl Into<String>) -> Self {
        Self::new("payload_too_large", message).param(param)
    }
    /// 429: try again after that many seconds.
    pub fn rate_limited(seconds: u32) -> Self {
        Self::new("rate_limited", "too many requests").retry_after(seconds)
    }
    /// 501: nothing is bound that could do it; `details.missing` names what.
    pub fn not_configured(missing: &[&str]) -> Self {
        Self::new("not_configured", format!("not configured: {}", missing.join(", ")))
            .details(json!({ "missing": missing }))
    }
    /// 502: the provider failed, and nothing is billed.
    pub fn provider(message: impl Into<String>) -> Self {
        Self::new("provider_error", message)
    }
    /// 500: this primitive is at fault. The message goes to the caller, so it names no secret.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new("internal_error", message)
    }

    /// A granular reason, such as `receipt_expired`.
    #[must_use]
    pub fn reason(mut self, reason: &str) -> Self {
        self.0.reason = Some(reason.into());
        self
    }
    /// The offending field, dotted: `messages.0.delay_seconds`.
    #[must_use]
    pub fn param(mut self, param: &str) -> Self {
        self.0.param = Some(param.into());
        self
    }
    /// Tells the caller what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hint = Some(hint.into());
        self
    }
    /// A JSON object for `error.details`.
    #[must_use]
    pub fn details(mut self, details: Value) -> Self {
        self.0.details = Some(details.to_string());
        self
    }
    /// When it is worth trying again.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.0.retry_after_seconds = Some(seconds);
        self
    }

    /// The code, for a caller that decides by it.
    pub fn code(&self) -> &str {
        &self.0.code
    }
    /// The sentence for people.
    pub fn message(&self) -> &str {
        &self.0.message
    }
    /// The granular reason, if there is one.
    pub fn reason_text(&self) -> Option<&str> {
        self.0.reason.as_deref()
    }
    /// The offending field, if there is one.
    pub fn param_text(&self) -> Option<&str> {
        self.0.param.as_deref()
    }
    /// The details, if there are any.
    pub fn details_json(&self) -> Option<Value> {
        self.0.details.as_deref().and_then(|text| serde_json::from_str(text).ok())
    }
    /// Whether it is this code.
    pub fn is(&self, code: &str) -> bool {
        self.0.code == code
    }
}

impl std::fmt::Debug for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let place: Cow<'_, str> =
            self.param_text().map_or("".into(), |param| format!(" ({param})").into());
        write!(f, "{}{place}: {}", self.0.code, self.0.message)
    }
}

impl std::error::Error for Failure {}

impl From<Raw> for Failure {
    fn from(raw: Raw) -> Self {
        Self(Box::new(raw))
    }
}

impl From<Failure> for Raw {
    fn from(failure: Failure) -> Self {
        *failure.0
    }
}

/// A stored document, or an answer, that does not fit its type: the primitive's fault, not the
/// caller's.
impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        Self::internal(format!("a value does not fit its type: {error}"))
    }
}

/// Turns an absence into 404.
pub trait OrNotFound<T> {
    /// The value, or [`Failure::not_found`] of this noun.
    fn or_not_found(self, what: &str) -> Result<T>;
}

impl<T> OrNotFound<T> for Option<T> {
    fn or_not_found(self, what: &str) -> Result<T> {
        self.ok_or_else(|| Failure::not_found(what))
    }
}

//! The typed refusal that crosses the interface in both directions.
//!
//! Knows codes only as text: `kernel::refusal` holds the list and the statuses.

use serde_json::{Map, Value, json};

/// Why something was refused; the fields of the interface's `failure`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Failure {
    /// A code of the host's list, or one that the manifest declares.
    pub code: String,
    /// For people.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// Granular reason, such as `PROTECTED_RECORD`.
    pub reason: Option<String>,
    /// The offending request field, dotted.
    pub param: Option<String>,
    /// Members of `error.details`.
    pub details: Option<Map<String, Value>>,
    /// When to try again.
    pub retry_after_s: Option<u32>,
}

impl Failure {
    /// A failure of this code and message.
    pub fn new(code: impl Into<String>, message: impl Into<String>) -> Self {
        Self { code: code.into(), message: message.into(), ..Self::default() }
    }
    /// With one more member in its details.
    #[must_use]
    pub fn detail(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.get_or_insert_default().insert(name.into(), value.into());
        self
    }
    /// With the offending request field.
    #[must_use]
    pub fn at(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }
    /// With when to try again.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after_s = Some(seconds);
        self
    }
    /// The capability exists, but this deployment lacks what it stands on; `missing` names that.
    pub fn not_configured(what: &str, missing: &[&str]) -> Self {
        Self::new("not_configured", format!("{what} is not configured on this deployment")).detail("missing", json!(missing))
    }
    /// The component asked for something that its manifest does not declare, or that breaks the interface's rules.
    pub fn undeclared(message: impl Into<String>) -> Self {
        Self::new("internal_error", message).detail("reason", "undeclared")
    }
}

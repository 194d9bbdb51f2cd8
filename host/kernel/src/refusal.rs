//! Why a request is refused, and how that reads on the wire.
//!
//! A [`Refusal`] is made where a rule says no and rendered once, at the end of the pipeline, in the
//! operation's catalogue: one superset envelope that holds the documented shape of both. It carries
//! no secret and no internal text: what the operator should read is logged where it happens.

use serde_json::{Map, Value, json};

use crate::fault::Fault;

mod code;
mod envelope;
mod guest;
mod rest;

pub use code::{Catalogue, Code};
pub use guest::{Declared, EFFECT_WITHOUT_RECORD, ErrorCode, Failure};

/// One refusal.
#[derive(Clone, Debug, PartialEq)]
pub struct Refusal {
    /// The row of the error tables that it is.
    pub code: Code,
    /// The primitive's own declared code and status, which then stand in place of the row's.
    pub own: Option<Declared>,
    /// For people; callers branch on the code.
    pub message: String,
    /// The way out.
    pub hint: Option<String>,
    /// The granular reason.
    pub reason: Option<String>,
    /// The offending field, dotted.
    pub param: Option<String>,
    /// Facts for programs.
    pub details: Map<String, Value>,
    /// When trying again makes sense.
    pub retry_after_seconds: Option<u32>,
    /// The rate that is used up, for the headers; if the pipeline's own buckets refuse, they say it
    /// themselves.
    pub rate: Option<Rate>,
    /// Members beside the others in `error`, such as the spending fields.
    pub extra: Map<String, Value>,
    /// Whether it is the answer to the request for good, so that its client asks no more.
    pub is_final: bool,
}

/// A rate, and what is left of it, as `RateLimit-Policy` and `RateLimit` say it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rate {
    /// `RateLimit-Policy`.
    pub policy: String,
    /// `RateLimit`.
    pub left: String,
}

impl Refusal {
    /// A refusal of this row.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            own: None,
            message: message.into(),
            hint: None,
            reason: code.reason().map(Into::into),
            param: None,
            details: Map::new(),
            retry_after_seconds: None,
            rate: None,
            extra: Map::new(),
            is_final: false,
        }
    }

    /// The same as the answer to the request for good.
    #[must_use]
    pub fn for_good(self) -> Self {
        Self { is_final: true, retry_after_seconds: None, ..self }
    }

    /// One field is wrong. The message reads on from the field's name: `must be 1..100`.
    pub fn invalid(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::faults(vec![Fault::new(param, message)])
    }

    /// Fields are wrong: `param` and the message name the first, `details.faults` all of them.
    pub fn faults(faults: Vec<Fault>) -> Self {
        let message = match faults.as_slice() {
            [] => "The request is not valid.".to_owned(),
            [only] => only.to_string(),
            [first, rest @ ..] => format!("{first} ({} more in details.faults)", rest.len()),
        };
        let mut refusal = Self::new(Code::InvalidInput, message);
        refusal.param =
            faults.first().map(|fault| fault.path.clone()).filter(|path| !path.is_empty());
        refusal.detail("faults", json!(faults))
    }

    /// No or a bad credential.
    pub fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(Code::Unauthorized, message)
    }

    /// A role, policy, gate or pin says no.
    pub fn forbidden(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Code::Forbidden, message).reason(reason)
    }

    /// The addressed thing is absent, or somebody else's: both read the same.
    pub fn not_found() -> Self {
        Self::new(Code::NotFound, "There is nothing at this address.")
    }

    /// A thing named in the body is absent, or somebody else's.
    pub fn resource_not_found(param: impl Into<String>) -> Self {
        let param = param.into();
        Self::new(Code::ResourceNotFound, format!("What {param} names does not exist."))
            .param(param)
    }

    /// The path exists, the method does not; `allow` is the value of the header.
    pub fn method_not_allowed(allow: &str) -> Self {
        Self::new(
            Code::MethodNotAllowed,
            format!("The method is not allowed here; these are: {allow}."),
        )
        .detail("allow", allow)
    }

    /// A unique thing exists.
    pub fn duplicate(param: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Code::DuplicateRecord, message).param(param)
    }

    /// The thing's state does not admit it.
    pub fn state_conflict(reason: impl Into<String>, message: impl Into<String>) -> Self {
        Self::new(Code::StateConflict, message).reason(reason)
    }

    /// `expected_version` is stale.
    pub fn version_conflict(current: u64) -> Self {
        Self::new(Code::VersionConflict, "The resource has changed since it was read.")
            .hint("Read it again and apply the change to what it is now.")
            .param("expected_version")
            .detail("current_version", current)
    }

    /// A rate is used up.
    pub fn rate_limited(after_seconds: u32) -> Self {
        Self::new(Code::RateLimited, "Too many requests.").retry_after(after_seconds)
    }

    /// The host has no room now.
    pub fn overloaded(after_seconds: u32) -> Self {
        Self::new(Code::Overloaded, "The service is busy; nothing was done.")
            .retry_after(after_seconds)
    }

    /// The host ends before the call did.
    pub fn stopping() -> Self {
        Self::new(Code::Overloaded, "The host is stopping; nothing was done. Send it again.")
            .reason("stopping")
            .retry_after(1)
    }

    /// The call took longer than it may.
    pub fn deadline_exceeded() -> Self {
        Self::new(Code::DeadlineExceeded, "The request took longer than it may; nothing was done.")
    }

    /// Our fault. The operator's log tells the rest under the request id.
    pub fn internal() -> Self {
        Self::new(Code::InternalError, "Something failed on our side; quote the request id.")
    }

    /// Something that the operator has not bound or set; `missing` names each.
    pub fn not_configured(missing: &[impl AsRef<str>]) -> Self {
        let missing: Vec<&str> = missing.iter().map(AsRef::as_ref).collect();
        Self::new(
            Code::NotConfigured,
            format!("Not configured on this deployment: {}.", missing.join(", ")),
        )
        .hint("The operator has to configure what details.missing names.")
        .detail("missing", json!(missing))
    }

    /// Adds what to do about it.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Adds the granular reason.
    #[must_use]
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// Names the offending field.
    #[must_use]
    pub fn param(mut self, param: impl Into<String>) -> Self {
        self.param = Some(param.into());
        self
    }

    /// Adds one fact to `details`.
    #[must_use]
    pub fn detail(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.details.insert(name.into(), value.into());
        self
    }

    /// Says when to try again.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.retry_after_seconds = Some(seconds);
        self
    }

    /// Says which rate is used up.
    #[must_use]
    pub fn rate(mut self, rate: Rate) -> Self {
        self.rate = Some(rate);
        self
    }

    /// Adds a member beside `code` and `message`. The envelope's own members cannot be replaced.
    #[must_use]
    pub fn extra(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.extra.insert(name.into(), value.into());
        self
    }
}

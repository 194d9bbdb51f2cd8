//! The closed list of refusals: each row of the error tables, its name and status in both
//! catalogues.
//!
//! One exhaustive `match` per column: a new row does not compile until every column has it.

use serde::{Deserialize, Serialize};

/// The error catalogue of an operation's refusals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Catalogue {
    /// The primary API's codes.
    #[default]
    Primary,
    /// The typed catalogue's codes.
    Typed,
}

/// A row of the error tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Code {
    /// Malformed or invalid body, query, path or header.
    InvalidInput,
    /// A bad inbox.
    InvalidInbox,
    /// The model does not support the completion window.
    WindowUnavailable,
    /// No or a bad credential.
    Unauthorized,
    /// Credit is too low.
    InsufficientCredits,
    /// Billing stops every primitive.
    BillingBlocked,
    /// Only bought credit pays for model calls.
    LlmRoutingRequiresPayment,
    /// A payment was rejected.
    PaymentRejected,
    /// There is no active plan.
    SubscriptionRequired,
    /// A cap does not admit it.
    BudgetExceeded,
    /// Kit, role, policy, revocation or pin says no.
    Forbidden,
    /// The addressed thing, or the route, is absent or another tenant's.
    NotFound,
    /// A thing named in the body is absent or another tenant's.
    ResourceNotFound,
    /// The path has no such method.
    MethodNotAllowed,
    /// The client was too slow to send its request.
    RequestTimeout,
    /// A unique thing exists.
    DuplicateRecord,
    /// The life cycle does not admit it.
    StateConflict,
    /// `expected_version` is stale.
    VersionConflict,
    /// `expected_revision` is stale.
    RevisionConflict,
    /// An idempotency key was used for another request.
    IdempotencyConflict,
    /// Still running, or its outcome in doubt.
    JobNotReady,
    /// Waits on verification, carrier or filing.
    CompliancePending,
    /// The profile lacks what the call needs.
    AccountNotProvisioned,
    /// A call named no app and there are several.
    AmbiguousApp,
    /// Input to a running session.
    SessionRunning,
    /// The session has ended.
    SessionTerminal,
    /// The requested computer is not ready.
    ComputerUnavailable,
    /// A saved login is held for a person.
    ContextLocked,
    /// The body is too large.
    PayloadTooLarge,
    /// The body's media type is not the declared one.
    UnsupportedMediaType,
    /// An uploaded component has faults.
    InvalidComponent,
    /// A rate is used up.
    RateLimited,
    /// The request's headers are too large.
    HeadersTooLarge,
    /// Our fault.
    InternalError,
    /// Nothing is bound.
    NotConfigured,
    /// No wallet is bound.
    WalletNotConfigured,
    /// A provider failed.
    ProviderError,
    /// No room now.
    Overloaded,
    /// It took longer than it may.
    DeadlineExceeded,
}

impl Code {
    /// Every row.
    pub const ALL: [Code; 39] = [
        Code::InvalidInput,
        Code::InvalidInbox,
        Code::WindowUnavailable,
        Code::Unauthorized,
        Code::InsufficientCredits,
        Code::BillingBlocked,
        Code::LlmRoutingRequiresPayment,
        Code::PaymentRejected,
        Code::SubscriptionRequired,
        Code::BudgetExceeded,
        Code::Forbidden,
        Code::NotFound,
        Code::ResourceNotFound,
        Code::MethodNotAllowed,
        Code::RequestTimeout,
        Code::DuplicateRecord,
        Code::StateConflict,
        Code::VersionConflict,
        Code::RevisionConflict,
        Code::IdempotencyConflict,
        Code::JobNotReady,
        Code::CompliancePending,
        Code::AccountNotProvisioned,
        Code::AmbiguousApp,
        Code::SessionRunning,
        Code::SessionTerminal,
        Code::ComputerUnavailable,
        Code::ContextLocked,
        Code::PayloadTooLarge,
        Code::UnsupportedMediaType,
        Code::InvalidComponent,
        Code::RateLimited,
        Code::HeadersTooLarge,
        Code::InternalError,
        Code::NotConfigured,
        Code::WalletNotConfigured,
        Code::ProviderError,
        Code::Overloaded,
        Code::DeadlineExceeded,
    ];

    /// Its name and HTTP status in a catalogue.
    pub fn row(self, catalogue: Catalogue) -> (&'static str, u16) {
        match catalogue {
            Catalogue::Primary => self.row_primary(),
            Catalogue::Typed => self.row_typed(),
        }
    }

    /// Its name in a catalogue.
    pub fn name(self, catalogue: Catalogue) -> &'static str {
        self.row(catalogue).0
    }

    /// Its HTTP status in a catalogue.
    pub fn status(self, catalogue: Catalogue) -> u16 {
        self.row(catalogue).1
    }

    /// The row of a name from either catalogue. A name of several rows means the one that bears it
    /// in both, or else in the primary one.
    pub fn parse(name: &str) -> Option<Self> {
        let called = |code: &Code, catalogue| code.name(catalogue) == name;
        let find = |fits: &dyn Fn(&Code) -> bool| Self::ALL.into_iter().find(fits);
        find(&|code| called(code, Catalogue::Primary) && called(code, Catalogue::Typed))
            .or_else(|| find(&|code| called(code, Catalogue::Primary)))
            .or_else(|| find(&|code| called(code, Catalogue::Typed)))
    }

    /// A name that stands for this row and no other.
    pub fn own_name(self) -> &'static str {
        let primary = self.name(Catalogue::Primary);
        if Self::parse(primary) == Some(self) { primary } else { self.name(Catalogue::Typed) }
    }

    /// Whether the same request may succeed later.
    pub fn should_retry(self) -> bool {
        matches!(self, Code::JobNotReady | Code::CompliancePending)
            || retryable(self.status(Catalogue::Primary))
    }

    /// The reason that tells rows of one primary name apart.
    pub(super) fn reason(self) -> Option<&'static str> {
        match self {
            Code::BudgetExceeded => Some("budget_exceeded"),
            Code::IdempotencyConflict => Some("idempotency_conflict"),
            _ => None,
        }
    }

    fn row_primary(self) -> (&'static str, u16) {
        match self {
            Code::InvalidInput => ("invalid_input", 400),
            Code::InvalidInbox => ("invalid_inbox", 400),
            Code::BudgetExceeded => ("forbidden", 403),
            Code::ResourceNotFound => ("resource_not_found", 404),
            Code::DuplicateRecord => ("duplicate_record", 409),
            Code::IdempotencyConflict => ("duplicate_request", 409),
            Code::AccountNotProvisioned => ("account_not_provisioned", 409),
            Code::SubscriptionRequired => ("billing_blocked", 402),
            Code::NotConfigured => ("not_configured", 501),
            Code::WalletNotConfigured => ("wallet_not_configured", 501),
            same => same.row_typed(),
        }
    }

    fn row_typed(self) -> (&'static str, u16) {
        match self {
            Code::InvalidInput | Code::InvalidInbox => ("validation_failed", 400),
            Code::WindowUnavailable => ("window_unavailable", 400),
            Code::Unauthorized => ("unauthorized", 401),
            Code::InsufficientCredits => ("insufficient_credits", 402),
            Code::BillingBlocked => ("billing_blocked", 402),
            Code::LlmRoutingRequiresPayment => ("llm_routing_requires_payment", 402),
            Code::PaymentRejected => ("payment_rejected", 402),
            Code::SubscriptionRequired => ("subscription_required", 402),
            Code::BudgetExceeded => ("budget_exceeded", 402),
            Code::Forbidden => ("forbidden", 403),
            Code::NotFound | Code::ResourceNotFound => ("not_found", 404),
            Code::MethodNotAllowed => ("method_not_allowed", 405),
            Code::RequestTimeout => ("request_timeout", 408),
            Code::DuplicateRecord => ("name_conflict", 409),
            Code::StateConflict | Code::AccountNotProvisioned => ("state_conflict", 409),
            Code::VersionConflict => ("version_conflict", 409),
            Code::RevisionConflict => ("revision_conflict", 409),
            Code::IdempotencyConflict => ("idempotency_conflict", 409),
            Code::JobNotReady => ("job_not_ready", 409),
            Code::CompliancePending => ("compliance_pending", 409),
            Code::AmbiguousApp => ("ambiguous_app", 409),
            Code::SessionRunning => ("session_running", 409),
            Code::SessionTerminal => ("session_terminal", 409),
            Code::ComputerUnavailable => ("computer_unavailable", 409),
            Code::ContextLocked => ("context_locked", 409),
            Code::PayloadTooLarge => ("payload_too_large", 413),
            Code::UnsupportedMediaType => ("unsupported_media_type", 415),
            Code::InvalidComponent => ("invalid_component", 422),
            Code::RateLimited => ("rate_limited", 429),
            Code::HeadersTooLarge => ("headers_too_large", 431),
            Code::InternalError => ("internal_error", 500),
            Code::NotConfigured | Code::WalletNotConfigured => ("feature_not_configured", 501),
            Code::ProviderError => ("provider_error", 502),
            Code::Overloaded => ("overloaded", 503),
            Code::DeadlineExceeded => ("deadline_exceeded", 504),
        }
    }
}

/// Statuses under which provably nothing was done, or a provider may recover.
pub(super) fn retryable(status: u16) -> bool {
    matches!(status, 408 | 429 | 502 | 503 | 504)
}

/// `error.type` of a status.
pub(super) fn kind(status: u16) -> &'static str {
    match status {
        401 => "authentication",
        402 => "quota",
        403 => "permission",
        404 => "not_found",
        409 => "conflict",
        429 => "rate_limit",
        501 => "not_implemented",
        500.. => "api_error",
        _ => "invalid_request",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_list_is_complete_and_in_order_of_status() {
        assert_eq!(BTreeSet::from(Code::ALL).len(), Code::ALL.len());
        assert_eq!(Code::ALL.last(), Some(&Code::DeadlineExceeded));
        assert_eq!(
            Code::DeadlineExceeded as usize + 1,
            Code::ALL.len(),
            "a row is missing from ALL"
        );
    }

    #[test]
    fn every_name_finds_a_row_that_is_called_so() {
        for catalogue in [Catalogue::Primary, Catalogue::Typed] {
            for code in Code::ALL {
                let found = Code::parse(code.name(catalogue)).unwrap();
                assert!(
                    [Catalogue::Primary, Catalogue::Typed]
                        .iter()
                        .any(|c| found.name(*c) == code.name(catalogue))
                );
            }
        }
        assert_eq!(Code::parse("forbidden"), Some(Code::Forbidden));
        assert_eq!(Code::parse("budget_exceeded"), Some(Code::BudgetExceeded));
        assert_eq!(Code::parse("validation_failed"), Some(Code::InvalidInput));
        assert_eq!(Code::parse("state_conflict"), Some(Code::StateConflict));
        assert_eq!(Code::parse("feature_not_configured"), Some(Code::NotConfigured));
        assert_eq!(Code::parse("no_such_code"), None);
        assert!(Code::ALL.into_iter().all(|code| Code::parse(code.own_name()) == Some(code)));
    }

    /// The rows of the table in docs/errors.md: guest, primary, typed, and whether to ask again.
    fn documented() -> Vec<[&'static str; 4]> {
        let text = include_str!("../../../../docs/errors.md");
        let (_, table) = text.split_once("<!-- codes -->\n").unwrap();
        let rows = table.lines().skip(2).take_while(|line| line.starts_with('|'));
        rows.map(|row| {
            let cells: Vec<&str> = row.trim_matches('|').split('|').map(str::trim).collect();
            let [guest, primary, typed, means, remedy, again] = cells[..] else {
                panic!("a row has six cells: {row}")
            };
            assert!(!means.is_empty() && !remedy.is_empty(), "{row}");
            [guest, primary, typed, again]
        })
        .collect()
    }

    #[test]
    fn the_docs_have_each_row_and_no_other() {
        let stated: Vec<[String; 4]> = Code::ALL
            .into_iter()
            .map(|code| {
                let row = |catalogue| {
                    let (name, status) = code.row(catalogue);
                    format!("`{name}` {status}")
                };
                [
                    format!("`{}`", code.own_name()),
                    row(Catalogue::Primary),
                    row(Catalogue::Typed),
                    if code.should_retry() { "yes" } else { "no" }.into(),
                ]
            })
            .collect();
        assert_eq!(documented(), stated);
    }

    #[test]
    fn each_documented_name_has_its_documented_status() {
        let stated = [
            ("invalid_input", 400),
            ("forbidden", 403),
            ("not_found", 404),
            ("rate_limited", 429),
            ("not_configured", 501),
            ("validation_failed", 400),
            ("unauthorized", 401),
            ("insufficient_credits", 402),
            ("version_conflict", 409),
            ("job_not_ready", 409),
            ("provider_error", 502),
            ("internal_error", 500),
        ];
        for (name, status) in stated {
            assert_eq!(Code::parse(name).unwrap().status(Catalogue::Typed), status, "{name}");
        }
        assert_eq!(Code::BudgetExceeded.row(Catalogue::Primary), ("forbidden", 403));
        assert_eq!(Code::BudgetExceeded.row(Catalogue::Typed), ("budget_exceeded", 402));
    }

    #[test]
    fn only_the_stated_rows_are_retried() {
        let retried: Vec<Code> = Code::ALL.into_iter().filter(|code| code.should_retry()).collect();
        assert_eq!(
            retried,
            [
                Code::RequestTimeout,
                Code::JobNotReady,
                Code::CompliancePending,
                Code::RateLimited,
                Code::ProviderError,
                Code::Overloaded,
                Code::DeadlineExceeded
            ]
        );
    }
}

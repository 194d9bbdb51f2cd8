//! The audit row of a request: who did what to which thing on whose behalf, and what came of it.
//!
//! Never a body, a secret or a header. A row rides in the request's own commit where it has one.

use std::sync::Arc;

use charter_governance::audit::REMOVALS;
use charter_kernel::audit::{AuditRow, Change};
use charter_kernel::id::RequestId;
use charter_kernel::refusal::Refusal;
use charter_kernel::time::Instant;
use charter_kernel::unit::Fact;
use charter_store::audit_fact;
use charter_tenancy::identity::Identity;
use charter_tenancy::records::approval::Approval;
use serde_json::Value;

use super::trail::{Business, Trail};
use crate::reply::AuditLog;
use crate::request::HostRequest;

/// The request as far as it is known before it is decided.
#[derive(Clone, Debug)]
pub struct Subject {
    request: RequestId,
    at: Instant,
    organization: String,
    actor: (String, String),
    account: Option<String>,
    on_behalf_of: Option<String>,
    project: Option<String>,
    operation: Arc<str>,
    entity: Option<(String, String)>,
}

/// How it was decided.
#[derive(Clone, Copy, Debug)]
pub struct Decision<'a> {
    /// The answer's status.
    pub status: u16,
    /// The refusal's code and reason.
    pub refused: Option<(&'a str, Option<&'a str>)>,
    /// The changes of the rows that it wrote.
    pub changes: &'a [Change],
    /// Further facts.
    pub details: Option<&'a Value>,
}

/// Rows of one request that its audit row tells of.
pub const CHANGES_MAX: usize = 20;

impl Subject {
    /// The request of a credential; `None` for the anonymous, who are counted only. The operator's
    /// rows are the deployment's.
    pub fn of(trail: &Trail, entity: Option<(String, String)>) -> Option<Self> {
        let operation = trail.operation.clone().unwrap_or_else(|| Arc::from("unmatched"));
        let (request, at) = (trail.id.clone(), trail.at);
        let caller = trail.caller.as_ref()?;
        let Some(place) = caller.place() else {
            let by_operator = matches!(caller.identity(), Identity::Operator { .. });
            let actor = ("operator".to_owned(), "operator".to_owned());
            let organization = String::new();
            let subject = Self {
                request,
                at,
                organization,
                actor,
                account: None,
                on_behalf_of: None,
                project: None,
                operation,
                entity,
            };
            return by_operator.then_some(subject);
        };
        let actor = place.scope().actor();
        Some(Self {
            request,
            at,
            organization: place.organization().id.to_string(),
            actor: (actor.kind.as_str().to_owned(), actor.id.clone()),
            account: place.scope().principal().root.clone(),
            on_behalf_of: match &entity {
                // A user's removal is on nobody's behalf: its row stays whole, and explains the others.
                _ if REMOVALS.iter().any(|(action, _)| *action == &*operation) => None,
                // A row about a user is theirs, so that what it says of them goes with them.
                Some((kind, user)) if kind == "user" => Some(user.clone()),
                // Nor is anybody else's business theirs whom a request happens to name: it would be
                // forgotten with them.
                _ if trail.business != Business::User
                    && !place.scope().principal().is_pinned_to_user() =>
                {
                    None
                }
                _ => place.user().map(|user| user.id.to_string()),
            },
            project: Some(place.project())
                .filter(|_| trail.business != Business::Organization)
                .map(|project| project.id.to_string()),
            operation,
            entity,
        })
    }

    /// An act of a person before there is a credential: registering, signing in, accepting an
    /// invitation.
    pub fn of_person(
        request: &HostRequest,
        operation: &str,
        organization: &str,
        account: &str,
    ) -> Option<Self> {
        Some(Self {
            request: RequestId::parse(&request.id)?,
            at: request.now,
            organization: organization.to_owned(),
            actor: ("account".to_owned(), account.to_owned()),
            account: Some(account.to_owned()),
            on_behalf_of: None,
            project: None,
            operation: Arc::from(operation),
            entity: Some(("account".to_owned(), account.to_owned())),
        })
    }

    /// An act of the operator, in a row that rides in the act's own commit.
    pub fn of_operator(request: &HostRequest, operation: &str) -> Option<Self> {
        Some(Self {
            request: RequestId::parse(&request.id)?,
            at: request.now,
            organization: String::new(),
            actor: ("operator".to_owned(), "operator".to_owned()),
            account: None,
            on_behalf_of: None,
            project: None,
            operation: Arc::from(operation),
            entity: None,
        })
    }

    /// The request behind an approval, which the host makes as who asked for it.
    pub fn of_approval(approval: &Approval, at: Instant) -> Self {
        let request = RequestId::parse(&approval.request_id);
        Self {
            request: request.unwrap_or_else(|| RequestId::new(at, [0; 10])),
            at,
            organization: approval.organization.to_string(),
            actor: approval.subject.actor.clone(),
            account: approval.subject.root.clone(),
            on_behalf_of: approval.subject.user.clone(),
            project: approval.subject.project.clone(),
            operation: Arc::from(approval.action.as_str()),
            entity: Some(("approval".to_owned(), approval.id.clone())),
        }
    }

    /// The same, about this thing.
    #[must_use]
    pub fn about(mut self, kind: &str, id: &str) -> Self {
        self.entity = Some((kind.to_owned(), id.to_owned()));
        self
    }

    /// The same, in this log.
    #[must_use]
    pub fn with_log(mut self, log: &AuditLog) -> Self {
        self.project = match log {
            AuditLog::Organization => None,
            AuditLog::Project(id) => Some(id.to_string()),
            AuditLog::User { user, project } => {
                self.on_behalf_of = Some(user.clone());
                project.as_ref().map(ToString::to_string)
            }
        };
        self
    }

    /// The organization in whose commit it rides.
    pub fn organization(&self) -> &str {
        &self.organization
    }

    /// The row. Fails only where the operating system has no randomness.
    pub fn fact(&self, decision: Decision<'_>) -> Result<Fact, getrandom::Error> {
        let (entity_type, entity_id) =
            self.entity.as_ref().map(|(kind, id)| (kind.as_str(), id.as_str())).unzip();
        let row = AuditRow {
            organization: &self.organization,
            at: self.at,
            actor: (&self.actor.0, &self.actor.1),
            account: self.account.as_deref(),
            on_behalf_of: self.on_behalf_of.as_deref(),
            project: self.project.as_deref(),
            action: &self.operation,
            entity_type,
            entity_id,
            decision: if decision.refused.is_some() { "refused" } else { "allowed" },
            code: decision.refused.map(|(code, _)| code),
            reason: decision.refused.and_then(|(_, reason)| reason),
            request: self.request.as_str(),
            status: Some(decision.status),
            changes: decision.changes,
            details: decision.details,
            ..AuditRow::default()
        };
        audit_fact(&row)
    }
}

/// Whether a refusal leaves a row: every refused change, and reads that were forbidden. Rates are
/// counted only.
pub fn leaves_row(mutates: bool, refusal: &Refusal, status: u16) -> bool {
    use charter_kernel::refusal::Code;
    match refusal.code {
        Code::RateLimited | Code::Unauthorized | Code::Overloaded => false,
        _ => mutates || status == 403,
    }
}

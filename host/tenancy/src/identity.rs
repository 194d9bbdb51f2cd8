//! The sender of a request, as its credential proved. Knows neither how the credential was
//! presented nor what is asked.

use std::sync::Arc;

use charter_kernel::id::OrganizationId;
use charter_kernel::role::Role;
use charter_kernel::scope::Principal;
use charter_kernel::unit::Guard;

use crate::directory::{Directory, KeyRecord, SessionRecord};
use crate::operator;
use crate::records::account::is_of_account;

/// The sender of a request.
#[derive(Clone, Debug)]
pub enum Identity {
    /// No credential; only routes with `auth: none` see it.
    Anonymous,
    /// An API key.
    Key(Arc<KeyRecord>),
    /// A signed-in person.
    Session(Arc<SessionRecord>),
    /// The deployment's operator.
    Operator {
        /// The version of the token, for [`operator::guard`]; none where a provider proved
        /// itself by the secret that the deployment shares with it.
        token: Option<u64>,
    },
}

impl Identity {
    /// The principal and its organization, where the credential is of one.
    pub fn principal(&self) -> Option<(Principal, &OrganizationId)> {
        match self {
            Self::Anonymous | Self::Operator { .. } => None,
            Self::Key(key) => Some((key.principal(), &key.organization)),
            Self::Session(session) => Some((session.principal(), &session.organization)),
        }
    }

    /// The guards that hold as long as the credential counts.
    pub fn guards(&self) -> Vec<Guard> {
        match self {
            Self::Key(key) => key.guards(),
            Self::Session(session) => session.guards(),
            Self::Operator { token } => {
                token.iter().map(|version| operator::guard(*version)).collect()
            }
            Self::Anonymous => Vec::new(),
        }
    }

    /// The credential's role; absent without one.
    pub fn role(&self) -> Option<Role> {
        match self {
            Self::Key(key) => Some(key.role),
            Self::Session(session) => Some(session.membership.role),
            Self::Anonymous | Self::Operator { .. } => None,
        }
    }

    /// Whether what it has begun may go on, a stream or an export: it has not run out, nobody has
    /// ended it, and its `guards` hold; but the versions of rows that it was decided by decide nothing
    /// more, except of the operator's token. No, where the store cannot be asked.
    pub async fn lets_go_on(&self, directory: &Directory, guards: &[Guard]) -> bool {
        let ends = match self {
            Self::Key(key) => key.expires_at,
            Self::Session(session) => Some(session.expires_at),
            Self::Operator { .. } | Self::Anonymous => None,
        };
        let decides =
            |guard: &&Guard| matches!(guard, Guard::Unchanged { .. }) && !is_of_account(guard);
        let by_token = matches!(self, Self::Operator { .. });
        let lasting = guards.iter().filter(|guard| by_token || !decides(guard));
        let lasting: Vec<Guard> = lasting.cloned().collect();
        !ends.is_some_and(|end| directory.is_past(end))
            && directory.require_credential(&lasting).await.is_ok()
    }

    /// The kind and id of who acts, as records keep it.
    pub fn actor(&self) -> (String, String) {
        match self {
            Self::Key(key) => ("key".into(), key.id.to_string()),
            Self::Session(session) => ("account".into(), session.account.to_string()),
            Self::Operator { .. } => ("operator".into(), "operator".into()),
            Self::Anonymous => ("anonymous".into(), String::new()),
        }
    }
}

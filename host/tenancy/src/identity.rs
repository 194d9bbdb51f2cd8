//! The sender of a request, as its credential proved. Knows neither how the credential was
//! presented nor what is asked.

use std::sync::Arc;

use charter_kernel::id::OrganizationId;
use charter_kernel::role::Role;
use charter_kernel::scope::Principal;

use crate::directory::{KeyRecord, SessionRecord};

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
        /// The version of the token, for [`crate::operator::guard`]; none where a provider proved
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

    /// The credential's role; absent without one.
    pub fn role(&self) -> Option<Role> {
        match self {
            Self::Key(key) => Some(key.role),
            Self::Session(session) => Some(session.membership.role),
            Self::Anonymous | Self::Operator { .. } => None,
        }
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

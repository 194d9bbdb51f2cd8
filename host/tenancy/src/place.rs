//! Who asks, and where the request acts.
//!
//! Knows neither how a credential was presented nor what is asked.

use std::sync::Arc;

use charter_kernel::scope::Scope;

use crate::directory::{KeyRecord, OrganizationRecord, ProjectRecord, SessionRecord, UserRecord};

/// Who sent the request, as its credential proved.
#[derive(Clone, Debug)]
pub enum Identity {
    /// No credential; only routes with `auth: none` see it.
    Anonymous,
    /// An API key.
    Key(Arc<KeyRecord>),
    /// A signed-in person.
    Session(Arc<SessionRecord>),
    /// The deployment's operator.
    Operator,
}

/// Where the request acts: the organization of the credential, and the project and user that were
/// named or defaulted.
#[derive(Clone, Debug)]
pub struct Place {
    /// The proof that the kernel and the engine ask for.
    pub scope: Scope,
    /// The credential's organization.
    pub organization: Arc<OrganizationRecord>,
    /// The selected project.
    pub project: Arc<ProjectRecord>,
    /// The selected tenant user; absent where none was named and the project has no default.
    pub user: Option<Arc<UserRecord>>,
}

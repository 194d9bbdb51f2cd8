//! The cached directory of credentials and tenancy: keys, sessions, organizations, projects, users and kits.
//!
//! Look-ups answer from memory and fall back to the store; nothing here knows of HTTP. A revoked record is answered as revoked
//! within a second on every replica.

use std::sync::Arc;

use charter_kernel::role::Role;
use charter_kernel::time::Instant;
use charter_store::Store;

/// An API key, without its secret.
#[derive(Clone, Debug)]
pub struct KeyRecord {
    /// Its id.
    pub id: String,
    /// Whose it is.
    pub organization: String,
    /// What it may do.
    pub role: Role,
    /// The project that it is pinned to.
    pub project: Option<String>,
    /// The tenant user that it is pinned to.
    pub user: Option<String>,
    /// When it ends.
    pub expires_at: Option<Instant>,
    /// The version of its row, so that the pipeline can guard on its status at the commit.
    pub active: bool,
}

/// A person's session.
#[derive(Clone, Debug)]
pub struct SessionRecord {
    /// Its id, not its secret.
    pub id: String,
    /// The account that signed in.
    pub account: String,
    /// The organization that is selected.
    pub organization: String,
    /// The account's role there.
    pub role: Role,
    /// What `X-Service-CSRF` must equal.
    pub csrf_token: String,
    /// When it ends.
    pub expires_at: Instant,
}

/// An organization.
#[derive(Clone, Debug)]
pub struct OrganizationRecord {
    /// Its id.
    pub id: String,
    /// The project of requests that name none.
    pub default_project: String,
    /// Whether it is active.
    pub active: bool,
}

/// A project.
#[derive(Clone, Debug)]
pub struct ProjectRecord {
    /// Its id.
    pub id: String,
    /// Whether it reaches sandbox providers only.
    pub test: bool,
    /// The account's default profile in it.
    pub default_user: Option<String>,
}

/// A tenant user.
#[derive(Clone, Debug)]
pub struct UserRecord {
    /// Its id.
    pub id: String,
    /// Its project.
    pub project: String,
    /// The kit that it is assigned.
    pub kit: Option<String>,
    /// False once revoked.
    pub active: bool,
}

/// An account kit, decoded.
#[derive(Clone, Debug)]
pub struct KitRecord {
    /// Its id.
    pub id: String,
    /// The rules.
    pub kit: charter_kernel::kit::Kit,
}

/// The directory. Cheap to clone.
#[derive(Clone)]
pub struct Directory {
    store: Store,
}

/// The store could not be asked.
#[derive(Debug, thiserror::Error)]
#[error("the directory cannot be read")]
pub struct Unreadable;

impl Directory {
    /// A directory over this store.
    pub fn new(store: Store) -> Self {
        Self { store }
    }
    /// The key that was presented, by its secret; absent if there is none.
    pub async fn key(&self, _presented: &str) -> Result<Option<Arc<KeyRecord>>, Unreadable> {
        let _ = &self.store;
        Ok(None)
    }
    /// The session of a cookie.
    pub async fn session(&self, _cookie: &str) -> Result<Option<Arc<SessionRecord>>, Unreadable> {
        Ok(None)
    }
    /// An organization.
    pub async fn organization(&self, _id: &str) -> Result<Option<Arc<OrganizationRecord>>, Unreadable> {
        Ok(None)
    }
    /// A project of the organization; another organization's is absent.
    pub async fn project(&self, _organization: &str, _id: &str) -> Result<Option<Arc<ProjectRecord>>, Unreadable> {
        Ok(None)
    }
    /// A tenant user of the project; another's is absent.
    pub async fn user(&self, _organization: &str, _project: &str, _id: &str) -> Result<Option<Arc<UserRecord>>, Unreadable> {
        Ok(None)
    }
    /// A kit of the organization: the named one, or the default one.
    pub async fn kit(&self, _organization: &str, _id: Option<&str>) -> Result<Option<Arc<KitRecord>>, Unreadable> {
        Ok(None)
    }
}

//! An API key, without its secret.
//!
//! A key is revoked by removing its row. It counts only while each of its ancestors (the key that
//! made it, the key that made that one, …) is there as well, so revoking a key revokes what it made
//! in the same commit, however much that is.

use charter_kernel::id::{KeyId, OrganizationId, ProjectId, UserId};
use charter_kernel::role::Role;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Claim, Key, Reach, Space};
use serde::{Deserialize, Serialize};

use super::{ACTIVE, Record, STATUS, entry, secret_claim};

/// How many keys may stand between a key and the person that made the first.
pub const ANCESTORS_MAX: usize = 4;

/// The field by which the keys that a key made, directly or through others, are found.
pub const ANCESTOR: &str = "ancestor";

/// An API key.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ApiKey {
    /// Its id.
    pub id: KeyId,
    /// The organization that owns it.
    pub organization: OrganizationId,
    /// Its name.
    pub name: String,
    /// How its secret starts.
    pub prefix: String,
    /// SHA-256 of the secret, hexadecimal.
    pub digest: String,
    /// The role, which says what it may do.
    pub role: Role,
    /// The project that it is pinned to.
    pub project: Option<ProjectId>,
    /// The tenant user that it is pinned to.
    pub user: Option<UserId>,
    /// The actor who made it: kind and id.
    pub made_by: (String, String),
    /// The key that made it, the key that made that one, and so on.
    #[serde(default)]
    pub ancestors: Vec<KeyId>,
    /// The account of the person at the end of that chain.
    #[serde(default)]
    pub root: Option<String>,
    /// When it was made.
    pub created_at: Instant,
    /// When it ends.
    pub expires_at: Option<Instant>,
}

impl ApiKey {
    /// The address of the key of this id.
    pub fn address(organization: &OrganizationId, id: &KeyId) -> Key {
        Key::new(
            &Reach::organization(organization.as_str()),
            &Space::host(Self::COLLECTION),
            id.as_str(),
        )
    }

    /// The claim that a secret is looked up by.
    pub fn claim(digest: &str) -> Claim {
        secret_claim("key", digest)
    }
}

impl Record for ApiKey {
    const COLLECTION: &'static str = "keys";

    fn key(&self) -> Key {
        Self::address(&self.organization, &self.id)
    }

    fn index(&self) -> Vec<(String, String)> {
        let mut index = vec![entry(STATUS, ACTIVE), entry("maker", self.made_by.1.clone())];
        index.extend(self.user.iter().map(|user| entry("user_id", user.as_str())));
        index.extend(self.project.iter().map(|project| entry("project_id", project.as_str())));
        index.extend(self.ancestors.iter().map(|ancestor| entry(ANCESTOR, ancestor.as_str())));
        index
    }
}

//! Time-boxed leave for one user, as a row of the organization.

use charter_kernel::governance::policy::Grant;
use charter_kernel::id::{OrganizationId, ProjectId};
use charter_kernel::time::Instant;
use charter_kernel::unit::{Key, Reach, Space};
use serde::{Deserialize, Serialize};

use super::{Record, USER, entry};

/// The most grants of an organization at one time.
pub const GRANTS_MAX: u64 = 1_000;

/// A grant, and who gave it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Given {
    /// The organization that owns it.
    pub organization: OrganizationId,
    /// The user's project.
    #[serde(default)]
    pub project: Option<ProjectId>,
    /// The leave that is given.
    pub grant: Grant,
    /// The giver: kind and id.
    pub given_by: (String, String),
    /// When.
    pub created_at: Instant,
}

impl Given {
    /// The address of the grant of this id.
    pub fn address(organization: &OrganizationId, id: &str) -> Key {
        Key::new(&Reach::organization(organization.as_str()), &Space::host(Self::COLLECTION), id)
    }
}

impl Record for Given {
    const COLLECTION: &'static str = "grants";

    fn key(&self) -> Key {
        Self::address(&self.organization, &self.grant.id)
    }

    fn index(&self) -> Vec<(String, String)> {
        vec![entry(USER, &self.grant.user_id), entry(super::EXPIRES, self.grant.until.to_string())]
    }
}

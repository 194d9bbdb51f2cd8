//! A person who was a member of an organization, and the role that they had at the end: what they
//! were demoted to, leaving does not undo.

use charter_kernel::id::{AccountId, OrganizationId};
use charter_kernel::role::Role;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Key, Reach, Space};
use serde::{Deserialize, Serialize};

use super::Record;

/// See the module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct FormerMember {
    /// The organization.
    pub organization: OrganizationId,
    /// The person's account.
    pub account: AccountId,
    /// The role at the end.
    pub role: Role,
    /// When that was.
    pub left_at: Instant,
}

impl FormerMember {
    /// The address of this account's former membership.
    pub fn address(organization: &OrganizationId, account: &AccountId) -> Key {
        Key::new(
            &Reach::organization(organization.as_str()),
            &Space::host(Self::COLLECTION),
            account.as_str(),
        )
    }
}

impl Record for FormerMember {
    const COLLECTION: &'static str = "former_members";

    fn key(&self) -> Key {
        Self::address(&self.organization, &self.account)
    }
}

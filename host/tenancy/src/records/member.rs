//! A person's place in an organization. Its id is the account's: a person is a member once.

use charter_kernel::id::{AccountId, OrganizationId};
use charter_kernel::role::Role;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Guard, Key, Reach, Space};
use serde::{Deserialize, Serialize};

use super::{ACTIVE, Record, STATUS, entry};

/// The index field of the role.
const ROLE: &str = "role";

/// A person's place in an organization.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Member {
    /// The organization.
    pub organization: OrganizationId,
    /// The person's account.
    pub account: AccountId,
    /// As in the account.
    pub email: String,
    /// The role, which says what they may do.
    pub role: Role,
    /// Since when.
    pub created_at: Instant,
}

impl Member {
    /// The address of this account's membership.
    pub fn address(organization: &OrganizationId, account: &AccountId) -> Key {
        Key::new(
            &Reach::organization(organization.as_str()),
            &Space::host(Self::COLLECTION),
            account.as_str(),
        )
    }
}

/// Requires that the member has the role that was read.
pub(crate) fn still_has_role(member: Key, role: Role) -> Guard {
    Guard::Entry { key: member, field: ROLE.into(), value: role.as_str().into() }
}

impl Record for Member {
    const COLLECTION: &'static str = "members";

    fn key(&self) -> Key {
        Self::address(&self.organization, &self.account)
    }

    fn index(&self) -> Vec<(String, String)> {
        vec![entry(ROLE, self.role.as_str()), entry(STATUS, ACTIVE)]
    }
}

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
    /// Since when the member decides on approvals, if by a change of role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decides_since: Option<Instant>,
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

    /// The member in another role.
    #[must_use]
    pub fn in_role(self, role: Role, now: Instant) -> Self {
        let begins = role.decides() && !self.role.decides();
        let decides_since = if begins { Some(now) } else { self.decides_since };
        Self { role, decides_since, ..self }
    }

    /// Whether a word of this moment counts: the member decides, and has ever since. Somebody who
    /// was removed or demoted and came back begins anew.
    pub fn speaks_since(&self, word: Instant) -> bool {
        self.role.decides() && word >= self.decides_since.unwrap_or(self.created_at)
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

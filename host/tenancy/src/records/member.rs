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
    /// The roles that the member offers to others by a change of role, and since when each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub offers_since: Vec<(Role, Instant)>,
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
        let mut offers_since = self.offers_since;
        let begun = |offered: Role| role.invites(offered) && !self.role.invites(offered);
        offers_since.retain(|(offered, _)| !begun(*offered));
        let offered = Role::ALL.into_iter().filter(|offered| begun(*offered));
        offers_since.extend(offered.map(|offered| (offered, now)));
        Self { role, decides_since, offers_since, ..self }
    }

    /// Whether a word of this moment counts: the member decides, and has ever since. Somebody who
    /// was removed or demoted and came back begins anew.
    pub fn speaks_since(&self, word: Instant) -> bool {
        self.role.decides() && word >= self.decides_since.unwrap_or(self.created_at)
    }

    /// Whether an offer of this role, made then, counts: the member offers it, and has ever since.
    /// Somebody who was removed or demoted and came back begins anew.
    pub fn offers_since(&self, offered: Role, at: Instant) -> bool {
        let begun = self.offers_since.iter().find(|(role, _)| *role == offered);
        self.role.invites(offered) && at >= begun.map_or(self.created_at, |(_, since)| *since)
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

#[cfg(test)]
mod tests {
    use charter_kernel::id::uuid_v7;

    use super::*;

    fn member(role: Role) -> Member {
        Member {
            organization: OrganizationId::parse(&uuid_v7(Instant(1), [1; 10])).unwrap(),
            account: AccountId::parse(&uuid_v7(Instant(1), [2; 10])).unwrap(),
            email: "ann@example.com".into(),
            role,
            created_at: Instant(10),
            decides_since: None,
            offers_since: Vec::new(),
        }
    }

    #[test]
    fn an_offer_counts_while_its_role_was_offered_ever_since() {
        let owner = member(Role::Owner);
        assert!(owner.offers_since(Role::Owner, Instant(10)));
        assert!(!owner.offers_since(Role::Owner, Instant(9)), "from before the membership");
        let admin = owner.in_role(Role::Admin, Instant(20));
        assert!(admin.offers_since(Role::Admin, Instant(10)), "an admin goes on to offer it");
        assert!(!admin.offers_since(Role::Owner, Instant(10)));
        let again = admin.in_role(Role::Owner, Instant(30));
        assert!(again.offers_since(Role::Admin, Instant(10)));
        assert!(!again.offers_since(Role::Owner, Instant(29)));
        assert!(again.offers_since(Role::Owner, Instant(30)));
    }

    #[test]
    fn who_is_demoted_and_comes_back_offers_anew() {
        let mut admin = member(Role::Admin);
        for back in [30, 50] {
            let demoted = admin.in_role(Role::Developer, Instant(back - 10));
            assert!(!demoted.offers_since(Role::Viewer, Instant(back - 10)));
            admin = demoted.in_role(Role::Admin, Instant(back));
            assert!(!admin.offers_since(Role::Viewer, Instant(back - 1)));
            assert!(admin.offers_since(Role::Viewer, Instant(back)));
        }
        assert_eq!(admin.offers_since.len(), 4, "one moment for each role that it offers");
    }
}

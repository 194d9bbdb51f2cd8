//! The roles of members and keys, as a closed set.
//!
//! Roles form no ladder: an approver decides but does not write, a developer writes but does not
//! decide. So a role is a set of powers, and "no higher than" means "a subset of".

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::manifest::Access;

/// The role of a member of an organization, or of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Reads.
    Viewer,
    /// Reads, writes, makes keys of its own.
    Developer,
    /// Reads and decides approvals.
    Approver,
    /// Everything but ownership.
    Admin,
    /// Everything.
    Owner,
}

/// One of the powers that a role is made of.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Power {
    Read,
    Write,
    Decide,
    Administer,
    Own,
}

impl Role {
    /// All of them.
    pub const ALL: [Role; 5] =
        [Role::Viewer, Role::Developer, Role::Approver, Role::Admin, Role::Owner];

    /// Reads its name on the wire.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == text)
    }

    /// Its name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Role::Viewer => "viewer",
            Role::Developer => "developer",
            Role::Approver => "approver",
            Role::Admin => "admin",
            Role::Owner => "owner",
        }
    }

    /// Whether it may call an operation that needs `access`.
    pub fn allows(self, access: Access) -> bool {
        self.has(match access {
            Access::Read => Power::Read,
            Access::Write => Power::Write,
            Access::Admin => Power::Administer,
        })
    }

    /// Whether it may decide approvals. That the decider is a person is checked apart from this.
    pub fn decides(self) -> bool {
        self.has(Power::Decide)
    }

    /// Whether it may raise caps, grant leave, restore users and widen keys.
    pub fn loosens(self) -> bool {
        self.has(Power::Administer)
    }

    /// Whether it may hand the organization over or delete it.
    pub fn owns(self) -> bool {
        self.has(Power::Own)
    }

    /// Whether it may offer somebody a membership in this role: ownership is given by owners alone.
    pub fn invites(self, role: Role) -> bool {
        self.loosens() && (self.owns() || !role.owns())
    }

    /// Whether it has no power that `other` lacks: what a key's role must be to its maker's.
    pub fn no_higher_than(self, other: Role) -> bool {
        self.powers().iter().all(|power| other.has(*power))
    }

    /// The widest role that has no power which either of the two lacks: every two have one, since
    /// each role reads.
    #[must_use]
    pub fn intersect(self, other: Role) -> Role {
        if self.no_higher_than(other) {
            self
        } else if other.no_higher_than(self) {
            other
        } else {
            Role::Viewer
        }
    }

    fn has(self, power: Power) -> bool {
        self.powers().contains(&power)
    }

    fn powers(self) -> &'static [Power] {
        use Power::{Administer, Decide, Own, Read, Write};
        match self {
            Role::Viewer => &[Read],
            Role::Developer => &[Read, Write],
            Role::Approver => &[Read, Decide],
            Role::Admin => &[Read, Write, Decide, Administer],
            Role::Owner => &[Read, Write, Decide, Administer, Own],
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_role_has_exactly_its_powers() {
        let table = [
            (Role::Viewer, [true, false, false], false),
            (Role::Developer, [true, true, false], false),
            (Role::Approver, [true, false, false], true),
            (Role::Admin, [true, true, true], true),
            (Role::Owner, [true, true, true], true),
        ];
        for (role, [read, write, admin], decides) in table {
            assert_eq!(role.allows(Access::Read), read, "{role}");
            assert_eq!(role.allows(Access::Write), write, "{role}");
            assert_eq!(role.allows(Access::Admin), admin, "{role}");
            assert_eq!(role.decides(), decides, "{role}");
            assert_eq!(role.owns(), role == Role::Owner, "{role}");
            assert_eq!(Role::parse(role.as_str()), Some(role));
        }
        assert_eq!(Role::parse("root"), None);
    }

    #[test]
    fn admins_invite_all_but_owners_and_owners_all() {
        for role in Role::ALL {
            assert!(Role::Owner.invites(role));
            assert_eq!(Role::Admin.invites(role), role != Role::Owner);
            assert!(
                ![Role::Viewer, Role::Developer, Role::Approver]
                    .iter()
                    .any(|inviter| inviter.invites(role))
            );
        }
    }

    #[test]
    fn two_roles_share_the_powers_that_both_have() {
        for left in Role::ALL {
            for right in Role::ALL {
                let both = left.intersect(right);
                assert_eq!(both, right.intersect(left));
                assert!(both.no_higher_than(left) && both.no_higher_than(right));
                let shared = |role: Role| role.no_higher_than(left) && role.no_higher_than(right);
                assert!(
                    Role::ALL
                        .into_iter()
                        .filter(|role| shared(*role))
                        .all(|role| { role.no_higher_than(both) })
                );
            }
        }
    }

    #[test]
    fn a_maker_passes_on_no_power_it_lacks() {
        assert!(!Role::Approver.no_higher_than(Role::Developer));
        assert!(!Role::Developer.no_higher_than(Role::Approver));
        assert!(!Role::Owner.no_higher_than(Role::Admin));
        for role in Role::ALL {
            assert!(role.no_higher_than(role));
            assert!(role.no_higher_than(Role::Owner));
            assert!(Role::Viewer.no_higher_than(role));
        }
    }
}

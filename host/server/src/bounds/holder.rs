//! The shares of an organization's bounds that a credential counts in.

use charter_kernel::manifest::Access;
use charter_tenancy::identity::Identity;

use super::shares::{Path, Share};

/// The names of the shares that a credential counts in, the widest first: finer than a
/// [`charter_kernel::scope::Sharer`], and from the credential alone. A key counts with its
/// person, and with the key that made it, so that many of them get no more; a pinned one with all
/// that are pinned as it is, whoever made them, so that one agent takes nothing from another, unless it only
/// reads: anybody may make such a one, which counts with its person's; and a
/// session beside its person's keys, so that what they do keeps nobody from deciding about them.
#[derive(Clone, Debug, Default)]
pub struct Holder {
    shares: Vec<String>,
    /// The place among them of the one that has room for one of its own, if any.
    floor: usize,
}

impl Holder {
    /// The holder of what this sender asks for.
    pub fn of(identity: &Identity) -> Self {
        let person = |account: &str| format!("person {account}");
        match identity {
            Identity::Key(key) if key.user.is_some() || key.project.is_some() => {
                let project = key.project.iter().map(|id| format!("project {}", id.as_str()));
                let reader = || format!("reader {}", key.root.as_deref().unwrap_or_default());
                let within: Vec<_> = match key.role.allows(Access::Write) {
                    true => project.collect(),
                    false => vec![reader()],
                };
                let mut shares: Vec<_> = std::iter::once("pinned".into()).chain(within).collect();
                // Beside the users of a project are those keys of it that are no user's.
                shares.push(
                    key.user
                        .as_ref()
                        .map_or_else(|| "no user".to_owned(), |id| format!("user {}", id.as_str())),
                );
                Self { floor: shares.len() - 1, shares }
            }
            Identity::Key(key) => {
                let line = key.ancestors.iter().rev().chain([&key.id]);
                let line = line.map(|id| format!("key {}", id.as_str()));
                let root = key.root.iter().map(|account| person(account));
                // A key makes further ones, and they are all the person's.
                Self { shares: root.chain(line).collect(), floor: 0 }
            }
            Identity::Session(session) => {
                let shares = vec![person(session.account.as_str()), "sessions".to_owned()];
                Self { shares, floor: 1 }
            }
            Identity::Operator { .. } | Identity::Anonymous => {
                Self { shares: vec!["nobody's".to_owned()], floor: 0 }
            }
        }
    }

    /// The shares of a bound of which an organization may have `max`: the organization's, and in it
    /// the holder's, each half as large as the one around it.
    pub fn path(&self, organization: &str, max: usize) -> Path {
        let mut shares = vec![Share { name: organization.into(), max }];
        for name in &self.shares {
            let around = &shares[shares.len() - 1];
            // Of two shares with one name in two others, neither is the other.
            let share =
                Share { name: format!("{}/{name}", around.name).into(), max: around.max / 2 };
            shares.push(share);
        }
        let floor = (self.floor < self.shares.len()).then_some(self.floor + 1);
        Path { shares: shares.into(), floor }
    }
}

#[cfg(test)]
impl<const N: usize> From<[&str; N]> for Holder {
    fn from(shares: [&str; N]) -> Self {
        let floor = if shares.first() == Some(&"pinned") { N - 1 } else { 0 };
        Self { shares: shares.map(str::to_owned).into(), floor }
    }
}

#[cfg(test)]
impl Holder {
    /// A person's sessions, beside the person's keys.
    pub(super) fn signed_in(person: &str) -> Self {
        Self { shares: vec![person.to_owned(), "sessions".to_owned()], floor: 1 }
    }
}

//! The shares of an organization's bounds that a credential counts in.

use charter_tenancy::identity::Identity;

/// The names of the shares that a credential counts in, the widest first; each may be half as large
/// as the one around it. A key counts with its person, and with the key that made it, so that many
/// of them get no more; a pinned one with all that are pinned as it is, whoever made them, so that
/// one agent takes nothing from another.
#[derive(Clone, Debug, Default)]
pub struct Holder {
    shares: Vec<String>,
    /// The place among them of the one that has room for one, whatever others have: a person's, or
    /// that of a project or user that keys are pinned to.
    floor: usize,
}

impl Holder {
    /// The holder of what this sender asks for.
    pub fn of(identity: &Identity) -> Self {
        let person = |account: &str| format!("person {account}");
        match identity {
            Identity::Key(key) if key.user.is_some() || key.project.is_some() => {
                let project = key.project.iter().map(|id| format!("project {}", id.as_str()));
                // Beside the users of a project are those keys of it that are no user's.
                let own = key
                    .user
                    .as_ref()
                    .map_or_else(|| "no user".to_owned(), |id| format!("user {}", id.as_str()));
                let pinned = std::iter::once("pinned".to_owned());
                Self { shares: pinned.chain(project).chain([own]).collect(), floor: 1 }
            }
            Identity::Key(key) => {
                let line = key.ancestors.iter().rev().chain([&key.id]);
                let line = line.map(|id| format!("key {}", id.as_str()));
                let root = key.root.iter().map(|account| person(account));
                Self { shares: root.chain(line).collect(), floor: 0 }
            }
            Identity::Session(session) => {
                Self { shares: vec![person(session.account.as_str())], floor: 0 }
            }
            Identity::Operator | Identity::Anonymous => Self::default(),
        }
    }

    /// The names.
    pub fn shares(&self) -> &[String] {
        &self.shares
    }

    /// The name of the one that has room for one, whatever others have.
    pub fn floor(&self) -> Option<&str> {
        self.shares.get(self.floor).map(String::as_str)
    }
}

#[cfg(test)]
impl<const N: usize> From<[&str; N]> for Holder {
    fn from(shares: [&str; N]) -> Self {
        let floor = usize::from(shares.first() == Some(&"pinned"));
        Self { shares: shares.map(str::to_owned).into(), floor }
    }
}

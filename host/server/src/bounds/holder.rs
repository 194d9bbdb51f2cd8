//! The shares of an organization's bounds that a credential counts in.

use charter_tenancy::identity::Identity;

/// The names of the shares that a credential counts in, the widest first; each may be half as large
/// as the one around it. A key counts with the key that made it, so that many of them get no more;
/// a pinned one with all that are pinned as it is, whoever made them, so that one agent takes
/// nothing from another.
#[derive(Clone, Debug, Default)]
pub struct Holder(Vec<String>);

impl Holder {
    /// The holder of what this sender asks for.
    pub fn of(identity: &Identity) -> Self {
        Self(match identity {
            Identity::Key(key) if key.user.is_some() || key.project.is_some() => {
                let project = key.project.iter().map(|id| format!("project {}", id.as_str()));
                // Beside the users of a project are those keys of it that are no user's.
                let own = key
                    .user
                    .as_ref()
                    .map_or_else(|| "no user".to_owned(), |id| format!("user {}", id.as_str()));
                std::iter::once("pinned".to_owned()).chain(project).chain([own]).collect()
            }
            Identity::Key(key) => {
                let line = key.ancestors.iter().rev().chain([&key.id]);
                line.map(|id| format!("key {}", id.as_str())).collect()
            }
            Identity::Session(session) => vec![format!("account {}", session.account.as_str())],
            Identity::Operator | Identity::Anonymous => Vec::new(),
        })
    }

    /// The names.
    pub fn shares(&self) -> &[String] {
        &self.0
    }
}

#[cfg(test)]
impl<const N: usize> From<[&str; N]> for Holder {
    fn from(shares: [&str; N]) -> Self {
        Self(shares.map(str::to_owned).into())
    }
}

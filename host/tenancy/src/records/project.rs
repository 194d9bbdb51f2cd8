//! A part of an organization, with users and kits of its own.

use charter_kernel::id::{KitId, OrganizationId, ProjectId, UserId};
use charter_kernel::kit::Budget;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Key, Reach, Space};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Record;
use super::organization::yes;

/// How many projects an organization can have.
pub const PROJECTS_MAX: u64 = 1_000;

/// A part of an organization.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Project {
    /// Its id.
    pub id: ProjectId,
    /// The organization that owns it.
    pub organization: OrganizationId,
    /// Its name.
    pub name: String,
    /// The mode, which says which providers it reaches. Never changes: keys say it in their prefix.
    pub mode: Mode,
    /// The profile of requests that name no user.
    pub default_user: UserId,
    /// The kit of users that were assigned none.
    pub default_kit: KitId,
    /// The spend cap of all of its users together.
    #[serde(default)]
    pub budget: Option<Budget>,
    /// Whether somebody who may loosen has set the budget: a cap that anybody set for themselves is
    /// no reason to let them make what has caps of its own beneath it.
    #[serde(default = "yes")]
    pub budget_agreed: bool,
    /// When it was made.
    pub created_at: Instant,
}

/// The mode of a project, by which it reaches providers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// All that are bound.
    #[default]
    Live,
    /// Only those that are bound as a sandbox.
    Test,
}

impl Mode {
    /// The beginning of keys that are pinned to such a project.
    pub fn key_prefix(self) -> &'static str {
        match self {
            Mode::Live => "sk_live_",
            Mode::Test => "sk_test_",
        }
    }
}

impl Project {
    /// The address of the project of this id.
    pub fn address(organization: &OrganizationId, id: &ProjectId) -> Key {
        Key::new(
            &Reach::organization(organization.as_str()),
            &Space::host(Self::COLLECTION),
            id.as_str(),
        )
    }
}

impl Record for Project {
    const COLLECTION: &'static str = "projects";

    fn key(&self) -> Key {
        Self::address(&self.organization, &self.id)
    }
}

//! A tenant user: one agent profile, the child project behind `/v1/users/{user_id}`.

use std::collections::BTreeMap;

use charter_kernel::id::{KitId, OrganizationId, ProjectId, UserId};
use charter_kernel::kit::Budget;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Claim, Key, Reach, Space};
use serde::{Deserialize, Serialize};

use super::{ACTIVE, Record, STATUS, entry};

/// The most metadata entries.
pub const METADATA_ENTRIES_MAX: usize = 50;
/// The longest metadata key, in characters.
pub const METADATA_KEY_CHARACTERS_MAX: usize = 40;
/// The longest metadata value, in characters.
pub const METADATA_VALUE_CHARACTERS_MAX: usize = 500;
/// The longest external id, in characters.
pub const EXTERNAL_ID_CHARACTERS_MAX: usize = 255;

/// A tenant user.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct User {
    /// Its id.
    pub id: UserId,
    /// The organization that owns it.
    pub organization: OrganizationId,
    /// The project that it lives in.
    pub project: ProjectId,
    /// Its name.
    pub name: String,
    /// Its e-mail address.
    pub email: Option<String>,
    /// The platform's own name for it; unique within the project.
    pub external_id: Option<String>,
    /// The kit that it was assigned; the project's default kit where absent.
    pub kit: Option<KitId>,
    /// Its own spend cap, beside its kit's.
    #[serde(default)]
    pub budget: Option<Budget>,
    /// Present while it is revoked.
    pub revoked: Option<Revocation>,
    /// The platform's own notes.
    #[serde(default)]
    pub metadata: BTreeMap<String, String>,
    /// When it was made.
    pub created_at: Instant,
}

/// Why and since when a user is revoked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Revocation {
    /// Since when.
    pub at: Instant,
    /// The reason that the revoker gave.
    pub reason: Option<String>,
}

impl User {
    /// The address of the user of this id.
    pub fn address(project: &ProjectId, id: &UserId) -> Key {
        Key::new(&Reach::project(project.as_str()), &Space::host(Self::COLLECTION), id.as_str())
    }

    /// The claim on an external id.
    pub fn external_claim(project: &ProjectId, external_id: &str) -> Claim {
        Claim::unique(&Reach::project(project.as_str()), &Self::space(), "external_id", external_id)
    }

    /// `active` or `revoked`.
    pub fn status(&self) -> &'static str {
        if self.revoked.is_some() { "revoked" } else { ACTIVE }
    }
}

impl Record for User {
    const COLLECTION: &'static str = "users";

    fn key(&self) -> Key {
        Self::address(&self.project, &self.id)
    }

    fn index(&self) -> Vec<(String, String)> {
        let mut index = vec![entry(STATUS, self.status())];
        if let Some(kit) = &self.kit {
            index.push(entry("kit_id", kit.as_str()));
        }
        index
    }

    fn unique(&self) -> Vec<(String, String)> {
        self.external_id.iter().map(|id| entry("external_id", id.clone())).collect()
    }
}

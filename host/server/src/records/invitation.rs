//! A membership that was offered: a one-time token makes a member of whoever presents it.

use charter_kernel::id::{InvitationId, OrganizationId};
use charter_kernel::role::Role;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Claim, Key, Reach, Space};
use serde::{Deserialize, Serialize};

use super::account::normalised;
use super::{Record, entry, secret_claim};

/// How long an invitation can be accepted.
pub const LIFETIME_MS: i64 = 7 * 24 * 60 * 60 * 1000;

/// A membership that was offered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Invitation {
    /// Its id.
    pub id: InvitationId,
    /// The organization it leads into.
    pub organization: OrganizationId,
    /// Whom it is for.
    pub email: String,
    /// What they will be.
    pub role: Role,
    /// SHA-256 of the token, hexadecimal.
    pub digest: String,
    /// Who offered it: the kind and id of the actor.
    pub invited_by: (String, String),
    /// When it was offered.
    pub created_at: Instant,
    /// When it ends.
    pub expires_at: Instant,
}

impl Invitation {
    /// Where the invitation of this id lies.
    pub fn address(organization: &OrganizationId, id: &InvitationId) -> Key {
        Key::new(&Reach::organization(organization.as_str()), &Space::host(Self::COLLECTION), id.as_str())
    }

    /// What a token is looked up by.
    pub fn claim(digest: &str) -> Claim {
        secret_claim("invitation", digest)
    }
}

impl Record for Invitation {
    const COLLECTION: &'static str = "invitations";

    fn key(&self) -> Key {
        Self::address(&self.organization, &self.id)
    }

    fn index(&self) -> Vec<(String, String)> {
        vec![entry("email", normalised(&self.email))]
    }
}

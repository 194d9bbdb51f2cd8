//! A membership that was offered: a one-time token makes a member of whoever presents it.
//!
//! It counts only while whoever offered it could offer it still. Removals and revocations therefore
//! end what they find by [`INVITER`], and what they do not find leads nowhere all the same.

use charter_kernel::id::{InvitationId, KeyId, OrganizationId};
use charter_kernel::role::Role;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Claim, Key, Reach, Space};
use serde::{Deserialize, Serialize};

use super::account::normalize;
use super::{Record, entry, secret_claim};

/// How long an invitation can be accepted.
pub const LIFETIME_MS: i64 = 7 * 24 * 60 * 60 * 1000;

/// The field by which the invitations of an account, or of a key and of all that descend from it,
/// are found.
pub const INVITER: &str = "inviter";

/// A membership that was offered.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Invitation {
    /// Its id.
    pub id: InvitationId,
    /// The organization it leads into.
    pub organization: OrganizationId,
    /// The address of the person who is invited.
    pub email: String,
    /// The role that they will have.
    pub role: Role,
    /// SHA-256 of the token that the inviter was shown, hexadecimal.
    pub digest: String,
    /// The same of the token that was mailed: whoever has it reads the address's mail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mailed: Option<String>,
    /// The actor who offered it: kind and id.
    pub invited_by: (String, String),
    /// The keys that the inviting key descends from.
    #[serde(default)]
    pub ancestors: Vec<KeyId>,
    /// When it was offered.
    pub created_at: Instant,
    /// When it ends.
    pub expires_at: Instant,
}

impl Invitation {
    /// The address of the invitation of this id.
    pub fn address(organization: &OrganizationId, id: &InvitationId) -> Key {
        Key::new(
            &Reach::organization(organization.as_str()),
            &Space::host(Self::COLLECTION),
            id.as_str(),
        )
    }

    /// The digests of its tokens.
    pub fn digests(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.digest.as_str()).chain(self.mailed.as_deref())
    }

    /// The claim that a token is looked up by.
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
        let mut index = vec![
            entry("email", normalize(&self.email)),
            entry("expires_at", self.expires_at.to_string()),
        ];
        index.push(entry(INVITER, self.invited_by.1.clone()));
        index.extend(self.ancestors.iter().map(|ancestor| entry(INVITER, ancestor.as_str())));
        index
    }
}

//! A signed-in person's session. Its row's id is the digest of the cookie: one read finds it, and
//! nothing leaks it.

use charter_kernel::id::{AccountId, OrganizationId, SessionId};
use charter_kernel::time::Instant;
use charter_kernel::unit::{Key, Reach, Space};
use serde::{Deserialize, Serialize};

use super::member::Member;
use super::{ACTIVE, Record, STATUS, entry};

/// How long a session lasts.
pub const LIFETIME_MS: i64 = 14 * 24 * 60 * 60 * 1000;

/// A signed-in person's session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Session {
    /// Its id on the wire.
    pub id: SessionId,
    /// SHA-256 of the cookie, hexadecimal.
    pub digest: String,
    /// The person who signed in.
    pub account: AccountId,
    /// The organization that is selected.
    pub organization: OrganizationId,
    /// The version of the account's password that it was opened under.
    #[serde(default)]
    pub password_version: u32,
    /// How often the account's sessions had been ended when it was opened.
    #[serde(default)]
    pub sessions_version: u32,
    /// Since when the person is a member of the organization, as it was selected: who came back has
    /// another membership.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member_since: Option<Instant>,
    /// When they signed in.
    pub created_at: Instant,
    /// When it ends.
    pub expires_at: Instant,
}

impl Session {
    /// Whether it was moved or opened into this very membership.
    pub fn is_of(&self, member: &Member) -> bool {
        self.organization == member.organization
            && self.member_since.is_none_or(|since| since == member.created_at)
    }

    /// The address of the session of this digest.
    pub fn address(digest: &str) -> Key {
        Key::new(&Reach::deployment(), &Space::host(Self::COLLECTION), digest)
    }
}

impl Record for Session {
    const COLLECTION: &'static str = "sessions";

    fn key(&self) -> Key {
        Self::address(&self.digest)
    }

    fn index(&self) -> Vec<(String, String)> {
        vec![
            entry(STATUS, ACTIVE),
            entry("account", self.account.as_str()),
            entry("expires_at", self.expires_at.to_string()),
        ]
    }
}

//! A one-time link that is mailed to one person. Its row's id is the digest of its token: one read
//! finds it, and nothing leaks it.

use charter_kernel::id::AccountId;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Key, Reach, Space};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::account::{Account, normalize};
use super::{EXPIRES, Record, entry};

/// The indexed field by which an approval's links are found.
pub const APPROVAL: &str = "approval";
/// The indexed field by which the links are found that act for an account.
pub const ACCOUNT: &str = "account";
/// How long the row outlives the link, so that who comes late is told so, in milliseconds: a day.
const KEPT_MS: i64 = 86_400_000;

/// The purpose of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Purpose {
    /// To decide on one approval.
    Approval {
        /// The organization that owns the approval.
        organization: String,
        /// Its id.
        approval: String,
        /// SHA-256 of the request: what is decided is this request and no other.
        request_sha256: String,
    },
    /// To sign in.
    SignIn,
    /// To prove that mail to the address reaches whoever has the link.
    Proof,
    /// To set a new password.
    Reset,
}

/// The state of the mail that the link is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Mailed {
    /// It is on its way.
    Waiting,
    /// The relay has it.
    Sent,
    /// It was given up.
    Failed,
    /// It was not to be sent: too many were, the address is not one for links, or its account has
    /// another by now.
    Withheld,
}

impl Mailed {
    /// Its name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Sent => "sent",
            Self::Failed => "failed",
            Self::Withheld => "withheld",
        }
    }
}

/// A one-time link.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Link {
    /// SHA-256 of the token, hexadecimal.
    pub digest: String,
    /// Its purpose.
    pub purpose: Purpose,
    /// The account that it acts for; absent for a proof of an address that had no account.
    #[serde(default)]
    pub account: Option<AccountId>,
    /// How often the account's password had been set anew when it was made: a new one ends the links
    /// of before. Absent of links that earlier builds have made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password_version: Option<u32>,
    /// The address that it was mailed to.
    pub email: String,
    /// The state of that mail.
    pub mailed: Mailed,
    /// Why, where it is not on its way or there.
    #[serde(default)]
    pub reason: Option<String>,
    /// Whether it has counted.
    #[serde(default)]
    pub used: bool,
    /// When it was made.
    pub created_at: Instant,
    /// When it counts no more.
    pub expires_at: Instant,
}

impl Link {
    /// The address of the link of this digest.
    pub fn address(digest: &str) -> Key {
        Key::new(&Reach::deployment(), &Space::host(Self::COLLECTION), digest)
    }

    /// Why it does not act for its account any more, where it does not. An account with another
    /// address by now is not the one that it was mailed to; and whoever reads its mail in secret is
    /// out once the password is another.
    pub fn fault_for(&self, account: &Account) -> Option<&'static str> {
        let is_new = |version: u32| version != account.password_version;
        if normalize(&account.email) != normalize(&self.email) {
            Some("address_changed")
        } else {
            self.password_version.is_some_and(is_new).then_some("password_changed")
        }
    }

    /// Whether it may still count: it has not, and its mail is on its way or at the relay. A relay
    /// that refuses a mail has read the link, and its person has not.
    pub fn is_open(&self) -> bool {
        !self.used && matches!(self.mailed, Mailed::Waiting | Mailed::Sent)
    }
}

impl Record for Link {
    const COLLECTION: &'static str = "links";

    fn key(&self) -> Key {
        Self::address(&self.digest)
    }

    fn index(&self) -> Vec<(String, String)> {
        let mut index = vec![entry(EXPIRES, self.expires_at.plus_ms(KEPT_MS).to_string())];
        if let Purpose::Approval { approval, .. } = &self.purpose {
            index.push(entry(APPROVAL, approval));
        } else if let Some(account) = &self.account {
            index.push(entry(ACCOUNT, account.as_str()));
        }
        index
    }
}

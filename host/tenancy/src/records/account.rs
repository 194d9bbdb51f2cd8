//! A person who signs in. One account can be a member of several organizations.

use charter_kernel::id::{AccountId, OrganizationId, SessionId};
use charter_kernel::time::Instant;
use charter_kernel::unit::{Claim, Guard, Key, Reach, Space};
use serde::{Deserialize, Serialize};

use super::session::Session;
use super::{Record, entry};

/// How many organizations one account can be a member of.
pub const ORGANIZATIONS_MAX: usize = 100;
/// The longest e-mail address, in bytes (RFC 5321, 4.5.3.1.3, without its brackets).
pub const EMAIL_BYTES_MAX: usize = 254;

/// The domain of addresses that were taken from accounts.
pub const NO_MAIL: &str = "unproved.invalid";

/// A person who signs in.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Account {
    /// Its id.
    pub id: AccountId,
    /// The address of its mail, as it was given.
    pub email: String,
    /// The Argon2id hash of its password, as a PHC string.
    pub password_hash: String,
    /// How often the password was set anew: sessions that were opened under an earlier one have
    /// ended.
    #[serde(default)]
    pub password_version: u32,
    /// How often its sessions were ended: those that were opened before have ended, but for the one
    /// that was kept.
    #[serde(default)]
    pub sessions_version: u32,
    /// The session that had the others ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_kept: Option<SessionId>,
    /// The organizations it is a member of, oldest first; the members' rows say in which role.
    pub organizations: Vec<OrganizationId>,
    /// When somebody proved that mail to the address reaches them; absent until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email_verified_at: Option<Instant>,
    /// When it registered.
    pub created_at: Instant,
}

/// Whether a guard is a session's on its account's row: the row changes with more than with its
/// sessions, so that [`Account::admits`] decides where it does not hold.
pub fn is_of_account(guard: &Guard) -> bool {
    matches!(guard, Guard::Unchanged { key, .. } if key.space == Account::space())
}

impl Account {
    /// Whether somebody has proved that mail to the address reaches them.
    pub fn is_verified(&self) -> bool {
        self.email_verified_at.is_some()
    }

    /// Ends its sessions, but this one, with the commit that writes the account: whatever rows of
    /// them there are.
    pub fn end_sessions(&mut self, but: Option<&SessionId>) {
        self.sessions_version += 1;
        self.session_kept = but.cloned();
    }

    /// Whether a session of it has not been ended with others, or by a new password.
    pub fn admits(&self, session: &Session) -> bool {
        let versions = (session.password_version, session.sessions_version);
        versions == (self.password_version, self.sessions_version) || self.keeps(session)
    }

    /// Whether a session has been ended so; never said of one that was opened since this was read.
    pub fn has_ended(&self, session: &Session) -> bool {
        let is_before = session.password_version < self.password_version
            || session.sessions_version < self.sessions_version;
        is_before && !self.keeps(session)
    }

    fn keeps(&self, session: &Session) -> bool {
        self.session_kept.as_ref() == Some(&session.id)
    }

    /// The address of an account that has lost its own to somebody who proved that it is theirs: no
    /// mail ever goes there (RFC 2606, section 2), and no other account has it.
    pub fn address_without_mail(&self) -> String {
        format!("{}@{NO_MAIL}", self.id)
    }

    /// The address of the account of this id.
    pub fn address(id: &AccountId) -> Key {
        Key::new(&Reach::deployment(), &Space::host(Self::COLLECTION), id.as_str())
    }

    /// The claim on an e-mail address: one account in the deployment has it.
    pub fn claim(email: &str) -> Claim {
        Claim::unique(&Reach::deployment(), &Self::space(), "email", &normalize(email))
    }
}

impl Record for Account {
    const COLLECTION: &'static str = "accounts";

    fn key(&self) -> Key {
        Self::address(&self.id)
    }

    fn unique(&self) -> Vec<(String, String)> {
        vec![entry("email", normalize(&self.email))]
    }
}

/// The form in which two spellings of one address are equal. The local part is case-sensitive in
/// RFC 5321 and nowhere else.
pub fn normalize(email: &str) -> String {
    email.trim().to_lowercase()
}

/// Whether an address is the only one of its mailbox, up to case: its domain is spelled as UTS 46
/// has it, and its local part needs no quotes and has no letter that another one's small form is.
/// Otherwise a mailbox would have many accounts and quotas, and a mail would reach another mailbox
/// than the one that is compared.
fn is_the_only_spelling(local: &str, domain: &str) -> bool {
    let domain_fits = matches!(idna::domain_to_unicode(domain), (unicode, Ok(())) if unicode == domain.to_lowercase());
    domain_fits
        && !local.contains(['"', '\\'])
        && local.to_lowercase() == local.to_ascii_lowercase()
}

/// The fault of an e-mail address that is given anew, if any. Deliberately coarse: only a mail
/// proves that an address exists.
pub fn email_fault(email: &str) -> Option<&'static str> {
    let is_usual = |(local, domain)| is_the_only_spelling(local, domain);
    let spelling = || match email.rsplit_once('@').is_some_and(is_usual) {
        true => None,
        false => Some("must be an e-mail address in its usual spelling, without quotes"),
    };
    form_fault(email).or_else(spelling)
}

/// Whether a text has the form of an e-mail address, in whatever spelling: earlier builds took each
/// that has.
pub fn is_email(email: &str) -> bool {
    form_fault(email).is_none()
}

fn form_fault(email: &str) -> Option<&'static str> {
    let Some((local, domain)) = email.rsplit_once('@') else {
        return Some("must be an e-mail address");
    };
    let domain_fits = domain.contains('.') && domain.split('.').all(label_fits);
    let local_fits = !local.is_empty()
        && local.len() <= 64
        && !local.chars().any(|c| c.is_whitespace() || c.is_control() || c == '@');
    if domain.eq_ignore_ascii_case(NO_MAIL) {
        // Those are given by the host alone: else somebody could keep one from its account.
        Some("must be an address that mail reaches")
    } else if email.len() > EMAIL_BYTES_MAX {
        Some("must have at most 254 characters")
    } else if !domain_fits || !local_fits {
        Some("must be an e-mail address")
    } else {
        None
    }
}

fn label_fits(label: &str) -> bool {
    let inner = |c: char| c.is_alphanumeric() || c == '-';
    !label.is_empty()
        && label.len() <= 63
        && label.chars().all(inner)
        && !label.starts_with('-')
        && !label.ends_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_spellings_of_one_address_are_one_claim() {
        assert_eq!(Account::claim("Ann@Example.com"), Account::claim("ann@example.COM"));
        assert_ne!(Account::claim("ann@example.com"), Account::claim("bob@example.com"));
    }

    #[test]
    fn what_is_no_address_is_refused() {
        for email in [
            "",
            "ann",
            "ann@",
            "@example.com",
            "ann@example",
            "an n@example.com",
            "a@-x.com",
            "a@b..c",
            "a@b@c.com",
            "a@unproved.invalid",
            "a@Unproved.INVALID",
        ] {
            assert!(email_fault(email).is_some(), "{email}");
        }
        for email in ["ann@example.com", "ann+tag@mail.example.co.uk", "änn@exämple.de"] {
            assert!(email_fault(email).is_none(), "{email}");
        }
        assert!(email_fault(&format!("a@{}.com", "x".repeat(300))).is_some());
    }
}

//! One-time links: made for one person and one purpose, mailed, and taken up once.
//!
//! A link holds 256 random bits and is stored as their hash. One that is unknown, used, over, for
//! something else, or in a mail that was given up reads the same.

use charter_kernel::id::AccountId;
use charter_kernel::refusal::Refusal;
use charter_kernel::time::Instant;
use charter_tenancy::records::link::{Link, Mailed, Purpose};
use charter_tenancy::secret::Plain;
use charter_tenancy::stored;

/// How long a link counts that somebody asked for, in milliseconds: a quarter of an hour to sign in
/// or to set a password.
pub const SIGN_IN_MS: i64 = 15 * 60_000;
/// The same of one that proves an address: a day.
pub const PROOF_MS: i64 = 24 * 3_600_000;

/// A fresh link and its token. It acts for the account of this id, as long as its password has been
/// set anew so often and no more.
///
/// # Errors
/// When the operating system has no randomness.
pub fn make(
    purpose: Purpose,
    account: Option<(&AccountId, u32)>,
    email: &str,
    now: Instant,
    expires_at: Instant,
) -> Result<(Link, Plain), Refusal> {
    let token = Plain::generate("link_").map_err(stored::no_randomness)?;
    let link = Link {
        digest: token.digest().hex(),
        purpose,
        account: account.map(|(id, _)| id.clone()),
        password_version: account.map(|(_, version)| version),
        email: email.to_owned(),
        mailed: Mailed::Waiting,
        reason: None,
        used: false,
        created_at: now,
        expires_at,
    };
    Ok((link, token))
}

/// The one refusal of every link that does not count: nobody is told which of the reasons it is.
pub fn no_such_link() -> Refusal {
    let mut refusal = Refusal::not_found().hint("Links count once. Ask for a new one, or sign in.");
    refusal.message = "This link does not exist, was used, or has ended.".into();
    refusal
}

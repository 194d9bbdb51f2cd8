//! One-time links: made for one person and one purpose, mailed, and taken up once.
//!
//! A link holds 256 random bits and is stored as their hash. One that is unknown, used, over, or
//! for something else reads the same, and who tries many is slowed down as who guesses passwords
//! is.

use charter_kernel::id::AccountId;
use charter_kernel::refusal::Refusal;
use charter_kernel::time::Instant;
use charter_store::Txn;
use charter_tenancy::secret::Plain;

use crate::app::App;
use crate::records::link::{Link, Mailed, Purpose};
use crate::request::HostRequest;
use crate::routes::stored::{self, Versioned};
use crate::strangers::Attempt;

/// How long a sign-in link counts, in milliseconds: a quarter of an hour.
pub const SIGN_IN_MS: i64 = 15 * 60_000;

/// A fresh link and its token.
///
/// # Errors
/// Where the operating system has no randomness.
pub fn made(
    purpose: Purpose,
    account: &AccountId,
    email: &str,
    now: Instant,
    expires_at: Instant,
) -> Result<(Link, Plain), Refusal> {
    let token = Plain::generate("link_").map_err(stored::no_randomness)?;
    let link = Link {
        digest: token.digest().stored(),
        purpose,
        account: account.clone(),
        email: email.to_owned(),
        mailed: Mailed::Waiting,
        reason: None,
        used: false,
        created_at: now,
        expires_at,
    };
    Ok((link, token))
}

/// What every link reads as that does not count: which of the reasons it is, is told to nobody.
pub fn gone() -> Refusal {
    let mut refusal = Refusal::not_found().hint("Links count once. Ask for a new one, or sign in.");
    refusal.message = "This link does not exist, was used, or has ended.".into();
    refusal
}

/// Slows down who tries secrets of links, by client address. What it takes is given back to who had
/// a right one.
///
/// # Errors
/// 429 after too many.
pub fn throttled(app: &App, request: &HostRequest) -> Result<Attempt, Refusal> {
    let attempt = app.strangers.one_time_secret(request.peer);
    app.strangers.admit(&attempt, request.began)?;
    Ok(attempt)
}

/// The link of a token that was presented, unless it was used. What was read is validated at the
/// commit, so that of two who present it one comes first.
///
/// # Errors
/// [`gone`], and 429 after too many.
pub async fn presented(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    token: &str,
) -> Result<Versioned<Link>, Refusal> {
    let attempt = throttled(app, request)?;
    let digest = Plain::presented(token).digest();
    let found = stored::get::<Link>(txn, &Link::address(&digest.stored())).await?;
    let found = found
        .filter(|found| digest.is(&found.record.digest) && !found.record.used)
        .ok_or_else(gone)?;
    app.strangers.give_back(&attempt);
    Ok(found)
}

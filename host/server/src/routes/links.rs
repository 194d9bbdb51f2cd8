//! One-time links as they are presented: who tries many is slowed down as who guesses passwords is.

pub use charter_adapters::mail::links::gone;
use charter_kernel::id::AccountId;
use charter_kernel::refusal::Refusal;
use charter_kernel::unit::Reach;
use charter_store::Txn;
use charter_tenancy::records::account::{Account, normalised};
use charter_tenancy::records::link::{ACCOUNT, Link, Purpose};
use charter_tenancy::secret::Plain;
use charter_tenancy::stored::{self, Versioned};

use crate::app::App;
use crate::request::HostRequest;
use crate::strangers::Attempt;

/// Links that end with the commit that ends an account's; more than are mailed in an hour.
const ENDED_MAX: u32 = 200;

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

/// The link of a token that was presented, if it is one for this and not over.
///
/// # Errors
/// As of [`presented`].
pub async fn presented_for(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    token: &str,
    purpose: &Purpose,
) -> Result<Link, Refusal> {
    let link = presented(app, request, txn, token).await?.record;
    if link.purpose == *purpose && request.now < link.expires_at { Ok(link) } else { Err(gone()) }
}

/// The account that a link acts for, as long as it has the address that the link was mailed to.
///
/// # Errors
/// [`gone`], or when the store cannot be asked.
pub async fn account(txn: &mut Txn, link: &Link) -> Result<Account, Refusal> {
    let id = link.account.as_ref().ok_or_else(gone)?;
    let found = stored::get::<Account>(txn, &Account::address(id)).await?.ok_or_else(gone)?.record;
    // Whoever has another address by now is not who the link was mailed to.
    if normalised(&found.email) == normalised(&link.email) { Ok(found) } else { Err(gone()) }
}

/// Ends the links that were mailed to act for an account, in the caller's commit.
///
/// # Errors
/// When the store cannot be asked.
pub async fn end_of(txn: &mut Txn, account: &AccountId) -> Result<(), Refusal> {
    let of = [(ACCOUNT, account.as_str())];
    let (links, _) = stored::list::<Link>(txn, &Reach::deployment(), &of, ENDED_MAX, 0).await?;
    for link in links {
        stored::remove(txn, &link.record).await?;
    }
    Ok(())
}

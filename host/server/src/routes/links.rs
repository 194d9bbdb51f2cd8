//! One-time links as they are presented: who tries many is slowed down as who guesses passwords is.

pub use charter_adapters::mail::links::no_such_link;

use charter_kernel::id::AccountId;
use charter_kernel::refusal::Refusal;
use charter_kernel::unit::Reach;
use charter_store::Txn;
use charter_tenancy::records::account::Account;
use charter_tenancy::records::link::{ACCOUNT, Link, Purpose};
use charter_tenancy::secret::Plain;
use charter_tenancy::stored::{self, Versioned};

use crate::app::App;
use crate::bounds::strangers::Attempt;
use crate::request::HostRequest;

/// Links that end with the commit that ends an account's; more than are mailed in an hour.
const ENDED_MAX: u32 = 200;

/// Slows down who tries secrets of links, by client address. A caller with a right secret gets the
/// attempt back.
///
/// # Errors
/// 429 after too many.
pub fn throttle(app: &App, request: &HostRequest) -> Result<Attempt, Refusal> {
    let attempt = app.bounds.strangers.one_time_secret(request.peer);
    app.bounds.strangers.admit(&attempt, request.began)?;
    Ok(attempt)
}

/// The link of a token that was presented, unless it was used or its mail was given up. Every read is validated at the
/// commit, so that of two who present it one comes first.
///
/// # Errors
/// [`no_such_link`], and 429 after too many.
pub async fn find_presented(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    token: &str,
) -> Result<Versioned<Link>, Refusal> {
    let attempt = throttle(app, request)?;
    let digest = Plain::from_client(token).digest();
    let found = stored::get::<Link>(txn, &Link::address(&digest.hex())).await?;
    let found = found
        .filter(|found| digest.is(&found.record.digest) && found.record.is_open())
        .ok_or_else(no_such_link)?;
    app.bounds.strangers.give_back(&attempt);
    Ok(found)
}

/// The link of a token that was presented, if it is one for this and not over.
///
/// # Errors
/// As of [`find_presented`].
pub async fn find_for_purpose(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    token: &str,
    purpose: &Purpose,
) -> Result<Link, Refusal> {
    let link = find_presented(app, request, txn, token).await?.record;
    if link.purpose == *purpose && request.now < link.expires_at {
        Ok(link)
    } else {
        Err(no_such_link())
    }
}

/// The account that a link acts for, as long as it has the address that the link was mailed to, and
/// the password of then.
///
/// # Errors
/// [`no_such_link`], or when the store cannot be asked.
pub async fn account(txn: &mut Txn, link: &Link) -> Result<Account, Refusal> {
    let id = link.account.as_ref().ok_or_else(no_such_link)?;
    let found =
        stored::get::<Account>(txn, &Account::address(id)).await?.ok_or_else(no_such_link)?.record;
    if link.fault_for(&found).is_none() { Ok(found) } else { Err(no_such_link()) }
}

/// The account that a presented link of this purpose acts for, with the link.
///
/// # Errors
/// As of [`find_for_purpose`] and [`account`].
pub async fn find_account(
    app: &App,
    request: &HostRequest,
    txn: &mut Txn,
    token: &str,
    purpose: &Purpose,
) -> Result<(Link, Account), Refusal> {
    let link = find_for_purpose(app, request, txn, token, purpose).await?;
    let account = account(txn, &link).await?;
    Ok((link, account))
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

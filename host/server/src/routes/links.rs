//! One-time links as they are presented: who tries many is slowed down as who guesses passwords is.

pub use charter_adapters::mail::links::gone;
use charter_kernel::refusal::Refusal;
use charter_store::Txn;
use charter_tenancy::records::link::Link;
use charter_tenancy::secret::Plain;
use charter_tenancy::stored::{self, Versioned};

use crate::app::App;
use crate::request::HostRequest;
use crate::strangers::Attempt;

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

//! Double-entry accounts of the caller's scope. `credit` is the organization's own: money leaves it
//! by leave only, as what a [`Proposal`](crate::governance::Proposal) pays from.

use crate::bindings::charter::primitive::ledger::Normal;
use crate::failure::Result;
use crate::host::ledger as host;
use crate::time::Instant;

/// The organization's own account.
pub const CREDIT: &str = "credit";

/// The balance of an account, in micro-US-dollars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Balance {
    /// Posted.
    pub posted: i64,
    /// Set aside to come.
    pub pending_in: i64,
    /// Set aside to go.
    pub pending_out: i64,
    /// Posted without what is set aside to go.
    pub available: i64,
}

/// The name of this primitive's account of another user of the project: money goes there by
/// [`transfer`] or by leave, and leaves there by leave only. Unknown and foreign users are
/// `not_found`, revoked ones `state_conflict`.
pub fn of_user(user: &str, account: &str) -> String {
    format!("@{user}/{account}")
}

/// One side of a transfer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The transfer.
    pub id: String,
    /// When.
    pub at: Instant,
    /// Positive where the balance grew.
    pub amount: i64,
    /// The other account.
    pub counter_account: String,
    /// The entry's text.
    pub memo: String,
    /// The thing it refers to.
    pub reference: String,
}

/// Opens an account that owes (a balance that grows when it is credited) and never falls below
/// zero. Opening it again changes nothing.
pub fn open(account: &str) -> Result<()> {
    Ok(host::open(account, Normal::Credit, false)?)
}

/// Opens an account that says how much came from somewhere outside, and therefore may go negative:
/// its balance grows when it is debited. Only the primitive that bills has one, and moves money
/// from it into [`CREDIT`]; for any other it is `forbidden`.
pub fn open_source(account: &str) -> Result<()> {
    Ok(host::open(account, Normal::Debit, true)?)
}

/// Freezes an account, or lets it move again.
pub fn freeze(account: &str, frozen: bool) -> Result<()> {
    Ok(host::freeze(account, frozen)?)
}

/// The balance of an account.
pub fn balance(account: &str) -> Result<Balance> {
    let balance = host::balance_of(account)?;
    let (posted, pending_in) = (balance.posted, balance.pending_in);
    Ok(Balance {
        posted,
        pending_in,
        pending_out: balance.pending_out,
        available: balance.available,
    })
}

/// Moves money between two accounts with this request's commit; answers the transfer's id.
pub fn transfer(
    from: &str,
    to: &str,
    micro_usd: i64,
    memo: &str,
    reference: &str,
) -> Result<String> {
    Ok(host::transfer(from, to, micro_usd, memo, reference)?)
}

/// An account's entries, oldest first, and the position of the next page.
pub fn entries(
    account: &str,
    after: Option<&str>,
    limit: u32,
) -> Result<(Vec<Entry>, Option<String>)> {
    let (found, next) = host::entries(account, after, limit)?;
    let entries = found.into_iter().map(|entry| Entry {
        id: entry.id,
        at: Instant::from_ms(entry.at),
        amount: entry.amount,
        counter_account: entry.counter_account,
        memo: entry.memo,
        reference: entry.reference,
    });
    Ok((entries.collect(), next))
}

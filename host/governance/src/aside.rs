//! Money that is set aside to leave the accounts of a user that is no more.
//!
//! The host moves none of it: whose the money on an account is, the primitive knows that keeps it.
//! It is told of the end again once some came free, and what it has of the user stays until then.

use std::collections::BTreeMap;

use charter_kernel::governance::hold::accounts_space;
use charter_kernel::ledger::Account;
use charter_kernel::unit::{Key, Reach, Row};
use charter_store::{Order, Query, ReadError, Store};

/// Accounts of one read.
const PAGE: u32 = 200;

/// The amounts that are set aside to leave accounts within a reach, by the account's id.
///
/// # Errors
/// When the store cannot be asked.
pub async fn set_aside(store: &Store, reach: &Reach) -> Result<BTreeMap<String, i64>, ReadError> {
    let mut query = Query::all(reach, &accounts_space()).limit(PAGE).relax();
    query.order = Order::Oldest;
    let mut aside = BTreeMap::new();
    let read = |(key, row): (Key, Row)| {
        let account = serde_json::from_str::<Account>(&row.body).ok()?;
        let amount = account.balance().pending_out;
        (amount > 0).then_some((key.id, amount))
    };
    loop {
        let page = store.find(&query).await?;
        aside.extend(page.items.into_iter().filter_map(read));
        if page.next.is_none() {
            return Ok(aside);
        }
        query.after = page.next;
    }
}

//! Money on the accounts of a user that is no more, and what of it is set aside to leave them.
//!
//! The host moves none of it: whose the money on an account is, the primitive knows that keeps it.
//! It is told of the end again once some came free, or if it failed to end its work, and what it
//! has of the user stays until then.

use std::collections::{BTreeMap, BTreeSet};

use charter_kernel::governance::hold::accounts_space;
use charter_kernel::ledger::{Account, Balance};
use charter_kernel::unit::Reach;
use charter_store::{Order, Query, ReadError, Store};

/// Accounts of one read.
const PAGE: u32 = 200;

/// The amounts that are set aside to leave accounts within a reach, by the account's id.
///
/// # Errors
/// When the store cannot be asked.
pub async fn set_aside(store: &Store, reach: &Reach) -> Result<BTreeMap<String, i64>, ReadError> {
    let mut aside = BTreeMap::new();
    each_balance(store, reach, |id, balance| {
        if balance.pending_out > 0 {
            aside.insert(id, balance.pending_out);
        }
    })
    .await?;
    Ok(aside)
}

/// The primitives whose accounts within a reach hold money, or have some set aside to come or go:
/// an account's id begins with its primitive.
///
/// # Errors
/// When the store cannot be asked.
pub async fn holders(store: &Store, reach: &Reach) -> Result<BTreeSet<String>, ReadError> {
    let mut holders = BTreeSet::new();
    each_balance(store, reach, |id, balance| {
        let is_empty = (balance.posted, balance.pending_in, balance.pending_out) == (0, 0, 0);
        if let Some((primitive, _)) = id.split_once('.').filter(|_| !is_empty) {
            holders.insert(primitive.to_owned());
        }
    })
    .await?;
    Ok(holders)
}

/// Reads the balance of each account within a reach, by the account's id.
async fn each_balance(
    store: &Store,
    reach: &Reach,
    mut look: impl FnMut(String, Balance),
) -> Result<(), ReadError> {
    let mut query = Query::all(reach, &accounts_space()).limit(PAGE).relax();
    query.order = Order::Oldest;
    loop {
        let page = store.find(&query).await?;
        for (key, row) in page.items {
            if let Ok(account) = serde_json::from_str::<Account>(&row.body) {
                look(key.id, account.balance());
            }
        }
        if page.next.is_none() {
            return Ok(());
        }
        query.after = page.next;
    }
}

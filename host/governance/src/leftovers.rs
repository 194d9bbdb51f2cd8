//! Money on the accounts of a user or a project that is no more.
//!
//! The primitives that are told of the end take out the money that is free then. They leave what is
//! nobody's to take back: what was paid to somebody outside lies on such accounts too. So of what
//! is there later the host returns that money alone which was set aside at the end and came free
//! since. Knows no primitive, and no account but `credit` by its name.

use std::collections::BTreeMap;

use charter_kernel::governance::hold::{CREDIT, Pay, accounts_space, entries};
use charter_kernel::ledger::{Account, Phase};
use charter_kernel::unit::{Key, Reach, Row, Write};
use charter_store::{Order, Query, ReadError, Store};

/// Accounts of one read.
const PAGE: u32 = 200;
/// The text of the entries.
const MEMO: &str = "closed";

/// The accounts within a reach.
///
/// # Errors
/// When the store cannot be asked.
pub async fn accounts(store: &Store, reach: &Reach) -> Result<Vec<(Key, Account)>, ReadError> {
    let mut query = Query::all(reach, &accounts_space()).limit(PAGE).relax();
    query.order = Order::Oldest;
    let mut accounts = Vec::new();
    let read = |(key, row): (Key, Row)| {
        serde_json::from_str::<Account>(&row.body).ok().map(|account| (key, account))
    };
    loop {
        let page = store.find(&query).await?;
        accounts.extend(page.items.into_iter().filter_map(read));
        if page.next.is_none() {
            return Ok(accounts);
        }
        query.after = page.next;
    }
}

/// The amounts that are set aside to leave accounts within a reach, by the account's id.
///
/// # Errors
/// When the store cannot be asked.
pub async fn set_aside(store: &Store, reach: &Reach) -> Result<BTreeMap<String, i64>, ReadError> {
    let amounts = accounts(store, reach).await?.into_iter();
    let amounts = amounts.map(|(key, account)| (key.id, account.balance().pending_out));
    Ok(amounts.filter(|(_, amount)| *amount > 0).collect())
}

/// The payment of an amount from an account into the organization's `credit`; `id` is the
/// transfer's.
pub fn pay_back(organization: &str, from: Key, amount: i64, id: &str) -> Vec<Write> {
    let to = Key::new(&Reach::organization(organization), &accounts_space(), CREDIT);
    let mut writes = vec![
        Account::credit().open(&to),
        Write::Transfer { from: from.clone(), to: to.clone(), amount, phase: Phase::Post },
    ];
    writes.extend(entries(&Pay { from, to, memo: MEMO.into() }, amount, id, ""));
    writes
}

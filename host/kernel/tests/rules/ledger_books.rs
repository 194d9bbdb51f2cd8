//! Accounts: each phase on each kind of account, and sums that stay zero whatever is tried.

use charter_kernel::ledger::{Account, Balance, Denied, Normal, Phase, transfer};
use charter_kernel::unit::Write;
use proptest::prelude::*;

use crate::bed::account;

fn with(available: i64) -> Account {
    Account { credits: available, ..Account::credit() }
}

fn cash(posted: i64) -> Account {
    Account { debits: posted, ..Account::new(Normal::Debit, false) }
}

#[test]
fn a_new_account_is_empty_and_opened_where_there_is_none() {
    let account_row = Account::credit();
    assert_eq!(account_row, Account::new(Normal::Credit, false));
    assert_eq!(
        account_row.balance(),
        Balance { posted: 0, pending_in: 0, pending_out: 0, available: 0 }
    );
    match account_row.open(&account("ada")) {
        Write::Ensure { key, draft } => {
            assert_eq!(key, account("ada"));
            assert_eq!(serde_json::from_str::<Account>(&draft.body).unwrap(), account_row);
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_account_of_an_earlier_build_has_nothing_pending() {
    let row = r#"{"normal":"debit","debits":7,"credits":2}"#;
    let read: Account = serde_json::from_str(row).unwrap();
    assert_eq!(read, Account { debits: 7, credits: 2, ..Account::new(Normal::Debit, false) });
}

#[test]
fn each_side_grows_and_shrinks_as_its_kind_says() {
    let (mut from, mut to) = (cash(10), with(10));
    transfer(&mut from, &mut to, 4, Phase::Post).unwrap();
    assert_eq!((from.balance().posted, to.balance().posted), (14, 14), "both grow");
    transfer(&mut to, &mut from, 9, Phase::Post).unwrap();
    assert_eq!((from.balance().posted, to.balance().posted), (5, 5), "both shrink");
    let denied = Err(Denied::Overdrawn { debited: true, available: 5 });
    assert_eq!(transfer(&mut to, &mut from, 6, Phase::Post), denied);
    let (mut rich, mut poor) = (with(100), cash(3));
    let denied = Err(Denied::Overdrawn { debited: false, available: 3 });
    assert_eq!(transfer(&mut rich, &mut poor, 4, Phase::Reserve), denied);
}

#[test]
fn what_is_set_aside_is_pending_on_both_sides() {
    let (mut from, mut to) = (with(10), with(0));
    transfer(&mut from, &mut to, 6, Phase::Reserve).unwrap();
    assert_eq!(from.balance(), Balance { posted: 10, pending_in: 0, pending_out: 6, available: 4 });
    assert_eq!(to.balance(), Balance { posted: 0, pending_in: 6, pending_out: 0, available: 0 });
    let (mut debit, mut credit) = (cash(10), with(10));
    transfer(&mut credit, &mut debit, 6, Phase::Reserve).unwrap();
    assert_eq!(
        debit.balance(),
        Balance { posted: 10, pending_in: 0, pending_out: 6, available: 4 }
    );
    assert_eq!(credit.balance().pending_out, 6);
}

#[test]
fn a_settlement_happens_whatever_stands_in_its_way() {
    let (mut from, mut to) = (with(10), with(0));
    transfer(&mut from, &mut to, 10, Phase::Reserve).unwrap();
    (from.frozen, to.frozen) = (true, true);
    transfer(&mut from, &mut to, 15, Phase::Settle { reserved: 10 }).unwrap();
    assert_eq!((from.balance().available, to.balance().available), (-5, 15));
    transfer(&mut from, &mut to, 0, Phase::Void).unwrap();
    let frozen = Err(Denied::Frozen { debited: true });
    assert_eq!(transfer(&mut from, &mut to, 0, Phase::Reserve), frozen);
}

#[test]
fn the_debited_side_is_named_first() {
    let (mut from, mut to) =
        (Account { frozen: true, ..with(0) }, Account { frozen: true, ..with(0) });
    assert_eq!(transfer(&mut from, &mut to, 1, Phase::Post), Err(Denied::Frozen { debited: true }));
    from.frozen = false;
    let overdrawn = Err(Denied::Overdrawn { debited: true, available: 0 });
    assert_eq!(transfer(&mut from, &mut to, 1, Phase::Post), overdrawn);
    from.may_go_negative = true;
    assert_eq!(
        transfer(&mut from, &mut to, 1, Phase::Post),
        Err(Denied::Frozen { debited: false })
    );
}

#[test]
fn no_sum_leaves_its_range() {
    let full = || Account { debits: i64::MAX, may_go_negative: true, ..Account::credit() };
    let (mut from, mut to) = (full(), with(0));
    assert_eq!(transfer(&mut from, &mut to, 1, Phase::Post), Err(Denied::OutOfRange));
    let (mut from, mut to) = (with(0), Account { pending_credits: i64::MAX, ..with(0) });
    from.may_go_negative = true;
    assert_eq!(transfer(&mut from, &mut to, 1, Phase::Reserve), Err(Denied::OutOfRange));
    assert_eq!((from.debits, from.pending_debits), (0, 0), "neither side has changed");
    for phase in [Phase::Post, Phase::Reserve, Phase::Void, Phase::Settle { reserved: 0 }] {
        assert_eq!(transfer(&mut from, &mut to, -1, phase), Err(Denied::OutOfRange), "{phase:?}");
    }
    assert_eq!(full().balance().posted, -i64::MAX);
}

proptest! {
    /// Two accounts that nobody overdraws never have more posted and set aside than came in, whatever
    /// transfers are tried.
    #[test]
    fn nobody_gives_more_than_came_in(tries in prop::collection::vec((any::<bool>(), 0..40_i64, 0..3_u8), 0..60)) {
        let (mut ada, mut bob, total) = (with(50), with(50), 100);
        let mut aside: Vec<(bool, i64)> = Vec::new();
        for (forward, amount, what) in tries {
            let before = (ada, bob);
            let (forward, amount, phase) = match (what, aside.last().copied()) {
                (0, _) => (forward, amount, Phase::Post),
                (1, _) | (_, None) => (forward, amount, Phase::Reserve),
                (_, Some((forward, reserved))) => {
                    aside.pop();
                    if amount % 2 == 0 { (forward, reserved, Phase::Void) }
                    else { (forward, amount.min(reserved), Phase::Settle { reserved }) }
                }
            };
            let (from, to) = if forward { (&mut ada, &mut bob) } else { (&mut bob, &mut ada) };
            match transfer(from, to, amount, phase) {
                Ok(()) if phase == Phase::Reserve => aside.push((forward, amount)),
                Ok(()) => {}
                Err(denied) => {
                    let overdrawn = matches!(denied, Denied::Overdrawn { .. });
                    prop_assert!(overdrawn);
                    prop_assert_eq!((ada, bob), before);
                }
            }
            prop_assert_eq!(ada.balance().posted + bob.balance().posted, total);
            prop_assert_eq!(ada.balance().pending_in, bob.balance().pending_out);
            prop_assert!(ada.balance().available >= 0 && bob.balance().available >= 0);
        }
    }
}

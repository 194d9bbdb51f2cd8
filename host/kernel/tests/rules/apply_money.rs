//! Meters and accounts as rows of a unit: each refusal of money, by the row that it names.

use charter_kernel::calendar::Slot;
use charter_kernel::ledger::{Account, Normal, Phase};
use charter_kernel::meter::{Admission, Count, Meter, Tally};
use charter_kernel::unit::{Key, Refused, Write};

use crate::bed::{Database, NOW, account, book, insert, key, meter};

fn day(n: u8) -> Slot {
    Slot::new("day UTC", &format!("2026-11-0{n}"))
}

fn reserve(scope: &str, amount: i64, admission: Admission) -> Write {
    Write::Reserve { meter: meter(scope), slot: day(1), amount, admission }
}

fn tally(released: i64, spent: i64) -> Tally {
    Tally { released, spent, beyond: false, freezes: false, at: NOW }
}

fn metered(spent: i64) -> Database {
    Database::with(vec![book(&meter("user"), &Meter::new(day(1), spent))])
}

fn transfer(from: &str, to: &str, amount: i64, phase: Phase) -> Write {
    Write::Transfer { from: account(from), to: account(to), amount, phase }
}

/// An account of the deployment that pays out what it lacks, and two of users.
fn accounts() -> Database {
    Database::with(vec![
        book(&account("cash"), &Account::new(Normal::Debit, true)),
        book(&account("ada"), &Account::credit()),
        book(&account("bob"), &Account::credit()),
        transfer("cash", "ada", 100, Phase::Post),
    ])
}

fn is_not_addable(refused: Refused, key: &Key, field: &str) {
    assert_eq!(refused, Refused::NotAddable { key: key.clone(), field: field.into() });
}

#[test]
fn a_reservation_is_admitted_up_to_the_cap() {
    let mut database = metered(40);
    database.run(vec![reserve("user", 60, Admission::Within(100))]).unwrap();
    let count = Count { spent: 40, reserved: 60, ..Count::default() };
    assert_eq!(database.meter(&meter("user")).now(), count);
    let over = Refused::OverCap { meter: meter("user"), count, cap: 100 };
    assert_eq!(database.refuse(vec![reserve("user", 1, Admission::Within(100))]), over);
    let negative = database.refuse(vec![reserve("user", -1, Admission::Beyond(100))]);
    assert_eq!(negative, over);
}

#[test]
fn freezing_leaves_what_the_writes_before_it_moved() {
    for (before, frozen) in [(0, true), (30, true), (30, false)] {
        let mut database = accounts();
        let freeze = Write::Freeze { account: account("ada"), frozen };
        database.run(vec![transfer("ada", "bob", before, Phase::Post), freeze]).unwrap();
        let held =
            |database: &Database, name: &str| database.account(&account(name)).balance().posted;
        assert_eq!((held(&database, "ada"), held(&database, "bob")), (100 - before, before));
        assert_eq!(database.account(&account("ada")).frozen, frozen);
        if frozen {
            let refused = database.refuse(vec![transfer("ada", "bob", 1, Phase::Post)]);
            assert_eq!(refused, Refused::Frozen { key: account("ada") });
        }
    }
    let nobody = Write::Freeze { account: account("nobody"), frozen: true };
    assert_eq!(accounts().refuse(vec![nobody]), Refused::Missing { key: account("nobody") });
}

#[test]
fn a_meter_that_is_not_there_admits_nothing() {
    let mut database = Database::default();
    let refused = database.refuse(vec![reserve("user", 1, Admission::Within(10))]);
    assert_eq!(refused, Refused::Missing { key: meter("user") });
    let ended = Write::Tally { meter: meter("user"), slot: day(1), tally: tally(1, 1) };
    database.run(vec![ended]).unwrap();
    assert_eq!(database.rows.len(), 0, "what ends makes no meter");
}

#[test]
fn a_frozen_meter_and_another_window_are_told_apart() {
    let frozen = Meter { frozen: true, ..Meter::new(day(1), 0) };
    let mut database = Database::with(vec![
        book(&meter("frozen"), &frozen),
        book(&meter("later"), &Meter::new(day(2), 0)),
        book(&meter("week"), &Meter::new(Slot::new("week UTC", "2026-10-26"), 0)),
    ]);
    let refused = |database: &mut Database, scope| {
        database.refuse(vec![reserve(scope, 1, Admission::Within(10))])
    };
    assert_eq!(refused(&mut database, "frozen"), Refused::Frozen { key: meter("frozen") });
    assert_eq!(refused(&mut database, "later"), Refused::Moved { meter: meter("later") });
    assert_eq!(refused(&mut database, "week"), Refused::Moved { meter: meter("week") });
}

#[test]
fn an_end_counts_in_the_window_that_admitted_it() {
    let mut database = metered(0);
    database.run(vec![reserve("user", 30, Admission::Within(100))]).unwrap();
    let tomorrow = Write::Reserve {
        meter: meter("user"),
        slot: day(2),
        amount: 5,
        admission: Admission::Within(100),
    };
    database.run(vec![tomorrow]).unwrap();
    let end = Write::Tally { meter: meter("user"), slot: day(1), tally: tally(30, 25) };
    database.run(vec![end]).unwrap();
    let kept = database.meter(&meter("user"));
    assert_eq!((kept.now().spent, kept.now().reserved), (0, 5));
    assert_eq!(kept.counts.len(), 1, "the day before is over and holds nothing");
}

#[test]
fn a_meter_opens_with_what_was_spent_and_once() {
    let mut database = Database::default();
    let open = |spent| Write::Open { meter: meter("user"), slot: day(1), spent, since: None };
    database.run(vec![open(70), reserve("user", 30, Admission::Within(100))]).unwrap();
    database.run(vec![open(0)]).unwrap();
    let kept = database.meter(&meter("user"));
    assert_eq!((kept.now().spent, kept.now().reserved, kept.whole), (70, 30, true));
    assert_eq!(database.row(&meter("user")).version, 3);
}

#[test]
fn a_row_that_is_no_meter_refuses_like_a_sum_that_cannot_be_made() {
    let mut database = Database::with(vec![insert("odd", "{\"n\":1}")]);
    let (odd, slot) = (key("odd"), day(1));
    let writes = [
        Write::Reserve {
            meter: odd.clone(),
            slot: slot.clone(),
            amount: 1,
            admission: Admission::Beyond(1),
        },
        Write::Tally { meter: odd.clone(), slot: slot.clone(), tally: tally(0, 1) },
        Write::Open { meter: odd.clone(), slot, spent: 0, since: None },
    ];
    for write in writes {
        is_not_addable(database.refuse(vec![write]), &odd, "body");
    }
}

#[test]
fn money_moves_between_two_accounts_that_are_there() {
    let mut database = accounts();
    database.run(vec![transfer("ada", "bob", 30, Phase::Post)]).unwrap();
    let posted = |name| database.account(&account(name)).balance().posted;
    assert_eq!((posted("cash"), posted("ada"), posted("bob")), (100, 70, 30));
    for (from, to, missing) in [("nobody", "bob", "nobody"), ("ada", "nobody", "nobody")] {
        let refused = database.refuse(vec![transfer(from, to, 1, Phase::Post)]);
        assert_eq!(refused, Refused::Missing { key: account(missing) });
    }
}

#[test]
fn an_account_gives_what_is_available_and_is_named_otherwise() {
    let mut database = accounts();
    database.run(vec![transfer("ada", "bob", 60, Phase::Reserve)]).unwrap();
    let overdrawn = Refused::Overdrawn { account: account("ada"), available: 40 };
    assert_eq!(database.refuse(vec![transfer("ada", "bob", 41, Phase::Post)]), overdrawn);
    // Crediting the deployment's own cash takes from it, and it may go below zero.
    database.run(vec![transfer("ada", "cash", 40, Phase::Post)]).unwrap();
    let settle = transfer("ada", "bob", 55, Phase::Settle { reserved: 60 });
    database.run(vec![settle]).unwrap();
    let balance = database.account(&account("ada")).balance();
    assert_eq!((balance.posted, balance.pending_out, balance.available), (5, 0, 5));
}

#[test]
fn a_void_gives_back_what_was_set_aside() {
    let mut database = accounts();
    let before = database.account(&account("ada"));
    database.run(vec![transfer("ada", "bob", 60, Phase::Reserve)]).unwrap();
    assert_eq!(database.account(&account("bob")).balance().pending_in, 60);
    database.run(vec![transfer("ada", "bob", 60, Phase::Void)]).unwrap();
    assert_eq!(database.account(&account("ada")), before);
    assert_eq!(database.account(&account("bob")), Account::credit());
}

#[test]
fn a_frozen_account_is_named_whichever_side_it_is() {
    for (from, to) in [("ada", "ice"), ("ice", "ada")] {
        let mut database = accounts();
        let frozen = Account { frozen: true, credits: 5, ..Account::credit() };
        database.run(vec![book(&account("ice"), &frozen)]).unwrap();
        let refused = database.refuse(vec![transfer(from, to, 1, Phase::Reserve)]);
        assert_eq!(refused, Refused::Frozen { key: account("ice") }, "{from} to {to}");
    }
}

#[test]
fn no_transfer_goes_to_its_own_account_or_backwards() {
    let mut database = accounts();
    let refused = database.refuse(vec![transfer("ada", "ada", 1, Phase::Post)]);
    is_not_addable(refused, &account("ada"), "account");
    let refused = database.refuse(vec![transfer("ada", "bob", -1, Phase::Post)]);
    is_not_addable(refused, &account("ada"), "amount");
}

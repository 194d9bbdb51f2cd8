//! The rows that a unit touches, and how each is held: what is not named here is not read.

use charter_kernel::apply::{RowLock, Touches, Wanted, facts_log, meeting_rows};
use charter_kernel::calendar::Slot;
use charter_kernel::ledger::Phase;
use charter_kernel::meter::{Admission, Tally};
use charter_kernel::unit::{Claim, Draft, Fact, FactKind, Guard, Key, LogKey, Reach, Unit, Write};
use serde_json::json;

use crate::bed::{NOW, account, draft, insert, key, meter, reach, space, take, unit};

fn touches(unit: &Unit) -> Touches {
    let mut touches = Touches::default();
    touches.add(unit, true);
    touches
}

fn rows(unit: &Unit) -> Vec<(String, RowLock)> {
    touches(unit).rows.into_iter().map(|(key, hold)| (key.id, hold)).collect()
}

fn guarded(guard: Guard) -> Unit {
    Unit { guards: vec![guard], ..unit(Vec::new()) }
}

#[test]
fn what_many_are_admitted_under_is_shared_and_what_was_read_for_oneself_is_not() {
    let key = || key("a");
    let entry = Guard::Entry { key: key(), field: "f".into(), value: "v".into() };
    let table = [
        (entry, RowLock::Shared),
        (Guard::Unchanged { key: key(), version: 1 }, RowLock::Shared),
        (Guard::Inserted { key: key(), at: NOW }, RowLock::Shared),
        (Guard::Version { key: key(), version: None }, RowLock::Alone),
        (Guard::Stamp { key: key(), stamp: 1 }, RowLock::Alone),
        (Guard::Lease { key: key(), token: "t".into() }, RowLock::Alone),
    ];
    for (guard, hold) in table {
        let unit = guarded(guard.clone());
        assert_eq!(rows(&unit), [("a".to_owned(), hold)], "{guard:?}");
        assert!(touches(&unit).spaces.is_empty(), "{guard:?} searches nothing");
    }
}

#[test]
fn a_row_that_is_read_and_written_is_held_alone_in_either_order() {
    let shared = Guard::Unchanged { key: key("a"), version: 1 };
    let both = Unit { guards: vec![shared.clone()], ..unit(vec![insert("a", "{}")]) };
    assert_eq!(rows(&both), [("a".to_owned(), RowLock::Alone)]);
    let mut later = touches(&unit(vec![insert("a", "{}")]));
    later.add(&guarded(shared), true);
    assert_eq!(later.rows[&key("a")], RowLock::Alone);
}

#[test]
fn searches_and_claims_touch_spaces_and_claims() {
    let revision = Guard::Revision { reach: reach(), space: space(), revision: 1 };
    let searched = touches(&guarded(revision));
    assert!(searched.rows.is_empty() && searched.spaces.contains(&(reach(), space())));
    let name = Claim::name("mailbox", "ada");
    let asked = touches(&guarded(Guard::Claim { claim: name.clone(), holder: None }));
    assert!(asked.claims.contains(&name) && asked.rows.is_empty());
    let claim = Write::Claim { claim: name.clone(), holder: key("a") };
    let claimed = touches(&unit(vec![claim]));
    assert!(claimed.claims.contains(&name) && claimed.rows.contains_key(&key("a")));
}

#[test]
fn each_write_holds_its_rows_alone_and_moves_its_space() {
    let (at, token) = (|| key("a"), || "t".to_owned());
    let writes = [
        insert("a", "{}"),
        Write::Replace { key: at(), draft: Draft::default(), expected: None },
        Write::Put { key: at(), draft: Draft::default() },
        Write::Ensure { key: at(), draft: Draft::default() },
        Write::Remove { key: at(), expected: None },
        Write::Add { key: at(), field: "n".into(), amount: 1 },
        Write::Extend { key: at(), token: token(), until: NOW },
        Write::Release { key: at(), token: token(), due_at: NOW, undo: false },
        Write::Settle { key: at(), token: token() },
        Write::Defer { key: at(), due_at: NOW },
        Write::Unclaim { claim: Claim::name("n", "a"), holder: at() },
    ];
    for write in writes {
        let unit = unit(vec![write.clone()]);
        assert_eq!(rows(&unit), [("a".to_owned(), RowLock::Alone)], "{write:?}");
        assert_eq!(touches(&unit).spaces.len(), 1, "{write:?}");
    }
}

#[test]
fn a_unique_value_is_looked_up_with_its_row() {
    let unique = vec![("slug".to_owned(), "x".to_owned())];
    let write = Write::Put { key: key("a"), draft: Draft { unique, ..draft("{}") } };
    let claim = Claim::unique(&reach(), &space(), "slug", "x");
    assert!(touches(&unit(vec![write])).claims.contains(&claim));
}

#[test]
fn the_books_have_no_revisions() {
    let tally = Tally { released: 0, spent: 0, beyond: false, freezes: false, at: NOW };
    let slot = Slot::new("day UTC", "2026-11-01");
    let reserve = Write::Reserve {
        meter: meter("user"),
        slot: slot.clone(),
        amount: 1,
        admission: Admission::Beyond(1),
    };
    let writes = [
        reserve,
        Write::Tally { meter: meter("user"), slot: slot.clone(), tally },
        Write::Open { meter: meter("user"), slot, spent: 0, since: None },
    ];
    for write in writes {
        let touched = touches(&unit(vec![write.clone()]));
        assert_eq!(touched.rows.keys().collect::<Vec<_>>(), [&meter("user")], "{write:?}");
        assert!(touched.spaces.is_empty(), "{write:?}");
    }
    let transfer =
        Write::Transfer { from: account("a"), to: account("b"), amount: 1, phase: Phase::Post };
    let touched = touches(&unit(vec![transfer]));
    assert_eq!(touched.rows.len(), 2);
    assert!(touched.rows.values().all(|hold| *hold == RowLock::Alone) && touched.spaces.is_empty());
}

#[test]
fn a_take_asks_for_as_many_rows_as_it_has_tokens() {
    let mut asked = touches(&take("g", NOW, &["1", "2"]));
    let wanted = |reach: Option<Reach>| Wanted { reach, space: space(), group: "g".into() };
    assert_eq!(asked.groups[&wanted(Some(reach()))], 2);
    assert!(asked.spaces.contains(&(reach(), space())));
    asked.add(&take("g", NOW, &["3"]), true);
    assert_eq!(asked.groups[&wanted(Some(reach()))], 3, "all of a batch are asked for at once");
    let mut anywhere = take("g", NOW, &["1"]);
    anywhere.takes[0].reach = None;
    let asked = touches(&anywhere);
    assert_eq!((asked.groups[&wanted(None)], asked.spaces.len()), (1, 0));
}

#[test]
fn a_log_is_touched_by_what_is_written_to_it_and_facts_only_where_they_are_numbered() {
    let log = LogKey { reach: reach(), log: "l".into() };
    let append = Write::Append { log: log.clone(), name: "e".into(), payload: "{}".into() };
    for write in [append, Write::Close { log: log.clone() }] {
        let logs: Vec<LogKey> = touches(&unit(vec![write])).logs.into_iter().collect();
        assert_eq!(logs, std::slice::from_ref(&log));
    }
    let fact = Fact::event("f".into(), "o", NOW, "e", &json!({}));
    let told = Unit { facts: vec![fact], ..unit(Vec::new()) };
    assert!(touches(&told).logs.contains(&facts_log("o", FactKind::Event)));
    let mut unnumbered = Touches::default();
    unnumbered.add(&told, false);
    assert!(unnumbered.logs.is_empty());
}

#[test]
fn units_meet_at_shared_rows_of_money_alone() {
    let shared = Key { reach: Reach::organization("o"), ..meter("organization") };
    let slot = || Slot::new("day UTC", "2026-11-01");
    let tally = Tally { released: 0, spent: 1, beyond: false, freezes: false, at: NOW };
    let met = |write: Write| meeting_rows(&unit(vec![write])).cloned().collect::<Vec<_>>();
    let reserve = |meter: Key| Write::Reserve {
        meter,
        slot: slot(),
        amount: 1,
        admission: Admission::Beyond(1),
    };
    let own = std::slice::from_ref(&shared);
    assert_eq!(met(reserve(shared.clone())), own);
    assert_eq!(met(reserve(meter("user"))), [], "a user's own meter is nobody else's");
    assert_eq!(
        met(Write::Open { meter: shared.clone(), slot: slot(), spent: 0, since: None }),
        own
    );
    let end = |slot| Write::Tally { meter: shared.clone(), slot, tally };
    assert_eq!(met(end(slot())), own);
    assert_eq!(met(end(Slot::without_cap())), []);
    let (from, to) = (account("ada"), Key { reach: Reach::organization("o"), ..account("bob") });
    let transfer = Write::Transfer { from, to: to.clone(), amount: 1, phase: Phase::Post };
    assert_eq!(met(transfer), [to]);
    assert_eq!(met(insert("a", "{}")), []);
}

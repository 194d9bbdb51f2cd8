//! A batch as the store meets it: rows that it has prefetched, and the difference that the batch
//! makes to them.

use charter_kernel::apply::{
    Changes, ClaimChange, Head, LogChange, NewEntry, NewFact, RowChange, SpaceChange, State, apply,
    facts_log,
};
use charter_kernel::calendar::Slot;
use charter_kernel::meter::Tally;
use charter_kernel::unit::{Claim, Fact, FactKind, Guard, Key, Reach, Space, Take, Unit, Write};

use crate::bed::{Database, NOW, insert, key, leased, put, reach, space, take, unit};

/// A batch over the rows of a database, and the rest absent.
fn prefetched(database: &Database, absent: &[&str]) -> State {
    let mut state = State::new(true);
    for (key, stored) in &database.rows {
        state.know_row(key.clone(), Some(stored.clone()));
    }
    absent.iter().for_each(|id| state.know_row(key(id), None));
    for (claim, holder) in &database.claims {
        state.know_claim(claim.clone(), Some(holder.clone()));
    }
    for ((reach, space), revision) in &database.spaces {
        state.know_space(reach.clone(), space.clone(), Some(*revision));
    }
    state
}

fn name(value: &str) -> Claim {
    Claim::name("mailbox", value)
}

#[test]
fn what_was_prefetched_is_known_whether_it_is_there_or_not() {
    let state = prefetched(&Database::with(vec![insert("a", "{}")]), &["b"]);
    let known = ["a", "b", "c"].map(|id| state.knows_row(&key(id)));
    assert_eq!(known, [true, true, false]);
    assert!(state.knows_space(&reach(), &space()));
    assert!(!state.knows_space(&Reach::user("other"), &space()));
}

#[test]
fn rows_that_are_passed_over_are_known_and_not_handed_out() {
    let writes = vec![leased("a", "g", NOW), leased("b", "g", NOW), leased("c", "other", NOW)];
    let mut state = prefetched(&Database::with(writes), &[]);
    assert_eq!(state.group(&space(), "g").collect::<Vec<_>>(), [&key("a"), &key("b")]);
    state.pass_over(|of| *of == key("a"));
    assert_eq!(state.group(&space(), "g").collect::<Vec<_>>(), [&key("b")]);
    assert!(state.knows_row(&key("a")));
}

#[test]
fn a_batch_that_changes_anything_is_not_empty() {
    let state = State::new(true);
    let none = || state.changes();
    assert!(none().is_empty());
    let (at, of, log) = (key("a"), name("ada"), facts_log("o", FactKind::Event));
    let row = RowChange { key: &at, before: None, after: None };
    let claim = ClaimChange { claim: &of, before: None, after: None };
    let space = SpaceChange { reach: &at.reach, space: &at.space, before: None, after: 1 };
    let head = LogChange { log: &log, before: None, after: Head::default() };
    let entry =
        NewEntry { log: log.clone(), sequence: 1, at: NOW, name: "n".into(), payload: "{}".into() };
    let event = Fact::event("f".into(), "o", NOW, "n", &serde_json::json!({}));
    let fact = NewFact { fact: event, sequence: None };
    for changes in [
        Changes { rows: vec![row], ..none() },
        Changes { claims: vec![claim], ..none() },
        Changes { spaces: vec![space], ..none() },
        Changes { logs: vec![head], ..none() },
        Changes { entries: std::slice::from_ref(&entry), ..none() },
        Changes { facts: std::slice::from_ref(&fact), ..none() },
    ] {
        assert!(!changes.is_empty(), "{changes:?}");
    }
}

#[test]
fn what_was_relied_on_being_absent_is_told_unless_its_write_tells() {
    let absent = |id: &str| Guard::Version { key: key(id), version: None };
    let relying = |id: &str, write| Unit { guards: vec![absent(id)], ..unit(vec![write]) };
    let mut database = Database::with(vec![insert("old", "{}")]);
    let told = |database: &Database, units: &[Unit]| {
        let mut state = prefetched(database, &["x", "y"]);
        units.iter().for_each(|unit| drop(apply(&mut state, unit, NOW).unwrap()));
        let ids = state.changes().absent_rows.into_iter().map(|key| key.id.clone());
        ids.collect::<Vec<_>>()
    };
    assert_eq!(told(&database, &[relying("x", put("y", "{}"))]), ["x"]);
    assert_eq!(told(&database, &[relying("x", put("x", "{}"))]), Vec::<String>::new());
    // An amount that no meter counts relies on its absence, too.
    let tally = Tally { released: 0, spent: 1, beyond: false, freezes: false, at: NOW };
    let slot = Slot::without_cap();
    let spent = Write::Tally { meter: key("x"), slot, tally };
    assert_eq!(told(&database, &[unit(vec![spent])]), ["x"]);
    let gone = unit(vec![Write::Remove { key: key("old"), expected: None }]);
    assert_eq!(told(&database, &[gone, relying("old", put("y", "{}"))]), Vec::<String>::new());
    // Names, as rows.
    let claim = |value: &str| Write::Claim { claim: name(value), holder: key("old") };
    let unclaim = Write::Unclaim { claim: name("bob"), holder: key("old") };
    let free = |value: &str| Guard::Claim { claim: name(value), holder: None };
    let relying = |value: &str, write| Unit { guards: vec![free(value)], ..unit(vec![write]) };
    database.run(vec![claim("bob")]).unwrap();
    let told = |units: &[Unit]| {
        let mut state = prefetched(&database, &[]);
        state.know_claim(name("ada"), None);
        units.iter().for_each(|unit| drop(apply(&mut state, unit, NOW).unwrap()));
        state.changes().absent_claims.into_iter().cloned().collect::<Vec<_>>()
    };
    assert_eq!(told(&[relying("ada", put("old", "2"))]), [name("ada")]);
    assert_eq!(told(&[relying("ada", claim("ada"))]), []);
    assert_eq!(told(&[unit(vec![unclaim]), relying("bob", put("old", "2"))]), []);
}

#[test]
fn a_take_sees_what_its_own_unit_has_leased_in_that_group_and_space() {
    let mut database = Database::default();
    let elsewhere = Key::new(&reach(), &Space::of("shelf", "films"), "c");
    let Write::Insert { draft, .. } = leased("c", "g", NOW) else { unreachable!() };
    let writes = vec![
        leased("a", "g", NOW),
        leased("b", "other", NOW),
        Write::Insert { key: elsewhere, draft },
    ];
    let takes: Vec<Take> = take("g", NOW.plus_ms(9), &["t1", "t2", "t3"]).takes;
    let taken = database.commit(Unit { takes, ..unit(writes) }).unwrap().taken.remove(0);
    assert_eq!(taken.iter().map(|taken| taken.key.clone()).collect::<Vec<_>>(), [key("a")]);
}

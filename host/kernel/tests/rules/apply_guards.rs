//! Each guard of a unit: kept while what was read is as it was, and broken otherwise.

use charter_kernel::unit::{Claim, Draft, Guard, Refused, Rejection, Unit, Write};

use crate::bed::{Database, NOW, draft, insert, key, leased, put, reach, space, take, unit};

fn conflict(id: &str) -> Result<(), Rejection> {
    Err(Rejection::Conflict { keys: vec![key(id)] })
}

fn database() -> Database {
    let entry = Draft { index: vec![("status".into(), "active".into())], ..draft("{}") };
    let mut database =
        Database::with(vec![insert("a", "{}"), Write::Insert { key: key("user"), draft: entry }]);
    database.run(vec![put("a", "{\"n\":1}")]).unwrap();
    database
}

#[test]
fn a_version_is_the_one_that_was_read() {
    let database = database();
    let guard = |id: &str, version| Guard::Version { key: key(id), version };
    assert_eq!(database.admits(guard("a", Some(2))), Ok(()));
    assert_eq!(database.admits(guard("a", Some(1))), conflict("a"));
    assert_eq!(database.admits(guard("a", None)), conflict("a"));
    assert_eq!(database.admits(guard("b", None)), Ok(()));
    assert_eq!(database.admits(guard("b", Some(1))), conflict("b"));
}

#[test]
fn a_row_that_others_hold_too_is_unchanged_or_in_conflict() {
    let database = database();
    let guard = |id: &str, version| Guard::Unchanged { key: key(id), version };
    assert_eq!(database.admits(guard("a", 2)), Ok(()));
    assert_eq!(database.admits(guard("a", 1)), conflict("a"));
    assert_eq!(database.admits(guard("b", 1)), conflict("b"));
}

#[test]
fn a_row_that_was_removed_and_inserted_again_is_another_whatever_its_version() {
    let mut database = database();
    let guard = |id: &str| Guard::Inserted { key: key(id), at: NOW };
    database.run(vec![put("a", "{\"n\":2}")]).unwrap();
    assert_eq!(database.admits(guard("a")), Ok(()), "a change makes it no other");
    database.run(vec![Write::Remove { key: key("a"), expected: None }]).unwrap();
    assert_eq!(database.admits(guard("a")), conflict("a"));
    let at = Some(NOW.plus_ms(-1));
    database.commit(Unit { at, ..unit(vec![insert("a", "{}")]) }).unwrap();
    assert_eq!(database.admits(guard("a")), conflict("a"));
}

#[test]
fn a_stamp_tells_a_row_from_one_that_was_made_anew_under_its_key() {
    let mut database = database();
    let stamp = database.rows[&key("a")].stamp;
    let guard = || Guard::Stamp { key: key("a"), stamp };
    assert_eq!(database.admits(guard()), Ok(()));
    database.run(vec![Write::Remove { key: key("a"), expected: None }]).unwrap();
    assert_eq!(database.admits(guard()), conflict("a"));
    database.run(vec![insert("a", "{}"), put("a", "{\"n\":1}")]).unwrap();
    assert_eq!(database.row(&key("a")).version, 2, "the version is the same again");
    assert_eq!(database.admits(guard()), conflict("a"));
}

#[test]
fn a_revision_is_the_one_of_the_whole_space() {
    let mut database = database();
    let guard = |revision| Guard::Revision { reach: reach(), space: space(), revision };
    let found = database.spaces[&(reach(), space())];
    assert_eq!(database.admits(guard(found)), Ok(()));
    database.run(vec![insert("other", "{}")]).unwrap();
    let whole = Rejection::Conflict { keys: vec![key("")] };
    assert_eq!(database.admits(guard(found)), Err(whole));
}

#[test]
fn a_space_that_was_searched_and_empty_conflicts_with_its_first_row() {
    let mut database = Database::default();
    let searched = |id: &str| Unit {
        guards: vec![Guard::Revision { reach: reach(), space: space(), revision: 0 }],
        ..unit(vec![insert(id, "{}")])
    };
    let answers = database.batch(&[searched("a"), searched("b")]);
    assert!(answers[0].is_ok());
    assert_eq!(answers[1], Err(Rejection::Conflict { keys: vec![key("")] }));
}

#[test]
fn a_claim_is_held_by_the_one_that_was_read_or_by_nobody() {
    let name = Claim::name("mailbox", "ada");
    let holder = |id: Option<&str>| Guard::Claim {
        claim: Claim::name("mailbox", "ada"),
        holder: id.map(str::to_owned),
    };
    let free = database();
    assert_eq!(free.admits(holder(None)), Ok(()));
    assert_eq!(free.admits(holder(Some("a"))), Err(Rejection::Conflict { keys: Vec::new() }));
    let mut taken = database();
    taken.run(vec![Write::Claim { claim: name, holder: key("a") }]).unwrap();
    assert_eq!(taken.admits(holder(Some("a"))), Ok(()));
    assert_eq!(taken.admits(holder(Some("b"))), Err(Rejection::Conflict { keys: Vec::new() }));
    assert_eq!(taken.admits(holder(None)), Err(Rejection::Conflict { keys: Vec::new() }));
}

#[test]
fn an_entry_that_is_gone_refuses_instead_of_running_again() {
    let database = database();
    let guard = |id: &str, value: &str| Guard::Entry {
        key: key(id),
        field: "status".into(),
        value: value.into(),
    };
    assert_eq!(database.admits(guard("user", "active")), Ok(()));
    for (id, value) in [("user", "revoked"), ("a", "active"), ("absent", "active")] {
        let inactive = Refused::Inactive { key: key(id), field: "status".into() };
        assert_eq!(database.admits(guard(id, value)), Err(inactive.into()), "{id} {value}");
    }
}

#[test]
fn a_lease_is_fenced_by_its_token() {
    let mut database = Database::with(vec![leased("job", "g", NOW)]);
    database.commit(take("g", NOW.plus_ms(1_000), &["t"])).unwrap();
    let guard = |id: &str, token: &str| Guard::Lease { key: key(id), token: token.into() };
    assert_eq!(database.admits(guard("job", "t")), Ok(()));
    for (id, token) in [("job", "other"), ("job", ""), ("absent", "t")] {
        let lost = Refused::LeaseLost { key: key(id) };
        assert_eq!(database.admits(guard(id, token)), Err(lost.into()), "{id} {token}");
    }
}

#[test]
fn a_refusal_comes_before_a_conflict_and_all_conflicts_are_named() {
    let database = database();
    let stale = |id: &str| Guard::Version { key: key(id), version: Some(9) };
    let revoked =
        Guard::Entry { key: key("user"), field: "status".into(), value: "revoked".into() };
    let both = Unit { guards: vec![stale("a"), revoked], ..unit(Vec::new()) };
    let inactive = Refused::Inactive { key: key("user"), field: "status".into() };
    assert_eq!(database.clone().commit(both), Err(inactive.into()));
    let two = Unit { guards: vec![stale("user"), stale("a"), stale("a")], ..unit(Vec::new()) };
    let conflict = Rejection::Conflict { keys: vec![key("a"), key("user")] };
    assert_eq!(database.clone().commit(two), Err(conflict));
}

#[test]
fn a_guard_sees_what_the_units_before_it_in_the_batch_have_done() {
    let mut database = database();
    let replace = |version| Unit {
        guards: vec![Guard::Version { key: key("a"), version: Some(version) }],
        ..unit(vec![put("a", "{}")])
    };
    let answers = database.batch(&[replace(2), replace(2), replace(3)]);
    let admitted: Vec<bool> = answers.iter().map(Result::is_ok).collect();
    assert_eq!(admitted, [true, false, true]);
    assert_eq!(database.row(&key("a")).version, 4);
}

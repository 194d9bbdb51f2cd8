//! Leases: handed out when due, to one holder, who proves it by the token.

use charter_kernel::time::Instant;
use charter_kernel::unit::{Draft, Lease, Refused, Taken, Write};

use crate::bed::{Database, NOW, draft, insert, key, leased, take};

const LATER: Instant = Instant(NOW.0 + 60_000);

fn hand_out(database: &mut Database, tokens: &[&str]) -> Vec<Taken> {
    database.commit(take("g", LATER, tokens)).unwrap().taken.remove(0)
}

fn ids(taken: &[Taken]) -> Vec<&str> {
    taken.iter().map(|taken| taken.key.id.as_str()).collect()
}

fn lease(database: &Database, id: &str) -> Lease {
    database.row(&key(id)).lease.clone().unwrap()
}

fn lost(id: &str) -> Refused {
    Refused::LeaseLost { key: key(id) }
}

#[test]
fn rows_are_handed_out_when_due_earliest_first_and_no_more_than_asked() {
    let rows = [("late", NOW.plus_ms(1)), ("b", NOW), ("a", NOW), ("old", NOW.plus_ms(-9))];
    let mut database = Database::with(rows.iter().map(|(id, at)| leased(id, "g", *at)).collect());
    let taken = hand_out(&mut database, &["t1", "t2"]);
    assert_eq!(ids(&taken), ["old", "a"]);
    assert_eq!((taken[0].token.as_str(), taken[0].due_at), ("t1", NOW.plus_ms(-9)));
    let held = Lease { group: "g".into(), due_at: LATER, token: Some("t1".into()), count: 1 };
    assert_eq!((lease(&database, "old"), taken[0].row.lease.clone()), (held.clone(), Some(held)));
    assert_eq!(ids(&hand_out(&mut database, &["t3", "t4"])), ["b"], "the other is not due yet");
}

#[test]
fn a_group_and_a_reach_are_asked_apart() {
    let mut database = Database::with(vec![leased("a", "g", NOW), leased("b", "other", NOW)]);
    assert_eq!(ids(&hand_out(&mut database, &["t1", "t2"])), ["a"]);
    let mut everywhere = take("other", LATER, &["t"]);
    everywhere.takes[0].reach = None;
    let mut elsewhere = take("other", LATER, &["t"]);
    elsewhere.takes[0].reach = Some(charter_kernel::unit::Reach::user("other"));
    assert_eq!(database.clone().commit(elsewhere).unwrap().taken, [Vec::new()]);
    assert_eq!(ids(&database.commit(everywhere).unwrap().taken[0]), ["b"]);
}

#[test]
fn a_lease_that_has_ended_goes_to_the_next_with_its_count() {
    let mut database = Database::with(vec![leased("a", "g", NOW)]);
    database.commit(take("g", NOW.plus_ms(-5), &["t1"])).unwrap();
    assert_eq!(lease(&database, "a").due_at, NOW.plus_ms(1), "it keeps the row from this batch");
    let release = Write::Release { key: key("a"), token: "t1".into(), due_at: NOW, undo: false };
    database.run(vec![release]).unwrap();
    hand_out(&mut database, &["t2"]);
    assert_eq!((lease(&database, "a").count, lease(&database, "a").token), (2, Some("t2".into())));
}

#[test]
fn the_holder_extends_releases_and_settles_and_nobody_else() {
    let mut database = Database::with(vec![leased("a", "g", NOW), insert("plain", "{}")]);
    hand_out(&mut database, &["t"]);
    let extend = |id: &str, token: &str| Write::Extend {
        key: key(id),
        token: token.into(),
        until: LATER.plus_ms(1),
    };
    let settle = |id: &str, token: &str| Write::Settle { key: key(id), token: token.into() };
    let release = |id: &str, token: &str| Write::Release {
        key: key(id),
        token: token.into(),
        due_at: NOW,
        undo: false,
    };
    for (id, token) in [("a", "x"), ("absent", "t"), ("plain", "t")] {
        assert_eq!(database.refuse(vec![extend(id, token)]), lost(id));
        assert_eq!(database.refuse(vec![settle(id, token)]), lost(id));
        assert_eq!(database.refuse(vec![release(id, token)]), lost(id));
    }
    database.run(vec![extend("a", "t")]).unwrap();
    assert_eq!(lease(&database, "a").due_at, LATER.plus_ms(1));
    database.run(vec![settle("a", "t")]).unwrap();
    assert!(!database.rows.contains_key(&key("a")));
}

#[test]
fn a_release_keeps_the_count_unless_it_undoes_the_hand_out() {
    for (undo, count) in [(false, 1), (true, 0)] {
        let mut database = Database::with(vec![leased("a", "g", NOW)]);
        hand_out(&mut database, &["t"]);
        let release = Write::Release { key: key("a"), token: "t".into(), due_at: LATER, undo };
        database.run(vec![release.clone()]).unwrap();
        let free = Lease { group: "g".into(), due_at: LATER, token: None, count };
        assert_eq!(lease(&database, "a"), free, "undo: {undo}");
        assert_eq!(database.refuse(vec![release]), lost("a"));
    }
}

#[test]
fn a_row_is_put_off_unless_somebody_holds_it() {
    let mut database = Database::with(vec![leased("a", "g", NOW), insert("plain", "{}")]);
    let defer = |id: &str| Write::Defer { key: key(id), due_at: LATER };
    database.run(vec![defer("a")]).unwrap();
    assert_eq!(hand_out(&mut database, &["t"]), []);
    assert_eq!(database.refuse(vec![defer("plain")]), lost("plain"));
    assert_eq!(database.refuse(vec![defer("absent")]), Refused::Missing { key: key("absent") });
    database.run(vec![Write::Defer { key: key("a"), due_at: NOW }]).unwrap();
    hand_out(&mut database, &["t"]);
    assert_eq!(database.refuse(vec![defer("a")]), lost("a"));
}

#[test]
fn a_lease_that_is_over_does_not_keep_a_row_from_being_put_off() {
    let mut database = Database::with(vec![leased("a", "g", NOW)]);
    hand_out(&mut database, &["t"]);
    let ended = Write::Extend { key: key("a"), token: "t".into(), until: NOW };
    database.run(vec![ended]).unwrap();
    database.run(vec![Write::Defer { key: key("a"), due_at: LATER }]).unwrap();
    assert_eq!((lease(&database, "a").token, lease(&database, "a").due_at), (None, LATER));
}

#[test]
fn a_replace_keeps_moves_or_ends_a_lease() {
    let with = |lease: Option<(&str, Instant)>, unleased| Write::Replace {
        key: key("a"),
        draft: Draft {
            lease: lease.map(|(group, at)| (group.to_owned(), at)),
            unleased,
            ..draft("{}")
        },
        expected: None,
    };
    let fresh = || Database::with(vec![leased("a", "g", NOW)]);
    let mut database = fresh();
    database.run(vec![with(None, false)]).unwrap();
    assert_eq!(lease(&database, "a").due_at, NOW, "nothing was said of it");
    database.run(vec![with(Some(("h", LATER)), false)]).unwrap();
    let moved = Lease { group: "h".into(), due_at: LATER, token: None, count: 0 };
    assert_eq!(lease(&database, "a"), moved);
    database.run(vec![with(None, true)]).unwrap();
    assert_eq!(database.row(&key("a")).lease, None);

    let mut held = fresh();
    hand_out(&mut held, &["t"]);
    held.run(vec![with(Some(("h", NOW)), false)]).unwrap();
    let kept = Lease { group: "h".into(), due_at: LATER, token: Some("t".into()), count: 1 };
    assert_eq!(lease(&held, "a"), kept, "its holder is not robbed of it");

    let mut over = fresh();
    hand_out(&mut over, &["t"]);
    over.run(vec![Write::Extend { key: key("a"), token: "t".into(), until: NOW }]).unwrap();
    over.run(vec![with(Some(("g", LATER)), false)]).unwrap();
    let anew = Lease { group: "g".into(), due_at: LATER, token: None, count: 1 };
    assert_eq!(lease(&over, "a"), anew);
}

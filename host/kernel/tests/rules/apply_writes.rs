//! Each write of rows: what it makes of a row, and the rule that refuses it.

use charter_kernel::time::Instant;
use charter_kernel::unit::{Draft, Refused, Unit, Write};

use crate::bed::{Database, NOW, draft, insert, key, put, unit};

fn replace(id: &str, body: &str, expected: Option<u64>) -> Write {
    Write::Replace { key: key(id), draft: draft(body), expected }
}

fn remove(id: &str, expected: Option<u64>) -> Write {
    Write::Remove { key: key(id), expected }
}

#[test]
fn an_insert_makes_version_one_and_never_a_second_row() {
    let mut database = Database::default();
    let applied = database.run(vec![insert("a", "{\"n\":1}")]).unwrap();
    assert_eq!(applied.versions, [(key("a"), 1)]);
    let row = database.row(&key("a")).clone();
    assert_eq!((row.created_at, row.updated_at, row.user), (NOW, NOW, None));
    assert_eq!(database.refuse(vec![insert("a", "{}")]), Refused::Exists { key: key("a") });
    assert_eq!(
        database.refuse(vec![insert("b", "{}"), insert("b", "{}")]),
        Refused::Exists { key: key("b") }
    );
}

#[test]
fn a_replace_needs_the_row_and_the_version_that_it_expects() {
    let mut database = Database::with(vec![insert("a", "{}")]);
    let missing = Refused::Missing { key: key("b") };
    assert_eq!(database.refuse(vec![replace("b", "{}", None)]), missing);
    let stale = Refused::Stale { key: key("a"), current: 1 };
    assert_eq!(database.refuse(vec![replace("a", "{}", Some(2))]), stale);
    let applied = database.run(vec![replace("a", "{\"n\":2}", Some(1))]).unwrap();
    assert_eq!(applied.versions, [(key("a"), 2)]);
    database.run(vec![replace("a", "{\"n\":3}", None)]).unwrap();
    assert_eq!(database.row(&key("a")).body, "{\"n\":3}");
}

#[test]
fn a_put_inserts_or_replaces_and_an_ensure_leaves_what_is_there() {
    let mut database = Database::default();
    database.run(vec![put("a", "1"), put("a", "2")]).unwrap();
    assert_eq!((database.row(&key("a")).version, database.row(&key("a")).body.as_str()), (2, "2"));
    let ensure = |id: &str, body: &str| Write::Ensure { key: key(id), draft: draft(body) };
    let applied = database.run(vec![ensure("a", "3"), ensure("b", "4")]).unwrap();
    assert_eq!(applied.versions, [(key("b"), 1)], "nothing was written to the other");
    assert_eq!(database.row(&key("a")).body, "2");
}

#[test]
fn a_remove_is_indifferent_to_absence_unless_a_version_was_expected() {
    let mut database = Database::with(vec![insert("a", "{}")]);
    assert!(database.run(vec![remove("absent", None)]).is_ok());
    assert_eq!(
        database.refuse(vec![remove("absent", Some(1))]),
        Refused::Missing { key: key("absent") }
    );
    let stale = Refused::Stale { key: key("a"), current: 1 };
    assert_eq!(database.refuse(vec![remove("a", Some(2))]), stale);
    database.run(vec![remove("a", Some(1))]).unwrap();
    assert_eq!(database.rows.len(), 0);
}

#[test]
fn an_addition_is_refused_where_there_is_no_integer_to_add_to() {
    let bodies = [("n", "{\"n\":1}"), ("text", "{\"n\":\"1\"}"), ("float", "{\"n\":1.5}")];
    let rows = bodies.iter().map(|(id, body)| insert(id, body)).collect();
    let mut database = Database::with(rows);
    let add = |id: &str, amount| Write::Add { key: key(id), field: "n".into(), amount };
    database.run(vec![add("n", 2), add("n", -5)]).unwrap();
    assert_eq!(database.row(&key("n")).body, "{\"n\":-2}");
    for (id, amount) in [("text", 1), ("float", 1), ("n", i64::MIN)] {
        let refused = Refused::NotAddable { key: key(id), field: "n".into() };
        assert_eq!(database.refuse(vec![add(id, amount)]), refused, "{id}");
    }
    assert_eq!(database.refuse(vec![add("absent", 1)]), Refused::Missing { key: key("absent") });
    let other = Write::Add { key: key("text"), field: "m".into(), amount: 7 };
    database.run(vec![other]).unwrap();
    assert_eq!(database.row(&key("text")).body, "{\"n\":\"1\",\"m\":7}", "absent counts as zero");
}

#[test]
fn a_body_that_is_no_object_takes_no_addition() {
    let mut database = Database::with(vec![insert("list", "[1]"), insert("broken", "{")]);
    for id in ["list", "broken"] {
        let add = Write::Add { key: key(id), field: "n".into(), amount: 1 };
        let refused = Refused::NotAddable { key: key(id), field: "n".into() };
        assert_eq!(database.refuse(vec![add]), refused, "{id}");
    }
}

#[test]
fn an_addition_takes_no_name_that_a_reader_of_the_body_would_take_for_something_else() {
    let mut database = Database::with(vec![insert("a", "{}")]);
    for field in ["$serde_json::private::RawValue", "$serde_json::private::Number"] {
        let add = Write::Add { key: key("a"), field: field.into(), amount: 1 };
        let refused = Refused::NotAddable { key: key("a"), field: field.into() };
        assert_eq!(database.refuse(vec![add]), refused);
    }
    assert_eq!(database.row(&key("a")).body, "{}");
}

#[test]
fn a_row_keeps_its_user_until_another_is_named() {
    let owned = |user: Option<&str>| Write::Put {
        key: key("a"),
        draft: Draft { user: user.map(str::to_owned), ..draft("{}") },
    };
    let mut database = Database::with(vec![owned(Some("u1"))]);
    database.run(vec![owned(None)]).unwrap();
    assert_eq!(database.row(&key("a")).user.as_deref(), Some("u1"));
    database.run(vec![owned(Some("u2"))]).unwrap();
    assert_eq!(database.row(&key("a")).user.as_deref(), Some("u2"));
}

#[test]
fn a_row_bears_the_time_of_its_unit_and_never_goes_back() {
    let mut database = Database::default();
    let at = |ms: i64| Unit { at: Some(Instant(ms)), ..unit(vec![put("a", "{}")]) };
    database.commit(at(50)).unwrap();
    assert_eq!(database.row(&key("a")).created_at, Instant(50));
    database.commit(at(80)).unwrap();
    database.commit(at(60)).unwrap();
    let row = database.row(&key("a"));
    assert_eq!((row.created_at, row.updated_at, row.version), (Instant(50), Instant(80), 3));
    let add = Write::Add { key: key("a"), field: "n".into(), amount: 1 };
    database.commit(Unit { at: Some(Instant(70)), ..unit(vec![add]) }).unwrap();
    assert_eq!(database.row(&key("a")).updated_at, Instant(80));
}

#[test]
fn index_entries_are_kept_sorted_and_once() {
    let pairs = [("b", "2"), ("a", "1"), ("b", "2"), ("a", "0")];
    let index = pairs.iter().map(|(field, value)| ((*field).into(), (*value).into())).collect();
    let write = Write::Insert { key: key("a"), draft: Draft { index, ..draft("{}") } };
    let database = Database::with(vec![write]);
    let kept: Vec<(&str, &str)> = database
        .row(&key("a"))
        .index
        .iter()
        .map(|(field, value)| (field.as_str(), value.as_str()))
        .collect();
    assert_eq!(kept, [("a", "0"), ("a", "1"), ("b", "2")]);
}

#[test]
fn an_answer_names_each_row_once_in_the_order_of_first_touch() {
    let mut database = Database::default();
    let writes = vec![insert("b", "1"), insert("a", "1"), put("b", "2"), put("c", "1")];
    let applied = database.run(writes).unwrap();
    assert_eq!(applied.versions, [(key("b"), 2), (key("a"), 1), (key("c"), 1)]);
    let gone = database.run(vec![put("c", "2"), remove("c", None)]).unwrap();
    assert_eq!(gone.versions, [], "a row that is gone has no version");
}

#[test]
fn a_write_moves_the_revision_of_its_space_once() {
    let mut database = Database::default();
    let at = (key("a").reach, key("a").space);
    database.run(vec![insert("a", "1"), insert("b", "1"), put("a", "2")]).unwrap();
    assert_eq!(database.spaces[&at], 1);
    database.run(vec![remove("a", None)]).unwrap();
    assert_eq!(database.spaces[&at], 2, "a removal is a change");
    database.run(vec![remove("a", None)]).unwrap();
    assert_eq!(database.spaces[&at], 2, "nothing was removed");
}

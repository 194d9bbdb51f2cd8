//! Logs and facts: numbered from one, without gaps, and closed for good.

use charter_kernel::apply::{facts_log, is_of_events};
use charter_kernel::unit::{Fact, FactKind, LogKey, Refused, Unit, Write};
use serde_json::json;

use crate::bed::{Database, NOW, insert, key, reach, unit};

fn log(name: &str) -> LogKey {
    LogKey { reach: reach(), log: format!("shelf.{name}") }
}

fn append(to: &str, entry: &str) -> Write {
    Write::Append { log: log(to), name: entry.into(), payload: "{}".into() }
}

fn event(organization: &str, name: &str) -> Fact {
    Fact::event(name.to_owned(), organization, NOW, name, &json!({"a": 1}))
}

#[test]
fn entries_are_numbered_without_a_gap() {
    let mut database = Database::default();
    let applied = database.run(vec![append("a", "1"), append("b", "1"), append("a", "2")]);
    assert_eq!(applied.unwrap().sequences, [1, 1, 2]);
    database.run(vec![insert("x", "{}")]).unwrap();
    database.refuse(vec![append("a", "lost"), insert("x", "{}")]);
    assert_eq!(database.run(vec![append("a", "3")]).unwrap().sequences, [3]);
    let names: Vec<_> = database.entries.iter().map(|(name, n)| (name.as_str(), *n)).collect();
    assert_eq!(names, [("1", 1), ("1", 1), ("2", 2), ("3", 3)]);
}

#[test]
fn a_closed_log_takes_no_more() {
    let mut database = Database::default();
    let close = || Write::Close { log: log("a") };
    database.run(vec![append("a", "1"), close()]).unwrap();
    let closed = Refused::LogClosed { log: log("a") };
    assert_eq!(database.refuse(vec![append("a", "2")]), closed);
    database.run(vec![close()]).unwrap();
    assert_eq!((database.logs[&log("a")].head, database.logs[&log("a")].closed), (1, true));
    assert_eq!(database.refuse(vec![append("b", "1"), append("a", "2")]), closed);
    let empty = database.refuse(vec![Write::Close { log: log("c") }, append("c", "1")]);
    assert_eq!(empty, Refused::LogClosed { log: log("c") });
}

#[test]
fn facts_are_numbered_by_organization_and_kind() {
    let mut database = Database::default();
    let audit = Fact { kind: FactKind::Audit, ..event("o", "done") };
    let facts = vec![event("o", "first"), audit, event("o", "second"), event("p", "other")];
    database.commit(Unit { facts, ..unit(Vec::new()) }).unwrap();
    let numbered: Vec<_> = database.entries.iter().map(|(name, n)| (name.as_str(), *n)).collect();
    assert_eq!(numbered, [("first", 1), ("done", 1), ("second", 2), ("other", 1)]);
    let log = facts_log("o", FactKind::Event);
    assert_eq!(database.logs[&log].head, 2);
    assert!(is_of_events(&log) && !is_of_events(&facts_log("o", FactKind::Audit)));
}

#[test]
fn a_fact_of_a_refused_unit_is_never_told() {
    let mut database = Database::with(vec![insert("a", "{}")]);
    let told = Unit { facts: vec![event("o", "lie")], ..unit(vec![insert("a", "{}")]) };
    assert!(database.commit(told).is_err());
    assert_eq!(database.entries, []);
    assert_eq!(database.logs.len(), 0);
}

#[test]
fn an_event_is_the_organizations_and_private_to_nobody() {
    let fact = event("o", "shelf.sorted");
    assert_eq!((fact.kind, fact.organization.as_str(), fact.at), (FactKind::Event, "o", NOW));
    assert_eq!((fact.body.as_str(), fact.private, fact.user), ("{\"a\":1}", None, None));
}

#[test]
fn a_unit_that_only_reads_changes_nothing() {
    assert!(unit(Vec::new()).is_empty());
    assert!(!unit(vec![append("a", "1")]).is_empty());
    assert!(!Unit { facts: vec![event("o", "e")], ..unit(Vec::new()) }.is_empty());
    let guards = vec![charter_kernel::unit::Guard::Version { key: key("a"), version: None }];
    assert!(Unit { guards, ..unit(Vec::new()) }.is_empty(), "a guard alone changes nothing");
    assert!(!crate::bed::take("g", NOW, &["t"]).is_empty());
}

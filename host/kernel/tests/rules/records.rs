//! Rows of the audit log byte by byte, and how documents become index entries.

use charter_kernel::audit::{AuditRow, Change, RANDOM_BYTES};
use charter_kernel::hex::sha256;
use charter_kernel::index::{
    Further, encode_integer, encode_text, encode_unique, entries, entries_beside, present,
};
use charter_kernel::limits::{INDEX_ENTRIES_MAX, KEY_BYTES_MAX};
use charter_kernel::manifest::{Collection, IndexType};
use charter_kernel::unit::{Fact, FactKind};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::bed::NOW;

fn collection(members: &Value) -> Collection {
    let mut declared = json!({"name": "notes"});
    declared.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    serde_json::from_value(declared).unwrap()
}

#[test]
fn a_row_is_these_very_bytes() {
    let rules = ["r1".to_owned()];
    let changes = [Change { what: "cards c".into(), before: None, after: Some("ab".into()) }];
    let details = json!({"n": 1});
    let row = AuditRow {
        organization: "o",
        at: NOW,
        actor: ("key", "k"),
        account: Some("a"),
        on_behalf_of: Some("u"),
        project: Some("p"),
        primitive: Some("cards"),
        action: "cards.issue",
        entity_type: Some("card"),
        entity_id: Some("c"),
        decision: "denied",
        code: Some("forbidden"),
        reason: Some("pinned"),
        request: "q",
        status: Some(403),
        amount: Some(5),
        rules: &rules,
        changes: &changes,
        details: Some(&details),
    };
    let fact = row.fact([7; RANDOM_BYTES]);
    let private = format!(
        r#"{{"changes":[{{"after":"ab","before":null,"what":"cards c"}}],"details":{{"n":1}},"entity_id":"c","salt":"{}"}}"#,
        "07".repeat(16)
    );
    assert_eq!(fact.private.as_deref(), Some(private.as_str()));
    let public = format!(
        r#"{{"action":"cards.issue","actor":{{"account_id":"a","id":"k","type":"key"}},"amount_micro_usd":5,"at":"{NOW}","code":"forbidden","decision":"denied","entity_type":"card","id":"{}","on_behalf_of":"u","policy_ids":["r1"],"primitive":"cards","private_sha256":"{}","project_id":"p","reason":"pinned","request_id":"q","status":403}}"#,
        fact.id,
        sha256(&private)
    );
    assert_eq!(fact.body, public);
    assert_eq!(
        (fact.kind, fact.name.as_str(), fact.organization.as_str()),
        (FactKind::Audit, "cards.issue", "o")
    );
    assert_eq!((fact.user.as_deref(), fact.at), (Some("u"), NOW));
}

#[test]
fn a_row_that_says_little_has_every_member_all_the_same() {
    let fact = AuditRow { organization: "o", action: "a.b", ..AuditRow::default() }
        .fact([1; RANDOM_BYTES]);
    let leaf: Value = serde_json::from_str(&fact.body).unwrap();
    let members: Vec<&str> = leaf.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(members.len(), 16, "{members:?}");
    assert_eq!(
        (fact.user, &leaf["on_behalf_of"], &leaf["policy_ids"]),
        (None, &Value::Null, &json!([]))
    );
}

#[test]
fn the_payload_of_an_event_about_a_user_can_go_with_them() {
    let event = |body: &Value| Fact::event("f".into(), "o", NOW, "e", body);
    let whole = json!({"user": "u", "primitive": "p", "payload": {"to": "a@example.com"}});
    let told = event(&whole);
    assert!(!told.body.contains("example"), "{}", told.body);
    assert_eq!(told.user.as_deref(), Some("u"));
    let body: Value = serde_json::from_str(&told.body).unwrap();
    assert_eq!((&body["user"], &body["primitive"]), (&json!("u"), &json!("p")));
    assert_eq!(told.payload(&body), Some(whole["payload"].clone()));
    let erased = Fact { private: None, ..told };
    assert_eq!(erased.payload(&body), None);
    // One of nobody, and one of a build that kept all of it in its body, are as they were.
    for body in [json!({"user": null, "payload": 1}), json!({"payload": 1})] {
        let fact = event(&body);
        assert_eq!((fact.private.as_deref(), fact.user.as_deref()), (None, None));
        assert_eq!(fact.payload(&body), Some(json!(1)));
    }
    let earlier = Fact { user: None, ..erased };
    assert_eq!(earlier.payload(&whole), Some(whole["payload"].clone()));
}

#[test]
fn an_index_holds_each_kind_of_value_in_its_order() {
    let kinds = collection(&json!({"indexes": [
        {"field": "t"}, {"field": "n", "type": "integer"}, {"field": "at", "type": "instant"}]}));
    let of = |body: Value| entries(&kinds, &body).map(|found| found.index);
    let pair = |field: &str, value: &str| (field.to_owned(), value.to_owned());
    assert_eq!(of(json!({"t": true})).unwrap(), [pair("t", "true")]);
    assert_eq!(of(json!({"n": i64::MIN})).unwrap(), [pair("n", "0000000000000000")]);
    assert_eq!(of(json!({"n": i64::MAX})).unwrap(), [pair("n", "ffffffffffffffff")]);
    assert_eq!(of(json!({"at": 5})), of(json!({"at": "1970-01-01T00:00:00.005Z"})));
    assert_eq!(of(json!({"t": ["b", "a", "b"]})).unwrap(), [pair("t", "a"), pair("t", "b")]);
    for (body, field) in [
        (json!({"t": {}}), "t"),
        (json!({"n": true}), "n"),
        (json!({"at": "soon"}), "at"),
        (json!({"at": 1.5}), "at"),
        (json!({"t": [["a"]]}), "t"),
    ] {
        assert_eq!(of(body.clone()).unwrap_err().path, field, "{body}");
    }
    assert_eq!(of(json!({"t": vec!["x"; INDEX_ENTRIES_MAX]})).unwrap().len(), 1);
    assert!(of(json!({"t": "x".repeat(KEY_BYTES_MAX)})).is_ok());
    assert!(of(json!({"t": "x".repeat(KEY_BYTES_MAX + 1)})).is_err());
}

#[test]
fn a_lease_group_is_a_text_that_fits() {
    let leased = collection(&json!({"leased": {"by": "queue"}}));
    let group = |body: Value| entries(&leased, &body).map(|found| found.group);
    assert_eq!(group(json!({"queue": "q"})), Ok(Some("q".into())));
    for body in [json!({}), json!({"queue": 1}), json!({"queue": "x".repeat(KEY_BYTES_MAX + 1)})] {
        assert_eq!(group(body.clone()).unwrap_err().path, "queue", "{body}");
    }
}

#[test]
fn unique_values_compare_as_their_index_does() {
    let typed = collection(
        &json!({"indexes": [{"field": "n", "type": "integer"}], "unique": ["n", "slug"]}),
    );
    let unique = entries(&typed, &json!({"n": 5, "slug": "s"})).unwrap().unique;
    assert_eq!(unique, [("n".to_owned(), encode_integer(5)), ("slug".to_owned(), "s".to_owned())]);
    assert_eq!(encode_unique(&typed, "n", "5"), Ok(encode_integer(5)));
    assert!(encode_unique(&typed, "n", "five").is_err());
    assert_eq!(encode_unique(&typed, "slug", "5").as_deref(), Ok("5"));
    let plain = entries(&typed, &json!({"slug": 1})).unwrap_err();
    assert_eq!(plain.path, "slug");
}

#[test]
fn a_query_compares_with_instants_in_either_spelling() {
    let encode = |text: &str| encode_text(IndexType::Instant, text);
    assert_eq!(encode("5"), encode("1970-01-01T00:00:00.005Z"));
    assert!(encode("tomorrow").unwrap_err().contains("RFC 3339"));
    assert!(encode_text(IndexType::Text, "a\0").unwrap_err().contains("512 bytes"));
    assert!(encode_text(IndexType::Integer, "1.5").unwrap_err().contains("64 bits"));
}

#[test]
fn a_member_is_found_by_its_dotted_path() {
    let body = json!({"a": {"b": {"c": 1}, "n": null}});
    assert_eq!(present(&body, "a.b.c"), Some(&json!(1)));
    for absent in ["a.n", "a.x", "x", "a.b.c.d"] {
        assert_eq!(present(&body, absent), None, "{absent}");
    }
}

#[test]
fn what_another_version_looks_for_is_found_too() {
    let own = collection(&json!({"searchable": ["title"]}));
    let newer = collection(
        &json!({"indexes": [{"field": "n", "type": "integer"}], "searchable": ["note"]}),
    );
    let body = json!({"n": 7, "title": "T", "note": "N"});
    let found = entries_beside(&own, &Further::of(&own, [&newer, &newer]), &body).unwrap();
    assert_eq!(found.index, [("n".to_owned(), encode_integer(7))]);
    assert_eq!(found.text.as_deref(), Some("T\nN"));
    let alone = entries_beside(&own, &Further::default(), &body).unwrap();
    assert_eq!((alone.index.len(), alone.text.as_deref()), (0, Some("T")));
}

proptest! {
    #[test]
    fn encoded_integers_sort_as_integers_do(mut numbers in prop::collection::vec(any::<i64>(), 0..20)) {
        let mut encoded: Vec<String> = numbers.iter().copied().map(encode_integer).collect();
        encoded.sort();
        numbers.sort_unstable();
        prop_assert_eq!(encoded, numbers.into_iter().map(encode_integer).collect::<Vec<_>>());
    }

    #[test]
    fn no_body_panics(text in "\\PC{0,20}", n in any::<i64>()) {
        let all = collection(&json!({"indexes": [{"field": "a"}, {"field": "b", "type": "instant"}],
            "unique": ["a"], "searchable": ["a"], "leased": {"by": "a"}}));
        for body in [json!({"a": text, "b": n}), json!({"a": [text], "b": [n]}), json!([text]), json!(n)] {
            let _ = entries(&all, &body);
        }
    }
}

//! The rules of documents, over a real store: reach, power, bounds, versions and queries.

use charter_kernel::role::Role;
use charter_kernel::scope::{Actor, ActorKind, Principal, Scope};
use charter_kernel::time::Instant;
use serde_json::json;

use super::*;
use crate::call::Call;
use crate::run::bed::{Bed, alone, handle, key, long, scope, user, word};

async fn insert(bed: &Bed, by: &Scope, collection: &str, body: &str) -> Result<String, String> {
    let (collection, body) = (collection.to_owned(), body.to_owned());
    let document =
        bed.by(by.clone(), async |guest| guest.insert(collection, body, None).await).await;
    document.map(|document| document.id)
}

async fn get(bed: &Bed, by: &Scope, collection: &str, id: &str) -> Result<Option<u64>, String> {
    let found =
        bed.by(by.clone(), async |guest| guest.get(collection.into(), id.into()).await).await;
    found.map(|found| found.map(|document| document.version))
}

fn all(collection: &str) -> Query {
    Query {
        collection: collection.into(),
        matching: Vec::new(),
        order: Order::Oldest,
        limit: 100,
        after: None,
        offset: None,
        relaxed: false,
    }
}

fn equal(field: &str, value: &str) -> (String, Test) {
    (field.into(), Test::Equal(value.into()))
}

#[tokio::test]
async fn a_document_is_seen_by_those_who_share_its_collections_reach() {
    let bed = Bed::new().await;
    let (own, colleague) = (user(3), user(4));
    let other_project = scope(key(Role::Admin), 1, Some(8), Some(9));
    let elsewhere = scope(key(Role::Owner), 9, Some(8), Some(7));
    for (collection, seen) in [
        ("notes", [true, false, false, false]),
        ("plans", [true, true, false, false]),
        ("house", [true, true, true, false]),
    ] {
        let id = insert(&bed, &own, collection, "{}").await.unwrap();
        for (by, seen) in [&own, &colleague, &other_project, &elsewhere].into_iter().zip(seen) {
            let found = get(&bed, by, collection, &id).await.unwrap();
            assert_eq!(found.is_some(), seen, "{collection}: {by:?}");
            let removed = async |guest: &mut State| {
                guest.remove(collection.into(), id.clone(), Some(99)).await
            };
            let removed = bed.by(by.clone(), removed).await;
            // At another version it is not removed; where it is not seen, it is not there.
            let expected = if seen { Err("version_conflict".into()) } else { Ok(false) };
            assert_eq!(removed, expected, "{collection}: {by:?}");
        }
    }
}

#[tokio::test]
async fn what_everybody_shares_is_written_by_the_operator_and_the_host() {
    let bed = Bed::new().await;
    for by in [user(3), scope(key(Role::Owner), 1, None, None)] {
        assert_eq!(insert(&bed, &by, "world", "{}").await, Err("forbidden".into()));
    }
    for kind in [ActorKind::Operator, ActorKind::System] {
        let by = alone(Principal::of(Actor::new(kind, "s")));
        let id = insert(&bed, &by, "world", "{}").await.unwrap();
        assert_eq!(get(&bed, &user(3), "world", &id).await, Ok(Some(1)));
        assert_eq!(insert(&bed, &by, "notes", "{}").await, Err("forbidden".into()), "nobody's");
    }
}

#[tokio::test]
async fn a_collection_that_needs_a_user_is_nobodys_without_one() {
    let bed = Bed::new().await;
    let above = scope(key(Role::Admin), 1, Some(2), None);
    assert_eq!(get(&bed, &above, "notes", "x").await, Err("invalid_input".into()));
    let found = bed.by(above, async |guest| guest.find(all("notes")).await.map(drop)).await;
    assert_eq!(found, Err("invalid_input".into()));
}

#[tokio::test]
async fn a_body_is_an_object_that_fits_its_declaration() {
    let bed = Bed::new().await;
    let deep = "[".repeat(200) + &"]".repeat(200);
    for body in ["", "{", "[]", "1", "null", "\"x\"", "{} {}", &format!("{{\"a\":{deep}}}")] {
        let said = insert(&bed, &user(3), "notes", body).await;
        assert_eq!(said, Err("invalid_input:body".into()), "{body}");
    }
    for body in [
        json!({ "slug": long(600) }),
        json!({ "kind": long(600) }),
        json!({ "size": "many" }),
        json!({ "kind": "a\0b" }),
    ] {
        let said = insert(&bed, &user(3), "notes", &body.to_string()).await;
        assert_eq!(said, Err("internal_error".into()), "its author's mistake: {body}");
    }
    let large = json!({ "text": long(5 << 20) }).to_string();
    let said = insert(&bed, &user(3), "notes", &large).await;
    assert!(said.as_ref().is_err_and(|word| word.ends_with("payload_too_large")), "{said:?}");
    for collection in ["", "nothing", "host.keys", "../notes", "shop.notes"] {
        let said = insert(&bed, &user(3), collection, "{}").await;
        assert_eq!(said, Err("internal_error:UNDECLARED".into()), "{collection}");
    }
}

#[tokio::test]
async fn a_unique_value_is_one_documents_of_its_reach() {
    let bed = Bed::new().await;
    let body = json!({ "slug": "a" }).to_string();
    let id = insert(&bed, &user(3), "notes", &body).await.unwrap();
    let taken = Err("duplicate_record:slug".to_owned());
    assert_eq!(insert(&bed, &user(3), "notes", &body).await, taken);
    assert!(insert(&bed, &user(4), "notes", &body).await.is_ok());
    let lookup = async |by: Scope, field: &str| {
        let found = async |guest: &mut State| {
            guest.lookup("notes".into(), field.to_owned(), "a".into()).await
        };
        bed.by(by, found).await.map(|found| found.map(|document| document.id))
    };
    assert_eq!(lookup(user(3), "slug").await, Ok(Some(id.clone())));
    assert_ne!(lookup(user(4), "slug").await, Ok(Some(id)));
    assert_eq!(lookup(user(5), "slug").await, Ok(None));
    assert_eq!(lookup(user(3), "kind").await, Err("internal_error:UNDECLARED".into()));
}

#[tokio::test]
async fn a_replacement_says_which_version_it_replaces() {
    let bed = Bed::new().await;
    let id = insert(&bed, &user(3), "notes", "{}").await.unwrap();
    let replace = async |by: Scope, id: &str, expected: Option<u64>| {
        let replace = async |guest: &mut State| {
            guest.replace("notes".into(), id.to_owned(), "{\"n\":1}".into(), expected).await
        };
        bed.by(by, replace).await.map(|document| document.version)
    };
    assert_eq!(replace(user(3), &id, Some(1)).await, Ok(2));
    assert_eq!(replace(user(3), &id, Some(1)).await, Err("version_conflict".into()));
    assert_eq!(replace(user(3), &id, None).await, Ok(3));
    assert_eq!(replace(user(4), &id, None).await, Err("not_found".into()));
    for id in ["", "absent", "a\0b", &long(600)] {
        assert_eq!(replace(user(3), id, None).await, Err("not_found".into()), "{id}");
        assert_eq!(get(&bed, &user(3), "notes", id).await, Ok(None), "{id}");
    }
}

#[tokio::test]
async fn a_query_asks_declared_fields_and_comes_in_pages() {
    let bed = Bed::new().await;
    for size in 1..=5 {
        let body = json!({ "kind": "a", "size": size }).to_string();
        insert(&bed, &user(3), "notes", &body).await.unwrap();
    }
    let find = async |query: Query| bed.by(user(3), async |guest| guest.find(query).await).await;
    let tests = |tests| Query { matching: tests, ..all("notes") };
    let between = |low: Option<&str>, high: Option<&str>| {
        let bounds = (low.map(str::to_owned), high.map(str::to_owned));
        vec![("size".to_owned(), Test::Between(bounds))]
    };
    for (query, count) in [
        (tests(vec![equal("kind", "a")]), 5),
        (tests(vec![equal("kind", "b")]), 0),
        (tests(vec![equal("size", "3")]), 1),
        (tests(vec![equal("kind", "a"), equal("size", "3")]), 1),
        (tests(between(Some("2"), Some("4"))), 3),
        (tests(between(Some("-9"), None)), 5),
        (tests(between(None, None)), 5),
        (tests(between(Some("4"), Some("2"))), 0),
        (Query { limit: 0, ..all("notes") }, 1),
        (Query { limit: u32::MAX, ..all("notes") }, 5),
        (Query { offset: Some(4), ..all("notes") }, 1),
        (Query { offset: Some(u32::MAX), ..all("notes") }, 0),
    ] {
        let words = format!("{query:?}");
        assert_eq!(find(query).await.unwrap().items.len(), count, "{words}");
    }
    for (query, word) in [
        (tests(vec![equal("text", "x")]), "internal_error:UNDECLARED"),
        (tests(vec![equal("", "x")]), "internal_error:UNDECLARED"),
        (tests(vec![equal("size", "many")]), "invalid_input:size"),
        (tests(vec![equal("kind", "a"); 17]), "invalid_input:matching"),
        (all("nothing"), "internal_error:UNDECLARED"),
    ] {
        let words = format!("{query:?}");
        assert_eq!(find(query).await.map(drop), Err(word.into()), "{words}");
    }
    let (mut after, mut seen) = (None, Vec::new());
    loop {
        let page = find(Query { limit: 2, after, ..all("notes") }).await.unwrap();
        assert_eq!(page.has_more, page.next.is_some());
        seen.extend(page.items.into_iter().map(|document| document.id));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let mut once = seen.clone();
    once.sort();
    once.dedup();
    assert_eq!((seen.len(), once), (5, seen));
}

#[tokio::test]
async fn a_count_asks_as_a_query_does() {
    let bed = Bed::new().await;
    for kind in ["a", "a", "b"] {
        insert(&bed, &user(3), "notes", &json!({ "kind": kind }).to_string()).await.unwrap();
    }
    let count = async |tests: Vec<(String, Test)>| {
        bed.by(user(3), async |guest| guest.count("notes".into(), tests, false).await).await
    };
    assert_eq!(count(vec![]).await, Ok(3));
    assert_eq!(count(vec![equal("kind", "a")]).await, Ok(2));
    assert_eq!(count(vec![equal("text", "a")]).await, Err("internal_error:UNDECLARED".into()));
    assert_eq!(count(vec![equal("kind", "a"); 17]).await, Err("invalid_input:matching".into()));
}

#[tokio::test]
async fn what_matches_is_removed_and_nothing_else() {
    let bed = Bed::new().await;
    for kind in ["a", "b", "a"] {
        insert(&bed, &user(3), "notes", &json!({ "kind": kind }).to_string()).await.unwrap();
        insert(&bed, &user(4), "notes", &json!({ "kind": kind }).to_string()).await.unwrap();
    }
    let remove = async |limit| {
        let query = Query { matching: vec![equal("kind", "a")], limit, ..all("notes") };
        bed.by(user(3), async |guest| guest.remove_matching(query).await).await
    };
    assert_eq!(remove(1).await, Ok(true), "one more is left");
    assert_eq!(remove(1_000).await, Ok(false));
    let left = async |by: Scope| {
        bed.by(by, async |guest| guest.count("notes".into(), vec![], true).await).await
    };
    assert_eq!((left(user(3)).await, left(user(4)).await), (Ok(1), Ok(3)));
    let world = bed.by(user(3), async |guest| guest.remove_matching(all("world")).await).await;
    assert_eq!(world, Err("forbidden".into()));
}

#[tokio::test]
async fn a_sum_is_of_a_member_that_nothing_is_found_by() {
    let bed = Bed::new().await;
    let body = json!({ "count": 1, "kind": "a", "slug": "s", "size": 1, "text": "t" }).to_string();
    let id = insert(&bed, &user(3), "notes", &body).await.unwrap();
    let item = insert(&bed, &user(3), "items", "{\"group\":\"g\"}").await.unwrap();
    let add = async |by: Scope, collection: &str, id: &str, field: &str, amount| {
        let (id, field) = (id.to_owned(), field.to_owned());
        bed.by(by, async |guest| guest.add(collection.into(), id, field, amount).await).await
    };
    for (collection, id, field, word) in [
        ("notes", &id, "", "invalid_input:field"),
        ("notes", &id, "a.b", "invalid_input:field"),
        ("notes", &id, "kind", "internal_error:UNDECLARED"),
        ("notes", &id, "slug", "internal_error:UNDECLARED"),
        ("notes", &id, "size", "internal_error:UNDECLARED"),
        ("items", &item, "group", "internal_error:UNDECLARED"),
        ("notes", &item, "count", "not_found"),
    ] {
        let said = add(user(3), collection, id, field, 1).await;
        assert_eq!(said, Err(word.into()), "{collection} {field}");
    }
    let text = add(user(3), "notes", &id, "text", 1).await;
    assert!(text.as_ref().is_err_and(|word| word.ends_with("invalid_input:text")), "{text:?}");
    let over = add(user(3), "notes", &id, "count", i64::MAX).await;
    assert!(over.as_ref().is_err_and(|word| word.ends_with("invalid_input:count")), "{over:?}");
    assert_eq!(add(user(4), "notes", &id, "count", 1).await, Err("not_found".into()));
    assert_eq!(add(user(3), "notes", &id, "count", 41).await, Ok(()));
    let found = bed.by(user(3), async |guest| guest.get("notes".into(), id.clone()).await).await;
    assert!(found.unwrap().unwrap().body.contains("\"count\":42"));
}

#[tokio::test]
async fn a_search_finds_what_is_declared_searchable_and_ones_own() {
    let bed = Bed::new().await;
    for by in [user(3), user(4)] {
        insert(&bed, &by, "notes", &json!({ "text": "green apples" }).to_string()).await.unwrap();
    }
    let search = async |collection: &str, text: &str| {
        let (collection, text) = (collection.to_owned(), text.to_owned());
        let found = bed.by(user(3), async |guest| guest.search(collection, text, 0).await).await;
        found.map(|found| found.len())
    };
    assert_eq!(search("notes", "apples").await, Ok(1));
    assert_eq!(search("notes", "pears").await, Ok(0));
    for text in ["", "\"", "apples OR", "a\0b", "*", "'; DROP TABLE documents; --"] {
        assert!(search("notes", text).await.is_ok(), "{text}");
    }
    assert_eq!(search("items", "apples").await, Err("internal_error:UNDECLARED".into()));
}

#[tokio::test]
async fn who_may_only_read_writes_nothing_by_any_operation() {
    let bed = Bed::new().await;
    let viewer = || scope(key(Role::Viewer), 1, Some(2), Some(3));
    let id = insert(&bed, &user(3), "notes", "{}").await.unwrap();
    let calls = || {
        let peek = Call { entry: handle("shop.peek"), ..bed.call(viewer()) };
        let look = Call { entry: handle("shop.look"), mutates: false, ..bed.call(user(3)) };
        let undeclared = Call { entry: handle("shop.undeclared"), ..bed.call(viewer()) };
        let forbidden = "forbidden:role_insufficient";
        [(peek, forbidden), (look, "internal_error:UNDECLARED"), (undeclared, forbidden)]
    };
    for (call, word) in calls() {
        let insert = async |guest: &mut State| {
            guest.insert("notes".into(), "{}".into(), None).await.map(drop)
        };
        assert_eq!(bed.play(call, insert).await, Err(word.into()));
    }
    for (call, word) in calls() {
        let remove = async |guest: &mut State| guest.remove("notes".into(), id.clone(), None).await;
        assert_eq!(bed.play(call, remove).await, Err(word.into()));
    }
    for (call, word) in calls() {
        let checkpoint = async |guest: &mut State| guest.checkpoint().await;
        assert_eq!(bed.play(call, checkpoint).await, Err(word.into()));
    }
    for (call, _) in calls() {
        let found = bed.play(call, async |guest| guest.get("notes".into(), id.clone()).await).await;
        assert!(found.unwrap().is_some());
    }
}

#[tokio::test]
async fn what_is_due_at_no_moment_is_due_at_the_nearest() {
    let bed = Bed::new().await;
    for (due_at, due) in [(i64::MIN, 0), (-1, 0), (5, 5), (i64::MAX, Instant::LAST.0)] {
        let insert = async |guest: &mut State| {
            guest.insert("items".into(), "{\"group\":\"g\"}".into(), Some(due_at)).await
        };
        let id = bed.by(user(3), insert).await.unwrap().id;
        let key =
            Key::new(&user(3).narrowest(), &charter_kernel::unit::Space::of("shop", "items"), id);
        assert_eq!(bed.row(&key).await.unwrap().lease.unwrap().due_at, Instant(due), "{due_at}");
    }
}

/// A way to read documents.
#[derive(Clone, Copy, Debug)]
enum Read {
    Get,
    Lookup,
    Find(u32),
    Search,
}

#[tokio::test]
async fn documents_that_a_guest_is_handed_are_the_calls_own_memory() {
    let bed = Bed::new().await;
    let body = |slug: &str| {
        json!({ "slug": slug, "text": "green apples", "rest": long(100 << 10) }).to_string()
    };
    let id = insert(&bed, &user(3), "notes", &body("a")).await.unwrap();
    insert(&bed, &user(3), "notes", &body("b")).await.unwrap();
    let read = async |read: Read, bytes: usize| {
        let mut guest = bed.attempt_within(&user(3), bytes);
        let notes = || "notes".to_owned();
        let read = match read {
            Read::Get => guest.get(notes(), id.clone()).await.map(|found| found.iter().len()),
            Read::Lookup => {
                let found = guest.lookup(notes(), "slug".into(), "a".into()).await;
                found.map(|found| found.iter().len())
            }
            Read::Find(limit) => {
                let query = Query { limit, ..all("notes") };
                guest.find(query).await.map(|page| page.items.len())
            }
            Read::Search => {
                guest.search(notes(), "apples".into(), 10).await.map(|found| found.len())
            }
        };
        read.map_err(|failure| word(&failure))
    };
    let refused = || Err("payload_too_large:too_much_held".to_owned());
    for (way, count) in [(Read::Get, 1), (Read::Lookup, 1), (Read::Find(10), 2), (Read::Search, 2)]
    {
        assert_eq!(read(way, 64 << 10).await, refused(), "{way:?}");
        assert_eq!(read(way, 1 << 20).await, Ok(count), "{way:?}");
    }
    assert_eq!(read(Read::Find(1), 150 << 10).await, Ok(1));
    for all in [Read::Find(10), Read::Search] {
        assert_eq!(read(all, 150 << 10).await, refused(), "each of them counts: {all:?}");
    }
}

//! Pages, counts and full-text search.

use charter_kernel::unit::{Claim, Key, Reach, Space, Write};
use charter_store::{Order, Query, Test};

use crate::bed::{Bed, draft, indexed, key, on_both, reach, space, unit};

on_both!(
    pages_walk_the_rows_by_key,
    tests_compare_encoded_values,
    a_range_is_the_same_whether_few_rows_lie_in_it_or_many,
    text_is_found_by_all_its_words_and_by_its_own_tenant,
    what_has_expired_is_swept_across_reaches,
    many_gets_at_once_each_get_their_row,
    what_no_database_can_hold_is_nowhere_to_be_found,
);

async fn pages_walk_the_rows_by_key(bed: Bed) {
    let rows = (0..25).map(|n| Write::Insert {
        key: key(&format!("{n:02}")),
        draft: indexed("{}", &[("parity", if n % 2 == 0 { "even" } else { "odd" })]),
    });
    bed.store.commit(unit(rows.collect())).await.unwrap();
    for (query, expected) in [
        (Query::all(&reach(), &space()), (0..25).rev().collect::<Vec<_>>()),
        (Query { order: Order::Oldest, ..Query::all(&reach(), &space()) }, (0..25).collect()),
        (
            Query::all(&reach(), &space()).equal("parity", "odd"),
            (0..25).rev().filter(|n| n % 2 == 1).collect(),
        ),
        (Query::all(&reach(), &Space::of("shelf", "empty")), vec![]),
        (Query::all(&Reach::user("usr_b"), &space()), vec![]),
    ] {
        let mut query = query.limit(10);
        let mut seen = Vec::new();
        loop {
            let page = bed.store.find(&query).await.unwrap();
            assert_eq!(page.has_more(), seen.len() + page.items.len() < expected.len());
            seen.extend(page.items.iter().map(|(key, _)| key.id.parse::<i32>().unwrap()));
            match page.next {
                Some(next) => query.after = Some(next),
                None => break,
            }
        }
        assert_eq!(seen, expected);
        assert_eq!(bed.store.count(&query).await.unwrap(), expected.len() as u64);
    }
    let offset = Query { offset: 20, ..Query::all(&reach(), &space()) };
    assert_eq!(bed.store.find(&offset).await.unwrap().items.len(), 5);
}

async fn tests_compare_encoded_values(bed: Bed) {
    let row = |n: i32| Write::Insert {
        key: key(&n.to_string()),
        draft: indexed(
            "{}",
            &[
                ("size", &format!("{n:04}")),
                ("tag", "x"),
                ("tag", if n < 5 { "low" } else { "high" }),
            ],
        ),
    };
    bed.store.commit(unit((0..10).map(row).collect())).await.unwrap();
    let count = async |matching: Vec<(&str, Test)>| {
        let matching = matching.into_iter().map(|(field, test)| (field.to_owned(), test)).collect();
        let query = Query { matching, ..Query::all(&reach(), &space()) };
        let found = bed.store.find(&query).await.unwrap().items.len() as u64;
        assert_eq!(bed.store.count(&query).await.unwrap(), found);
        found
    };
    let between = |low: Option<&str>, high: Option<&str>| {
        Test::Between(low.map(Into::into), high.map(Into::into))
    };
    assert_eq!(
        count(vec![("size", between(Some("0002"), Some("0004")))]).await,
        3,
        "both bounds are inclusive"
    );
    assert_eq!(count(vec![("size", between(None, Some("0004")))]).await, 5);
    assert_eq!(count(vec![("size", between(None, None))]).await, 10);
    assert_eq!(
        count(vec![("tag", Test::Equal("x".into())), ("tag", Test::Equal("low".into()))]).await,
        5
    );
    let both = vec![("tag", Test::Equal("high".into())), ("size", between(Some("0008"), None))];
    assert_eq!(count(both).await, 2);
    assert_eq!(count(vec![("absent", Test::Equal("x".into()))]).await, 0);
}

async fn a_range_is_the_same_whether_few_rows_lie_in_it_or_many(bed: Bed) {
    const ROWS: i32 = 2_500;
    let size = |n: i32| format!("{:05}", n * 7 % ROWS);
    let third = |n: i32| if n % 3 == 0 { "third" } else { "none" };
    for page in 0..5 {
        let row = |n: i32| Write::Insert {
            key: key(&format!("{n:05}")),
            // A second value of the same field lies in no range that is asked for.
            draft: indexed("{}", &[("size", &size(n)), ("size", "x"), ("tag", third(n))]),
        };
        let rows = (page * ROWS / 5..(page + 1) * ROWS / 5).map(row).collect();
        bed.store.commit(unit(rows)).await.unwrap();
    }
    for (low, high) in [(0, ROWS), (0, 10), (40, 2_400), (2_400, 40), (1_999, 1_999)] {
        for tag in [None, Some("third"), Some("nobody's")] {
            for order in [Order::Newest, Order::Oldest] {
                let of_tag = |n: &i32| tag.is_none_or(|tag| third(*n) == tag);
                let is_in = |n: &i32| (low..=high).contains(&(n * 7 % ROWS)) && of_tag(n);
                let mut expected: Vec<_> =
                    (0..ROWS).filter(is_in).map(|n| format!("{n:05}")).collect();
                if order == Order::Newest {
                    expected.reverse();
                }
                let range = Test::Between(Some(format!("{low:05}")), Some(format!("{high:05}")));
                let tag = tag.map(|tag| ("tag".to_owned(), Test::Equal(tag.into())));
                let matching = tag.into_iter().chain([("size".to_owned(), range)]).collect();
                let mut query = Query { matching, order, ..Query::all(&reach(), &space()) };
                assert_eq!(bed.store.count(&query).await.unwrap(), expected.len() as u64);
                let mut found = Vec::new();
                loop {
                    let page = bed.store.find(&query).await.unwrap();
                    found.extend(page.items.into_iter().map(|(key, _)| key.id));
                    match page.next {
                        Some(next) => query.after = Some(next),
                        None => break,
                    }
                }
                assert_eq!(found, expected, "{low} to {high}, {order:?}");
            }
        }
    }
}

async fn text_is_found_by_all_its_words_and_by_its_own_tenant(bed: Bed) {
    let text = |text: &str| charter_kernel::unit::Draft { text: Some(text.into()), ..draft("{}") };
    let other = Key::new(&Reach::user("usr_b"), &space(), "theirs");
    bed.store
        .commit(unit(vec![
            Write::Insert {
                key: key("a"),
                draft: text("The quick brown fox, e-mail: fox@example.org"),
            },
            Write::Insert { key: key("b"), draft: text("A quick Straßenbahn; quick, QUICK!") },
            Write::Insert { key: other, draft: text("quick brown neighbour") },
        ]))
        .await
        .unwrap();
    let found = async |words: &str| {
        let found = bed.store.search(&reach(), &space(), words, 10).await.unwrap();
        found.into_iter().map(|(key, _)| key.id).collect::<Vec<_>>()
    };
    assert_eq!(found("quick").await, ["b", "a"], "best first");
    assert_eq!(found("Quick BROWN").await, ["a"]);
    assert_eq!(found("example.org fox").await, ["a"]);
    assert_eq!(found("straßenbahn").await, ["b"]);
    assert_eq!(found("neighbour").await, Vec::<String>::new(), "another tenant's text");
    assert_eq!(found("\" OR words:* NEAR(").await, Vec::<String>::new());
    assert_eq!(found("'; -- & | !").await, Vec::<String>::new());
    bed.store.commit(unit(vec![Write::Put { key: key("a"), draft: text("slow") }])).await.unwrap();
    assert_eq!((found("brown").await, found("slow").await), (vec![], vec!["a".to_owned()]));
    bed.store.commit(unit(vec![Write::Remove { key: key("b"), expected: None }])).await.unwrap();
    assert_eq!(found("quick").await, Vec::<String>::new(), "a removed row is not found");
}

async fn what_has_expired_is_swept_across_reaches(bed: Bed) {
    let space = Space::host("idempotency");
    let row = |user: &str, at: &str| Write::Insert {
        key: Key::new(&Reach::user(user), &space, user),
        draft: indexed("{}", &[("expires_at", at)]),
    };
    bed.store.commit(unit(vec![row("a", "001"), row("b", "002"), row("c", "003")])).await.unwrap();
    assert_eq!(bed.store.find_expired(&space, "expires_at", "003", 10).await.unwrap().len(), 2);
    assert_eq!(bed.store.expire(&space, "expires_at", "003", 1).await.unwrap(), 1);
    assert_eq!(bed.store.expire(&space, "expires_at", "003", 10).await.unwrap(), 1);
    assert_eq!(bed.store.expire(&space, "expires_at", "003", 10).await.unwrap(), 0);
    assert!(bed.store.get(&Key::new(&Reach::user("c"), &space, "c")).await.unwrap().is_some());
}

async fn many_gets_at_once_each_get_their_row(bed: Bed) {
    let rows =
        (0..500).map(|n| Write::Insert { key: key(&n.to_string()), draft: draft(&n.to_string()) });
    bed.store.commit(unit(rows.collect())).await.unwrap();
    let gets = (0..2_000).map(|n| {
        let store = bed.store.clone();
        async move { (n, store.get(&key(&(n % 700).to_string())).await.unwrap()) }
    });
    for (n, row) in futures::future::join_all(gets).await {
        let id = n % 700;
        assert_eq!(row.map(|row| row.body), (id < 500).then(|| id.to_string()));
    }
}

async fn what_no_database_can_hold_is_nowhere_to_be_found(bed: Bed) {
    bed.store
        .commit(unit(vec![Write::Insert { key: key("a"), draft: indexed("{}", &[("kind", "x")]) }]))
        .await
        .unwrap();
    // Reads of one moment share a statement: who asks for the impossible must not spoil it for the
    // others.
    let long = "k".repeat(600);
    let asked: Vec<Key> = (0..60).map(|n| key(["a", "\0", "a\0b", &long, ""][n % 5])).collect();
    let found = futures::future::join_all(asked.iter().map(|key| bed.store.get(key))).await;
    for (key, found) in asked.iter().zip(found) {
        assert_eq!(found.unwrap().is_some(), key.id == "a", "{:?}", key.id);
    }
    assert_eq!(bed.store.lookup(&Claim::name("x", "a\0")).await.unwrap(), None);
    for query in [
        Query::all(&reach(), &space()).equal("kind", "x\0"),
        Query { after: Some("\0".into()), ..Query::all(&reach(), &space()) },
        Query {
            matching: vec![("kind".into(), Test::Between(None, Some("\0".into())))],
            ..Query::all(&reach(), &space())
        },
    ] {
        assert!(bed.store.find(&query).await.unwrap().items.is_empty(), "{query:?}");
    }
    assert_eq!(
        bed.store.count(&Query::all(&reach(), &space()).equal("kind", "x\0")).await.unwrap(),
        0
    );
    assert_eq!(
        bed.store.standing(&reach(), &space(), "\0").await.unwrap(),
        charter_store::GroupStanding::default()
    );
    assert!(bed.store.search(&reach(), &space(), "\0", 5).await.unwrap().is_empty());
    // A transaction that looked there and goes on is not refused for it.
    let mut txn = bed.store.begin(crate::bed::ORG);
    assert!(txn.get(&key("\0")).await.unwrap().is_none());
    assert!(txn.lookup(&Claim::name("x", "\0")).await.unwrap().is_none());
    txn.insert(key("b"), draft("{}")).await.unwrap();
    txn.commit().await.unwrap();
}

/// Rows that take SQLite far longer to count than it may keep its caller's thread, and the query
/// that counts them.
async fn many(bed: &Bed) -> Query {
    for batch in 0..30 {
        let rows = (0..1_000).map(|n| Write::Insert {
            key: key(&format!("{batch}-{n}")),
            draft: indexed("{}", &[("tag", "x")]),
        });
        bed.store.commit(unit(rows.collect())).await.unwrap();
    }
    let matching = vec![("tag".into(), Test::Between(Some("a".into()), None))];
    Query { matching, ..Query::all(&reach(), &space()) }
}

/// SQLite is asked on the caller's thread, so a read over many rows must leave it to the others.
#[tokio::test]
async fn a_read_that_takes_long_does_not_keep_the_thread_from_others() {
    let bed = Bed::sqlite().await;
    let query = many(&bed).await;
    let mut long = std::pin::pin!(bed.store.count(&query));
    let between = key("0-0");
    tokio::select! {
        biased;
        _ = &mut long => panic!("one thread, and the short read had to wait for the long one"),
        short = bed.store.get(&between) => assert!(short.unwrap().is_some()),
    }
    assert_eq!(long.await.unwrap(), 30_000, "it is answered all the same");
}

/// A caller that asks for something long and leaves, again and again, must not make the store open
/// ever more connections.
#[tokio::test]
async fn long_reads_that_nobody_waits_for_are_as_bounded_as_others() {
    let bed = Bed::sqlite().await;
    let query = many(&bed).await;
    let open = || {
        let files = std::fs::read_dir("/proc/self/fd")
            .unwrap()
            .flatten()
            .filter_map(|file| std::fs::read_link(file.path()).ok());
        files.filter(|file| *file == bed.config.data_dir.join("charter.db")).count()
    };
    let before = open();
    for _ in 0..40 {
        let mut long = std::pin::pin!(bed.store.count(&query));
        // One look: it has begun, or waits for its turn; then its asker leaves.
        assert!(futures::poll!(&mut long).is_pending());
    }
    assert!(open() <= before + bed.config.readers as usize, "{} connections were {before}", open());
    assert_eq!(bed.store.count(&query).await.unwrap(), 30_000, "who stays is answered");
}

//! Pages end when their bytes are full: no row is lost for it, and one always fits.

use charter_kernel::unit::{Draft, Fact, FactKind, LogKey, Take, Unit, Write};
use charter_store::{Order, PAGE_BYTES_MAX, Query};

use crate::bed::{Bed, ORG, draft, indexed, key, on_both, reach, space, unit};

on_both!(
    rows_of_many_bytes_come_page_by_page,
    a_log_of_large_entries_is_read_in_parts,
    the_best_that_a_search_finds_fit_into_a_page,
    facts_and_scans_come_in_parts,
    a_take_hands_out_what_fits,
);

/// A body of a third of a page.
fn large() -> String {
    format!("{{\"text\":\"{}\"}}", "x".repeat(PAGE_BYTES_MAX / 3 - 1_000))
}

async fn shelve(bed: &Bed, id: usize, body: String) {
    let draft = Draft { body, ..indexed("{}", &[("color", "red")]) };
    let writes = vec![Write::Insert { key: key(&format!("{id:02}")), draft }];
    bed.store.commit(unit(writes)).await.unwrap();
}

async fn rows_of_many_bytes_come_page_by_page(bed: Bed) {
    for id in 0..8 {
        shelve(&bed, id, if id < 7 { large() } else { "{}".into() }).await;
    }
    for (query, order) in [
        (Query::all(&reach(), &space()), Order::Newest),
        (Query::all(&reach(), &space()).equal("color", "red"), Order::Oldest),
    ] {
        let mut query = Query { order, ..query.limit(1_000) };
        let (mut seen, mut pages) = (Vec::new(), 0);
        loop {
            let page = bed.store.find(&query).await.unwrap();
            let bytes: usize = page.items.iter().map(|(_, row)| row.body.len()).sum();
            assert!((1..=PAGE_BYTES_MAX).contains(&bytes), "{bytes} in {} rows", page.items.len());
            seen.extend(page.items.into_iter().map(|(key, _)| key.id));
            pages += 1;
            let Some(next) = page.next else { break };
            query.after = Some(next);
        }
        seen.sort();
        assert_eq!(seen, (0..8).map(|id| format!("{id:02}")).collect::<Vec<_>>());
        assert_eq!(pages, 3, "three of them fit");
    }
    // Rows that are left out first take no room.
    let query = Query { offset: 5, order: Order::Oldest, ..Query::all(&reach(), &space()) };
    let page = bed.store.find(&query).await.unwrap();
    assert_eq!((page.items.len(), page.next), (3, None));
}

async fn a_log_of_large_entries_is_read_in_parts(bed: Bed) {
    let log = LogKey { reach: reach(), log: "shelf.history".into() };
    for _ in 0..5 {
        let entry = Write::Append { log: log.clone(), name: "put".into(), payload: large() };
        bed.store.commit(unit(vec![entry])).await.unwrap();
    }
    let first = bed.store.log_read(&log, 0, 1_000).await.unwrap();
    let second = bed.store.log_read(&log, 3, 1_000).await.unwrap();
    let last = |page: &charter_store::LogPage| page.entries.last().map(|entry| entry.sequence);
    assert_eq!((last(&first), first.full), (Some(3), true));
    assert_eq!((last(&second), second.full), (Some(5), false));
    let two = bed.store.log_read(&log, 0, 2).await.unwrap();
    assert_eq!((two.entries.len(), two.full), (2, true));
    let none = bed.store.log_read(&log, 5, 10).await.unwrap();
    assert_eq!((none.entries.len(), none.full), (0, false));
}

async fn the_best_that_a_search_finds_fit_into_a_page(bed: Bed) {
    for id in 0..5 {
        let text = format!("fox {}", "filler ".repeat(id));
        let draft = Draft { body: large(), text: Some(text), ..draft("{}") };
        let write = Write::Insert { key: key(&id.to_string()), draft };
        bed.store.commit(unit(vec![write])).await.unwrap();
    }
    let found = bed.store.search(&reach(), &space(), "fox", 200).await.unwrap();
    assert_eq!(found.len(), 3);
    let two = bed.store.search(&reach(), &space(), "fox", 2).await.unwrap();
    assert_eq!(two[..], found[..2]);
}

async fn facts_and_scans_come_in_parts(bed: Bed) {
    for id in 0..4 {
        shelve(&bed, id, large()).await;
        let fact = Fact {
            id: format!("f{id}"),
            kind: FactKind::Event,
            organization: ORG.into(),
            at: bed.store.now(),
            name: "book.put".into(),
            body: large(),
            private: None,
            user: None,
        };
        bed.store.commit(Unit { facts: vec![fact], ..unit(Vec::new()) }).await.unwrap();
    }
    assert_eq!(bed.store.facts_head_settled(FactKind::Event, ORG).await.unwrap(), 4);
    let facts = async |after| {
        let facts = bed.store.facts(FactKind::Event, ORG, after, 1_000).await.unwrap();
        facts.iter().map(|fact| fact.sequence).collect::<Vec<_>>()
    };
    assert_eq!((facts(0).await, facts(3).await), (vec![1, 2, 3], vec![4]));
    let before = bed.store.facts_before(FactKind::Event, ORG, None, 1_000).await.unwrap();
    assert_eq!(before.iter().map(|fact| fact.sequence).collect::<Vec<_>>(), [4, 3, 2]);
    let first = bed.store.scan(&space(), None, 1_000).await.unwrap();
    let (last, _) = first.last().unwrap();
    let second = bed.store.scan(&space(), Some(last), 1_000).await.unwrap();
    assert_eq!((first.len(), second.len()), (3, 1));
}

async fn a_take_hands_out_what_fits(bed: Bed) {
    let at = bed.store.now();
    for id in 0..8 {
        let lease = Some(("q".to_owned(), at.plus_ms(id)));
        let draft = Draft { lease, body: large(), ..draft("{}") };
        let write = Write::Insert { key: key(&id.to_string()), draft };
        bed.store.commit(unit(vec![write])).await.unwrap();
    }
    bed.clock.forward_ms(100);
    let take = |label: &str| Take {
        reach: Some(reach()),
        space: space(),
        group: "q".into(),
        until: at.plus_ms(30_000),
        tokens: (0..100).map(|n| format!("{label}-{n}")).collect(),
    };
    let mut handed_out = Vec::new();
    for label in ["a", "b", "c", "d"] {
        let takes = Unit { takes: vec![take(label)], ..unit(Vec::new()) };
        let taken = bed.store.commit(takes).await.unwrap().taken.remove(0);
        handed_out.push(taken.len());
    }
    assert_eq!(handed_out, [3, 3, 2, 0]);
}

//! Logs, facts and being woken.

use std::collections::BTreeMap;
use std::time::Duration;

use charter_kernel::time::Instant;
use charter_kernel::unit::{Fact, FactKind, Key, LogKey, Reach, Refused, Space, Unit, Write};
use charter_store::Store;

use crate::bed::{Bed, ORG, draft, insert, key, on_both, reach, space, unit};

on_both!(
    a_log_is_numbered_without_gaps_and_ends_when_closed,
    facts_are_numbered_in_the_order_of_their_commits,
    who_waits_is_woken_by_a_commit,
    caches_learn_of_writes_to_the_hosts_rows,
    events_beyond_their_time_go_and_audit_rows_stay,
    what_a_reach_held_goes_with_it_and_nothing_else,
    what_was_committed_before_is_counted_before,
);

async fn a_log_is_numbered_without_gaps_and_ends_when_closed(bed: Bed) {
    let log = LogKey { reach: reach(), log: "shelf.history".into() };
    let append = |n: usize| {
        unit(vec![Write::Append { log: log.clone(), name: "put".into(), payload: n.to_string() }])
    };
    let mut changed = bed.store.log_changes(&log);
    let all = futures::future::join_all((0..50).map(|n| bed.store.commit(append(n)))).await;
    let mut given: Vec<_> = all.into_iter().map(|answer| answer.unwrap().sequences[0]).collect();
    given.sort_unstable();
    assert_eq!(given, (1..=50).collect::<Vec<_>>());
    changed.wait().await;
    let read = bed.store.log_read(&log, 10, 5).await.unwrap();
    assert_eq!(
        read.entries.iter().map(|entry| entry.sequence).collect::<Vec<_>>(),
        [11, 12, 13, 14, 15]
    );
    bed.store.commit(unit(vec![Write::Close { log: log.clone() }])).await.unwrap();
    let closed = bed.store.commit(append(0)).await.unwrap_err();
    assert_eq!(closed.refusal(), Some(&Refused::LogClosed { log: log.clone() }));
    let head = bed.store.log_head(&log).await.unwrap();
    assert_eq!((head.head, head.closed), (50, true));
}

fn told(organization: &str, id: &str, kind: FactKind) -> Unit {
    let at = Instant(0);
    let fact = Fact {
        id: id.into(),
        kind,
        organization: organization.into(),
        at,
        name: "book.put".into(),
        body: "{}".into(),
        private: None,
        user: None,
    };
    Unit { organization: organization.into(), facts: vec![fact], ..Unit::default() }
}

async fn read_until(
    store: &Store,
    kind: FactKind,
    organization: &str,
    count: u64,
) -> Vec<(u64, String)> {
    let mut changed = store.facts_changes(kind, organization);
    loop {
        let facts = store.facts(kind, organization, 0, 1_000).await.unwrap();
        if facts.len() as u64 >= count {
            assert_eq!(store.facts_head(kind, organization).await.unwrap(), count);
            return facts.into_iter().map(|fact| (fact.sequence, fact.fact.id)).collect();
        }
        tokio::time::timeout(Duration::from_secs(20), changed.wait()).await.unwrap();
    }
}

async fn facts_are_numbered_in_the_order_of_their_commits(bed: Bed) {
    let other = if bed.store.is_shared() { bed.replica().await } else { bed.store.clone() };
    // One after another, on two replicas: who was answered first has the lower number.
    for n in 0..20 {
        let store = if n % 2 == 0 { &bed.store } else { &other };
        store.commit(told(ORG, &format!("{n:03}"), FactKind::Audit)).await.unwrap();
    }
    let facts = read_until(&bed.store, FactKind::Audit, ORG, 20).await;
    assert_eq!(facts, (0..20).map(|n| (n + 1, format!("{n:03}"))).collect::<Vec<_>>());
    // All at once: no number twice, none left out, each organization and kind for itself.
    let many = (0..300).map(|n| {
        let store = if n % 2 == 0 { bed.store.clone() } else { other.clone() };
        async move {
            store
                .commit(told(&format!("org-{}", n % 3), &n.to_string(), FactKind::Event))
                .await
                .unwrap()
        }
    });
    futures::future::join_all(many).await;
    for organization in ["org-0", "org-1", "org-2"] {
        let facts = read_until(&other, FactKind::Event, organization, 100).await;
        let numbers: BTreeMap<_, _> = facts.into_iter().collect();
        assert_eq!(numbers.keys().copied().collect::<Vec<_>>(), (1..=100).collect::<Vec<_>>());
    }
}

async fn who_waits_is_woken_by_a_commit(bed: Bed) {
    let other = if bed.store.is_shared() { bed.replica().await } else { bed.store.clone() };
    for (n, writer) in [&bed.store, &other].into_iter().enumerate() {
        let mut changed = bed.store.space_changes(&reach(), &space());
        let waiting = tokio::spawn(async move {
            changed.wait().await;
            changed
        });
        writer.commit(unit(vec![insert(&n.to_string(), "{}")])).await.unwrap();
        let mut changed =
            tokio::time::timeout(Duration::from_secs(5), waiting).await.unwrap().unwrap();
        // A change between subscribing and waiting is not missed.
        writer.commit(unit(vec![insert(&format!("again-{n}"), "{}")])).await.unwrap();
        tokio::time::timeout(Duration::from_secs(5), changed.wait()).await.unwrap();
    }
}

async fn caches_learn_of_writes_to_the_hosts_rows(bed: Bed) {
    let other = if bed.store.is_shared() { bed.replica().await } else { bed.store.clone() };
    let user = Key::new(&Reach::organization(ORG), &Space::host("users"), "u");
    let mut epoch = other.epoch();
    let before = epoch.borrow_and_update().clone();
    bed.store.commit(unit(vec![insert("a", "{}")])).await.unwrap();
    bed.store
        .commit(unit(vec![Write::Put { key: user.clone(), draft: draft("{}") }]))
        .await
        .unwrap();
    assert_ne!(
        bed.store.epoch().borrow().spaces.get("host.users"),
        None,
        "within the process at once"
    );
    while epoch.borrow_and_update().spaces.get("host.users") == before.spaces.get("host.users") {
        tokio::time::timeout(Duration::from_secs(5), epoch.changed()).await.unwrap().unwrap();
    }
    assert_eq!(
        epoch.borrow().spaces.get("shelf.books"),
        None,
        "a primitive's rows are nobody's cache"
    );
    assert!(other.last_poll_age() < Duration::from_secs(5));
    let quiet = Key::new(&Reach::organization(ORG), &Space::host("idempotency"), "x");
    bed.store.commit(unit(vec![Write::Put { key: quiet, draft: draft("{}") }])).await.unwrap();
    assert_eq!(bed.store.epoch().borrow().spaces.get("host.idempotency"), None);
    assert!(bed.store.get(&key("a")).await.unwrap().is_some());
}

async fn events_beyond_their_time_go_and_audit_rows_stay(bed: Bed) {
    for n in 0..5 {
        for kind in [FactKind::Event, FactKind::Audit] {
            let mut unit = told(ORG, &format!("{n:03}"), kind);
            unit.facts[0].at = Instant(n);
            bed.store.commit(unit).await.unwrap();
        }
    }
    read_until(&bed.store, FactKind::Event, ORG, 5).await;
    read_until(&bed.store, FactKind::Audit, ORG, 5).await;
    assert_eq!(bed.store.forget_events(Instant(3), 2).await.unwrap(), 2, "in steps");
    assert_eq!(bed.store.forget_events(Instant(3), 2).await.unwrap(), 1);
    assert_eq!(bed.store.forget_events(Instant(3), 2).await.unwrap(), 0);
    let left = bed.store.facts(FactKind::Event, ORG, 0, 10).await.unwrap();
    assert_eq!(left.iter().map(|fact| fact.sequence).collect::<Vec<_>>(), [4, 5]);
    assert_eq!(bed.store.facts(FactKind::Audit, ORG, 0, 10).await.unwrap().len(), 5);
    bed.store.commit(told(ORG, "005", FactKind::Event)).await.unwrap();
    let mut changed = bed.store.facts_changes(FactKind::Event, ORG);
    while bed.store.facts_head(FactKind::Event, ORG).await.unwrap() < 6 {
        tokio::time::timeout(Duration::from_secs(20), changed.wait()).await.unwrap();
    }
    let last = bed.store.facts(FactKind::Event, ORG, 5, 10).await.unwrap();
    assert_eq!(
        last.iter().map(|fact| fact.sequence).collect::<Vec<_>>(),
        [6],
        "a sequence is never given again"
    );
}

async fn what_was_committed_before_is_counted_before(bed: Bed) {
    for n in 1..=30 {
        bed.store.commit(told(ORG, &format!("{n:03}"), FactKind::Event)).await.unwrap();
        assert_eq!(bed.store.facts_head_settled(FactKind::Event, ORG).await.unwrap(), n);
    }
    assert_eq!(bed.store.facts_head_settled(FactKind::Audit, ORG).await.unwrap(), 0);
}

async fn what_a_reach_held_goes_with_it_and_nothing_else(bed: Bed) {
    let (gone, stays) = (Reach::user("gone"), Reach::user("stays"));
    // An account, and what it says of itself: the books outlive whom they are about.
    let account = Key::new(&gone, &Space::host("ledger"), "wallet");
    let entries = LogKey { reach: gone.clone(), log: "host.ledger.wallet".into() };
    let books = vec![
        Write::Insert { key: account.clone(), draft: draft("{}") },
        Write::Append { log: entries.clone(), name: "credit".into(), payload: "{}".into() },
    ];
    bed.store.commit(unit(books)).await.unwrap();
    for reach in [&gone, &stays] {
        for n in 0..3 {
            let key = Key::new(reach, &space(), format!("row-{n}"));
            bed.store.commit(unit(vec![Write::Insert { key, draft: draft("{}") }])).await.unwrap();
            let log = LogKey { reach: reach.clone(), log: format!("shelf.log-{n}") };
            let append = Write::Append { log, name: "put".into(), payload: "{}".into() };
            bed.store.commit(unit(vec![append.clone(), append])).await.unwrap();
        }
    }
    let keys = bed.store.reach_keys(&gone, "", 2).await.unwrap();
    assert_eq!(keys.len(), 2, "in steps");
    let keys = bed.store.reach_keys(&gone, "", 10).await.unwrap();
    let removals = keys.into_iter().map(|key| Write::Remove { key, expected: None }).collect();
    bed.store.commit(unit(removals)).await.unwrap();
    assert!(bed.store.reach_keys(&gone, "", 10).await.unwrap().is_empty());
    let mut steps = 0;
    while bed.store.forget_logs(&gone, 4).await.unwrap() {
        steps += 1;
    }
    assert_eq!(steps, 2, "six entries, four at a time");
    for n in 0..3 {
        let log = |reach: &Reach| LogKey { reach: reach.clone(), log: format!("shelf.log-{n}") };
        assert_eq!(bed.store.log_head(&log(&gone)).await.unwrap().head, 0);
        assert_eq!(bed.store.log_read(&log(&stays), 0, 10).await.unwrap().entries.len(), 2);
    }
    assert_eq!(bed.store.reach_keys(&stays, "", 10).await.unwrap().len(), 3);
    assert!(bed.store.get(&account).await.unwrap().is_some());
    assert_eq!(bed.store.log_read(&entries, 0, 10).await.unwrap().entries.len(), 1);
}

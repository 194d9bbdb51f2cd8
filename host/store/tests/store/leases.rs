//! Rows that are handed out: when due, to one holder, who proves it by the token.

use std::collections::BTreeSet;

use charter_kernel::unit::{Guard, Key, Reach, Refused, Space, Take, Unit, Write};
use charter_store::{GroupDue, GroupStanding, GroupsDue, PutOff, Store};

use crate::bed::{Bed, ORG, draft, key, on_both, reach, space, unit};

on_both!(
    a_row_is_handed_out_when_due_earliest_first_and_to_one_holder,
    the_token_is_the_fence,
    what_a_failed_request_took_goes_back_to_its_place,
    fifty_takers_never_get_the_same_row,
    jobs_are_taken_across_all_reaches,
    groups_that_are_due_are_read_page_by_page,
    what_is_put_off_is_read_group_by_group_and_page_by_page,
    the_standing_counts_ready_held_and_waiting,
    a_group_is_purged_in_bounded_steps,
    a_row_is_put_off_while_nobody_holds_it,
    a_clock_that_jumps_hands_nothing_out_twice_and_takes_no_version_back,
);

fn leased(group: &str, due_at: charter_kernel::time::Instant) -> charter_kernel::unit::Draft {
    charter_kernel::unit::Draft { lease: Some((group.into(), due_at)), ..draft("{}") }
}

fn take(store: &Store, group: &str, limit: usize, label: &str) -> Take {
    Take {
        reach: Some(reach()),
        space: space(),
        group: group.into(),
        until: store.now().plus_ms(30_000),
        tokens: (0..limit).map(|n| format!("{label}-{n}")).collect(),
    }
}

async fn fill(bed: &Bed, group: &str, ids: impl Iterator<Item = usize>) {
    let at = bed.store.now();
    let writes = ids.map(|n| Write::Insert {
        key: key(&format!("{n:05}")),
        draft: leased(group, at.plus_ms(n as i64)),
    });
    bed.store.commit(unit(writes.collect())).await.unwrap();
}

async fn taken(store: &Store, take: Take) -> Vec<charter_kernel::unit::Taken> {
    let unit = Unit { organization: ORG.into(), takes: vec![take], ..Unit::default() };
    store.commit(unit).await.unwrap().taken.remove(0)
}

async fn a_row_is_handed_out_when_due_earliest_first_and_to_one_holder(bed: Bed) {
    fill(&bed, "q", 0..10).await;
    assert_eq!(taken(&bed.store, take(&bed.store, "other", 5, "x")).await, vec![]);
    bed.clock.forward_ms(3);
    let first = taken(&bed.store, take(&bed.store, "q", 3, "a")).await;
    assert_eq!(
        first.iter().map(|t| t.key.id.as_str()).collect::<Vec<_>>(),
        ["00000", "00001", "00002"]
    );
    assert!(first.iter().all(|t| t.row.lease.as_ref().unwrap().count == 1));
    let rest = taken(&bed.store, take(&bed.store, "q", 9, "b")).await;
    assert_eq!(
        rest.iter().map(|t| t.key.id.as_str()).collect::<Vec<_>>(),
        ["00003"],
        "the others are not due"
    );
    bed.clock.forward_ms(60_000);
    let again = taken(&bed.store, take(&bed.store, "q", 99, "c")).await;
    assert_eq!(again.len(), 10, "leases that ended are handed out again");
    assert_eq!(again.iter().filter(|t| t.row.lease.as_ref().unwrap().count == 2).count(), 4);
}

async fn the_token_is_the_fence(bed: Bed) {
    fill(&bed, "q", 0..1).await;
    let old = taken(&bed.store, take(&bed.store, "q", 1, "old")).await.remove(0);
    bed.clock.forward_ms(60_000);
    let new = taken(&bed.store, take(&bed.store, "q", 1, "new")).await.remove(0);
    assert_eq!(old.key, new.key);
    let lost = |result: Result<_, charter_store::CommitError>| {
        let error = result.map(|_: charter_kernel::unit::Applied| ()).unwrap_err();
        assert_eq!(error.refusal(), Some(&Refused::LeaseLost { key: new.key.clone() }));
    };
    let (k, token, at) = (new.key.clone(), old.token.clone(), bed.store.now());
    lost(
        bed.store.commit(unit(vec![Write::Settle { key: k.clone(), token: token.clone() }])).await,
    );
    lost(
        bed.store
            .commit(unit(vec![Write::Extend { key: k.clone(), token: token.clone(), until: at }]))
            .await,
    );
    let release = Write::Release { key: k.clone(), token: token.clone(), due_at: at, undo: false };
    lost(bed.store.commit(unit(vec![release])).await);
    let fenced = |token: &str, id: &str| Unit {
        guards: vec![Guard::Lease { key: k.clone(), token: token.into() }],
        ..unit(vec![Write::Insert {
            key: Key::new(&reach(), &Space::of("shelf", "marks"), id),
            draft: draft("{}"),
        }])
    };
    lost(bed.store.commit(fenced(&token, "a")).await);
    bed.store.commit(fenced(&new.token, "b")).await.unwrap();
    bed.store
        .commit(unit(vec![Write::Settle { key: k.clone(), token: new.token.clone() }]))
        .await
        .unwrap();
    assert_eq!(bed.store.get(&k).await.unwrap(), None);
}

async fn what_a_failed_request_took_goes_back_to_its_place(bed: Bed) {
    fill(&bed, "q", 0..3).await;
    bed.clock.forward_ms(10);
    let mut txn = bed.store.begin(ORG);
    assert_eq!(txn.take(take(&bed.store, "q", 1, "a")).await.unwrap()[0].key.id, "00000");
    txn.abandon().await.unwrap();
    let again = taken(&bed.store, take(&bed.store, "q", 1, "b")).await;
    assert_eq!(again[0].key.id, "00000", "it did not lose its place");
    assert_eq!(again[0].row.lease.as_ref().unwrap().count, 1, "the hand-out did not count");
}

async fn fifty_takers_never_get_the_same_row(bed: Bed) {
    fill(&bed, "q", 0..300).await;
    bed.clock.forward_ms(1_000);
    // On PostgreSQL two committers, each with two lanes.
    let other = if bed.store.is_shared() { bed.replica().await } else { bed.store.clone() };
    let takers = (0..50).map(|n| {
        let store = if n % 2 == 0 { bed.store.clone() } else { other.clone() };
        tokio::spawn(async move {
            let mut got = Vec::new();
            loop {
                let more = taken(&store, take(&store, "q", 4, &format!("{n}-{}", got.len()))).await;
                if more.is_empty() {
                    return got;
                }
                got.extend(more.into_iter().map(|t| t.key.id));
            }
        })
    });
    let mut all = Vec::new();
    for taker in takers.collect::<Vec<_>>() {
        all.extend(taker.await.unwrap());
    }
    // Rows that another committer held at that moment are passed over; they come with the next
    // take.
    all.extend(
        taken(&bed.store, take(&bed.store, "q", 300, "rest")).await.into_iter().map(|t| t.key.id),
    );
    assert_eq!(all.len(), 300);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 300, "a row was handed out twice");
}

async fn jobs_are_taken_across_all_reaches(bed: Bed) {
    let jobs = Space::host("jobs");
    for user in ["a", "b", "c"] {
        let key = Key::new(&Reach::user(user), &jobs, user);
        let insert = Write::Insert { key, draft: leased("mail", bed.store.now()) };
        bed.store
            .commit(Unit { organization: user.into(), writes: vec![insert], ..Unit::default() })
            .await
            .unwrap();
    }
    let page = bed.store.groups_due(&jobs, ("", None), 10).await.unwrap();
    let names = page.due.iter().map(|group| &*group.name);
    assert_eq!((names.collect::<Vec<_>>(), page.next, page.last), (vec!["mail"], None, None));
    let reach = &page.due[0].reach;
    assert!(["a", "b", "c"].map(Reach::user).contains(reach), "{reach:?}");
    let all = Take { reach: None, space: jobs.clone(), ..take(&bed.store, "mail", 5, "t") };
    let got = taken(&bed.store, all).await;
    assert_eq!(got.len(), 3);
    let settle = Write::Settle { key: got[0].key.clone(), token: got[0].token.clone() };
    bed.store.commit(unit(vec![settle])).await.unwrap();
}

async fn groups_that_are_due_are_read_page_by_page(bed: Bed) {
    let (jobs, now) = (Space::host("jobs"), bed.store.now());
    let groups = [("a", -3), ("b", 60_000), ("c", -1), ("d", 30_000), ("e", 0)];
    let write = |(group, in_ms): (&str, i64)| Write::Insert {
        key: Key::new(&Reach::organization(group), &jobs, group),
        draft: leased(group, now.plus_ms(in_ms)),
    };
    let writes = groups.into_iter().map(write).collect();
    bed.store.commit(Unit { writes, ..Unit::default() }).await.unwrap();
    let due = |name: &str, in_ms| GroupDue {
        name: name.to_owned(),
        due: now.plus_ms(in_ms),
        reach: Reach::organization(name),
    };
    let page =
        async |after, limit| bed.store.groups_due(&jobs, (after, None), limit).await.unwrap();
    let first = GroupsDue {
        due: vec![due("a", -3)],
        next: Some(now.plus_ms(60_000)),
        last: Some("b".to_owned()),
    };
    assert_eq!(page("", 2).await, first);
    let last = GroupsDue {
        due: vec![due("c", -1), due("e", 0)],
        next: Some(now.plus_ms(30_000)),
        last: None,
    };
    assert_eq!(page("b", 10).await, last);
    assert_eq!(page("e", 1).await, GroupsDue::default());
    let within = bed.store.groups_due(&jobs, ("a", Some("d")), 10).await.unwrap();
    assert_eq!((within.due, within.last), (vec![due("c", -1)], None));
}

async fn what_is_put_off_is_read_group_by_group_and_page_by_page(bed: Bed) {
    let (jobs, now) = (Space::host("jobs"), bed.store.now());
    let rows = [("a", "1", 10), ("b", "1", 20), ("b", "2", 20), ("b", "3", 5), ("b", "4", 30)];
    let write = |(group, id, in_ms): (&str, &str, i64)| Write::Insert {
        key: Key::new(&Reach::organization(group), &jobs, id),
        draft: leased(group, now.plus_ms(in_ms)),
    };
    let mut writes: Vec<_> = rows.into_iter().map(write).collect();
    let same = Key::new(&Reach::organization("c"), &jobs, "1");
    writes.push(Write::Insert { key: same, draft: leased("b", now.plus_ms(20)) });
    let never = Key::new(&Reach::organization("b"), &jobs, "never");
    let draft = leased("b", charter_kernel::time::Instant(i64::MAX));
    writes.push(Write::Insert { key: never, draft });
    bed.store.commit(Unit { writes, ..Unit::default() }).await.unwrap();
    assert_eq!(bed.store.groups_after(&jobs, "", 1).await.unwrap(), ["a"]);
    assert_eq!(bed.store.groups_after(&jobs, "a", 9).await.unwrap(), ["b"]);
    assert!(bed.store.groups_after(&jobs, "b", 9).await.unwrap().is_empty());
    let wanted = PutOff { beyond: now.plus_ms(5), inserted_after: now.plus_ms(-1) };
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = bed.store.put_off((&jobs, "b"), wanted, after.as_ref(), 2).await.unwrap();
        let Some((key, row)) = page.last() else { break };
        after = Some((row.lease.as_ref().unwrap().due_at, key.clone()));
        found.extend(page.into_iter().map(|(key, _)| format!("{}/{}", key.reach.as_str(), key.id)));
    }
    assert_eq!(found, ["o/b/1", "o/c/1", "o/b/2", "o/b/4"]);
    let later = PutOff { inserted_after: now, ..wanted };
    assert!(bed.store.put_off((&jobs, "b"), later, None, 9).await.unwrap().is_empty());
}

async fn the_standing_counts_ready_held_and_waiting(bed: Bed) {
    let standing = async || bed.store.standing(&reach(), &space(), "q").await.unwrap();
    assert_eq!(standing().await, GroupStanding::default());
    let begun = bed.store.now();
    fill(&bed, "q", 0..10).await;
    bed.clock.forward_ms(4);
    let now = standing().await;
    assert_eq!((now.ready, now.held, now.waiting, now.oldest), (5, 0, 5, Some(begun)));
    let got = taken(&bed.store, take(&bed.store, "q", 2, "t")).await;
    let now = standing().await;
    assert_eq!((now.ready, now.held, now.waiting), (3, 2, 5));
    bed.store
        .commit(unit(vec![Write::Settle { key: got[0].key.clone(), token: got[0].token.clone() }]))
        .await
        .unwrap();
    bed.clock.forward_ms(60_000);
    let now = standing().await;
    assert_eq!((now.ready, now.held, now.waiting), (9, 0, 0), "a lease that ended is ready again");
}

async fn a_group_is_purged_in_bounded_steps(bed: Bed) {
    fill(&bed, "q", 0..25).await;
    let mut steps = 0;
    loop {
        let mut txn = bed.store.begin(ORG);
        let more = txn.purge(&reach(), &space(), "q", 10).await.unwrap();
        txn.commit().await.unwrap();
        steps += 1;
        if !more {
            break;
        }
    }
    assert_eq!(steps, 3);
    assert_eq!(
        bed.store.standing(&reach(), &space(), "q").await.unwrap(),
        GroupStanding::default()
    );
}

async fn a_row_is_put_off_while_nobody_holds_it(bed: Bed) {
    fill(&bed, "q", 0..2).await;
    bed.clock.forward_ms(5);
    let defer = |id: &str| {
        unit(vec![Write::Defer { key: key(id), due_at: bed.store.now().plus_ms(1_000) }])
    };
    bed.store.commit(defer("00000")).await.unwrap();
    let got = taken(&bed.store, take(&bed.store, "q", 2, "t")).await;
    assert_eq!(got.iter().map(|t| t.key.id.as_str()).collect::<Vec<_>>(), ["00001"]);
    let held = bed.store.commit(defer("00001")).await.unwrap_err();
    assert!(matches!(held.refusal(), Some(Refused::LeaseLost { .. })));
}

async fn a_clock_that_jumps_hands_nothing_out_twice_and_takes_no_version_back(bed: Bed) {
    const HOUR_MS: i64 = 3_600_000;
    fill(&bed, "q", 0..2).await;
    bed.clock.forward_ms(10);
    let held = taken(&bed.store, take(&bed.store, "q", 2, "before")).await;
    assert_eq!(held.len(), 2);
    bed.clock.forward_ms(-HOUR_MS);
    assert_eq!(
        taken(&bed.store, take(&bed.store, "q", 2, "back")).await,
        vec![],
        "what is held stays held in the past"
    );
    // A row written in the past is the newer version all the same, and no row grows younger.
    let row = key("plain");
    bed.clock.forward_ms(HOUR_MS);
    bed.store
        .commit(unit(vec![Write::Put { key: row.clone(), draft: draft("{\"n\":1}") }]))
        .await
        .unwrap();
    let first = bed.store.get(&row).await.unwrap().unwrap();
    bed.clock.forward_ms(-HOUR_MS);
    bed.store
        .commit(unit(vec![Write::Put { key: row.clone(), draft: draft("{\"n\":2}") }]))
        .await
        .unwrap();
    let second = bed.store.get(&row).await.unwrap().unwrap();
    assert_eq!((second.version, second.body.as_str()), (first.version + 1, "{\"n\":2}"));
    assert!(second.updated_at >= first.updated_at, "{second:?} after {first:?}");
    // A jump ahead ends every lease, and ended leases commit nothing.
    bed.clock.forward_ms(24 * HOUR_MS);
    let again = taken(&bed.store, take(&bed.store, "q", 2, "ahead")).await;
    assert_eq!(again.len(), 2);
    for old in held {
        let settle = bed
            .store
            .commit(unit(vec![Write::Settle { key: old.key.clone(), token: old.token }]))
            .await;
        assert_eq!(settle.unwrap_err().refusal(), Some(&Refused::LeaseLost { key: old.key }));
    }
}

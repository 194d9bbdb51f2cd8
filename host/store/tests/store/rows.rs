//! Rows, claims and what a unit promises about them.

use charter_kernel::unit::{Claim, Guard, Key, Reach, Refused, Rejection, Space, Write};
use charter_store::{CommitError, Query, WriteError};

use crate::bed::{Bed, ORG, draft, indexed, insert, key, on_both, reach, space, unit};

on_both!(
    a_row_is_written_changed_and_removed,
    a_unit_is_all_or_nothing,
    what_was_read_must_still_hold,
    a_row_that_was_removed_and_inserted_anew_is_not_the_one_that_was_read,
    a_search_is_validated_by_the_revision_and_a_relaxed_one_is_not,
    unique_values_belong_to_one_row,
    a_value_whose_holder_goes_while_it_is_looked_up_is_asked_for_again,
    a_name_is_claimed_once_and_goes_with_its_row,
    additions_do_not_conflict,
    a_unit_that_is_too_large_is_refused_before_it_is_queued,
    own_writes_are_seen_before_the_commit,
    the_times_of_a_row_are_those_that_its_writer_was_told,
    a_guarded_entry_refuses_the_unit_once_it_is_gone,
    a_guard_on_an_absent_row_and_claim_lets_the_unit_pass_and_leaves_no_trace,
);

async fn a_row_is_written_changed_and_removed(bed: Bed) {
    let mut txn = bed.store.begin(ORG);
    txn.insert(key("a"), indexed(r#"{"n":1}"#, &[("color", "red")])).await.unwrap();
    let applied = txn.commit().await.unwrap();
    assert_eq!(applied.versions, vec![(key("a"), 1)]);
    bed.clock.forward_ms(5);
    let mut txn = bed.store.begin(ORG);
    let row = txn.get(&key("a")).await.unwrap().unwrap();
    assert_eq!((row.version, row.body.as_str()), (1, r#"{"n":1}"#));
    txn.replace(key("a"), indexed(r#"{"n":2}"#, &[("color", "blue")]), Some(1)).await.unwrap();
    txn.commit().await.unwrap();
    let row = bed.store.get(&key("a")).await.unwrap().unwrap();
    assert_eq!((row.version, row.body.as_str()), (2, r#"{"n":2}"#));
    assert_eq!(row.updated_at.0 - row.created_at.0, 5);
    assert_eq!(row.index, vec![("color".into(), "blue".into())]);
    let red = Query::all(&reach(), &space()).equal("color", "red");
    let blue = Query::all(&reach(), &space()).equal("color", "blue");
    assert_eq!(bed.store.count(&red).await.unwrap(), 0);
    assert_eq!(bed.store.find(&blue).await.unwrap().items.len(), 1);
    let mut txn = bed.store.begin(ORG);
    assert!(txn.remove(&key("a"), None).await.unwrap());
    txn.commit().await.unwrap();
    assert_eq!(bed.store.get(&key("a")).await.unwrap(), None);
    assert_eq!(bed.store.count(&blue).await.unwrap(), 0, "the index forgets what the table does");
}

async fn a_unit_is_all_or_nothing(bed: Bed) {
    bed.store.commit(unit(vec![insert("a", "{}")])).await.unwrap();
    let refused =
        bed.store.commit(unit(vec![insert("b", "{}"), insert("a", "{}")])).await.unwrap_err();
    assert_eq!(refused.refusal(), Some(&Refused::Exists { key: key("a") }));
    assert_eq!(bed.store.get(&key("b")).await.unwrap(), None);
}

async fn what_was_read_must_still_hold(bed: Bed) {
    bed.store.commit(unit(vec![insert("a", r#"{"refunded":0}"#)])).await.unwrap();
    let mut one = bed.store.begin(ORG);
    let mut two = bed.store.begin(ORG);
    // Both see "refunded 0" and want to refund: without the guard both would.
    for txn in [&mut one, &mut two] {
        assert!(txn.get(&key("a")).await.unwrap().unwrap().body.contains(":0"));
        txn.replace(key("a"), draft(r#"{"refunded":1}"#), None).await.unwrap();
    }
    one.commit().await.unwrap();
    let lost = two.commit().await.unwrap_err();
    assert_eq!(lost, CommitError::Rejected(Rejection::Conflict { keys: vec![key("a")] }));
    // A row that was read as absent too.
    let mut three = bed.store.begin(ORG);
    assert_eq!(three.get(&key("c")).await.unwrap(), None);
    three.insert(key("d"), draft("{}")).await.unwrap();
    bed.store.commit(unit(vec![insert("c", "{}")])).await.unwrap();
    assert!(three.commit().await.unwrap_err().is_conflict());
}

async fn a_row_that_was_removed_and_inserted_anew_is_not_the_one_that_was_read(bed: Bed) {
    bed.store.commit(unit(vec![insert("a", r#"{"n":1}"#)])).await.unwrap();
    let mut reader = bed.store.begin(ORG);
    assert_eq!(reader.get(&key("a")).await.unwrap().unwrap().version, 1);
    reader.insert(key("b"), draft("{}")).await.unwrap();
    bed.store.commit(unit(vec![Write::Remove { key: key("a"), expected: None }])).await.unwrap();
    bed.store.commit(unit(vec![insert("a", r#"{"n":2}"#)])).await.unwrap();
    assert_eq!(bed.store.get(&key("a")).await.unwrap().unwrap().version, 1);
    assert!(reader.commit().await.unwrap_err().is_conflict());
}

async fn a_search_is_validated_by_the_revision_and_a_relaxed_one_is_not(bed: Bed) {
    for relaxed in [false, true] {
        let query = Query { relaxed, ..Query::all(&reach(), &space()) };
        let mut txn = bed.store.begin(ORG);
        txn.find(&query).await.unwrap();
        txn.insert(
            Key::new(&reach(), &Space::of("shelf", "marks"), format!("{relaxed}")),
            draft("{}"),
        )
        .await
        .unwrap();
        bed.store.commit(unit(vec![insert(&format!("new-{relaxed}"), "{}")])).await.unwrap();
        assert_eq!(txn.commit().await.is_ok(), relaxed);
        let mut txn = bed.store.begin(ORG);
        txn.count(&query).await.unwrap();
        txn.insert(
            Key::new(&reach(), &Space::of("shelf", "marks"), format!("count-{relaxed}")),
            draft("{}"),
        )
        .await
        .unwrap();
        bed.store
            .commit(unit(vec![Write::Add { key: key("new-false"), field: "n".into(), amount: 1 }]))
            .await
            .unwrap();
        assert_eq!(
            txn.commit().await.is_ok(),
            relaxed,
            "every write bumps the revision, an addition too"
        );
    }
}

async fn a_value_whose_holder_goes_while_it_is_looked_up_is_asked_for_again(bed: Bed) {
    let held =
        || charter_kernel::unit::Draft { unique: vec![("isbn".into(), "1".into())], ..draft("{}") };
    bed.store.commit(unit(vec![Write::Insert { key: key("a"), draft: held() }])).await.unwrap();
    let claim = Claim::unique(&reach(), &space(), "isbn", "1");
    let mut txn = bed.store.begin(ORG);
    assert_eq!(txn.lookup(&claim).await.unwrap(), Some(key("a")));
    let gone = Write::Remove { key: key("a"), expected: None };
    bed.store.commit(unit(vec![gone])).await.unwrap();
    assert!(txn.get(&key("a")).await.unwrap().is_none());
    // It saw nobody have the value: to be refused for it now would be two answers to one question.
    txn.insert(key("b"), held()).await.unwrap();
    assert!(txn.commit().await.is_err_and(|error| error.is_conflict()));
    let mut again = bed.store.begin(ORG);
    again.insert(key("b"), held()).await.unwrap();
    again.commit().await.unwrap();
}

async fn unique_values_belong_to_one_row(bed: Bed) {
    let with = |value: &str| charter_kernel::unit::Draft {
        unique: vec![("isbn".into(), value.into())],
        ..draft("{}")
    };
    let mut txn = bed.store.begin(ORG);
    txn.insert(key("a"), with("1")).await.unwrap();
    txn.commit().await.unwrap();
    let claim = Claim::unique(&reach(), &space(), "isbn", "1");
    assert_eq!(bed.store.lookup(&claim).await.unwrap(), Some(key("a")));
    // Seen early, so that the caller can word it.
    let mut txn = bed.store.begin(ORG);
    let early = txn.insert(key("b"), with("1")).await.unwrap_err();
    assert!(matches!(early, WriteError::Refused(Refused::ClaimLost { .. })));
    // Seen free and lost meanwhile: no refusal by what this transaction did not see, but a
    // conflict, so that it is run again.
    let mut txn = bed.store.begin(ORG);
    assert_eq!(txn.lookup(&Claim::unique(&reach(), &space(), "isbn", "9")).await.unwrap(), None);
    bed.store.commit(unit(vec![Write::Insert { key: key("c"), draft: with("9") }])).await.unwrap();
    txn.insert(key("d"), with("9")).await.unwrap();
    assert_eq!(txn.commit().await.unwrap_err().refusal(), None);
    // And in any case at the commit.
    let blind = Write::Insert { key: key("b"), draft: with("1") };
    let late = bed.store.commit(unit(vec![blind.clone()])).await.unwrap_err();
    assert_eq!(
        late.refusal(),
        Some(&Refused::ClaimLost { claim: claim.clone(), holder: key("a") })
    );
    // Freed and taken within one unit, and by removal.
    let moved = unit(vec![Write::Put { key: key("a"), draft: with("2") }, blind]);
    bed.store.commit(moved).await.unwrap();
    assert_eq!(bed.store.lookup(&claim).await.unwrap(), Some(key("b")));
    bed.store.commit(unit(vec![Write::Remove { key: key("b"), expected: None }])).await.unwrap();
    assert_eq!(bed.store.lookup(&claim).await.unwrap(), None);
}

async fn a_name_is_claimed_once_and_goes_with_its_row(bed: Bed) {
    let claim = Claim::name("domain", "example.org");
    let mut txn = bed.store.begin(ORG);
    txn.insert(key("a"), draft("{}")).await.unwrap();
    assert!(txn.claim(&claim, &key("a")).await.unwrap());
    txn.commit().await.unwrap();
    let mut txn = bed.store.begin("org_b");
    assert!(!txn.claim(&claim, &key("b")).await.unwrap(), "another organization's row holds it");
    let taken =
        unit(vec![insert("b", "{}"), Write::Claim { claim: claim.clone(), holder: key("b") }]);
    assert!(matches!(
        bed.store.commit(taken).await.unwrap_err().refusal(),
        Some(Refused::ClaimLost { .. })
    ));
    let nobody = unit(vec![Write::Claim {
        claim: Claim::name("domain", "other.org"),
        holder: key("nobody"),
    }]);
    assert!(matches!(
        bed.store.commit(nobody).await.unwrap_err().refusal(),
        Some(Refused::Missing { .. })
    ));
    bed.store.commit(unit(vec![Write::Remove { key: key("a"), expected: None }])).await.unwrap();
    assert_eq!(bed.store.lookup(&claim).await.unwrap(), None);
}

async fn additions_do_not_conflict(bed: Bed) {
    bed.store.commit(unit(vec![insert("a", r#"{"x":"kept","n":1}"#)])).await.unwrap();
    let add = |amount| unit(vec![Write::Add { key: key("a"), field: "n".into(), amount }]);
    let all = futures::future::join_all((0..100).map(|_| bed.store.commit(add(2)))).await;
    assert!(all.iter().all(Result::is_ok));
    let row = bed.store.get(&key("a")).await.unwrap().unwrap();
    assert_eq!((row.body.as_str(), row.version), (r#"{"x":"kept","n":201}"#, 101));
    let refused = bed
        .store
        .commit(unit(vec![Write::Add { key: key("a"), field: "x".into(), amount: 1 }]))
        .await
        .unwrap_err();
    assert!(matches!(refused.refusal(), Some(Refused::NotAddable { .. })));
}

async fn a_unit_that_is_too_large_is_refused_before_it_is_queued(bed: Bed) {
    let refusal = async |writes| match bed.store.commit(unit(writes)).await {
        Err(CommitError::Rejected(Rejection::Refused(Refused::TooLarge { limit }))) => limit,
        other => panic!("{other:?}"),
    };
    let many = (0..1_001).map(|n| insert(&n.to_string(), "{}")).collect();
    assert!(refusal(many).await.contains("rows"));
    assert!(
        refusal(vec![insert("a", &format!("\"{}\"", "x".repeat(4 * 1024 * 1024)))])
            .await
            .contains("MiB")
    );
    assert!(refusal(vec![insert(&"k".repeat(513), "{}")]).await.contains("512"));
    assert!(refusal(vec![insert("a\0b", "{}")]).await.contains("NUL"));
    assert!(refusal(vec![insert("", "{}")]).await.contains("1 to"));
    let most = (0..1_000).map(|n| insert(&n.to_string(), "{}")).collect();
    bed.store.commit(unit(most)).await.unwrap();
    bed.store
        .commit(unit(vec![insert(&"k".repeat(512), r#""\u0000 and ' and \" and 日本""#)]))
        .await
        .unwrap();
    let row = bed.store.get(&key(&"k".repeat(512))).await.unwrap().unwrap();
    assert_eq!(row.body, r#""\u0000 and ' and \" and 日本""#);
}

async fn own_writes_are_seen_before_the_commit(bed: Bed) {
    bed.store.commit(unit(vec![insert("a", r#"{"n":1}"#)])).await.unwrap();
    let mut txn = bed.store.begin(ORG);
    txn.add(&key("a"), "n", 4).unwrap();
    assert_eq!(txn.get(&key("a")).await.unwrap().unwrap().body, r#"{"n":5}"#);
    txn.insert(key("b"), draft("{}")).await.unwrap();
    assert!(txn.get(&key("b")).await.unwrap().is_some());
    assert!(txn.remove(&key("b"), None).await.unwrap());
    assert!(txn.get(&key("b")).await.unwrap().is_none());
    assert!(bed.store.get(&key("b")).await.unwrap().is_none(), "nobody else sees them");
    txn.checkpoint().await.unwrap();
    assert_eq!(bed.store.get(&key("a")).await.unwrap().unwrap().body, r#"{"n":5}"#);
    drop(txn);
}

async fn a_guarded_entry_refuses_the_unit_once_it_is_gone(bed: Bed) {
    let user = Key::new(&Reach::organization(ORG), &Space::host("users"), "u");
    let status = |status: &str| indexed("{}", &[("status", status)]);
    bed.store
        .commit(unit(vec![Write::Insert { key: user.clone(), draft: status("active") }]))
        .await
        .unwrap();
    let guarded = |id: &str| {
        let guard =
            Guard::Entry { key: user.clone(), field: "status".into(), value: "active".into() };
        charter_kernel::unit::Unit { guards: vec![guard], ..unit(vec![insert(id, "{}")]) }
    };
    bed.store.commit(guarded("a")).await.unwrap();
    bed.store
        .commit(unit(vec![Write::Put { key: user.clone(), draft: status("revoked") }]))
        .await
        .unwrap();
    let refused = bed.store.commit(guarded("b")).await.unwrap_err();
    assert_eq!(
        refused.refusal(),
        Some(&Refused::Inactive { key: user.clone(), field: "status".into() })
    );
}

async fn a_guard_on_an_absent_row_and_claim_lets_the_unit_pass_and_leaves_no_trace(bed: Bed) {
    let mut txn = bed.store.begin(ORG);
    let claim = Claim::name("domain", "example.org");
    assert_eq!(txn.get(&key("absent")).await.unwrap(), None);
    assert_eq!(txn.lookup(&claim).await.unwrap(), None);
    txn.insert(key("a"), draft("{}")).await.unwrap();
    txn.commit().await.unwrap();
    assert_eq!(bed.store.get(&key("absent")).await.unwrap(), None);
    assert_eq!(bed.store.lookup(&claim).await.unwrap(), None);
    assert_eq!(bed.store.count(&Query::all(&reach(), &space())).await.unwrap(), 1);
}

async fn the_times_of_a_row_are_those_that_its_writer_was_told(bed: Bed) {
    let mut txn = bed.store.begin(ORG);
    let told = txn.insert(key("a"), draft("{}")).await.unwrap();
    bed.clock.forward_ms(700);
    txn.commit().await.unwrap();
    let read = bed.store.get(&key("a")).await.unwrap().unwrap();
    assert_eq!((read.created_at, read.updated_at), (told.created_at, told.updated_at));
    // One begins before another's write and commits behind it: no row's time goes back.
    let mut early = bed.store.begin(ORG);
    bed.clock.forward_ms(5);
    let mut late = bed.store.begin(ORG);
    let later = late.replace(key("a"), draft("{}"), None).await.unwrap();
    late.commit().await.unwrap();
    let told = early.replace(key("a"), draft("{}"), None).await.unwrap();
    early.commit().await.unwrap();
    let read = bed.store.get(&key("a")).await.unwrap().unwrap();
    assert_eq!((told.updated_at, read.updated_at), (later.updated_at, later.updated_at));
    assert!(read.updated_at > read.created_at);
    // A checkpoint begins anew.
    let mut txn = bed.store.begin(ORG);
    txn.insert(key("b"), draft("{}")).await.unwrap();
    bed.clock.forward_ms(100);
    txn.checkpoint().await.unwrap();
    let second = txn.insert(key("c"), draft("{}")).await.unwrap();
    txn.commit().await.unwrap();
    assert_eq!(bed.store.get(&key("c")).await.unwrap().unwrap().created_at, second.created_at);
    assert!(bed.store.get(&key("b")).await.unwrap().unwrap().created_at < second.created_at);
}

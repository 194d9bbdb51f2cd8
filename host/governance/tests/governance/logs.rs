//! The audit log as a tree: checkpoints that are signed as rows come, proofs against them, and the
//! tiles that save deriving them.

use charter_governance::audit::{Log, check, commit_alone};
use charter_kernel::audit::AuditRow;
use charter_kernel::merkle::{self, Hash};
use charter_kernel::note::Checkpoint;
use charter_kernel::unit::{FactKind, Key, Reach, Space, Unit};
use charter_store::{Query, Store, audit_fact};
use futures::future::join_all;

use crate::bed::{Bed, on_both};
use crate::words::{id, leave, organization_reach};

on_both!(
    a_checkpoint_is_of_all_rows_and_signed_once,
    every_row_is_proved_to_be_in_every_checkpoint,
    hosts_that_seal_at_once_sign_one_tree,
    what_is_kept_is_derived_anew_where_it_is_gone,
    logs_are_kept_apart,
);

/// Adds so many rows about the user.
pub async fn add(store: &Store, organization: &str, count: usize) {
    let fact = |n: usize| {
        let entity = format!("note-{n}");
        let user = id(3);
        let row = AuditRow {
            organization,
            at: store.now(),
            actor: ("key", "k"),
            on_behalf_of: Some(&user),
            action: "notes.write",
            entity_id: Some(&entity),
            decision: "allowed",
            request: "r",
            ..AuditRow::default()
        };
        audit_fact(&row).unwrap()
    };
    for from in (0..count).step_by(250) {
        let facts = (from..count.min(from + 250)).map(fact).collect();
        let unit = Unit { organization: organization.into(), facts, ..Unit::default() };
        store.commit(unit).await.unwrap();
    }
    store.facts_head_settled(FactKind::Audit, organization).await.unwrap();
}

fn log(bed: &Bed) -> Log {
    Log::of(bed.store(), &id(1))
}

/// The checkpoint that a note signs.
fn read(log: &Log, note: &str) -> Checkpoint {
    check::checkpoint(note, &log.verifier()).unwrap()
}

/// The hashes of all rows.
async fn leaves(bed: &Bed) -> Vec<Hash> {
    let (mut all, mut after) = (Vec::new(), 0);
    loop {
        let rows = bed.store().facts(FactKind::Audit, &id(1), after, 1_000).await.unwrap();
        let Some(last) = rows.last() else { return all };
        after = last.sequence;
        all.extend(rows.iter().map(|row| merkle::leaf(row.fact.body.as_bytes())));
    }
}

async fn a_checkpoint_is_of_all_rows_and_signed_once(bed: Bed) {
    let log = log(&bed);
    let empty = log.checkpoint().await.unwrap();
    assert_eq!(read(&log, &empty.note).size, 0);
    assert!(log.latest().await.unwrap().is_none(), "of nothing nothing is kept");
    add(bed.store(), &id(1), 3).await;
    let first = log.checkpoint().await.unwrap();
    bed.clock.forward_ms(1_000);
    let same = log.checkpoint().await.unwrap();
    assert_eq!((same.size, same.at, &same.note), (3, first.at, &first.note));
    add(bed.store(), &id(1), 2).await;
    let second = log.checkpoint().await.unwrap();
    assert_eq!((second.size, second.at), (5, bed.now()));
    let sizes: Vec<u64> = log.newest(10).await.unwrap().iter().map(|kept| kept.size).collect();
    assert_eq!(sizes, [5, 3]);
    assert_eq!(log.checkpoint_at(3).await.unwrap().note, first.note);
    let refusal = log.checkpoint_at(4).await.unwrap_err();
    assert_eq!(
        (refusal.code.own_name(), &refusal.details["size"]),
        ("resource_not_found", &4.into())
    );
}

async fn every_row_is_proved_to_be_in_every_checkpoint(bed: Bed) {
    let log = log(&bed);
    let mut sealed = Vec::new();
    // Below, at and beyond a tile's 256 rows, and a step beyond the next one.
    for more in [1, 254, 1, 1, 43, 220] {
        add(bed.store(), &id(1), more).await;
        let checkpoint = log.checkpoint().await.unwrap();
        sealed.push(read(&log, &checkpoint.note));
    }
    let sizes: Vec<u64> = sealed.iter().map(|checkpoint| checkpoint.size).collect();
    assert_eq!(sizes, [1, 255, 256, 257, 300, 520]);
    let leaves = leaves(&bed).await;
    for checkpoint in &sealed {
        for index in [0, 1, 127, 254, 255, 256, 299, 519] {
            let Some(leaf) = leaves.get(index).filter(|_| (index as u64) < checkpoint.size) else {
                continue;
            };
            let index = index as u64;
            let proof = log.proof(&merkle::inclusion(index, checkpoint.size)).await.unwrap();
            let (size, root) = (checkpoint.size, &checkpoint.root);
            assert!(merkle::includes(leaf, index, size, &proof, root), "{index} of {size}");
            let other = merkle::leaf(b"{}");
            assert!(!merkle::includes(&other, index, size, &proof, root), "{index} of {size}");
        }
        for newer in sealed.iter().filter(|newer| newer.size > checkpoint.size) {
            let ranges = merkle::consistency(checkpoint.size, newer.size);
            let proof = log.proof(&ranges).await.unwrap();
            let (old, new) = ((checkpoint.size, &checkpoint.root), (newer.size, &newer.root));
            assert!(merkle::extends(old, new, &proof), "{} of {}", old.0, new.0);
        }
    }
}

async fn hosts_that_seal_at_once_sign_one_tree(bed: Bed) {
    let other = bed.replica().await;
    for _ in 0..3 {
        add(bed.store(), &id(1), 20).await;
        let logs = [log(&bed), Log::of(&other.store, &id(1))];
        let sealed = join_all(logs.iter().cycle().take(8).map(Log::checkpoint)).await;
        let mut notes: Vec<String> =
            sealed.into_iter().map(|checkpoint| checkpoint.unwrap().note).collect();
        notes.dedup();
        assert_eq!(notes.len(), 1, "{notes:?}");
    }
}

async fn what_is_kept_is_derived_anew_where_it_is_gone(bed: Bed) {
    let log = log(&bed);
    add(bed.store(), &id(1), 600).await;
    let sealed = log.checkpoint().await.unwrap();
    let ranges = merkle::inclusion(7, sealed.size);
    let proof = log.proof(&ranges).await.unwrap();
    let tiles = Query::all(&organization_reach(), &Space::host("audit_tiles"));
    let kept = bed.store().find(&tiles).await.unwrap().items;
    assert_eq!(kept.len(), 2, "full tiles only");
    for (key, _) in kept {
        bed.remove(&key).await;
    }
    assert_eq!(log.proof(&ranges).await.unwrap(), proof);
}

async fn logs_are_kept_apart(bed: Bed) {
    add(bed.store(), &id(1), 3).await;
    add(bed.store(), &id(7), 2).await;
    add(bed.store(), "", 1).await;
    let mut names = Vec::new();
    for (organization, size) in [(id(1), 3), (id(7), 2), (String::new(), 1)] {
        let log = Log::of(bed.store(), &organization);
        let sealed = log.checkpoint().await.unwrap();
        let found = read(&log, &sealed.note);
        assert_eq!((found.size, &found.origin), (size, &log.origin()));
        names.push(log.origin());
        // A key is its log's: another log's checkpoint is none of it.
        let other = Log::of(bed.store(), &id(9));
        assert!(check::checkpoint(&sealed.note, &other.verifier()).is_err());
    }
    assert_eq!(
        names,
        [
            format!("charter/audit/{}", id(1)),
            format!("charter/audit/{}", id(7)),
            "charter/audit/deployment".into()
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_is_written_by_itself_or_not_told() {
    let bed = Bed::sqlite().await;
    let row = || {
        let organization = id(1);
        let row =
            AuditRow { organization: &organization, decision: "denied", ..AuditRow::default() };
        audit_fact(&AuditRow { action: "shop.buy", request: "r", ..row }).unwrap()
    };
    commit_alone(bed.store(), &id(1), row()).await.unwrap();
    assert_eq!(bed.audit().await.len(), 1);
    bed.store().close().await;
    let refusal = commit_alone(bed.store(), &id(1), row()).await.unwrap_err();
    assert_eq!(refusal.code.own_name(), "overloaded");
}

#[tokio::test(flavor = "multi_thread")]
async fn leave_and_its_refusal_are_leaves_of_the_tree() {
    let bed = Bed::sqlite().await;
    bed.grant(leave(1)).await;
    bed.set_organization(crate::words::policy(&serde_json::json!({}))).await;
    bed.refuse(leave(1)).await;
    let sealed = log(&bed).checkpoint().await.unwrap();
    assert_eq!(sealed.size, 2);
    assert_eq!(read(&log(&bed), &sealed.note).root, {
        let mut tree = merkle::Frontier::default();
        leaves(&bed).await.into_iter().for_each(|leaf| tree.push(leaf));
        tree.root()
    });
}

#[tokio::test(flavor = "multi_thread")]
async fn a_checkpoint_that_cannot_be_read_is_not_gone_on_from() {
    let bed = Bed::sqlite().await;
    add(bed.store(), &id(1), 1).await;
    log(&bed).checkpoint().await.unwrap();
    let space = Space::host("audit_checkpoints");
    let key = Key::new(&Reach::organization(&id(1)), &space, format!("{:016x}", 1));
    let mut body: serde_json::Value =
        serde_json::from_str(&bed.row(&key).await.unwrap().body).unwrap();
    body["roots"] = serde_json::json!(["no hash"]);
    let mut txn = bed.begin();
    let draft = charter_kernel::unit::Draft { body: body.to_string(), ..Default::default() };
    txn.put(key, draft).await.unwrap();
    txn.commit().await.unwrap();
    add(bed.store(), &id(1), 1).await;
    let refusal = log(&bed).checkpoint().await.unwrap_err();
    assert_eq!(refusal.code.own_name(), "internal_error");
}

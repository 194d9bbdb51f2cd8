//! The other processes on the database: who counts as living, and who is forgotten.

use charter_kernel::time::{Clock as _, Instant};
use charter_registry::components::Replica;
use charter_tenancy::records::Record as _;
use charter_tenancy::stored;

use crate::bed::{Bed, settings};

async fn put(bed: &Bed, id: &str, seen_at: Instant) {
    let replica = Replica {
        id: id.into(),
        host: format!("host of {id}"),
        seen_at,
        compiled: Vec::new(),
        failed: Vec::new(),
    };
    let mut txn = bed.store.begin("");
    txn.put(replica.key(), replica.draft().unwrap()).await.unwrap();
    txn.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_counts_while_it_was_heard_of_lately_and_its_row_goes_much_later() {
    let bed = Bed::new().await;
    let now = bed.clock.now();
    for (id, ago_ms) in [("lives", 1_000), ("gone", 11_000), ("long gone", 3_700_000)] {
        put(&bed, id, now.plus_ms(-ago_ms)).await;
    }
    let living = bed.registry.replicas().await.unwrap();
    assert_eq!(living.iter().map(|replica| replica.id.as_str()).collect::<Vec<_>>(), ["lives"]);
    bed.registry.forget_replicas().await.unwrap();
    let mut txn = bed.store.begin("");
    let mut left: Vec<_> = stored::all::<Replica>(&mut txn, true)
        .await
        .unwrap()
        .into_iter()
        .map(|replica| replica.id)
        .collect();
    left.sort();
    assert_eq!(left, ["gone", "lives"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn alone_on_its_database_a_host_says_nothing_and_waits_for_nobody() {
    let bed = Bed::new().await;
    bed.registry.beat().await.unwrap();
    assert!(bed.registry.replicas().await.unwrap().is_empty());
    // A row of a replica that shared the database before it was embedded holds nothing up.
    put(&bed, "other", bed.clock.now()).await;
    bed.serve(900_001).await;
    bed.registry.leave().await;
    assert_eq!(bed.registry.replicas().await.unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_process_sees_a_step_with_its_next_look() {
    let bed = Bed::new().await;
    let first = bed.serve(900_001).await;
    let other = bed.restarted(settings()).await;
    let serving = |registry: &charter_registry::components::Registry| {
        registry.current().primitive("probe").unwrap().active.digest().to_owned()
    };
    let second = bed.serve(900_002).await;
    assert_eq!(serving(&other), first);
    other.refresh().await.unwrap();
    assert_eq!(serving(&other), second);
    other.rollback("probe", Some(&second), "operator", &|_, _| None).await.unwrap();
    bed.registry.refresh().await.unwrap();
    assert_eq!(serving(&bed.registry), first);
}

#[test]
fn a_row_of_an_earlier_build_knew_no_failures() {
    let row = serde_json::json!({
        "id": "r", "host": "h", "seen_at": "2026-01-01T00:00:00.000Z", "compiled": ["sha256:1"],
    });
    let replica: Replica = serde_json::from_value(row).unwrap();
    assert!(replica.failed.is_empty());
}

//! Versions that a kit pins: loaded when they are asked for, once, and gone from memory when nobody
//! asks any more.

use std::sync::Arc;

use futures::future::join_all;

use crate::bed::{Bed, settings};
use crate::fixture::probe;

#[tokio::test(flavor = "multi_thread")]
async fn a_pin_reaches_each_version_that_is_installed_and_no_other() {
    let bed = Bed::new().await;
    bed.serve(900_001).await;
    bed.serve(900_002).await;
    bed.stage(900_003).await;
    let restarted = bed.restarted(settings()).await;
    for (name, version, reached) in [
        ("probe", "1.0.900001", true),
        ("probe", "1.0.900002", true),
        ("probe", "1.0.900003", true),
        ("probe", "1.0.900004", false),
        ("probe", "1.0", false),
        ("other", "1.0.900001", false),
        ("", "", false),
    ] {
        let found = restarted.load_pinned(name, version).await;
        assert_eq!(found.is_some(), reached, "{name} {version}");
        assert!(found.is_none_or(|served| served.version() == version));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_who_ask_at_once_all_get_the_same_copy() {
    let bed = Bed::new().await;
    bed.serve(900_001).await;
    bed.stage(900_003).await;
    let restarted = bed.restarted(settings()).await;
    let asked = join_all((0..16).map(|_| restarted.load_pinned("probe", "1.0.900003"))).await;
    let first = asked[0].clone().unwrap();
    assert!(asked.iter().flatten().all(|other| Arc::ptr_eq(other, &first)));
    assert_eq!(asked.iter().flatten().count(), 16);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pinned_version_leaves_memory_when_nobody_asks_for_it_and_comes_back() {
    let bed = Bed::new().await;
    for build in [900_003, 900_001, 900_002] {
        bed.serve(build).await;
    }
    let copies = || {
        let live = bed.registry.current();
        live.primitive("probe").unwrap().versions().count()
    };
    bed.registry.load_pinned("probe", "1.0.900003").await.unwrap();
    bed.registry.refresh().await.unwrap();
    assert_eq!(copies(), 3);
    bed.clock.forward_ms(61_000);
    let served = bed.registry.load_pinned("probe", "1.0.900003").await.unwrap();
    bed.registry.sweep();
    assert_eq!(copies(), 3, "it was asked for just now");
    bed.clock.forward_ms(61_000);
    bed.registry.sweep();
    assert_eq!(copies(), 2, "what serves, and what a rollback goes to");
    // A call that runs on it keeps it to the end.
    assert_eq!(served.version(), "1.0.900003");
    let view = serde_json::json!(bed.registry.describe("probe").unwrap());
    let versions = view["versions"].as_array().unwrap();
    let row = versions.iter().find(|row| row["version"] == "1.0.900003").unwrap();
    assert_eq!((&row["state"], &row["in_memory"]), (&"draining".into(), &false.into()));
    assert!(bed.registry.load_pinned("probe", "1.0.900003").await.is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_whose_bytes_are_missing_is_reached_once_they_are_back() {
    let bed = Bed::new().await;
    bed.serve(900_001).await;
    let digest = bed.stage(900_003).await;
    bed.store.blob_remove(&digest).await.unwrap();
    std::fs::remove_dir_all(bed.folder().join("code")).unwrap();
    let restarted = bed.restarted(settings()).await;
    assert!(restarted.load_pinned("probe", "1.0.900003").await.is_none());
    assert!(restarted.current().primitive("probe").is_some(), "the others serve");
    bed.store.blob_put(&digest, &probe(900_003)).await.unwrap();
    let served = restarted.load_pinned("probe", "1.0.900003").await.unwrap();
    assert_eq!(served.digest(), digest);
}

//! Versions in memory: those that serve and are gone back to stay, others leave, and a pin brings
//! them back.

use charter_registry::served::Reserved;
use charter_registry::settings::Settings;

use crate::bed::{BUILDS, Bed, settings};

async fn forgetful() -> Bed {
    Bed::with(Settings { resident_ms: 0, ..settings() }, Reserved::default()).await
}

fn in_memory(bed: &Bed) -> Vec<String> {
    let detail = serde_json::json!(bed.registry.describe("probe").unwrap());
    let rows = detail["versions"].as_array().unwrap().iter();
    let mut loaded: Vec<_> = rows
        .filter(|row| row["in_memory"] == true)
        .map(|row| row["version"].as_str().unwrap().to_owned())
        .collect();
    loaded.sort();
    loaded
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nobody_calls_leaves_and_what_serves_or_is_gone_back_to_stays() {
    let bed = forgetful().await;
    for build in BUILDS {
        bed.serve(build).await;
    }
    // The live table of before the sweep holds what it served.
    bed.registry.sweep();
    bed.registry.refresh().await.unwrap();
    assert_eq!(in_memory(&bed), ["1.0.900003", "1.0.900004"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_used_lately_stays() {
    let bed = Bed::new().await;
    for build in BUILDS {
        bed.serve(build).await;
    }
    bed.registry.sweep();
    assert_eq!(in_memory(&bed).len(), 4);
    bed.clock.forward_ms(60_001);
    bed.registry.sweep();
    assert_eq!(in_memory(&bed), ["1.0.900003", "1.0.900004"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pin_brings_back_what_had_left_and_a_wrong_one_nothing() {
    let bed = forgetful().await;
    for build in BUILDS {
        bed.serve(build).await;
    }
    bed.registry.sweep();
    let pinned = bed.registry.load_pinned("probe", "1.0.900001").await.unwrap();
    assert_eq!(pinned.version(), "1.0.900001");
    let again = bed.registry.load_pinned("probe", "1.0.900001").await.unwrap();
    assert!(std::sync::Arc::ptr_eq(&pinned, &again), "loaded once however many ask");
    for (name, version) in [("probe", "1.0.9"), ("other", "1.0.900001"), ("probe", "")] {
        assert!(bed.registry.load_pinned(name, version).await.is_none(), "{name} {version}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_only_drains_is_named_so_until_its_last_request_ends() {
    let bed = forgetful().await;
    let first = bed.serve(900_001).await;
    let request = bed.registry.current().primitive("probe").unwrap().active.clone();
    for build in [900_002, 900_003, 900_004] {
        bed.serve(build).await;
    }
    bed.registry.sweep();
    bed.registry.refresh().await.unwrap();
    let state = || {
        let detail = serde_json::json!(bed.registry.describe("probe").unwrap());
        let rows = detail["versions"].as_array().unwrap().clone();
        let row = rows.into_iter().find(|row| row["digest"] == first.as_str()).unwrap();
        (row["state"].clone(), row["in_memory"].clone())
    };
    assert_eq!(state(), ("draining".into(), false.into()));
    drop(request);
    assert_eq!(state(), ("retired".into(), false.into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pinned_version_whose_bytes_are_gone_is_none_and_the_rest_serves() {
    let bed = forgetful().await;
    let first = bed.serve(900_001).await;
    for build in [900_002, 900_003, 900_004] {
        bed.serve(build).await;
    }
    bed.registry.sweep();
    bed.registry.refresh().await.unwrap();
    std::fs::remove_dir_all(bed.folder().join("code")).unwrap();
    bed.store.blob_remove(&first).await.unwrap();
    assert!(bed.registry.load_pinned("probe", "1.0.900001").await.is_none());
    assert!(bed.serving().is_some());
}

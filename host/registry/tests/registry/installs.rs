//! Installing: a component is staged whole, or refused with every fault and leaves nothing.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use charter_kernel::audit::AuditRow;
use charter_kernel::manifest::Mount;
use charter_kernel::unit::FactKind;
use charter_registry::components::{State, Upload, Version};
use charter_registry::served::Reserved;
use charter_store::audit_fact;
use charter_tenancy::operator::Act;

use crate::bed::{Bed, digest, reason, settings, upload};
use crate::fixture::{declaring, fixture, probe, rewrite};

#[tokio::test(flavor = "multi_thread")]
async fn a_staged_version_is_kept_and_serves_nobody() {
    let bed = Bed::new().await;
    let installed = bed.install(probe(900_001)).await.unwrap();
    assert!(installed.fresh);
    let version = &installed.version;
    assert_eq!((version.name.as_str(), version.version.as_str()), ("probe", "1.0.900001"));
    assert_eq!((version.state, version.signature.as_ref()), (State::Staged, None));
    assert_eq!(version.bytes, probe(900_001).len() as u64);
    assert!(bed.store.blob_exists(&version.digest).await.unwrap());
    assert_eq!(bed.serving(), None);
    let inventory = bed.registry.inventory();
    assert_eq!(inventory.by_number("probe", "1.0.900001").unwrap().digest, version.digest);
    assert!(inventory.by_number("probe", "1.0.900002").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn installing_again_changes_nothing_and_says_so() {
    let bed = Bed::new().await;
    let (fresh, stale) = (AtomicU32::new(0), AtomicU32::new(0));
    let count = |_: &Version, changes: bool| -> Option<Act> {
        if changes { &fresh } else { &stale }.fetch_add(1, SeqCst);
        None
    };
    let first = bed.registry.install(upload(probe(900_001)), &count).await.unwrap();
    bed.activate(&first.version.digest).await.unwrap();
    let again = bed.registry.install(upload(probe(900_001)), &count).await.unwrap();
    assert!(first.fresh && !again.fresh);
    assert_eq!(again.version.state, State::Active, "it serves still");
    assert_eq!((fresh.load(SeqCst), stale.load(SeqCst)), (1, 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_audit_row_is_of_the_same_commit() {
    let bed = Bed::new().await;
    let at = charter_kernel::time::Clock::now(&*bed.clock);
    let row = |version: &Version, _: bool| {
        let entity_id = Some(version.digest.as_str());
        audit_fact(&AuditRow { at, action: "component.install", entity_id, ..AuditRow::default() })
            .ok()
            .map(Act::from)
    };
    bed.registry.install(upload(probe(900_001)), &row).await.unwrap();
    bed.registry.install(upload(fixture("malformed")), &row).await.unwrap_err();
    bed.store.facts_head_settled(FactKind::Audit, "").await.unwrap();
    let facts = bed.store.facts(FactKind::Audit, "", 0, 10).await.unwrap();
    assert_eq!(facts.len(), 1, "what was refused was not done");
    assert_eq!(facts[0].fact.name, "component.install");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_unfit_is_refused_with_every_fault_and_leaves_no_bytes() {
    let bed = Bed::new().await;
    bed.serve(900_001).await;
    let other_bytes = {
        let mut wasm = probe(900_001);
        // A custom section changes the digest and nothing else.
        wasm.extend_from_slice(&[0, 2, 1, b'x']);
        wasm
    };
    let narrower = rewrite(probe(900_002), "\"name\": \"counters\"", "\"name\": \"countess\"");
    for (upload, words) in [
        (upload(other_bytes), vec!["1.0.900001 is installed with another digest", "raise the"]),
        (upload(fixture("malformed")), vec!["operations"]),
        (upload(narrower), vec!["must still hold counters, which version 1.0.900001 uses"]),
        (upload(b"hello".to_vec()), vec!["not a WebAssembly component"]),
        (
            Upload { name: Some("prober".into()), ..upload(probe(900_003)) },
            vec!["uploaded as \"prober\""],
        ),
    ] {
        let digest = digest(&upload.bytes);
        let told = reason(bed.registry.install(upload, &|_, _| None).await.unwrap_err());
        for words in words {
            assert!(told.contains(words), "no {words:?} in {told}");
        }
        assert!(!bed.store.blob_exists(&digest).await.unwrap(), "{told}");
        assert!(bed.registry.inventory().by_digest(&digest).is_none());
    }
    assert_eq!(bed.registry.inventory().versions["probe"].len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_that_the_host_or_another_primitive_serves_is_taken() {
    let routes = [("GET", Mount::Company, "/hostile/{id}")];
    let bed = Bed::with(settings(), Reserved::new(routes)).await;
    let told = reason(bed.install(fixture("hostile")).await.unwrap_err());
    assert!(told.contains("/hostile/good overlaps /v1/hostile/{id}, which the host"), "{told}");
    bed.stage(900_001).await;
    let path =
        r#",{"id":"hostile.other","method":"GET","path":"/probe","summary":"s","answer":{}}"#;
    let told = reason(bed.install(declaring(path)).await.unwrap_err());
    assert!(told.contains("/probe"), "although the other one is only staged: {told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_name_in_the_address_is_the_manifests() {
    let bed = Bed::new().await;
    let named = Upload { name: Some("probe".into()), ..upload(probe(900_001)) };
    assert!(bed.registry.install(named, &|_, _| None).await.unwrap().fresh);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_who_install_one_number_at_once_one_comes_first() {
    let bed = Bed::new().await;
    let mut other = probe(900_001);
    other.extend_from_slice(&[0, 2, 1, b'x']);
    let (one, two) = tokio::join!(bed.install(probe(900_001)), bed.install(other));
    assert_eq!(u32::from(one.is_ok()) + u32::from(two.is_ok()), 1);
    let told = reason(one.and(two).unwrap_err());
    assert!(told.contains("a version never changes"), "{told}");
    assert_eq!(bed.registry.inventory().versions["probe"].len(), 1);
}

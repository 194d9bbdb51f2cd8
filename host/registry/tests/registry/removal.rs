//! Removing versions: never one that serves or that a kit pins, and never more than were asked for.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use charter_kernel::audit::AuditRow;
use charter_kernel::id::{KitId, OrganizationId, ProjectId};
use charter_kernel::time::Instant;
use charter_registry::components::{LifeCycleError, Version};
use charter_store::audit_fact;
use charter_tenancy::operator::Act;
use charter_tenancy::records::Record as _;
use charter_tenancy::records::pin::Pin;

use crate::bed::{BUILDS, Bed, reason, settings, upload};
use crate::fixture::probe;

fn pin(version: &str, n: u8) -> Pin {
    let id = charter_kernel::id::uuid_v7(Instant(1), [n; 10]);
    Pin {
        primitive: "probe".into(),
        version: version.into(),
        organization: OrganizationId::parse(&id).unwrap(),
        project: ProjectId::parse(&id).unwrap(),
        kit: KitId::parse(&id).unwrap(),
    }
}

async fn put(bed: &Bed, pin: &Pin) {
    let mut txn = bed.store.begin("");
    txn.put(pin.key(), pin.draft().unwrap()).await.unwrap();
    txn.commit().await.unwrap();
}

async fn remove(bed: &Bed, digest: &str) -> Result<(), LifeCycleError> {
    bed.registry.remove("probe", digest, &|_, _| None).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_serves_stays_while_there_is_another() {
    let bed = Bed::new().await;
    let first = bed.serve(900_001).await;
    let second = bed.serve(900_002).await;
    assert_eq!(reason(remove(&bed, &second).await.unwrap_err()), "active");
    remove(&bed, &first).await.unwrap();
    assert!(bed.registry.inventory().by_digest(&first).is_none());
    assert!(!bed.store.blob_exists(&first).await.unwrap(), "its bytes go too");
    assert_eq!(reason(bed.rollback(None).await.unwrap_err()), "no_predecessor");
    // The last one goes, and the primitive with it.
    remove(&bed, &second).await.unwrap();
    assert_eq!(bed.serving(), None);
    assert!(bed.registry.inventory().versions.is_empty());
    assert!(bed.registry.inventory().activations.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_there_cannot_be_removed() {
    let bed = Bed::new().await;
    let digest = bed.stage(900_001).await;
    remove(&bed, &digest).await.unwrap();
    assert!(matches!(remove(&bed, &digest).await, Err(LifeCycleError::Absent(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pinned_version_stays_and_the_refusal_names_the_kits() {
    let bed = Bed::new().await;
    let first = bed.serve(900_001).await;
    bed.serve(900_002).await;
    for n in 1..=25 {
        put(&bed, &pin("1.0.900001", n)).await;
    }
    put(&bed, &pin("1.0.900002", 1)).await;
    let Err(LifeCycleError::Pinned { version, kits, all }) = remove(&bed, &first).await else {
        panic!("a pinned version was removed");
    };
    assert_eq!((version.as_str(), kits.len(), all), ("probe 1.0.900001", 20, 25));
    assert!(kits.iter().all(|pin| pin.version == "1.0.900001"));
    assert!(bed.store.blob_exists(&first).await.unwrap());
    for n in 1..=25 {
        let mut txn = bed.store.begin("");
        txn.remove(&pin("1.0.900001", n).key(), None).await.unwrap();
        txn.commit().await.unwrap();
    }
    remove(&bed, &first).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_old_is_forgotten_but_for_what_is_needed() {
    for (kept, pinned, left) in [
        // The fourth version serves, and a rollback goes to the third.
        (0, None, vec![900_003, 900_004]),
        (1, None, vec![900_002, 900_003, 900_004]),
        (2, None, vec![900_001, 900_002, 900_003, 900_004]),
        (9, None, vec![900_001, 900_002, 900_003, 900_004]),
        (0, Some(900_001), vec![900_001, 900_003, 900_004]),
    ] {
        let bed = Bed::new().await;
        for build in BUILDS {
            bed.serve(build).await;
        }
        if let Some(build) = pinned {
            put(&bed, &pin(&format!("1.0.{build}"), 1)).await;
        }
        bed.registry.forget_versions(kept).await.unwrap();
        let inventory = bed.registry.inventory();
        let builds: Vec<u32> = inventory.versions["probe"]
            .iter()
            .map(|version| version.version.strip_prefix("1.0.").unwrap().parse().unwrap())
            .collect();
        assert_eq!(builds, left, "kept {kept}, pinned {pinned:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_staged_is_not_forgotten() {
    let bed = Bed::new().await;
    bed.serve(900_001).await;
    bed.stage(900_002).await;
    bed.stage(900_003).await;
    bed.registry.forget_versions(0).await.unwrap();
    assert_eq!(bed.registry.inventory().versions["probe"].len(), 3);
}

/// A deployment on each kind of database.
async fn deployments() -> impl Iterator<Item = Bed> {
    [Some(Bed::new().await), Bed::shared(settings()).await].into_iter().flatten()
}

/// A host that has nothing but its bytes loads it.
async fn loads(bed: &Bed, digest: &str) -> bool {
    std::fs::remove_dir_all(bed.folder().join("code")).unwrap();
    let restarted = bed.restarted(settings()).await;
    let found = restarted.load_pinned("probe", "1.0.900001").await;
    found.is_some_and(|served| served.digest() == digest)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_back_keeps_its_bytes_however_late_those_before_are_removed() {
    for bed in deployments().await {
        let digest = bed.stage(900_001).await;
        let before = bed.version(&digest).blob();
        remove(&bed, &digest).await.unwrap();
        bed.stage(900_001).await;
        // The last thing that a slow removal does.
        bed.store.blob_remove(&before).await.unwrap();
        assert!(bed.store.blob_exists(&bed.version(&digest).blob()).await.unwrap());
        assert!(loads(&bed, &digest).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_removed_while_it_is_installed_again_is_there_with_its_bytes() {
    for bed in deployments().await {
        let digest = bed.stage(900_001).await;
        let before = bed.version(&digest).blob();
        let asked = AtomicU32::new(0);
        let runtime = tokio::runtime::Handle::current();
        // Its bytes are kept and its row was read: now another operator removes it.
        let act = |version: &Version, fresh: bool| -> Option<Act> {
            if asked.fetch_add(1, SeqCst) == 0 {
                assert!(!fresh);
                let removing = || runtime.block_on(remove(&bed, &digest)).unwrap();
                std::thread::scope(|scope| scope.spawn(removing).join().unwrap());
            }
            let (action, entity_id) = ("install", Some(version.digest.as_str()));
            audit_fact(&AuditRow { action, entity_id, ..AuditRow::default() }).ok().map(Act::from)
        };
        let installed = bed.registry.install(upload(probe(900_001)), &act).await.unwrap();
        assert!(installed.fresh);
        assert_eq!(asked.load(SeqCst), 2, "it was asked again, and of a new row");
        assert!(!bed.store.blob_exists(&before).await.unwrap(), "nobody's bytes are left behind");
        assert!(loads(&bed, &digest).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_what_is_removed_and_installed_again_and_again_the_last_bytes_are_kept() {
    let bed = Bed::new().await;
    let mut blobs = Vec::new();
    for _ in 0..3 {
        let digest = bed.stage(900_001).await;
        blobs.push(bed.version(&digest).blob());
        remove(&bed, &digest).await.unwrap();
    }
    for blob in &blobs {
        assert!(!bed.store.blob_exists(blob).await.unwrap(), "{blobs:?}");
    }
    let digest = bed.serve(900_001).await;
    assert!(!blobs.contains(&bed.version(&digest).blob()), "{blobs:?}");
    assert!(loads(&bed, &digest).await);
}

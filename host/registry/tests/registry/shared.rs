//! Hosts that share a database: an activation waits until each of them can serve what it activates,
//! and for none that is gone.

use charter_kernel::refusal::Refusal;
use charter_kernel::time::{Clock as _, Instant};
use charter_registry::components::{Activated, LifeCycleError, Registry, Replica};
use charter_registry::served::Reserved;
use charter_registry::settings::{Components, Primitives, Settings};
use charter_store::Store;
use charter_tenancy::records::Record as _;
use serde_json::json;

use crate::bed::{ALL, Bed, reason, settings};
use crate::fixture::{probe, rewrite};

/// A deployment on a private server.
async fn deployment() -> Option<Bed> {
    Bed::shared(settings()).await
}

/// Another host of it.
async fn host(bed: &Bed, settings: Settings) -> (Store, Registry) {
    let (store, engine) = crate::bed::host(bed.folder(), &bed.url, &bed.clock).await;
    let clock = bed.clock.clone();
    let registry = Registry::new(store.clone(), engine, settings, Reserved::default(), clock);
    registry.refresh().await.unwrap();
    (store, registry)
}

/// A host that is known by its row alone.
async fn row(bed: &Bed, seen_at: Instant, compiled: &[&str], failed: &[(&str, &str)]) {
    let owned = |text: &&str| (*text).to_owned();
    let replica = Replica {
        id: "another".into(),
        host: "process 7".into(),
        seen_at,
        compiled: compiled.iter().map(owned).collect(),
        failed: failed.iter().map(|(digest, why)| (owned(digest), owned(why))).collect(),
    };
    let mut txn = bed.store.begin("");
    txn.put(replica.key(), replica.draft().unwrap()).await.unwrap();
    txn.commit().await.unwrap();
}

async fn activate(registry: &Registry, digest: &str) -> Result<Activated, LifeCycleError> {
    registry.activate("probe", digest, "operator", &ALL, &|_, _| None).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_host_has_not_compiled_is_not_activated_yet() {
    let Some(bed) = deployment().await else { return };
    let first = bed.serve(900_001).await;
    let second = bed.stage(900_002).await;
    row(&bed, bed.clock.now(), &[&first], &[]).await;
    let refused = activate(&bed.registry, &second).await.unwrap_err();
    let told = refused.to_string();
    assert!(told.contains("another (process 7)") && told.contains("try again"), "{told}");
    let refusal = Refusal::from(refused);
    assert_eq!(refusal.reason.as_deref(), Some("replica_lags"));
    assert_eq!((bed.serving(), refusal.details["changed"].clone()), (Some(first), json!(false)));
    row(&bed, bed.clock.now(), &[&second], &[]).await;
    activate(&bed.registry, &second).await.unwrap();
    assert_eq!(bed.serving(), Some(second));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_another_host_cannot_load_is_refused_with_its_reason() {
    let Some(bed) = deployment().await else { return };
    let digest = bed.stage(900_001).await;
    row(&bed, bed.clock.now(), &[], &[(&digest, "no memory")]).await;
    let refused = activate(&bed.registry, &digest).await.unwrap_err();
    assert!(refused.to_string().contains("no memory"), "{refused}");
    assert_eq!(reason(refused), "replica_cannot_load");
    assert_eq!(bed.serving(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_waits_for_a_host_that_is_gone() {
    let Some(bed) = deployment().await else { return };
    let digest = bed.stage(900_001).await;
    row(&bed, bed.clock.now().plus_ms(-11_000), &[], &[(&digest, "no memory")]).await;
    activate(&bed.registry, &digest).await.unwrap();
    // One that leaves says so.
    let (_store, other) = host(&bed, settings()).await;
    other.beat().await.unwrap();
    assert_eq!(bed.registry.replicas().await.unwrap().len(), 1);
    other.leave().await;
    assert!(bed.registry.replicas().await.unwrap().is_empty());
    let second = bed.stage(900_002).await;
    activate(&bed.registry, &second).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_says_what_it_has_compiled_and_what_it_cannot_load() {
    let Some(bed) = deployment().await else { return };
    let first = bed.stage(900_001).await;
    // Each build of the probe knows one setting, which bears its number.
    let values = json!({"only_900001": true}).as_object().unwrap().clone();
    let set = Primitives::new([("probe".to_owned(), values)].into());
    let (_store, other) = host(&bed, Settings { primitives: set, ..settings() }).await;
    let second = bed.stage(900_002).await;
    other.refresh().await.unwrap();
    other.beat().await.unwrap();
    let known = bed.registry.replicas().await.unwrap().remove(0);
    assert_eq!(known.compiled, [first.as_str()]);
    let failed: Vec<&str> = known.failed.iter().map(|(digest, _)| digest.as_str()).collect();
    assert_eq!(failed, [second.as_str()]);
    assert!(known.failed[0].1.contains("only_900001"), "{:?}", known.failed);
    assert_eq!(reason(activate(&bed.registry, &second).await.unwrap_err()), "replica_cannot_load");
    activate(&bed.registry, &first).await.unwrap();
    // A version that is removed is not named any more.
    bed.registry.remove("probe", &second, &|_, _| None).await.unwrap();
    other.refresh().await.unwrap();
    other.beat().await.unwrap();
    assert!(bed.registry.replicas().await.unwrap().remove(0).failed.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_activation_goes_on_as_soon_as_the_other_host_is_ready() {
    let components = Components { replica_wait_ms: 60_000, ..settings().components };
    let patient = Settings { components, ..settings() };
    let Some(bed) = Bed::shared(patient).await else { return };
    let (_store, other) = host(&bed, settings()).await;
    other.beat().await.unwrap();
    let talking = {
        let other = other.clone();
        tokio::spawn(async move { other.keep_alive().await })
    };
    let digest = bed.stage(900_001).await;
    // The other host compiles while this one waits for it.
    let (activated, seen) = tokio::join!(activate(&bed.registry, &digest), other.refresh());
    assert!(activated.unwrap().changed);
    seen.unwrap();
    other.refresh().await.unwrap();
    let live = other.current();
    assert_eq!(live.primitive("probe").unwrap().active.digest(), digest);
    talking.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_hosts_that_step_at_once_each_step_happens_whole() {
    let Some(bed) = deployment().await else { return };
    bed.serve(900_001).await;
    let (second, third) = (bed.stage(900_002).await, bed.stage(900_003).await);
    let (_store, other) = host(&bed, settings()).await;
    let (one, two) = tokio::join!(activate(&bed.registry, &second), activate(&other, &third));
    let (one, two) = (one.unwrap(), two.unwrap());
    bed.registry.refresh().await.unwrap();
    other.refresh().await.unwrap();
    let serving = bed.serving().unwrap();
    assert_eq!(other.current().primitive("probe").unwrap().active.digest(), serving);
    // The last one found the other before it.
    let (last, before) = if serving == second { (one, &third) } else { (two, &second) };
    assert_eq!(last.previous.as_ref(), Some(before));
    assert_eq!(bed.registry.inventory().activations["probe"].history.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn indexes_are_built_once_every_host_writes_for_them() {
    let Some(bed) = deployment().await else { return };
    let first = bed.serve(900_001).await;
    let (old, new) = (r#""indexes": [                 ]"#, r#""indexes": [{"field":"name"} ]"#);
    let second = bed.install(rewrite(probe(900_002), old, new)).await.unwrap();
    let second = &second.version.digest;
    row(&bed, bed.clock.now(), &[&first], &[]).await;
    let refused = Refusal::from(bed.registry.build("probe", second).await.unwrap_err());
    assert_eq!(refused.reason.as_deref(), Some("replica_lags"));
    let built = || bed.registry.inventory().finds_all(&bed.version(second));
    assert!(!built());
    row(&bed, bed.clock.now(), &[second], &[]).await;
    bed.registry.build("probe", second).await.unwrap();
    assert!(built());
}

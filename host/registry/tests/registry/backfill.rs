//! Documents of before an index was declared: found by it once the version that declares it serves,
//! or is built while it is staged.

use charter_kernel::unit::{Draft, Key, Reach, Space};
use charter_registry::components::{LifeCycleError, State};
use charter_store::Query;

use crate::bed::{Bed, reason};
use crate::fixture::{probe, rewrite};

fn indexed(build: u32) -> Vec<u8> {
    let (old, new) = (r#""indexes": [                 ]"#, r#""indexes": [{"field":"name"} ]"#);
    rewrite(probe(build), old, new)
}

fn space() -> Space {
    Space::of("probe", "left")
}

async fn put(bed: &Bed, user: &str, id: &str, body: &str) {
    let mut txn = bed.store.begin("");
    let key = Key::new(&Reach::user(user), &space(), id);
    txn.put(key, Draft { body: body.into(), ..Draft::default() }).await.unwrap();
    txn.commit().await.unwrap();
}

async fn found(bed: &Bed, user: &str, name: &str) -> u64 {
    let query = Query::all(&Reach::user(user), &space()).equal("name", name);
    bed.store.count(&query).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_of_all_tenants_are_found_by_the_new_index() {
    let bed = Bed::new().await;
    bed.serve(900_001).await;
    let mut txn = bed.store.begin("");
    for n in 0..450 {
        let user = format!("u{}", n % 3);
        let key = Key::new(&Reach::user(&user), &space(), format!("d{n:03}"));
        let body = format!("{{\"name\": \"n{}\"}}", n % 2);
        txn.put(key, Draft { body, ..Draft::default() }).await.unwrap();
    }
    txn.commit().await.unwrap();
    let digest = bed.install(indexed(900_002)).await.unwrap().version.digest.clone();
    assert_eq!(found(&bed, "u0", "n0").await, 0, "a staged version builds nothing yet");
    bed.activate(&digest).await.unwrap();
    for user in ["u0", "u1", "u2"] {
        assert_eq!((found(&bed, user, "n0").await, found(&bed, user, "n1").await), (75, 75));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_document_says_and_its_owner_stay_as_they_were() {
    let bed = Bed::new().await;
    bed.serve(900_001).await;
    let body = "{\"name\": \"a\",   \"rest\": [1, 2]}";
    put(&bed, "u", "d", body).await;
    let digest = bed.install(indexed(900_002)).await.unwrap().version.digest.clone();
    bed.activate(&digest).await.unwrap();
    let row = bed.store.get(&Key::new(&Reach::user("u"), &space(), "d")).await.unwrap().unwrap();
    assert_eq!(row.body, body);
    let again = bed.store.get(&Key::new(&Reach::user("u"), &space(), "d")).await.unwrap().unwrap();
    bed.rollback(None).await.unwrap();
    bed.activate(&digest).await.unwrap();
    assert_eq!(again.version, row.version, "a document that has its entries is left alone");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_that_does_not_fit_keeps_the_version_from_serving() {
    let bed = Bed::new().await;
    let first = bed.serve(900_001).await;
    put(&bed, "u", "the-wrong-one", "{\"name\": {\"deep\": 1}}").await;
    let digest = bed.install(indexed(900_002)).await.unwrap().version.digest.clone();
    let told = reason(bed.activate(&digest).await.unwrap_err());
    assert!(told.contains("the document the-wrong-one does not fit the new index"), "{told}");
    assert_eq!(bed.serving(), Some(first));
}

/// Whether a kit may pin it.
fn finds_all(bed: &Bed, digest: &str) -> bool {
    bed.registry.inventory().finds_all(&bed.version(digest))
}

async fn build(bed: &Bed, digest: &str) -> Result<(), LifeCycleError> {
    bed.registry.build("probe", digest).await
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_staged_finds_all_documents_once_its_indexes_are_built() {
    let bed = Bed::new().await;
    let first = bed.serve(900_001).await;
    put(&bed, "u", "d", "{\"name\": \"a\"}").await;
    // A version without an index of its own has nothing to wait for.
    let plain = bed.stage(900_003).await;
    let digest = bed.install(indexed(900_002)).await.unwrap().version.digest.clone();
    assert!(finds_all(&bed, &first) && finds_all(&bed, &plain) && !finds_all(&bed, &digest));
    build(&bed, &digest).await.unwrap();
    assert!(finds_all(&bed, &digest));
    assert_eq!(found(&bed, "u", "a").await, 1);
    assert_eq!(bed.serving(), Some(first));
    assert_eq!(bed.version(&digest).state, State::Staged);
    let absent = format!("sha256:{}", "0".repeat(64));
    assert!(matches!(build(&bed, &absent).await, Err(LifeCycleError::Absent(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_built_counts_for_what_is_installed_and_not_for_what_comes_back() {
    let bed = Bed::new().await;
    bed.serve(900_001).await;
    let digest = bed.install(indexed(900_002)).await.unwrap().version.digest.clone();
    build(&bed, &digest).await.unwrap();
    bed.install(indexed(900_002)).await.unwrap();
    assert!(finds_all(&bed, &digest));
    bed.registry.remove("probe", &digest, &|_, _| None).await.unwrap();
    // Nobody writes for it now.
    put(&bed, "u", "d", "{\"name\": \"a\"}").await;
    bed.install(indexed(900_002)).await.unwrap();
    assert!(!finds_all(&bed, &digest));
    build(&bed, &digest).await.unwrap();
    assert_eq!(found(&bed, "u", "a").await, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_document_that_does_not_fit_keeps_a_staged_version_from_being_built() {
    let bed = Bed::new().await;
    bed.serve(900_001).await;
    put(&bed, "u", "the-wrong-one", "{\"name\": {\"deep\": 1}}").await;
    let digest = bed.install(indexed(900_002)).await.unwrap().version.digest.clone();
    let told = reason(build(&bed, &digest).await.unwrap_err());
    assert!(told.contains("the document the-wrong-one does not fit the new index"), "{told}");
    assert!(!finds_all(&bed, &digest));
}

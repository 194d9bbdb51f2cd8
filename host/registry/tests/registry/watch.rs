//! The watched folder: what lies there at the start, what comes later, and what a person has
//! undone.

use std::path::Path;

use base64::Engine as _;
use charter_registry::components::{State, watch::Folder};
use charter_registry::served::Reserved;
use charter_registry::settings::{Components, Settings};
use ed25519_dalek::{Signer as _, SigningKey};
use sha2::Digest as _;
use tokio_util::sync::CancellationToken;

use crate::bed::{Bed, folder, serves, settings, until};
use crate::fixture::{fixture, probe};

const BYTES_MAX: usize = 10 << 20;

/// A file that comes whole, as a deployment's tools put it.
fn put(dir: &Path, name: &str, bytes: &[u8]) {
    let part = dir.join("part");
    std::fs::write(&part, bytes).unwrap();
    std::fs::rename(part, dir.join(name)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_start_activates_what_is_new_and_passes_over_the_rest() {
    let (bed, dir) = (Bed::new().await, folder());
    put(&dir, "probe.wasm", &probe(900_001));
    put(&dir, "malformed.wasm", &fixture("malformed"));
    put(&dir, "notes.txt", b"no component");
    put(&dir, "hostile.wasm", &fixture("hostile"));
    Folder::new(dir.clone(), BYTES_MAX).first(&bed.registry).await.unwrap();
    let live = bed.registry.current();
    assert_eq!(
        live.primitives().map(|one| one.name.as_str()).collect::<Vec<_>>(),
        ["hostile", "probe"]
    );
    assert_eq!(bed.registry.inventory().activations["probe"].by, "folder");
    std::fs::remove_dir_all(dir).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_stays_through_the_next_start() {
    let (bed, dir) = (Bed::new().await, folder());
    let first = bed.serve(900_001).await;
    put(&dir, "probe.wasm", &probe(900_002));
    Folder::new(dir.clone(), BYTES_MAX).first(&bed.registry).await.unwrap();
    assert_ne!(bed.serving().as_ref(), Some(&first));
    bed.rollback(None).await.unwrap();
    Folder::new(dir.clone(), BYTES_MAX).first(&bed.registry).await.unwrap();
    assert_eq!(bed.serving(), Some(first), "the file is not new to the deployment");
    std::fs::remove_dir_all(dir).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_that_is_too_large_is_not_read() {
    let (bed, dir) = (Bed::new().await, folder());
    put(&dir, "probe.wasm", &probe(900_001));
    Folder::new(dir.clone(), 1_000).first(&bed.registry).await.unwrap();
    assert!(bed.registry.inventory().versions.is_empty());
    std::fs::remove_dir_all(dir).unwrap();
}

/// A pipe has no end until somebody writes to it, and a device none at all.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_but_a_regular_file_is_read() {
    let (bed, dir) = (Bed::new().await, folder());
    for name in ["pipe.wasm", "probe.wasm.sig"] {
        let made = std::process::Command::new("mkfifo").arg(dir.join(name)).status();
        assert!(made.unwrap().success(), "{name}");
    }
    std::os::unix::fs::symlink("/dev/zero", dir.join("zero.wasm")).unwrap();
    std::fs::create_dir(dir.join("folder.wasm")).unwrap();
    put(&dir, "probe.wasm", &probe(900_001));
    let mut watched = Folder::new(dir.clone(), BYTES_MAX);
    let first = watched.first(&bed.registry);
    let within = std::time::Duration::from_secs(60);
    tokio::time::timeout(within, first).await.expect("nothing is waited for").unwrap();
    let live = bed.registry.current();
    assert_eq!(live.primitives().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["probe"]);
    std::fs::remove_dir_all(dir).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_is_not_there_is_an_error_and_an_empty_one_is_none() {
    let (bed, dir) = (Bed::new().await, folder());
    Folder::new(dir.clone(), BYTES_MAX).first(&bed.registry).await.unwrap();
    std::fs::remove_dir_all(&dir).unwrap();
    assert!(Folder::new(dir, BYTES_MAX).first(&bed.registry).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_comes_while_the_host_runs_serves_and_what_is_unfit_changes_nothing() {
    let (bed, dir) = (Bed::new().await, folder());
    let mut watched = Folder::new(dir.clone(), BYTES_MAX);
    watched.first(&bed.registry).await.unwrap();
    let draining = CancellationToken::new();
    let following = tokio::spawn(watched.follow(bed.registry.clone(), draining.clone()));
    put(&dir, "probe.wasm", &probe(900_001));
    until(&bed.registry, "the file serves", |live| serves(live).is_some()).await;
    let first = bed.serving().unwrap();
    put(&dir, "probe.wasm", &probe(900_002));
    until(&bed.registry, "its next version serves", |live| serves(live) != Some(&first)).await;
    let second = bed.serving().unwrap();
    put(&dir, "other.wasm", &fixture("malformed"));
    put(&dir, "third.wasm", &probe(900_003));
    until(&bed.registry, "the fit one serves", |live| serves(live) != Some(&second)).await;
    std::fs::remove_file(dir.join("third.wasm")).unwrap();
    draining.cancel();
    following.await.unwrap();
    assert_eq!(
        bed.registry.inventory().versions["probe"].len(),
        3,
        "removing a file undoes nothing"
    );
    std::fs::remove_dir_all(dir).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_signature_that_comes_later_lets_its_file_in() {
    let key = SigningKey::from_bytes(&[1; 32]);
    let signing_keys = vec![key.verifying_key()];
    let components = Components { signing_keys, ..settings().components };
    let bed = Bed::with(Settings { components, ..settings() }, Reserved::default()).await;
    let dir = folder();
    put(&dir, "probe.wasm", &probe(900_001));
    let mut watched = Folder::new(dir.clone(), BYTES_MAX);
    watched.first(&bed.registry).await.unwrap();
    assert!(bed.registry.inventory().versions.is_empty());
    let draining = CancellationToken::new();
    let following = tokio::spawn(watched.follow(bed.registry.clone(), draining.clone()));
    let digest: [u8; 32] = sha2::Sha256::digest(probe(900_001)).into();
    let signature = base64::engine::general_purpose::STANDARD.encode(key.sign(&digest).to_bytes());
    put(&dir, "probe.wasm.sig", signature.as_bytes());
    until(&bed.registry, "the signed file serves", |live| serves(live).is_some()).await;
    draining.cancel();
    following.await.unwrap();
    let row = bed.version(&bed.serving().unwrap());
    assert_eq!((row.state, row.signature), (State::Active, Some(signature)));
    std::fs::remove_dir_all(dir).unwrap();
}

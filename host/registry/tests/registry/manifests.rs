//! Manifests that are refused: whatever a component declares that it must not, all of it is said at
//! once, and nothing of the component is kept.

use charter_kernel::refusal::{Code, Refusal};
use charter_registry::components::LifeCycleError;

use crate::bed::{Bed, digest, reason};
use crate::fixture::{declaring, fixture, rewrite};

/// One more operation with these members.
fn operation(members: &str) -> String {
    let begin = r#","summary":"s","answer":{"type":"object"}"#;
    format!(r#",{{"method":"POST"{begin},{members}}}"#)
}

async fn refuse(bed: &Bed, wasm: Vec<u8>) -> LifeCycleError {
    let digest = digest(&wasm);
    let refused = bed.install(wasm).await.unwrap_err();
    assert!(!bed.store.blob_exists(&digest).await.unwrap(), "{refused}");
    assert!(bed.registry.inventory().versions.is_empty(), "{refused}");
    refused
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_is_of_its_primitive_and_at_a_place_of_its_own() {
    let bed = Bed::new().await;
    for (members, told) in [
        (r#""id":"other.more","path":"/hostile/more""#, "must be hostile.<verb>"),
        (r#""id":"hostile.more","path":"/hostile/loop""#, "is taken: another operation has POST"),
        (r#""id":"hostile.more","path":"/""#, "must name something below its mount"),
        (
            r#""id":"hostile.more","path":"/v1/more","mounts":["root"]"#,
            "must not lie below /v1 at the root mount",
        ),
        (
            r#""id":"hostile.more","path":"/.well-known/more","mounts":["root"]"#,
            "must not begin with /.well-known",
        ),
        (r#""id":"hostile.more","path":"/login","mounts":["root"]"#, "must not begin with /login"),
        (
            r#""id":"hostile.more","path":"/hostile/more","mounts":["user","user"]"#,
            "must not hold an item twice",
        ),
    ] {
        let refused = reason(refuse(&bed, declaring(&operation(members))).await);
        assert!(refused.contains(told), "{members}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_operation_asks_for_what_the_manifest_has_and_callers_may() {
    let bed = Bed::new().await;
    for (members, told) in [
        (r#""auth":"operator""#, "must be operator alone where auth is operator"),
        (r#""mounts":["operator"]"#, "must be operator at the operator mount"),
        (r#""auth":"shared_secret:none""#, "must name a declared provider"),
        (r#""auth":"password""#, "must be key, session, operator, hook"),
        (r#""auth":"none","mounts":["user"]"#, "only a key or session can name one of its users"),
        (r#""action":"hostile.spend""#, "must name a declared action"),
        (r#""needs":["mail.relay"]"#, "must name a declared provider"),
        (r#""class":"short","deadline_ms":60000"#, "whose class is short"),
    ] {
        let members = format!(r#""id":"hostile.more","path":"/hostile/more",{members}"#);
        let refused = reason(refuse(&bed, declaring(&operation(&members))).await);
        assert!(refused.contains(told), "{members}: {refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_listens_to_signals_that_there_are() {
    let bed = Bed::new().await;
    let told = reason(refuse(&bed, declaring(r#"],"signals":["gossip""#)).await);
    assert!(told.contains("must be one of approval"), "{told}");
    let told = reason(refuse(&bed, rewrite(fixture("hostile"), "1.0.0", "1.0.x")).await);
    assert!(told.contains("must be a semantic version"), "{told}");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_faults_are_told_at_once() {
    let bed = Bed::new().await;
    let two = [
        operation(r#""id":"other.more","path":"/hostile/loop""#),
        operation(r#""id":"hostile.more","path":"/hostile/more","auth":"password""#),
    ];
    let refused = refuse(&bed, declaring(&two.concat())).await;
    let LifeCycleError::Unfit(faults) = &refused else { panic!("{refused}") };
    let paths: Vec<&str> =
        faults.iter().filter_map(|fault| fault.path.rsplit('.').next()).collect();
    for path in ["id", "path", "auth"] {
        assert!(paths.contains(&path), "{path}: {faults:?}");
    }
    let many = faults.len();
    let refusal = Refusal::from(refused);
    assert_eq!(refusal.code, Code::InvalidComponent);
    assert_eq!(refusal.details["faults"].as_array().unwrap().len(), many);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_of_another_world_is_none() {
    let bed = Bed::new().await;
    for name in ["wrong-world", "forbidden-import", "undeclared-import", "malformed"] {
        let refused = refuse(&bed, fixture(name)).await;
        assert!(matches!(&refused, LifeCycleError::Unfit(faults) if !faults.is_empty()), "{name}");
    }
    let sockets = reason(refuse(&bed, fixture("forbidden-import")).await);
    assert!(sockets.contains("import"), "{sockets}");
    let cut = fixture("hostile");
    refuse(&bed, cut[..cut.len() / 2].to_vec()).await;
    refuse(&bed, Vec::new()).await;
}

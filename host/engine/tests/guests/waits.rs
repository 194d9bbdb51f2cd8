//! Calls that wait for a change: without an instance and without a place, so many at once, and no
//! longer than their deadline, their client or their host lasts. Loading by digest stands here too.

use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

use charter_engine::{AdmissionConfig, Call, Component, EngineConfig, Outcome};
use tokio_util::sync::CancellationToken;

use crate::fixture::{declaring, fixture, rewrite};
use crate::{World, call, until};

/// The hostile component, with the collection declared that its calls wait for for ever.
async fn waiter(world: &World) -> Arc<Component> {
    // An escaped letter: only the name that stands there already is written over.
    let declared = r#"],"c\u006fllections":[{"name":"undeclared"},{"name":"owned"}],"more":[{}"#;
    let wasm = rewrite(declaring(declared), "\"collections\"", "\"collectionz\"");
    world.engine.stage(wasm.into()).await.unwrap()
}

fn wait(deadline_ms: u32) -> Call {
    Call { deadline_ms, ..call("hostile.again", "{}") }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_waits_holds_nothing_and_ends_with_its_deadline_its_client_or_its_host() {
    let admission = AdmissionConfig { parked_tenant_max: 3, ..AdmissionConfig::default() };
    let world = World::with(EngineConfig { admission, ..World::config() }).await;
    let waiter = waiter(&world).await;
    let begun = std::time::Instant::now();
    let outcome = world.engine.call(&waiter, wait(400)).await;
    assert!(matches!(outcome, Outcome::Deadline), "{outcome:?}");
    assert!(begun.elapsed().as_millis() >= 400, "not before its time");

    let body = format!(r#"{{"n":"{}"}}"#, "x".repeat(16 << 10));
    match world
        .engine
        .call(&waiter, Call { deadline_ms: 400, ..call("hostile.again", &body) })
        .await
    {
        Outcome::Refused(failure) => assert_eq!(failure.code, "payload_too_large"),
        other => panic!("{other:?}"),
    }

    // Waits again where another was quicker to take its place.
    let parked = async |gone: CancellationToken| loop {
        let call = Call { client_gone: gone.clone(), ..wait(20_000) };
        let outcome = world.engine.call(&waiter, call).await;
        if !matches!(outcome, Outcome::Shed { .. }) {
            break outcome;
        }
    };
    let gone = CancellationToken::new();
    let host = async {
        let third = async || world.engine.call(&waiter, wait(50)).await;
        until("a third call is turned away for its tenant's share", async || {
            matches!(third().await, Outcome::Shed { tenant: true, .. })
        })
        .await;
        let idle = async || world.engine.stats().instances.load(SeqCst) == 0;
        until("who waits has no instance", idle).await;
        gone.cancel();
        until("the first has left", async || matches!(third().await, Outcome::Deadline)).await;
        world.engine.cut();
    };
    let others = CancellationToken::new();
    let (first, second, ()) = tokio::join!(parked(gone.clone()), parked(others), host);
    assert!(matches!(first, Outcome::ClientGone), "{first:?}");
    assert!(matches!(second, Outcome::Unavailable { .. }), "{second:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_component_is_opened_by_its_digest_or_not_at_all() {
    let world = World::new().await;
    let digest = world.stage("probe").await.digest().to_owned();
    let absent = world.engine.open("sha256:00", || async { None }).await.unwrap_err();
    assert!(absent[0].message.contains("is not there"), "{absent:?}");
    let wrong = async || Some(fixture("probe").into());
    let faults = world.engine.open("sha256:00", wrong).await.unwrap_err();
    assert!(faults[0].message.contains(&digest), "it says whose bytes they are: {faults:?}");
    let hits = || world.engine.stats().cache_hits.load(SeqCst);
    let before = hits();
    let again = world.engine.open(&digest, || async { panic!("the cache has it") }).await.unwrap();
    assert_eq!((again.digest(), hits()), (digest.as_str(), before + 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_told_of_the_sandbox_is_true_of_it() {
    let world = World::new().await;
    let probe = world.stage("probe").await;
    assert!(["pooling", "pooling-small", "on-demand"].contains(&world.engine.mode()));
    assert_eq!(charter_engine::Engine::probe(&World::config()).unwrap(), world.engine.mode());
    assert!(world.engine.instantiate(&probe).await.unwrap().as_secs() < 10);
    assert_eq!(world.engine.stats().instances.load(SeqCst), 0);
    assert_eq!(world.engine.stats().memory_bytes.load(SeqCst), 0, "and all of it is back");
}

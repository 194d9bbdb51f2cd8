//! Requests that leave on a guest's behalf: their permitted destinations, and the meaning of their
//! failure to the guest.

use serde_json::json;

use crate::stage::{Stage, refused};

#[tokio::test(flavor = "multi_thread")]
async fn a_request_reaches_the_provider_once_and_its_answer_the_guest() {
    let stage = Stage::new().await;
    let seen = stage.seen(json!([{ "fetch": "POST", "path": "/a?b=c" }])).await;
    assert_eq!(seen, [json!(200)]);
    assert_eq!(*stage.peer.requests.lock().unwrap(), ["POST /a"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_provider_that_is_gone_is_a_failure_that_the_guest_may_catch() {
    let stage = Stage::new().await;
    let fetch = || json!({ "fetch": "GET", "path": "/gone" });
    let seen = stage.seen(json!([{ "try": fetch() }, { "note": "note" }])).await;
    assert_eq!(seen[0]["failure"], "provider_error", "{seen:?}");
    assert_eq!(stage.kept().await.0, ["note"]);
    assert_eq!(refused(stage.play(json!([fetch()])).await).0, "provider_error");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_sent_stays_an_effect_although_it_failed() {
    let stage = Stage::new().await;
    let steps = json!([
        { "note": "note" }, { "try": { "fetch": "POST", "path": "/gone" } }, { "trap": 1 },
    ]);
    let outcome = stage.play(steps).await;
    // Nobody knows whether the provider took it: the caller must not take it for "try again".
    let told = format!("{outcome:?}");
    assert!(told.contains("EFFECT_WITHOUT_RECORD") || told.starts_with("Trapped"), "{told}");
    assert_eq!(stage.kept().await.0, [""; 0]);
    assert_eq!(stage.peer.count("POST"), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_way_out_nothing_leaves() {
    let world = crate::World::new().await;
    let script = world.stage("script").await;
    let body = json!({ "steps": [{ "try": { "fetch": "GET", "path": "/" } }] }).to_string();
    let answer = crate::json(world.call(&script, "script.play", &body).await);
    assert!(answer["seen"][0]["failure"].is_string(), "{answer}");
}

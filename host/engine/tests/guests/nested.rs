//! Calls from one primitive to another, as the host is asked for them: which call it is, on whose
//! behalf, and what a refusal means.

use std::collections::BTreeSet;

use charter_engine::Outcome;
use serde_json::json;

use crate::stage::{Stage, refused, script};

#[tokio::test(flavor = "multi_thread")]
async fn a_nested_call_bears_its_callers_scope_and_what_it_was_given() {
    let stage = Stage::new().await;
    let seen = stage
        .seen(json!([{ "call": "other.echo", "body": { "n": 1 }, "parameters": { "id": "x" } }]))
        .await;
    assert_eq!(seen[0], json!({ "status": 201, "body": { "n": 1 } }));
    let nested = stage.desk.nested.lock().unwrap();
    let [nested] = nested.as_slice() else { panic!("{nested:?}") };
    assert_eq!(nested.scope, crate::scope());
    assert_eq!((nested.primitive.as_str(), nested.operation.as_str()), ("script", "other.echo"));
    assert_eq!(nested.parameters, [("id".to_owned(), "x".to_owned())]);
    assert_eq!((nested.request.as_str(), nested.lineage.depth()), ("request", 1));
    assert!(nested.deadline_ms <= 5_000, "it has what is left of its caller's time");
}

#[tokio::test(flavor = "multi_thread")]
async fn two_equal_calls_are_two_calls() {
    let stage = Stage::new().await;
    let equal = || json!({ "call": "other.echo", "body": {} });
    stage.seen(json!([equal(), equal(), equal()])).await;
    let nested = stage.desk.nested.lock().unwrap();
    let keys: BTreeSet<_> = nested.iter().map(|call| call.idempotency_key.clone()).collect();
    assert_eq!((nested.len(), keys.len()), (3, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_request_finds_the_keys_of_its_first_run() {
    let stage = Stage::new().await;
    for _ in 0..2 {
        stage.seen(json!([{ "call": "other.echo" }, { "call": "other.echo" }])).await;
    }
    let nested = stage.desk.nested.lock().unwrap();
    let keys: Vec<_> = nested.iter().map(|call| call.idempotency_key.as_str()).collect();
    assert_eq!(keys[..2], keys[2..], "what was done is found again");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_inside_comes_back_as_one_and_the_caller_may_go_on() {
    let stage = Stage::new().await;
    let seen =
        stage.seen(json!([{ "try": { "call": "other.unknown" } }, { "note": "note" }])).await;
    assert_eq!(seen[0]["failure"], "state_conflict");
    assert_eq!(stage.kept().await.0, ["note"]);
    let untried = stage.play(json!([{ "note": "note" }, { "call": "other.unknown" }])).await;
    assert_eq!(refused(untried).0, "state_conflict");
    assert_eq!(stage.kept().await.0, ["note"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_inside_is_an_effect_and_a_read_is_none() {
    for (operation, acted) in [("other.read", false), ("other.echo", true)] {
        let stage = Stage::new().await;
        let steps = json!([
            { "call": operation }, { "count": "note" }, { "fetch": "GET", "path": "/hold" },
            { "note": "note" },
        ]);
        let outcome = stage.interrupted(script(steps), async {
            stage.seen(json!([{ "note": "note" }])).await;
        });
        let outcome = outcome.await;
        match acted {
            true => assert_eq!(refused(outcome).1, "EFFECT_WITHOUT_RECORD"),
            false => assert!(matches!(outcome, Outcome::Answered(_)), "{outcome:?}"),
        }
        let calls = stage.desk.nested.lock().unwrap().len();
        assert_eq!(calls, if acted { 1 } else { 2 }, "{operation}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_inside_that_found_no_room_is_handed_on_where_nothing_else_was_done() {
    let stage = Stage::new().await;
    let full = || json!({ "call": "other.full" });
    let told = async |steps| refused(stage.play(steps).await);
    assert_eq!(told(json!([full()])).await.0, "overloaded");
    let effect = ("state_conflict".to_owned(), "EFFECT_WITHOUT_RECORD".to_owned());
    assert_eq!(told(json!([{ "call": "other.echo" }, full()])).await, effect);
    assert_eq!(told(json!([{ "try": full() }, { "checkpoint": 1 }, full()])).await, effect);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_host_there_is_nobody_to_call() {
    let world = crate::World::new().await;
    let script = world.stage("script").await;
    let body = json!({ "steps": [{ "try": { "call": "other.echo" } }] }).to_string();
    let answer = crate::json(world.call(&script, "script.play", &body).await);
    assert_eq!(answer["seen"][0]["failure"], "not_configured", "{answer}");
}

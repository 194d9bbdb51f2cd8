//! Jobs that a request answers with: its caller waits for the result, and a repeated key gets it again.

use charter_tests::artefacts::Artefacts;
use charter_tests::world::Builder;
use charter_tests::{Answer, Client, Tenant, World, on_both};
use serde_json::{Value, json};

fn scripted(world: &World) -> Tenant {
    world.install("script", &Artefacts::get().fixture("script"));
    world.register()
}

/// Plays a script whose answer is the job that plays these steps.
fn job(client: &Client, key: &str, steps: &Value) -> Answer {
    let body = json!({"steps": [{"enqueue": steps, "answer": true, "public": true, "attempts": 1}]});
    client.call("POST", "/v1/script").idempotency_key(key).json(&body).send()
}

fn made(client: &Client) -> usize {
    client.get("/v1/jobs").expect(200)["jobs"].as_array().unwrap().len()
}

on_both! {
    fn a_jobs_result_is_answered_again_to_a_repeated_key(world: Builder::new().bare()) {
        let tenant = scripted(world);
        let steps = json!([{"note": "note", "slug": "once", "count": 1}]);
        let first = job(&tenant.client, "job-1", &steps);
        let told = first.expect(200);
        assert_eq!(told["seen"].as_array().unwrap().len(), 1, "the job's result, not its acceptance: {first}");
        assert_eq!(first.header("idempotent-replayed"), None);
        let second = job(&tenant.client, "job-1", &steps);
        assert_eq!(second.expect(200), told);
        assert_eq!(second.header("idempotent-replayed"), Some("true"));
        assert_eq!(made(&tenant.client), 1, "one job was made");
    }

    fn a_failed_jobs_reason_is_answered_again_too(world: Builder::new().bare()) {
        let tenant = scripted(world);
        let steps = json!([{"refuse": "state_conflict"}]);
        for _ in 0..2 {
            let error = job(&tenant.client, "job-2", &steps).expect_error(409, "state_conflict");
            assert_eq!(error["reason"], "script");
        }
        assert_eq!(made(&tenant.client), 1);
    }
}

//! Idempotency keys under races: many requests at once, and one that is run again.

use charter_tests::artefacts::Artefacts;
use charter_tests::patience::until;
use charter_tests::world::Builder;
use charter_tests::{Answer, Client, World, on_both};
use serde_json::{Value, json};

fn play(client: &Client, key: &str, steps: &Value) -> Answer {
    client.call("POST", "/v1/script").idempotency_key(key).json(&json!({ "steps": steps })).send()
}

fn notes(client: &Client) -> Value {
    client.get("/v1/script/notes").expect(200)
}

on_both! {
    fn what_is_still_running_is_told_at_once_and_another_request_is_a_conflict(world) {
        let tenant = world.register();
        let queue = charter_tests::tenant::id(&tenant.client.post("/v1/queue", &json!({"name": "q"})).expect(201)["queue"]);
        let ask = |wait: u32| {
            let call = tenant.client.call("POST", &format!("/v1/queue/{queue}/receive"));
            call.idempotency_key("one").json(&json!({"wait_seconds": wait})).send()
        };
        std::thread::scope(|scope| {
            let (said, heard) = std::sync::mpsc::channel();
            for said in [said.clone(), said] {
                scope.spawn(move || said.send(ask(20)).unwrap());
            }
            // The first of them waits; the other one is told so.
            let told = heard.recv().unwrap();
            assert_eq!(told.header("retry-after"), Some("1"), "{}", told.expect_error(409, "job_not_ready"));
            ask(1).expect_error(409, "duplicate_request");
            let sent = json!({"messages": [{"body": "wanted"}]});
            tenant.client.post(&format!("/v1/queue/{queue}/messages"), &sent).expect(201);
            let first = heard.recv().unwrap();
            assert_eq!(first.expect(200)["messages"][0]["body"], "wanted");
            assert_eq!(ask(20).body, first.body);
        });
    }

    fn a_final_refusal_is_the_answer_for_good(world) {
        let tenant = world.register();
        let kit = tenant.kit("used", json!({}));
        let user = tenant.user_with_kit("agent", &kit);
        let delete = || tenant.client.call("DELETE", &format!("/v1/kits/{kit}")).idempotency_key("gone").send();
        let refused = delete();
        refused.expect_error(409, "state_conflict");
        tenant.client.delete(&format!("/v1/users/{user}")).expect(200);
        let again = delete();
        assert_eq!((again.status, &again.body, again.header("idempotent-replayed")), (409, &refused.body, Some("true")));
        tenant.client.delete(&format!("/v1/kits/{kit}")).expect(200);
        // A fault of the request or its credential is no final answer.
        let make = |key: &str| {
            let call = tenant.client.call("POST", "/v1/kits").idempotency_key("mended");
            call.header("x-service-user-id", key).json(&json!({"name": "mended"})).send()
        };
        make("nobody").expect_error(404, "not_found");
        make("me").expect(201);
    }

    fn a_large_answer_is_kept_whole(world) {
        let tenant = world.register();
        let queue = charter_tests::tenant::id(&tenant.client.post("/v1/queue", &json!({"name": "q"})).expect(201)["queue"]);
        let path = format!("/v1/queue/{queue}");
        for _ in 0..10 {
            let sent = json!({"messages": [{"body": "x".repeat(250_000)}]});
            tenant.client.post(&format!("{path}/messages"), &sent).expect(201);
        }
        let receive = || {
            let call = tenant.client.call("POST", &format!("{path}/receive")).idempotency_key("all");
            call.json(&json!({"max_messages": 10})).send()
        };
        let first = receive();
        assert_eq!(first.expect(200)["messages"].as_array().unwrap().len(), 10);
        let again = receive();
        assert!(again.body == first.body && again.header("idempotent-replayed") == Some("true"), "{} bytes", again.body.len());
    }
}

mod checkpoints {
    use super::*;

    fn tenant_with_script(world: &World) -> charter_tests::Tenant {
        world.install("script", &Artefacts::get().fixture("script"));
        world.register()
    }

    on_both! {
        fn a_conflict_at_a_checkpoint_does_not_cost_the_key(world: Builder::new().bare()) {
            let tenant = tenant_with_script(world);
            let client = &tenant.client;
            play(client, "begin", &json!([{"note": "note", "slug": "hot", "count": 0}, {"items": 1}])).expect(200);
            let steps = json!([{"bump": "hot"}, {"take": 1}, {"sleep_ms": 1500}, {"checkpoint": true}, {"attempt": true}]);
            let answer = std::thread::scope(|scope| {
                let running = scope.spawn(|| play(client, "once", &steps));
                until("the script takes the item", || notes(client)["items"] == 0);
                play(client, "between", &json!([{"bump": "hot"}])).expect(200);
                running.join().unwrap()
            });
            let seen = answer.expect(200)["seen"].clone();
            assert_eq!(seen.as_array().unwrap().last(), Some(&json!(2)), "its checkpoint met a conflict, and it was run again");
            let again = play(client, "once", &steps);
            assert_eq!(again.expect(200)["seen"], seen);
            assert_eq!(again.header("idempotent-replayed"), Some("true"));
            assert_eq!(notes(client)["notes"][0]["count"], 2, "both have counted, once each");
        }
    }
}

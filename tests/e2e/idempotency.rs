//! Idempotency keys under races: many requests at once, and one that is run again.

use charter_tests::artefacts::Artefacts;
use charter_tests::patience::until;
use charter_tests::world::Builder;
use charter_tests::{Answer, Client, World, on_both};
use serde_json::{Value, json};

fn play(client: &Client, key: &str, steps: &Value) -> Answer {
    client.call("POST", "/v1/script").idempotency_key(key).json(&json!({ "steps": steps })).send()
}

fn kept(client: &Client) -> Value {
    client.get("/v1/script/notes").expect(200)
}

on_both! {
    fn of_many_requests_under_one_key_one_runs_and_all_get_its_answer(world) {
        let tenant = world.register();
        let body = json!({"name": "Ann"});
        let ask = || tenant.client.call("POST", "/v1/users").idempotency_key("ann").json(&body).send();
        let answers: Vec<Answer> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(ask)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let first = answers[0].expect(201);
        for answer in &answers {
            assert_eq!(answer.expect(201), first);
        }
        let fresh = answers.iter().filter(|answer| answer.header("idempotent-replayed").is_none()).count();
        assert_eq!(fresh, 1, "one ran");
        let users = tenant.client.get("/v1/users").expect(200);
        assert_eq!(users["users"].as_array().unwrap().iter().filter(|user| user["name"] == "Ann").count(), 1);
    }
}

mod checkpoints {
    use super::*;

    fn scripted(world: &World) -> charter_tests::Tenant {
        world.install("script", &Artefacts::get().fixture("script"));
        world.register()
    }

    on_both! {
        fn a_conflict_at_a_checkpoint_does_not_cost_the_key(world: Builder::new().bare()) {
            let tenant = scripted(world);
            let client = &tenant.client;
            play(client, "begin", &json!([{"note": "note", "slug": "hot", "count": 0}, {"items": 1}])).expect(200);
            let steps = json!([{"bump": "hot"}, {"take": 1}, {"sleep_ms": 1500}, {"checkpoint": true}, {"attempt": true}]);
            let answer = std::thread::scope(|scope| {
                let running = scope.spawn(|| play(client, "once", &steps));
                until("the script takes the item", || kept(client)["items"] == 0);
                play(client, "between", &json!([{"bump": "hot"}])).expect(200);
                running.join().unwrap()
            });
            let seen = answer.expect(200)["seen"].clone();
            assert_eq!(seen.as_array().unwrap().last(), Some(&json!(2)), "its checkpoint met a conflict, and it was run again");
            let again = play(client, "once", &steps);
            assert_eq!(again.expect(200)["seen"], seen);
            assert_eq!(again.header("idempotent-replayed"), Some("true"));
            assert_eq!(kept(client)["notes"][0]["count"], 2, "both have counted, once each");
        }
    }
}

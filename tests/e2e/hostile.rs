//! Components that attack: each costs its caller one clear error. That it costs its neighbours
//! nothing is tested where calls are run, in the engine.

use charter_tests::artefacts::Artefacts;
use charter_tests::world::Builder;
use charter_tests::{Answer, World, on_both};
use serde_json::json;

/// The answer to each attack. `None` where the host makes the answer harmless instead of refusing
/// it.
const ATTACKS: &[(&str, Option<&[u16]>)] = &[
    ("loop", Some(&[504])),
    ("park", Some(&[504])),
    ("memory", Some(&[500, 503])),
    ("recursion", Some(&[500])),
    ("answer", Some(&[500, 503])),
    ("bytes", Some(&[500, 503])),
    ("garbage", Some(&[500])),
    ("status", Some(&[500])),
    ("headers", None),
    ("code", Some(&[500])),
    ("handles", Some(&[500, 503])),
    ("random", Some(&[500, 503])),
    ("trap", Some(&[500])),
    ("rows", Some(&[400, 413, 500])),
    ("body", Some(&[400, 413, 500])),
    ("nesting", Some(&[400, 500])),
    ("not-json", Some(&[400, 500])),
    ("undeclared-collection", Some(&[400, 500])),
    ("foreign-collection", Some(&[400, 500])),
    ("undeclared-event", Some(&[400, 500])),
    // A stream lies in the primitive's own space, whatever it calls it.
    ("undeclared-stream", None),
    ("undeclared-operation", None),
    ("forged-token", Some(&[400, 404, 409, 500])),
];

fn hostile(world: &World) {
    world.install("hostile", &Artefacts::get().fixture("hostile"));
}

fn attack(client: &charter_tests::Client, name: &str) -> Answer {
    client.post(&format!("/v1/hostile/{name}"), &json!({}))
}

on_both! {
    fn each_attack_costs_its_caller_one_clear_error_and_leaves_nothing(world: Builder::new()) {
        hostile(world);
        let tenant = world.register();
        for (name, statuses) in ATTACKS {
            let answer = attack(&tenant.client, name);
            if let Some(statuses) = statuses {
                assert!(statuses.contains(&answer.status), "{name}: expected one of {statuses:?} from {answer}");
                let error = answer.error();
                assert!(!answer.text().contains("the guest's own words"), "{name} tells the caller what is the operator's: {error}");
            }
            assert_eq!(answer.headers.get_all("x-request-id").iter().count(), 1, "{name}: {answer}");
            assert!(answer.header("set-cookie").is_none() && answer.header("idempotent-replayed").is_none(), "{name}: {answer}");
        }
        let left = tenant.client.get("/v1/hostile/written-documents").expect(200);
        assert_eq!(left["count"], 0, "an attack left documents behind");
        tenant.client.get("/v1/hostile/good").expect(200);
        assert!(world.server().log().contains("the guest's own words"), "the operator's log lacks the guest's message");
    }
}

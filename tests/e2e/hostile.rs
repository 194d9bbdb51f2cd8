//! Components that attack: each costs its caller one clear error, and its neighbours nothing.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use charter_tests::artefacts::Artefacts;
use charter_tests::patience::Over;
use charter_tests::world::Builder;
use charter_tests::{Answer, World, on_both};
use serde_json::json;

/// What each attack is answered with. `None` where the host makes the answer harmless instead of
/// refusing it.
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

    fn a_spinning_guest_does_not_hold_up_its_neighbours(world: Builder::new()) {
        hostile(world);
        let (villain, neighbour) = (world.register(), world.register());
        let queue = neighbour.client.post("/v1/queue", &json!({"name": "calm"})).expect(201)["queue"]["id"].clone();
        let path = format!("/v1/queue/{}", queue.as_str().unwrap());
        let (over, served) = (AtomicBool::new(false), AtomicU32::new(0));
        std::thread::scope(|scope| {
            let attacked = Over(&over);
            let thrice = || [(); 3].map(|()| attack(&villain.client, "loop").status);
            let attacks: Vec<_> = (0..4).map(|_| scope.spawn(thrice)).collect();
            let reader = scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    neighbour.client.get(&path).expect(200);
                    served.fetch_add(1, Ordering::Relaxed);
                }
            });
            for attack in attacks {
                for status in attack.join().unwrap() {
                    assert!(matches!(status, 429 | 503 | 504), "a loop ended with {status}");
                }
            }
            drop(attacked);
            reader.join().unwrap();
        });
        // A reader that had to wait for each of the twelve loops would get as many answers.
        assert!(served.load(Ordering::Relaxed) > 20, "only {} reads were served beside the loops", served.load(Ordering::Relaxed));
    }

    fn components_that_do_not_fit_are_refused_with_every_fault(world: Builder::new().bare()) {
        for (fixture, words) in [
            ("malformed", "operations"),
            ("wrong-world", "describe"),
            ("forbidden-import", "import"),
            ("undeclared-import", "capabilit"),
        ] {
            let answer = world.upload(fixture, &Artefacts::get().fixture(fixture), true);
            assert_eq!(answer.status, 422, "{fixture}: {answer}");
            let error = answer.error();
            let faults = error["details"]["faults"].as_array().unwrap_or_else(|| panic!("{fixture}: no faults in {answer}"));
            assert!(!faults.is_empty() && answer.text().to_lowercase().contains(words), "{fixture}: nothing about {words} in {answer}");
        }
        world.upload("nonsense", b"not a component", true).expect_error(422, "invalid_component");
        assert_eq!(world.operator().get("/v1/operator/components").expect(200)["components"], json!([]));
    }
}

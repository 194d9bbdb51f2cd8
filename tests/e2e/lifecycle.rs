//! The life of a component: staged, activated, pinned, rolled back, under load and across restarts.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use charter_tests::artefacts::Artefacts;
use charter_tests::patience::{Over, PATIENCE, look_for, until};
use charter_tests::world::Builder;
use charter_tests::{Client, World, on_both};
use serde_json::{Value, json};

fn probe(build: u32) -> Vec<u8> {
    Artefacts::get().probe(build)
}

/// The same, with an index that builds before it did not have.
fn probe_with_index(build: u32) -> Vec<u8> {
    let mut wasm = probe(build);
    let (old, new) = (br#""indexes": [                 ]"#, br#""indexes": [{"field":"name"} ]"#);
    assert_eq!(old.len(), new.len());
    let at = wasm
        .windows(old.len())
        .position(|window| window == old)
        .expect("the manifest has room for an index");
    wasm[at..at + new.len()].copy_from_slice(new);
    wasm
}

fn build(client: &Client) -> Value {
    client.get("/v1/probe").expect(200)["build"].clone()
}

fn stage(world: &World, build: u32) -> String {
    let answer = world.upload("probe", &probe(build), false).expect(201);
    answer["component"]["digest"]
        .as_str()
        .unwrap_or_else(|| panic!("no digest in {answer}"))
        .to_owned()
}

fn activate(world: &World, digest: &str) {
    world
        .operator()
        .post("/v1/operator/components/probe/activate", &json!({ "digest": digest }))
        .expect(200);
}

on_both! {
    fn a_version_is_staged_activated_and_rolled_back(world: Builder::new().bare()) {
        world.install("probe", &probe(900_001));
        let tenant = world.register();
        assert_eq!(build(&tenant.client), "900001");
        let second = stage(world, 900_002);
        assert_eq!(build(&tenant.client), "900001", "a staged version is not served");
        activate(world, &second);
        assert_eq!(build(&tenant.client), "900002");
        world.operator().post("/v1/operator/components/probe/rollback", &json!({})).expect(200);
        assert_eq!(build(&tenant.client), "900001");
        world.stop();
        world.start();
        assert_eq!(build(&tenant.client.at(world.server().address())), "900001", "a rollback stays across a restart");
    }

    fn what_does_not_fit_what_is_set_is_not_rolled_back_to(world: Builder::new().bare()) {
        world.install("probe", &probe(900_001));
        world.install("probe", &probe(900_002));
        let tenant = world.register();
        world.stop();
        world.options().environment.push(("CHARTER_PRIMITIVES_PROBE".into(), r#"{"only_900002": 1}"#.into()));
        world.start();
        let refused = world.operator().post("/v1/operator/components/probe/rollback", &json!({})).expect_error(422, "invalid_component");
        assert_eq!(refused["param"], "primitives.probe.only_900002", "{refused}");
        assert_eq!(build(&tenant.client.at(world.server().address())), "900002");
    }

    fn a_version_cannot_be_replaced_by_other_bytes(world: Builder::new().bare()) {
        world.install("probe", &probe(900_001));
        let mut other = probe(900_001);
        // A custom section of our own: other bytes, the same version.
        other.extend([0, 5, 4, b't', b'e', b's', b't']);
        let answer = world.upload("probe", &other, true);
        assert!(matches!(answer.status, 409 | 422), "{answer}");
        answer.error();
    }

    fn a_kit_can_pin_a_version_while_others_move_on(world: Builder::new().bare()) {
        world.install("probe", &probe(900_001));
        let tenant = world.register();
        let second = stage(world, 900_002);
        activate(world, &second);
        let kit = tenant.kit("canary", json!({"probe": {"enabled": true, "version": "1.0.900001"}}));
        let pinned = tenant.user_with_kit("pinned", &kit);
        assert_eq!(tenant.client.get(&format!("/v1/users/{pinned}/probe")).expect(200)["build"], "900001");
        assert_eq!(build(&tenant.client), "900002");
    }

    fn what_an_older_version_writes_is_found_by_the_newer_ones_index(world: Builder::new().bare()) {
        world.install("probe", &probe(900_001));
        let tenant = world.register();
        let kit = tenant.kit("canary", json!({"probe": {"enabled": true, "version": "1.0.900001"}}));
        let user = tenant.user_with_kit("pinned", &kit);
        let path = format!("/v1/users/{user}");
        let write = |name: &str| {
            tenant.client.post(&format!("{path}/probe/pairs"), &json!({"name": name})).expect(201);
        };
        let found = |name: &str| tenant.client.get(&format!("{path}/probe/find?name={name}")).expect(200)["found"].clone();
        write("before");
        world.install("probe", &probe_with_index(900_002));
        assert_eq!(build(&tenant.client), "900002");
        write("beside");
        assert_eq!(tenant.client.get(&format!("{path}/probe")).expect(200)["build"], "900001", "the kit pins the older one");
        tenant.client.patch(&path, &json!({"kit_id": null})).expect(200);
        assert_eq!((found("before"), found("beside"), found("nobody")), (json!(1), json!(1), json!(0)));
    }

    fn a_version_is_tried_on_all_documents_before_it_serves(world: Builder::new().bare()) {
        world.install("probe", &probe(900_001));
        let tenant = world.register();
        let kit = tenant.kit("canary", json!({"probe": {"enabled": true}}));
        let path = format!("/v1/users/{}/probe", tenant.user_with_kit("pinned", &kit));
        let write = |name: &str| {
            tenant.client.post(&format!("{path}/pairs"), &json!({"name": name})).expect(201);
        };
        let found = |name: &str| tenant.client.get(&format!("{path}/find?name={name}")).expect(200)["found"].clone();
        write("before");
        world.upload("probe", &probe_with_index(900_002), false).expect(201);
        write("between");
        let pin = json!({"primitives": {"probe": {"enabled": true, "version": "1.0.900002"}}});
        tenant.client.patch(&format!("/v1/kits/{kit}"), &pin).expect(200);
        assert_eq!(tenant.client.get(&path).expect(200)["build"], "900002");
        write("after");
        assert_eq!(["before", "between", "after", "never"].map(found), [1, 1, 1, 0].map(Value::from));
        assert_eq!(build(&tenant.client), "900001", "it does not serve everybody");
    }

    fn a_version_whose_indexes_are_not_built_cannot_be_pinned(world: Builder::new().bare()) {
        world.install("probe", &probe(900_001));
        let tenant = world.register();
        // No index of texts takes this one, so that none is built.
        tenant.client.post("/v1/probe/pairs", &json!({"name": "a\0b"})).expect(201);
        let refused = world.upload("probe", &probe_with_index(900_002), false);
        refused.expect_error(422, "invalid_component");
        let pin = json!({"name": "canary", "primitives": {"probe": {"enabled": true, "version": "1.0.900002"}}});
        let refused = tenant.client.post("/v1/kits", &pin);
        let error = refused.expect_error(409, "state_conflict");
        assert_eq!(error["reason"], "index_not_built", "{refused}");
        assert!(error["hint"].as_str().is_some_and(|hint| hint.contains("operator")), "{refused}");
        // Nor does a kit that is there come to pin it.
        let kit = tenant.kit("plain", json!({"probe": {"enabled": true}}));
        let pin = json!({"primitives": {"probe": {"enabled": true, "version": "1.0.900002"}}});
        let refused = tenant.client.patch(&format!("/v1/kits/{kit}"), &pin);
        assert_eq!(refused.expect_error(409, "state_conflict")["reason"], "index_not_built", "{refused}");
    }

    fn no_request_fails_while_versions_change_under_load(world: Builder::new().bare()) {
        world.install("probe", &probe(900_001));
        let tenant = world.register();
        let digests = [stage(world, 900_002), stage(world, 900_003)];
        let (over, served) = (AtomicBool::new(false), AtomicU32::new(0));
        std::thread::scope(|scope| {
            let _changing = Over(&over);
            for _ in 0..4 {
                scope.spawn(|| {
                    while !over.load(Ordering::Relaxed) {
                        build(&tenant.client);
                        served.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
            for round in 0..30 {
                activate(world, &digests[round % 2]);
            }
        });
        assert!(served.load(Ordering::Relaxed) > 0);
    }

    fn a_request_in_flight_finishes_on_the_version_it_began_with(world: Builder::new().bare()) {
        world.install("probe", &probe(900_001));
        let tenant = world.register();
        let second = stage(world, 900_002);
        std::thread::scope(|scope| {
            let slow = scope.spawn(|| tenant.client.post("/v1/probe/wait", &json!({"milliseconds": 1500})).expect(200));
            // The slow request is under way once the operator's view counts it or the swap is done;
            // either way it began first.
            while !slow.is_finished() && build(&tenant.client) == "900001" {
                activate(world, &second);
            }
            assert_eq!(build(&tenant.client), "900002");
            let finished = slow.join().unwrap();
            assert!(finished["build"] == "900001" || finished["build"] == "900002", "{finished}");
        });
    }

    fn a_primitive_is_told_what_becomes_of_a_user(world: Builder::new().bare()) {
        world.install("probe", &probe(900_001));
        let tenant = world.register();
        let user = tenant.user("agent");
        let path = format!("/v1/users/{user}");
        let kinds = |wanted: usize| {
            look_for(PATIENCE, "it is told", || {
                let changes = tenant.client.get("/v1/probe/changes").expect(200)["changes"].clone();
                let own: Vec<Value> = changes.as_array().unwrap().iter().filter(|it| it["user"] == user).cloned().collect();
                if own.len() >= wanted { Ok(own) } else { Err(changes) }
            })
        };
        assert_eq!(kinds(1)[0]["kind"], "created");
        tenant.client.post(&format!("{path}/probe/pairs"), &json!({"name": "left behind"})).expect(201);
        tenant.client.post(&format!("{path}/revoke"), &json!({})).expect(200);
        assert_eq!(kinds(2)[1]["kind"], "revoked", "a revoked user's signal arrives all the same");
        tenant.client.post(&format!("{path}/revoke"), &json!({})).expect(200);
        tenant.client.post(&format!("{path}/restore"), &json!({})).expect(200);
        assert_eq!(kinds(3)[2]["kind"], "restored", "revoking twice is told once");
        tenant.client.delete(&path).expect(200);
        let told = kinds(4);
        assert_eq!((&told[3]["kind"], &told[3]["left"]), (&json!("deleted"), &json!(1)), "it still reads what goes afterwards");
    }

    fn who_holds_a_name_is_told_in_its_own_scope(world: Builder::new().bare()) {
        world.install("probe", &probe(900_001));
        let (holder, asker) = (world.register(), world.register());
        // In another project than the default one: the host knows the holder by its reach only.
        let project = charter_tests::tenant::id(&holder.client.post("/v1/projects", &json!({"name": "Other"})).expect(201)["project"]);
        let below = holder.client.with("x-service-project-id", &project);
        let user = charter_tests::tenant::id(&below.post("/v1/users", &json!({"name": "holder"})).expect(201)["user"]);
        let name = json!({"name": "held.example"});
        let claimed = below.post(&format!("/v1/users/{user}/probe/names"), &name).expect(201);
        assert_eq!(claimed["claimed"], true);
        assert_eq!(asker.client.post("/v1/probe/names", &name).expect(201)["claimed"], false);
        assert_eq!(asker.client.post("/v1/probe/deliver", &json!({"name": "nobody.example"})).expect(200)["delivered"], false);
        assert_eq!(asker.client.post("/v1/probe/deliver", &name).expect(200)["delivered"], true);
        let told = |client: &Client| -> Vec<Value> {
            let changes = client.get("/v1/probe/changes").expect(200)["changes"].clone();
            changes.as_array().unwrap().iter().filter(|change| change["kind"] == "name").cloned().collect()
        };
        until("the holder is told", || !told(&holder.client).is_empty());
        assert_eq!(told(&holder.client), [json!({"kind": "name", "user": user, "left": 1})]);
        assert!(told(&asker.client).is_empty(), "who asks learns nothing of who holds it");
    }

    fn many_callers_of_one_hot_document_all_succeed(world: Builder::new().bare()) {
        world.install("probe", &probe(900_001));
        let tenant = world.register();
        std::thread::scope(|scope| {
            for _ in 0..16 {
                scope.spawn(|| {
                    for _ in 0..5 {
                        tenant.client.post("/v1/probe/count", &json!({"key": "hot"})).expect(200);
                    }
                });
            }
        });
        assert_eq!(tenant.client.post("/v1/probe/count", &json!({"key": "hot"})).expect(200)["count"], 81);
    }
}

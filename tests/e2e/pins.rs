//! Versions beside the active one: pinned by a kit while others change, dropped from memory,
//! removed.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use charter_tests::artefacts::Artefacts;
use charter_tests::patience::{Over, PATIENCE, look_for, until};
use charter_tests::tenant::{PASSWORD, id};
use charter_tests::world::Builder;
use charter_tests::{Client, Tenant, World, on_both};
use serde_json::{Value, json};

use crate::accounts::browser;

/// Requests that each caller sends at least while versions change.
const ROUNDS: u32 = 24;

fn digest(uploaded: &Value) -> String {
    uploaded["component"]["digest"]
        .as_str()
        .unwrap_or_else(|| panic!("no digest in {uploaded}"))
        .to_owned()
}

fn install(world: &World, build: u32) -> String {
    digest(&world.install("probe", &Artefacts::get().probe(build)))
}

/// A build whose manifest says something else in one place.
fn rewrite(build: u32, old: &str, new: &str) -> Vec<u8> {
    assert_eq!(old.len(), new.len());
    let mut wasm = Artefacts::get().probe(build);
    let at = wasm
        .windows(old.len())
        .position(|window| window == old.as_bytes())
        .expect("the manifest says it");
    wasm[at..at + old.len()].copy_from_slice(new.as_bytes());
    wasm
}

/// A build in which an operation is open to everybody, at this mount.
fn opening(build: u32, operation: &str, mount: &str) -> Vec<u8> {
    let mut wasm = Artefacts::get().probe(build);
    let named = format!("\"id\": \"{operation}\"");
    let at = wasm
        .windows(named.len())
        .position(|window| window == named.as_bytes())
        .expect("the manifest has it");
    let start = wasm[..at].iter().rposition(|byte| *byte == b'{').unwrap();
    let mut values = serde_json::Deserializer::from_slice(&wasm[start..]).into_iter::<Value>();
    let mut declared = values.next().unwrap().unwrap();
    let end = start + values.byte_offset();
    (declared["auth"], declared["mounts"]) = (json!("none"), json!([mount]));
    let text = format!("{:<1$}", declared.to_string(), end - start);
    assert_eq!(text.len(), end - start, "the text has room for it");
    wasm[start..end].copy_from_slice(text.as_bytes());
    wasm
}

/// A build that has an operation at a path where the others have none.
fn noticing(build: u32) -> Vec<u8> {
    rewrite(build, "/probe/changes", "/probe/notices")
}

/// One version's row in the operator's view.
fn version_row(world: &World, digest: &str) -> Value {
    let answer = world.operator().get("/v1/operator/components/probe").expect(200);
    let versions = answer["component"]["versions"].as_array().unwrap();
    let found = versions.iter().find(|version| version["digest"] == digest);
    found.unwrap_or_else(|| panic!("{digest} is not in {answer}")).clone()
}

/// A host that keeps no version for its own sake.
fn host_without_residents() -> Builder {
    Builder::new().bare().environment("CHARTER_ENGINE_RESIDENT_MS", "0")
}

/// The host looks every 15 s for what it can drop.
#[track_caller]
fn leaves_memory(world: &World, digest: &str) {
    look_for(PATIENCE, "it leaves memory", || {
        let row = version_row(world, digest);
        if row["in_memory"] == true { Err(row) } else { Ok(()) }
    });
}

on_both! {
    fn whoever_is_pinned_stays_while_versions_change_under_load(world: Builder::new().bare()) {
        let first = install(world, 900_001);
        let tenant = world.register();
        let digests = [install(world, 900_002), install(world, 900_003)];
        let kit = tenant.kit("pinned", json!({"probe": {"enabled": true, "version": "1.0.900001"}}));
        let pinned = format!("/v1/users/{}/probe", tenant.user_with_kit("pinned", &kit));
        let (over, asked) = (AtomicBool::new(false), AtomicU32::new(0));
        let ask = |path: &str, builds: &[&str]| {
            while !over.load(Ordering::SeqCst) {
                let answer = tenant.client.get(path);
                let build = answer.expect(200)["build"].clone();
                assert!(builds.iter().any(|known| build == *known), "not one of {builds:?}: {answer}");
                asked.fetch_add(1, Ordering::SeqCst);
            }
        };
        std::thread::scope(|scope| {
            let changing = Over(&over);
            let callers = [
                scope.spawn(|| ask(&pinned, &["900001"])),
                scope.spawn(|| ask(&pinned, &["900001"])),
                scope.spawn(|| ask("/v1/probe", &["900002", "900003"])),
            ];
            let mut round = 0;
            // A caller that met a wrong answer has ended, and its panic is told by the scope.
            while (round < ROUNDS || asked.load(Ordering::SeqCst) < ROUNDS) && !callers.iter().any(|one| one.is_finished()) {
                let digest = &digests[(round % 2) as usize];
                world.operator().post("/v1/operator/components/probe/activate", &json!({ "digest": digest })).expect(200);
                round += 1;
            }
            drop(changing);
        });
        assert_eq!(version_row(world, &first)["state"], "retired");
        // Once unpinned, the same user moves on.
        let unpinned = json!({"primitives": {"probe": {"enabled": true}}});
        tenant.client.patch(&format!("/v1/kits/{kit}"), &unpinned).expect(200);
        assert_ne!(tenant.client.get(&pinned).expect(200)["build"], "900001");
    }

    fn a_version_that_nobody_asks_for_leaves_memory(world: host_without_residents()) {
        let (first, second, third) = (install(world, 900_001), install(world, 900_002), install(world, 900_003));
        leaves_memory(world, &first);
        // The serving version stays, and so does the one that a rollback goes to.
        for kept in [&second, &third] {
            assert_eq!(version_row(world, kept)["in_memory"], true, "{}", version_row(world, kept));
        }
    }

    fn whoever_is_pinned_is_served_by_a_version_that_had_left_memory(world: host_without_residents()) {
        let first = install(world, 900_001);
        let tenant = world.register();
        let kit = tenant.kit("pinned", json!({"probe": {"enabled": true, "version": "1.0.900001"}}));
        let pinned = tenant.user_with_kit("pinned", &kit);
        install(world, 900_002);
        install(world, 900_003);
        leaves_memory(world, &first);
        assert_eq!(tenant.client.get(&format!("/v1/users/{pinned}/probe")).expect(200)["build"], "900001");
        assert_eq!(tenant.client.get("/v1/probe").expect(200)["build"], "900003");
    }

    fn whoever_is_pinned_reaches_what_only_a_version_has_that_had_left_memory(world: host_without_residents()) {
        install(world, 900_001);
        // A canary: it never served but to those whose kit pins it.
        let canary = digest(&world.upload("probe", &noticing(900_002), false).expect(201));
        let tenant = world.register();
        let kit = tenant.kit("canary", json!({"probe": {"enabled": true, "version": "1.0.900002"}}));
        let pinned = format!("/v1/users/{}/probe", tenant.user_with_kit("pinned", &kit));
        let only_there = |client: &Client| {
            assert!(client.get(&format!("{pinned}/notices")).expect(200)["changes"].is_array());
            client.get(&format!("{pinned}/changes")).expect_error(404, "not_found");
            let method = client.post(&format!("{pinned}/notices"), &json!({}));
            method.expect_error(405, "method_not_allowed");
            assert_eq!(method.header("allow"), Some("GET, HEAD"), "{method}");
            // Everybody else is where they were.
            assert!(client.get("/v1/probe/changes").expect(200)["changes"].is_array());
            client.get("/v1/probe/notices").expect_error(404, "not_found");
        };
        for _ in 0..2 {
            leaves_memory(world, &canary);
            only_there(&tenant.client);
        }
        // The memory of a fresh process makes no difference either.
        world.stop();
        world.start();
        only_there(&tenant.client.at(world.server().address()));
    }

    fn whoever_is_pinned_is_told_what_only_a_version_asks_for_that_had_left_memory(world: host_without_residents()) {
        let deaf = |build: u32| rewrite(build, r#""revoked","#, "          ");
        world.install("probe", &deaf(900_001));
        let canary = digest(&world.upload("probe", &Artefacts::get().probe(900_002), false).expect(201));
        let tenant = world.register();
        let kit = tenant.kit("canary", json!({"probe": {"enabled": true, "version": "1.0.900002"}}));
        let [pinned, other] = [tenant.user_with_kit("pinned", &kit), tenant.user("other")];
        leaves_memory(world, &canary);
        for user in [&other, &pinned] {
            tenant.client.post(&format!("/v1/users/{user}/revoke"), &json!({})).expect(200);
        }
        let revoked = || -> Vec<Value> {
            let changes = tenant.client.get("/v1/probe/changes").expect(200)["changes"].clone();
            changes.as_array().unwrap().iter().filter(|change| change["kind"] == "revoked").cloned().collect()
        };
        until("the pinned one is told", || !revoked().is_empty());
        // A user whose version does not ask for the signal gets none, and no job of it is left
        // behind.
        tenant.client.post(&format!("/v1/users/{other}/restore"), &json!({})).expect(200);
        let restored = |user: &str| json!({"kind": "restored", "user": user, "left": 0});
        until("the other's signals have come", || {
            tenant.client.get("/v1/probe/changes").expect(200)["changes"].as_array().unwrap().contains(&restored(&other))
        });
        assert_eq!(revoked(), [json!({"kind": "revoked", "user": pinned, "left": 0})]);
    }

    fn whoever_is_pinned_calls_what_only_a_version_has_that_had_left_memory(world: host_without_residents()) {
        world.install("script", &Artefacts::get().fixture("script"));
        world.install("probe", &rewrite(900_001, "probe.changes", "probe.notices"));
        let canary = digest(&world.upload("probe", &Artefacts::get().probe(900_002), false).expect(201));
        let tenant = world.register();
        let kit = tenant.kit("canary", json!({"script": {"enabled": true}, "probe": {"enabled": true, "version": "1.0.900002"}}));
        let pinned = tenant.client.with("x-service-user-id", &tenant.user_with_kit("pinned", &kit));
        leaves_memory(world, &canary);
        let steps = json!({"steps": [{"try": {"call": "probe.changes"}}]});
        let called = |client: &Client| client.post("/v1/script", &steps).expect(200)["seen"][0].clone();
        assert_eq!(called(&pinned)["status"], 200);
        assert_eq!(called(&tenant.client)["failure"], "resource_not_found");
    }

    fn what_a_primitive_is_to_be_told_arrives_whatever_its_pin_says(world: Builder::new().bare()) {
        install(world, 900_001);
        // A version that asks for what nobody has agreed to, and serves nobody.
        let staged = world.upload("probe", &opening(900_002, "probe.pair", "root"), false).expect(201);
        assert_ne!(staged["component"]["asks"], json!([]), "{staged}");
        let tenant = world.register();
        let kit = tenant.kit("pinned", json!({"probe": {"enabled": true, "version": "1.0.900002"}}));
        let user = tenant.user_with_kit("pinned", &kit);
        tenant.client.get(&format!("/v1/users/{user}/probe")).expect_error(501, "not_configured");
        tenant.client.post(&format!("/v1/users/{user}/revoke"), &json!({})).expect(200);
        let told = json!({"kind": "revoked", "user": user, "left": 0});
        until("it is told", || {
            tenant.client.get("/v1/probe/changes").expect(200)["changes"].as_array().unwrap().contains(&told)
        });
    }

    fn a_pinned_version_that_asks_for_no_credential_gives_nobody_more_power(world: Builder::new().bare()) {
        install(world, 900_001);
        world.upload("probe", &opening(900_002, "probe.pair", "company"), false).expect(201);
        let tenant = world.register();
        let pin = json!({"primitives": {"probe": {"enabled": true, "version": "1.0.900002"}}});
        tenant.client.patch("/v1/kits/default", &pin).expect(200);
        let viewer = tenant.key(json!({"role": "viewer"}));
        let pinned = tenant.key(json!({"role": "viewer", "user_id": tenant.user}));
        let session = browser(world, &tenant.email, PASSWORD).0;
        for caller in [&viewer, &pinned, &session, &tenant.client] {
            caller.post("/v1/probe/pairs", &json!({"name": "x"})).expect_error(401, "unauthorized");
        }
        world.anonymous().post("/v1/probe/pairs", &json!({"name": "x"})).expect_error(401, "unauthorized");
        assert_eq!(tenant.client.get("/v1/probe/pairs").expect(200)["left"], json!([]));
    }

    fn a_version_that_had_left_memory_can_be_pinned(world: host_without_residents()) {
        let (first, _, _) = (install(world, 900_001), install(world, 900_002), install(world, 900_003));
        leaves_memory(world, &first);
        let tenant = world.register();
        let kit = tenant.kit("pinned", json!({"probe": {"enabled": true, "version": "1.0.900001"}}));
        let pinned = tenant.user_with_kit("pinned", &kit);
        assert_eq!(tenant.client.get(&format!("/v1/users/{pinned}/probe")).expect(200)["build"], "900001");
    }

    fn a_version_that_a_kit_pins_cannot_be_removed(world: Builder::new().bare()) {
        let first = install(world, 900_001);
        install(world, 900_002);
        let remove = || world.operator().delete(&format!("/v1/operator/components/probe/{first}"));
        let pin = json!({"probe": {"enabled": true, "version": "1.0.900001"}});
        let [one, other]: [Tenant; 2] = std::array::from_fn(|_| world.register());
        let kits = [one.kit("pinned", pin.clone()), other.kit("pinned", pin.clone())];
        let pinned = format!("/v1/users/{}/probe", one.user_with_kit("pinned", &kits[0]));
        // A project's default kit pins as well as any.
        let project = id(&other.client.post("/v1/projects", &json!({"name": "P"})).expect(201)["project"]);
        let default = format!("/v1/projects/{project}/kits/default");
        let default = id(&other.client.patch(&default, &json!({ "primitives": pin })).expect(200)["kit"]);
        let refused = |by: &[(&Tenant, &str, &str)]| {
            let answer = remove();
            let error = answer.expect_error(409, "state_conflict");
            assert_eq!(error["reason"], "pinned", "{answer}");
            assert!(error["message"].as_str().unwrap().contains("1.0.900001"), "{answer}");
            assert!(error["hint"].as_str().is_some(), "{answer}");
            let mut named = error["details"]["kits"].as_array().unwrap().clone();
            let mut expected: Vec<Value> = by.iter().map(|(tenant, project, kit)| {
                json!({"id": kit, "organization_id": tenant.organization, "project_id": project})
            }).collect();
            for kits in [&mut named, &mut expected] {
                kits.sort_by_key(|kit| kit["id"].as_str().unwrap().to_owned());
            }
            assert_eq!(named, expected, "{answer}");
            assert_eq!(one.client.get(&pinned).expect(200)["build"], "900001");
        };
        refused(&[(&one, &one.project, &kits[0]), (&other, &other.project, &kits[1]), (&other, &project, &default)]);
        // One after another lets go of it: by another version, with its kit, with its project; the
        // last one by saying no.
        other.client.patch(&format!("/v1/kits/{}", kits[1]), &json!({"primitives": {"probe": {"enabled": true, "version": "1.0.900002"}}})).expect(200);
        refused(&[(&one, &one.project, &kits[0]), (&other, &project, &default)]);
        other.client.delete(&format!("/v1/projects/{project}")).expect(200);
        refused(&[(&one, &one.project, &kits[0])]);
        let second = one.kit("second", pin.clone());
        refused(&[(&one, &one.project, &kits[0]), (&one, &one.project, &second)]);
        one.client.delete(&format!("/v1/kits/{second}")).expect(200);
        one.client.patch(&format!("/v1/kits/{}", kits[0]), &json!({"name": "renamed"})).expect(200);
        refused(&[(&one, &one.project, &kits[0])]);
        one.client.patch(&format!("/v1/kits/{}", kits[0]), &json!({"primitives": {"probe": {"enabled": false, "version": "1.0.900001"}}})).expect(200);
        remove().expect(200);
        let late = one.client.post("/v1/kits", &json!({"name": "late", "primitives": pin}));
        assert_eq!(late.expect_error(400, "invalid_input")["param"], "primitives.probe.version", "{late}");
    }

    fn a_version_is_pinned_or_removed_and_never_both(world: Builder::new().bare()) {
        install(world, 900_001);
        let tenant = world.register();
        for round in 2..10_u32 {
            let build = 900_000 + round;
            let digest = digest(&world.upload("probe", &Artefacts::get().probe(build), false).expect(201));
            let start = Barrier::new(2);
            let (pinned, removed) = std::thread::scope(|scope| {
                let pin = scope.spawn(|| {
                    let kit = json!({"name": build.to_string(), "primitives": {"probe": {"enabled": true, "version": format!("1.0.{build}")}}});
                    start.wait();
                    tenant.client.post("/v1/kits", &kit)
                });
                let path = format!("/v1/operator/components/probe/{digest}");
                start.wait();
                let removed = world.operator().delete(&path);
                (pin.join().unwrap(), removed)
            });
            match pinned.status {
                201 => assert_eq!(removed.expect_error(409, "state_conflict")["reason"], "pinned", "{removed}"),
                _ => {
                    pinned.expect_error(400, "invalid_input");
                    removed.expect(200);
                }
            }
        }
    }

    fn what_a_kit_pins_is_not_forgotten_with_what_is_old(world: Builder::new().bare().environment("CHARTER_RETENTION_COMPONENT_VERSIONS", "1")) {
        install(world, 900_001);
        let tenant = world.register();
        let kit = tenant.kit("pinned", json!({"probe": {"enabled": true, "version": "1.0.900001"}}));
        let pinned = format!("/v1/users/{}/probe", tenant.user_with_kit("pinned", &kit));
        for build in 900_002..=900_005 {
            install(world, build);
        }
        let kept = || -> Vec<String> {
            let answer = world.operator().get("/v1/operator/components/probe").expect(200);
            answer["component"]["versions"].as_array().unwrap().iter().map(|one| one["version"].as_str().unwrap().to_owned()).collect()
        };
        until("something old is forgotten", || !kept().contains(&"1.0.900002".to_owned()));
        assert_eq!(kept(), ["1.0.900005", "1.0.900004", "1.0.900003", "1.0.900001"]);
        assert_eq!(tenant.client.get(&pinned).expect(200)["build"], "900001");
    }

    fn the_version_that_serves_cannot_be_removed_and_another_can(world: Builder::new().bare()) {
        let (first, second) = (install(world, 900_001), install(world, 900_002));
        let path = |digest: &str| format!("/v1/operator/components/probe/{digest}");
        let refused = world.operator().delete(&path(&second));
        assert_eq!(refused.expect_error(409, "state_conflict")["reason"], "active", "{refused}");
        let tenant = world.register();
        assert_eq!(tenant.client.get("/v1/probe").expect(200)["build"], "900002");
        world.operator().delete(&path(&first)).expect(200);
        world.operator().delete(&path(&first)).expect_error(404, "not_found");
        world.operator().post("/v1/operator/components/probe/rollback", &json!({})).expect_error(409, "state_conflict");
        assert_eq!(tenant.client.get("/v1/probe").expect(200)["build"], "900002");
    }
}

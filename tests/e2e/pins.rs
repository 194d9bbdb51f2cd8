//! Versions beside the active one: pinned by a kit while others change, dropped from memory, removed.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use charter_tests::artefacts::Artefacts;
use charter_tests::patience::{Over, PATIENCE, found};
use charter_tests::world::Builder;
use charter_tests::{World, on_both};
use serde_json::{Value, json};

/// Requests that each caller sends at least while versions change.
const ROUNDS: u32 = 24;

fn digest(uploaded: &Value) -> String {
    uploaded["component"]["digest"].as_str().unwrap_or_else(|| panic!("no digest in {uploaded}")).to_owned()
}

fn installed(world: &World, build: u32) -> String {
    digest(&world.install("probe", &Artefacts::get().probe(build)))
}

/// One version's row in the operator's view.
fn shown(world: &World, digest: &str) -> Value {
    let answer = world.operator().get("/v1/operator/components/probe").expect(200);
    let versions = answer["component"]["versions"].as_array().unwrap();
    let found = versions.iter().find(|version| version["digest"] == digest);
    found.unwrap_or_else(|| panic!("{digest} is not in {answer}")).clone()
}

/// A host that keeps no version for its own sake.
fn unkept() -> Builder {
    Builder::new().bare().environment("CHARTER_ENGINE_RESIDENT_MS", "0")
}

/// The host looks every 15 s for what it can drop.
#[track_caller]
fn leaves_memory(world: &World, digest: &str) {
    found(PATIENCE, "it leaves memory", || {
        let row = shown(world, digest);
        if row["in_memory"] == true { Err(row) } else { Ok(()) }
    });
}

on_both! {
    fn whoever_is_pinned_stays_while_versions_change_under_load(world: Builder::new().bare()) {
        let first = installed(world, 900_001);
        let tenant = world.register();
        let digests = [installed(world, 900_002), installed(world, 900_003)];
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
        assert_eq!(shown(world, &first)["state"], "retired");
        // Once unpinned, the same user moves on.
        let unpinned = json!({"primitives": {"probe": {"enabled": true}}});
        tenant.client.patch(&format!("/v1/kits/{kit}"), &unpinned).expect(200);
        assert_ne!(tenant.client.get(&pinned).expect(200)["build"], "900001");
    }

    fn a_version_that_nobody_asks_for_leaves_memory(world: unkept()) {
        let (first, second, third) = (installed(world, 900_001), installed(world, 900_002), installed(world, 900_003));
        leaves_memory(world, &first);
        // What serves, and what a rollback goes to, stay.
        for kept in [&second, &third] {
            assert_eq!(shown(world, kept)["in_memory"], true, "{}", shown(world, kept));
        }
    }

    fn whoever_is_pinned_is_served_by_a_version_that_had_left_memory(world: unkept()) {
        let first = installed(world, 900_001);
        let tenant = world.register();
        let kit = tenant.kit("pinned", json!({"probe": {"enabled": true, "version": "1.0.900001"}}));
        let pinned = tenant.user_with_kit("pinned", &kit);
        installed(world, 900_002);
        installed(world, 900_003);
        leaves_memory(world, &first);
        assert_eq!(tenant.client.get(&format!("/v1/users/{pinned}/probe")).expect(200)["build"], "900001");
        assert_eq!(tenant.client.get("/v1/probe").expect(200)["build"], "900003");
    }

    fn a_version_that_had_left_memory_can_be_pinned(world: unkept()) {
        let (first, _, _) = (installed(world, 900_001), installed(world, 900_002), installed(world, 900_003));
        leaves_memory(world, &first);
        let tenant = world.register();
        let kit = tenant.kit("pinned", json!({"probe": {"enabled": true, "version": "1.0.900001"}}));
        let pinned = tenant.user_with_kit("pinned", &kit);
        assert_eq!(tenant.client.get(&format!("/v1/users/{pinned}/probe")).expect(200)["build"], "900001");
    }

    fn the_version_that_serves_cannot_be_removed_and_another_can(world: Builder::new().bare()) {
        let (first, second) = (installed(world, 900_001), installed(world, 900_002));
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

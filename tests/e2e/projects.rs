//! Projects, and how a request selects one.

use charter_tests::on_both;
use charter_tests::tenant::{PASSWORD, id};
use serde_json::json;

use crate::accounts::browser;

on_both! {
    fn nobody_moves_into_a_project_that_is_being_deleted(world) {
        let tenant = world.register();
        for round in 0..6 {
            let made = tenant.client.post("/v1/projects", &json!({"name": format!("Short {round}")})).expect(201);
            let path = format!("/v1/projects/{}", id(&made["project"]));
            let (deleted, moved) = std::thread::scope(|scope| {
                let moves: Vec<_> = ["users", "kits"]
                    .map(|noun| {
                        let (client, path) = (&tenant.client, format!("{path}/{noun}"));
                        scope.spawn(move || client.post(&path, &json!({"name": "late"})).status)
                    })
                    .into_iter()
                    .collect();
                let deleted = tenant.client.delete(&path).status;
                (deleted, moves.into_iter().map(|thread| thread.join().unwrap()).collect::<Vec<_>>())
            });
            assert!(matches!(deleted, 200 | 409), "{deleted}");
            assert!(moved.iter().all(|status| matches!(status, 201 | 404)), "{moved:?}");
            assert_eq!(deleted == 200, !moved.contains(&201), "{deleted} {moved:?}");
        }
    }

    fn a_project_has_a_default_user_and_kit_of_its_own(world) {
        let tenant = world.register();
        let made = tenant.client.post("/v1/projects", &json!({"name": "Staging", "mode": "test"})).expect(201)["project"].clone();
        assert_eq!((&made["mode"], &made["default"]), (&json!("test"), &json!(false)));
        let within = format!("/v1/projects/{}", id(&made));
        assert_eq!(tenant.client.get(&within).expect(200)["project"], made);
        assert_eq!(tenant.client.get(&format!("{within}/users/default")).expect(200)["user"]["id"], made["default_user_id"]);
        assert_eq!(tenant.client.get(&format!("{within}/kits/default")).expect(200)["kit"]["id"], made["default_kit_id"]);
        let renamed = tenant.client.patch(&within, &json!({"name": "Sandbox"})).expect(200);
        assert_eq!(renamed["project"]["name"], "Sandbox");
        tenant.client.patch(&within, &json!({"mode": "live"})).expect_error(400, "invalid_input");
    }

    fn a_new_project_is_no_room_that_its_maker_may_not_give(world) {
        let tenant = world.register();
        let (owner, _) = browser(world, &tenant.email, PASSWORD);
        let default = format!("/v1/projects/{}", tenant.project);
        let make = || tenant.client.post("/v1/projects", &json!({"name": "more"}));
        tenant.client.patch("/v1/organization", &json!({"loosening": "session"})).expect(200);
        make().expect(201);
        // A cap of each project, or of each of its users, and none of them all.
        let budget = json!({"budget": {"cap_cents": 1_000, "period": "total"}});
        for path in [&default, &format!("{default}/kits/default")] {
            owner.patch(path, &budget).expect(200);
            assert_eq!(make().expect_error(403, "forbidden")["reason"], "loosening_not_allowed", "{path}");
            owner.post("/v1/projects", &json!({"name": "by a person"})).expect(201);
            owner.patch("/v1/organization", &budget).expect(200);
            make().expect(201);
            owner.patch("/v1/organization", &json!({"budget": null})).expect(200);
            owner.patch(path, &json!({"budget": null})).expect(200);
        }
    }

    fn path_beats_header_beats_pin_beats_default(world) {
        let tenant = world.register();
        let make = |name: &str| id(&tenant.client.post("/v1/projects", &json!({ "name": name })).expect(201)["project"]);
        let (one, two) = (make("one"), make("two"));
        let here = tenant.user("default project");
        let there = id(&tenant.client.post(&format!("/v1/projects/{one}/users"), &json!({"name": "one"})).expect(201)["user"]);
        let path = |user: &str| format!("/v1/users/{user}");
        tenant.client.get(&path(&here)).expect(200);
        tenant.client.get(&path(&there)).expect_error(404, "not_found");
        tenant.client.with("x-service-project-id", &one).get(&path(&there)).expect(200);
        tenant.client.with("x-service-project-id", &two).get(&format!("/v1/projects/{one}/users/{there}")).expect(200);
        let pinned = tenant.key(json!({"project_id": one}));
        pinned.get(&path(&there)).expect(200);
        let error = pinned.with("x-service-project-id", &two).get("/v1/users").expect_error(403, "forbidden");
        assert_eq!(error["reason"], "key_project_mismatch");
        let foreign = world.register().project;
        pinned.with("x-service-project-id", &foreign).get("/v1/users").expect_error(404, "not_found");
        tenant.client.get(&format!("/v1/projects/{foreign}/users")).expect_error(404, "not_found");
    }

    fn the_default_project_and_one_in_use_stay(world) {
        let tenant = world.register();
        tenant.client.delete(&format!("/v1/projects/{}", tenant.project)).expect_error(409, "state_conflict");
        let other = id(&tenant.client.post("/v1/projects", &json!({"name": "Other"})).expect(201)["project"]);
        let user = id(&tenant.client.post(&format!("/v1/projects/{other}/users"), &json!({"name": "in"})).expect(201)["user"]);
        let key = tenant.key(json!({"project_id": other}));
        tenant.client.delete(&format!("/v1/projects/{other}")).expect_error(409, "state_conflict");
        tenant.client.delete(&format!("/v1/projects/{other}/users/{user}")).expect(200);
        tenant.client.delete(&format!("/v1/projects/{other}")).expect(200);
        tenant.client.get(&format!("/v1/projects/{other}")).expect_error(404, "not_found");
        key.get("/v1/users").expect_error(401, "unauthorized");
    }
}

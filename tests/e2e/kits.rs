//! Account kits: what they say, who may loosen them, and optimistic concurrency.

use charter_tests::on_both;
use charter_tests::tenant::id;
use serde_json::json;

on_both! {
    fn the_default_kit_names_every_installed_primitive(world) {
        let tenant = world.register();
        let kit = tenant.client.get("/v1/kits/default").expect(200)["kit"].clone();
        assert_eq!((&kit["name"], &kit["budget"]), (&json!("default"), &json!(null)));
        let named = kit["primitives"].as_object().unwrap();
        let listed = world.operator().get("/v1/operator/components").expect(200);
        for component in listed["components"].as_array().unwrap() {
            let name = component["name"].as_str().unwrap();
            assert!(named.contains_key(name), "{name} is not in {kit}");
        }
    }

    fn a_kit_is_made_read_changed_and_deleted(world) {
        let tenant = world.register();
        let body = json!({"name": "agents", "budget": {"cap_cents": 500, "period": "week"}, "limits": {"requests_per_minute": 60}});
        let made = tenant.client.post("/v1/kits", &body).expect(201)["kit"].clone();
        assert_eq!(made["budget"], json!({"cap_cents": 500, "period": "week", "hard": true}));
        assert_eq!(made["version"], 1);
        let path = format!("/v1/kits/{}", id(&made));
        assert_eq!(tenant.client.get(&path).expect(200)["kit"], made);
        let changed = tenant.client.patch(&path, &json!({"budget": null, "expected_version": 1})).expect(200)["kit"].clone();
        assert_eq!((&changed["budget"], &changed["version"]), (&json!(null), &json!(2)));
        let error = tenant.client.patch(&path, &json!({"name": "late", "expected_version": 1})).expect_error(409, "version_conflict");
        assert_eq!(error["details"]["current_version"], 2);
        tenant.client.post("/v1/kits", &json!({"name": "Agents"})).expect_error(409, "duplicate_record");
        tenant.client.delete(&path).expect(200);
        tenant.client.get(&path).expect_error(404, "not_found");
    }

    fn a_kit_in_use_and_the_default_kit_stay(world) {
        let tenant = world.register();
        let kit = tenant.kit("used", json!({}));
        let user = tenant.user_with_kit("agent", &kit);
        tenant.client.delete(&format!("/v1/kits/{kit}")).expect_error(409, "state_conflict");
        tenant.client.delete("/v1/kits/default").expect_error(409, "state_conflict");
        tenant.client.delete(&format!("/v1/users/{user}")).expect(200);
        tenant.client.delete(&format!("/v1/kits/{kit}")).expect(200);
    }

    fn what_a_kit_does_not_know_is_refused_by_name(world) {
        let tenant = world.register();
        for (body, param) in [
            (json!({"name": "k", "colour": "red"}), "colour"),
            (json!({"name": "k", "primitives": {"nothing-of-the-kind": {"enabled": true}}}), "primitives.nothing-of-the-kind"),
            (json!({"name": "k", "budget": {"cap_cents": -1, "period": "day"}}), "budget.cap_cents"),
            (json!({"name": "k", "budget": {"cap_cents": 1, "period": "hour"}}), "budget.period"),
            (json!({"name": "k", "budget": {"cap_cents": 1, "period": "day", "soft": true}}), "budget.soft"),
            (json!({"name": "k", "limits": {"calls": 1}}), "limits.calls"),
        ] {
            let error = tenant.client.post("/v1/kits", &body).expect_error(400, "invalid_input");
            assert_eq!(error["param"], json!(param), "{body}: {error}");
        }
    }

    fn an_integer_may_be_written_with_a_point(world) {
        let tenant = world.register();
        let send = |method: &str, path: &str, body: &str| {
            tenant.client.call(method, path).header("content-type", "application/json").bytes(body.to_owned()).send()
        };
        let body = r#"{"name": "k", "budget": {"cap_cents": 5.0, "period": "day"}, "limits": {"requests_per_minute": 6e1}}"#;
        let made = send("POST", "/v1/kits", body).expect(201)["kit"].clone();
        assert_eq!((&made["budget"]["cap_cents"], &made["limits"]["requests_per_minute"]), (&json!(5), &json!(60)));
        let path = format!("/v1/kits/{}", id(&made));
        assert_eq!(send("PATCH", &path, r#"{"name": "l", "expected_version": 1.0}"#).expect(200)["kit"]["version"], 2);
        let error = send("PATCH", &path, r#"{"expected_version": 1.5}"#).expect_error(400, "invalid_input");
        assert_eq!(error["param"], "expected_version");
    }

    fn tightening_is_for_developers_and_loosening_for_admins(world) {
        let tenant = world.register();
        let kit = tenant.client.post("/v1/kits", &json!({"name": "k", "budget": {"cap_cents": 500, "period": "day"}})).expect(201);
        let path = format!("/v1/kits/{}", id(&kit["kit"]));
        let developer = tenant.key(json!({"role": "developer"}));
        developer.patch(&path, &json!({"budget": {"cap_cents": 400, "period": "day"}})).expect(200);
        developer.patch(&path, &json!({"budget": {"cap_cents": 600, "period": "day"}})).expect_error(403, "forbidden");
        developer.patch(&path, &json!({"budget": null})).expect_error(403, "forbidden");
        tenant.client.patch(&path, &json!({"budget": {"cap_cents": 600, "period": "day"}})).expect(200);
    }

    fn of_many_changes_from_one_version_one_succeeds(world) {
        let tenant = world.register();
        let path = format!("/v1/kits/{}", tenant.kit("contended", json!({})));
        let statuses: Vec<u16> = std::thread::scope(|scope| {
            let change = |n: u32| {
                let (client, path) = (tenant.client.clone(), path.clone());
                move || client.patch(&path, &json!({"name": format!("name {n}"), "expected_version": 1})).status
            };
            let threads: Vec<_> = (0..8).map(|n| scope.spawn(change(n))).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
        assert!(statuses.iter().all(|status| matches!(status, 200 | 409)), "{statuses:?}");
    }
}

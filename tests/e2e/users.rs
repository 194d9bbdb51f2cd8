//! Tenant users: their life, their external ids, and revocation.

use charter_tests::on_both;
use charter_tests::tenant::id;
use serde_json::json;

on_both! {
    fn every_wrong_field_of_a_new_user_is_named_at_once(world) {
        let body = json!({"name": " ", "email": "nobody", "external_id": "\n", "metadata": {"plan": 1}});
        let error = world.register().client.post("/v1/users", &body).expect_error(400, "invalid_input");
        let faults = error["details"]["faults"].as_array().unwrap();
        let mut paths: Vec<_> = faults.iter().map(|fault| fault["path"].as_str().unwrap()).collect();
        paths.sort_unstable();
        assert_eq!(paths, ["email", "external_id", "metadata.plan", "name"]);
        assert!(faults.iter().any(|fault| fault["message"] == "must be an e-mail address"), "{error}");
    }

    fn the_limits_of_a_user_that_is_not_there_are_not_there(world) {
        let (tenant, stranger) = (world.register(), world.register());
        tenant.client.get(&format!("/v1/limits?tenant={}", tenant.user("agent"))).expect(200);
        for absent in [stranger.user.as_str(), "00000000-0000-7000-8000-000000000000", "nobody"] {
            let error = tenant.client.get(&format!("/v1/limits?tenant={absent}")).expect_error(404, "not_found");
            assert_eq!(error["param"], "tenant");
        }
    }

    fn a_user_is_made_read_changed_listed_and_deleted(world) {
        let tenant = world.register();
        let body = json!({"name": "Ann", "email": "ann@example.com", "external_id": "cus_1", "metadata": {"plan": "pro"}});
        let made = tenant.client.post("/v1/users", &body).expect(201);
        let user = &made["user"];
        for member in ["id", "name", "email", "external_id", "kit_id", "status", "metadata", "created_at"] {
            assert!(user.get(member).is_some(), "{member} is missing in {user}");
        }
        assert_eq!((&user["status"], &user["metadata"]), (&json!("active"), &json!({"plan": "pro"})));
        let path = format!("/v1/users/{}", id(user));
        assert_eq!(tenant.client.get(&path).expect(200), made);
        let changed = tenant.client.patch(&path, &json!({"name": "Anna", "email": null})).expect(200);
        assert_eq!((&changed["user"]["name"], &changed["user"]["email"]), (&json!("Anna"), &json!(null)));
        assert_eq!(changed["user"]["external_id"], "cus_1");
        let found = tenant.client.get("/v1/users?external_id=cus_1").expect(200);
        assert_eq!(found["users"], json!([changed["user"]]));
        tenant.client.delete(&path).expect(200);
        tenant.client.get(&path).expect_error(404, "not_found");
        tenant.client.delete(&path).expect_error(404, "not_found");
    }

    fn an_external_id_is_unique_within_its_project_only(world) {
        let tenant = world.register();
        let body = json!({"name": "Ann", "external_id": "cus_1"});
        let first = tenant.client.post("/v1/users", &body).expect(201);
        let error = tenant.client.post("/v1/users", &body).expect_error(409, "duplicate_record");
        assert_eq!(error["param"], "external_id");
        let other = id(&tenant.client.post("/v1/projects", &json!({"name": "Other"})).expect(201)["project"]);
        tenant.client.post(&format!("/v1/projects/{other}/users"), &body).expect(201);
        tenant.client.delete(&format!("/v1/users/{}", id(&first["user"]))).expect(200);
        tenant.client.post("/v1/users", &body).expect(201);
    }

    fn of_many_users_with_one_external_id_one_is_made(world) {
        let tenant = world.register();
        let body = json!({"name": "Ann", "external_id": "same"});
        let statuses: Vec<u16> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(|| tenant.client.post("/v1/users", &body).status)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert_eq!(statuses.iter().filter(|status| **status == 201).count(), 1, "{statuses:?}");
        assert!(statuses.iter().all(|status| matches!(status, 201 | 409)), "{statuses:?}");
    }

    fn a_revoked_user_reads_but_changes_nothing_until_it_is_restored(world) {
        let tenant = world.register();
        let user = tenant.user("agent");
        let agent = tenant.key(json!({"user_id": user}));
        let path = format!("/v1/users/{user}");
        let write = |name: &str| agent.post("/v1/queue", &json!({ "name": name }));
        write("before").expect(201);
        let revoked = tenant.client.post(&format!("{path}/revoke"), &json!({"reason": "left"})).expect(200);
        assert_eq!(revoked["user"]["status"], "revoked");
        agent.get(&path).expect(200);
        agent.get("/v1/queue").expect(200);
        assert_eq!(write("meanwhile").expect_error(403, "forbidden")["reason"], "profile_revoked");
        assert_eq!(tenant.client.get("/v1/users?status=revoked").expect(200)["users"].as_array().unwrap().len(), 1);
        tenant.client.post(&format!("{path}/revoke"), &json!({})).expect(200);
        let restored = tenant.client.post(&format!("{path}/restore"), &json!({})).expect(200);
        assert_eq!(restored["user"]["status"], "active");
        write("after").expect(201);
    }

    fn revoking_takes_no_body_and_restoring_takes_authority(world) {
        let tenant = world.register();
        let path = format!("/v1/users/{}", tenant.user("agent"));
        let developer = tenant.key(json!({"role": "developer"}));
        developer.call("POST", &format!("{path}/revoke")).send().expect(200);
        developer.call("POST", &format!("{path}/restore")).send().expect_error(403, "forbidden");
        tenant.client.call("POST", &format!("{path}/restore")).send().expect(200);
    }

    fn a_user_moves_between_the_kits_of_its_project(world) {
        let tenant = world.register();
        let (kit, user) = (tenant.kit("wide", json!({})), tenant.user("agent"));
        let path = format!("/v1/users/{user}");
        let developer = tenant.key(json!({"role": "developer"}));
        developer.patch(&path, &json!({"kit_id": kit})).expect_error(403, "forbidden");
        developer.post("/v1/users", &json!({"name": "wide", "kit_id": kit})).expect_error(403, "forbidden");
        assert_eq!(tenant.client.patch(&path, &json!({"kit_id": kit})).expect(200)["user"]["kit_id"], json!(kit));
        let default = tenant.client.get("/v1/kits/default").expect(200)["kit"]["id"].clone();
        assert_eq!(tenant.client.patch(&path, &json!({"kit_id": null})).expect(200)["user"]["kit_id"], default);
        let foreign = world.register().kit("foreign", json!({}));
        for absent in [foreign.as_str(), "00000000-0000-7000-8000-000000000000"] {
            let error = tenant.client.patch(&path, &json!({"kit_id": absent})).expect_error(404, "resource_not_found");
            assert_eq!(error["param"], "kit_id");
        }
    }

    fn deleting_a_user_revokes_its_keys(world) {
        let tenant = world.register();
        let user = tenant.user("agent");
        let agent = tenant.key(json!({"user_id": user}));
        agent.get("/v1/users/me").expect(200);
        tenant.client.delete(&format!("/v1/users/{user}")).expect(200);
        agent.get("/v1/users/me").expect_error(401, "unauthorized");
        let default = format!("/v1/users/{}", tenant.user);
        tenant.client.delete(&default).expect_error(409, "state_conflict");
    }

    fn a_walk_over_users_meets_each_once(world) {
        let tenant = world.register();
        for n in 0..7 {
            tenant.user(&format!("user {n}"));
        }
        let mut met = Vec::new();
        for offset in (0..).step_by(3) {
            let page = tenant.client.get(&format!("/v1/users?limit=3&offset={offset}")).expect(200);
            met.extend(page["users"].as_array().unwrap().iter().map(id));
            if page["has_more"] == false {
                break;
            }
            tenant.user("made in mid-walk");
            if offset > 30 {
                break;
            }
        }
        let mut once = met.clone();
        once.sort();
        once.dedup();
        assert_eq!(once.len(), met.len(), "{met:?}");
        assert!(met.len() >= 8, "{met:?}");
        tenant.client.get("/v1/users?limit=201").expect_error(400, "invalid_input");
    }

    fn every_wrong_field_is_named(world) {
        let tenant = world.register();
        for (body, param) in [
            (json!({}), "name"),
            (json!({"name": 1}), "name"),
            (json!({"name": " "}), "name"),
            (json!({"name": "a", "email": "nobody"}), "email"),
            (json!({"name": "a", "metadata": {"a": 1}}), "metadata.a"),
            (json!({"name": "a", "colour": "red"}), "colour"),
        ] {
            let error = tenant.client.post("/v1/users", &body).expect_error(400, "invalid_input");
            assert_eq!(error["param"], json!(param), "{body}");
        }
    }
}

//! API keys: what they carry, what they may make, and how they end.

use charter_tests::on_both;
use charter_tests::tenant::id;
use serde_json::json;

use crate::accounts::browser;
use crate::members::join;

on_both! {
    fn a_key_is_shown_once_and_listed_without_its_secret(world) {
        let tenant = world.register();
        let made = tenant.client.post("/v1/auth/keys", &json!({"name": "ci"})).expect(201);
        let key = made["key"].as_str().unwrap();
        assert!(key.starts_with("sk_live_") && key.len() > 48, "{key}");
        assert_eq!(made["active_project_id"], json!(null));
        let listed = tenant.client.get("/v1/auth/keys");
        assert!(!listed.text().contains(key), "{listed}");
        let listed = listed.expect(200);
        let ids: Vec<_> = listed["keys"].as_array().unwrap().iter().map(|key| key["id"].clone()).collect();
        assert!(ids.contains(&made["id"]), "{listed}");
        tenant.client.bearer(key).get("/v1/organization").expect(200);
    }

    fn a_key_gets_no_power_that_its_maker_lacks(world) {
        let tenant = world.register();
        let developer = tenant.key(json!({"role": "developer"}));
        developer.post("/v1/auth/keys", &json!({"name": "own"})).expect(201);
        for role in ["admin", "approver"] {
            developer.post("/v1/auth/keys", &json!({"name": "wider", "role": role})).expect_error(403, "forbidden");
        }
        tenant.client.post("/v1/auth/keys", &json!({"name": "owner", "role": "owner"})).expect_error(400, "invalid_input");
        let viewer = tenant.key(json!({"role": "viewer"}));
        viewer.get("/v1/users").expect(200);
        viewer.post("/v1/users", &json!({"name": "no"})).expect_error(403, "forbidden");
        viewer.post("/v1/auth/keys", &json!({"name": "no"})).expect_error(403, "forbidden");
    }

    fn a_key_lives_no_longer_than_its_maker(world) {
        let tenant = world.register();
        let short = tenant.key(json!({"role": "admin", "expires_at": "2099-01-01T00:00:00Z"}));
        let made = short.post("/v1/auth/keys", &json!({"name": "inherits"})).expect(201);
        assert_eq!(made["expires_at"], "2099-01-01T00:00:00.000Z");
        short.post("/v1/auth/keys", &json!({"name": "longer", "expires_at": "2199-01-01T00:00:00Z"})).expect_error(403, "forbidden");
        let past = json!({"name": "past", "expires_at": "2001-01-01T00:00:00Z"});
        assert_eq!(tenant.client.post("/v1/auth/keys", &past).expect_error(400, "invalid_input")["param"], "expires_at");
    }

    fn revoking_a_key_revokes_all_that_descends_from_it_at_once(world) {
        let tenant = world.register();
        let made = tenant.client.post("/v1/auth/keys", &json!({"name": "root", "role": "admin"})).expect(201);
        let root = tenant.client.bearer(made["key"].as_str().unwrap());
        let child = root.post("/v1/auth/keys", &json!({"name": "child", "role": "admin"})).expect(201);
        let child = tenant.client.bearer(child["key"].as_str().unwrap());
        let grandchild = child.post("/v1/auth/keys", &json!({"name": "grandchild"})).expect(201);
        let grandchild = tenant.client.bearer(grandchild["key"].as_str().unwrap());
        grandchild.get("/v1/organization").expect(200);
        let gone = tenant.client.delete(&format!("/v1/auth/keys/{}", id(&made))).expect(200);
        assert_eq!(gone["deleted"], true);
        for key in [&root, &child, &grandchild] {
            key.get("/v1/organization").expect_error(401, "unauthorized");
            key.post("/v1/users", &json!({"name": "late"})).expect_error(401, "unauthorized");
        }
        tenant.client.get("/v1/organization").expect(200);
        tenant.client.delete(&format!("/v1/auth/keys/{}", id(&made))).expect_error(404, "not_found");
    }

    fn a_key_that_is_made_while_its_maker_is_revoked_is_never_listed(world) {
        let tenant = world.register();
        let made = tenant.client.post("/v1/auth/keys", &json!({"name": "root", "role": "admin"})).expect(201);
        let root = tenant.client.bearer(made["key"].as_str().unwrap());
        let children: Vec<_> = std::thread::scope(|scope| {
            let make = |n: usize| root.post("/v1/auth/keys", &json!({"name": format!("child {n}")}));
            let makers: Vec<_> = (0..14).map(|n| scope.spawn(move || make(n))).collect();
            let revoked = tenant.client.delete(&format!("/v1/auth/keys/{}", id(&made)));
            revoked.expect(200);
            makers.into_iter().map(|maker| maker.join().unwrap()).filter(|answer| answer.status == 201).collect()
        });
        let listed = tenant.client.get("/v1/auth/keys?limit=200").expect(200);
        assert_eq!(listed["keys"].as_array().unwrap().len(), 1, "{listed}");
        for child in children {
            tenant.client.bearer(child.json()["key"].as_str().unwrap()).get("/v1/organization").expect_error(401, "unauthorized");
        }
    }

    fn a_key_lives_until_the_end_of_the_calendar_at_most(world) {
        let tenant = world.register();
        let last = json!({"name": "last", "expires_at": "9999-12-31T23:59:59Z"});
        let made = tenant.client.post("/v1/auth/keys", &last).expect(201);
        assert_eq!(made["expires_at"], "9999-12-31T23:59:59.000Z");
        tenant.client.bearer(made["key"].as_str().unwrap()).get("/v1/organization").expect(200);
        let beyond = json!({"name": "beyond", "expires_at": "9999-12-31T23:59:59-01:00"});
        assert_eq!(tenant.client.post("/v1/auth/keys", &beyond).expect_error(400, "invalid_input")["param"], "expires_at");
    }

    fn a_key_of_a_test_project_says_so(world) {
        let tenant = world.register();
        let project = tenant.client.post("/v1/projects", &json!({"name": "Staging", "mode": "test"})).expect(201);
        let project = id(&project["project"]);
        let made = tenant.client.post("/v1/auth/keys", &json!({"name": "staging", "project_id": project})).expect(201);
        assert!(made["key"].as_str().unwrap().starts_with("sk_test_"));
        assert_eq!(made["active_project_id"], json!(project));
        // A trial costs the organization nothing.
        world.fund(&tenant, 10_000);
        let staging = tenant.client.bearer(made["key"].as_str().unwrap());
        let card = id(&staging.post("/v1/cards", &json!({"label": "tried"})).expect(201)["card"]);
        let refused = staging.post(&format!("/v1/cards/{card}/top-up"), &json!({"amount_cents": 100}));
        assert_eq!(refused.expect_error(403, "forbidden")["reason"], "test_project");
    }

    fn a_key_pinned_to_a_project_acts_there_only(world) {
        let tenant = world.register();
        let other = id(&tenant.client.post("/v1/projects", &json!({"name": "Other"})).expect(201)["project"]);
        let pinned = tenant.key(json!({"role": "admin", "project_id": other}));
        let user = pinned.post("/v1/users", &json!({"name": "there"})).expect(201);
        tenant.client.get(&format!("/v1/projects/{other}/users/{}", id(&user["user"]))).expect(200);
        tenant.client.get(&format!("/v1/users/{}", id(&user["user"]))).expect_error(404, "not_found");
        let error = pinned.get(&format!("/v1/projects/{}/users", tenant.project)).expect_error(403, "forbidden");
        assert_eq!(error["reason"], "key_project_mismatch");
        let made = pinned.post("/v1/auth/keys", &json!({"name": "inherits"})).expect(201);
        assert_eq!(made["active_project_id"], json!(other));
        let wider = json!({"name": "wider", "project_id": tenant.project});
        pinned.post("/v1/auth/keys", &wider).expect_error(403, "forbidden");
        // The organization's own matters are beyond its pin, its role notwithstanding.
        let invited = json!({"email": "accomplice@example.com", "role": "admin"});
        for refused in [
            pinned.post("/v1/organization/members", &invited),
            pinned.patch("/v1/organization", &json!({"name": "Mine"})),
            pinned.patch("/v1/organization", &json!({"loosening": "key"})),
        ] {
            assert_eq!(refused.expect_error(403, "forbidden")["reason"], "pinned");
        }
        let wide = tenant.client.post("/v1/auth/keys", &json!({"name": "wide"})).expect(201);
        pinned.delete(&format!("/v1/auth/keys/{}", id(&wide))).expect_error(404, "not_found");
        pinned.delete(&format!("/v1/auth/keys/{}", id(&made))).expect(200);
    }

    fn a_key_pinned_to_a_user_sees_that_user_alone_and_loosens_nothing(world) {
        let tenant = world.register();
        let (own, other) = (tenant.user("own"), tenant.user("other"));
        let agent = tenant.key(json!({"role": "admin", "user_id": own}));
        assert_eq!(agent.get("/v1/users").expect_error(403, "forbidden")["reason"], "pinned");
        assert_eq!(agent.get("/v1/users/me").expect(200)["user"]["id"], json!(own));
        agent.get(&format!("/v1/users/{other}")).expect_error(404, "not_found");
        agent.post(&format!("/v1/users/{other}/revoke"), &json!({})).expect_error(403, "forbidden");
        agent.post("/v1/users", &json!({"name": "no"})).expect_error(403, "forbidden");
        agent.post("/v1/kits", &json!({"name": "no"})).expect_error(403, "forbidden");
        agent.post(&format!("/v1/users/{own}/restore"), &json!({})).expect_error(403, "forbidden");
        let kit = tenant.kit("wider", json!({}));
        agent.patch(&format!("/v1/users/{own}"), &json!({"kit_id": kit})).expect_error(403, "forbidden");
        for changed in [json!({"external_id": null}), json!({"metadata": {"plan": "pro"}}), json!({"name": "Agent"})] {
            let error = agent.patch(&format!("/v1/users/{own}"), &changed).expect_error(403, "forbidden");
            assert_eq!(error["reason"], "pinned", "{changed}");
        }
        for wider in [&format!("/v1/kits/{kit}"), "/v1/organization/members", "/v1/organization/invitations", "/v1/usage"] {
            assert_eq!(agent.get(wider).expect_error(403, "forbidden")["reason"], "pinned", "{wider}");
        }
        agent.post("/v1/auth/keys", &json!({"name": "wider", "user_id": other})).expect_error(404, "resource_not_found");
        let made = agent.post("/v1/auth/keys", &json!({"name": "same"})).expect(201);
        assert_eq!(made["user_id"], json!(own));
        let made = agent.post("/v1/auth/keys", &json!({"name": "me", "user_id": "me"})).expect(201);
        assert_eq!(made["user_id"], json!(own), "`me` is who the key is pinned to");
        assert_eq!(agent.get("/v1/auth/keys").expect(200)["keys"].as_array().unwrap().len(), 3);
    }

    fn a_session_makes_and_revokes_keys(world) {
        let tenant = world.register();
        let (person, _) = browser(world, &tenant.email, charter_tests::tenant::PASSWORD);
        let made = person.post("/v1/auth/keys", &json!({"name": "by a person", "role": "admin"})).expect(201);
        let key = tenant.client.bearer(made["key"].as_str().unwrap());
        key.get("/v1/organization").expect(200);
        person.delete(&format!("/v1/auth/keys/{}", id(&made))).expect(200);
        key.get("/v1/organization").expect_error(401, "unauthorized");
    }

    fn a_developer_revokes_only_what_is_its_own(world) {
        let tenant = world.register();
        let developer = tenant.key(json!({"role": "developer"}));
        let own = developer.post("/v1/auth/keys", &json!({"name": "own"})).expect(201);
        let other = tenant.client.post("/v1/auth/keys", &json!({"name": "other"})).expect(201);
        developer.delete(&format!("/v1/auth/keys/{}", id(&other))).expect_error(403, "forbidden");
        developer.delete(&format!("/v1/auth/keys/{}", id(&own))).expect(200);
    }

    fn who_was_demoted_revokes_no_key_above_them(world) {
        let tenant = world.register();
        let (owner, _) = browser(world, &tenant.email, charter_tests::tenant::PASSWORD);
        let (person, member) = join(world, &tenant, &owner, "admin");
        let make = |role: &str| person.post("/v1/auth/keys", &json!({"name": role, "role": role})).expect(201);
        let (above, level) = (make("admin"), make("viewer"));
        owner.patch(&format!("/v1/organization/members/{member}"), &json!({"role": "viewer"})).expect(200);
        person.delete(&format!("/v1/auth/keys/{}", id(&above))).expect_error(403, "forbidden");
        tenant.client.bearer(above["key"].as_str().unwrap()).get("/v1/organization").expect(200);
        person.delete(&format!("/v1/auth/keys/{}", id(&level))).expect(200);
    }

    fn a_replayed_creation_answers_the_same_key(world) {
        let tenant = world.register();
        let create = || tenant.client.call("POST", "/v1/auth/keys").idempotency_key("k-1").json(&json!({"name": "once"})).send();
        let (first, second) = (create(), create());
        assert_eq!((first.status, &first.body), (second.status, &second.body));
        assert_eq!(second.header("idempotent-replayed"), Some("true"));
    }
}

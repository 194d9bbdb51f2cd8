//! Nothing of one organization is seen, named or changed by another.

use charter_tests::on_both;
use charter_tests::tenant::id;
use serde_json::json;

on_both! {
    fn what_is_anothers_reads_as_absent(world) {
        let (one, two) = (world.register(), world.register());
        let user = one.user("agent");
        let kit = one.kit("kit", json!({}));
        let key = id(&one.client.post("/v1/auth/keys", &json!({"name": "key"})).expect(201));
        for path in [
            format!("/v1/users/{user}"),
            format!("/v1/kits/{kit}"),
            format!("/v1/projects/{}", one.project),
            format!("/v1/projects/{}/users", one.project),
            format!("/v1/projects/{}/users/{user}", one.project),
        ] {
            two.client.get(&path).expect_error(404, "not_found");
        }
        let patch = json!({"name": "stolen"});
        two.client.patch(&format!("/v1/users/{user}"), &patch).expect_error(404, "not_found");
        two.client.patch(&format!("/v1/kits/{kit}"), &patch).expect_error(404, "not_found");
        two.client.patch(&format!("/v1/projects/{}", one.project), &patch).expect_error(404, "not_found");
        two.client.post(&format!("/v1/users/{user}/revoke"), &json!({})).expect_error(404, "not_found");
        two.client.delete(&format!("/v1/auth/keys/{key}")).expect_error(404, "not_found");
        two.client.post("/v1/auth/keys", &json!({"name": "k", "user_id": user})).expect_error(404, "resource_not_found");
        two.client.post("/v1/auth/keys", &json!({"name": "k", "project_id": one.project})).expect_error(404, "resource_not_found");
        two.client.with("x-service-user-id", &user).get("/v1/users/me").expect_error(404, "not_found");
    }

    fn an_absent_id_and_anothers_read_the_same(world) {
        let (one, two) = (world.register(), world.register());
        let foreign = one.user("agent");
        let error = |path: String| {
            let mut error = two.client.get(&path).expect_error(404, "not_found");
            error["request_id"] = json!(null);
            error
        };
        assert_eq!(error(format!("/v1/users/{foreign}")), error("/v1/users/00000000-0000-7000-8000-000000000000".into()));
        assert_eq!(error(format!("/v1/users/{foreign}")), error("/v1/users/nothing".into()));
    }

    fn lists_hold_the_own_only(world) {
        let (one, two) = (world.register(), world.register());
        let user = one.user("agent");
        for (path, noun) in [("/v1/users", "users"), ("/v1/kits", "kits"), ("/v1/projects", "projects"), ("/v1/auth/keys", "keys")] {
            let answer = two.client.get(path);
            assert!(!answer.text().contains(&user), "{answer}");
            assert_eq!(answer.expect(200)[noun].as_array().unwrap().len(), 1, "{path}");
        }
    }
}

//! Nothing of one organization is seen, named or changed by another.

use charter_tests::tenant::{PASSWORD, id, unique};
use charter_tests::{Client, on_both};
use serde_json::json;

use crate::accounts::browser;
use crate::governance::in_an_hour;

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

    fn what_another_has_offered_given_or_sent_is_not_ended_or_sent_again(world) {
        let (one, two) = (world.register(), world.register());
        let grant = json!({"user_id": one.user, "actions": ["cards.*"], "until": in_an_hour(&one.client), "reason": "ours"});
        let grant = id(&one.client.post("/v1/governance/grants", &grant).expect(201)["grant"]);
        let guest = json!({"email": format!("{}@example.com", unique("guest")), "role": "viewer"});
        let invited = id(&one.client.post("/v1/organization/members", &guest).expect(201)["invitation"]);
        let hook = |client: &Client| {
            let wish = json!({"url": "http://127.0.0.1:9/", "eventTypes": ["*"]});
            id(&client.post("/v1/webhooks", &wish).expect(201))
        };
        let (ours, theirs) = (hook(&one.client), hook(&two.client));
        let told = one.client.post(&format!("/v1/webhooks/{ours}/test"), &json!({})).expect(202);
        let delivery = id(&told["delivery"]);
        let send = |webhook: &str| format!("/v1/webhooks/{webhook}/deliveries/{delivery}/redeliver");
        let (person, _) = browser(world, &two.email, PASSWORD);
        for by in [&two.client, &person] {
            by.delete(&format!("/v1/governance/grants/{grant}")).expect_error(404, "not_found");
            by.delete(&format!("/v1/organization/invitations/{invited}")).expect_error(404, "not_found");
            by.get(&format!("/v1/webhooks/{ours}/deliveries")).expect_error(404, "not_found");
            // A webhook of one's own sends nothing of another's.
            for webhook in [&ours, &theirs] {
                by.post(&send(webhook), &json!({})).expect_error(404, "not_found");
            }
        }
        // All of it is there still.
        one.client.post(&send(&ours), &json!({})).expect(202);
        one.client.delete(&format!("/v1/governance/grants/{grant}")).expect(200);
        one.client.delete(&format!("/v1/organization/invitations/{invited}")).expect(200);
    }

    fn nobody_says_what_became_of_anothers_hold(world) {
        let (one, two) = (world.register(), world.register());
        world.fund(&one, 1_000);
        let card = id(&one.client.post("/v1/cards", &json!({})).expect(201)["card"]);
        one.client.post(&format!("/v1/cards/{card}/top-up"), &json!({"amount_cents": 500})).expect(200);
        let before = one.client.get("/v1/governance/holds").expect(200);
        let path = format!("/v1/governance/holds/{}/resolve", id(&before["holds"][0]));
        let word = json!({"outcome": "voided", "reason": "nothing came"});
        // No key says so of any hold, and a person of another organization finds none.
        assert_eq!(two.client.post(&path, &word).expect_error(403, "forbidden")["reason"], "person_required");
        browser(world, &two.email, PASSWORD).0.post(&path, &word).expect_error(404, "not_found");
        let own = browser(world, &one.email, PASSWORD).0.post(&path, &word).expect_error(409, "state_conflict");
        assert_eq!(own["reason"], "hold_not_in_doubt");
        assert_eq!(one.client.get("/v1/governance/holds").expect(200), before);
    }

    fn a_key_of_a_project_reaches_no_other_project_and_no_kit_of_one(world) {
        let (one, two) = (world.register(), world.register());
        let second = id(&one.client.post("/v1/projects", &json!({"name": "second"})).expect(201)["project"]);
        let pinned = one.key(json!({"role": "admin", "project_id": second}));
        let (own, kit) = (format!("/v1/projects/{second}"), one.kit("kit", json!({})));
        let patch = json!({"name": "stolen"});
        let (other, foreign) = (format!("/v1/projects/{}", one.project), format!("/v1/projects/{}", two.project));
        for refused in [pinned.get(&other), pinned.patch(&other, &patch), pinned.get(&format!("{other}/kits/{kit}"))] {
            assert_eq!(refused.expect_error(403, "forbidden")["reason"], "key_project_mismatch");
        }
        assert_eq!(pinned.delete(&other).expect_error(403, "forbidden")["reason"], "pinned");
        pinned.get(&foreign).expect_error(404, "not_found");
        pinned.patch(&foreign, &patch).expect_error(404, "not_found");
        for kit in [kit.clone(), two.kit("kit", json!({}))] {
            for path in [format!("/v1/kits/{kit}"), format!("{own}/kits/{kit}")] {
                pinned.get(&path).expect_error(404, "not_found");
                pinned.patch(&path, &patch).expect_error(404, "not_found");
                pinned.delete(&path).expect_error(404, "not_found");
            }
        }
        assert_eq!(one.client.get(&format!("/v1/kits/{kit}")).expect(200)["kit"]["name"], "kit");
        assert_eq!(pinned.patch(&own, &json!({"name": "renamed"})).expect(200)["project"]["name"], "renamed");
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

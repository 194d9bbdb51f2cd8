//! The people of an organization: invitations, roles, and the last owner.

use charter_tests::tenant::{PASSWORD, Tenant, id, unique};
use charter_tests::world::Builder;
use charter_tests::{Client, World, on_both};
use serde_json::json;

use crate::accounts::browser;

/// Invites a new person and accepts for them; answers their browser and account.
pub fn join(world: &World, tenant: &Tenant, by: &Client, role: &str) -> (Client, String) {
    join_as(world, tenant, by, role, &format!("{}@example.com", unique(role)))
}

pub fn join_as(
    world: &World,
    tenant: &Tenant,
    by: &Client,
    role: &str,
    email: &str,
) -> (Client, String) {
    let invited =
        by.post("/v1/organization/members", &json!({"email": email, "role": role})).expect(201);
    let body = json!({"token": invited["invitation"]["accept_token"], "password": PASSWORD});
    let accepted = world.anonymous().post("/v1/auth/invitations/accept", &body).expect(201);
    assert_eq!(accepted["organization"]["id"], json!(tenant.organization));
    (browser(world, email, PASSWORD).0, accepted["account"]["id"].as_str().unwrap().to_owned())
}

on_both! {
    fn an_invitation_is_accepted_once(world) {
        let tenant = world.register();
        let email = format!("{}@example.com", unique("guest"));
        let invited = tenant.client.post("/v1/organization/members", &json!({"email": email, "role": "viewer"})).expect(201);
        let token = invited["invitation"]["accept_token"].clone();
        let listed = tenant.client.get("/v1/organization/invitations");
        assert!(!listed.text().contains(token.as_str().unwrap()), "{listed}");
        assert_eq!(listed.expect(200)["invitations"].as_array().unwrap().len(), 1);
        let weak = json!({"token": token, "password": "short"});
        world.anonymous().post("/v1/auth/invitations/accept", &weak).expect_error(400, "invalid_input");
        let body = json!({"token": token, "password": PASSWORD});
        assert_eq!(world.anonymous().post("/v1/auth/invitations/accept", &body).expect(201)["role"], "viewer");
        world.anonymous().post("/v1/auth/invitations/accept", &body).expect_error(401, "unauthorized");
        let members = tenant.client.get("/v1/organization/members").expect(200);
        assert_eq!(members["members"].as_array().unwrap().len(), 2, "{members}");
        let again = tenant.client.post("/v1/organization/members", &json!({"email": email, "role": "viewer"}));
        again.expect_error(409, "duplicate_record");
    }

    fn a_revoked_or_superseded_invitation_leads_nowhere(world) {
        let tenant = world.register();
        let body = json!({"email": format!("{}@example.com", unique("guest")), "role": "viewer"});
        let first = tenant.client.post("/v1/organization/members", &body).expect(201)["invitation"].clone();
        let second = tenant.client.post("/v1/organization/members", &body).expect(201)["invitation"].clone();
        let accept = |token| world.anonymous().post("/v1/auth/invitations/accept", &json!({"token": token, "password": PASSWORD}));
        accept(&first["accept_token"]).expect_error(401, "unauthorized");
        tenant.client.delete(&format!("/v1/organization/invitations/{}", second["id"].as_str().unwrap())).expect(200);
        accept(&second["accept_token"]).expect_error(401, "unauthorized");
    }

    fn an_invitation_ends_with_the_membership_that_offered_it(world) {
        let tenant = world.register();
        let (owner, _) = browser(world, &tenant.email, PASSWORD);
        let (admin, account) = join(world, &tenant, &owner, "admin");
        let path = format!("/v1/organization/members/{account}");
        let offer = |by: &Client, role: &str| {
            let email = format!("{}@example.com", unique("accomplice"));
            by.post("/v1/organization/members", &json!({"email": email, "role": role})).expect(201)["invitation"].clone()
        };
        let accept = |token| world.anonymous().post("/v1/auth/invitations/accept", &json!({"token": token, "password": PASSWORD}));
        let (first, by_owner) = (offer(&admin, "admin"), offer(&owner, "admin"));
        let demoted = owner.patch(&path, &json!({"role": "developer"})).expect(200);
        assert_eq!(demoted["invitations"], json!([first["id"]]));
        accept(&first["accept_token"]).expect_error(401, "unauthorized");
        assert_eq!(owner.patch(&path, &json!({"role": "admin"})).expect(200)["invitations"], json!([]));
        let second = offer(&admin, "admin");
        let removed = owner.delete(&path).expect(200);
        assert_eq!(removed["invitations"], json!([second["id"]]));
        accept(&second["accept_token"]).expect_error(401, "unauthorized");
        let listed = owner.get("/v1/organization/invitations").expect(200);
        assert_eq!(listed["invitations"].as_array().unwrap().len(), 1, "{listed}");
        assert_eq!(accept(&by_owner["accept_token"]).expect(201)["role"], "admin");
    }

    fn an_invitation_ends_with_the_key_that_offered_it(world) {
        let tenant = world.register();
        let made = tenant.client.post("/v1/auth/keys", &json!({"name": "root", "role": "admin"})).expect(201);
        let root = tenant.client.bearer(made["key"].as_str().unwrap());
        let child = root.post("/v1/auth/keys", &json!({"name": "child", "role": "admin"})).expect(201);
        let child = tenant.client.bearer(child["key"].as_str().unwrap());
        let offered = [&root, &child].map(|by| {
            let body = json!({"email": format!("{}@example.com", unique("accomplice")), "role": "developer"});
            by.post("/v1/organization/members", &body).expect(201)["invitation"].clone()
        });
        let revoked = tenant.client.delete(&format!("/v1/auth/keys/{}", made["id"].as_str().unwrap())).expect(200);
        for invitation in &offered {
            assert!(revoked["invitations"].as_array().unwrap().contains(&invitation["id"]), "{revoked}");
            let body = json!({"token": invitation["accept_token"], "password": PASSWORD});
            world.anonymous().post("/v1/auth/invitations/accept", &body).expect_error(401, "unauthorized");
        }
        assert_eq!(tenant.client.get("/v1/organization/invitations").expect(200)["invitations"], json!([]));
    }

    fn each_role_does_what_it_may(world) {
        let tenant = world.register();
        let (viewer, _) = join(world, &tenant, &tenant.client, "viewer");
        let (developer, _) = join(world, &tenant, &tenant.client, "developer");
        let (admin, _) = join(world, &tenant, &browser(world, &tenant.email, PASSWORD).0, "admin");
        let body = json!({"name": "agent"});
        viewer.get("/v1/users").expect(200);
        viewer.post("/v1/users", &body).expect_error(403, "forbidden");
        developer.post("/v1/users", &body).expect(201);
        let invite = json!({"email": format!("{}@example.com", unique("guest")), "role": "viewer"});
        developer.post("/v1/organization/members", &invite).expect_error(403, "forbidden");
        developer.patch("/v1/organization", &json!({"name": "no"})).expect_error(403, "forbidden");
        admin.post("/v1/organization/members", &invite).expect(201);
        assert_eq!(admin.patch("/v1/organization", &json!({"name": "Renamed"})).expect(200)["organization"]["name"], "Renamed");
    }

    fn who_may_not_loosen_removes_nobody_else_and_may_leave(world) {
        let tenant = world.register();
        let (owner, login) = browser(world, &tenant.email, PASSWORD);
        let founder = login["account"]["id"].as_str().unwrap().to_owned();
        let (_, other) = join(world, &tenant, &owner, "viewer");
        let path = |account: &str| format!("/v1/organization/members/{account}");
        for (role, by_name) in [("viewer", false), ("developer", true), ("approver", false)] {
            let (person, account) = join(world, &tenant, &owner, role);
            for member in [&other, &founder] {
                let refused = person.delete(&path(member)).expect_error(403, "forbidden");
                assert_eq!(refused["reason"], "loosening_not_allowed", "{role}");
                owner.get(&path(member)).expect(200);
            }
            let own = path(if by_name { "me" } else { &account });
            assert_eq!(person.delete(&own).expect(200)["id"], json!(account), "{role}");
            owner.get(&path(&account)).expect_error(404, "not_found");
            person.get("/v1/users").expect_error(401, "unauthorized");
        }
    }

    fn rules_and_limits_are_an_admins_to_change_and_no_developers(world) {
        let tenant = world.register();
        let (owner, _) = browser(world, &tenant.email, PASSWORD);
        let (developer, _) = join(world, &tenant, &owner, "developer");
        let (admin, _) = join(world, &tenant, &owner, "admin");
        let key = tenant.key(json!({"role": "developer"}));
        // Each of them only tightens: what is asked for is the role, and no authority to loosen.
        let rule = json!({"id": "no", "effect": "deny", "actions": ["cards.authorize"]});
        let limit = json!({"id": "few", "actions": ["cards.authorize"], "period": "day", "max_count": 1});
        for (path, wanted) in [
            ("/v1/governance/policy", json!({"rules": [rule]})),
            ("/v1/governance/limits", json!({"limits": [limit]})),
        ] {
            let before = owner.get(path).expect(200);
            for by in [&developer, &key] {
                let refused = by.put(path, &wanted).expect_error(403, "forbidden");
                assert_eq!((&refused["reason"], &refused["details"]["role_required"]), (&json!("role_insufficient"), &json!("admin")), "{path}");
                assert_eq!(by.get(path).expect(200), before, "{path}");
            }
            admin.put(path, &wanted).expect(200);
            assert_ne!(developer.get(path).expect(200), before, "{path}");
        }
    }

    fn ownership_is_given_by_owners_and_the_last_one_stays(world) {
        let tenant = world.register();
        let (owner, login) = browser(world, &tenant.email, PASSWORD);
        let founder = login["account"]["id"].as_str().unwrap().to_owned();
        let (admin, other) = join(world, &tenant, &owner, "admin");
        let path = |account: &str| format!("/v1/organization/members/{account}");
        admin.patch(&path(&other), &json!({"role": "owner"})).expect_error(403, "forbidden");
        admin.delete(&path(&founder)).expect_error(403, "forbidden");
        owner.patch(&path(&founder), &json!({"role": "admin"})).expect_error(409, "state_conflict");
        owner.delete(&path(&founder)).expect_error(409, "state_conflict");
        owner.patch(&path(&other), &json!({"role": "owner"})).expect(200);
        owner.delete(&path(&founder)).expect(200);
        owner.get("/v1/organization").expect_error(401, "unauthorized");
        admin.delete(&path(&other)).expect_error(409, "state_conflict");
    }

    fn a_demotion_and_a_removal_act_on_the_next_request(world) {
        let tenant = world.register();
        let (person, account) = join(world, &tenant, &tenant.client, "developer");
        person.post("/v1/users", &json!({"name": "agent"})).expect(201);
        let path = format!("/v1/organization/members/{account}");
        tenant.client.patch(&path, &json!({"role": "viewer"})).expect(200);
        person.post("/v1/users", &json!({"name": "agent"})).expect_error(403, "forbidden");
        tenant.client.delete(&path).expect(200);
        person.get("/v1/users").expect_error(401, "unauthorized");
    }

    fn a_person_and_no_key_makes_somebody_who_decides(world) {
        let tenant = world.register();
        let (owner, _) = browser(world, &tenant.email, PASSWORD);
        let (_, account) = join(world, &tenant, &tenant.client, "developer");
        for role in ["approver", "admin", "owner"] {
            let invited = json!({"email": format!("{}@example.com", unique("guest")), "role": role});
            let path = format!("/v1/organization/members/{account}");
            for refused in [
                tenant.client.post("/v1/organization/members", &invited),
                tenant.client.patch(&path, &json!({"role": role})),
            ] {
                let reason = refused.expect_error(403, "forbidden")["reason"].clone();
                assert!(reason == "session_required" || (role == "owner" && reason == "ownership"), "{refused}");
            }
            owner.post("/v1/organization/members", &invited).expect(201);
        }
    }

    fn who_is_invited_anew_signs_in_anew(world) {
        let tenant = world.register();
        let email = format!("{}@example.com", unique("guest"));
        let (before, account) = join_as(world, &tenant, &tenant.client, "developer", &email);
        tenant.client.delete(&format!("/v1/organization/members/{account}")).expect(200);
        let (now, again) = join_as(world, &tenant, &tenant.client, "developer", &email);
        assert_eq!(again, account);
        now.get("/v1/users").expect(200);
        before.get("/v1/users").expect_error(401, "unauthorized");
    }

    fn who_demotes_or_removes_somebody_learns_of_the_keys_that_stay(world) {
        let tenant = world.register();
        let (owner, _) = browser(world, &tenant.email, PASSWORD);
        let (admin, account) = join(world, &tenant, &owner, "admin");
        let key = admin.post("/v1/auth/keys", &json!({"name": "kept", "role": "admin"})).expect(201);
        let path = format!("/v1/organization/members/{account}");
        let change = |role: &str| owner.patch(&path, &json!({"role": role})).expect(200);
        assert_eq!(change("viewer")["keys"], json!([id(&key)]));
        assert_eq!(change("developer")["keys"], json!([]), "a promotion leaves nothing behind");
        assert_eq!(owner.delete(&path).expect(200)["keys"], json!([id(&key)]));
    }

    fn an_organization_can_ask_for_a_session_whenever_something_is_loosened(world) {
        let tenant = world.register();
        let path = format!("/v1/users/{}", tenant.user("agent"));
        tenant.client.patch("/v1/organization", &json!({"loosening": "session"})).expect(200);
        tenant.client.post(&format!("{path}/revoke"), &json!({})).expect(200);
        tenant.client.post(&format!("{path}/restore"), &json!({})).expect_error(403, "forbidden");
        tenant.client.patch("/v1/organization", &json!({"loosening": "key"})).expect_error(403, "forbidden");
        let (owner, _) = browser(world, &tenant.email, PASSWORD);
        owner.post(&format!("{path}/restore"), &json!({})).expect(200);
        // A primitive hears of it too: no key loosens a card, and a person does.
        let card = json!({"cap_cents": 100, "period": "day"});
        let card = id(&tenant.client.post("/v1/cards", &card).expect(201)["card"]);
        let card = format!("/v1/cards/{card}");
        let (frozen, thawed) = (format!("{card}/freeze"), format!("{card}/unfreeze"));
        let raised = json!({"cap_cents": 1_000, "period": "day"});
        tenant.client.post(&frozen, &json!({})).expect(200);
        for refused in [tenant.client.post(&thawed, &json!({})), tenant.client.patch(&card, &raised)] {
            assert_eq!(refused.expect_error(403, "forbidden")["reason"], "loosening_not_allowed");
        }
        owner.post(&thawed, &json!({})).expect(200);
        owner.patch(&card, &raised).expect(200);
        owner.patch("/v1/organization", &json!({"loosening": "key"})).expect(200);
        // Nor does what a key has offered before count again once keys may loosen again.
        let offer = json!({"email": format!("{}@example.com", unique("offered")), "role": "developer"});
        let token = tenant.client.post("/v1/organization/members", &offer).expect(201)["invitation"]["accept_token"].clone();
        tenant.client.patch("/v1/organization", &json!({"loosening": "session"})).expect(200);
        owner.patch("/v1/organization", &json!({"loosening": "key"})).expect(200);
        let accept = json!({"token": token, "password": PASSWORD});
        world.anonymous().post("/v1/auth/invitations/accept", &accept).expect_error(401, "unauthorized");
    }
}

on_both! {
    fn however_many_invitations_there_are_a_demotion_ends_all_for_good(world: Builder::new().bare()) {
        let tenant = world.register();
        let (owner, _) = browser(world, &tenant.email, PASSWORD);
        let (admin, account) = join(world, &tenant, &owner, "admin");
        let offer = || {
            let email = format!("{}@example.com", unique("accomplice"));
            let body = json!({"email": email, "role": "developer"});
            admin.post("/v1/organization/members", &body).expect(201)["invitation"].clone()
        };
        let accept = |token| world.anonymous().post("/v1/auth/invitations/accept", &json!({"token": token, "password": PASSWORD}));
        // More than go with the commit.
        let offered: Vec<_> = (0..210).map(|_| offer()).collect();
        let path = format!("/v1/organization/members/{account}");
        let demoted = owner.patch(&path, &json!({"role": "developer"})).expect(200);
        assert_eq!(demoted["invitations"].as_array().unwrap().len(), 200);
        accept(&offered[209]["accept_token"]).expect_error(401, "unauthorized");
        owner.patch(&path, &json!({"role": "admin"})).expect(200);
        for invitation in [&offered[0], &offered[200], &offered[209]] {
            accept(&invitation["accept_token"]).expect_error(401, "unauthorized");
        }
        let listed = owner.get("/v1/organization/invitations?limit=200").expect(200);
        assert_eq!(listed["invitations"], json!([]));
        accept(&offer()["accept_token"]).expect(201);
    }
}

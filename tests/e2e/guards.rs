//! The host guards itself: it holds a kit to its rate, whatever it answers, and steps back from a version that keeps
//! trapping.

use charter_tests::artefacts::Artefacts;
use charter_tests::patience::until;
use charter_tests::tenant::{PASSWORD, id};
use charter_tests::world::Builder;
use charter_tests::{Client, Tenant, on_both};
use serde_json::{Value, json};

use crate::accounts::browser;
use crate::members::join;

on_both! {
    fn a_kit_holds_its_users_to_its_rate_and_nobody_else(world) {
        let tenant = world.register();
        let kit = id(&tenant.client.post("/v1/kits", &json!({"name": "slow", "limits": {"requests_per_minute": 5}})).expect(201)["kit"]);
        let (slow, free) = (tenant.user_with_kit("slow", &kit), tenant.user("free"));
        let asked: Vec<_> = (0..12).map(|_| tenant.client.get(&format!("/v1/users/{slow}/queue"))).collect();
        assert!(asked[..5].iter().all(|answer| answer.status == 200), "{}", asked[4]);
        for answer in &asked {
            assert!(answer.header("ratelimit-policy").is_some_and(|policy| policy.contains("q=5;w=60")), "{answer}");
            assert!(answer.header("ratelimit").is_some_and(|left| left.contains(";r=")), "{answer}");
        }
        let refused = asked.iter().find(|answer| answer.status != 200).expect("twelve requests are more than five a minute");
        refused.expect_error(429, "rate_limited");
        assert!(refused.header("ratelimit").is_some_and(|left| left.contains(";r=0;")), "{refused}");
        let wait: u64 = refused.header("retry-after").and_then(|text| text.parse().ok()).expect("seconds to wait");
        assert!((1..=60).contains(&wait), "{refused}");
        for _ in 0..12 {
            tenant.client.get(&format!("/v1/users/{free}/queue")).expect(200);
        }
    }

    fn a_request_that_is_refused_counts_as_one_that_is_allowed(world) {
        let tenant = world.register();
        let body = json!({
            "name": "narrow",
            "limits": {"requests_per_minute": 6},
            "primitives": {"queue": {"enabled": true}, "vault": {"enabled": false}},
        });
        let kit = id(&tenant.client.post("/v1/kits", &body).expect(201)["kit"]);
        let user = tenant.user_with_kit("narrow", &kit);
        let viewer = tenant.key(json!({"role": "viewer", "user_id": user}));
        // Allowed, refused by authority, refused by the kit, and from the top.
        let ask = |n: usize| match n % 3 {
            0 => viewer.get(&format!("/v1/users/{user}/queue")),
            1 => viewer.post(&format!("/v1/users/{user}/queue"), &json!({"name": "mine"})),
            _ => viewer.get(&format!("/v1/users/{user}/vault")),
        };
        let asked: Vec<_> = (0..18).map(ask).collect();
        for (n, answer) in asked[..6].iter().enumerate() {
            assert_eq!(answer.status, [200, 403, 403][n % 3], "{answer}");
            let left = format!(";r={};", 5 - n);
            assert!(answer.header("ratelimit").is_some_and(|rate| rate.contains(&left)), "{left} is not left: {answer}");
        }
        let limited: Vec<_> = asked.iter().filter(|answer| answer.status == 429).collect();
        // A token comes back every ten seconds.
        assert!(limited.len() >= 9, "{} of 18 requests are beyond six a minute", limited.len());
        for answer in limited {
            answer.expect_error(429, "rate_limited");
            let wait: u64 = answer.header("retry-after").and_then(|text| text.parse().ok()).expect("seconds to wait");
            assert!((1..=60).contains(&wait), "{answer}");
        }
        // Beyond the rate a refusal leaves no row.
        let forbidden = asked.iter().filter(|answer| answer.status == 403).count();
        let refused = || {
            let rows = tenant.client.get(&format!("/v1/logs?user_id={user}&limit=100")).expect(200)["logs"].clone();
            rows.as_array().unwrap().iter().filter(|row| row["decision"] == "refused").count()
        };
        until("each refusal within the rate is a row", || refused() >= forbidden);
        assert_eq!(refused(), forbidden);
    }
}

/// Asks until the rate of who asks is used up.
fn use_up(client: &Client, path: &str) {
    until("its rate is used up", || client.get(path).status == 429);
}

on_both! {
    fn no_agent_keeps_who_governs_from_it_by_the_rate_of_a_kit(world) {
        let tenant = world.register();
        let kit = id(&tenant.client.get("/v1/kits").expect(200)["kits"][0]);
        let kit = format!("/v1/kits/{kit}");
        let body = json!({ "name": "agent", "role": "developer", "project_id": tenant.project });
        let made = tenant.client.post("/v1/auth/keys", &body).expect(201);
        let agent = tenant.client.bearer(made["key"].as_str().unwrap());
        agent.patch(&kit, &json!({ "limits": { "requests_per_minute": 1 } })).expect(200);
        use_up(&agent, "/v1/queue");
        let owner = browser(world, &tenant.email, PASSWORD).0;
        for client in [&tenant.client, &owner] {
            for path in ["/v1/kits", "/v1/queue", "/v1/auth/keys"] {
                client.get(path).expect(200);
                use_up(&agent, "/v1/queue");
            }
        }
        owner.patch(&kit, &json!({ "limits": { "requests_per_minute": 2 } })).expect(200);
        use_up(&agent, "/v1/queue");
        tenant.client.delete(&format!("/v1/auth/keys/{}", id(&made))).expect(200);
        agent.get("/v1/queue").expect_error(401, "unauthorized");
    }
}

on_both! {
    fn no_key_keeps_people_from_what_they_do_by_the_rate_of_their_organization(
        world: Builder::new().configuration("[rates]\norganization_per_minute = 40\n")
    ) {
        let tenant = world.register();
        let owner = browser(world, &tenant.email, PASSWORD).0;
        let user = tenant.user("agent");
        let agent = tenant.key(json!({ "role": "developer", "user_id": user }));
        for (who, leaves) in [(&agent, &tenant.client), (&tenant.client, &owner)] {
            use_up(who, "/v1/limits");
            leaves.get("/v1/limits").expect(200);
            leaves.get("/v1/auth/keys").expect(200);
        }
    }

    fn nobody_keeps_others_from_the_rate_of_their_organization(
        world: Builder::new().configuration("[rates]\norganization_per_minute = 600\n")
    ) {
        let names = ["owner", "admin", "approver", "viewer", "admin key", "viewer key", "project key", "user key", "foreign key"];
        for flooder in names {
            let tenant = world.register();
            let owner = browser(world, &tenant.email, PASSWORD).0;
            let session = |role: &str| join(world, &tenant, &owner, role).0;
            let user = tenant.user("agent");
            let other = tenant.client.post("/v1/projects", &json!({ "name": "Other" })).expect(201);
            let viewer = session("viewer");
            let of_viewer = viewer.post("/v1/auth/keys", &json!({ "name": "reads", "role": "viewer" })).expect(201);
            // A viewer may make a key with the pins of any agent.
            let foreign = json!({ "name": "foreign", "role": "viewer", "user_id": user });
            let foreign = viewer.post("/v1/auth/keys", &foreign).expect(201);
            let clients = [
                owner.clone(),
                session("admin"),
                session("approver"),
                viewer.clone(),
                tenant.key(json!({ "role": "admin" })),
                tenant.client.bearer(of_viewer["key"].as_str().unwrap()),
                tenant.key(json!({ "role": "developer", "project_id": id(&other["project"]) })),
                tenant.key(json!({ "role": "developer", "user_id": user })),
                tenant.client.bearer(foreign["key"].as_str().unwrap()),
            ];
            let of = |name: &str| &clients[names.iter().position(|known| *known == name).unwrap()];
            use_up(of(flooder), "/v1/limits");
            for asker in names.into_iter().filter(|asker| *asker != flooder) {
                let answer = of(asker).get("/v1/limits");
                assert_eq!(answer.status, 200, "{asker} beside {flooder}: {answer}");
            }
        }
    }

    fn a_viewers_key_with_an_agents_pins_takes_nothing_of_the_agents(
        world: Builder::new().configuration("[rates]\nkey_per_minute = 30\n")
    ) {
        let tenant = world.register();
        let user = tenant.user("agent");
        let agent = tenant.key(json!({ "role": "developer", "user_id": user }));
        let owner = browser(world, &tenant.email, PASSWORD).0;
        let viewer = join(world, &tenant, &owner, "viewer").0;
        let body = json!({ "name": "foreign", "role": "viewer", "user_id": user });
        let foreign = viewer.post("/v1/auth/keys", &body).expect(201);
        use_up(&tenant.client.bearer(foreign["key"].as_str().unwrap()), "/v1/limits");
        agent.get("/v1/limits").expect(200);
    }

    fn no_project_keeps_another_from_the_rate_of_their_organization(
        world: Builder::new().configuration("[rates]\norganization_per_minute = 40\nkey_per_minute = 20\n")
    ) {
        let tenant = world.register();
        let other = tenant.client.post("/v1/projects", &json!({ "name": "Other" })).expect(201);
        let greedy = tenant.key(json!({ "role": "developer", "project_id": tenant.project }));
        let calm = tenant.key(json!({ "role": "developer", "project_id": id(&other["project"]) }));
        let user = tenant.user("agent");
        let further = greedy.post("/v1/auth/keys", &json!({ "name": "further", "role": "developer" })).expect(201);
        let further = greedy.bearer(further["key"].as_str().unwrap());
        let users = tenant.key(json!({ "role": "developer", "user_id": user }));
        for greedy in [&greedy, &further, &users] {
            use_up(greedy, "/v1/limits");
        }
        for _ in 0..3 {
            calm.get("/v1/limits").expect(200);
        }
    }

    fn the_keys_that_an_agent_makes_for_itself_share_its_rate(
        world: Builder::new().configuration("[rates]\nkey_per_minute = 5\n")
    ) {
        let tenant = world.register();
        let user = tenant.user("agent");
        let agent = tenant.key(json!({ "role": "developer", "user_id": user }));
        let made = agent.post("/v1/auth/keys", &json!({ "name": "another", "role": "developer" })).expect(201);
        let other = agent.bearer(made["key"].as_str().unwrap());
        use_up(&agent, "/v1/limits");
        other.get("/v1/limits").expect_error(429, "rate_limited");
    }
}

on_both! {
    fn a_version_that_keeps_trapping_is_stepped_back_from_and_stays_away(world: Builder::new().bare()) {
        let good = world.install("probe", &Artefacts::get().probe(900_002))["component"]["digest"].clone();
        let bad = world.install("probe", &Artefacts::get().probe(900_003))["component"]["digest"].clone();
        // Anybody can make these; what the operator makes, or mail has reached, is somebody's.
        let free = [world.register(), world.register(), world.register()];
        let by_operator = || Tenant::register(&world.operator());
        let tenants = [by_operator(), by_operator(), by_operator()];
        // Only the odd build traps; each organization asks each time, as one alone brings no
        // version down.
        let ask = |tenant: &Tenant| tenant.client.post("/v1/probe/trap", &json!({})).status;
        for _ in 0..30 {
            assert!(free.iter().all(|tenant| ask(tenant) == 500), "free registrations rolled a version back");
        }
        until("the trapping version is stepped back from", || {
            tenants.iter().map(ask).filter(|status| *status == 200).count() == tenants.len()
        });
        assert_eq!(tenants[0].client.get("/v1/probe").expect(200)["build"], "900002");
        let log = world.server().log();
        let told = |line: &str| line.contains("STEPPED BACK") && line.contains(bad.as_str().unwrap());
        assert!(log.lines().any(told), "the log does not name it:\n{log}");
        let view = world.operator().get("/v1/operator/components/probe").expect(200)["component"].clone();
        assert_eq!((&view["active"]["version"], &view["activated_by"]), (&json!("1.0.900002"), &json!("breaker")), "{view}");
        let row = |digest: &Value| view["versions"].as_array().unwrap().iter().find(|version| version["digest"] == *digest).unwrap();
        assert_eq!((&row(&good)["state"], &row(&bad)["state"]), (&json!("active"), &json!("quarantined")), "{view}");
        assert!(row(&bad)["reason"].as_str().is_some_and(|reason| reason.contains("trapped")), "{view}");
        let again = world.operator().post("/v1/operator/components/probe/activate", &json!({ "digest": bad }));
        assert_eq!(again.expect_error(409, "state_conflict")["reason"], "quarantined", "{again}");
        assert_eq!(tenants[0].client.get("/v1/probe").expect(200)["build"], "900002");
        world.stop();
        world.start();
        let client = tenants[0].client.at(world.server().address());
        assert_eq!(client.get("/v1/probe").expect(200)["build"], "900002", "a restart brought it back");
    }
}

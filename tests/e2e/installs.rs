//! The declarations of a component are bounded when it is installed, and its answers are data to a
//! browser: an install that would harm others is refused, and the neighbour is served.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use charter_tests::artefacts::Artefacts;
use charter_tests::world::Builder;
use charter_tests::{Answer, World, on_both};
use serde_json::{Value, json};

/// Uploads the hostile component with this text behind its operations.
fn declare(world: &World, text: &str) -> Answer {
    world.upload("hostile", &Artefacts::get().hostile_declaring(text), true)
}

/// The faults of an install that is refused.
#[track_caller]
fn faults(answer: &Answer) -> String {
    let error = answer.expect_error(422, "invalid_component");
    error["details"]["faults"].to_string()
}

/// A schema that each link of a chain visits twice.
fn doubling(links: usize) -> Value {
    let mut defs = json!({"a0": {"type": "object"}});
    for link in 1..=links {
        let next = json!({"$ref": format!("#/$defs/a{}", link - 1)});
        defs[format!("a{link}")] = json!({"allOf": [next, next]});
    }
    json!({"type": "object", "$defs": defs, "allOf": [{"$ref": format!("#/$defs/a{links}")}]})
}

fn operation(members: Value) -> String {
    let mut operation = json!({"id": "hostile.open", "method": "POST", "path": "/hostile/open"});
    for (name, value) in members.as_object().unwrap() {
        operation[name] = value.clone();
    }
    format!(",{operation}")
}

on_both! {
    fn what_would_stop_the_host_is_refused_and_the_neighbour_is_served(world: Builder::new()) {
        let neighbour = world.register();
        let schema = doubling(45);
        for member in ["query", "body"] {
            let found = faults(&declare(world, &operation(json!({member: schema}))));
            assert!(found.contains(&format!(".{member}.$defs.a8")), "{found}");
            assert!(found.contains("up to 1021 visits to check one value"), "{found}");
        }
        let mut patterns = String::new();
        for number in 0..3 {
            let _ = write!(patterns, "(a{{900}}b{number}){{900}}");
        }
        let body = json!({"type": "object", "properties": {"a": {"type": "string", "pattern": patterns}}});
        let found = faults(&declare(world, &operation(json!({"body": body}))));
        assert!(found.contains("letters and classes"), "{found}");
        neighbour.client.get("/v1/queue").expect(200);
        assert!(world.operator().get("/v1/operator/components").expect(200).to_string().find("hostile").is_none());
    }

    fn a_body_that_takes_long_to_check_does_not_hold_up_its_neighbours(world: Builder::new()) {
        let twice = json!({"type": "object", "properties": {"deep": {"$ref": "#/$defs/list"}},
            "$defs": {"list": {"items": {"allOf": [{"$ref": "#/$defs/list"}, {"$ref": "#/$defs/list"}]}}}});
        declare(world, &operation(json!({"body": twice}))).expect(201);
        let (villain, neighbour) = (world.register(), world.register());
        let deep = |depth: usize| json!({"deep": (0..depth).fold(json!([]), |value, _| json!([value]))});
        villain.client.post("/v1/hostile/open", &deep(4)).expect_error(404, "not_found");
        std::thread::scope(|scope| {
            let attacks: Vec<_> = (0..3)
                .map(|_| scope.spawn(|| villain.client.post("/v1/hostile/open", &deep(100))))
                .collect();
            let begun = Instant::now();
            for _ in 0..5 {
                neighbour.client.get("/v1/queue").expect(200);
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "served after {:?}", begun.elapsed());
            let answers: Vec<_> = attacks.into_iter().map(|attack| attack.join().unwrap()).collect();
            for answer in &answers {
                assert!(matches!(answer.status, 400 | 503), "{answer}");
            }
            let refused = answers.iter().find(|answer| answer.status == 400).unwrap();
            assert!(refused.text().contains("too deep to be checked"), "{refused}");
        });
    }

    fn what_a_component_answers_reaches_a_browser_as_data(world: Builder::new()) {
        world.install("hostile", &Artefacts::get().fixture("hostile"));
        let tenant = world.register();
        let page = tenant.client.get("/v1/hostile/page");
        assert_eq!(page.status, 200, "{page}");
        assert_eq!(page.header("content-security-policy").unwrap(), "sandbox; default-src 'none'");
        assert_eq!(page.header("x-content-type-options").unwrap(), "nosniff");
        assert_eq!(page.header("content-type").unwrap(), "text/html; charset=utf-8");
        assert_eq!(page.header("etag").unwrap(), "\"kept\"");
        for name in [
            "access-control-allow-origin", "clear-site-data", "location", "refresh", "service-worker-allowed",
            "set-cookie", "x-injected", "x-service-user-id", "idempotent-replayed",
        ] {
            assert!(page.header(name).is_none(), "{name}: {page}");
        }
        assert_ne!(page.header("x-request-id").unwrap(), "forged");
        tenant.client.get("/v1/hostile/not-utf8").expect_error(500, "internal_error");
        tenant.client.get("/v1/hostile/redirect").expect_error(500, "internal_error");
        let reset = tenant.client.get("/v1/hostile/reset");
        assert_eq!((reset.status, reset.text().len()), (205, 0), "{reset}");
    }

    fn what_harms_others_is_refused_by_name_when_it_is_installed(world: Builder::new()) {
        let neighbour = world.register();
        let open = |path: &str| operation(json!({"method": "GET", "path": path, "mounts": ["root"], "auth": "none"}));
        for (text, words) in [
            (operation(json!({"deadline_ms": 900_000})), "at most 30000 for hostile.open, whose class is short"),
            (open("/.well-known/acme-challenge/{token}"), "must not begin with /.well-known"),
            (open("/login"), "must not begin with /login"),
            (open("/{all*}"), "must begin with a word of its own"),
        ] {
            let found = faults(&declare(world, &text));
            assert!(found.contains(words), "{found}");
        }
        neighbour.client.get("/v1/queue").expect(200);
    }

    fn a_component_gets_what_the_operator_agreed_to(world: Builder::new()) {
        let text = format!(
            "{}{}",
            operation(json!({"method": "GET", "path": "/hostile-open", "mounts": ["root"], "auth": "none"})),
            r#"],"providers":[{"name":"search.engine"}"#,
        );
        let wasm = Artefacts::get().hostile_declaring(&text);
        let upload = |query: &str| {
            let operator = world.operator();
            let path = format!("/v1/operator/components/hostile{query}");
            operator.call("PUT", &path).header("content-type", "application/wasm").bytes(wasm.clone()).send()
        };
        let staged = upload("").expect(201);
        assert_eq!(staged["component"]["asks"], json!(["GET /hostile-open", "search.engine"]));
        for query in ["?activate=true", "?activate=true&agree=search.engine"] {
            let refused = upload(query).expect_error(409, "state_conflict");
            assert_eq!(refused["reason"], "consent_required");
            assert!(refused["message"].as_str().unwrap().contains("GET /hostile-open"), "{refused}");
        }
        world.anonymous().get("/hostile-open").expect_error(404, "not_found");
        let shown = world.operator().get("/v1/operator/components/hostile").expect(200);
        assert_eq!(shown["component"]["versions"][0]["unagreed"], staged["component"]["asks"]);
        upload("?activate=true&agree=search.engine,GET%20/hostile-open").expect(201);
        let shown = world.operator().get("/v1/operator/components/hostile").expect(200);
        assert_eq!(shown["component"]["versions"][0]["unagreed"], json!([]));
    }

    fn a_credential_does_not_follow_its_binding_to_another_origin(world: Builder::new()) {
        let put = |url: &str, credential: Option<&str>| {
            let mut body = json!({"kind": "http", "url": url});
            if let Some(credential) = credential {
                body["credential"] = json!(credential);
            }
            world.operator().put("/v1/operator/providers/some.thing", &body)
        };
        put("https://one.example.com/v1", Some("secret")).expect(200);
        assert_eq!(put("https://one.example.com/v2", None).expect(200)["provider"]["credential"], "set");
        let refused = put("https://two.example.com/v1", None).expect_error(400, "invalid_input");
        assert_eq!(refused["param"], "credential");
        assert_eq!(put("https://two.example.com/v1", Some("")).expect(200)["provider"]["credential"], "none");
        // Nobody's binding is removed in place of another's.
        let tenant = world.register();
        let both = format!("/v1/operator/providers/some.thing?organization_id={}&project_id={}", tenant.organization, tenant.project);
        for answer in [world.operator().get(&both), world.operator().delete(&both)] {
            assert_eq!(answer.expect_error(400, "invalid_input")["param"], "organization_id");
        }
    }
}

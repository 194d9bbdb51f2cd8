//! The server about itself: its description, its counters and its log.

use std::collections::BTreeSet;

use charter_tests::artefacts::Artefacts;
use charter_tests::patience::until;
use charter_tests::tenant::{PASSWORD, unique};
use charter_tests::world::{Builder, OPERATOR_TOKEN};
use charter_tests::{Client, Database, World, on_both};
use serde_json::{Value, json};

use crate::hooks::open;

/// Every `$ref` within a document.
fn references(value: &Value, into: &mut BTreeSet<String>) {
    match value {
        Value::Object(members) => {
            if let Some(reference) = members.get("$ref").and_then(Value::as_str) {
                into.insert(reference.to_owned());
            }
            members.values().for_each(|member| references(member, into));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, into)),
        _ => {}
    }
}

#[test]
fn the_description_is_whole() {
    let world = World::shared(Database::Sqlite);
    let answer = world.anonymous().get("/openapi.json");
    let document = answer.expect(200);
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1."), "{}", document["openapi"]);
    let mut found = BTreeSet::new();
    references(&document, &mut found);
    assert!(!found.is_empty(), "nothing is shared, not even the error");
    for reference in &found {
        let pointer =
            reference.strip_prefix('#').unwrap_or_else(|| panic!("{reference} leads outside"));
        assert!(document.pointer(pointer).is_some(), "{reference} leads nowhere");
    }
    let paths = document["paths"].as_object().unwrap();
    let mut ids = BTreeSet::new();
    let mut secured = 0;
    for (path, item) in paths {
        let named: BTreeSet<&str> =
            path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
        for (method, operation) in item.as_object().unwrap() {
            let place = format!("{method} {path}");
            let id = operation["operationId"]
                .as_str()
                .unwrap_or_else(|| panic!("{place} has no operationId"));
            assert!(ids.insert(id.to_owned()), "{place}: {id} stands twice");
            let declared: BTreeSet<&str> = operation["parameters"]
                .as_array()
                .into_iter()
                .flatten()
                .filter(|parameter| parameter["in"] == "path")
                .map(|parameter| parameter["name"].as_str().unwrap())
                .collect();
            assert_eq!(declared, named, "{place}: the path's parameters");
            let responses = operation["responses"]
                .as_object()
                .unwrap_or_else(|| panic!("{place} has no responses"));
            assert!(
                responses.keys().any(|status| status.starts_with('2')),
                "{place} never succeeds"
            );
            secured += usize::from(
                operation["security"].as_array().is_some_and(|schemes| !schemes.is_empty()),
            );
            for scheme in operation["security"]
                .as_array()
                .into_iter()
                .flatten()
                .flat_map(|scheme| scheme.as_object().unwrap().keys())
            {
                assert!(
                    document["components"]["securitySchemes"][scheme].is_object(),
                    "{place}: {scheme} is not described"
                );
            }
        }
    }
    assert!(secured > 0, "no route asks for a credential");
    // Each primitive at both of its mounts, with the same methods.
    let mut both = 0;
    for (path, item) in paths {
        if let Some(below) = path.strip_prefix("/v1/users/{user_id}/") {
            let company = paths
                .get(&format!("/v1/{below}"))
                .unwrap_or_else(|| panic!("/v1/{below} is missing"));
            let methods =
                |item: &Value| item.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
            assert_eq!(methods(company), methods(item), "{path}");
            both += 1;
        }
    }
    assert!(both > 0, "no primitive is described at a user");
}

/// The value of a gauge.
#[track_caller]
pub fn gauge(operator: &Client, name: &str) -> u64 {
    let text = operator.get("/metrics").text();
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    let found = lines.next().and_then(|value| value.parse::<f64>().ok());
    found.unwrap_or_else(|| panic!("{name} is not shown:\n{text}")) as u64
}

/// The value of a counter whose line has all of these.
fn count(operator: &Client, family: &str, labels: &[&str]) -> u64 {
    let answer = operator.get("/metrics");
    assert_eq!(answer.status, 200, "{answer}");
    let text = answer.text();
    assert!(text.trim_end().ends_with("# EOF"), "{answer}");
    let mut lines = text.lines().filter(|line| line.starts_with(&format!("{family}{{")));
    let line = lines.find(|line| labels.iter().all(|label| line.contains(label)));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok()).unwrap_or_default()
}

on_both! {
    fn outcomes_are_counted_for_each_primitive(world: Builder::new().bare()) {
        world.anonymous().get("/metrics").expect_error(401, "unauthorized");
        // Registered first: a user that comes while it is installed is told to the probe, and that
        // is a call too.
        let tenant = world.register();
        world.install("probe", &Artefacts::get().fixture("probe"));
        tenant.client.get("/metrics").expect_error(401, "unauthorized");
        let operator = world.operator();
        let class = |outcome: &str| count(&operator, "charter_guest_calls_total", &[r#"primitive="probe""#, &format!("outcome=\"{outcome}\"")]);
        let before = (class("answered"), class("refused"), class("trapped"));
        for n in 0..3 {
            tenant.client.post("/v1/probe/pairs", &json!({ "name": format!("counted-{n}") })).expect(201);
        }
        assert_eq!((class("answered"), class("refused"), class("trapped")), (before.0 + 3, before.1, before.2));
        // One that the host refuses never reaches the guest, and is counted at its route.
        let route = |outcome: &str| count(&operator, "charter_outcomes_total", &[r#"method="POST""#, r#"route="/v1/probe/pairs""#, &format!("outcome=\"{outcome}\"")]);
        assert_eq!((route("answered"), route("refused")), (3, 0));
        tenant.client.post("/v1/probe/pairs", &json!({})).expect_error(400, "invalid_input");
        assert_eq!((route("answered"), route("refused")), (3, 1));
        assert_eq!(class("answered"), before.0 + 3);
        // A trap is the primitive's, and its caller's 500.
        world.install("probe", &Artefacts::get().probe(900_001));
        tenant.client.post("/v1/probe/trap", &json!({})).expect_error(500, "internal_error");
        assert_eq!(class("trapped"), before.2 + 1);
        // Nobody's name is a label.
        let text = operator.get("/metrics").text();
        for secret in [&tenant.organization, &tenant.user, &tenant.project, &tenant.key, &tenant.email] {
            assert!(!text.contains(secret.as_str()), "{secret} is in the metrics");
        }
    }

    fn what_a_primitive_refuses_is_counted_as_its_refusal(world: Builder::new().bare()) {
        let tenant = world.register();
        world.install("script", &Artefacts::get().fixture("script"));
        let operator = world.operator();
        let class = |outcome: &str| count(&operator, "charter_guest_calls_total", &[r#"primitive="script""#, &format!("outcome=\"{outcome}\"")]);
        let all = || (class("answered"), class("refused"), class("trapped"));
        let before = all();
        let play = |step: Value| tenant.client.post("/v1/script", &json!({ "steps": [step] }));
        play(json!({ "refuse": "state_conflict" })).expect_error(409, "state_conflict");
        play(json!({ "refuse": "state_conflict" })).expect_error(409, "state_conflict");
        assert_eq!(all(), (before.0, before.1 + 2, before.2));
        play(json!({ "trap": 1 })).expect_error(500, "internal_error");
        assert_eq!(all(), (before.0, before.1 + 2, before.2 + 1));
        play(json!({ "note": "counted" })).expect(200);
        assert_eq!(all(), (before.0 + 1, before.1 + 2, before.2 + 1));
    }

    fn the_log_names_requests_and_tells_no_secret(
        world: Builder::new().environment("CHARTER_TELEMETRY_LOG_FORMAT", "json").environment("CHARTER_TELEMETRY_LOG", "trace")
    ) {
        let tenant = world.register();
        let marker = |what: &str| unique(&format!("hush-{what}"));
        let mut secrets = vec![tenant.key.clone(), PASSWORD.to_owned(), OPERATOR_TOKEN.to_owned()];
        // A vault's value, put, revealed, and put again.
        let value = marker("value");
        tenant.client.put("/v1/vault/name", &json!({ "value": value })).expect(200);
        tenant.client.post("/v1/vault/name/reveal", &json!({})).expect(200);
        secrets.push(value);
        // A key that is made, used and revoked.
        let made = tenant.client.post("/v1/auth/keys", &json!({ "name": "made", "role": "developer" })).expect(201);
        let key = made["key"].as_str().unwrap().to_owned();
        tenant.client.bearer(&key).get("/v1/users").expect(200);
        secrets.push(key);
        // Logins, good and bad, and the session that a good one makes.
        let login = json!({ "email": tenant.email, "password": PASSWORD });
        let session = world.anonymous().post("/v1/auth/login", &login);
        session.expect(200);
        for cookie in session.headers.get_all("set-cookie") {
            let value = cookie.to_str().unwrap().split(['=', ';']).nth(1).unwrap().to_owned();
            assert!(value.len() > 16, "{session}");
            secrets.push(value);
        }
        let guess = marker("guess");
        world.anonymous().post("/v1/auth/login", &json!({ "email": tenant.email, "password": guess })).expect_error(401, "unauthorized");
        secrets.push(guess);
        // A credential that nobody has, and one of a provider.
        let forged = marker("key");
        world.anonymous().bearer(&forged).get("/v1/users").expect_error(401, "unauthorized");
        secrets.push(forged);
        let credential = marker("credential");
        let binding = json!({ "kind": "searxng", "url": "http://127.0.0.1:9", "credential": credential });
        let bound = world.operator().put("/v1/operator/providers/search.engine", &binding);
        assert!(bound.status < 300, "{bound}");
        tenant.client.post("/v1/search", &json!({ "query": "anything" }));
        secrets.push(credential);
        // A message's body, and a faulty body that is told back.
        let queue = tenant.client.post("/v1/queue", &json!({ "name": "quiet" })).expect(201)["queue"]["id"].clone();
        let body = marker("body");
        tenant.client.post(&format!("/v1/queue/{}/messages", queue.as_str().unwrap()), &json!({ "messages": [{ "body": body }] })).expect(201);
        secrets.push(body);
        let faulty = marker("faulty");
        tenant.client.put("/v1/vault/name", &json!({ "value": [faulty] })).expect_error(400, "invalid_input");
        secrets.push(faulty);
        // The id of a hook that is believed without a signature, called and missed.
        world.install("script", &Artefacts::get().fixture("script"));
        let hook = open(&tenant.client, "quiet", "none");
        world.anonymous().post(&hook.path, &json!({})).expect(200);
        let missed = world.anonymous().get(&hook.path);
        assert!((400..500).contains(&missed.status), "{missed}");
        until("the call is told", || {
            let notes = tenant.client.get("/v1/script/notes").expect(200)["notes"].to_string();
            notes.contains(&format!("hook {}", hook.id))
        });
        secrets.push(hook.id);
        let last = tenant.client.get("/v1/users");
        let id = last.header("x-request-id").unwrap().to_owned();
        world.server().signal("TERM");
        until("it stops", || world.server().log().contains("stopped"));
        let log = world.server().log();
        for secret in &secrets {
            if let Some(line) = log.lines().find(|line| line.contains(secret.as_str())) {
                panic!("{secret:?} is in the log: {line}");
            }
        }
        let ours: Vec<Value> = log.lines().filter(|line| line.contains(&id)).map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(!ours.is_empty(), "no line names the request {id}");
        assert!(ours.iter().any(|line| line["span"]["id"] == json!(id)), "{ours:?}");
        // Nor is any secret on the disk in the clear.
        let hidden: Vec<&String> = secrets.iter().filter(|secret| secret.starts_with("hush-value") || secret.starts_with("hush-credential")).collect();
        for entry in std::fs::read_dir(world.data()).unwrap().flatten().filter(|entry| entry.path().is_file()) {
            let bytes = std::fs::read(entry.path()).unwrap_or_default();
            for secret in &hidden {
                assert!(!bytes.windows(secret.len()).any(|part| part == secret.as_bytes()), "{secret} is in {}", entry.path().display());
            }
        }
    }
}

//! Nothing that a deployment keeps or writes holds a secret in the clear: not the database, not the
//! code cache, not the log.

use std::path::Path;

use charter_tests::artefacts::Artefacts;
use charter_tests::postgres::Postgres;
use charter_tests::tenant::{PASSWORD, unique};
use charter_tests::world::{Builder, OPERATOR_TOKEN};
use charter_tests::{Database, World, on_both};
use serde_json::json;

use crate::rules::play;

/// Tables whose rows hold what callers sent or got.
const TABLES: [&str; 7] = [
    "documents",
    "document_index",
    "document_text",
    "claims",
    "log_entries",
    "facts",
    "migrations",
];

/// Every byte that outlives the server, the key file apart.
fn everything(world: &mut World) -> Vec<u8> {
    let url = world.options().database.clone();
    let log = world.server().log();
    world.stop();
    let mut bytes = log.into_bytes();
    gather(world.data(), &mut bytes);
    if let (Database::Postgresql, Some(url)) = (world.database, url) {
        for table in TABLES {
            bytes.extend(
                Postgres::shared()
                    .query(&url, &format!("select t::text from {table} t"))
                    .into_bytes(),
            );
        }
    }
    bytes
}

fn gather(folder: &Path, bytes: &mut Vec<u8>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            gather(&path, bytes);
        } else if path.file_name().is_some_and(|name| name != "master.key") {
            bytes.extend(std::fs::read(&path).unwrap());
        }
    }
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

on_both! {
    fn a_secret_is_shown_to_who_may_see_it_now_and_never_from_memory(world) {
        let tenant = world.register();
        tenant.client.put("/v1/vault/api", &json!({"value": "first"})).expect(200);
        let reveal = |key: &str| tenant.client.call("POST", "/v1/vault/api/reveal").idempotency_key(key).send();
        assert_eq!(reveal("one").expect(200)["value"], "first");
        tenant.client.put("/v1/vault/api", &json!({"value": "second"})).expect(200);
        let again = reveal("one");
        assert_eq!(again.expect_error(409, "state_conflict")["reason"], "answer_not_kept");
        assert!(!again.text().contains("first"), "{again}");
        assert_eq!(reveal("two").expect(200)["value"], "second");
        tenant.client.delete("/v1/vault/api").expect(200);
        reveal("three").expect_error(404, "not_found");
    }
}

on_both! {
    fn a_secret_that_another_primitive_was_shown_is_not_kept_with_its_answer(world: Builder::new()) {
        world.install("script", &Artefacts::get().fixture("script"));
        let tenant = world.register();
        let value = "a-value-that-another-primitive-is-shown";
        tenant.client.put("/v1/vault/api", &json!({"value": value})).expect(200);
        let reveal = json!([{"call": "vault.reveal", "parameters": {"name": "api"}, "body": {}}]);
        let deeper = json!([{"call": "script.play", "body": {"steps": reveal}}]);
        for steps in [&reveal, &deeper] {
            let key = unique("key");
            let ask = || tenant.client.call("POST", "/v1/script").idempotency_key(&key).json(&json!({"steps": steps})).send();
            let first = ask();
            first.expect(200);
            assert!(first.text().contains(value), "{first}");
            let again = ask();
            assert_eq!(again.expect_error(409, "state_conflict")["reason"], "answer_not_kept");
            assert!(!again.text().contains(value), "{again}");
        }
        let asks = play(&tenant.client, json!([{"enqueue": reveal, "answer": true, "public": true}]));
        assert_eq!(asks.expect_error(409, "state_conflict")["reason"], "answer_not_kept");
        let jobs = tenant.client.get("/v1/jobs").expect(200);
        let job = &jobs["jobs"][0];
        assert_eq!((&job["status"], &job["result_kept"]), (&json!("succeeded"), &json!(false)), "{job}");
        assert_eq!(job["result"], json!(null));
        let everything = everything(world);
        assert!(holds(&everything, tenant.user.as_str()), "the search finds nothing at all");
        assert!(!holds(&everything, value), "it is kept or logged in the clear");
    }
}

on_both! {
    fn no_secret_is_kept_or_logged_in_the_clear(world: Builder::new().environment("CHARTER_TELEMETRY_LOG", "debug")) {
        let tenant = world.register();
        let value = "a-vault-value-that-nobody-else-writes";
        let put = |name: &str| tenant.client.call("PUT", &format!("/v1/vault/{name}")).json(&json!({"value": value})).idempotency_key(name);
        put("token").send().expect(200);
        let revealed = tenant.client.call("POST", "/v1/vault/token/reveal").idempotency_key("reveal").send().expect(200);
        assert_eq!(revealed["value"], value);
        // The answer with the new key is kept for replays; sealed.
        let wish = json!({"name": "kept"});
        let made = tenant.client.call("POST", "/v1/auth/keys").json(&wish).idempotency_key("key").send().expect(201);
        let key = made["key"].as_str().unwrap().to_owned();
        let login = world.anonymous().post("/v1/auth/login", &json!({"email": tenant.email, "password": PASSWORD}));
        login.expect(200);
        let cookie = login.header("set-cookie").unwrap().split([';', '=']).nth(1).unwrap().to_owned();
        assert!(cookie.len() > 20, "{login}");
        put("broken").header("content-type", "text/plain").send();
        let marker = tenant.client.post("/v1/queue", &json!({"name": "marker-that-is-no-secret"})).expect(201);
        let everything = everything(world);
        assert!(holds(&everything, marker["queue"]["id"].as_str().unwrap()), "the search finds nothing at all");
        for secret in [value, key.as_str(), tenant.key.as_str(), PASSWORD, cookie.as_str(), OPERATOR_TOKEN] {
            assert!(!holds(&everything, secret), "{secret} is kept or logged in the clear");
        }
        // Nor is a digest of a request, on which a short secret could be tried out.
        let quoted = |bytes: &[u8]| bytes.iter().filter(|byte| **byte != b'"').take(14).copied().collect::<Vec<_>>();
        let prints: Vec<_> = everything
            .windows(48)
            .filter(|window| window.starts_with(b"fingerprint\""))
            .map(|window| quoted(&window[b"fingerprint".len()..]))
            .collect();
        assert!(!prints.is_empty() && prints.iter().all(|print| print.starts_with(b":hmac-sha256:")), "{prints:?}");
    }
}

//! The table that the real host and the double of native tests answer alike, `alike.json` beside the
//! fixture that plays it, against the host; `wit/double/tests/alike.rs` plays it against the double.

use charter_tests::artefacts::Artefacts;
use charter_tests::world::Builder;
use charter_tests::{Answer, Tenant, World, on_both};
use serde_json::{Map, Value, json};

const TABLE: &str = include_str!("../fixtures/script/alike.json");

/// Whether a value looks as expected: `$any` is anything, `$same:<n>` what step `n` saw.
fn fits(wanted: &Value, got: &Value, seen: &[Value]) -> bool {
    match (wanted, got) {
        (Value::String(text), _) if text == "$any" => true,
        (Value::String(text), _) if text.starts_with("$same:") => {
            text["$same:".len()..].parse::<usize>().is_ok_and(|at| seen.get(at) == Some(got))
        }
        (Value::Array(wanted), Value::Array(got)) => {
            wanted.len() == got.len() && wanted.iter().zip(got).all(|(w, g)| fits(w, g, seen))
        }
        (Value::Object(wanted), Value::Object(got)) => {
            wanted.len() == got.len()
                && wanted.iter().all(|(name, w)| got.get(name).is_some_and(|g| fits(w, g, seen)))
        }
        _ => wanted == got,
    }
}

fn tenant(world: &World, case: &Value) -> Tenant {
    let tenant = world.register();
    if let Some(cents) = case["fund_cents"].as_i64() {
        world.fund(&tenant, cents);
    }
    tenant
}

/// One request of a case; `saved` are texts that earlier ones have seen.
fn play(tenant: &Tenant, title: &str, request: &Value, saved: &mut Map<String, Value>) {
    let mut steps = request["steps"].to_string();
    for (name, value) in &*saved {
        steps = steps.replace(&format!("{{{{{name}}}}}"), value.as_str().unwrap());
    }
    let steps: Value = serde_json::from_str(&steps).unwrap();
    let answer: Answer = tenant.client.post("/v1/script", &json!({ "steps": steps }));
    let status = request["status"].as_u64().unwrap_or(200);
    assert_eq!(u64::from(answer.status), status, "{title}: {steps}: {answer}");
    if request.get("status").is_none() {
        let body = answer.json();
        let seen = body["seen"].as_array().unwrap();
        if let Some(wanted) = request.get("seen") {
            assert!(fits(wanted, &body["seen"], seen), "{title}: {steps}: {answer}");
        }
        for (name, at) in request["save"].as_object().into_iter().flatten() {
            let at = usize::try_from(at.as_u64().unwrap()).unwrap();
            saved.insert(name.clone(), seen[at].clone());
        }
        return;
    }
    let error = answer.json()["error"].clone();
    if let Some(code) = request["code"].as_str() {
        assert_eq!(error["code"], code, "{title}: {steps}: {answer}");
    }
    if let Some(reason) = request["reason"].as_str() {
        assert_eq!(error["reason"], reason, "{title}: {steps}: {answer}");
    }
}

on_both! {
    fn the_host_answers_as_the_double_of_native_tests_does(world: Builder::new().bare()) {
        world.install("script", &Artefacts::get().fixture("script"));
        let cases: Vec<Value> = serde_json::from_str(TABLE).unwrap();
        for case in &cases {
            let (title, tenant) = (case["title"].as_str().unwrap(), tenant(world, case));
            let mut saved = Map::new();
            for request in case["requests"].as_array().unwrap() {
                play(&tenant, title, request, &mut saved);
            }
        }
    }
}

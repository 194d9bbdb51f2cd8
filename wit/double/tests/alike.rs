//! The table that the double and the real host answer alike, `tests/fixtures/script/alike.json`,
//! against the double; `tests/e2e/alike.rs` plays it against the host.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use charter_double::Host;
use charter_fixture_script::primitive;
use charter_kernel::limits::FAULTS_MAX;
use serde_json::{Map, Value, json};

const TABLE: &str = include_str!("../../../tests/fixtures/script/alike.json");

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

/// One request of a case; `saved` are texts that earlier ones have seen.
fn play(host: &Host, title: &str, request: &Value, saved: &mut Map<String, Value>) {
    let mut steps = request["steps"].to_string();
    for (name, value) in &*saved {
        steps = steps.replace(&format!("{{{{{name}}}}}"), value.as_str().unwrap());
    }
    let steps: Value = serde_json::from_str(&steps).unwrap();
    let answer = host.post("/script", json!({ "steps": steps }));
    if request.get("status").is_none() {
        let body = answer.unwrap_or_else(|failure| panic!("{title}: {steps}: {failure}")).body;
        let seen = body["seen"].as_array().unwrap();
        if let Some(wanted) = request.get("seen") {
            assert!(fits(wanted, &body["seen"], seen), "{title}: {steps} has seen {seen:?}");
        }
        for (name, at) in request["save"].as_object().into_iter().flatten() {
            let at = usize::try_from(at.as_u64().unwrap()).unwrap();
            saved.insert(name.clone(), seen[at].clone());
        }
        return;
    }
    let failure =
        answer.map(|reply| panic!("{title}: {steps} is answered: {reply:?}")).unwrap_err();
    if let Some(code) = request["code"].as_str() {
        assert_eq!(failure.code(), code, "{title}: {steps}: {failure}");
    }
    if let Some(reason) = request["reason"].as_str() {
        assert_eq!(failure.reason_text(), Some(reason), "{title}: {steps}");
    }
}

#[test]
fn the_double_answers_as_the_host_does() {
    let cases: Vec<Value> = serde_json::from_str(TABLE).unwrap();
    for case in &cases {
        let title = case["title"].as_str().unwrap();
        let host = Host::new(primitive);
        if let Some(cents) = case["fund_cents"].as_i64() {
            host.fund(cents * 10_000);
        }
        let mut saved = Map::new();
        for request in case["requests"].as_array().unwrap() {
            play(&host, title, request, &mut saved);
        }
    }
}

#[test]
fn a_request_whose_reads_have_changed_is_run_again() {
    let host = Host::new(primitive);
    let script = |steps: Value| json!({ "steps": steps });
    host.post("/script", script(json!([{ "note": "note", "slug": "a" }]))).unwrap();
    host.meanwhile(move |host| {
        host.post("/script", script(json!([{ "bump": "a" }]))).unwrap();
    });
    let bumped =
        host.post("/script", script(json!([{ "attempt": true }, { "bump": "a" }]))).unwrap();
    assert_eq!(bumped.body["seen"], json!([2, 2]), "the second run has seen the first's count");
}

#[test]
fn a_run_that_comes_again_has_the_same_permit_and_sets_aside_once() {
    let host = Host::new(primitive);
    host.fund(10_000_000);
    let script = |steps: Value| json!({ "steps": steps });
    host.post("/script", script(json!([{ "note": "note", "slug": "a" }, { "open": "a" }])))
        .unwrap();
    host.meanwhile(move |host| {
        host.post("/script", script(json!([{ "bump": "a" }]))).unwrap();
    });
    let leave = json!([
        { "bump": "a" }, { "attempt": true },
        { "leave": "script.spend", "amount": 6_000_000, "pays": ["credit", "a"], "as": "p" },
        { "balance": "credit" }, { "capture": "p", "amount": 6_000_000 },
    ]);
    let seen = host.post("/script", script(leave)).unwrap().body["seen"].clone();
    assert_eq!((&seen[1], &seen[3]["available"]), (&json!(2), &json!(4_000_000)));
    assert_eq!(host.posted_balance(charter_double::USER, "a"), 6_000_000);
}

#[test]
fn a_nested_change_has_one_key_for_each_call_of_a_request() {
    let host = Host::new(primitive);
    let made = std::rc::Rc::new(std::cell::Cell::new(0));
    let counted = made.clone();
    host.answer_call("shop.order", true, move |_, _| {
        counted.set(counted.get() + 1);
        charter_sdk::primitives::Reply { status: 201, body: json!({ "number": counted.get() }) }
    });
    let twice = json!({ "steps": [{ "call": "shop.order" }, { "call": "shop.order" }] });
    let seen = host.post("/script", twice.clone()).unwrap().body["seen"].clone();
    assert_eq!((&seen[0]["body"]["number"], &seen[1]["body"]["number"]), (&json!(1), &json!(2)));
    // A job whose first run fails after its call finds that call answered.
    let failing = json!([{ "call": "shop.order" }, { "on_attempt": 1, "steps": [{ "refuse": "overloaded" }] }]);
    host.post("/script", json!({ "steps": [{ "enqueue": failing }] })).unwrap();
    assert!(host.run_jobs().is_err());
    host.pass_seconds(60);
    assert_eq!(host.run_jobs().unwrap(), 1);
    assert_eq!(made.get(), 3);
}

#[test]
fn the_policy_and_the_budget_decide() {
    let host = Host::new(primitive);
    let spend = |amount: i64| {
        let steps = json!([
            { "leave": "script.spend", "amount": amount, "as": "p" }, { "capture": "p", "amount": amount },
        ]);
        host.post("/script", json!({ "steps": steps })).map(drop)
    };
    host.budget(100);
    spend(60).unwrap();
    assert!(spend(41).unwrap_err().is("budget_exceeded"));
    spend(40).unwrap();
    host.policy(json!({ "rules": [{ "id": "ask", "effect": "require_approval", "actions": ["script.*"] }] }));
    assert_eq!(spend(0).unwrap_err().reason_text(), Some("approval_required"));
    host.policy(json!({ "default": "deny" }));
    assert_eq!(spend(0).unwrap_err().reason_text(), Some("policy_denied"));
}

#[test]
fn a_request_is_checked_by_the_schemas() {
    let host = Host::new(primitive);
    let refused = host.post("/script", json!({ "steps": [], "stops": [] })).unwrap_err();
    assert_eq!(refused.code(), "invalid_input");
    assert!(refused.details_json().unwrap()["faults"].as_array().unwrap().len() <= FAULTS_MAX);
    assert_eq!(host.get("/script/notes?limit=1").unwrap_err().code(), "invalid_input");
    assert_eq!(host.patch("/script", json!({})).unwrap_err().code(), "method_not_allowed");
}

#[test]
fn what_a_read_writes_is_refused_and_what_it_may_not_use_too() {
    use charter_sdk::prelude::*;
    fn write() -> Result<Done> {
        charter_sdk::events::audit("plain.read", "thing", "1", &json!({}))?;
        Ok(Done::new())
    }
    fn plain() -> Primitive {
        Primitive::new("plain", "0.1.0")
            .title("Plain")
            .operation(get("plain.read", "/plain", write).summary("Read."))
    }
    let refused = Host::new(plain).get("/plain").unwrap_err();
    assert_eq!((refused.code(), refused.reason_text()), ("internal_error", Some("UNDECLARED")));
}

#[test]
#[should_panic(expected = "the host would not install this primitive")]
fn a_manifest_that_the_host_would_refuse_fails_the_test() {
    use charter_sdk::prelude::*;
    fn done() -> Result<Done> {
        Ok(Done::new())
    }
    fn foreign() -> Primitive {
        Primitive::new("plain", "0.1.0")
            .title("Plain")
            .event("billing.paid", "Another's word.")
            .operation(get("plain.read", "/plain", done).summary("Read."))
    }
    Host::new(foreign);
}

#[test]
fn users_have_documents_of_their_own() {
    let host = Host::new(primitive);
    let other = host.of_user("01970000-0000-7000-8000-0000000000dd");
    host.post("/script", json!({ "steps": [{ "note": "note", "slug": "a" }] })).unwrap();
    let seen = other.post("/script", json!({ "steps": [{ "lookup": "a" }] })).unwrap();
    assert_eq!(seen.body["seen"], json!([null]));
}

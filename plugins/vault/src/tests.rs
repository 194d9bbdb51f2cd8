//! The vault's rules against the double of the host.

use charter_double::Host;
use charter_sdk::serde_json::json;

use crate::primitive;

#[test]
fn a_secret_is_set_listed_without_its_value_revealed_and_gone() {
    let host = Host::new(primitive);
    let set = |value: &str| {
        host.put("/vault/API_KEY", json!({ "value": value })).unwrap().body["secret"]["version"]
            .clone()
    };
    assert_eq!((set("hunter1"), set("hunter2")), (json!(1), json!(2)));
    let list = host.get("/vault").unwrap().body;
    assert_eq!(list["secrets"][0]["name"], json!("API_KEY"));
    assert!(!list.to_string().contains("hunter"));
    assert_eq!(
        host.post("/vault/API_KEY/reveal", json!({})).unwrap().body,
        json!({ "name": "API_KEY", "value": "hunter2" })
    );
    assert_eq!(host.delete("/vault/API_KEY").unwrap().body, json!({ "ok": true }));
    assert_eq!(host.post("/vault/API_KEY/reveal", json!({})).unwrap_err().code(), "not_found");
    assert_eq!(host.delete("/vault/API_KEY").unwrap_err().code(), "not_found");
}

#[test]
fn a_reveal_is_audited_without_the_value_and_nothing_else_tells_it() {
    let host = Host::new(primitive);
    host.put("/vault/token", json!({ "value": "hunter2" })).unwrap();
    host.post("/vault/token/reveal", json!({})).unwrap();
    let audits = host.audits();
    assert_eq!(
        (audits[0].action.as_str(), audits[0].entity_id.as_str()),
        ("vault.reveal", "token")
    );
    assert!(!format!("{audits:?}{:?}", host.events()).contains("hunter2"));
}

#[test]
fn a_value_is_bounded_in_bytes() {
    let host = Host::new(primitive);
    let refusal = host.put("/vault/large", json!({ "value": "é".repeat(40_000) })).unwrap_err();
    assert_eq!((refusal.code(), refusal.param_text()), ("payload_too_large", Some("value")));
    assert_eq!(host.documents("entries"), 0);
}

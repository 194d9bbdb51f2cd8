//! Manifests by example: each broken rule is named at its path, all at once.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn notes() -> Value {
    json!({
        "name": "notes", "version": "1.2.0", "title": "Notes", "gate": "strict", "capabilities": ["documents", "http"],
        "operations": [
            {"id": "notes.list", "method": "GET", "path": "/notes", "access": "read", "paging": "offset",
                "query": {"type": "object", "properties": {"state": {"type": "string"}}}},
            {"id": "notes.read", "method": "GET", "path": "/notes/{id}",
                "path_schema": {"type": "object", "properties": {"id": {"type": "string"}}, "required": ["id"]}},
            {"id": "notes.send", "method": "POST", "path": "/notes/{id}/send", "action": "notes.send", "needs": ["relay"],
                "body": {"type": "object"}, "headers": ["accept"], "answers": {"202": {"type": "object"}}},
            {"id": "notes.reconcile", "method": "POST", "path": "/notes/reconcile-{what}", "mounts": ["company"], "auth": "shared_secret:relay"}
        ],
        "actions": [{"name": "notes.send", "title": "Send a note", "risk": "low"}],
        "collections": [{"name": "note", "indexes": [{"field": "state"}, {"field": "at", "type": "instant"}], "unique": ["slug"],
            "leased": {"by": "state"}, "body": {"type": "object", "required": ["state"], "properties": {"state": {"type": "string"}}}}],
        "events": [{"name": "notes.sent", "payload": {"type": "object"}, "webhook": true}],
        "errors": [{"code": "note_locked", "status": 409}],
        "providers": [{"name": "relay", "kinds": ["smtp"]}],
        "settings": [{"key": "size_max", "schema": {"type": "integer"}, "default": 3, "by": "kit"}],
        "signals": ["created", "event:domain.updated"],
        "deprecation": {"id": "dep.notes", "announced": "2026-07-29"},
        "a_later_word": {"is": "tolerated"}
    })
}

/// The example with one member replaced, or added, by JSON pointer.
fn with(pointer: &str, value: Value) -> Value {
    let mut manifest = notes();
    if let Some(place) = manifest.pointer_mut(pointer) {
        *place = value;
    } else {
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        manifest.pointer_mut(parent).unwrap().as_object_mut().unwrap().insert(name.into(), value);
    }
    manifest
}

#[test]
fn the_published_schema_compiles_and_a_whole_manifest_passes() {
    assert!(PUBLISHED.is_some());
    let manifest = check(&notes()).unwrap();
    let paths: Vec<String> = paths_of(&manifest.operations[0]).map(|(_, path)| path).collect();
    assert_eq!(paths, ["/v1/notes", "/v1/users/{user_id}/notes"]);
    // A manifest that the host writes is a manifest again.
    assert!(check(&serde_json::to_value(&manifest).unwrap()).is_ok());
}

#[test]
fn the_capabilities_are_the_imports_of_the_interface() {
    let wit = include_str!("../../../../../wit/primitive.wit");
    let imports =
        wit.lines().filter_map(|line| line.trim().strip_prefix("import ")?.strip_suffix(';'));
    let mut expected: Vec<&str> =
        imports.filter(|name| !name.contains(':')).chain(["http", "public-web"]).collect();
    expected.sort_unstable();
    assert_eq!(CAPABILITIES.to_vec(), expected);
}

#[test]
fn each_broken_rule_is_named_at_its_path() {
    let cases = [
        ("/name", json!("Notes"), "name"),
        ("/name", json!("host"), "name"),
        ("/version", json!("1.2"), "version"),
        ("/gate", json!("shut"), "gate"),
        ("/capabilities/0", json!("root-shell"), "capabilities.0"),
        ("/capabilities/0", json!("http"), "capabilities.1"),
        ("/operations/0/id", json!("other.list"), "operations.0.id"),
        ("/operations/0/id", json!("notes.read"), "operations.1.id"),
        ("/operations/0/method", json!("get"), "operations.0.method"),
        ("/operations/0/path", json!("notes"), "operations.0.path"),
        ("/operations/0/path", json!("/"), "operations.0.path"),
        ("/operations/0/path", json!("/notes/{other}"), "operations.1.path"),
        ("/operations/0/path", json!("/notes/{user_id}"), "operations.0.path"),
        ("/operations/1/path", json!("/notes/{name}"), "operations.1.path_schema"),
        ("/operations/0/mounts", json!(["root", "root"]), "operations.0.mounts"),
        ("/operations/0/mounts", json!(["operator"]), "operations.0.auth"),
        ("/operations/0/auth", json!("operator"), "operations.0.mounts"),
        ("/operations/0/auth", json!("none"), "operations.0.mounts"),
        ("/operations/0/auth", json!("password"), "operations.0.auth"),
        ("/operations/3/auth", json!("shared_secret:other"), "operations.3.auth"),
        ("/operations/0/body", json!({}), "operations.0.body"),
        ("/operations/0/query", json!({"type": "strnig"}), "operations.0.query.type"),
        ("/operations/0/query", json!({"type": "array"}), "operations.0.query"),
        (
            "/operations/0/answer",
            json!({"$ref": "https://example.com/"}),
            "operations.0.answer.$ref",
        ),
        ("/operations/2/consumes", json!("text/csv"), "operations.2.consumes"),
        ("/operations/2/produces", json!("csv"), "operations.2.produces"),
        ("/operations/2/headers/0", json!("Accept"), "operations.2.headers.0"),
        ("/operations/2/headers/0", json!("authorization"), "operations.2.headers.0"),
        ("/operations/2/answers", json!({"99": {}}), "operations.2.answers.99"),
        ("/operations/2/action", json!("notes.other"), "operations.2.action"),
        ("/operations/2/needs/0", json!("other"), "operations.2.needs.0"),
        ("/operations/2/status", json!(302), "operations.2.status"),
        ("/operations/2/deadline_ms", json!(900_001), "operations.2.deadline_ms"),
        ("/operations/2/deadline_ms", json!(30_001), "operations.2.deadline_ms"),
        ("/actions/0/name", json!("send"), "actions.0.name"),
        ("/actions/0/overrun", json!(1.5), "actions.0.overrun"),
        ("/actions/0/overrun", json!(2.01), "actions.0.overrun"),
        ("/actions/0/overrun", json!(0.99), "actions.0.overrun"),
        ("/collections/0/name", json!("a.b"), "collections.0.name"),
        ("/collections/0/indexes/1/field", json!("state"), "collections.0.indexes.1.field"),
        ("/collections/0/indexes/0/type", json!("integer"), "collections.0.leased.by"),
        ("/collections/0/body/properties/state/type", json!("integer"), "collections.0.leased.by"),
        ("/collections/0/body/additionalProperties", json!(false), "collections.0.indexes.1.field"),
        ("/events/0/name", json!("sent"), "events.0.name"),
        ("/events/0/name", json!("approval.resolved"), "events.0.name"),
        ("/events/0/name", json!("notesx.sent"), "events.0.name"),
        ("/events/0/formerly", json!(["sent"]), "events.0.formerly.0"),
        ("/events/0/formerly", json!(["note.sent", "Note.sent"]), "events.0.formerly.1"),
        ("/events/0/formerly", json!(["notes.sent"]), "events.0.formerly.0"),
        ("/events/0/formerly", json!(["webhook.test"]), "events.0.formerly.0"),
        ("/events/0/formerly", json!(vec!["note.sent"; 9]), "events.0.formerly"),
        ("/speaks_for", json!(["webhook"]), "speaks_for.0"),
        ("/speaks_for", json!(["a.b"]), "speaks_for.0"),
        ("/errors/0/code", json!("forbidden"), "errors.0.code"),
        ("/errors/0/status", json!(500), "errors.0.status"),
        ("/providers/0/name", json!("Relay"), "providers.0.name"),
        ("/settings/0/default", json!("three"), "settings.0.default"),
        ("/signals/0", json!("born"), "signals.0"),
        ("/capabilities/0", json!("hooks"), "signals"),
        ("/deprecation/announced", json!("29 July"), "deprecation.announced"),
        ("/deprecation/link", json!("x\r\nSet-Cookie: a"), "deprecation.link"),
    ];
    for (pointer, value, path) in cases {
        let faults = check(&with(pointer, value.clone())).expect_err(pointer);
        assert!(faults.iter().any(|fault| fault.path == path), "{pointer} = {value}: {faults:?}");
    }
}

#[test]
fn a_short_call_does_not_wait_long_and_a_long_one_may() {
    let mut manifest = with("/operations/2/deadline_ms", json!(30_001));
    let fault = check(&manifest).unwrap_err()[0].to_string();
    assert!(fault.contains("at most 30000 for notes.send, whose class is short"), "{fault}");
    manifest["operations"][2]["class"] = json!("long");
    assert!(check(&manifest).is_ok());
}

#[test]
fn what_others_trust_at_the_root_belongs_to_no_component() {
    let at_root = |path: &str| {
        let open = json!({"id": "notes.open", "method": "GET", "path": path, "mounts": ["root"], "auth": "none"});
        let mut manifest = notes();
        manifest["operations"].as_array_mut().unwrap().push(open);
        check(&manifest)
            .err()
            .unwrap_or_default()
            .into_iter()
            .map(|fault| fault.path)
            .collect::<Vec<_>>()
    };
    assert_eq!(at_root("/notes/open"), Vec::<String>::new());
    for path in [
        "/.well-known/acme-challenge/{token}",
        "/.Well-Known/security.txt",
        "/login",
        "/dashboard/{page*}",
        "/invite/{token}",
        "/favicon.ico",
        "/v1/notes",
        "/{anything}",
        "/{all*}",
        "/log{rest}",
    ] {
        assert_eq!(at_root(path)[0], "operations.4.path", "{path}");
    }
}

#[test]
fn an_event_can_have_had_another_name_and_leaves_it_out_where_it_had_none() {
    let renamed = check(&with("/events/0/formerly", json!(["note.sent"]))).unwrap();
    assert_eq!(renamed.events[0].formerly, ["note.sent"]);
    let plain = check(&notes()).unwrap();
    assert!(!serde_json::to_string(&plain).unwrap().contains("formerly"));
}

#[test]
fn what_is_only_explained_otherwise_is_no_narrower() {
    let of = |schema: Value| check(&with("/collections/0/body/properties/holder", schema)).unwrap();
    let old = of(json!({"anyOf": [{"type": "null"}, {"description": "Who it is for.",
        "properties": {"title": {"title": "A title", "type": "string"}}, "type": "object"}]}));
    let holder = |properties: Value| {
        of(json!({"anyOf": [{"type": "null"}, {"description": "The holder.", "default": {},
            "properties": properties, "type": "object"}]}))
    };
    assert_eq!(narrowings(&old, &holder(json!({"title": {"type": "string"}}))), []);
    for other in [json!({}), json!({"title": {"type": "integer"}})] {
        assert_eq!(narrowings(&old, &holder(other)).len(), 1);
    }
    let (one, two) = (json!({"title": 1}), json!({"title": 2}));
    let fixed = |value: &Value| of(json!({"const": value}));
    assert_eq!(narrowings(&fixed(&one), &fixed(&two)).len(), 1, "a value is no keyword");
}

#[test]
fn a_version_that_is_installed_keeps_events_of_any_words_but_the_hosts() {
    let kept = check_installed(&with("/events/0/name", json!("note.sent"))).unwrap();
    assert_eq!(kept.events[0].name, "note.sent");
    for wrong in ["webhook.test", "Note.sent\nforged"] {
        let faults = check_installed(&with("/events/0/name", json!(wrong))).unwrap_err();
        assert_eq!(faults[0].path, "events.0.name", "{wrong}");
    }
}

#[test]
fn events_of_another_word_are_its_own_once_it_says_so() {
    let mut manifest = with("/events/0/name", json!("note.sent"));
    assert_eq!(check(&manifest).unwrap_err()[0].path, "events.0.name");
    manifest["speaks_for"] = json!(["note"]);
    let manifest = check(&manifest).unwrap();
    for (name, own) in [
        ("notes.sent", true),
        ("note.sent", true),
        ("notes", false),
        ("approvals.approve", false),
        ("notes.sent\nforged", false),
        ("notes.", false),
    ] {
        assert_eq!(manifest.tells(name), own, "{name:?}");
    }
}

#[test]
fn what_takes_money_is_said_once_and_can_be_called_as_it_stands() {
    let marked = |marks: &[usize]| {
        let mut manifest = notes();
        for at in marks {
            manifest["operations"][at]["pays"] = json!("topup");
        }
        let faults = check(&manifest).err().unwrap_or_default();
        faults.into_iter().map(|fault| fault.path).collect::<Vec<_>>()
    };
    assert_eq!(marked(&[0]), Vec::<String>::new());
    assert_eq!(marked(&[1]), ["operations.1.pays"], "its path has a parameter");
    assert_eq!(
        marked(&[0, 2]),
        ["operations.2.pays", "operations.2.pays"],
        "and there is one of each"
    );
}

#[test]
fn all_faults_come_at_once_and_bounded() {
    let mut manifest = with("/version", json!("one"));
    manifest["capabilities"][0] = json!("root-shell");
    manifest["errors"][0]["code"] = json!("not_found");
    assert_eq!(check(&manifest).unwrap_err().len(), 3);
    let operation = manifest["operations"][0].clone();
    manifest["operations"] = json!(vec![operation; 200]);
    assert_eq!(check(&manifest).unwrap_err().len(), FAULTS_MAX);
}

#[test]
fn what_is_no_manifest_at_all_is_refused() {
    for text in ["", "null", "[]", "{}", "{\"name\":1}", "\u{feff}{}"] {
        assert!(read(text).is_err(), "{text}");
    }
    assert!(read(&" ".repeat(MANIFEST_BYTES_MAX + 1)).unwrap_err()[0].message.contains("bytes"));
    assert!(read(&notes().to_string()).is_ok());
}

#[test]
fn paths_of_the_host_are_its_own() {
    let manifest = check(&with("/operations/0/path", json!("/auth/notes"))).unwrap();
    let faults = host_path_faults(&manifest, &["/v1/auth", "/v1/note"]);
    assert_eq!(
        faults.iter().map(|fault| fault.path.as_str()).collect::<Vec<_>>(),
        ["operations.0.path"]
    );
}

#[test]
fn a_newer_version_may_widen_and_not_narrow() {
    let old = check(&notes()).unwrap();
    let narrowed = |pointer: &str, value: Value| {
        narrowings(&old, &check(&with(pointer, value)).unwrap()).len()
    };
    assert_eq!(narrowings(&old, &old), []);
    for (pointer, value) in [
        (
            "/collections/0/indexes",
            json!([{"field": "state"}, {"field": "at", "type": "instant"}, {"field": "more"}]),
        ),
        ("/collections/0/body/properties/more", json!({"type": "string", "maxLength": 3})),
        ("/collections/0/body/properties/state/type", json!("string")),
        ("/collections/0/body/required", json!([])),
        ("/collections/0/searchable", json!(["text"])),
        ("/collections/0/body", json!({"type": ["object", "null"]})),
    ] {
        assert_eq!(narrowed(pointer, value.clone()), 0, "{pointer} = {value}");
    }
    for (pointer, value) in [
        ("/collections", json!([])),
        ("/collections/0/indexes", json!([{"field": "state"}])),
        ("/collections/0/indexes/1/type", json!("text")),
        ("/collections/0/unique", json!([])),
        ("/collections/0/unique", json!(["slug", "other"])),
        ("/collections/0/reach", json!("project")),
        ("/collections/0/leased", json!(null)),
        ("/collections/0/body/required", json!(["state", "more"])),
        ("/collections/0/body/properties/state", json!({"type": "string", "maxLength": 3})),
        ("/collections/0/body/properties/state", json!({"enum": ["open"]})),
        ("/collections/0/body/patternProperties", json!({"^x": false})),
    ] {
        assert!(narrowed(pointer, value.clone()) > 0, "{pointer} = {value}");
    }
}

/// Any JSON, with the words of a manifest among its names.
fn json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        "(/[a-z{}*]{0,6}){0,3}".prop_map(Value::from),
        "[a-z.:-]{0,12}|GET|\\PC{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 48, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(
                "[a-z$]{1,8}|id|path|method|type|properties|items",
                inner,
                0..6
            )
            .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_manifest_panics(at in prop::sample::select(vec![
        "/name", "/version", "/operations", "/operations/0", "/operations/0/path", "/operations/1/path_schema", "/operations/0/query",
        "/operations/2/body", "/collections", "/collections/0/body", "/collections/0/indexes", "/settings/0/schema", "/deprecation", "/errors"]),
        value in json()) {
        if let Ok(manifest) = check(&with(at, value)) {
            let _ = narrowings(&check(&notes()).unwrap(), &manifest);
            let _ = host_path_faults(&manifest, &["/v1"]);
        }
    }

    #[test]
    fn no_text_panics(text in "([{}\\[\\]:,\"]|name|version|operations|\\PC){0,60}") {
        let _ = read(&text);
    }
}

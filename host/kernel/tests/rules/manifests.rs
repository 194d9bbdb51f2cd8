//! Each fault of a manifest once, by the one change that makes it; and what a newer version owes an
//! older one.

use charter_kernel::limits::{COLLECTIONS_MAX, INDEXES_MAX, OPERATIONS_MAX, PATTERNS_MAX};
use charter_kernel::manifest::faults::{
    CAPABILITIES, check, host_path_faults, narrowings, path_at, paths_of, read,
};
use charter_kernel::manifest::{Action, Gate, Manifest, Mount, Paging, Pays};
use serde_json::{Value, json};

fn notes() -> Value {
    json!({
        "name": "notes", "version": "1.0.0", "title": "Notes",
        "capabilities": ["documents"],
        "operations": [
            {"id": "notes.list", "method": "GET", "path": "/notes"},
            {"id": "notes.send", "method": "POST", "path": "/notes/{id}/send", "body": {"type": "object"}},
        ],
        "actions": [{"name": "notes.send", "title": "Send", "spends": true}],
        "collections": [{"name": "note", "indexes": [{"field": "state"}], "unique": ["slug"]}],
        "events": [{"name": "notes.sent"}],
        "errors": [{"code": "note_locked", "status": 409}],
        "providers": [{"name": "relay"}],
        "settings": [{"key": "size", "schema": {"type": "integer"}, "default": 3}],
        "signals": ["created"],
    })
}

/// The example with the value at a JSON pointer set.
fn with(pointer: &str, value: Value) -> Value {
    let mut manifest = notes();
    let (parent, name) = pointer.rsplit_once('/').unwrap();
    match manifest.pointer_mut(parent).unwrap() {
        Value::Array(items) if name == "-" => items.push(value),
        Value::Array(items) => items[name.parse::<usize>().unwrap()] = value,
        parent => parent[name] = value,
    }
    manifest
}

fn faults(manifest: &Value) -> Vec<(String, String)> {
    let found = check(manifest).err().unwrap_or_default();
    found.into_iter().map(|fault| (fault.path, fault.message)).collect()
}

fn manifest(value: &Value) -> Manifest {
    check(value).unwrap_or_else(|faults| panic!("{faults:?}"))
}

#[test]
fn each_change_makes_its_one_fault() {
    let operation = |changes: Value| {
        let mut operation = json!({"id": "notes.more", "method": "POST", "path": "/more"});
        operation.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        operation
    };
    let table = [
        ("/version", json!("v1"), "version", "semantic version"),
        ("/capabilities/-", json!("telepathy"), "capabilities.1", "must be one of answering"),
        ("/capabilities/-", json!("documents"), "capabilities.1", "must not stand twice"),
        ("/signals/-", json!("created"), "signals.1", "must not stand twice"),
        ("/signals/-", json!("event:one"), "signals.1", "or event:<name>"),
        ("/speaks_for", json!(["approval"]), "speaks_for.0", "none of activity"),
        ("/speaks_for", json!(["mail", "mail"]), "speaks_for.1", "must not stand twice"),
        ("/capabilities/-", json!("hooks"), "signals", "must hold hook"),
        (
            "/actions/-",
            json!({"name": "other.do", "title": "Do"}),
            "actions.1.name",
            "must be notes.<verb>",
        ),
        (
            "/actions/-",
            json!({"name": "notes.send", "title": "Do"}),
            "actions.1.name",
            "must not stand twice",
        ),
        (
            "/actions/0",
            json!({"name": "notes.send", "title": "S", "overrun": 1.5}),
            "actions.0.overrun",
            "counts against caps",
        ),
        ("/events/-", json!({"name": "notes.sent"}), "events.1.name", "must not stand twice"),
        ("/events/0/payload", json!({"type": "x"}), "events.0.payload.type", ""),
        (
            "/errors/-",
            json!({"code": "note_locked", "status": 409}),
            "errors.1.code",
            "must not stand twice",
        ),
        (
            "/errors/-",
            json!({"code": "approval_required", "status": 409}),
            "errors.1.code",
            "the host has that code",
        ),
        ("/providers/-", json!({"name": "relay"}), "providers.1.name", "must not stand twice"),
        ("/settings/-", json!({"key": "size"}), "settings.1.key", "must not stand twice"),
        ("/settings/0/default", json!("x"), "settings.0.default", "must be an integer"),
        ("/settings/0/schema", json!({"type": "x"}), "settings.0.schema.type", ""),
        ("/collections/-", json!({"name": "note"}), "collections.1.name", "must not stand twice"),
        (
            "/collections/0/unique",
            json!(["a", "a"]),
            "collections.0.unique.1",
            "must not stand twice",
        ),
        (
            "/collections/0/searchable",
            json!(["a", "a"]),
            "collections.0.searchable.1",
            "must not stand twice",
        ),
        (
            "/collections/0/body",
            json!({"$ref": "#/$defs/none"}),
            "collections.0.body.$ref",
            "must name a definition",
        ),
        ("/collections/0/leased", json!({"by": "state"}), "", ""),
        (
            "/operations/-",
            operation(json!({"id": "notes.send"})),
            "operations.2.id",
            "must not stand twice",
        ),
        (
            "/operations/-",
            operation(json!({"id": "other.more"})),
            "operations.2.id",
            "must be notes.<verb>",
        ),
        (
            "/operations/-",
            operation(json!({"deprecated": true})),
            "operations.2.deprecated",
            "has no deprecation",
        ),
        (
            "/operations/-",
            operation(json!({"path": "/notes/{other}/send"})),
            "operations.2.path",
            "is taken",
        ),
        ("/operations/-", operation(json!({"path": "/a/{b}/{b}"})), "operations.2.path", "twice"),
        (
            "/operations/-",
            operation(json!({"path": "/a/{b*}/c"})),
            "operations.2.path",
            "a tail is last",
        ),
        (
            "/operations/-",
            operation(json!({"mounts": ["company", "company"]})),
            "operations.2.mounts",
            "twice",
        ),
        (
            "/operations/-",
            operation(json!({"auth": "shared_secret:none", "mounts": ["company"]})),
            "operations.2.auth",
            "declared provider",
        ),
        (
            "/operations/-",
            operation(json!({"auth": "operator", "mounts": ["operator", "company"]})),
            "operations.2.mounts",
            "operator alone",
        ),
        (
            "/operations/-",
            operation(json!({"auth": "key", "mounts": ["operator"]})),
            "operations.2.auth",
            "must be operator",
        ),
        (
            "/operations/-",
            operation(json!({"auth": "hook", "mounts": ["user"]})),
            "operations.2.mounts",
            "only a key or session",
        ),
        (
            "/operations/-",
            operation(json!({"authority": "deciding"})),
            "operations.2.authority",
            "must be one of profile_read",
        ),
        (
            "/operations/-",
            operation(json!({"auth": "none", "mounts": ["company"], "authority": "regulated"})),
            "operations.2.authority",
            "only where auth is",
        ),
        (
            "/operations/-",
            operation(json!({"action": "notes.send", "authority": "desk_read"})),
            "operations.2.authority",
            "must not be a read",
        ),
        (
            "/operations/-",
            operation(json!({"method": "GET", "consumes": "text/csv"})),
            "operations.2.body",
            "a GET has no body",
        ),
        (
            "/operations/-",
            operation(json!({"body": {}, "consumes": "text/csv"})),
            "operations.2.consumes",
            "JSON or it is not",
        ),
        (
            "/operations/-",
            operation(json!({"consumes": "csv"})),
            "operations.2.consumes",
            "media type",
        ),
        (
            "/operations/-",
            operation(json!({"produces": "text/"})),
            "operations.2.produces",
            "media type",
        ),
        (
            "/operations/-",
            operation(json!({"headers": ["cookie"]})),
            "operations.2.headers.0",
            "no guest sees it",
        ),
        (
            "/operations/-",
            operation(json!({"headers": ["x_y"]})),
            "operations.2.headers.0",
            "in lower case",
        ),
        (
            "/operations/-",
            operation(json!({"deadline_ms": 30_001})),
            "operations.2.deadline_ms",
            "whose class is short",
        ),
        (
            "/operations/-",
            operation(json!({"query": {"type": "string"}})),
            "operations.2.query",
            "must be of type object",
        ),
        (
            "/operations/-",
            operation(json!({"answers": {"600": {}}})),
            "operations.2.answers.600",
            "200 to 599",
        ),
        (
            "/operations/-",
            operation(json!({"answer": {"type": "x"}})),
            "operations.2.answer.type",
            "",
        ),
        (
            "/operations/-",
            operation(json!({"needs": ["none"]})),
            "operations.2.needs.0",
            "declared provider",
        ),
        (
            "/operations/-",
            operation(json!({"action": "notes.other"})),
            "operations.2.action",
            "declared action",
        ),
        (
            "/operations/-",
            operation(json!({"path": "/more/{x}", "pays": "topup"})),
            "operations.2.pays",
            "without parameters",
        ),
        (
            "/operations/-",
            operation(json!({"mounts": ["user"], "pays": "topup"})),
            "operations.2.pays",
            "company mount",
        ),
        (
            "/operations/-",
            operation(json!({"path": "/m/{x}", "path_schema": {"type": "object"}})),
            "operations.2.path_schema",
            "must describe",
        ),
        (
            "/operations/-",
            operation(json!({"path_schema": {"type": "object", "required": ["x"]}})),
            "operations.2.path_schema",
            "no such parameter",
        ),
        (
            "/deprecation",
            json!({"id": "d", "announced": "soon"}),
            "deprecation.announced",
            "a date",
        ),
        (
            "/deprecation",
            json!({"id": "<d>", "announced": "2026-07-29"}),
            "deprecation.id",
            "angle brackets",
        ),
        (
            "/deprecation",
            json!({"id": "d", "announced": "2026-07-29", "note": "a\nb"}),
            "deprecation.note",
            "control characters",
        ),
        (
            "/deprecation",
            json!({"id": "d", "announced": "2026-07-29", "link": "ftp://x"}),
            "deprecation.link",
            "must be a URL",
        ),
    ];
    let mut wrong = Vec::new();
    for (pointer, value, path, words) in table {
        let found = faults(&with(pointer, value.clone()));
        // A path that is taken is so at each of its mounts.
        let is_alone = found.iter().all(|(at, message)| at == path && message.contains(words));
        if !is_alone || found.is_empty() != path.is_empty() {
            wrong.push(format!("{pointer} = {value}: {found:?}"));
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn names_of_the_hosts_own_spaces_are_no_primitives() {
    for name in ["host", "name"] {
        let found = faults(&with("/name", json!(name)));
        assert_eq!(found[0].0, "name");
        assert!(found[0].1.contains("keeps that name"), "{found:?}");
    }
}

#[test]
fn lists_are_bounded_and_the_published_schema_says_so() {
    let many = |n: usize, of: &dyn Fn(usize) -> Value| (0..n).map(of).collect::<Vec<_>>();
    let operations = |n| {
        json!(many(
            n,
            &|n| json!({"id": format!("notes.o{n}"), "method": "GET", "path": format!("/o{n}")})
        ))
    };
    assert_eq!(faults(&with("/operations", operations(OPERATIONS_MAX))), []);
    assert_eq!(faults(&with("/operations", operations(OPERATIONS_MAX + 1)))[0].0, "operations");
    let collections = |n| json!(many(n, &|n| json!({"name": format!("c{n}")})));
    assert_eq!(faults(&with("/collections", collections(COLLECTIONS_MAX))), []);
    assert_eq!(faults(&with("/collections", collections(COLLECTIONS_MAX + 1)))[0].0, "collections");
    let indexes = |n| json!(many(n, &|n| json!({"field": format!("f{n}")})));
    assert_eq!(faults(&with("/collections/0/indexes", indexes(INDEXES_MAX))), []);
    let found = faults(&with("/collections/0/indexes", indexes(INDEXES_MAX + 1)));
    assert_eq!(found[0].0, "collections.0.indexes");
}

#[test]
fn patterns_of_all_schemas_are_counted_together() {
    let schema = |n: usize| {
        let properties: serde_json::Map<String, Value> =
            (0..n).map(|n| (format!("p{n}"), json!({"pattern": "a"}))).collect();
        json!({"type": "object", "properties": properties, "patternProperties": {"^x": true}})
    };
    let half = PATTERNS_MAX / 2;
    let mut manifest = with("/operations/1/body", schema(half - 1));
    manifest["operations"][0]["answer"] = schema(half - 1);
    assert_eq!(faults(&manifest), []);
    manifest["operations"][0]["answer"] = schema(half);
    assert!(faults(&manifest)[0].1.contains("1001 patterns"), "{:?}", faults(&manifest));
}

#[test]
fn an_operation_is_served_where_its_mounts_say() {
    let paths = |mounts: Value| {
        let mut value = notes();
        value["operations"][0]["mounts"] = mounts;
        let read: Manifest = serde_json::from_value(value).unwrap();
        paths_of(&read.operations[0]).map(|(_, path)| path).collect::<Vec<_>>()
    };
    assert_eq!(paths(json!([])), ["/v1/notes", "/v1/users/{user_id}/notes"]);
    assert_eq!(paths(json!(["root", "operator"])), ["/notes", "/v1/operator/notes"]);
    assert_eq!(path_at(Mount::User, "/a"), "/v1/users/{user_id}/a");
    let own = manifest(&notes());
    assert_eq!(host_path_faults(&own, &["/v1/auth"]), []);
    let taken = host_path_faults(&own, &["/v1/notes"]);
    assert_eq!(taken.len(), 2, "each operation below it: {taken:?}");
    assert_eq!(host_path_faults(&own, &["/v1/note"]), [], "a prefix ends at a slash");
}

#[test]
fn a_manifest_asks_the_operator_for_what_its_imports_do_not_show() {
    let mut value = with("/speaks_for", json!(["mail"]));
    value["operations"][0]["auth"] = json!("none");
    value["operations"][0]["mounts"] = json!(["root"]);
    let asking = manifest(&value);
    assert_eq!(asking.asks().into_iter().collect::<Vec<_>>(), ["GET /notes", "mail.*", "relay"]);
    assert!(asking.tells("mail.sent") && asking.tells("notes.sent") && !asking.tells("other.sent"));
    assert!(!asking.tells("mail") && !asking.tells("mail.") && !asking.tells("mailbox.sent"));
}

#[test]
fn a_manifest_that_says_little_means_the_defaults() {
    let small = json!({"name": "notes", "version": "1.0.0", "title": "N", "operations": [
        {"id": "notes.list", "method": "GET", "path": "/notes"}]});
    let small = manifest(&small);
    let operation = &small.operations[0];
    assert_eq!((small.gate, operation.auth.as_str(), operation.status), (Gate::Open, "key", 200));
    assert_eq!(
        (operation.mounts().len(), operation.tool, operation.paging),
        (2, true, Paging::None)
    );
    assert!(!operation.mutates());
    let again: Manifest = read(&serde_json::to_string(&small).unwrap()).unwrap();
    assert_eq!(again.operations[0].path, "/notes");
    assert_eq!(CAPABILITIES.len(), 19);
    assert_eq!(Pays::ALL.map(Pays::as_str), ["topup", "subscribe", "view_plans"]);
}

#[test]
fn an_overrun_is_counted_in_hundredths_and_bounded() {
    let action = |overrun: Value| -> Action {
        serde_json::from_value(json!({"name": "n.a", "title": "A", "overrun": overrun})).unwrap()
    };
    assert_eq!(action(json!(1.5)).capturable(100, false), 150);
    assert_eq!(action(json!(1.5)).capturable(100, true), 100, "an account pays what was set aside");
    assert_eq!(action(json!(1.005)).capturable(1_000, false), 1_000, "to the hundredth");
    assert_eq!(action(json!(0.5)).capturable(100, false), 100);
    assert_eq!(action(json!(2.0)).capturable(i64::MAX, false), i64::MAX);
}

/// The narrowings of the newer body, by their paths.
fn narrowed(old: Value, new: Value) -> Vec<String> {
    let of = |body: Value| {
        let mut value = notes();
        value["collections"][0] = json!({"name": "note", "body": body});
        manifest(&value)
    };
    narrowings(&of(old), &of(new)).into_iter().map(|fault| fault.path).collect()
}

#[test]
fn each_keyword_that_becomes_tighter_is_named() {
    let string = || json!({"type": "string"});
    let body = |schema: Value| json!({"type": "object", "properties": {"a": schema}});
    let table = [
        (string(), json!({"type": "integer"}), "type"),
        (json!({}), string(), "type"),
        (string(), json!({"type": "string", "enum": ["x"]}), "enum"),
        (json!({"enum": ["x", "y"]}), json!({"enum": ["x"]}), "enum"),
        (json!({"maxLength": 5}), json!({"maxLength": 4}), "maxLength"),
        (json!({}), json!({"minimum": 1}), "minimum"),
        (json!({"minimum": 1}), json!({"minimum": 2}), "minimum"),
        (json!({"pattern": "a"}), json!({"pattern": "b"}), "pattern"),
        (json!({}), json!({"format": "uuid"}), "format"),
        (json!({"type": "object"}), json!({"type": "object", "required": ["b"]}), "required"),
        (json!({}), json!({"additionalProperties": false}), "additionalProperties"),
        (json!({"items": {}}), json!({"items": {"type": "string"}}), "items.type"),
    ];
    for (old, new, keyword) in table {
        let found = narrowed(body(old.clone()), body(new.clone()));
        assert_eq!(found, [format!("collections.0.body.properties.a.{keyword}")], "{old} to {new}");
    }
}

#[test]
fn what_becomes_wider_is_no_narrowing() {
    let table = [
        (json!({"type": "integer"}), json!({"type": "number"})),
        (json!({"type": "string"}), json!({"type": ["string", "null"]})),
        (json!({"type": "string"}), json!({})),
        (json!({"enum": ["x"]}), json!({"enum": ["x", "y"]})),
        (json!({"maxLength": 4}), json!({"maxLength": 5})),
        (json!({"minimum": 2}), json!({"minimum": 1})),
        (json!({"minimum": 2}), json!({})),
        (json!({"pattern": "a"}), json!({})),
        (json!({"required": ["a"]}), json!({"required": []})),
        (json!({"additionalProperties": false}), json!({"properties": {"b": {"type": "string"}}})),
    ];
    for (old, new) in table {
        assert_eq!(narrowed(old.clone(), new.clone()), Vec::<String>::new(), "{old} to {new}");
    }
}

#[test]
fn references_are_followed_on_both_sides() {
    let by_name =
        |schema: Value| json!({"$defs": {"d": schema}, "properties": {"a": {"$ref": "#/$defs/d"}}});
    let (wide, tight) = (json!({"type": "string"}), json!({"type": "string", "maxLength": 1}));
    let plain = json!({"properties": {"a": wide}});
    assert_eq!(narrowed(by_name(wide.clone()), plain.clone()), Vec::<String>::new());
    let found = narrowed(plain, by_name(tight));
    assert_eq!(found, ["collections.0.body.properties.a.maxLength"]);
}

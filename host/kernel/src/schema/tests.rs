//! Schemas by example: what is admitted, what is refused, and in which words.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn schema(source: Value) -> Schema {
    Schema::compile(&source).unwrap()
}

fn words(source: Value, value: Value) -> Vec<String> {
    schema(source).validate(&value).unwrap_err().iter().map(ToString::to_string).collect()
}

#[test]
fn all_faults_are_named_with_their_paths() {
    let source = json!({
        "type": "object", "additionalProperties": false, "required": ["name", "items"],
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 3},
            "limit": {"type": "integer", "minimum": 1, "maximum": 100},
            "kind": {"enum": ["a", "b"]},
            "items": {"type": "array", "items": {"$ref": "#/$defs/item"}}
        },
        "$defs": {"item": {"type": "object", "required": ["id"], "properties": {"id": {"type": "string", "format": "uuid"}}}}
    });
    let mut found = words(
        source,
        json!({"name": "abcd", "limit": 101, "kind": "c", "items": [{"id": "x"}, {}, 3], "more": 1}),
    );
    found.sort();
    assert_eq!(
        found,
        [
            "items.0.id must be a UUID",
            "items.1.id is required",
            "items.2 must be an object",
            "kind must be one of a, b",
            "limit must be 1..100",
            "more is not a known field; known are items, kind, limit, name",
            "name must have at most 3 characters",
        ]
    );
}

#[test]
fn a_branch_that_was_meant_speaks_for_itself() {
    let optional = json!({"properties": {"at": {"anyOf": [{"type": "object", "required": ["x"]}, {"type": "null"}]}}});
    assert_eq!(words(optional.clone(), json!({"at": {}})), ["at.x is required"]);
    assert_eq!(words(optional, json!({"at": 1})), ["at must be an object or null"]);
    let tagged = json!({"oneOf": [
        {"type": "object", "required": ["kind", "a"], "properties": {"kind": {"const": "one"}}},
        {"type": "object", "required": ["kind", "b"], "properties": {"kind": {"const": "two"}}}]});
    assert_eq!(words(tagged, json!({"kind": "two"})), ["b is required"]);
}

#[test]
fn a_pattern_can_be_put_in_words() {
    let plain = json!({"properties": {"a": {"pattern": "^x$"}}});
    assert_eq!(words(plain, json!({"a": "y"})), ["a must match the pattern ^x$"]);
    let worded = json!({"properties": {"a": {"pattern": "^x$", "x-words": "must be an x"}}});
    assert_eq!(words(worded, json!({"a": "y"})), ["a must be an x"]);
}

#[test]
fn faults_are_bounded_and_a_huge_value_stops_at_the_first() {
    let source = json!({"type": "array", "items": {"type": "string"}});
    assert_eq!(words(source.clone(), json!(vec![1; 1_000])).len(), FAULTS_MAX);
    assert_eq!(words(source, json!(vec![1; FAULT_SEARCH_VALUES_MAX])).len(), 1);
}

#[test]
fn no_fault_repeats_the_value() {
    let source = json!({"properties": {"a": {"const": 1}, "b": {"pattern": "^x$"}, "c": {"enum": ["y"]}, "d": {"format": "email"}}});
    for fault in words(source, json!({"a": "s3cret", "b": "s3cret", "c": "s3cret", "d": "s3cret"}))
    {
        assert!(!fault.contains("s3cret"), "{fault}");
    }
}

#[test]
fn foreign_endless_and_oversized_schemas_are_not_admitted() {
    let mut deep = json!({});
    for _ in 0..crate::limits::SCHEMA_DEPTH_MAX {
        deep = json!({"items": deep});
    }
    for bad in [
        json!(1),
        json!({"type": "strnig"}),
        json!({"$ref": "https://example.com/schema.json"}),
        json!({"$ref": "file:///etc/passwd"}),
        json!({"$ref": "#/$defs/absent"}),
        json!({"$ref": "#"}),
        json!({"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}]}, "b": {"not": {"$ref": "#/$defs/a"}}}, "$ref": "#/$defs/a"}),
        json!({"$id": "https://example.com/"}),
        json!({"$schema": "http://json-schema.org/draft-04/schema#"}),
        json!({"pattern": "("}),
        json!({"pattern": "(?=a)b"}),
        json!({"pattern": "(a{1000}){1000}"}),
        json!({"description": "x".repeat(crate::limits::SCHEMA_BYTES_MAX)}),
        deep,
    ] {
        let shown: String = bad.to_string().chars().take(80).collect();
        assert!(Schema::compile(&bad).is_err(), "{shown}");
    }
    let tree = json!({"type": "object", "properties": {"children": {"type": "array", "items": {"$ref": "#"}}}});
    assert!(
        schema(tree).validate(&json!({"children": [{"children": [{"children": 1}]}]})).is_err()
    );
}

#[test]
fn a_pattern_is_matched_in_linear_time() {
    let slow = schema(json!({"pattern": "^(a+)+$"}));
    assert!(slow.validate(&json!(format!("{}b", "a".repeat(50_000)))).is_err());
}

fn pairs(raw: &str) -> Vec<(String, String)> {
    parse_query(raw).unwrap()
}

#[test]
fn a_query_is_read_as_its_schema_says() {
    let schema = schema(json!({"type": "object", "properties": {
        "limit": {"type": "integer", "minimum": 1, "maximum": 100, "default": 20},
        "deep": {"type": ["boolean", "null"]},
        "ratio": {"type": "number"},
        "tag": {"type": "array", "items": {"type": "integer"}},
        "state": {"anyOf": [{"$ref": "#/$defs/state"}, {"type": "null"}]},
        "text": {"type": "string"}},
        "$defs": {"state": {"type": "string", "enum": ["open"]}}}));
    let read = coerce_query(
        Some(&schema),
        &pairs("deep=true&ratio=0.5&tag=1&tag=2&state=open&text=1+%2B"),
        &[],
    )
    .unwrap();
    assert_eq!(
        read,
        json!({"limit": 20, "deep": true, "ratio": 0.5, "tag": [1, 2], "state": "open", "text": "1 +"})
    );
    let faults = |raw: &str| {
        let faults = coerce_query(Some(&schema), &pairs(raw), &[]).unwrap_err();
        faults.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(faults("limit=0"), ["limit must be 1..100"]);
    assert_eq!(faults("limit=+5&limit=6"), ["limit must be given once"]);
    assert_eq!(faults("limit=abc"), ["limit must be an integer"]);
    assert_eq!(faults("tag=x"), ["tag.0 must be an integer"]);
    assert_eq!(faults("deep=1").len(), 1);
    assert_eq!(
        faults("nope=1"),
        ["nope is not a known query parameter; known are deep, limit, ratio, state, tag, text"]
    );
}

#[test]
fn a_query_that_takes_long_to_check_is_not_checked() {
    let schema = schema(json!({"type": "object", "properties": {
        "text": {"type": "string", "pattern": "(a|b)*a(a|b){900}c"}}}));
    let faults = |value: &str| {
        let faults = coerce_query(Some(&schema), &pairs(&format!("text={value}")), &[]);
        faults.unwrap_err().iter().map(ToString::to_string).collect::<String>()
    };
    assert!(faults(&"ab".repeat(4_000)).contains("query takes too long to check"));
    let short = faults(&"ab".repeat(100));
    assert!(short.starts_with("text ") && !short.contains("too long"), "{short}");
}

#[test]
fn without_a_schema_no_parameter_is_known() {
    assert_eq!(coerce_query(None, &[], &[]), Ok(json!({})));
    assert_eq!(coerce_query(None, &pairs("a=1"), &[]).unwrap_err()[0].path, "a");
}

#[test]
fn a_query_string_is_bounded_and_decoded_once() {
    assert_eq!(
        pairs("a=%2526&b&&=x"),
        [("a".into(), "%26".into()), ("b".into(), String::new()), (String::new(), "x".into())]
    );
    assert!(parse_query(&"a=1&".repeat(crate::limits::QUERY_PAIRS_MAX + 1)).is_err());
    assert!(parse_query(&"a".repeat(crate::limits::QUERY_BYTES_MAX + 1)).is_err());
    for bad in ["a=%", "a=%00", "a=%ff"] {
        assert!(parse_query(bad).is_err(), "{bad}");
    }
}

proptest! {
    #[test]
    fn no_schema_panics(text in "\\{(\"(type|\\$ref|items|anyOf|not|pattern|enum|properties)\":(\"(string|#|#/items|\\(|x)\"|\\{\\}|\\[\\]|\\[\\{\\}\\]|true|1),?){0,4}\\}") {
        if let Ok(value) = serde_json::from_str::<Value>(&text) && let Ok(schema) = Schema::compile(&value) {
            let _ = schema.validate(&json!({"a": [1, "x", {}]}));
        }
    }

    #[test]
    fn no_query_panics(raw in "([a-c=&%+0-9]|\\PC){0,60}") {
        if let Ok(pairs) = parse_query(&raw) {
            let _ = coerce_query(Some(&schema(json!({"properties": {"a": {"type": "integer"}, "b": {"type": "array"}}}))), &pairs, &[]);
        }
    }
}

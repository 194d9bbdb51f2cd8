//! Violations in words, queries read by a schema, and the bounds of schemas.

use charter_kernel::limits::{
    FAULTS_MAX, PATTERN_TEXT_BYTES_MAX, QUERY_BYTES_MAX, QUERY_PAIRS_MAX, SCHEMA_BYTES_MAX,
    SCHEMA_DEPTH_MAX,
};
use charter_kernel::schema::{Schema, coerce_query, parse_json, parse_query};
use proptest::prelude::*;
use serde_json::{Value, json};

fn schema(source: &Value) -> Schema {
    Schema::compile(source).unwrap_or_else(|faults| panic!("{faults:?}"))
}

/// The violations of a value, in words.
fn words(source: &Value, value: &Value) -> Vec<String> {
    let found = schema(source).validate(value).err().unwrap_or_default();
    found.iter().map(ToString::to_string).collect()
}

fn refused(source: &Value) -> String {
    Schema::compile(source).unwrap_err()[0].to_string()
}

#[test]
fn each_violation_says_what_would_be_right() {
    let table = [
        (json!({"type": "integer"}), json!("x"), "must be an integer"),
        (json!({"type": ["string", "null"]}), json!(1), "must be null or a string"),
        (json!({"enum": ["a", 1]}), json!("b"), "must be one of a, 1"),
        (json!({"const": 7}), json!(8), "must be 7"),
        (json!({"minimum": 1}), json!(0), "must be at least 1"),
        (json!({"maximum": 3}), json!(4), "must be at most 3"),
        (json!({"minimum": 1, "maximum": 3}), json!(4), "must be 1..3"),
        (json!({"minimum": 1, "maximum": 3}), json!(0), "must be 1..3"),
        (json!({"exclusiveMinimum": 1}), json!(1), "must be more than 1"),
        (json!({"exclusiveMaximum": 3}), json!(3), "must be less than 3"),
        (json!({"multipleOf": 5}), json!(7), "must be a multiple of 5"),
        (json!({"minLength": 1}), json!(""), "must not be empty"),
        (json!({"minLength": 2}), json!("a"), "must have at least 2 characters"),
        (json!({"maxLength": 2}), json!("abc"), "must have at most 2 characters"),
        (json!({"minItems": 1}), json!([]), "must not be empty"),
        (json!({"minItems": 2}), json!([1]), "must have at least 2 items"),
        (json!({"maxItems": 1}), json!([1, 2]), "must have at most 1 items"),
        (json!({"minProperties": 1}), json!({}), "must have at least 1 members"),
        (json!({"maxProperties": 0}), json!({"a": 1}), "must have at most 0 members"),
        (json!({"uniqueItems": true}), json!([1, 1]), "must not hold an item twice"),
        (
            json!({"contains": {"const": 1}}),
            json!([2]),
            "must contain an item that its schema asks for",
        ),
        (json!({"pattern": "^a$"}), json!("b"), "must match the pattern ^a$"),
        (json!({"pattern": "^a$", "x-words": "be an a"}), json!("b"), "be an a"),
        (json!({"format": "uuid"}), json!("x"), "must be a UUID"),
        (json!({"format": "date"}), json!("x"), "must be a date such as 2026-11-20"),
        (
            json!({"format": "date-time"}),
            json!("x"),
            "must be an RFC 3339 timestamp such as 2026-11-20T23:15:00Z",
        ),
        (json!({"format": "email"}), json!("x"), "must be an e-mail address"),
        (json!({"format": "uri"}), json!("x"), "must be an absolute URL"),
        (json!({"not": {"type": "string"}}), json!("x"), "is of a form that is ruled out"),
        (
            json!({"propertyNames": {"maxLength": 1}}),
            json!({"ab": 1}),
            "has a member name that must have at most 1 characters",
        ),
        (
            json!({"oneOf": [{"type": "string"}, {"minLength": 0}]}),
            json!("x"),
            "fits several of the allowed forms; it must fit one",
        ),
    ];
    for (source, value, expected) in table {
        assert_eq!(words(&source, &value), [expected], "{source} {value}");
    }
}

#[test]
fn members_are_named_by_their_paths() {
    let source = json!({
        "type": "object", "required": ["name"], "additionalProperties": false,
        "properties": {"name": {"type": "string"}, "tags": {"items": {"type": "string"}}, "none": false},
    });
    assert_eq!(words(&source, &json!({})), ["name is required"]);
    assert_eq!(
        words(&source, &json!({"name": "a", "tags": ["a", 1]})),
        ["tags.1 must be a string"]
    );
    assert_eq!(words(&source, &json!({"name": "a", "none": 1})), ["none must be left out"]);
    let unknown = words(&source, &json!({"name": "a", "nmae": 1}));
    assert_eq!(unknown, ["nmae is not a known field; known are name, none, tags"]);
    let all = words(&source, &json!({"tags": [1, 2], "x": 1}));
    assert_eq!(all.len(), 4, "{all:?}");
}

#[test]
fn a_value_that_fits_no_branch_learns_what_was_meant() {
    let tagged = json!({"oneOf": [
        {"type": "object", "required": ["kind", "size"], "properties": {"kind": {"const": "a"}}},
        {"type": "object", "required": ["kind", "name"], "properties": {"kind": {"const": "b"}}},
    ]});
    assert_eq!(words(&tagged, &json!({"kind": "b"})), ["name is required"]);
    assert_eq!(words(&tagged, &json!({"kind": "c"})), ["must be \"a\" or \"b\""]);
    let typed = json!({"anyOf": [{"type": "string", "maxLength": 1}, {"type": "integer"}]});
    assert_eq!(words(&typed, &json!("ab")), ["must have at most 1 characters"]);
    assert_eq!(words(&typed, &json!(true)), ["must be a string or an integer"]);
}

#[test]
fn faults_are_bounded_and_never_show_what_was_sent() {
    let source = json!({"items": {"type": "integer"}});
    let secrets: Vec<&str> = vec!["hunter2"; FAULTS_MAX + 10];
    let found = words(&source, &json!(secrets));
    assert_eq!(found.len(), FAULTS_MAX);
    assert!(found.iter().all(|fault| !fault.contains("hunter2")));
    let long = "x".repeat(200);
    let closed = json!({"additionalProperties": false});
    let named = words(&closed, &json!({ long: 1 }));
    assert!(named[0].len() < 120, "{}", named[0]);
}

#[test]
fn a_schema_is_admitted_within_its_bounds() {
    let nested = |levels: usize| (0..levels).fold(json!({}), |inner, _| json!({"not": inner}));
    assert!(Schema::compile(&nested(SCHEMA_DEPTH_MAX - 1)).is_ok());
    assert!(refused(&nested(SCHEMA_DEPTH_MAX)).contains("at most 64 levels"));
    let large = json!({"description": "x".repeat(SCHEMA_BYTES_MAX)});
    assert!(refused(&large).contains("at most 262144 bytes"));
    assert!(refused(&json!([])).contains("an object or a boolean"));
    let pattern = |bytes: usize| json!({"pattern": "a".repeat(bytes)});
    assert!(refused(&pattern(PATTERN_TEXT_BYTES_MAX + 1)).contains("at most 4096 bytes"));
    assert!(refused(&json!({"pattern": "a{3000}"})).contains("3000 letters and classes"));
    assert!(refused(&json!({"patternProperties": {"(?=a)": {}}})).contains("without look-around"));
}

#[test]
fn references_stay_within_the_document() {
    for (source, words) in [
        (json!({"$ref": "https://example.com/x"}), "must name a definition"),
        (json!({"$ref": "#/$defs/none"}), "must name a definition"),
        (json!({"$ref": "#"}), "leads back to itself"),
        (json!({"$id": "x"}), "is not supported"),
        (json!({"$dynamicRef": "#x"}), "is not supported"),
        (json!({"$schema": "http://json-schema.org/draft-07/schema#"}), "must be https"),
    ] {
        assert!(refused(&source).contains(words), "{source}: {}", refused(&source));
    }
    let data = json!({"default": {"$ref": "elsewhere"}, "const": {"$id": "x"}});
    assert!(Schema::compile(&data).is_ok(), "data is no schema");
    let tree = json!({"$defs": {"t": {"properties": {"next": {"$ref": "#/$defs/t"}}}}, "$ref": "#/$defs/t"});
    assert!(schema(&tree).validate(&json!({"next": {"next": {}}})).is_ok());
}

#[test]
fn a_schema_whose_ways_multiply_is_refused() {
    let doubling = |links: usize| {
        let mut defs = serde_json::Map::new();
        for link in 0..links {
            let next = format!("#/$defs/d{}", link + 1);
            defs.insert(format!("d{link}"), json!({"allOf": [{"$ref": next}, {"$ref": next}]}));
        }
        defs.insert(format!("d{links}"), json!({"type": "string"}));
        json!({"$defs": defs, "$ref": "#/$defs/d0"})
    };
    assert!(Schema::compile(&doubling(6)).is_ok());
    assert!(refused(&doubling(12)).contains("visits to check one value"));
}

#[test]
fn a_quick_check_leaves_large_values_to_others() {
    let source = schema(&json!({"items": {"type": "string", "pattern": "^[a-z]+$"}}));
    assert_eq!(source.validate_quickly(&json!(["a"])), Some(Ok(())));
    assert!(source.validate_quickly(&json!([1])).unwrap().is_err());
    let many = json!(vec!["abc"; 200_000]);
    assert_eq!(source.validate_quickly(&many), None);
    assert!(source.validate(&many).is_ok());
    assert_eq!(source.source()["items"]["type"], "string");
}

fn pairs(raw: &str) -> Vec<(String, String)> {
    parse_query(raw).unwrap()
}

#[test]
fn a_query_string_is_decoded_into_pairs() {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    assert_eq!(pairs("a=1&&b&c=d=e"), [pair("a", "1"), pair("b", ""), pair("c", "d=e")]);
    assert_eq!(pairs("a+b=%C3%A4%2B"), [pair("a b", "ä+")]);
    for bad in ["a=%", "a=%zz", "a=%ff", "%00=1"] {
        assert!(parse_query(bad).unwrap_err().message.contains("UTF-8 without NUL"), "{bad}");
    }
    assert!(parse_query(&"x".repeat(QUERY_BYTES_MAX)).is_ok());
    assert!(parse_query(&"x".repeat(QUERY_BYTES_MAX + 1)).is_err());
    assert_eq!(pairs(&"a&".repeat(QUERY_PAIRS_MAX)).len(), QUERY_PAIRS_MAX);
    assert!(
        parse_query(&"a&".repeat(QUERY_PAIRS_MAX + 1))
            .unwrap_err()
            .message
            .contains("100 parameters")
    );
}

#[test]
fn each_parameter_is_read_as_its_property_says() {
    let source = schema(&json!({
        "type": "object",
        "$defs": {"flag": {"type": "boolean"}},
        "properties": {
            "n": {"type": "integer"}, "x": {"type": "number"}, "on": {"$ref": "#/$defs/flag"},
            "s": {"type": "string"}, "tags": {"type": "array", "items": {"type": "integer"}},
            "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
            "limit": {"type": "integer", "default": 20, "maximum": 100},
        },
    }));
    let read = |raw: &str| coerce_query(Some(&source), &pairs(raw), &[]);
    assert_eq!(
        read("n=-7&x=1.5&on=true&s=7"),
        Ok(json!({"n": -7, "x": 1.5, "on": true, "s": "7", "limit": 20}))
    );
    assert_eq!(read("tags=1&tags=2").unwrap()["tags"], json!([1, 2]));
    assert_eq!(
        (&read("either=7").unwrap()["either"], &read("either=a").unwrap()["either"]),
        (&json!(7), &json!("a"))
    );
    assert_eq!(read("limit=5").unwrap()["limit"], 5);
    let fault = |raw: &str| read(raw).unwrap_err()[0].to_string();
    for raw in ["n=1.5", "n=+1", "n=1_000", "n= 1", "n=x", "n=99999999999999999999"] {
        assert_eq!(fault(&raw.replace('+', "%2B")), "n must be an integer", "{raw}");
    }
    assert_eq!(fault("on=yes"), "on must be a boolean");
    assert_eq!(fault("n=1&n=2"), "n must be given once");
    assert_eq!(fault("limit=101"), "limit must be at most 100");
    assert!(fault("m=1").starts_with("m is not a known query parameter; known are either, limit"));
}

#[test]
fn an_operation_without_a_query_takes_no_parameter() {
    assert_eq!(coerce_query(None, &[], &[]), Ok(json!({})));
    let fault =
        |words: &[&str]| coerce_query(None, &pairs("a=1"), words).unwrap_err()[0].to_string();
    assert_eq!(fault(&[]), "a is not a known query parameter; this operation takes none");
    assert_eq!(fault(&["limit"]), "a is not a known query parameter; known are limit");
}

proptest! {
    #[test]
    fn a_document_reads_as_it_was_written(text in "\\PC{0,20}", n in any::<i64>(), flag in any::<bool>()) {
        let value = json!({"a": [text, n, flag, null], "b": {"c": n}});
        prop_assert_eq!(parse_json(value.to_string().as_bytes()), Ok(value));
    }

    #[test]
    fn a_query_comes_back(name in "[a-z]{1,8}", value in "\\PC{0,20}") {
        let encode = |text: &str| text.bytes().map(|byte| format!("%{byte:02x}")).collect::<String>();
        let raw = format!("{}={}", encode(&name), encode(&value));
        prop_assert_eq!(parse_query(&raw), Ok(vec![(name, value)]));
    }
}

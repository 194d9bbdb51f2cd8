//! Costs against the validator itself: a keyword of ours counts its visits.

use std::cell::Cell;

use jsonschema::paths::Location;
use jsonschema::{Keyword, ValidationError};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::limits::SCHEMA_VISITS_MAX;
use crate::schema::Schema;

/// The keyword that counts.
const COUNTED: &str = "x-counted";

thread_local! {
    static VISITS: Cell<u64> = const { Cell::new(0) };
}

struct Counter;

impl<'i> Keyword<'i> for Counter {
    fn validate(&self, _: &'i Value) -> Result<(), ValidationError<'i>> {
        VISITS.set(VISITS.get() + 1);
        Ok(())
    }
    fn is_valid(&self, _: &'i Value) -> bool {
        VISITS.set(VISITS.get() + 1);
        true
    }
}

fn counter<'a>(
    _: &'a Map<String, Value>,
    _: &'a Value,
    _: Location,
) -> Result<Box<dyn for<'i> Keyword<'i>>, ValidationError<'a>> {
    Ok(Box::new(Counter))
}

/// The visits that the validator makes to tell what is wrong with a value, and those to test it.
fn visited(schema: &Value, value: &Value) -> (u64, u64) {
    let validator = jsonschema::options()
        .with_draft(jsonschema::Draft::Draft202012)
        .with_keyword(COUNTED, counter)
        .offline()
        .build(&counted(schema))
        .unwrap();
    VISITS.set(0);
    let _ = validator.iter_errors(value).count();
    let told = VISITS.replace(0);
    let _ = validator.validate(value);
    let first = VISITS.replace(0);
    let _ = validator.is_valid(value);
    (told.max(first), VISITS.get())
}

/// The schema with the counter in each subschema.
fn counted(schema: &Value) -> Value {
    let each = |value: &Value| match value {
        Value::Array(items) => items.iter().map(counted).collect(),
        Value::Object(members) => {
            members.iter().map(|(name, schema)| (name.clone(), counted(schema))).collect()
        }
        other => other.clone(),
    };
    let Value::Object(members) = schema else { return schema.clone() };
    let mut with: Map<String, Value> = members
        .iter()
        .map(|(name, value)| {
            let value = match name.as_str() {
                "properties" | "patternProperties" | "dependentSchemas" | "$defs" | "allOf"
                | "anyOf" | "oneOf" | "prefixItems" => each(value),
                "not"
                | "if"
                | "then"
                | "else"
                | "items"
                | "contains"
                | "additionalProperties"
                | "propertyNames"
                | "unevaluatedProperties"
                | "unevaluatedItems" => counted(value),
                _ => value.clone(),
            };
            (name.clone(), value)
        })
        .collect();
    with.insert(COUNTED.into(), json!(true));
    Value::Object(with)
}

/// The steps that are counted for a value.
fn steps(schema: &Value, value: &Value, pass: Pass) -> u64 {
    let (graph, _) = Graph::of(schema);
    let mut left = u64::MAX;
    graph.spend(value, pass, &mut left).unwrap();
    u64::MAX - left
}

fn refused(schema: &Value) -> String {
    Schema::compile(schema).unwrap_err()[0].to_string()
}

/// A chain of definitions, each of which holds `link` with the name of the one before.
fn chain(length: usize, link: impl Fn(Value) -> Value) -> Map<String, Value> {
    let link = |at: usize| match at {
        0 => json!({"type": "object"}),
        _ => link(json!({"$ref": format!("#/$defs/a{}", at - 1)})),
    };
    (0..=length).map(|at| (format!("a{at}"), link(at))).collect()
}

#[test]
fn a_chain_that_doubles_with_every_link_is_refused_with_its_figure() {
    let doubled = |length: usize, keyword: &str| {
        let defs = chain(length, |next| json!({keyword: [next, next]}));
        let last = json!({"$ref": format!("#/$defs/a{length}")});
        (json!({"$defs": defs, "allOf": [last]}), json!({"$defs": defs, "properties": {"a": last}}))
    };
    assert!(Schema::compile(&doubled(7, "allOf").0).is_ok());
    for length in [8, 22, 45] {
        for keyword in ["allOf", "anyOf", "oneOf"] {
            let (here, below) = doubled(length, keyword);
            for schema in [here, below] {
                let fault = refused(&schema);
                assert!(fault.starts_with("$defs.a"), "{fault}");
                assert!(fault.contains("visits to check one value"), "{fault}");
            }
        }
    }
    let fault = refused(&doubled(45, "allOf").0);
    assert!(fault.starts_with("$defs.a8 takes up to 1021 visits"), "{fault}");
    let asked = chain(45, |next| json!({"if": next, "then": next}));
    assert!(refused(&json!({"$defs": asked, "$ref": "#/$defs/a45"})).contains("visits"));
    let denied = chain(45, |next| json!({"not": next, "dependentSchemas": {"a": next}}));
    assert!(refused(&json!({"$defs": denied, "$ref": "#/$defs/a45"})).contains("visits"));
    let marks = chain(45, |next| json!({"allOf": [next], "unevaluatedProperties": false}));
    assert!(refused(&json!({"$defs": marks, "$ref": "#/$defs/a45"})).contains("visits"));
}

#[test]
fn a_chain_without_end_is_refused_before_the_stack_feels_it() {
    let defs = chain(8_000, |next| next);
    let fault = refused(&json!({"$defs": defs, "$ref": "#/$defs/a8000"}));
    assert!(fault.contains("within each other"), "{fault}");
    let mut members = chain(200, |next| next);
    members.insert("a0".into(), json!({"items": {"$ref": "#/$defs/a200"}}));
    let fault = refused(&json!({"$defs": members, "$ref": "#/$defs/a200"}));
    assert!(fault.contains("within each other"), "{fault}");
}

#[test]
fn the_deepest_schema_checks_the_deepest_value_on_a_small_stack() {
    let defs = chain(3, |next| json!({"anyOf": [next]}));
    let mut defs = defs;
    defs.insert("a0".into(), json!({"items": {"$ref": "#/$defs/a3"}, "type": "array"}));
    let schema = Schema::compile(&json!({"$defs": defs, "$ref": "#/$defs/a3"})).unwrap();
    let value = (1..JSON_DEPTH_MAX).fold(json!([]), |value, _| json!([value]));
    assert_eq!(schema.validate(&value), Ok(()));
    let wrong = (1..JSON_DEPTH_MAX).fold(json!(1), |value, _| json!([value]));
    assert!(schema.validate(&wrong).is_err());
}

#[test]
fn a_value_whose_check_multiplies_with_its_depth_is_refused_unchecked() {
    let twice = json!({"type": "array", "items": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}});
    let schema = Schema::compile(&twice).unwrap();
    let deep = |depth: usize| (1..depth).fold(json!([]), |value, _| json!([value]));
    assert_eq!(schema.validate(&deep(8)), Ok(()));
    assert!(schema.validate_quickly(&deep(8)).is_some());
    let fault = schema.validate(&deep(100)).unwrap_err()[0].to_string();
    assert!(fault.contains("too deep to be checked"), "{fault}");
    assert!(schema.validate_quickly(&deep(100)).is_none());
}

#[test]
fn long_checks_are_told_from_quick_ones_and_none_passes_the_limit() {
    let unique = Schema::compile(&json!({"type": "array", "uniqueItems": true})).unwrap();
    // Arrays of nothing but arrays hash alike, whatever their shape.
    let alike = |count: usize| -> Value {
        let shape = |bits: usize| {
            (0..16).fold(json!([]), |shape, bit| {
                if bits >> bit & 1 == 1 { json!([shape, []]) } else { json!([shape]) }
            })
        };
        (0..count).map(shape).collect()
    };
    assert_eq!(unique.validate_quickly(&alike(10)), Some(Ok(())));
    assert!(unique.validate_quickly(&alike(1_000)).is_none());
    assert!(unique.validate(&alike(10_000)).is_err());
    let texts: Value = (0..10_000).map(|at| format!("text {at}")).collect();
    assert_eq!(unique.validate_quickly(&texts), Some(Ok(())));

    let pattern = json!({"type": "string", "pattern": "(a|b)*a(a|b){900}c"});
    let pattern = Schema::compile(&pattern).unwrap();
    assert!(pattern.validate_quickly(&json!("ab".repeat(100))).is_some());
    assert!(pattern.validate_quickly(&json!("ab".repeat(10_000))).is_none());
    let fault = pattern.validate(&json!("ab".repeat(200_000))).unwrap_err()[0].to_string();
    assert!(fault.contains("too large"), "{fault}");
    let fault = refused(&json!({"pattern": "((x{50}){50}){50}"}));
    assert!(fault.starts_with("pattern has a pattern of 125000"), "{fault}");
}

#[test]
fn an_everyday_body_is_checked_at_once() {
    let row = json!({"type": "object", "additionalProperties": false, "required": ["id", "kind"],
        "properties": {"id": {"type": "string", "format": "uuid"}, "kind": {"enum": ["a", "b"]},
            "name": {"type": ["string", "null"], "maxLength": 200, "pattern": r"^\S+$"},
            "labels": {"type": "array", "items": {"type": "string"}, "uniqueItems": true}}});
    let schema = Schema::compile(&json!({"type": "array", "items": row})).unwrap();
    let value = json!({"id": "2f4dc8a4-4f0b-4ee0-bd5b-2ac03d51ee37", "kind": "a", "name": "row",
        "labels": ["x", "y"]});
    let rows: Value = vec![value; 500].into();
    assert_eq!(schema.validate_quickly(&rows), Some(Ok(())));
    let json = json!({"$ref": "#/$defs/any", "$defs": {"any": {"anyOf": [{"type": "null"},
        {"type": "string"}, {"type": "array", "items": {"$ref": "#/$defs/any"}},
        {"type": "object", "additionalProperties": {"$ref": "#/$defs/any"}}]}}});
    let schema = Schema::compile(&json).unwrap();
    assert_eq!(
        schema.validate_quickly(&json!({"a": [{"b": [["c"], null]}], "d": {}})),
        Some(Ok(()))
    );
}

/// A schema over four definitions, each of which may refer to those before it.
fn schemas() -> impl Strategy<Value = Value> {
    fn schema(at: usize) -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(json!({"type": "object"})),
            Just(json!({"type": "array"})),
            Just(json!({"type": "string"})),
            Just(json!({})),
            Just(json!({"required": ["a"]})),
            // References to what stands before, and through a member to anything.
            (0..at.max(1)).prop_map(move |next| match at {
                0 => json!({"maxItems": 1}),
                _ => json!({"$ref": format!("#/$defs/a{next}")}),
            }),
            (0..4_usize).prop_map(|next| json!({"items": {"$ref": format!("#/$defs/a{next}")}})),
            (0..4_usize).prop_map(
                |next| json!({"properties": {"a": {"$ref": format!("#/$defs/a{next}")}}})
            ),
        ];
        leaf.prop_recursive(3, 12, 3, |inner| {
            let several = prop::collection::vec(inner.clone(), 1..3);
            let keyword = |names: &'static [&'static str]| prop::sample::select(names);
            prop_oneof![
                (keyword(&["allOf", "anyOf", "oneOf", "prefixItems"]), several)
                    .prop_map(|(name, schemas)| json!({name: schemas})),
                (
                    keyword(
                        &["not", "items", "contains", "additionalProperties", "propertyNames",]
                    ),
                    inner.clone()
                )
                    .prop_map(|(name, schema)| json!({name: schema})),
                (inner.clone(), inner.clone(), inner.clone())
                    .prop_map(|(a, b, c)| json!({"if": a, "then": b, "else": c})),
                (keyword(&["properties", "dependentSchemas", "patternProperties"]), inner.clone())
                    .prop_map(|(name, schema)| json!({name: {"a": schema}})),
                (keyword(&["unevaluatedProperties", "unevaluatedItems"]), inner.clone(), inner)
                    .prop_map(|(name, rest, other)| json!({name: rest, "anyOf": [other]})),
            ]
        })
    }
    (schema(0), schema(1), schema(2), schema(3), schema(4)).prop_map(|(a, b, c, d, root)| {
        json!({"$defs": {"a0": a, "a1": b, "a2": c, "a3": d}, "allOf": [root, {"$ref": "#/$defs/a3"}]})
    })
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![Just(json!(null)), Just(json!("a")), Just(json!(1))];
    leaf.prop_recursive(4, 24, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("[ab]", inner, 0..3)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn what_is_counted_bounds_what_is_visited(schema in schemas(), value in values()) {
        prop_assume!(Schema::compile(&schema).is_ok());
        let (told, tested) = visited(&schema, &value);
        prop_assert!(told * VISIT_STEPS <= steps(&schema, &value, Pass::Tell), "{told} visits");
        prop_assert!(tested * VISIT_STEPS <= steps(&schema, &value, Pass::Test), "{tested} visits");
    }

    #[test]
    fn one_value_is_visited_as_often_as_its_schema_says(schema in schemas()) {
        prop_assume!(Schema::compile(&schema).is_ok());
        let (graph, _) = Graph::of(&schema);
        let visits = graph.visits(&graph.order().unwrap());
        for value in [json!(null), json!({}), json!([])] {
            prop_assert!(visited(&schema, &value).0 <= visits[0]);
            prop_assert!(visits[0] <= SCHEMA_VISITS_MAX);
        }
    }
}

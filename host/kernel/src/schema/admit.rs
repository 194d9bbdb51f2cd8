//! Which schemas are admitted: bounded in size and depth, closed under their own references, and
//! free of endless ones.

use serde_json::Value;

use crate::fault::{Fault, join};
use crate::limits::{FAULTS_MAX, SCHEMA_BYTES_MAX, SCHEMA_DEPTH_MAX};

/// Every reason why a schema is not admitted, before it is compiled.
pub(super) fn faults(schema: &Value) -> Vec<Fault> {
    if !(schema.is_object() || schema.is_boolean()) {
        return vec![Fault::new("", "must be a JSON Schema: an object or a boolean")];
    }
    if depth(schema, SCHEMA_DEPTH_MAX).is_none() {
        return vec![Fault::new("", format!("must nest at most {SCHEMA_DEPTH_MAX} levels"))];
    }
    if schema.to_string().len() > SCHEMA_BYTES_MAX {
        return vec![Fault::new("", format!("must be at most {SCHEMA_BYTES_MAX} bytes"))];
    }
    let mut faults = Vec::new();
    walk(schema, schema, "", &mut faults);
    if faults.is_empty() && endless(schema) {
        faults.push(Fault::new(
            "",
            "has a $ref that leads back to itself without going into the value",
        ));
    }
    faults.truncate(FAULTS_MAX);
    faults
}

fn depth(value: &Value, left: usize) -> Option<()> {
    let left = left.checked_sub(1)?;
    match value {
        Value::Array(items) => items.iter().try_for_each(|item| depth(item, left)),
        Value::Object(members) => members.values().try_for_each(|member| depth(member, left)),
        _ => Some(()),
    }
}

/// Members whose values are data, not schemas.
const DATA: [&str; 4] = ["const", "default", "enum", "examples"];

fn walk(root: &Value, schema: &Value, path: &str, faults: &mut Vec<Fault>) {
    match schema {
        Value::Object(members) => {
            for (name, value) in members {
                let path = join(path, name);
                match (name.as_str(), value) {
                    (data, _) if DATA.contains(&data) => continue,
                    (
                        "$id" | "$anchor" | "$dynamicRef" | "$dynamicAnchor" | "$vocabulary",
                        Value::String(_),
                    ) => {
                        faults.push(Fault::new(
                            &path,
                            "is not supported; refer to definitions as #/$defs/<name>",
                        ));
                    }
                    ("$schema", Value::String(dialect))
                        if dialect.trim_end_matches('#') != DIALECT =>
                    {
                        faults.push(Fault::new(&path, format!("must be {DIALECT}")));
                    }
                    ("$ref", Value::String(reference)) if target(root, reference).is_none() => {
                        faults.push(Fault::new(
                            &path,
                            format!("must name a definition in this schema, not {reference:?}"),
                        ));
                    }
                    _ => {}
                }
                walk(root, value, &path, faults);
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                walk(root, item, &join(path, &at.to_string()), faults);
            }
        }
        _ => {}
    }
}

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

/// What a reference within the document names.
pub(super) fn target<'s>(root: &'s Value, reference: &str) -> Option<&'s Value> {
    let pointer = crate::route::decode(reference.strip_prefix('#')?)?;
    root.pointer(&pointer)
}

/// Whether some reference leads back to itself through keywords that stay at the same value:
/// validation would never end.
fn endless(root: &Value) -> bool {
    fn visit<'s>(
        root: &'s Value,
        schema: &'s Value,
        on_way: &mut Vec<*const Value>,
        done: &mut Vec<*const Value>,
    ) -> bool {
        let here: *const Value = schema;
        if on_way.contains(&here) {
            return true;
        }
        if done.contains(&here) {
            return false;
        }
        on_way.push(here);
        let endless =
            in_place(root, schema).into_iter().any(|next| visit(root, next, on_way, done));
        on_way.pop();
        done.push(here);
        endless
    }
    let mut done = Vec::new();
    let mut starts = Vec::new();
    references(root, root, &mut starts);
    starts.into_iter().any(|start| visit(root, start, &mut Vec::new(), &mut done))
}

/// The targets of all references.
fn references<'s>(root: &'s Value, schema: &'s Value, found: &mut Vec<&'s Value>) {
    match schema {
        Value::Object(members) => {
            for (name, value) in members.iter().filter(|(name, _)| !DATA.contains(&name.as_str())) {
                if let ("$ref", Some(reference)) = (name.as_str(), value.as_str()) {
                    found.extend(target(root, reference));
                }
                references(root, value, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| references(root, item, found)),
        _ => {}
    }
}

/// The schemas that a schema applies to the same value.
fn in_place<'s>(root: &'s Value, schema: &'s Value) -> Vec<&'s Value> {
    let Value::Object(members) = schema else { return Vec::new() };
    let mut next = Vec::new();
    for (name, value) in members {
        match (name.as_str(), value) {
            ("$ref", Value::String(reference)) => next.extend(target(root, reference)),
            ("allOf" | "anyOf" | "oneOf", Value::Array(branches)) => next.extend(branches),
            ("not" | "if" | "then" | "else", branch) => next.push(branch),
            ("dependentSchemas", Value::Object(branches)) => next.extend(branches.values()),
            _ => {}
        }
    }
    next
}

//! The admission of schemas: bounded in size, depth and the cost of checking a value, closed under
//! their own references, and free of endless ones.

use serde_json::Value;

use super::cost::Shape;
use super::graph::{Graph, target};
use super::pattern;
use crate::fault::{Fault, join};
use crate::limits::{
    FAULTS_MAX, PATTERN_STATES_MAX, PATTERN_TEXT_BYTES_MAX, SCHEMA_BYTES_MAX, SCHEMA_DEPTH_MAX,
    SCHEMA_MARKS_MAX, SCHEMA_NESTED_MAX, SCHEMA_VISITS_MAX,
};

/// The graph of a schema that is admitted, before it is compiled.
///
/// # Errors
/// Every reason why it is not.
pub(super) fn graph(schema: &Value) -> Result<Graph, Vec<Fault>> {
    if !(schema.is_object() || schema.is_boolean()) {
        return Err(vec![Fault::new("", "must be a JSON Schema: an object or a boolean")]);
    }
    if depth(schema, SCHEMA_DEPTH_MAX).is_none() {
        return Err(vec![Fault::new("", format!("must nest at most {SCHEMA_DEPTH_MAX} levels"))]);
    }
    if schema.to_string().len() > SCHEMA_BYTES_MAX {
        return Err(vec![Fault::new("", format!("must be at most {SCHEMA_BYTES_MAX} bytes"))]);
    }
    let mut faults = Vec::new();
    walk(schema, schema, "", &mut faults);
    if faults.is_empty() {
        let (graph, paths) = Graph::of(schema);
        match cost(&graph, &paths) {
            None => return Ok(graph),
            Some(fault) => faults.push(fault),
        }
    }
    faults.truncate(FAULTS_MAX);
    Err(faults)
}

/// The first bound that checking a value would pass.
fn cost(graph: &Graph, paths: &[String]) -> Option<Fault> {
    let order = match graph.order() {
        Ok(order) => order,
        Err(Shape::Endless(at)) => {
            return Some(Fault::new(
                &paths[at],
                "has a $ref that leads back to itself without going into the value",
            ));
        }
        Err(Shape::Nested(at)) => return Some(nesting_fault(&paths[at])),
    };
    let visits = graph.visits(&order);
    if let Some(at) = order.iter().copied().find(|at| visits[*at] > SCHEMA_VISITS_MAX) {
        return Some(Fault::new(
            &paths[at],
            format!(
                "takes up to {} visits to check one value, and may take {SCHEMA_VISITS_MAX}: every \
                 $ref and every branch of allOf, anyOf and oneOf counts as often as it is come by",
                visits[at],
            ),
        ));
    }
    let marks: u64 = (0..graph.nodes.len())
        .filter(|at| graph.nodes[*at].marks())
        .map(|at| visits[at] * graph.nodes.len() as u64)
        .sum();
    if marks > SCHEMA_MARKS_MAX {
        return Some(Fault::new(
            "",
            format!(
                "takes up to {marks} visits to compile, and may take {SCHEMA_MARKS_MAX}: use \
                 additionalProperties and items in place of unevaluatedProperties and unevaluatedItems",
            ),
        ));
    }
    (graph.nesting(&order) > SCHEMA_NESTED_MAX).then(|| nesting_fault(""))
}

fn nesting_fault(path: &str) -> Fault {
    let message = format!(
        "must not lead through more than {SCHEMA_NESTED_MAX} subschemas within each other, those of \
         the deepest value included"
    );
    Fault::new(path, message)
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
                    ("pattern", Value::String(pattern)) => is_cheap(pattern, &path, faults),
                    ("patternProperties", Value::Object(patterns)) => {
                        patterns.keys().for_each(|pattern| is_cheap(pattern, &path, faults));
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

fn is_cheap(pattern: &str, path: &str, faults: &mut Vec<Fault>) {
    if pattern.len() > PATTERN_TEXT_BYTES_MAX {
        let message = format!("must have patterns of at most {PATTERN_TEXT_BYTES_MAX} bytes");
        return faults.push(Fault::new(path, message));
    }
    let states = pattern::states(pattern);
    if states > PATTERN_STATES_MAX {
        let message = if states == pattern::UNREAD {
            "must be a regular expression without look-around and references".to_owned()
        } else {
            format!(
                "has a pattern of {states} letters and classes, repeated ones as often as they are \
                 counted, and may have {PATTERN_STATES_MAX}: use minLength and maxLength"
            )
        };
        faults.push(Fault::new(path, message));
    }
}

const DIALECT: &str = "https://json-schema.org/draft/2020-12/schema";

//! A schema as a graph: each subschema that checking can reach, once, with the subschemas that it
//! applies to the same value and those that it applies to the value's members.
//!
//! References are followed, so the graph may have cycles, and two ways may lead to one node. Knows
//! the keywords by name and nothing of the validator behind them.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::pattern;
use crate::fault::join;

/// Steps of looking at one value once, beside what its keywords add. A step is about what it takes
/// to compare two short texts.
pub(super) const VISIT_STEPS: u64 = 20;
/// Steps of looking for one member by its name.
const LOOKUP_STEPS: u64 = 8;
/// Steps that a `format` takes for each byte of a text.
const FORMAT_STEPS: u64 = 8;

/// The subschemas of a schema; the root is the first.
#[derive(Clone, Debug)]
pub(super) struct Graph {
    pub(super) nodes: Vec<Node>,
}

/// One subschema.
#[derive(Clone, Debug, Default)]
pub(super) struct Node {
    /// Steps that one visit takes, whatever the value.
    pub(super) own: u64,
    /// Steps for each byte of a text.
    pub(super) per_byte: u64,
    /// Steps for each byte of a member's name.
    pub(super) per_name_byte: u64,
    /// Whether an array must not hold an item twice.
    pub(super) distinct: bool,
    /// Subschemas for the same value.
    pub(super) in_place: Vec<(Place, usize)>,
    pub(super) properties: HashMap<String, usize>,
    pub(super) patterned: Vec<usize>,
    pub(super) additional: Option<usize>,
    pub(super) names: Option<usize>,
    pub(super) prefix: Vec<usize>,
    pub(super) items: Option<usize>,
    pub(super) contains: Option<usize>,
    pub(super) unevaluated_properties: Option<usize>,
    pub(super) unevaluated_items: Option<usize>,
}

/// How a subschema for the same value counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It must hold: `allOf`, `$ref`, `then`, `else`, `dependentSchemas`.
    Must,
    /// It may hold: `anyOf`, `oneOf`.
    May,
    /// It is only asked: `not`, `if`.
    Asked,
}

impl Graph {
    /// The graph of a schema whose references were checked, and each node's path.
    pub(super) fn of(root: &Value) -> (Self, Vec<String>) {
        let mut found = Found { root, numbers: HashMap::new(), schemas: Vec::new() };
        found.number(root, String::new());
        let mut nodes = Vec::new();
        while let Some((schema, path)) = found.schemas.get(nodes.len()).cloned() {
            nodes.push(match schema {
                Value::Object(members) => found.node(members, &path),
                _ => Node { own: VISIT_STEPS, ..Node::default() },
            });
        }
        (Self { nodes }, found.schemas.into_iter().map(|(_, path)| path).collect())
    }
}

impl Node {
    /// Whether it asks which members the subschemas for the same value have seen.
    pub(super) fn marks(&self) -> bool {
        self.unevaluated_properties.is_some() || self.unevaluated_items.is_some()
    }

    /// The subschemas for the value's members.
    pub(super) fn below(&self) -> impl Iterator<Item = usize> {
        let single = [
            self.additional,
            self.names,
            self.items,
            self.contains,
            self.unevaluated_properties,
            self.unevaluated_items,
        ];
        let several = self.properties.values().chain(&self.patterned).chain(&self.prefix);
        several.copied().chain(single.into_iter().flatten())
    }
}

/// The subschemas found so far, in the order of their numbers.
struct Found<'s> {
    root: &'s Value,
    numbers: HashMap<*const Value, usize>,
    schemas: Vec<(&'s Value, String)>,
}

impl<'s> Found<'s> {
    fn number(&mut self, schema: &'s Value, path: String) -> usize {
        *self.numbers.entry(std::ptr::from_ref(schema)).or_insert_with(|| {
            self.schemas.push((schema, path));
            self.schemas.len() - 1
        })
    }

    fn node(&mut self, members: &'s Map<String, Value>, path: &str) -> Node {
        let mut node = Node { own: VISIT_STEPS, ..Node::default() };
        for (name, value) in members {
            let path = join(path, name);
            if !self.in_place(&mut node, name, value, &path)
                && !self.below(&mut node, name, value, &path)
            {
                keyword(&mut node, name, value);
            }
        }
        node
    }

    /// Reads a keyword that applies subschemas to the same value.
    fn in_place(&mut self, node: &mut Node, name: &str, value: &'s Value, path: &str) -> bool {
        let place = match name {
            "allOf" | "then" | "else" | "dependentSchemas" | "dependencies" | "$ref" => Place::Must,
            "anyOf" | "oneOf" => Place::May,
            "not" | "if" => Place::Asked,
            _ => return false,
        };
        let next: Vec<usize> = match (name, value) {
            ("$ref", Value::String(reference)) => {
                let path = reference.trim_start_matches(['#', '/']).replace('/', ".");
                target(self.root, reference)
                    .map(|next| self.number(next, path))
                    .into_iter()
                    .collect()
            }
            ("allOf" | "anyOf" | "oneOf", Value::Array(branches)) => self.list(branches, path),
            ("dependentSchemas" | "dependencies", Value::Object(branches)) => {
                node.own += LOOKUP_STEPS * branches.len() as u64;
                self.map(branches, path).into_values().collect()
            }
            _ => vec![self.number(value, path.into())],
        };
        node.in_place.extend(next.into_iter().map(|next| (place, next)));
        true
    }

    /// Reads a keyword that applies subschemas to the value's members.
    fn below(&mut self, node: &mut Node, name: &str, value: &'s Value, path: &str) -> bool {
        match (name, value) {
            ("properties", Value::Object(properties)) => {
                node.own += LOOKUP_STEPS * properties.len() as u64;
                node.properties = self.map(properties, path);
            }
            ("patternProperties", Value::Object(patterned)) => {
                let states = patterned.keys().map(|pattern| pattern::states(pattern)).sum::<u64>();
                node.per_name_byte += states;
                node.patterned = self.map(patterned, path).into_values().collect();
            }
            ("prefixItems", Value::Array(items)) => node.prefix = self.list(items, path),
            ("additionalProperties", _) => node.additional = Some(self.number(value, path.into())),
            ("propertyNames", _) => node.names = Some(self.number(value, path.into())),
            ("items", _) => node.items = Some(self.number(value, path.into())),
            ("contains", _) => node.contains = Some(self.number(value, path.into())),
            ("unevaluatedProperties", _) => {
                node.unevaluated_properties = Some(self.number(value, path.into()));
            }
            ("unevaluatedItems", _) => {
                node.unevaluated_items = Some(self.number(value, path.into()));
            }
            _ => return false,
        }
        true
    }

    fn list(&mut self, schemas: &'s [Value], path: &str) -> Vec<usize> {
        let number = |(at, schema)| self.number(schema, join(path, &usize::to_string(&at)));
        schemas.iter().enumerate().map(number).collect()
    }

    fn map(&mut self, schemas: &'s Map<String, Value>, path: &str) -> HashMap<String, usize> {
        let number =
            |(name, schema): (&'s String, _)| (name.clone(), self.number(schema, join(path, name)));
        schemas.iter().map(number).collect()
    }
}

/// Reads a keyword that holds no subschema.
fn keyword(node: &mut Node, name: &str, value: &Value) {
    match name {
        "enum" | "const" => node.own += size(value),
        "required" | "dependentRequired" => node.own += LOOKUP_STEPS * size(value),
        "pattern" => node.per_byte += value.as_str().map_or(0, pattern::states),
        "format" => node.per_byte += FORMAT_STEPS,
        "minLength" | "maxLength" => node.per_byte += 1,
        "uniqueItems" => node.distinct = value == &Value::Bool(true),
        _ => {}
    }
}

/// The values and bytes of a document.
pub(super) fn size(value: &Value) -> u64 {
    let text = |text: &str| text.len() as u64 / 8;
    match value {
        Value::Array(items) => 1 + items.iter().map(size).sum::<u64>(),
        Value::Object(members) => {
            1 + members.iter().map(|(name, value)| 1 + text(name) + size(value)).sum::<u64>()
        }
        Value::String(string) => 1 + text(string),
        _ => 1,
    }
}

/// The value that a reference within the document names.
pub(super) fn target<'s>(root: &'s Value, reference: &str) -> Option<&'s Value> {
    let pointer = crate::route::decode(reference.strip_prefix('#')?)?;
    root.pointer(&pointer)
}

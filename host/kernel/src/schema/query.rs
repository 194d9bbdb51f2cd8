//! Query strings: decoded into pairs, read by a schema, refused where they say more than the schema
//! knows.

use serde_json::{Map, Value};

use super::{Schema, graph};
use crate::fault::Fault;
use crate::limits::{QUERY_BYTES_MAX, QUERY_PAIRS_MAX};
use crate::route::decode;

/// Decodes a query string (`application/x-www-form-urlencoded`: a plus is a space) into its pairs.
///
/// # Errors
/// If it is too long or not percent-encoded UTF-8.
pub fn parse_query(raw: &str) -> Result<Vec<(String, String)>, Fault> {
    if raw.len() > QUERY_BYTES_MAX {
        return Err(Fault::new("query", format!("must be at most {QUERY_BYTES_MAX} bytes")));
    }
    let part = |text: &str| {
        let text = decode(&text.replace('+', " ")).filter(|text| !text.contains('\0'));
        text.ok_or_else(|| Fault::new("query", "must be percent-encoded UTF-8 without NUL"))
    };
    let mut pairs = Vec::new();
    for pair in raw.split('&').filter(|pair| !pair.is_empty()) {
        if pairs.len() == QUERY_PAIRS_MAX {
            return Err(Fault::new(
                "query",
                format!("must have at most {QUERY_PAIRS_MAX} parameters"),
            ));
        }
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        pairs.push((part(name)?, part(value)?));
    }
    Ok(pairs)
}

/// Reads the pairs of a query by a schema: each value as its property's type says, defaults filled
/// in, all of it validated. Without a schema no parameter is known; `words` are read elsewhere, and
/// named among what is known. An array is given by repeating its parameter; anything else stands
/// once.
///
/// # Errors
/// Every unknown, repeated or ill-typed parameter, and every violation of the schema.
pub fn coerce_query(
    schema: Option<&Schema>,
    pairs: &[(String, String)],
    words: &[&str],
) -> Result<Value, Vec<Fault>> {
    let none = Value::Bool(false);
    let source = schema.map_or(&none, Schema::source);
    let properties = source.get("properties").and_then(Value::as_object);
    let mut object = Map::new();
    let mut faults = Vec::new();
    for (name, text) in pairs {
        let Some(property) = properties.and_then(|properties| properties.get(name)) else {
            let name: String = name.chars().take(64).collect();
            faults.push(Fault::new(
                name,
                format!("is not a known query parameter{}", names_known(properties, words)),
            ));
            continue;
        };
        let types = Types::of(source, property, 0);
        if types.array {
            let item = resolve(source, property).get("items").unwrap_or(&Value::Null);
            let value = Types::of(source, item, 0).read(text);
            match object.entry(name.clone()).or_insert_with(|| Value::Array(Vec::new())) {
                Value::Array(items) => items.push(value),
                other => *other = value,
            }
        } else if object.insert(name.clone(), types.read(text)).is_some() {
            faults.push(Fault::new(name, "must be given once"));
        }
    }
    for (name, property) in properties.into_iter().flatten() {
        if let Some(default) = property.get("default").filter(|default| !default.is_null()) {
            object.entry(name.clone()).or_insert_with(|| default.clone());
        }
    }
    let object = Value::Object(object);
    let checked = schema.map(|schema| {
        schema.validate_quickly(&object).unwrap_or_else(|| {
            Err(vec![Fault::new("query", "takes too long to check; ask for less at once")])
        })
    });
    if let Some(Err(violations)) = checked {
        // A parameter that is already known to be wrong is not reported twice.
        faults.extend(
            violations
                .into_iter()
                .filter(|fault| !faults.iter().any(|other| other.path == fault.path))
                .collect::<Vec<_>>(),
        );
    }
    if faults.is_empty() { Ok(object) } else { Err(faults) }
}

fn names_known(properties: Option<&Map<String, Value>>, words: &[&str]) -> String {
    let own = properties
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str())
        .filter(|name| !words.contains(name));
    let names: Vec<&str> = own.chain(words.iter().copied()).take(20).collect();
    if names.is_empty() {
        "; this operation takes none".into()
    } else {
        format!("; known are {}", names.join(", "))
    }
}

/// The types that a property takes.
#[derive(Clone, Copy, Debug, Default)]
struct Types {
    integer: bool,
    number: bool,
    boolean: bool,
    array: bool,
    string: bool,
}

impl Types {
    /// Collects the types of a schema: its own, those behind a reference, and those of its
    /// branches.
    fn of(root: &Value, schema: &Value, depth: u8) -> Self {
        let schema = resolve(root, schema);
        let mut types = Self::default();
        let named = schema.get("type");
        let names = named
            .into_iter()
            .flat_map(|named| named.as_array().map_or(std::slice::from_ref(named), Vec::as_slice));
        for name in names.filter_map(Value::as_str) {
            match name {
                "integer" => types.integer = true,
                "number" => types.number = true,
                "boolean" => types.boolean = true,
                "array" => types.array = true,
                "string" => types.string = true,
                _ => {}
            }
        }
        let branches =
            ["anyOf", "oneOf", "allOf"].into_iter().filter_map(|name| schema.get(name)?.as_array());
        for branch in branches.flatten().filter(|_| depth < 8) {
            let other = Self::of(root, branch, depth + 1);
            types.integer |= other.integer;
            types.number |= other.number;
            types.boolean |= other.boolean;
            types.array |= other.array;
            types.string |= other.string;
        }
        types
    }

    /// Reads a text as the first type that fits; what fits none stays a text, which validation then
    /// refuses by name.
    fn read(self, text: &str) -> Value {
        // Only plain decimal: "+1", "1_000" and " 1" are texts.
        let plain = text.bytes().all(|b| b.is_ascii_digit() || b"-.eE+".contains(&b))
            && !text.starts_with('+');
        if self.integer
            && plain
            && let Ok(integer) = text.parse::<i64>()
        {
            return integer.into();
        }
        if self.number
            && plain
            && let Some(number) = text.parse::<f64>().ok().and_then(serde_json::Number::from_f64)
        {
            return Value::Number(number);
        }
        match text {
            "true" if self.boolean => Value::Bool(true),
            "false" if self.boolean => Value::Bool(false),
            _ => text.into(),
        }
    }
}

/// Follows local references, a bounded number of times.
fn resolve<'s>(root: &'s Value, schema: &'s Value) -> &'s Value {
    let mut schema = schema;
    for _ in 0..8 {
        match schema
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|reference| graph::target(root, reference))
        {
            Some(next) => schema = next,
            None => break,
        }
    }
    schema
}

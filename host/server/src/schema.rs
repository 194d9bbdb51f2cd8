//! JSON Schemas (2020-12) of the host's own bodies, queries and answers, made of their types:
//! self-contained, closed, and without titles.
//!
//! An enumeration is one list of its values, so that a fault names them all. A member is nullable
//! where its type is an `Option`, in a request too; [`Optional`] is one that may be absent alone.

use std::borrow::Cow;

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer};
use serde_json::{Map, Value};

/// Marks the schema of an [`Optional`] until its object is tidied.
const OPTIONAL: &str = "x-optional";

/// The schema of what a request holds.
pub fn of_request<T: JsonSchema>() -> Value {
    generate::<T>(SchemaSettings::draft2020_12())
}

/// The schema of what an answer holds.
pub fn of_answer<T: JsonSchema>() -> Value {
    generate::<T>(SchemaSettings::draft2020_12().for_serialize())
}

fn generate<T: JsonSchema>(mut settings: SchemaSettings) -> Value {
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    tidy(&mut schema);
    schema
}

/// A member of a request that may be absent, and is never null.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Optional<T>(pub Option<T>);

impl<T> Default for Optional<T> {
    fn default() -> Self {
        Self(None)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Optional<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Option::deserialize(from).map(Self)
    }
}

impl<T: JsonSchema> JsonSchema for Optional<T> {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> Cow<'static, str> {
        format!("Optional_{}", T::schema_name()).into()
    }
    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let mut schema = generator.subschema_for::<T>();
        schema.insert(OPTIONAL.into(), true.into());
        schema
    }
}

fn tidy(schema: &mut Value) {
    // Anything at all, in the one of its two spellings that takes a description.
    if *schema == Value::Bool(true) {
        *schema = Value::Object(Map::new());
    }
    let Value::Object(members) = schema else { return };
    members.remove("title");
    if members.get("format").and_then(Value::as_str).is_some_and(is_of_numbers) {
        members.remove("format");
    }
    if members.get("default").is_some_and(Value::is_null) {
        members.remove("default");
    }
    if members.get("additionalProperties") == Some(&Value::Bool(true)) {
        members.remove("additionalProperties");
    } else if members.contains_key("properties") {
        members.entry("additionalProperties").or_insert(Value::Bool(false));
    }
    for (word, value) in members.iter_mut() {
        match (word.as_str(), value) {
            ("properties" | "$defs" | "patternProperties", Value::Object(properties)) => {
                properties.values_mut().for_each(tidy);
            }
            ("allOf" | "anyOf" | "oneOf" | "prefixItems", Value::Array(branches)) => {
                branches.iter_mut().for_each(tidy);
            }
            ("items" | "additionalProperties" | "not", value) if !value.is_boolean() => tidy(value),
            ("items", value) => tidy(value),
            _ => {}
        }
    }
    loosen_required(members);
    widen(members);
    enumerate(members);
}

/// Formats of OpenAPI that say which machine number is meant; bounds say more.
fn is_of_numbers(format: &str) -> bool {
    ["int", "uint", "double", "float"].iter().any(|known| format.starts_with(known))
}

/// Takes the members that may be absent from those that are required.
fn loosen_required(members: &mut Map<String, Value>) {
    let mut optional = Vec::new();
    if let Some(Value::Object(properties)) = members.get_mut("properties") {
        for (name, property) in properties.iter_mut() {
            let marked = property.as_object_mut().and_then(|property| property.remove(OPTIONAL));
            optional.extend(marked.map(|_| Value::String(name.clone())));
        }
    }
    if let Some(Value::Array(required)) = members.get_mut("required") {
        required.retain(|name| !optional.contains(name));
    }
}

/// Writes "this or null" as this with a wider type, so that a fault within is named by its own path.
fn widen(members: &mut Map<String, Value>) {
    let Some(Value::Array(branches)) = members.get("anyOf") else { return };
    let [Value::Object(own), null] = branches.as_slice() else { return };
    if null.get("type").and_then(Value::as_str) != Some("null") {
        return;
    }
    let mut own = own.clone();
    if let Some(Value::Array(values)) = own.get_mut("enum") {
        values.push(Value::Null);
    } else if let Some(kind @ Value::String(_)) = own.get_mut("type") {
        *kind = Value::Array(vec![kind.take(), "null".into()]);
    } else {
        return;
    }
    members.remove("anyOf");
    for (word, value) in own {
        members.entry(word).or_insert(value);
    }
}

/// Writes the constants of an enumeration as one list, whose values are of their type anyway.
fn enumerate(members: &mut Map<String, Value>) {
    if members.contains_key("enum") {
        members.remove("type");
    }
    let Some(Value::Array(branches)) = members.get("oneOf") else { return };
    let mut values = Vec::new();
    for branch in branches {
        match (branch.get("const"), branch.get("enum")) {
            (Some(value), _) => values.push(value.clone()),
            (None, Some(Value::Array(listed))) => values.extend(listed.iter().cloned()),
            _ => return,
        }
    }
    members.remove("oneOf");
    members.insert("enum".into(), Value::Array(values));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Deserialize, JsonSchema)]
    #[serde(rename_all = "snake_case")]
    enum Colour {
        /// As grass.
        Green,
        /// As the sky.
        LightBlue,
        Red,
    }

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is read")]
    struct Inner {
        deep: bool,
    }

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is read")]
    struct Sent {
        #[schemars(range(min = 1, max = 10))]
        count: u32,
        note: Option<String>,
        #[schemars(length(min = 1, max = 9))]
        name: Optional<String>,
        colour: Option<Colour>,
        favourite: Optional<Colour>,
        inner: Option<Inner>,
        any: Value,
        map: Map<String, Value>,
    }

    #[test]
    fn a_request_is_closed_and_tells_what_may_be_absent_from_what_may_be_null() {
        let schema = of_request::<Sent>();
        assert_eq!(schema["additionalProperties"], false);
        assert_eq!(schema["required"], json!(["count", "any", "map"]));
        let properties = &schema["properties"];
        assert_eq!(
            *properties,
            json!({
                "count": {"type": "integer", "minimum": 1, "maximum": 10},
                "note": {"type": ["string", "null"]},
                "name": {"type": "string", "minLength": 1, "maxLength": 9},
                "colour": {"enum": ["red", "green", "light_blue", null]},
                "favourite": {"enum": ["red", "green", "light_blue"]},
                "inner": {
                    "type": ["object", "null"], "properties": {"deep": {"type": "boolean"}}, "required": ["deep"],
                    "additionalProperties": false,
                },
                "any": {},
                "map": {"type": "object"},
            })
        );
    }

    #[test]
    fn what_is_optional_may_be_absent_to_its_reader_too() {
        let sent: Sent = serde_json::from_value(json!({"count": 1, "any": 1, "map": {}})).unwrap();
        assert_eq!((sent.name, sent.note), (Optional(None), None));
    }
}

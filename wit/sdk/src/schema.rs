//! JSON Schemas (2020-12) of the guest's own structs, as the manifest carries them: self-contained
//! and without titles.
//!
//! A request's object is closed unless its struct keeps the rest (`#[serde(flatten)]` on a map): a
//! misspelt field is refused by name instead of being ignored. Made in `describe` only; serving a
//! request costs nothing of it.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

/// The schema of what the primitive reads.
pub(crate) fn of_request<T: JsonSchema>() -> Value {
    generate::<T>(true)
}

/// The schema of what the primitive writes: readers tolerate members that a newer version adds.
pub(crate) fn of_answer<T: JsonSchema>() -> Value {
    generate::<T>(false)
}

fn generate<T: JsonSchema>(request: bool) -> Value {
    let mut settings = SchemaSettings::draft2020_12();
    settings.inline_subschemas = true;
    settings.meta_schema = None;
    if !request {
        settings = settings.for_serialize();
    }
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    tidy(&mut schema, request);
    schema
}

fn tidy(schema: &mut Value, close: bool) {
    let Value::Object(members) = schema else { return };
    members.remove("title");
    if members
        .get("format")
        .and_then(Value::as_str)
        .is_some_and(|format| format.starts_with("uint"))
    {
        members.remove("format");
    }
    if close && members.contains_key("properties") && !members.contains_key("additionalProperties")
    {
        members.insert("additionalProperties".into(), Value::Bool(false));
    }
    for (word, value) in members.iter_mut() {
        match word.as_str() {
            "properties" | "$defs" | "patternProperties" => each(value.as_object_mut(), close),
            "allOf" | "anyOf" | "oneOf" | "prefixItems" => {
                value.as_array_mut().into_iter().flatten().for_each(|branch| tidy(branch, close));
            }
            "items" | "additionalProperties" | "not" => tidy(value, close),
            _ => {}
        }
    }
}

fn each(properties: Option<&mut Map<String, Value>>, close: bool) {
    properties.into_iter().flat_map(Map::values_mut).for_each(|schema| tidy(schema, close));
}

#[cfg(test)]
mod tests {
    use schemars::JsonSchema;
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Deserialize, JsonSchema)]
    #[expect(dead_code, reason = "only its schema is read")]
    struct Sent {
        /// How many.
        #[schemars(range(min = 1, max = 10))]
        count: u32,
        title: Option<String>,
    }

    #[test]
    fn a_request_is_closed_and_an_answer_is_open() {
        let closed = super::of_request::<Sent>();
        assert_eq!(closed["additionalProperties"], json!(false));
        assert_eq!(
            closed["properties"],
            json!({"count": {"type": "integer", "minimum": 1, "maximum": 10, "description": "How many."}, "title": {"type": ["string", "null"]}}),
        );
        assert!(super::of_answer::<Sent>().get("additionalProperties").is_none());
    }
}

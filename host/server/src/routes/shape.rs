//! The JSON Schemas that the account routes share, and the shape of their lists.

use charter_kernel::fault::Fault;
use charter_kernel::refusal::Refusal;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::pipeline::page::Page;
use crate::records::name;

/// The longest page of a list.
pub const PAGE_MAX: u32 = charter_kernel::limits::PAGE_LIMIT_MAX;

/// A name that people give.
pub fn name() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": name::CHARACTERS_MAX})
}

/// An id.
pub fn id() -> Value {
    json!({"type": "string", "format": "uuid", "minLength": 1, "maxLength": 64})
}

/// A moment.
pub fn instant() -> Value {
    json!({"type": "string", "format": "date-time"})
}

/// An id in a request: whatever it is, what it does not name is absent.
pub fn reference() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 64})
}

/// The same, or null. The type is widened, rather than an alternative added, so that a fault within is named by its own path.
pub fn nullable(schema: &Value) -> Value {
    let mut schema = schema.clone();
    schema["type"] = json!([schema["type"], "null"]);
    schema
}

/// A closed object. Members are required unless their name ends in `?`.
pub fn object(members: &[(&str, Value)]) -> Value {
    let mut properties = serde_json::Map::new();
    let mut required = Vec::new();
    for (name, schema) in members {
        match name.strip_suffix('?') {
            Some(name) => properties.insert(name.into(), schema.clone()),
            None => {
                required.push(*name);
                properties.insert((*name).into(), schema.clone())
            }
        };
    }
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// What a deletion answers.
pub fn deleted() -> Value {
    object(&[("id", id()), ("deleted", json!({"const": true}))])
}

/// What is answered where the answer must not tell whether anything happened.
pub fn taken() -> Value {
    object(&[])
}

/// A page of a list.
pub fn page(noun: &str, item: &Value) -> Value {
    let number = json!({"type": "integer", "minimum": 0});
    object(&[
        (noun, json!({"type": "array", "items": item})),
        ("limit", number.clone()),
        ("offset", number),
        ("has_more", json!({"type": "boolean"})),
    ])
}

/// The answer of a list.
pub fn listed(noun: &str, items: Vec<Value>, page: (u32, u32), more: bool) -> Value {
    json!({noun: items, "limit": page.0, "offset": page.1, "has_more": more})
}

/// A page of a list that goes on at a cursor.
pub fn cursor_page(noun: &str, item: &Value) -> Value {
    object(&[
        (noun, json!({"type": "array", "items": item})),
        ("limit", json!({"type": "integer", "minimum": 0})),
        ("has_more", json!({"type": "boolean"})),
        ("next_cursor", json!({"type": ["string", "null"]})),
    ])
}

/// The answer of such a list: `next` is the position of the next page.
pub fn listed_at(noun: &str, items: Vec<Value>, page: &Page, next: Option<&str>) -> Value {
    let cursor = next.and_then(|position| page.cursor(position));
    json!({noun: items, "limit": page.limit, "has_more": next.is_some(), "next_cursor": cursor})
}

/// Adds what is wrong with a field, if anything.
pub fn check(faults: &mut Vec<Fault>, field: &str, fault: Option<&'static str>) {
    faults.extend(fault.map(|message| Fault::new(field, message)));
}

/// Refuses if anything was wrong.
///
/// # Errors
/// `invalid_input` with all of it.
pub fn checked(faults: Vec<Fault>) -> Result<(), Refusal> {
    if faults.is_empty() { Ok(()) } else { Err(Refusal::faults(faults)) }
}

/// Reads a member of a PATCH that tells "absent" from "null": `#[serde(default, deserialize_with = "present")]`.
///
/// # Errors
/// When the value does not fit.
pub fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(from: D) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(from).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_closed_and_tells_required_members_from_optional_ones() {
        let schema = object(&[("name", name()), ("note?", nullable(&name()))]);
        assert_eq!(schema["required"], json!(["name"]));
        assert_eq!(schema["additionalProperties"], false);
        assert_eq!(schema["properties"]["note"]["type"], json!(["string", "null"]));
    }
}

//! The JSON Schemas that the account routes share, and the shape of their lists.

use charter_kernel::fault::Fault;
use charter_kernel::refusal::Refusal;
use serde::{Deserialize, Deserializer};
use serde_json::{Value, json};

use crate::directory::password;
use crate::pipeline::page::Page;
use crate::records::{account, name};

/// The longest page of a list.
pub const PAGE_MAX: u32 = charter_kernel::limits::PAGE_LIMIT_MAX;

/// A name that people give; [`name::fault`] decides.
pub fn name() -> Value {
    visible(name::CHARACTERS_MAX)
}

/// One line of text that shows something.
pub fn visible(characters_max: usize) -> Value {
    json!({
        "type": "string", "minLength": 1, "maxLength": characters_max,
        "pattern": r"^\P{Cc}*[^\p{Cc}\s]\P{Cc}*$", "x-words": "must be one line of text, and not blank",
    })
}

/// An e-mail address that is kept; [`account::email_fault`] decides. The format of the name would
/// refuse those that are not ASCII.
pub fn email() -> Value {
    const LABEL: &str = r"[\p{Alphabetic}\p{N}]([\p{Alphabetic}\p{N}-]*[\p{Alphabetic}\p{N}])?";
    json!({
        "type": "string", "minLength": 1, "maxLength": account::EMAIL_BYTES_MAX,
        "pattern": format!(r"^\s*[^\s\p{{Cc}}@]{{1,64}}@{LABEL}(\.{LABEL})+\s*$"), "x-words": "must be an e-mail address",
    })
}

/// An e-mail address that is looked for: what nobody has is nobody's.
pub fn known_email() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": account::EMAIL_BYTES_MAX})
}

/// A password that is set; [`password::fault`] decides.
pub fn new_password() -> Value {
    json!({"type": "string", "minLength": password::PASSWORD_CHARACTERS_MIN, "maxLength": password::PASSWORD_BYTES_MAX})
}

/// A password that is tried.
pub fn tried_password() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": password::PASSWORD_BYTES_MAX})
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

/// The same, or null. The type is widened, rather than an alternative added, so that a fault within
/// is named by its own path.
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

/// The highest cap: its micro-dollars still fit a 64-bit integer.
const CAP_CENTS_MAX: u64 = 900_000_000_000_000;

/// A spend cap over a period.
pub fn budget() -> Value {
    object(&[
        ("cap_cents", json!({"type": "integer", "minimum": 1, "maximum": CAP_CENTS_MAX})),
        ("period", json!({"enum": ["day", "week", "month", "year", "total"]})),
        ("hard?", json!({"type": "boolean", "default": true})),
    ])
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

/// Reads a member of a PATCH that tells "absent" from "null": `#[serde(default, deserialize_with =
/// "present")]`.
///
/// # Errors
/// When the value does not fit.
pub fn present<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
    from: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(from).map(Some)
}

#[cfg(test)]
mod tests {
    use charter_kernel::schema::Schema;

    use super::*;

    fn admits(schema: &Value, text: &str) -> bool {
        Schema::compile(schema).unwrap().validate(&json!(text)).is_ok()
    }

    #[test]
    fn a_schema_refuses_what_the_rule_behind_it_refuses_and_nothing_else() {
        let long = |n: usize| "x".repeat(n);
        for text in [
            "Acme, Inc.",
            "Ünï",
            " a ",
            "",
            "  ",
            "two\nlines",
            "a\u{0}",
            "\u{85}",
            &long(128),
            &long(129),
        ] {
            assert_eq!(admits(&name(), text), name::fault(text).is_none(), "{text:?}");
        }
        let far = format!("a@{}.com", long(300));
        for text in [
            "ann@example.com",
            "ann+tag@mail.example.co.uk",
            "änn@exämple.de",
            "a@b.co",
            "",
            "ann",
            "ann@",
            "@example.com",
            "ann@example",
            "an n@example.com",
            "a@-x.com",
            "a@x-.com",
            "a@b..c",
            "a@b@c.com",
            "some\u{0}one@example.com",
            &far,
        ] {
            assert_eq!(admits(&email(), text), account::email_fault(text).is_none(), "{text:?}");
        }
        assert!(admits(&email(), " ann@example.com "), "it is trimmed");
        for text in ["correct horse", "pässwörd", "short", "", &long(1025)] {
            let fits = password::fault(text, "a@b.co").is_none();
            assert_eq!(admits(&new_password(), text), fits, "{text:?}");
        }
    }

    #[test]
    fn a_fault_of_a_pattern_reads_as_a_sentence() {
        let faults = Schema::compile(&object(&[("email", email()), ("name", name())])).unwrap();
        let faults = faults.validate(&json!({"email": "nobody@x", "name": " "})).unwrap_err();
        let words: Vec<_> = faults.iter().map(ToString::to_string).collect();
        assert_eq!(
            words,
            ["email must be an e-mail address", "name must be one line of text, and not blank"]
        );
    }

    #[test]
    fn an_object_is_closed_and_tells_required_members_from_optional_ones() {
        let schema = object(&[("name", name()), ("note?", nullable(&name()))]);
        assert_eq!(schema["required"], json!(["name"]));
        assert_eq!(schema["additionalProperties"], false);
        assert_eq!(schema["properties"]["note"]["type"], json!(["string", "null"]));
    }
}

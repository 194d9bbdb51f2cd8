//! JSON text from outside, parsed with care: UTF-8, bounded depth, no member twice.
//!
//! Two readers of one document must read the same thing. A member that stands twice is where they
//! differ (the host checks the last, a guest takes the first), so it is refused.

use std::fmt;

use serde::Deserializer as _;
use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use crate::fault::Fault;
use crate::limits::JSON_DEPTH_MAX;

/// Parses a JSON document.
///
/// # Errors
/// The fault of the bytes, at the document's own path (empty).
pub fn parse_json(bytes: &[u8]) -> Result<Value, Fault> {
    let text = std::str::from_utf8(bytes)
        .map_err(|_| Fault::new("", "The JSON document must be UTF-8."))?;
    if depth(text) > JSON_DEPTH_MAX {
        return Err(Fault::new(
            "",
            format!("The JSON document must nest at most {JSON_DEPTH_MAX} arrays and objects."),
        ));
    }
    let mut reader = serde_json::Deserializer::from_str(text);
    let value = reader.deserialize_any(Document).and_then(|value| reader.end().map(|()| value));
    value.map_err(|error| Fault::new("", format!("The document is not valid JSON: {error}.")))
}

/// How deep a text nests, without parsing it. Of a text that is no JSON the number is an upper
/// bound.
fn depth(text: &str) -> usize {
    let (mut now, mut most, mut in_string, mut escaped) = (0_usize, 0, false, false);
    for byte in text.bytes() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => {
                now += 1;
                most = most.max(now);
            }
            b']' | b'}' if !in_string => now = now.saturating_sub(1),
            _ => {}
        }
    }
    most
}

/// Builds a [`Value`], refusing members that stand twice.
struct Document;

impl<'de> DeserializeSeed<'de> for Document {
    type Value = Value;
    fn deserialize<D: serde::Deserializer<'de>>(self, from: D) -> Result<Value, D::Error> {
        from.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Document {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }
    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }
    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }
    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }
    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value).map(Value::Number).ok_or_else(|| E::custom("number out of range"))
    }
    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }
    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = from.next_element_seed(Document)? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }
    fn visit_map<A: MapAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut members = Map::new();
        while let Some(name) = from.next_key::<String>()? {
            if members.contains_key(&name) {
                let shown: String = name.chars().take(64).collect();
                return Err(A::Error::custom(format!("the member {shown:?} stands twice")));
            }
            let value = from.next_value_seed(Document)?;
            members.insert(name, value);
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn nesting_is_bounded_before_parsing() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse_json(nested(JSON_DEPTH_MAX).as_bytes()).is_ok());
        let fault = parse_json(nested(JSON_DEPTH_MAX + 1).as_bytes()).unwrap_err();
        assert!(fault.message.contains("at most 120"), "{fault}");
        assert!(parse_json("[".repeat(1_000_000).as_bytes()).is_err());
        let text = format!("\"{}\\\"{}\"", "[".repeat(500), "{".repeat(500));
        assert!(parse_json(text.as_bytes()).is_ok(), "brackets in a string do not nest");
    }

    #[test]
    fn a_member_that_stands_twice_is_refused() {
        for text in [r#"{"a":1,"a":1}"#, r#"[{"b":{"a":1,"\u0061":2}}]"#] {
            assert!(
                parse_json(text.as_bytes()).unwrap_err().message.contains("\"a\" stands twice"),
                "{text}"
            );
        }
        assert!(parse_json(br#"{"a":{"a":1},"b":{"a":1}}"#).is_ok());
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for bytes in [
            &b""[..],
            b"{",
            b"{} x",
            b"\xff",
            b"\"\xed\xa0\x80\"",
            b"nan",
            b"1e999",
            b"\xef\xbb\xbf{}",
            b"[1,]",
            b"\"\\ud800\"",
        ] {
            assert!(parse_json(bytes).is_err(), "{bytes:?}");
        }
        let raw = json!({"$serde_json::private::RawValue": "[1]"});
        assert_eq!(
            parse_json(raw.to_string().as_bytes()),
            Ok(raw),
            "no member name has a meaning of its own"
        );
    }

    proptest! {
        #[test]
        fn no_bytes_panic_and_the_depth_is_as_stated(bytes in "([\\[\\]{}:,\"\\\\0-9a]|\\PC){0,200}") {
            if let Ok(value) = parse_json(bytes.as_bytes()) {
                fn levels(value: &Value) -> usize {
                    match value {
                        Value::Array(items) => 1 + items.iter().map(levels).max().unwrap_or(0),
                        Value::Object(members) => 1 + members.values().map(levels).max().unwrap_or(0),
                        _ => 0,
                    }
                }
                prop_assert_eq!(levels(&value), depth(&bytes));
            }
        }

        #[test]
        fn it_agrees_with_the_plain_parser(text in "[\\[\\]{}:,\"0-9a-c ]{0,40}") {
            if let Ok(value) = parse_json(text.as_bytes()) {
                prop_assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), value);
            }
        }
    }
}

//! JSON text from outside, parsed with care: UTF-8, bounded depth, no member twice.
//!
//! Two readers of one document must read the same thing. A member that stands twice is where they
//! differ (the host checks the last, a guest takes the first), so it is refused. So are names that
//! serde_json itself gives a meaning to: who reads a plain value finds what stands behind them in
//! the place of the object.

use std::fmt;

use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize as _, Deserializer as _};
use serde_json::{Map, Number, Value};

use crate::fault::Fault;
use crate::limits::JSON_DEPTH_MAX;

/// The beginning of the names that serde_json gives a meaning to.
const RESERVED: &str = "$serde_json::private::";
/// Arrays and objects that an answer nests beyond those of a document: it wraps some.
const ANSWER_DEPTH: usize = 4;

/// Checks the JSON text of an answer, which goes out as it is.
///
/// # Errors
/// The fault of the text.
pub fn check_json(text: &str) -> Result<(), String> {
    if depth(text) > JSON_DEPTH_MAX + ANSWER_DEPTH {
        return Err(format!("it nests more than {} deep", JSON_DEPTH_MAX + ANSWER_DEPTH));
    }
    // A name that is spelled in escapes is found only by whoever reads it.
    let may_be_reserved = text.contains(RESERVED) || text.contains("\\u");
    let mut reader = serde_json::Deserializer::from_str(text);
    let checked = match may_be_reserved {
        true => reader.deserialize_any(Document { kept: false }).map(drop),
        false => IgnoredAny::deserialize(&mut reader).map(drop),
    };
    checked.and_then(|()| reader.end()).map_err(|error| error.to_string())
}

/// Whether serde_json gives a member's name a meaning.
pub(crate) fn is_reserved(name: &str) -> bool {
    name.starts_with(RESERVED)
}

fn admit_name<E: serde::de::Error>(name: &str) -> Result<(), E> {
    if is_reserved(name) {
        return Err(E::custom(format!(
            "a member's name begins with `{RESERVED}`, which is reserved"
        )));
    }
    Ok(())
}

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
    let value = reader
        .deserialize_any(Document { kept: true })
        .and_then(|value| reader.end().map(|()| value));
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

/// Reads a document, refusing reserved names.
#[derive(Clone, Copy)]
struct Document {
    /// Whether it is built, and members that stand twice are refused; else it is read as null.
    kept: bool,
}

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
        Ok(if self.kept { Value::String(value.to_owned()) } else { Value::Null })
    }
    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }
    fn visit_seq<A: SeqAccess<'de>>(self, mut from: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = from.next_element_seed(self)? {
            if self.kept {
                items.push(item);
            }
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
            admit_name(&name)?;
            let value = from.next_value_seed(self)?;
            if self.kept {
                members.insert(name, value);
            }
        }
        Ok(Value::Object(members))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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
    }

    #[test]
    fn what_a_plain_reader_takes_for_something_else_is_refused() {
        for text in [
            r#"{"$serde_json::private::RawValue":"[1]"}"#,
            r#"{"a":[{"b":0,"$serde_json::private::RawValue":"{"}]}"#,
            r#"{"\u0024serde_json::private::RawValue":"[1]"}"#,
            r#"{"$serde_json::\u0070rivate::Number":"1"}"#,
        ] {
            let fault = parse_json(text.as_bytes()).unwrap_err();
            assert!(fault.message.contains("is reserved"), "{text}: {fault}");
            assert!(check_json(text).unwrap_err().contains("is reserved"), "{text}");
        }
        for text in [r#"{"$serde_json":1,"a":"$serde_json::private::RawValue"}"#, r#"["\u0024"]"#] {
            assert!(parse_json(text.as_bytes()).is_ok(), "{text}");
            assert_eq!(check_json(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn an_answer_is_json_that_the_host_can_keep_within_its_own() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(check_json(&nested(JSON_DEPTH_MAX + ANSWER_DEPTH)), Ok(()));
        assert!(check_json(&nested(JSON_DEPTH_MAX + ANSWER_DEPTH + 1)).is_err());
        for text in ["", "{", "{} x", "[1,]", r#"["\u00"]"#] {
            assert!(check_json(text).is_err(), "{text:?}");
        }
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

//! How values of a document become index entries, claims, searchable text and a lease group.
//!
//! Encodings keep order: comparing two encoded texts byte by byte gives what comparing the values
//! gives, so a database needs one text index for all kinds. Integers and instants are sixteen
//! hexadecimal digits with the sign bit turned over.

use serde_json::Value;

use crate::fault::Fault;
use crate::limits::{INDEX_ENTRIES_MAX, KEY_BYTES_MAX, SEARCH_TEXT_BYTES_MAX};
use crate::manifest::{Collection, Index, IndexType};
use crate::time::Instant;

/// Everything that the store keeps beside a document's body.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    /// Field and encoded value, sorted; an array has one entry an element.
    pub index: Vec<(String, String)>,
    /// Field and encoded value, sorted.
    pub unique: Vec<(String, String)>,
    /// The text that full-text search reads; absent where the collection declares nothing
    /// searchable, or all of it is empty.
    pub text: Option<String>,
    /// The lease group, where the collection is leased.
    pub group: Option<String>,
}

/// Extracts what a collection declares from a document's body.
///
/// # Errors
/// The first value that cannot be indexed: of the wrong type, or too long.
pub fn entries(collection: &Collection, body: &Value) -> Result<Entries, Fault> {
    let mut entries = Entries::default();
    for index in &collection.indexes {
        for value in values(body, &index.field)? {
            entries.index.push((
                index.field.clone(),
                encode_value(index.kind, value).map_err(|m| Fault::new(&index.field, m))?,
            ));
        }
    }
    for field in &collection.unique {
        if let Some(value) = present(body, field) {
            let kind = type_of(collection, field).unwrap_or_default();
            let encoded = encode_value(kind, value).map_err(|m| Fault::new(field, m))?;
            entries.unique.push((field.clone(), encoded));
        }
    }
    entries.index.sort();
    entries.index.dedup();
    entries.unique.sort();
    entries.text = searchable(&collection.searchable, body);
    if let Some(leased) = &collection.leased {
        let group = present(body, &leased.by).and_then(Value::as_str);
        let group = group.ok_or_else(|| {
            Fault::new(&leased.by, "must be a text: documents are handed out by it")
        })?;
        entries.group = Some(check_length(group).map_err(|m| Fault::new(&leased.by, m))?);
    }
    Ok(entries)
}

/// Declarations of a collection by other live versions of a primitive that this one lacks. All
/// versions share their documents, so what one of them writes, each of them finds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Further {
    indexes: Vec<Index>,
    searchable: Vec<String>,
}

impl Further {
    /// The declarations of `others` beyond `own`.
    pub fn of<'c>(own: &Collection, others: impl IntoIterator<Item = &'c Collection>) -> Self {
        let mut further = Self::default();
        for other in others.into_iter().filter(|other| other.name == own.name) {
            for index in &other.indexes {
                let known = |known: &Index| known.field == index.field;
                if !own.indexes.iter().any(known) && !further.indexes.iter().any(known) {
                    further.indexes.push(index.clone());
                }
            }
            for field in &other.searchable {
                if !own.searchable.contains(field) && !further.searchable.contains(field) {
                    further.searchable.push(field.clone());
                }
            }
        }
        further
    }
}

/// The same as [`entries`], and what other live versions look for. A value that does not fit
/// another version's index is left out of it: this version's schema admits it, and the other's
/// never would have.
///
/// # Errors
/// As [`entries`].
pub fn entries_beside(
    collection: &Collection,
    further: &Further,
    body: &Value,
) -> Result<Entries, Fault> {
    let mut entries = entries(collection, body)?;
    for index in &further.indexes {
        let found = values(body, &index.field).unwrap_or_default();
        let encoded = found.into_iter().filter_map(|value| encode_value(index.kind, value).ok());
        entries.index.extend(encoded.map(|value| (index.field.clone(), value)));
    }
    entries.index.sort();
    entries.index.dedup();
    if !further.searchable.is_empty() {
        entries.text = searchable(collection.searchable.iter().chain(&further.searchable), body);
    }
    Ok(entries)
}

/// Encodes what a query compares an indexed field with: text as it is, an integer in decimal, an
/// instant as RFC 3339 or as milliseconds since the Unix epoch.
///
/// # Errors
/// A sentence that says what the index holds.
pub fn encode_text(kind: IndexType, text: &str) -> Result<String, &'static str> {
    match kind {
        IndexType::Text => check_length(text),
        IndexType::Integer => text.parse().map(encode_integer).map_err(|_| INTEGER),
        IndexType::Instant => {
            let at = text.parse().ok().or_else(|| Instant::parse(text).map(|at| at.0));
            at.map(encode_integer).ok_or(INSTANT)
        }
    }
}

/// Encodes what a lookup of a unique field asks for, as [`entries`] encoded it.
///
/// # Errors
/// A sentence that says what the field holds.
pub fn encode_unique(
    collection: &Collection,
    field: &str,
    text: &str,
) -> Result<String, &'static str> {
    encode_text(type_of(collection, field).unwrap_or_default(), text)
}

/// Sixteen hexadecimal digits whose byte order is the order of integers.
pub fn encode_integer(value: i64) -> String {
    format!("{:016x}", value.cast_unsigned() ^ (1 << 63))
}

const TEXT: &str =
    "must be a text, a boolean, or an array of them: the collection indexes it as text";
const INTEGER: &str = "must be an integer of 64 bits: the collection indexes it as integer";
const INSTANT: &str = "must be an RFC 3339 timestamp or milliseconds since 1970: the collection indexes it as instant";
const LONG: &str = "must be at most 512 bytes without NUL: the collection indexes it";

fn check_length(text: &str) -> Result<String, &'static str> {
    if text.len() > KEY_BYTES_MAX || text.contains('\0') { Err(LONG) } else { Ok(text.to_owned()) }
}

fn encode_value(kind: IndexType, value: &Value) -> Result<String, &'static str> {
    match (kind, value) {
        (IndexType::Text, Value::String(text)) => check_length(text),
        (IndexType::Text, Value::Bool(flag)) => Ok(flag.to_string()),
        (IndexType::Text, _) => Err(TEXT),
        (IndexType::Integer, value) => value.as_i64().map(encode_integer).ok_or(INTEGER),
        (IndexType::Instant, Value::String(text)) => {
            Instant::parse(text).map(|at| encode_integer(at.0)).ok_or(INSTANT)
        }
        (IndexType::Instant, value) => value.as_i64().map(encode_integer).ok_or(INSTANT),
    }
}

/// The member at a dotted field; `None` where it, or something on the way to it, is absent or null.
pub fn present<'v>(body: &'v Value, field: &str) -> Option<&'v Value> {
    field.split('.').try_fold(body, |value, name| value.get(name)).filter(|value| !value.is_null())
}

fn values<'v>(body: &'v Value, field: &str) -> Result<Vec<&'v Value>, Fault> {
    match present(body, field) {
        None => Ok(Vec::new()),
        Some(Value::Array(items)) if items.len() > INDEX_ENTRIES_MAX => Err(Fault::new(
            field,
            format!("must have at most {INDEX_ENTRIES_MAX} items: the collection indexes each"),
        )),
        Some(Value::Array(items)) => Ok(items.iter().collect()),
        Some(value) => Ok(vec![value]),
    }
}

/// How a field compares; a unique field that is not indexed is text.
fn type_of(collection: &Collection, field: &str) -> Option<IndexType> {
    collection.indexes.iter().find(|index| index.field == field).map(|index| index.kind)
}

fn searchable<'f>(fields: impl IntoIterator<Item = &'f String>, body: &Value) -> Option<String> {
    let mut text = String::new();
    for field in fields {
        if let Some(value) = present(body, field) {
            gather(value, &mut text);
        }
    }
    truncate(&mut text, SEARCH_TEXT_BYTES_MAX);
    (!text.is_empty()).then_some(text)
}

/// Texts and arrays of texts, one a line; NUL, which no database stores, is left out.
fn gather(value: &Value, text: &mut String) {
    match value {
        _ if text.len() > SEARCH_TEXT_BYTES_MAX => {}
        Value::String(part) => {
            if !text.is_empty() {
                text.push('\n');
            }
            text.extend(part.chars().filter(|c| *c != '\0'));
        }
        Value::Array(items) => items.iter().for_each(|item| gather(item, text)),
        _ => {}
    }
}

fn truncate(text: &mut String, bytes: usize) {
    if text.len() > bytes {
        let end = (0..=bytes).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
        text.truncate(end);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn collection(extra: Value) -> Collection {
        let mut declared = json!({"name": "notes"});
        declared.as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        serde_json::from_value(declared).unwrap()
    }

    #[test]
    fn whichever_version_writes_all_of_them_find() {
        let old = collection(json!({"indexes": [{"field": "state"}], "searchable": ["title"]}));
        let new = collection(json!({
            "indexes": [{"field": "state"}, {"field": "size", "type": "integer"}], "searchable": ["title", "note"]
        }));
        let other = Collection { name: "others".into(), ..new.clone() };
        let body = json!({"state": "open", "size": 7, "title": "T", "note": "n"});
        let by_new = entries_beside(&new, &Further::of(&new, [&old, &other]), &body).unwrap();
        assert_eq!(by_new, entries(&new, &body).unwrap(), "nothing is wider than the newer one");
        assert_eq!(
            entries_beside(&old, &Further::of(&old, [&new, &other]), &body).unwrap(),
            by_new
        );
        let odd = json!({"state": "open", "size": "seven", "title": "T"});
        let left = entries_beside(&old, &Further::of(&old, [&new]), &odd).unwrap();
        assert_eq!(
            left.index,
            [("state".to_owned(), "open".to_owned())],
            "the old version's schema admits it"
        );
        assert!(entries_beside(&new, &Further::default(), &odd).is_err());
    }

    #[test]
    fn declared_fields_become_entries() {
        let notes = collection(json!({
            "indexes": [{"field": "state"}, {"field": "meta.size", "type": "integer"}, {"field": "at", "type": "instant"}, {"field": "labels"}],
            "unique": ["slug"], "searchable": ["title", "tags"], "leased": {"by": "board"}
        }));
        let body = json!({"state": "open", "meta": {"size": -1}, "at": "1970-01-01T00:00:00.001Z", "labels": ["b", "a", "b"],
            "slug": "s", "title": "T", "tags": ["x", 1, "y"], "board": "b-1"});
        let entries = entries(&notes, &body).unwrap();
        let pairs: Vec<(&str, &str)> =
            entries.index.iter().map(|(f, v)| (f.as_str(), v.as_str())).collect();
        let expected = [
            ("at", "8000000000000001"),
            ("labels", "a"),
            ("labels", "b"),
            ("meta.size", "7fffffffffffffff"),
            ("state", "open"),
        ];
        assert_eq!(pairs, expected);
        assert_eq!(entries.unique, [("slug".to_owned(), "s".to_owned())]);
        assert_eq!(entries.text.as_deref(), Some("T\nx\ny"));
        assert_eq!(entries.group.as_deref(), Some("b-1"));
    }

    #[test]
    fn absent_and_null_values_have_no_entry_and_no_claim() {
        let notes = collection(
            json!({"indexes": [{"field": "a.b"}], "unique": ["c"], "searchable": ["d"]}),
        );
        for body in [json!({}), json!({"a": null, "c": null, "d": null}), json!({"a": 1, "d": ""})]
        {
            assert_eq!(entries(&notes, &body).unwrap(), Entries::default(), "{body}");
        }
    }

    #[test]
    fn what_cannot_be_indexed_is_a_fault_at_its_field() {
        let notes = collection(
            json!({"indexes": [{"field": "n", "type": "integer"}, {"field": "t"}], "unique": ["u"]}),
        );
        for (body, field) in [
            (json!({"n": "1"}), "n"),
            (json!({"n": 1.5}), "n"),
            (json!({"t": 1}), "t"),
            (json!({"t": "x".repeat(KEY_BYTES_MAX + 1)}), "t"),
            (json!({"t": "a\u{0}"}), "t"),
            (json!({"t": vec!["x"; INDEX_ENTRIES_MAX + 1]}), "t"),
            (json!({"u": {}}), "u"),
        ] {
            assert_eq!(entries(&notes, &body).unwrap_err().path, field, "{body}");
        }
        let leased = collection(json!({"leased": {"by": "board"}}));
        assert_eq!(entries(&leased, &json!({"board": 1})).unwrap_err().path, "board");
    }

    #[test]
    fn a_lookup_encodes_as_the_document_did() {
        let notes = collection(
            json!({"indexes": [{"field": "n", "type": "integer"}], "unique": ["n", "slug"]}),
        );
        let kept = entries(&notes, &json!({"n": 42, "slug": "s"})).unwrap().unique;
        assert_eq!(encode_unique(&notes, "n", "42").unwrap(), kept[0].1);
        assert_eq!(encode_unique(&notes, "slug", "s").unwrap(), kept[1].1);
        assert!(encode_unique(&notes, "n", "x").is_err());
    }

    #[test]
    fn searchable_text_is_bounded_at_a_character() {
        let notes = collection(json!({"searchable": ["t"]}));
        let text = entries(&notes, &json!({"t": "ä".repeat(SEARCH_TEXT_BYTES_MAX)}))
            .unwrap()
            .text
            .unwrap();
        assert_eq!(text.len(), SEARCH_TEXT_BYTES_MAX);
    }

    proptest! {
        #[test]
        fn the_order_of_integers_is_kept(a in any::<i64>(), b in any::<i64>()) {
            prop_assert_eq!(encode_integer(a).cmp(&encode_integer(b)), a.cmp(&b));
        }

        #[test]
        fn query_values_encode_as_document_values(a in any::<i64>(), text in "\\PC{0,40}") {
            for kind in [IndexType::Integer, IndexType::Instant] {
                prop_assert_eq!(encode_text(kind, &a.to_string()), encode_value(kind, &json!(a)));
            }
            prop_assert_eq!(encode_text(IndexType::Text, &text), encode_value(IndexType::Text, &json!(text)));
        }
    }
}

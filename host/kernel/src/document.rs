//! From a guest's JSON text to the row that the store keeps: body, index entries, unique values,
//! searchable text and lease.
//!
//! Knows no database and no scope: whose document it is, and when, are arguments.

use crate::fault::Fault;
use crate::index::{Entries, Further, encode_text, encode_unique, entries_beside};
use crate::manifest::Collection;
use crate::refusal::Failure;
use crate::schema::parse_json;
use crate::time::Instant;
use crate::unit::Draft;

/// A document's body and what the host adds to it.
#[derive(Clone, Debug)]
pub struct Written<'a> {
    /// The tenant user it belongs to.
    pub user: Option<&'a str>,
    /// UTF-8 JSON text.
    pub body: String,
    /// When it is first handed out, where the collection is leased; now if absent.
    pub due_at: Option<i64>,
    /// When it is written.
    pub now: Instant,
}

/// The row that a document's body becomes. `further` is what other live versions look for.
///
/// # Errors
/// A body that is no JSON object, or does not fit the collection's declaration.
pub fn draft(
    declared: &Collection,
    further: &Further,
    written: Written<'_>,
) -> Result<Draft, Failure> {
    let Written { user, body, due_at, now } = written;
    let value =
        parse_json(body.as_bytes()).map_err(|fault| Failure::invalid("body", fault.to_string()))?;
    if !value.is_object() {
        return Err(Failure::invalid("body", "a document is a JSON object"));
    }
    let unfit = |fault: Fault| {
        Failure::new(
            "internal_error",
            format!("a document of `{}` does not fit its declaration: {fault}", declared.name),
        )
    };
    let Entries { index, unique, text, group } =
        entries_beside(declared, further, &value).map_err(unfit)?;
    Ok(Draft {
        user: user.map(str::to_owned),
        body,
        index,
        unique,
        text,
        lease: group.map(|group| (group, due_at.map_or(now, Instant::nearest))),
        unleased: false,
    })
}

/// The encoded value that a query compares a declared field with.
///
/// # Errors
/// A field that is not declared, or a value that the field cannot have.
pub fn encode(declared: &Collection, field: &str, value: &str) -> Result<String, Failure> {
    let encoded = match declared.indexes.iter().find(|index| index.field == field) {
        Some(index) => encode_text(index.kind, value),
        None if declared.unique.iter().any(|unique| unique == field) => {
            encode_unique(declared, field, value)
        }
        None => {
            return Err(Failure::undeclared(format!(
                "`{}.{field}` is not declared as an index",
                declared.name
            )));
        }
    };
    encoded.map_err(|message| Failure::invalid(field, format!("`{field}` {message}")))
}

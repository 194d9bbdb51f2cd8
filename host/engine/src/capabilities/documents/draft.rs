//! From a guest's JSON text to the row that the store keeps: body, index entries, unique values,
//! searchable text and lease.

use charter_kernel::index::{Entries, encode_text, encode_unique, entries_beside};
use charter_kernel::manifest::Collection;
use charter_kernel::schema::parse_json;
use charter_kernel::scope::Scope;
use charter_kernel::time::Instant;
use charter_kernel::unit::Draft;

use crate::bindings::charter::primitive::types::Failure;
use crate::component::CollectionPlan;
use crate::failure::{failure, invalid, undeclared};

/// The row that a document's body becomes.
pub(crate) fn draft(
    plan: &CollectionPlan,
    scope: &Scope,
    body: String,
    due_at: Option<i64>,
    now: Instant,
) -> Result<Draft, Failure> {
    let value = parse_json(body.as_bytes()).map_err(|fault| invalid("body", fault.to_string()))?;
    if !value.is_object() {
        return Err(invalid("body", "a document is a JSON object").into());
    }
    let declared = &plan.declared;
    let unfit = |fault: charter_kernel::fault::Fault| {
        failure(
            "internal_error",
            format!("a document of `{}` does not fit its declaration: {fault}", declared.name),
        )
    };
    let Entries { index, unique, text, group } =
        entries_beside(declared, &plan.further(), &value).map_err(unfit)?;
    Ok(Draft {
        user: scope.user().map(|id| id.as_str().to_owned()),
        body,
        index,
        unique,
        text,
        lease: group.map(|group| (group, due_at.map_or(now, Instant::clamped))),
        unleased: false,
    })
}

/// The encoded value that a query compares a declared field with.
pub(crate) fn encode(declared: &Collection, field: &str, value: &str) -> Result<String, Failure> {
    let encoded = match declared.indexes.iter().find(|index| index.field == field) {
        Some(index) => encode_text(index.kind, value),
        None if declared.unique.iter().any(|unique| unique == field) => {
            encode_unique(declared, field, value)
        }
        None => {
            return Err(undeclared(format!(
                "`{}.{field}` is not declared as an index",
                declared.name
            ))
            .into());
        }
    };
    encoded.map_err(|message| invalid(field, format!("`{field}` {message}")).into())
}

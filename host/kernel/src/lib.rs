//! The rules of Charter as plain functions and values.
//!
//! Knows nothing of async, IO, clocks, databases, WebAssembly or HTTP: what a rule needs from the
//! world is an argument, so every rule that guards tenants or money can be tested, and
//! model-checked, by calling it.

pub mod apply;
pub mod audit;
pub mod authority;
pub mod calendar;
pub mod class;
pub mod cursor;
pub mod document;
pub mod fault;
pub mod governance;
pub mod hex;
pub mod id;
pub mod idempotency;
pub mod index;
pub mod kit;
pub mod lease;
pub mod ledger;
pub mod limits;
pub mod line;
pub mod manifest;
pub mod merkle;
pub mod meter;
pub mod money;
pub mod note;
pub mod places;
pub mod refusal;
pub mod role;
pub mod route;
pub mod schedule;
pub mod schema;
pub mod scope;
pub mod share;
pub mod standing;
pub mod time;
pub mod unit;

/// JSON text of a record of this crate: none of them fails to be one, since their maps have texts
/// for keys.
fn json_text(of: &impl serde::Serialize) -> String {
    serde_json::to_string(of).unwrap_or_default()
}

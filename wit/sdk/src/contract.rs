//! The contract of an operation, as its handler's signature declares it.
//!
//! Knows no handler: arguments and answers each write their own members.

use serde_json::Value;

/// The part of an operation that its handler's signature says.
#[derive(Clone, Debug, Default)]
pub struct Contract {
    /// Schema of the path's parameters.
    pub path_schema: Option<Value>,
    /// Schema of the query.
    pub query: Option<Value>,
    /// Schema of the body.
    pub body: Option<Value>,
    /// Schema of the answer.
    pub answer: Option<Value>,
    /// Status of the answer; 0 for the usual 200.
    pub status: u16,
    /// The list style, where the query is one.
    pub paging: Option<&'static str>,
    /// Whether calls are expected to take seconds.
    pub long: bool,
}

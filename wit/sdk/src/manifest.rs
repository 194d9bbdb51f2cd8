//! The manifest as the primitive declares it: plain builders, serialised by `describe` and by
//! nothing else.
//!
//! The shapes are those of `wit/manifest.schema.json`. What a signature already says (schemas,
//! status, list style) is not said again: see [`Contract`].

mod operation;
mod primitive;

pub use operation::{
    Access, Authority, Catalogue, Mount, Operation, Pays, delete, get, patch, post, put,
};
pub use primitive::{Gate, Primitive};

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

/// What a handler's signature says of its operation.
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

/// A regulated action: it spends, sends or binds.
#[derive(Clone, Debug, Serialize)]
pub struct Action {
    /// `<primitive>.<verb>`.
    pub name: &'static str,
    /// For people.
    pub title: &'static str,
    /// For people.
    pub description: &'static str,
    /// `low`, `medium` or `high`.
    pub risk: &'static str,
    /// Whether its amount counts against caps.
    pub spends: bool,
}

/// An action as the manifest has it.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DeclaredAction {
    #[serde(flatten)]
    pub(crate) action: Action,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) overrun: Option<f64>,
}

/// An event that the primitive emits; see [`crate::events::emit`].
#[derive(Clone, Debug, Serialize)]
pub struct Event {
    /// `<noun>.<past participle>`.
    pub name: &'static str,
    /// For people.
    pub description: &'static str,
    /// Whether webhooks can subscribe to it.
    pub webhook: bool,
    /// Schema of the payload.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload: Option<Value>,
}

/// An error code of the primitive's own.
#[derive(Clone, Debug, Serialize)]
pub struct ErrorCode {
    /// Lower-case snake name.
    pub code: &'static str,
    /// 4xx.
    pub status: u16,
    /// For people.
    pub meaning: &'static str,
}

/// A provider that the operator can bind; reached through [`crate::http::binding`].
#[derive(Clone, Debug, Serialize)]
pub struct Provider {
    /// The binding's name.
    pub name: &'static str,
    /// For people.
    pub description: &'static str,
    /// The protocols it may speak.
    pub kinds: &'static [&'static str],
    /// Whether the primitive does nothing useful without it.
    pub required: bool,
}

/// Something that the operator or a kit can set; read by [`crate::settings::get`].
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    /// Its name.
    pub key: &'static str,
    /// Schema of its value.
    pub schema: Value,
    /// What holds when it is not set.
    pub default: Value,
    /// `operator` or `kit`.
    pub by: &'static str,
    /// For people.
    pub description: &'static str,
}

impl Setting {
    /// One that the operator sets, and whose schema is its type's: a member that the type does not
    /// know is refused.
    pub fn by_operator<T: JsonSchema + Serialize>(
        key: &'static str,
        default: &T,
        description: &'static str,
    ) -> Self {
        let schema = crate::schema::of_request::<T>();
        Self {
            key,
            schema,
            default: serde_json::to_value(default).unwrap_or_default(),
            by: "operator",
            description,
        }
    }
}

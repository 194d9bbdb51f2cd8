//! The declarations of a manifest beside its operations: actions, events, codes, providers, settings.

use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

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
    /// The names that it had before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub formerly: Vec<&'static str>,
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
    /// The value that holds while none is set.
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

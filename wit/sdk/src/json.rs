//! A JSON value that passes through untouched: not parsed, not reordered, no digit lost.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::Result;

/// Any JSON value, kept as its text.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AnyJson(Box<RawValue>);

impl AnyJson {
    /// The text of a value.
    pub fn of<T: Serialize>(value: &T) -> Result<Self> {
        Ok(Self(serde_json::value::to_raw_value(value)?))
    }
    /// The text itself; its length is what limits count.
    pub fn text(&self) -> &str {
        self.0.get()
    }
    /// The value behind it.
    pub fn read<'a, T: Deserialize<'a>>(&'a self) -> Result<T> {
        Ok(serde_json::from_str(self.text())?)
    }
}

impl PartialEq for AnyJson {
    fn eq(&self, other: &Self) -> bool {
        self.text() == other.text()
    }
}

impl JsonSchema for AnyJson {
    fn schema_name() -> Cow<'static, str> {
        "AnyJson".into()
    }
    fn inline_schema() -> bool {
        true
    }
    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({})
    }
}

//! The list styles: what a list operation takes and answers. Use one of the query types here, alone
//! or flattened into a struct with filters, and the operation's style is declared with it.
//!
//! Positions are the host's business: the guest sees them unsealed and hands the next one out raw;
//! the host seals it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Style `offset`: `limit` and `offset`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Offset {
    /// How many items at most.
    #[serde(default = "twenty")]
    #[schemars(range(min = 1, max = 200))]
    pub limit: u32,
    /// How many items to leave out first.
    #[serde(default)]
    #[schemars(range(min = 0, max = 100_000))]
    pub offset: u32,
}

/// Style `cursor`: `limit` and an opaque `cursor`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Cursor {
    /// How many items at most.
    #[serde(default = "twenty")]
    #[schemars(range(min = 1, max = 200))]
    pub limit: u32,
    /// `next_cursor` of the page before.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub cursor: Option<String>,
}

/// Style `envelope`: `limit` (1–100) and `after`; answer it with [`Envelope`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct After {
    /// How many items at most.
    #[serde(default = "twenty")]
    #[schemars(range(min = 1, max = 100))]
    pub limit: u32,
    /// `next_cursor` of the page before.
    #[serde(default)]
    #[schemars(length(max = 1024))]
    pub after: Option<String>,
}

/// Style `log`: oldest first, after a sequence number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct AfterSequence {
    /// How many entries at most.
    #[serde(default = "twenty")]
    #[schemars(range(min = 1, max = 200))]
    pub limit: u32,
    /// The last sequence number that the caller has; 0 for all.
    #[serde(default)]
    pub after_seq: u64,
}

fn twenty() -> u32 {
    20
}

/// The list envelope: newest first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Envelope<T> {
    /// The page.
    pub data: Vec<T>,
    /// Whether there is another page.
    pub has_more: bool,
    /// The value of `after` that asks for it.
    pub next_cursor: Option<String>,
}

/// The style that a query's members imply.
pub(crate) fn style_of(query: &Value) -> Option<&'static str> {
    let has = |name: &str| query["properties"].get(name).is_some();
    [("offset", "offset"), ("cursor", "cursor"), ("after_seq", "log"), ("after", "envelope")]
        .into_iter()
        .find_map(|(member, style)| (has("limit") && has(member)).then_some(style))
}

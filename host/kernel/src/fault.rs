//! One thing that is wrong with a document somebody sent: a request, a manifest, a component.
//!
//! Faults are collected, never stopped at, so that whoever sent the document can mend all of it at
//! once.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A place that is wrong, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Fault {
    /// Dotted path of the offending member (`messages.0.delay_seconds`); empty for the document
    /// itself.
    pub path: String,
    /// Reads on from the path and names the way out: `must be 1..100`, `is required`.
    pub message: String,
}

impl Fault {
    /// A fault at `path`.
    pub fn new(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self { path: path.into(), message: message.into() }
    }

    /// The same fault seen from the document around this one.
    #[must_use]
    pub fn within(mut self, parent: &str) -> Self {
        self.path = join(parent, &self.path);
        self
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            f.write_str(&self.message)
        } else {
            write!(f, "{} {}", self.path, self.message)
        }
    }
}

/// The dotted path of `child` within `parent`; either may be empty.
pub fn join(parent: &str, child: &str) -> String {
    match (parent.is_empty(), child.is_empty()) {
        (true, _) => child.into(),
        (_, true) => parent.into(),
        _ => format!("{parent}.{child}"),
    }
}

//! JSON Schemas of requests and documents: compiled once, each violation named.
//!
//! Draft 2020-12 with references within the document only, patterns by a linear-time engine, depth
//! and size bounded. Knows neither the network nor files: a schema of a stranger cannot make the
//! host read either.

use std::sync::Arc;

use serde_json::Value;

use crate::fault::Fault;
use crate::limits::{
    CHECK_STEPS_MAX, CHECK_STEPS_QUICK, FAULT_SEARCH_VALUES_MAX, FAULTS_MAX, PATTERN_BYTES_MAX,
};

mod admit;
mod cost;
mod graph;
mod json;
mod pattern;
mod query;
mod words;

use cost::Pass;
pub(crate) use json::is_reserved;
pub use json::{check_json, parse_json};
pub use query::{coerce_query, parse_query};

/// A compiled schema. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Schema {
    source: Arc<Value>,
    graph: Arc<graph::Graph>,
    validator: Arc<jsonschema::Validator>,
}

impl Schema {
    /// Compiles a schema.
    ///
    /// # Errors
    /// Every reason why it is not admitted, with its path in the schema.
    pub fn compile(source: &Value) -> Result<Self, Vec<Fault>> {
        let graph = admit::graph(source)?;
        let validator = jsonschema::options()
            .with_draft(jsonschema::Draft::Draft202012)
            .with_pattern_options(
                jsonschema::PatternOptions::regex()
                    .size_limit(PATTERN_BYTES_MAX)
                    .dfa_size_limit(PATTERN_BYTES_MAX),
            )
            .should_validate_formats(true)
            .offline()
            .build(source)
            .map_err(|error| {
                vec![Fault::new(words::to_dots(error.instance_path().as_str()), error.to_string())]
            })?;
        Ok(Self {
            source: Arc::new(source.clone()),
            graph: Arc::new(graph),
            validator: Arc::new(validator),
        })
    }

    /// The schema as it was declared.
    pub fn source(&self) -> &Value {
        &self.source
    }

    /// Validates a value, within [`CHECK_STEPS_MAX`].
    ///
    /// # Errors
    /// Every violation, up to [`FAULTS_MAX`]; of a very large value the first one. A value that
    /// would take too long to check is refused unchecked.
    pub fn validate(&self, value: &Value) -> Result<(), Vec<Fault>> {
        if self.takes(value, Pass::Tell, CHECK_STEPS_MAX) {
            return self.tell(value);
        }
        // To test takes less than to tell what is wrong.
        if !self.takes(value, Pass::Test, CHECK_STEPS_MAX) {
            return Err(vec![Fault::new(
                "",
                "is too large or too deep to be checked against its schema; send less of it at once",
            )]);
        }
        if self.validator.is_valid(value) {
            return Ok(());
        }
        Err(vec![Fault::new(
            "",
            "does not fit its schema, and is too large or too deep to say where",
        )])
    }

    /// The same for a value that takes at most [`CHECK_STEPS_QUICK`] to check: what may be done on
    /// a thread that serves others. `None` for any other value, which was not checked.
    pub fn validate_quickly(&self, value: &Value) -> Option<Result<(), Vec<Fault>>> {
        self.takes(value, Pass::Tell, CHECK_STEPS_QUICK).then(|| self.tell(value))
    }

    /// Whether checking a value takes at most `most` steps.
    fn takes(&self, value: &Value, pass: Pass, most: u64) -> bool {
        self.graph.spend(value, pass, &mut { most }).is_some()
    }

    fn tell(&self, value: &Value) -> Result<(), Vec<Fault>> {
        let mut faults = Vec::new();
        if within(value, FAULT_SEARCH_VALUES_MAX) {
            for error in self.validator.iter_errors(value) {
                words::describe(&error, &self.source, &mut faults);
                if faults.len() >= FAULTS_MAX {
                    break;
                }
            }
        } else if let Err(error) = self.validator.validate(value) {
            words::describe(&error, &self.source, &mut faults);
        }
        faults.truncate(FAULTS_MAX);
        faults.dedup();
        if faults.is_empty() { Ok(()) } else { Err(faults) }
    }
}

/// Whether a document holds at most `most` values.
fn within(value: &Value, most: usize) -> bool {
    fn spend(value: &Value, left: &mut usize) -> bool {
        if *left == 0 {
            return false;
        }
        *left -= 1;
        match value {
            Value::Array(items) => items.iter().all(|item| spend(item, left)),
            Value::Object(members) => members.values().all(|member| spend(member, left)),
            _ => true,
        }
    }
    spend(value, &mut { most })
}

#[cfg(test)]
mod tests;

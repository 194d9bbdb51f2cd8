//! JSON Schemas of requests and documents: compiled once, each violation named.
//!
//! Draft 2020-12 with references within the document only, patterns by a linear-time engine, depth
//! and size bounded. Knows neither the network nor files: a schema of a stranger cannot make the
//! host read either.

use serde_json::Value;

use crate::fault::Fault;
use crate::limits::{FAULT_SEARCH_VALUES_MAX, FAULTS_MAX, PATTERN_BYTES_MAX};

mod admit;
mod json;
mod query;
mod words;

pub use json::parse_json;
pub use query::{coerce_query, parse_query};

/// A compiled schema.
#[derive(Clone, Debug)]
pub struct Schema {
    source: Value,
    validator: jsonschema::Validator,
}

impl Schema {
    /// Compiles a schema.
    ///
    /// # Errors
    /// Every reason why it is not admitted, with its path in the schema.
    pub fn compile(source: &Value) -> Result<Self, Vec<Fault>> {
        let faults = admit::faults(source);
        if !faults.is_empty() {
            return Err(faults);
        }
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
                vec![Fault::new(words::dotted(error.instance_path().as_str()), error.to_string())]
            })?;
        Ok(Self { source: source.clone(), validator })
    }

    /// The schema as it was declared.
    pub fn source(&self) -> &Value {
        &self.source
    }

    /// Validates a value.
    ///
    /// # Errors
    /// Every violation, up to [`FAULTS_MAX`]; of a very large value the first one.
    pub fn validate(&self, value: &Value) -> Result<(), Vec<Fault>> {
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

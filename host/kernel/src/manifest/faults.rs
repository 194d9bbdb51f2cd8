//! The rules of a manifest, all of them checked at once.

use serde_json::Value;

use super::Manifest;
use crate::fault::Fault;

/// Reads a manifest.
///
/// # Errors
/// Every fault, with its path.
pub fn check(manifest: &Value) -> Result<Manifest, Vec<Fault>> {
    serde_json::from_value(manifest.clone()).map_err(|error| vec![Fault::new("", error.to_string())])
}

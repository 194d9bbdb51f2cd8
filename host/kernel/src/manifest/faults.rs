//! The rules of a manifest, checked all at once.
//!
//! First the published JSON Schema, then what a schema cannot say: names that must be unique or
//! must exist, paths that must not collide, schemas that must compile. A manifest that passes needs
//! no further check anywhere.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use serde_json::Value;

use super::{Manifest, Mount, Operation};
use crate::fault::Fault;
use crate::limits::{FAULTS_MAX, MANIFEST_BYTES_MAX, PATTERNS_MAX};
use crate::schema::{Schema, parse_json};

mod collections;
mod names;
mod narrower;
mod operations;
mod rest;

pub use names::CAPABILITIES;
pub use narrower::narrowings;

/// The published schema of manifests.
pub const PUBLISHED_SCHEMA: &str = include_str!("../../../../wit/manifest.schema.json");

static PUBLISHED: LazyLock<Option<Schema>> = LazyLock::new(|| {
    parse_json(PUBLISHED_SCHEMA.as_bytes()).ok().and_then(|schema| Schema::compile(&schema).ok())
});

/// Reads a manifest from what `describe` answered.
///
/// # Errors
/// Every fault, with its path.
pub fn read(text: &str) -> Result<Manifest, Vec<Fault>> {
    if text.len() > MANIFEST_BYTES_MAX {
        return Err(vec![Fault::new(
            "",
            format!("The manifest must be at most {MANIFEST_BYTES_MAX} bytes."),
        )]);
    }
    check(&parse_json(text.as_bytes()).map_err(|fault| vec![fault])?)
}

/// Checks a manifest by its schema and its rules.
///
/// # Errors
/// Every fault, with its path, up to [`FAULTS_MAX`]. The rules are looked at only once the shapes
/// are right.
pub fn check(manifest: &Value) -> Result<Manifest, Vec<Fault>> {
    hold(manifest, rest::check)
}

/// Checks the manifest of a version that was installed here before. Earlier builds let events be
/// called by any words: such a version is served, rolled back to and pinned as it was.
///
/// # Errors
/// As [`check`] has them.
pub fn check_installed(manifest: &Value) -> Result<Manifest, Vec<Fault>> {
    hold(manifest, rest::check_installed)
}

fn hold(manifest: &Value, rest: fn(&Manifest, &mut Vec<Fault>)) -> Result<Manifest, Vec<Fault>> {
    // A test holds the published schema to compile; without it no manifest is accepted.
    let published = PUBLISHED
        .as_ref()
        .ok_or_else(|| vec![Fault::new("", "The host's schema of manifests does not compile.")])?;
    published.validate(manifest)?;
    let patterns = patterns(manifest);
    let manifest: Manifest = serde_json::from_value(manifest.clone())
        .map_err(|error| vec![Fault::new("", format!("The manifest does not read: {error}."))])?;
    if patterns > PATTERNS_MAX {
        return Err(vec![Fault::new(
            "",
            format!(
                "The manifest's schemas have {patterns} patterns; at most {PATTERNS_MAX} are taken."
            ),
        )]);
    }
    let mut faults = Vec::new();
    names::check(&manifest, &mut faults);
    operations::check(&manifest, &mut faults);
    collections::check(&manifest, &mut faults);
    rest(&manifest, &mut faults);
    faults.truncate(FAULTS_MAX);
    if faults.is_empty() { Ok(manifest) } else { Err(faults) }
}

/// The operations that would be served below one of the host's own prefixes (`/v1/auth`,
/// `/v1/operator/components`).
pub fn host_path_faults(manifest: &Manifest, prefixes: &[&str]) -> Vec<Fault> {
    let below = |path: &str, prefix: &str| {
        path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let mut faults = Vec::new();
    for (at, operation) in manifest.operations.iter().enumerate() {
        for (_, path) in paths_of(operation) {
            for prefix in prefixes.iter().filter(|prefix| below(&path, prefix)) {
                faults.push(Fault::new(
                    format!("operations.{at}.path"),
                    format!("is served at {path}, below the host's own {prefix}"),
                ));
            }
        }
    }
    faults
}

/// The full paths that an operation is served at.
pub fn paths_of(operation: &Operation) -> impl Iterator<Item = (Mount, String)> {
    operation.mounts().iter().map(|mount| (*mount, path_at(*mount, &operation.path)))
}

/// The full path of `path` at a mount.
pub fn path_at(mount: Mount, path: &str) -> String {
    let before = match mount {
        Mount::Company => "/v1",
        Mount::User => "/v1/users/{user_id}",
        Mount::Root => "",
        Mount::Operator => "/v1/operator",
    };
    format!("{before}{path}")
}

/// The patterns that may stand in a manifest's schemas: each takes memory once compiled.
fn patterns(value: &Value) -> usize {
    match value {
        Value::Array(items) => items.iter().map(patterns).sum(),
        Value::Object(members) => {
            let own = |(name, value): (&String, &Value)| match (name.as_str(), value) {
                ("pattern", Value::String(_)) => 1,
                ("patternProperties", Value::Object(patterned)) => patterned.len(),
                _ => 0,
            };
            members.iter().map(own).sum::<usize>() + members.values().map(patterns).sum::<usize>()
        }
        _ => 0,
    }
}

/// Compiles an optional schema for its faults alone.
fn compiles(schema: Option<&Value>, path: &str, faults: &mut Vec<Fault>) {
    if let Some(Err(found)) = schema.map(Schema::compile) {
        faults.extend(found.into_iter().map(|fault| fault.within(path)));
    }
}

/// Reports what stands twice in a list.
fn unique<'a>(items: impl Iterator<Item = (String, &'a str)>, faults: &mut Vec<Fault>) {
    let mut seen = BTreeSet::new();
    for (path, item) in items {
        if !seen.insert(item) {
            faults.push(Fault::new(path, format!("must not stand twice: {item:?}")));
        }
    }
}

#[cfg(test)]
mod tests;

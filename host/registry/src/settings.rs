//! The operator's settings of components and of primitives. Knows none of them: what can be set of
//! a primitive, and how it looks, a version's manifest says.

use std::collections::BTreeMap;
use std::path::PathBuf;

use charter_kernel::fault::Fault;
use charter_kernel::manifest::Manifest;
use charter_kernel::schema::Schema;
use ed25519_dalek::VerifyingKey;
use serde_json::{Map, Value};

/// The settings of a registry.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The source of components, and the keys that are trusted.
    pub components: Components,
    /// The settings of primitives.
    pub primitives: Primitives,
    /// How long a version that nobody calls stays in memory.
    pub resident_ms: u64,
}

/// `[components]`
#[derive(Clone, Debug)]
pub struct Components {
    /// The watched folder.
    pub dir: Option<PathBuf>,
    /// Keys that may sign components; with any, an unsigned component is refused.
    pub signing_keys: Vec<VerifyingKey>,
    /// How long an activation waits for the other replicas.
    pub replica_wait_ms: u64,
    /// When a bad version is stepped back from.
    pub breaker: Breaker,
}

/// When the trap-rate breaker steps a component back.
#[derive(Clone, Copy, Debug)]
pub struct Breaker {
    /// Traps within the window; 0 switches the breaker off.
    pub traps_min: u32,
    /// The part of the window's calls that must have trapped, 0–1.
    pub rate_min: f64,
    /// The window.
    pub window_ms: u64,
}

/// `[primitives.<name>]`: values by the setting's key.
#[derive(Clone, Debug, Default)]
pub struct Primitives(BTreeMap<String, Map<String, Value>>);

impl Primitives {
    /// The settings of a configuration, by primitive.
    pub fn new(set: BTreeMap<String, Map<String, Value>>) -> Self {
        Self(set)
    }

    /// The primitives that anything is set of.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// The value of a setting.
    pub fn get(&self, primitive: &str, key: &str) -> Option<&Value> {
        self.0.get(primitive)?.get(key)
    }

    /// The faults that keep a version from running under its settings: each member that it does not
    /// know, or that is not as it says.
    pub fn faults(&self, manifest: &Manifest) -> Vec<Fault> {
        let set = self.0.get(&manifest.name).into_iter().flatten();
        set.flat_map(|(key, value)| {
            let at = format!("primitives.{}.{key}", manifest.name);
            faults(manifest, key, value).into_iter().map(move |fault| fault.within(&at))
        })
        .collect()
    }
}

fn faults(manifest: &Manifest, key: &str, value: &Value) -> Vec<Fault> {
    let Some(setting) = manifest.settings.iter().find(|setting| setting.key == key) else {
        let known = manifest
            .settings
            .iter()
            .map(|setting| setting.key.as_str())
            .collect::<Vec<_>>()
            .join(", ");
        let known =
            if known.is_empty() { "it has none".to_owned() } else { format!("it has {known}") };
        return vec![Fault::new(
            "",
            format!("is no setting of {} {}: {known}", manifest.name, manifest.version),
        )];
    };
    match &setting.schema {
        Value::Null => Vec::new(),
        schema => Schema::compile(schema)
            .and_then(|schema| schema.validate(value))
            .err()
            .unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_set_is_as_the_manifest_says() {
        let manifest: Manifest = serde_json::from_value(json!({
            "name": "notes", "version": "1.0.0", "title": "Notes",
            "settings": [{ "key": "size_max", "schema": { "type": "integer" } }, { "key": "any" }],
        }))
        .unwrap();
        let told = |set: Value| {
            let Value::Object(set) = set else { panic!("members") };
            let set = Primitives(BTreeMap::from([("notes".to_owned(), set)]));
            set.faults(&manifest).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(told(json!({ "size_max": 3, "any": [null] })), [""; 0]);
        let faults = told(json!({ "size_max": "3", "size": 3 }));
        assert_eq!(
            faults[0],
            "primitives.notes.size is no setting of notes 1.0.0: it has size_max, any"
        );
        assert!(faults[1].starts_with("primitives.notes.size_max must be"), "{}", faults[1]);
    }
}

//! What the operator is shown of components.

use std::collections::BTreeSet;

use charter_engine::stats::OutcomeClass;
use serde_json::{Value, json};

use super::record::{State, Version};
use super::{Catalogue, Registry};

impl Registry {
    /// Every primitive, by name.
    pub fn listed(&self) -> Vec<Value> {
        let catalogue = self.catalogue();
        let draining = self.inner.resident.draining();
        catalogue.versions.keys().map(|name| self.summary(&catalogue, &draining, name)).collect()
    }

    /// One primitive with all of its versions.
    pub fn detailed(&self, name: &str) -> Option<Value> {
        let catalogue = self.catalogue();
        let versions = catalogue.versions.get(name)?;
        let draining = self.inner.resident.draining();
        let loaded: BTreeSet<String> =
            self.inner.resident.loaded().iter().map(|served| served.digest().to_owned()).collect();
        let mut shown = self.summary(&catalogue, &draining, name);
        let rows = versions.iter().rev().map(|version| {
            let mut row = shown_version(version, &draining);
            row["in_memory"] = json!(loaded.contains(&version.digest));
            row["bytes"] = json!(version.bytes);
            row["signed"] = json!(version.signature.is_some());
            row["operations"] = json!(version.manifest.operations.len());
            row["unagreed"] = json!(catalogue.unagreed(version));
            row
        });
        shown["versions"] = rows.collect();
        let activation = catalogue.activations.get(name);
        shown["rollback_to"] = json!(catalogue.predecessor(name).map(|version| &version.digest));
        shown["activated_at"] = json!(activation.map(|activation| activation.at));
        shown["activated_by"] = json!(activation.map(|activation| &activation.by));
        Some(shown)
    }

    fn summary(&self, catalogue: &Catalogue, draining: &BTreeSet<String>, name: &str) -> Value {
        let active = catalogue.active(name).and_then(|digest| catalogue.find(name, digest));
        let latest = catalogue.versions.get(name).and_then(|versions| versions.last());
        let stats = self.inner.engine.stats().primitive(name);
        let calls: u64 = OutcomeClass::ALL.iter().map(|class| stats.count(*class)).sum();
        json!({
            "name": name,
            "title": active.or(latest).map(|version| &version.manifest.title),
            "active": active.map(|version| shown_version(version, draining)),
            "versions_installed": catalogue.versions.get(name).map_or(0, Vec::len),
            "calls": calls,
            "traps": stats.count(OutcomeClass::Trapped),
            "p50_us": stats.quantile_us(0.5),
            "p99_us": stats.quantile_us(0.99),
        })
    }
}

/// One version, as everything that answers one shows it.
pub fn shown_version(version: &Version, draining: &BTreeSet<String>) -> Value {
    let state = if version.state == State::Retired && draining.contains(&version.digest) {
        "draining"
    } else {
        version.state.as_str()
    };
    json!({
        "name": version.name,
        "version": version.version,
        "digest": version.digest,
        "state": state,
        "installed_at": version.installed_at,
        "reason": version.reason,
        "asks": version.manifest.asks(),
    })
}

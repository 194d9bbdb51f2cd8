//! The operator's view of components: each primitive with its versions, and what its calls cost.

use std::collections::BTreeSet;

use charter_engine::stats::OutcomeClass;
use charter_kernel::time::Instant;
use schemars::JsonSchema;
use serde::Serialize;

use super::record::{State, Version};
use super::{Inventory, Registry};

/// An installed version of a primitive.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct VersionReport {
    /// The primitive.
    pub name: String,
    /// The semantic version.
    pub version: String,
    /// `sha256:<hex>` of the component.
    pub digest: String,
    /// The version's place in its life.
    pub state: Stage,
    /// The moment of its installation.
    pub installed_at: Instant,
    /// The reason of its quarantine.
    pub reason: Option<String>,
    /// Everything that the operator has to agree to before it serves.
    pub asks: BTreeSet<String>,
}

/// A version's place in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// Installed, and not activated.
    Staged,
    /// It serves.
    Active,
    /// It finishes the requests that it began.
    Draining,
    /// It served before.
    Retired,
    /// It was stepped back from, and is not activated again.
    Quarantined,
}

impl VersionReport {
    /// The report of a version; `draining` holds the digests that finish their requests.
    pub fn of(version: &Version, draining: &BTreeSet<String>) -> Self {
        let state = match version.state {
            State::Retired if draining.contains(&version.digest) => Stage::Draining,
            State::Staged => Stage::Staged,
            State::Active => Stage::Active,
            State::Retired => Stage::Retired,
            State::Quarantined => Stage::Quarantined,
        };
        Self {
            name: version.name.clone(),
            version: version.version.clone(),
            digest: version.digest.clone(),
            state,
            installed_at: version.installed_at,
            reason: version.reason.clone(),
            asks: version.manifest.asks(),
        }
    }
}

/// A primitive with its active version.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ComponentReport {
    /// The primitive.
    pub name: String,
    /// Its title, for people.
    pub title: Option<String>,
    /// The version that serves.
    pub active: Option<VersionReport>,
    /// How many versions are installed.
    pub versions_installed: usize,
    /// Calls of this replica since its start.
    pub calls: u64,
    /// Calls that ended in a trap.
    pub traps: u64,
    /// The median duration of a call, in microseconds.
    pub p50_us: u64,
    /// The duration that one call in a hundred exceeds, in microseconds.
    pub p99_us: u64,
}

/// A primitive with all of its versions.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ComponentDetail {
    /// The primitive with its active version.
    #[serde(flatten)]
    pub component: ComponentReport,
    /// Every installed version, the latest first.
    pub versions: Vec<VersionDetail>,
    /// The digest that a rollback leads to.
    pub rollback_to: Option<String>,
    /// The moment of the last activation.
    pub activated_at: Option<Instant>,
    /// `operator`, `folder` or `breaker`.
    pub activated_by: Option<String>,
}

/// An installed version with what it holds.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct VersionDetail {
    /// The version.
    #[serde(flatten)]
    pub version: VersionReport,
    /// Whether this replica holds it in memory.
    pub in_memory: bool,
    /// The size of the component.
    pub bytes: u64,
    /// Whether a signature came with it.
    pub signed: bool,
    /// How many operations it declares.
    pub operations: usize,
    /// The part of `asks` that the operator has not agreed to.
    pub unagreed: BTreeSet<String>,
}

impl Registry {
    /// Every primitive, by name.
    pub fn list(&self) -> Vec<ComponentReport> {
        let inventory = self.inventory();
        let draining = self.inner.resident.draining();
        inventory.versions.keys().map(|name| self.summary(&inventory, &draining, name)).collect()
    }

    /// One primitive with all of its versions.
    pub fn describe(&self, name: &str) -> Option<ComponentDetail> {
        let inventory = self.inventory();
        let versions = inventory.versions.get(name)?;
        let draining = self.inner.resident.draining();
        let loaded: BTreeSet<String> = self
            .inner
            .resident
            .in_memory()
            .iter()
            .map(|served| served.digest().to_owned())
            .collect();
        let versions = versions.iter().rev().map(|version| VersionDetail {
            version: VersionReport::of(version, &draining),
            in_memory: loaded.contains(&version.digest),
            bytes: version.bytes,
            signed: version.signature.is_some(),
            operations: version.manifest.operations.len(),
            unagreed: inventory.missing_consents(version),
        });
        let activation = inventory.activations.get(name);
        Some(ComponentDetail {
            component: self.summary(&inventory, &draining, name),
            versions: versions.collect(),
            rollback_to: inventory.predecessor(name).map(|version| version.digest.clone()),
            activated_at: activation.map(|activation| activation.at),
            activated_by: activation.map(|activation| activation.by.clone()),
        })
    }

    fn summary(
        &self,
        inventory: &Inventory,
        draining: &BTreeSet<String>,
        name: &str,
    ) -> ComponentReport {
        let active = inventory.active(name).and_then(|digest| inventory.find(name, digest));
        let latest = inventory.versions.get(name).and_then(|versions| versions.last());
        let stats = self.inner.engine.stats().primitive(name);
        ComponentReport {
            name: name.to_owned(),
            title: active.or(latest).map(|version| version.manifest.title.clone()),
            active: active.map(|version| VersionReport::of(version, draining)),
            versions_installed: inventory.versions.get(name).map_or(0, Vec::len),
            calls: OutcomeClass::ALL.iter().map(|class| stats.count(*class)).sum(),
            traps: stats.count(OutcomeClass::Trapped),
            p50_us: stats.quantile_us(0.5),
            p99_us: stats.quantile_us(0.99),
        }
    }
}

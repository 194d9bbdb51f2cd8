//! All rows about components, read at once: what is installed, and what is active.
//!
//! A plain value. A step that decides by it reads it through the transaction that then commits, so
//! that two activations cannot both be admitted by what the other one changed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use charter_kernel::manifest::Manifest;
use charter_store::{ReadError, Txn};
use charter_tenancy::stored;

use super::backfill::further_indexed;
use super::record::{Activation, State, Version};

/// The versions that are installed and those that are active.
#[derive(Clone, Debug, Default)]
pub struct Inventory {
    /// By name, oldest version first.
    pub versions: BTreeMap<String, Vec<Arc<Version>>>,
    /// By name.
    pub activations: BTreeMap<String, Arc<Activation>>,
}

impl Inventory {
    /// Reads all of it; `relaxed` leaves it out of the commit's validation.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn read(txn: &mut Txn, relaxed: bool) -> Result<Self, ReadError> {
        let mut inventory = Self::default();
        for version in stored::all::<Version>(txn, relaxed).await? {
            inventory.versions.entry(version.name.clone()).or_default().push(Arc::new(version));
        }
        for versions in inventory.versions.values_mut() {
            versions
                .sort_by(|a, b| (a.installed_at, &a.version).cmp(&(b.installed_at, &b.version)));
        }
        for activation in stored::all::<Activation>(txn, relaxed).await? {
            inventory.activations.insert(activation.name.clone(), Arc::new(activation));
        }
        Ok(inventory)
    }

    /// The version of this digest.
    pub fn by_digest(&self, digest: &str) -> Option<&Arc<Version>> {
        self.versions.values().flatten().find(|version| version.digest == digest)
    }

    /// The version of this digest, of one primitive.
    pub fn find(&self, name: &str, digest: &str) -> Option<&Arc<Version>> {
        self.versions.get(name)?.iter().find(|version| version.digest == digest)
    }

    /// The version of this number.
    pub fn by_number(&self, name: &str, version: &str) -> Option<&Arc<Version>> {
        self.versions.get(name)?.iter().find(|known| known.version == version)
    }

    /// The digest that serves.
    pub fn active(&self, name: &str) -> Option<&str> {
        self.activations.get(name)?.active.as_deref()
    }

    /// The version that a rollback goes to: the latest one before the active one that still is
    /// there and is not quarantined.
    pub fn predecessor(&self, name: &str) -> Option<&Arc<Version>> {
        let activation = self.activations.get(name)?;
        let usable = |digest: &String| {
            self.find(name, digest).filter(|version| version.state != State::Quarantined)
        };
        activation
            .history
            .iter()
            .rev()
            .filter(|digest| Some(*digest) != activation.active.as_ref())
            .find_map(usable)
    }

    /// Every version that a request can reach: the active one, and those that a kit may pin.
    pub fn live(&self) -> impl Iterator<Item = &Arc<Version>> {
        self.versions.values().flatten().filter(|version| version.state != State::Quarantined)
    }

    /// The other versions that a request of the same primitive can reach: what they look for, each
    /// of them writes.
    pub fn beside(&self, version: &Version) -> impl Iterator<Item = &Manifest> {
        let (name, digest) = (version.name.clone(), version.digest.clone());
        self.live()
            .filter(move |other| other.name == name && other.digest != digest)
            .map(|other| &other.manifest)
    }

    /// Whether it finds the documents of before it was installed, too: it has served, or its
    /// indexes were built, or it declares none beyond the version that serves.
    pub fn finds_all(&self, version: &Version) -> bool {
        let active = self.active(&version.name).and_then(|active| self.find(&version.name, active));
        let active = active.map(|active| &active.manifest);
        version.state != State::Staged
            || version.built
            || further_indexed(active, &version.manifest).next().is_none()
    }

    /// The asks of a primitive that the operator has agreed to.
    pub fn consents(&self, name: &str) -> BTreeSet<String> {
        let Some(activation) = self.activations.get(name) else { return BTreeSet::new() };
        if let Some(agreed) = &activation.agreed {
            return agreed.clone();
        }
        // It served when nobody was asked.
        let served = activation.history.iter().chain(&activation.active);
        served
            .filter_map(|digest| self.find(name, digest))
            .flat_map(|v| v.manifest.asks())
            .collect()
    }

    /// The asks of a version that nobody has agreed to: while there are any, it does not serve.
    pub fn missing_consents(&self, version: &Version) -> BTreeSet<String> {
        version.manifest.asks().difference(&self.consents(&version.name)).cloned().collect()
    }

    /// The active versions.
    pub fn serving(&self) -> impl Iterator<Item = &Arc<Version>> {
        self.activations
            .values()
            .filter_map(|activation| self.find(&activation.name, activation.active.as_deref()?))
    }
}

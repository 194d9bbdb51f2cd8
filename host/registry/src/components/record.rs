//! The rows that say what is installed and what is active. The database is the truth; everything
//! else is a copy of it.
//!
//! A version's row never changes its digest, so that a (name, version) means one thing for ever.

use std::collections::BTreeSet;

use charter_kernel::manifest::Manifest;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Key, Reach, Space};
use charter_store::Txn;
use charter_tenancy::records::Record;
use serde::{Deserialize, Serialize};

use super::LifeCycleError;

/// Digests that a primitive can be rolled back to, one after another.
pub const HISTORY_MAX: usize = 20;

/// The state of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Installed; no kit-less request reaches it yet.
    Staged,
    /// Serves.
    Active,
    /// Was active before.
    Retired,
    /// Stepped back from: it is not activated again.
    Quarantined,
}

impl State {
    /// Its name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Staged => "staged",
            Self::Active => "active",
            Self::Retired => "retired",
            Self::Quarantined => "quarantined",
        }
    }
}

/// One installed version of a primitive.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Version {
    /// The primitive.
    pub name: String,
    /// Semantic version.
    pub version: String,
    /// `sha256:<hex>` of the component.
    pub digest: String,
    /// Its state.
    pub state: State,
    /// Its declaration.
    pub manifest: Manifest,
    /// The signature that came with it, base64.
    pub signature: Option<String>,
    /// Its size.
    pub bytes: u64,
    /// When it was installed.
    pub installed_at: Instant,
    /// Why it is quarantined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// How often its digest had been removed when it was installed.
    #[serde(default)]
    pub removals: u32,
    /// Whether its indexes were built before it served.
    #[serde(default)]
    pub built: bool,
}

impl Version {
    /// The name of its bytes. A digest that comes back after a removal has another, so that who
    /// removes the bytes late takes none that a row names.
    pub fn blob(&self) -> String {
        match self.removals {
            0 => self.digest.clone(),
            times => format!("{}#{times}", self.digest),
        }
    }

    /// The address of this version's row.
    pub fn address(name: &str, version: &str) -> Key {
        Key::new(&Reach::deployment(), &Self::space(), format!("{name}@{version}"))
    }
}

impl Record for Version {
    const COLLECTION: &'static str = "components";

    fn key(&self) -> Key {
        Self::address(&self.name, &self.version)
    }

    fn index(&self) -> Vec<(String, String)> {
        vec![("digest".into(), self.digest.clone()), ("name".into(), self.name.clone())]
    }
}

/// How often a digest was removed; it stays when the version is gone.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Removals {
    /// `sha256:<hex>` of the component.
    pub digest: String,
    /// Versions of this digest that are gone.
    pub times: u32,
}

impl Removals {
    /// Counts those of a digest; validated at the commit.
    pub(super) async fn of(txn: &mut Txn, digest: &str) -> Result<u32, LifeCycleError> {
        let none = Self { digest: digest.to_owned(), times: 0 };
        let row = txn.get(&none.key()).await?;
        Ok(row.map(|row| Self::read(&row)).transpose()?.unwrap_or(none).times)
    }
}

impl Record for Removals {
    const COLLECTION: &'static str = "component_removals";

    fn key(&self) -> Key {
        Key::new(&Reach::deployment(), &Self::space(), &self.digest)
    }
}

/// The active version of a primitive, and the earlier ones.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Activation {
    /// The primitive.
    pub name: String,
    /// The digest that serves; absent where the last one was removed.
    pub active: Option<String>,
    /// Those before it, the latest last.
    pub history: Vec<String>,
    /// When it was activated.
    pub at: Instant,
    /// The actor: `operator`, `folder` or `breaker`.
    pub by: String,
    /// The asks that the operator has agreed to; absent where it was activated before that was
    /// asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agreed: Option<BTreeSet<String>>,
}

/// The asks of a component that the operator agrees to.
#[derive(Clone, Debug)]
pub enum Consent {
    /// All of them: the operator put it into the watched folder, or says so.
    All,
    /// These.
    To(BTreeSet<String>),
}

impl Consent {
    /// As it is written: `*`, or what is agreed to with commas between.
    pub fn read(text: &str) -> Self {
        let mut parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
        if text.trim() == "*" {
            return Self::All;
        }
        Self::To(parts.by_ref().map(str::to_owned).collect())
    }

    /// Those that it does not cover.
    pub(super) fn lacks(&self, asked: BTreeSet<String>) -> Vec<String> {
        match self {
            Self::All => Vec::new(),
            Self::To(agreed) => asked.into_iter().filter(|ask| !agreed.contains(ask)).collect(),
        }
    }
}

impl Activation {
    /// The address of this primitive's row.
    pub fn address(name: &str) -> Key {
        Key::new(&Reach::deployment(), &Self::space(), name)
    }
}

impl Record for Activation {
    const COLLECTION: &'static str = "activations";

    fn key(&self) -> Key {
        Self::address(&self.name)
    }
}

/// A running process that shares the database.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Replica {
    /// Random, made at start.
    pub id: String,
    /// The process that it runs in, for people.
    pub host: String,
    /// When it last said that it lives.
    pub seen_at: Instant,
    /// The digests that it has compiled, or has found that it cannot.
    pub compiled: Vec<String>,
    /// The digests that it could not compile, each with the reason.
    #[serde(default)]
    pub failed: Vec<(String, String)>,
}

impl Replica {
    /// The space of replicas: left out of cache invalidation, as it is written all the time.
    pub fn rows() -> Space {
        Space::host(Self::COLLECTION)
    }
}

impl Record for Replica {
    const COLLECTION: &'static str = "replicas";

    fn key(&self) -> Key {
        Key::new(&Reach::deployment(), &Self::rows(), &self.id)
    }
}

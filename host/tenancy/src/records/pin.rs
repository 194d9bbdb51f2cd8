//! A kit's pin on a component version, as a row of the deployment: there whoever removes a version
//! finds the kits of all tenants.
//!
//! Invariant: the commit that changes a kit writes its pins and has read the rows of the versions;
//! the commit that removes a version has searched the pins. Of a pin and a removal that meet, one
//! is therefore run again and sees the other.

use charter_kernel::id::{KitId, OrganizationId, ProjectId};
use charter_kernel::unit::{Key, Reach};
use serde::{Deserialize, Serialize};

use super::kit::StoredKit;
use super::{Record, entry};

/// The indexed field that says which version is pinned; its value is [`Pin::on`].
pub const PINNED: &str = "pinned";

/// One kit's pin on one version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// The primitive.
    pub primitive: String,
    /// The version's number.
    pub version: String,
    /// The kit's organization.
    pub organization: OrganizationId,
    /// The kit's project.
    pub project: ProjectId,
    /// The kit.
    pub kit: KitId,
}

impl Pin {
    /// The pins of a kit. An entry that is switched off gives its users nothing that they could
    /// lose.
    pub fn all(kit: &StoredKit) -> Vec<Self> {
        let pinned = kit.primitives.iter().filter(|(_, entry)| entry.enabled);
        let pinned =
            pinned.filter_map(|(primitive, entry)| Some((primitive, entry.version.as_ref()?)));
        let pin = |(primitive, version): (&String, &String)| Self {
            primitive: primitive.clone(),
            version: version.clone(),
            organization: kit.organization.clone(),
            project: kit.project.clone(),
            kit: kit.id.clone(),
        };
        pinned.map(pin).collect()
    }

    /// The value of [`PINNED`] for a version.
    pub fn on(primitive: &str, version: &str) -> String {
        format!("{primitive}@{version}")
    }
}

impl Record for Pin {
    const COLLECTION: &'static str = "pins";

    fn key(&self) -> Key {
        let id = format!("{}/{}", Self::on(&self.primitive, &self.version), self.kit);
        Key::new(&Reach::deployment(), &Self::space(), id)
    }

    fn index(&self) -> Vec<(String, String)> {
        vec![entry(PINNED, Self::on(&self.primitive, &self.version))]
    }
}

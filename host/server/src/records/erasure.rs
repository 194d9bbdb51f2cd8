//! What remains to be removed of a user or a project that was deleted: taken up by the workers, and gone when it is done.

use charter_kernel::time::Instant;
use charter_kernel::unit::{Key, Reach, Space};
use serde::{Deserialize, Serialize};

use super::Record;

/// The lease group of erasures.
pub const ERASURE_GROUP: &str = "erasure";

/// A reach whose rows are to be removed.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Erasure {
    /// Whose it was.
    pub organization: String,
    /// The reach, as the store keeps it.
    pub reach: String,
    /// Jobs of the organization that still read what is to be removed.
    pub after: Vec<String>,
    /// Since when.
    pub since: Instant,
}

impl Erasure {
    /// The space of erasures.
    pub fn all() -> Space {
        Self::space()
    }
}

impl Record for Erasure {
    const COLLECTION: &'static str = "erasures";

    fn key(&self) -> Key {
        Key::new(&Reach::organization(&self.organization), &Self::space(), self.reach.clone())
    }
}

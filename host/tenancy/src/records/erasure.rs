//! The rest that is to be removed of a user or a project that was deleted, or of a key that was
//! revoked: taken up by the workers, and gone when it is done.
//!
//! A commit that ends something ends its keys, and leaves rows of them: of all that descend from a
//! key, and of one that another request commits at the same moment. From then on no more are made,
//! so what is found by [`Erasure::keys`] is the rest.

use std::collections::BTreeMap;

use charter_kernel::time::Instant;
use charter_kernel::unit::{Key, Reach, Space};
use serde::{Deserialize, Serialize};

use super::Record;
use super::key::{ANCESTOR, ApiKey};

/// The lease group of erasures.
pub const ERASURES: &str = "erasure";

/// A reach whose rows are to be removed.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Erasure {
    /// The organization that owned it.
    pub organization: String,
    /// The reach, as the store keeps it.
    pub reach: String,
    /// Jobs of the organization that still read what is to be removed.
    pub after: Vec<String>,
    /// The most that was seen set aside to leave each account of a user since its end was last
    /// told, by the account's id: in micro-US-dollars, and absent where nothing was.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub aside: BTreeMap<String, i64>,
    /// The primitives that failed to end their work on the end of a user while accounts of theirs
    /// held money of it, and when each is to be told again.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failed: BTreeMap<String, Instant>,
    /// The project of a user, so that its end can be told again; empty where no user ended.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub project: String,
    /// Whether that project reaches sandboxes only.
    #[serde(default)]
    pub test: bool,
    /// Since when.
    pub since: Instant,
}

impl Erasure {
    /// Of a key that is revoked. It has no rows but the keys that descend from it.
    pub fn of_key(key: &ApiKey, since: Instant) -> Self {
        let reach = format!("k/{}", key.id);
        Self { organization: key.organization.to_string(), reach, since, ..Self::default() }
    }

    /// The address of that of a user.
    pub fn of_user(organization: &str, user: &str) -> Key {
        Key::new(&Reach::organization(organization), &Self::space(), Reach::user(user).as_str())
    }

    /// The indexed field, and its value, of the keys that end with it.
    pub fn keys(&self) -> Option<(&'static str, &str)> {
        let (kind, id) = self.reach.split_once('/')?;
        let field = match kind {
            "u" => "user_id",
            "p" => "project_id",
            "k" => ANCESTOR,
            _ => return None,
        };
        Some((field, id))
    }

    /// The user, where one was deleted.
    pub fn user(&self) -> Option<&str> {
        self.reach.strip_prefix("u/")
    }

    /// The project, where one was deleted.
    pub fn project(&self) -> Option<&str> {
        self.reach.strip_prefix("p/")
    }

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

//! The host's own records of accounts and tenancy, as rows: one file a noun.
//!
//! A record knows its address, what it is found by and what is unique about it. It knows neither
//! HTTP nor the store: a [`Draft`] goes out, a [`Row`] comes in. A value that nobody may read back
//! (a password, a key, a token) is a hash here.

use charter_kernel::unit::{Claim, Draft, Guard, Key, Row, Space};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub mod account;
pub mod approval;
pub mod erasure;
pub mod former;
pub mod grant;
pub mod invitation;
pub mod key;
pub mod kit;
pub mod link;
pub mod mail;
pub mod member;
pub mod name;
pub mod organization;
pub mod pin;
pub mod project;
pub mod session;
pub mod user;
pub mod webhook;

/// The indexed field that says whether a record still counts; its value is [`ACTIVE`] while it
/// does.
pub const STATUS: &str = "status";
/// See [`STATUS`].
pub const ACTIVE: &str = "active";
/// The indexed field of the tenant user that a record is about.
pub const USER: &str = "user";
/// The indexed field that says when a record is swept: RFC 3339 in UTC, which sorts as it is
/// written.
pub const EXPIRES: &str = "expires_at";

/// A record that is kept as a row of `host.<COLLECTION>`.
pub trait Record: Serialize + DeserializeOwned {
    /// The collection's name.
    const COLLECTION: &'static str;

    /// The row's address.
    fn key(&self) -> Key;

    /// The indexed fields that it is found by, beside its id. Text only: it sorts as it is written.
    fn index(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// The values that no other record of its reach may have.
    fn unique(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    /// Its space.
    fn space() -> Space {
        Space::host(Self::COLLECTION)
    }

    /// The row's content.
    ///
    /// # Errors
    /// Never for the records of this module: their maps have text keys.
    fn draft(&self) -> Result<Draft, Unreadable> {
        let mut index = self.index();
        index.sort();
        let mut unique = self.unique();
        unique.sort();
        let body =
            serde_json::to_string(self).map_err(|_| Unreadable { collection: Self::COLLECTION })?;
        Ok(Draft { body, index, unique, ..Draft::default() })
    }

    /// The record of a row.
    ///
    /// # Errors
    /// When the row was written by something else.
    fn read(row: &Row) -> Result<Self, Unreadable> {
        serde_json::from_str(&row.body).map_err(|error| {
            tracing::error!(%error, collection = Self::COLLECTION, "a record of the host cannot be read");
            Unreadable { collection: Self::COLLECTION }
        })
    }
}

/// A row of the host holds something that this build cannot read.
#[derive(Debug, thiserror::Error)]
#[error("a row of {collection} cannot be read")]
pub struct Unreadable {
    /// The collection.
    pub collection: &'static str,
}

/// An index entry of a text value.
pub fn entry(field: &str, value: impl Into<String>) -> (String, String) {
    (field.to_owned(), value.into())
}

/// Requires at the commit that the record still counts.
pub fn still_active(key: Key) -> Guard {
    Guard::Entry { key, field: STATUS.into(), value: ACTIVE.into() }
}

/// Requires at the commit that the record is as it was read: what was decided by it is decided anew
/// where it is not.
pub fn require_version(key: Key, version: u64) -> Guard {
    Guard::Unchanged { key, version }
}

/// The claim behind a secret that is looked up by its digest.
pub fn secret_claim(kind: &str, digest: &str) -> Claim {
    Claim::name(kind, digest)
}

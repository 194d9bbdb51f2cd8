//! One document, as a primitive reads it.
//!
//! Knows no collection.

use std::ops::Deref;

use serde::de::DeserializeOwned;

use crate::bindings::charter::primitive::documents as raw;
use crate::failure::Result;
use crate::time::Instant;

/// A document: its body, and what the host knows of it. Reads as its body: `note.title`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Doc<T> {
    /// Given by the host at the insert.
    pub id: String,
    /// The tenant user it belongs to.
    pub user: Option<String>,
    /// 1 at the insert, one more at each write.
    pub version: u64,
    /// When it was inserted.
    pub created_at: Instant,
    /// When it was last written.
    pub updated_at: Instant,
    /// The primitive's own content.
    pub body: T,
}

/// The place of a document, and the version that was read there: see [`Doc::at`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct At {
    pub(crate) id: String,
    pub(crate) version: u64,
}

impl<T> Doc<T> {
    /// Says of which document, as it was read, new content takes the place:
    /// `NOTES.replace(note.at(), Note { read: true, ..note.body })`.
    pub fn at(&self) -> At {
        At { id: self.id.clone(), version: self.version }
    }
}

impl<T> Deref for Doc<T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.body
    }
}

impl<T: DeserializeOwned> Doc<T> {
    pub(crate) fn read(document: raw::Document) -> Result<Self> {
        Ok(Self {
            body: serde_json::from_str(&document.body)?,
            id: document.id,
            user: document.user,
            version: document.version,
            created_at: Instant::from_ms(document.created_at),
            updated_at: Instant::from_ms(document.updated_at),
        })
    }
}

//! The OpenAPI description, kept for the state of the registry that it was written for. Knows not how
//! it is written.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;

/// The description that was written last.
#[derive(Default)]
pub struct Description(Mutex<Option<(u64, Bytes)>>);

impl Description {
    /// The text for this revision of the registry; written where it is not there yet.
    pub fn text(&self, revision: u64, write: impl FnOnce() -> Bytes) -> Bytes {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((of, text)) = &*kept
            && *of == revision
        {
            return text.clone();
        }
        let text = write();
        *kept = Some((revision, text.clone()));
        text
    }
}

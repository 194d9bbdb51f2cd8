//! Requests under an idempotency key that this replica is running now: the same request beside it
//! is told so, and runs nothing.
//!
//! Saves work and says what is going on; what keeps an effect from happening twice is the record in
//! the effect's own commit, which every replica sees.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use charter_kernel::idempotency::Fingerprint;
use charter_kernel::unit::Key;

/// The running requests, by their record's place. As many as there are requests in flight.
#[derive(Clone, Debug, Default)]
pub struct Running(Arc<Mutex<HashMap<Key, Fingerprint>>>);

/// One of them; it ends when this is dropped.
#[derive(Debug)]
pub struct Entered {
    running: Running,
    key: Key,
}

impl Running {
    /// Enters a request.
    ///
    /// # Errors
    /// The fingerprint of the one that is running under the key.
    pub fn enter(&self, key: &Key, fingerprint: &Fingerprint) -> Result<Entered, Fingerprint> {
        match self.all().entry(key.clone()) {
            Entry::Occupied(running) => Err(*running.get()),
            Entry::Vacant(free) => {
                free.insert(*fingerprint);
                Ok(Entered { running: self.clone(), key: key.clone() })
            }
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<Key, Fingerprint>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        self.running.all().remove(&self.key);
    }
}

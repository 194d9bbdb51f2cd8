//! Memory for one kind of texts, of requests or of answers: bounded for the process, for each
//! organization, and there for each credential.
//!
//! Beside the room that everybody shares is a quarter as much for those who have nothing: whoever
//! finds none left by others gets one piece there. Nothing is beyond both.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::shares::{Path, Share, Shares, Taken};
use crate::config::BODIES_SHARE;

/// The memory. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Memory {
    bytes_max: usize,
    held: Arc<Mutex<Held>>,
}

#[derive(Debug)]
struct Held {
    /// The shares of everybody.
    shared: Shares,
    /// One piece of each who found nothing left by others.
    floors: Shares,
}

/// The shares that bytes count in.
#[derive(Debug)]
enum Counted {
    Shared(Arc<[Share]>),
    Floor([Share; 2]),
}

/// Bytes of the memory; given back when this is dropped.
#[derive(Debug)]
pub struct Piece {
    memory: Memory,
    counted: Counted,
    bytes: usize,
}

/// There is no more room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// For anybody.
    Process,
    /// For this owner.
    Owner,
}

impl From<Taken> for Full {
    fn from(Taken { depth, by_others }: Taken) -> Self {
        if depth == 0 && by_others { Self::Process } else { Self::Owner }
    }
}

impl Memory {
    /// So many bytes, and a quarter beside them.
    pub fn new(bytes_max: usize) -> Self {
        let shared = Shares::new(bytes_max);
        let floors = Shares::new(bytes_max / BODIES_SHARE);
        Self { bytes_max, held: Arc::new(Mutex::new(Held { shared, floors })) }
    }

    /// How many bytes everybody shares.
    pub fn bytes_max(&self) -> usize {
        self.bytes_max
    }

    /// The bytes held.
    pub fn bytes(&self) -> usize {
        self.lock().total()
    }

    /// Takes so many bytes.
    ///
    /// # Errors
    /// If there is no room; nothing is taken.
    pub fn take(&self, path: &Path, bytes: usize) -> Result<Piece, Taken> {
        let mut held = self.lock();
        let counted = held.admit(path, bytes)?;
        held.add(&counted, bytes);
        Ok(Piece { memory: self.clone(), counted, bytes })
    }

    /// Looks at the bytes that shares have, all at one moment.
    pub fn look<T>(&self, look: impl FnOnce(&dyn Fn(&str) -> usize) -> T) -> T {
        let held = self.lock();
        look(&|name| held.shared.of(name) + held.floors.of(name))
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let held = self.lock();
        held.shared.is_empty() && held.floors.is_empty()
    }
}

impl Piece {
    /// How large it is.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// Makes it larger, of the same owner.
    ///
    /// # Errors
    /// If there is no room for it as large as that; it stays as it is.
    pub fn grow(&mut self, path: &Path, bytes: usize) -> Result<(), Taken> {
        let mut held = self.memory.lock();
        held.remove(&self.counted, self.bytes);
        let grown = held.admit(path, self.bytes + bytes).map(|counted| {
            self.counted = counted;
            self.bytes += bytes;
        });
        held.add(&self.counted, self.bytes);
        grown
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.memory.lock().remove(&self.counted, self.bytes);
    }
}

impl Held {
    fn total(&self) -> usize {
        self.shared.total() + self.floors.total()
    }

    /// The shares that so many bytes may be counted in. As many stay free of the whole, so that a piece
    /// as large as what is left does not take the last of it.
    fn admit(&self, path: &Path, bytes: usize) -> Result<Counted, Taken> {
        let widest = &path.shares[..path.shares.len().min(1)];
        let leaves = self.shared.admit(widest, 2 * bytes);
        let Err(taken) = leaves.and_then(|()| self.shared.admit(&path.shares, bytes)) else {
            return Ok(Counted::Shared(path.shares.clone()));
        };
        let floor = path.floor().ok_or(taken)?;
        if self.shared.of(&floor.name) + self.floors.of(&floor.name) > 0 {
            return Err(Taken { by_others: false, ..taken });
        }
        let counted = [path.shares[0].clone(), floor.clone()];
        // Nothing is too large where nobody has any.
        let fits = self.floors.total() == 0 || self.floors.admit(&counted[..1], 2 * bytes).is_ok();
        fits.then_some(Counted::Floor(counted)).ok_or(taken)
    }

    fn add(&mut self, counted: &Counted, bytes: usize) {
        match counted {
            Counted::Shared(path) => self.shared.add(path, bytes),
            Counted::Floor(path) => self.floors.add(path, bytes),
        }
    }

    fn remove(&mut self, counted: &Counted, bytes: usize) {
        match counted {
            Counted::Shared(path) => self.shared.remove(path, bytes),
            Counted::Floor(path) => self.floors.remove(path, bytes),
        }
    }
}

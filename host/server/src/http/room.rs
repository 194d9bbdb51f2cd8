//! Memory for the bodies of requests that are under way: bounded for the process, and for each
//! organization within it.
//!
//! A client that sends slowly holds what it has sent; without a bound many of them hold everything.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The room. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Room {
    bytes_max: usize,
    held: Arc<Mutex<Held>>,
}

/// As many owners as hold anything.
#[derive(Debug, Default)]
struct Held {
    total: usize,
    by_owner: HashMap<String, usize>,
}

/// What one request holds of it; given back when this is dropped.
#[derive(Debug)]
pub struct Hold {
    room: Room,
    owner: String,
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

impl Room {
    /// What part of the room one organization may fill: one of so many.
    pub const SHARE: usize = 4;

    /// A room of so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, held: Arc::default() }
    }

    /// Holds nothing yet. All requests without an organization have one owner, the empty one.
    pub fn hold(&self, owner: &str) -> Hold {
        Hold { room: self.clone(), owner: owner.to_owned(), bytes: 0 }
    }

    /// What is held of it.
    pub fn bytes(&self) -> usize {
        self.held().total
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hold {
    /// Takes so many bytes more.
    ///
    /// # Errors
    /// Where there is no room; what is held stays.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Full> {
        if bytes == 0 {
            return Ok(());
        }
        let mut held = self.room.held();
        if held.total + bytes > self.room.bytes_max {
            return Err(Full::Process);
        }
        let own = held.by_owner.get(&self.owner).copied().unwrap_or(0);
        if own + bytes > self.room.bytes_max / Room::SHARE {
            return Err(Full::Owner);
        }
        held.total += bytes;
        held.by_owner.insert(self.owner.clone(), own + bytes);
        self.bytes += bytes;
        Ok(())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut held = self.room.held();
        held.total -= self.bytes;
        let own = held.by_owner.get(&self.owner).copied().unwrap_or(0);
        if own > self.bytes {
            held.by_owner.insert(self.owner.clone(), own - self.bytes);
        } else {
            held.by_owner.remove(&self.owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_owner_fills_its_share_and_all_together_the_room() {
        let room = Room::new(400);
        let mut holds: Vec<Hold> = ["a", "b", "c", "d"].map(|owner| room.hold(owner)).into();
        for hold in &mut holds {
            assert_eq!(hold.grow(100), Ok(()));
        }
        assert_eq!(holds[0].grow(1), Err(Full::Process));
        holds.pop();
        assert_eq!(holds[0].grow(1), Err(Full::Owner), "another's room is not its own");
        assert_eq!(room.hold("e").grow(100), Ok(()));
    }

    #[test]
    fn what_is_dropped_leaves_nothing_behind() {
        let room = Room::new(400);
        let (mut one, mut other) = (room.hold("a"), room.hold("a"));
        assert_eq!(
            (one.grow(40), one.grow(20), other.grow(41)),
            (Ok(()), Ok(()), Err(Full::Owner))
        );
        drop(one);
        assert_eq!(other.grow(100), Ok(()));
        drop(other);
        let held = room.held();
        assert_eq!((held.total, held.by_owner.len()), (0, 0));
    }
}

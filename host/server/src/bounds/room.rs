//! Memory for the bodies of requests that are under way: bounded for the process, and there for each
//! organization, or for each client address that has shown no credential.
//!
//! A client that sends slowly holds what it has sent; without a bound many of them hold everything.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::config::BODIES_SHARE;

/// The room. Cheap to clone.
#[derive(Clone, Debug)]
pub struct BodyRoom {
    bytes_max: usize,
    held: Arc<Mutex<Held>>,
}

/// As many owners as hold anything.
#[derive(Debug, Default)]
struct Held {
    total: usize,
    by_owner: HashMap<String, usize>,
}

/// The owner of a body.
#[derive(Clone, Copy, Debug)]
pub enum Owner<'a> {
    /// An organization's.
    Organization(&'a str),
    /// A client's that has shown no credential.
    Client {
        /// The kind of route that it calls: strangers who call one kind fill no other's share.
        group: &'static str,
        /// The name that it counts by.
        client: &'a str,
    },
}

/// One request's part of the room; given back when this is dropped.
#[derive(Debug)]
pub struct BodyHold {
    room: BodyRoom,
    /// The shares that it counts against, the widest first, and how large each is.
    shares: Vec<(String, usize)>,
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

impl BodyRoom {
    /// The part of the room that one organization may fill, and all strangers of one group
    /// together: one of so many.
    pub const SHARE: usize = BODIES_SHARE;
    /// The part of its group's share that one stranger may fill: one of so many.
    pub const CLIENT_SHARE: usize = 16;
    /// Bytes that one stranger may hold however small the room is: one call of an inbound URL.
    pub const CLIENT_BYTES_MIN: usize = 256 << 10;

    /// A room of so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, held: Arc::default() }
    }

    /// Holds nothing yet.
    pub fn hold(&self, owner: Owner<'_>) -> BodyHold {
        BodyHold { room: self.clone(), shares: self.shares(owner), bytes: 0 }
    }

    /// The shares that an owner's bytes count against, and how large each is.
    fn shares(&self, owner: Owner<'_>) -> Vec<(String, usize)> {
        let share = self.bytes_max / Self::SHARE;
        match owner {
            Owner::Organization(id) => vec![(id.to_owned(), share)],
            Owner::Client { group, client } => {
                let own = (share / Self::CLIENT_SHARE).max(Self::CLIENT_BYTES_MIN);
                // Neither is an organization's id, and no client is a group.
                vec![(format!("{group}:"), share), (format!("{group}:{client}"), own)]
            }
        }
    }

    /// The bytes held of the room.
    pub fn bytes(&self) -> usize {
        self.lock().total
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn of(&self, owner: &str) -> usize {
        self.by_owner.get(owner).copied().unwrap_or(0)
    }

    fn add(&mut self, shares: &[(String, usize)], bytes: usize) {
        self.total += bytes;
        for (owner, _) in shares {
            *self.by_owner.entry(owner.clone()).or_default() += bytes;
        }
    }
}

impl BodyHold {
    /// Takes so many bytes more.
    ///
    /// # Errors
    /// If there is no room; the bytes held stay.
    pub fn grow(&mut self, bytes: usize) -> Result<(), Full> {
        if bytes == 0 {
            return Ok(());
        }
        let mut held = self.room.lock();
        if held.total + bytes > self.room.bytes_max {
            return Err(Full::Process);
        }
        if self.shares.iter().any(|(owner, max)| held.of(owner) + bytes > *max) {
            return Err(Full::Owner);
        }
        self.bytes += bytes;
        held.add(&self.shares, bytes);
        Ok(())
    }
}

impl Drop for BodyHold {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        let mut held = self.room.lock();
        held.total -= self.bytes;
        for (owner, _) in &self.shares {
            let own = held.of(owner);
            if own > self.bytes {
                held.by_owner.insert(owner.clone(), own - self.bytes);
            } else {
                held.by_owner.remove(owner);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_owner_fills_its_share_and_all_together_the_room() {
        let room = BodyRoom::new(400);
        let mut holds: Vec<BodyHold> =
            ["a", "b", "c", "d"].map(|owner| room.hold(Owner::Organization(owner))).into();
        for hold in &mut holds {
            assert_eq!(hold.grow(100), Ok(()));
        }
        assert_eq!(holds[0].grow(1), Err(Full::Process));
        holds.pop();
        assert_eq!(holds[0].grow(1), Err(Full::Owner), "another's room is not its own");
        assert_eq!(room.hold(Owner::Organization("e")).grow(100), Ok(()));
    }

    #[test]
    fn strangers_who_call_inbound_urls_keep_nobody_from_signing_in() {
        let room = BodyRoom::new(64 << 20);
        fn stranger(room: &BodyRoom, group: &'static str, client: &str) -> BodyHold {
            room.hold(Owner::Client { group, client })
        }
        let body = 256 << 10;
        let mut held = Vec::new();
        let mut flood = |client: &str| {
            let before = held.len();
            loop {
                let mut hold = stranger(&room, "hooks", client);
                if hold.grow(body).is_err() {
                    return held.len() - before;
                }
                held.push(hold);
            }
        };
        assert_eq!(flood("192.0.2.1"), 4, "one of them has its own share alone");
        let taken: usize = (2..=40).map(|n| flood(&format!("192.0.2.{n}"))).sum();
        assert_eq!(taken, 60, "and all of them the group's");
        assert_eq!(stranger(&room, "pages", "192.0.2.1").grow(body), Ok(()));
        assert_eq!(room.hold(Owner::Organization("o")).grow(16 << 20), Ok(()));
    }

    #[test]
    fn what_is_dropped_leaves_nothing_behind() {
        let room = BodyRoom::new(400);
        let own = || room.hold(Owner::Organization("a"));
        let (mut one, mut other) = (own(), own());
        assert_eq!(
            (one.grow(40), one.grow(20), other.grow(41)),
            (Ok(()), Ok(()), Err(Full::Owner))
        );
        drop(one);
        assert_eq!(other.grow(100), Ok(()));
        drop(other);
        let mut stranger = room.hold(Owner::Client { group: "hooks", client: "c" });
        assert_eq!(stranger.grow(100), Ok(()));
        drop(stranger);
        let held = room.lock();
        assert_eq!((held.total, held.by_owner.len()), (0, 0));
    }
}

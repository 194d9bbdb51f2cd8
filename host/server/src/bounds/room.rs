//! Memory for the bodies of requests that are under way, as [`Memory`] shares it: by organization
//! and credential, or by client address where none was shown.
//!
//! A client that sends slowly holds what it has sent; without a bound many of them hold everything.

use std::sync::Arc;

use charter_tenancy::identity::Identity;

use super::holder::Holder;
use super::memory::{Full, Memory, Piece};
use super::shares::{Path, Share};
use crate::config::BODIES_SHARE;

/// The part of its group's share that one stranger may fill: one of so many.
const CLIENT_SHARE: usize = 16;
/// Bytes that one stranger may hold however small the room is: one call of an inbound URL.
const CLIENT_BYTES_MIN: usize = 256 << 10;

/// The room. Cheap to clone.
#[derive(Clone, Debug)]
pub struct BodyRoom(Memory);

/// The sender of a body.
#[derive(Clone, Copy, Debug)]
pub enum Sender<'a> {
    /// A credential of an organization.
    Credential {
        /// The organization.
        organization: &'a str,
        /// The credential.
        identity: &'a Identity,
    },
    /// A client that has shown no credential.
    Client {
        /// The kind of route that it calls: strangers who call one kind fill no other's share.
        group: &'static str,
        /// The name that it counts by.
        client: &'a str,
    },
}

/// One body's part of the room; given back when this is dropped.
#[derive(Debug)]
pub struct BodyHold {
    room: BodyRoom,
    path: Path,
    piece: Option<Piece>,
}

impl BodyRoom {
    /// A room of so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self(Memory::new(bytes_max))
    }

    /// Holds nothing yet.
    pub fn hold(&self, sender: Sender<'_>) -> BodyHold {
        let share = self.0.bytes_max() / BODIES_SHARE;
        let path = match sender {
            Sender::Credential { organization, identity } => {
                Holder::of(identity).path(organization, share)
            }
            Sender::Client { group, client } => strangers(share, group, client),
        };
        BodyHold { room: self.clone(), path, piece: None }
    }

    /// The bytes held of the room.
    pub fn bytes(&self) -> usize {
        self.0.bytes()
    }
}

/// The shares of one stranger: in its group's share, its own.
fn strangers(share: usize, group: &str, client: &str) -> Path {
    let own = (share / CLIENT_SHARE).max(CLIENT_BYTES_MIN);
    // Neither is an organization's id, and no client is a group. Half of what is the client's is one's own.
    let of_group = Share { name: format!("{group}:"), max: share };
    let of_client = Share { name: format!("{group}:{client}"), max: 2 * own };
    let inner = Share { name: format!("{group}:{client}/"), max: own };
    Path { shares: Arc::new([of_group, of_client, inner]), floor: Some(1) }
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
        match &mut self.piece {
            Some(piece) => piece.grow(&self.path, bytes),
            None => {
                self.piece = Some(self.room.0.take(&self.path, bytes)?);
                Ok(())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn hold(room: &BodyRoom, organization: &str, holder: &Holder) -> BodyHold {
        let path = holder.path(organization, room.0.bytes_max() / BODIES_SHARE);
        BodyHold { room: room.clone(), path, piece: None }
    }

    fn stranger(room: &BodyRoom, group: &'static str, client: &str) -> BodyHold {
        room.hold(Sender::Client { group, client })
    }

    /// Bodies of so many bytes, each sent in pieces, until one finds no room.
    fn flood(bytes: usize, begin: impl Fn() -> BodyHold) -> Vec<BodyHold> {
        let next = || {
            let mut hold = begin();
            (0..4).all(|_| hold.grow(bytes / 4).is_ok()).then_some(hold)
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn bodies_of_one_agent_and_of_whole_organizations_leave_room_to_everybody_else() {
        let room = BodyRoom::new(256 * MIB);
        let agent = |user| Holder::from(["pinned", "project p", user]);
        let of_agent = flood(4 * MIB, || hold(&room, "o", &agent("user one")));
        assert_eq!(of_agent.len(), 2, "an eighth of its organization's quarter");
        let person = Holder::from(["person p", "key one"]);
        let others = ["a", "b", "c", "d", "e", "f", "g", "h"];
        let mut held: Vec<_> =
            others.iter().flat_map(|other| flood(MIB, || hold(&room, other, &person))).collect();
        held.extend(flood(MIB, || hold(&room, "o", &person)));
        for holder in [agent("user two"), Holder::signed_in("person p"), Holder::from(["person q"])]
        {
            let mut own = hold(&room, "o", &holder);
            assert_eq!(own.grow(4 * MIB), Ok(()), "{holder:?}");
            held.push(own);
        }
        assert_eq!(hold(&room, "neighbour", &person).grow(4 * MIB), Ok(()));
        for group in ["inbound", "anonymous"] {
            assert_eq!(stranger(&room, group, "192.0.2.1").grow(256 << 10), Ok(()), "{group}");
        }
        drop((held, of_agent));
        assert!(room.0.is_empty());
    }

    #[test]
    fn strangers_who_call_inbound_urls_keep_nobody_from_signing_in() {
        let room = BodyRoom::new(64 * MIB);
        let flood = |client: &str| flood(256 << 10, || stranger(&room, "inbound", client));
        let mut held = flood("192.0.2.1");
        assert_eq!(held.len(), 4, "one of them has its own share alone");
        (2..=80).for_each(|n| held.extend(flood(&format!("192.0.2.{n}"))));
        assert!(room.bytes() <= 32 * MIB, "the group's share and what is beside it");
        assert_eq!(stranger(&room, "anonymous", "192.0.2.1").grow(256 << 10), Ok(()));
        assert_eq!(hold(&room, "o", &Holder::from(["person p"])).grow(8 * MIB), Ok(()));
    }

    #[test]
    fn a_body_that_finds_no_room_keeps_what_it_has() {
        let room = BodyRoom::new(MIB);
        let [mut one, mut other] = [(); 2].map(|()| hold(&room, "o", &Holder::from(["person p"])));
        assert_eq!((one.grow(64 << 10), other.grow(32 << 10)), (Ok(()), Ok(())));
        assert_eq!(other.grow(MIB), Err(Full::Owner));
        assert_eq!((room.bytes(), other.grow(0)), (96 << 10, Ok(())));
        drop(one);
        assert_eq!(other.grow(MIB), Ok(()), "nothing is too large where nobody has any");
        drop(other);
        assert!(room.0.is_empty());
    }
}

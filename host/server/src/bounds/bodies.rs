//! Memory for the bodies of requests that are under way, as [`Room`] shares it: by organization and
//! credential, or by client address where none was shown.

use std::sync::Arc;

use charter_tenancy::identity::Identity;
use tokio_util::sync::CancellationToken;

use super::holder::Holder;
use super::room::{Hold, Room};
use super::shares::{Path, Share};
use crate::config::BODIES_SHARE;

/// The part of its group's share that one stranger may fill: one of so many.
const CLIENT_SHARE: usize = 16;
/// Bytes that one stranger may hold however small the room is: one call of an inbound URL.
const CLIENT_BYTES_MIN: usize = 256 << 10;

/// The room. Cheap to clone.
#[derive(Clone, Debug)]
pub struct BodyRoom(Room);

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

impl BodyRoom {
    /// A room of so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        Self(Room::new(bytes_max))
    }

    /// Holds nothing yet.
    pub fn hold(&self, sender: Sender<'_>) -> Hold {
        let share = self.0.bytes_max() / BODIES_SHARE;
        let path = match sender {
            Sender::Credential { organization, identity } => {
                Holder::of(identity).path(organization, share)
            }
            Sender::Client { group, client } => strangers(share, group, client),
        };
        self.0.hold(path, CancellationToken::new())
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
    let of_group = Share { name: format!("{group}:").into(), max: share };
    let of_client = Share { name: format!("{group}:{client}").into(), max: 2 * own };
    let inner = Share { name: format!("{group}:{client}/").into(), max: own };
    Path { shares: Arc::new([of_group, of_client, inner]), floor: Some(1) }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures::FutureExt as _;
    use futures::future::BoxFuture;

    use super::super::memory::Full;
    use super::super::room::GRACE;
    use super::*;

    const MIB: usize = 1 << 20;

    fn hold(room: &BodyRoom, organization: &str, holder: &Holder) -> Hold {
        let path = holder.path(organization, room.0.bytes_max() / BODIES_SHARE);
        room.0.hold(path, CancellationToken::new())
    }

    fn stranger(room: &BodyRoom, group: &'static str, client: &str) -> Hold {
        room.hold(Sender::Client { group, client })
    }

    /// Bodies of so many bytes, each sent in pieces, until one finds no room.
    fn flood(bytes: usize, begin: impl Fn() -> Hold) -> Vec<Hold> {
        let next = || {
            let hold = begin();
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
            let own = hold(&room, "o", &holder);
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
        let [one, other] = [(); 2].map(|()| hold(&room, "o", &Holder::from(["person p"])));
        assert_eq!((one.grow(64 << 10), other.grow(32 << 10)), (Ok(()), Ok(())));
        assert_eq!(other.grow(MIB), Err(Full::Owner));
        assert_eq!((room.bytes(), other.grow(0)), (96 << 10, Ok(())));
        drop(one);
        assert_eq!(other.grow(MIB), Ok(()), "nothing is too large where nobody has any");
        drop(other);
        assert!(room.0.is_empty());
    }

    /// The bodies that were begun, in the time in which they may give way.
    fn underway(held: &[Hold]) -> Vec<BoxFuture<'_, Option<()>>> {
        let begin = held.iter().map(|hold| hold.giving_way(pending::<()>()).boxed());
        let mut begun: Vec<_> = begin.collect();
        assert!(begun.iter_mut().all(|body| body.now_or_never().is_none()));
        begun
    }

    #[tokio::test(start_paused = true)]
    async fn who_finds_no_room_has_slow_bodies_of_those_who_have_most_give_way() {
        let room = BodyRoom::new(64 * MIB);
        let (person, session) =
            (Holder::from(["person p", "key one"]), Holder::signed_in("person p"));
        let names: Vec<_> = (0..40).map(|n| format!("o{n}")).collect();
        let (mut held, mut owners) = (Vec::new(), Vec::new());
        for piece in [4 * MIB, 64 << 10, 1 << 10, 4] {
            for (name, who) in names.iter().flat_map(|name| [(name, &person), (name, &session)]) {
                held.extend(flood(piece, || hold(&room, name, who)));
                owners.resize(held.len(), name);
            }
        }
        let of = |name: &str| room.0.of(name);
        let had: Vec<_> = owners.iter().map(|name| of(name)).collect();
        let mut begun = underway(&held);
        let late = hold(&room, "neighbour", &person);
        assert_eq!(late.grow(MIB), Err(Full::Process), "nobody is slow yet");
        tokio::time::advance(GRACE).await;
        assert_eq!(late.grow(MIB), Ok(()));
        let gone = begun.iter_mut().zip(&had);
        let gone = gone.filter_map(|(body, had)| body.now_or_never().map(|_| *had));
        assert_eq!(gone.collect::<Vec<_>>(), [*had.iter().max().unwrap()]);
        // Nobody gives way to who has more.
        let most = flood(MIB, || hold(&room, "neighbour", &person));
        assert!(of("neighbour") <= names.iter().map(|name| of(name)).max().unwrap() + MIB);
        // A body that is read, and at work, gives way no more.
        drop((begun, most));
        assert_eq!(hold(&room, "another", &person).grow(8 * MIB), Err(Full::Process));
        drop((held, late));
        assert!(room.0.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_provider_finds_room_among_strangers_who_send_slowly() {
        let room = BodyRoom::new(64 * MIB);
        let strangers = (0..400).map(|n| format!("192.0.2.{n}"));
        let held: Vec<_> = strangers
            .flat_map(|client| flood(256 << 10, || stranger(&room, "inbound", &client)))
            .collect();
        let begun = underway(&held);
        tokio::time::advance(GRACE).await;
        let mut signed = Vec::new();
        for n in 0..20 {
            let event = stranger(&room, "inbound", &format!("198.51.100.{n}"));
            assert_eq!(event.grow(64 << 10), Ok(()), "{n}");
            signed.push(event);
        }
        drop(begun);
    }

    #[tokio::test(start_paused = true)]
    async fn an_agent_that_sends_slowly_gives_way_to_others_of_its_organization() {
        let room = BodyRoom::new(64 * MIB);
        let agent = |user| Holder::from(["pinned", "project p", user]);
        let users: Vec<_> = (0..30).map(|n| format!("user {n}")).collect();
        let held: Vec<_> = users
            .iter()
            .flat_map(|user| flood(MIB, || hold(&room, "o", &agent(user))))
            .chain(flood(64 << 10, || hold(&room, "o", &agent("user 0"))))
            .collect();
        let begun = underway(&held);
        tokio::time::advance(GRACE).await;
        assert_eq!(hold(&room, "o", &agent("late")).grow(256 << 10), Ok(()));
        assert_eq!(hold(&room, "o", &Holder::from(["person p"])).grow(MIB), Ok(()));
        drop(begun);
    }
}

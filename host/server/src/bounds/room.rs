//! Memory for the bodies of requests that are under way, as [`Memory`] shares it: by organization
//! and credential, or by client address where none was shown.
//!
//! A client that sends slowly holds what it has sent; without a bound many of them hold everything. So
//! where somebody finds no room, a body that has been under way for long gives way: the oldest of
//! whoever has most beside that.

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use charter_tenancy::identity::Identity;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::holder::Holder;
use super::memory::{Full, Memory, Piece};
use super::shares::{Path, Share, Taken};
use crate::config::BODIES_SHARE;

/// The part of its group's share that one stranger may fill: one of so many.
const CLIENT_SHARE: usize = 16;
/// Bytes that one stranger may hold however small the room is: one call of an inbound URL.
const CLIENT_BYTES_MIN: usize = 256 << 10;

/// How long a body is under way before it gives way to others.
const GRACE: Duration = Duration::from_secs(1);

/// The room. Cheap to clone.
#[derive(Clone, Debug)]
pub struct BodyRoom(Arc<Room>);

#[derive(Debug)]
struct Room {
    memory: Memory,
    /// Bodies that may give way, by their shares.
    giving: Mutex<Giving>,
    begun: AtomicU64,
}

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
    sent: Arc<Sent>,
}

/// A body, or as much of it as has come.
#[derive(Debug)]
struct Sent {
    number: u64,
    began: Instant,
    path: Path,
    piece: Mutex<Option<Piece>>,
    /// Whether it may give way now.
    gives: AtomicBool,
    /// Whether it is among those that do.
    is_listed: AtomicBool,
    /// Once it has given way.
    gone: CancellationToken,
}

/// Bodies that may give way, in the share that has them, by the order in which they began.
#[derive(Debug, Default)]
struct Giving {
    within: HashMap<String, Giving>,
    bodies: BTreeMap<u64, Arc<Sent>>,
}

impl BodyRoom {
    /// A room of so many bytes.
    pub fn new(bytes_max: usize) -> Self {
        let memory = Memory::new(bytes_max);
        Self(Arc::new(Room { memory, giving: Mutex::default(), begun: AtomicU64::new(0) }))
    }

    /// Holds nothing yet.
    pub fn hold(&self, sender: Sender<'_>) -> BodyHold {
        let share = self.0.memory.bytes_max() / BODIES_SHARE;
        self.hold_by(match sender {
            Sender::Credential { organization, identity } => {
                Holder::of(identity).path(organization, share)
            }
            Sender::Client { group, client } => strangers(share, group, client),
        })
    }

    fn hold_by(&self, path: Path) -> BodyHold {
        let number = self.0.begun.fetch_add(1, Ordering::Relaxed);
        let (began, piece) = (Instant::now(), Mutex::default());
        let [gives, is_listed] = [(); 2].map(|()| AtomicBool::new(false));
        let gone = CancellationToken::new();
        let sent = Sent { number, began, path, piece, gives, is_listed, gone };
        BodyHold { room: self.clone(), sent: Arc::new(sent) }
    }

    /// The bytes held of the room.
    pub fn bytes(&self) -> usize {
        self.0.memory.bytes()
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
    /// Takes so many bytes more, in the place of others where there is no room.
    ///
    /// # Errors
    /// If there is no room; the bytes held stay.
    pub fn grow(&self, bytes: usize) -> Result<(), Full> {
        while let Err(taken) = self.sent.grow(&self.room.0.memory, bytes) {
            if !self.room.0.make_way(&self.sent, bytes, taken) {
                return Err(taken.into());
            }
        }
        if self.sent.gives.load(Ordering::Relaxed) {
            self.room.0.list(&self.sent);
        }
        Ok(())
    }

    /// Does what the body may give way in; nothing where it has.
    pub async fn giving_way<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        let given = Given::of(&self.room.0, &self.sent);
        let done = self.sent.gone.run_until_cancelled(work).await;
        drop(given);
        // From here on it gives way no more.
        done.filter(|_| !self.sent.gone.is_cancelled())
    }
}

impl Sent {
    fn grow(&self, memory: &Memory, bytes: usize) -> Result<(), Taken> {
        if bytes == 0 {
            return Ok(());
        }
        let mut piece = lock(&self.piece);
        match &mut *piece {
            Some(piece) => piece.grow(&self.path, bytes)?,
            None => *piece = Some(memory.take(&self.path, bytes)?),
        }
        Ok(())
    }
}

impl Room {
    /// Has one body give way to another, which wants so many bytes more and finds a share taken: by those
    /// beside it, or by those within. Answers whether one did: nobody gives way to who has more.
    fn make_way(&self, to: &Sent, bytes: usize, Taken { depth, .. }: Taken) -> bool {
        let own = &to.path.shares;
        let mut giving = lock(&self.giving);
        let most = self.memory.look(|has| {
            (depth..own.len()).find_map(|at| {
                let (around, beside) = (giving.around(&own[..at])?, &own[at].name);
                let wanted = has(beside) + bytes;
                around.most(has, &|name, bytes| name != beside && bytes >= wanted).cloned()
            })
        });
        let Some(sent) = most else { return false };
        giving.remove(&sent);
        drop(giving);
        sent.gone.cancel();
        *lock(&sent.piece) = None;
        true
    }

    /// Lists a body that has something to give.
    fn list(&self, sent: &Arc<Sent>) {
        if lock(&sent.piece).is_some() && !sent.is_listed.swap(true, Ordering::Relaxed) {
            lock(&self.giving).add(&sent.path.shares, sent);
        }
    }
}

impl Giving {
    fn add(&mut self, path: &[Share], sent: &Arc<Sent>) {
        let own = path
            .iter()
            .fold(self, |around, share| around.within.entry(share.name.clone()).or_default());
        own.bodies.insert(sent.number, sent.clone());
    }

    fn remove(&mut self, sent: &Sent) {
        if sent.is_listed.swap(false, Ordering::Relaxed) {
            self.prune(&sent.path.shares, sent.number);
        }
    }

    fn prune(&mut self, path: &[Share], number: u64) {
        let Some((share, rest)) = path.split_first() else {
            self.bodies.remove(&number);
            return;
        };
        if let Some(own) = self.within.get_mut(&share.name) {
            own.prune(rest, number);
            if own.is_empty() {
                self.within.remove(&share.name);
            }
        }
    }

    fn is_empty(&self) -> bool {
        self.within.is_empty() && self.bodies.is_empty()
    }

    fn around(&self, path: &[Share]) -> Option<&Self> {
        path.iter().try_fold(self, |around, share| around.within.get(&share.name))
    }

    /// The oldest body of the share within that has most, of those that are asked for: once it is slow.
    fn most(
        &self,
        has: &dyn Fn(&str) -> usize,
        is_asked: &dyn Fn(&str, usize) -> bool,
    ) -> Option<&Arc<Sent>> {
        let shares = self.within.iter().map(|(name, share)| (has(name), name, share));
        let mut asked: Vec<_> = shares.filter(|(bytes, name, _)| is_asked(name, *bytes)).collect();
        asked.sort_unstable_by_key(|(bytes, ..)| Reverse(*bytes));
        asked.iter().find_map(|(.., share)| {
            let own = share.bodies.values().next().filter(|sent| sent.began.elapsed() >= GRACE);
            own.or_else(|| share.most(has, &|_, _| true))
        })
    }
}

/// The time in which a body may give way.
struct Given<'a>(&'a Room, &'a Arc<Sent>);

impl<'a> Given<'a> {
    fn of(room: &'a Room, sent: &'a Arc<Sent>) -> Self {
        sent.gives.store(true, Ordering::Relaxed);
        room.list(sent);
        Self(room, sent)
    }
}

impl Drop for Given<'_> {
    fn drop(&mut self) {
        self.1.gives.store(false, Ordering::Relaxed);
        lock(&self.0.giving).remove(self.1);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use futures::FutureExt as _;
    use futures::future::BoxFuture;

    use super::*;

    const MIB: usize = 1 << 20;

    fn hold(room: &BodyRoom, organization: &str, holder: &Holder) -> BodyHold {
        room.hold_by(holder.path(organization, room.0.memory.bytes_max() / BODIES_SHARE))
    }

    fn stranger(room: &BodyRoom, group: &'static str, client: &str) -> BodyHold {
        room.hold(Sender::Client { group, client })
    }

    /// Bodies of so many bytes, each sent in pieces, until one finds no room.
    fn flood(bytes: usize, begin: impl Fn() -> BodyHold) -> Vec<BodyHold> {
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
        assert!(room.0.memory.is_empty());
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
        assert!(room.0.memory.is_empty());
    }

    /// The bodies that were begun, in the time in which they may give way.
    fn underway(held: &[BodyHold]) -> Vec<BoxFuture<'_, Option<()>>> {
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
        let of = |name: &str| room.0.memory.look(|has| has(name));
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
        assert!(room.0.memory.is_empty() && lock(&room.0.giving).is_empty());
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

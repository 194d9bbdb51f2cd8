//! How many streams each organization has open, and how much they have read that nobody has taken:
//! a stream costs little, but it costs for as long as it lasts, and one tenant must not have them
//! all, nor one credential its organization's. Holds an entry only while an organization has a
//! stream, or a page of one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use charter_store::PAGE_BYTES_MAX;
use charter_tenancy::identity::Identity;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Streams of one organization at once.
const STREAMS_MAX: usize = 1_000;
/// A page, in KiB.
const PAGE_KIB: usize = PAGE_BYTES_MAX >> 10;
/// Bytes of one organization's streams that are read and not taken yet, in KiB: eight pages.
const ROOM_KIB: usize = 8 * PAGE_KIB;
/// The part of them that all pinned credentials have together: the others have the rest in any
/// case.
const PINNED_KIB: usize = ROOM_KIB / 2;

/// The open streams, by organization.
#[derive(Debug, Default)]
pub struct Streams(Arc<Open>);

type Open = Mutex<HashMap<String, Own>>;

/// An organization's own of them.
#[derive(Debug)]
struct Own {
    streams: usize,
    /// The room of all, and the part of it that pinned credentials have.
    room: Arc<Semaphore>,
    pinned: Arc<Semaphore>,
    shares: HashMap<Holder, Share>,
}

/// The streams of one holder, and its part of the room.
#[derive(Debug)]
struct Share {
    streams: usize,
    room: Arc<Semaphore>,
}

/// The holder of a stream: a credential, which those that it has made count with, so that many of
/// them get no more.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Holder {
    credential: String,
    pinned: bool,
}

/// One open stream; it is closed once this and its pages are dropped.
#[derive(Clone, Debug)]
pub struct OpenStream(Arc<Place>);

#[derive(Debug)]
struct Place {
    open: Arc<Open>,
    organization: String,
    holder: Holder,
    /// The rooms that a page counts in, the narrowest first.
    rooms: Vec<Arc<Semaphore>>,
}

/// Room for a page that is about to be read.
#[derive(Debug)]
pub struct Room {
    held: Vec<OwnedSemaphorePermit>,
    _place: Arc<Place>,
}

/// Bytes that take their room until nobody holds them.
struct Piece(String, #[expect(dead_code, reason = "given back with the bytes")] Room);

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

fn lock_open(open: &Open) -> MutexGuard<'_, HashMap<String, Own>> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Holder {
    /// The holder of what this sender opens.
    pub fn of(identity: &Identity) -> Self {
        let (credential, pinned) = match identity {
            Identity::Key(key) => {
                let first = key.ancestors.last().unwrap_or(&key.id);
                (first.as_str(), key.project.is_some() || key.user.is_some())
            }
            Identity::Session(session) => (session.account.as_str(), false),
            Identity::Operator | Identity::Anonymous => ("", false),
        };
        Self { credential: credential.to_owned(), pinned }
    }

    /// The part of the room that it may have: half of what those of its kind have.
    fn room(&self) -> Arc<Semaphore> {
        Arc::new(Semaphore::new(if self.pinned { PINNED_KIB / 2 } else { ROOM_KIB / 2 }))
    }
}

impl Own {
    fn new() -> Self {
        let room = |kib| Arc::new(Semaphore::new(kib));
        Self { streams: 0, room: room(ROOM_KIB), pinned: room(PINNED_KIB), shares: HashMap::new() }
    }
}

impl Streams {
    /// A place for one more. `None` where the organization has as many as it may, unless it is owed
    /// one.
    pub fn take(&self, organization: &str, holder: Holder, owed: bool) -> Option<OpenStream> {
        let mut open = lock_open(&self.0);
        let streams = open.get(organization).map_or(0, |own| own.streams);
        if streams >= STREAMS_MAX && !owed {
            return None;
        }
        let own = open.entry(organization.to_owned()).or_insert_with(Own::new);
        own.streams += 1;
        let share = own.shares.entry(holder.clone());
        let share = share.or_insert_with(|| Share { streams: 0, room: holder.room() });
        share.streams += 1;
        let mut rooms = vec![share.room.clone()];
        rooms.extend(holder.pinned.then(|| own.pinned.clone()));
        rooms.push(own.room.clone());
        let (open, organization) = (self.0.clone(), organization.to_owned());
        Some(OpenStream(Arc::new(Place { open, organization, holder, rooms })))
    }
}

impl OpenStream {
    /// Waits for room for a page, which other streams of the holder and of the organization may
    /// have.
    pub async fn room(&self) -> Room {
        let page = u32::try_from(PAGE_KIB).unwrap_or(u32::MAX);
        let mut held = Vec::with_capacity(self.0.rooms.len());
        for room in &self.0.rooms {
            held.extend(room.clone().acquire_many_owned(page).await.ok());
        }
        Room { held, _place: self.0.clone() }
    }
}

impl Room {
    /// The bytes of a page, which take as much of the room as they have.
    pub fn fill(mut self, text: String) -> Bytes {
        let kib = text.len().div_ceil(1 << 10);
        for page in &mut self.held {
            let rest = page.num_permits().saturating_sub(kib);
            drop(page.split(rest));
        }
        Bytes::from_owner(Piece(text, self))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = lock_open(&self.open);
        let Some(own) = open.get_mut(&self.organization) else { return };
        own.streams -= 1;
        if let Some(share) = own.shares.get_mut(&self.holder) {
            share.streams -= 1;
            if share.streams == 0 {
                own.shares.remove(&self.holder);
            }
        }
        if own.streams == 0 {
            open.remove(&self.organization);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn holder(credential: &str) -> Holder {
        Holder { credential: credential.into(), pinned: false }
    }

    fn pinned(credential: &str) -> Holder {
        Holder { pinned: true, ..holder(credential) }
    }

    fn page() -> String {
        "x".repeat(PAGE_BYTES_MAX)
    }

    #[test]
    fn one_organization_fills_its_own_places_only_and_gets_them_back() {
        let places = Streams::default();
        let take = |organization, owed| places.take(organization, holder("key"), owed);
        let all: Vec<_> =
            (0..STREAMS_MAX).map(|_| take("a", false).expect("there is room")).collect();
        assert!(take("a", false).is_none());
        let neighbour = take("b", false).expect("another tenant has its own");
        let owed = take("a", true).expect("what was done already is answered");
        drop(owed);
        assert!(take("a", false).is_none());
        drop(all);
        drop(neighbour);
        assert!(places.0.lock().unwrap().is_empty(), "nobody is remembered");
        assert!(take("a", false).is_some());
    }

    #[tokio::test]
    async fn pages_that_nobody_takes_are_few_and_small_ones_many() {
        let places = Streams::default();
        let open = |credential| places.take("a", holder(credential), false).unwrap();
        let [one, two, three] = ["one", "two", "three"].map(open);
        let small: Vec<_> = futures::future::join_all(
            (0..40).map(async |_| one.room().await.fill("x".repeat(1_000))),
        )
        .await;
        assert_eq!(small[0].len(), 1_000);
        let mut large = Vec::new();
        for stream in [&two, &two, &two, &two, &one, &one, &one] {
            large.push(stream.room().await.fill(page()));
        }
        assert!(three.room().now_or_never().is_none(), "eight pages with the rest");
        let neighbour = places.take("b", holder("one"), false).unwrap();
        assert!(neighbour.room().now_or_never().is_some());
        drop(large.pop());
        assert!(three.room().now_or_never().is_some());
    }

    #[test]
    fn one_credential_fills_its_own_part_and_pinned_ones_leave_half_to_the_others() {
        let places = Streams::default();
        let fill = |holder| {
            let stream = places.take("a", holder, false).unwrap();
            let rooms = std::iter::from_fn(|| stream.room().now_or_never());
            rooms.map(|room| room.fill(page())).collect::<Vec<_>>()
        };
        let (one, two) = (fill(pinned("one")), fill(pinned("two")));
        assert_eq!((one.len(), two.len(), fill(pinned("three")).len()), (2, 2, 0));
        let own = fill(holder("own"));
        assert_eq!(own.len(), 4);
        assert_eq!(fill(pinned("one")).len(), 0, "a stream that has ended holds its pages still");
        drop(one);
        assert_eq!(fill(pinned("three")).len(), 2);
        drop((two, own));
        assert!(places.0.lock().unwrap().is_empty(), "nobody is remembered");
    }
}

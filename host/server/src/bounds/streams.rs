//! How many streams each organization has open, and how much they have read that nobody has taken:
//! a stream costs little, but it costs for as long as it lasts, and one tenant must not have them
//! all, nor one credential its organization's. Holds an entry only while an organization has a
//! stream, or a page of one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use charter_store::PAGE_BYTES_MAX;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::holder::Holder;
use super::keep;
use super::shares::{Path, Shares};

/// Streams of one organization at once.
const STREAMS_MAX: usize = 2_000;
/// A page, in KiB.
const PAGE_KIB: usize = PAGE_BYTES_MAX >> 10;
/// Bytes of one organization's streams that are read and not taken yet, in KiB: eight pages. Those
/// who have a page of their own have as much again together.
const ROOM_KIB: usize = 8 * PAGE_KIB;

/// The open streams.
#[derive(Debug)]
pub struct Streams(Arc<Mutex<Open>>);

#[derive(Debug)]
struct Open {
    places: Shares,
    /// The room of each share that has a stream.
    rooms: HashMap<Arc<str>, Rooms>,
}

/// The room of one share.
#[derive(Clone, Debug)]
struct Rooms {
    /// Of all that is read within it.
    all: Arc<Semaphore>,
    /// Of pages beside all others' room.
    own: Arc<Semaphore>,
}

/// One open stream; it is closed once this and its pages are dropped.
#[derive(Clone, Debug)]
pub struct OpenStream(Arc<Place>);

#[derive(Debug)]
struct Place {
    open: Arc<Mutex<Open>>,
    path: Path,
    /// The room of each share of the path.
    rooms: Vec<Rooms>,
}

/// Room for a page that is about to be read.
#[derive(Debug)]
pub struct Room {
    held: Vec<OwnedSemaphorePermit>,
    _place: Arc<Place>,
}

fn lock_open(open: &Mutex<Open>) -> MutexGuard<'_, Open> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits for room for a page in each of these.
async fn acquire(rooms: impl Iterator<Item = &Arc<Semaphore>>) -> Vec<OwnedSemaphorePermit> {
    let page = u32::try_from(PAGE_KIB).unwrap_or(u32::MAX);
    let mut held = Vec::new();
    for room in rooms {
        held.extend(room.clone().acquire_many_owned(page).await.ok());
    }
    held
}

impl Rooms {
    /// The room of a share at this depth: half of that around it, and a page in any case.
    fn at(depth: usize) -> Self {
        let all = (ROOM_KIB >> depth.min(31)).max(PAGE_KIB);
        let own = if depth == 0 { ROOM_KIB } else { PAGE_KIB };
        Self { all: Arc::new(Semaphore::new(all)), own: Arc::new(Semaphore::new(own)) }
    }
}

impl Default for Streams {
    fn default() -> Self {
        let places = Shares::new(usize::MAX);
        Self(Arc::new(Mutex::new(Open { places, rooms: HashMap::new() })))
    }
}

impl Streams {
    /// A place for one more. `None` where the holder has as many as it may; one that has none gets
    /// one.
    pub fn take(&self, organization: &str, holder: &Holder) -> Option<OpenStream> {
        let path = holder.path(organization, STREAMS_MAX);
        let mut open = lock_open(&self.0);
        let is_first = path.floor().is_some_and(|floor| open.places.of(&floor.name) == 0);
        if !is_first {
            open.places.admit(&path.shares, 1).ok()?;
        }
        open.places.add(&path.shares, 1);
        let rooms = path.shares.iter().enumerate().map(|(depth, share)| {
            open.rooms.entry(share.name.clone()).or_insert_with(|| Rooms::at(depth)).clone()
        });
        let rooms = rooms.collect();
        Some(OpenStream(Arc::new(Place { open: self.0.clone(), path, rooms })))
    }
}

impl OpenStream {
    /// Waits for room for a page, which other streams of the holder and of the organization may
    /// have; or for the page that its holder has beside all others.
    pub async fn room(&self) -> Room {
        let place = &self.0;
        let own = async {
            match place.path.floor {
                Some(depth) => {
                    acquire([depth, 0].map(|depth| &place.rooms[depth].own).into_iter()).await
                }
                None => std::future::pending().await,
            }
        };
        let held = tokio::select! {
            biased;
            held = acquire(place.rooms.iter().rev().map(|room| &room.all)) => held,
            held = own => held,
        };
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
        keep(text, self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut open = lock_open(&self.open);
        open.places.remove(&self.path.shares, 1);
        for share in self.path.shares.iter() {
            if open.places.of(&share.name) == 0 {
                open.rooms.remove(&share.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn is_empty(streams: &Streams) -> bool {
        let open = lock_open(&streams.0);
        open.places.is_empty() && open.rooms.is_empty()
    }

    fn page() -> String {
        "x".repeat(PAGE_BYTES_MAX)
    }

    #[test]
    fn a_share_has_at_most_as_many_streams_as_are_free_around_it() {
        let places = Streams::default();
        let take = |organization, share| places.take(organization, &[share].into());
        let fill = |share| std::iter::from_fn(|| take("a", share)).collect::<Vec<OpenStream>>();
        let all = fill("key one");
        let other = fill("key two");
        assert_eq!((all.len(), other.len()), (STREAMS_MAX / 2, STREAMS_MAX / 4));
        assert!(take("a", "key one").is_none());
        let neighbour = take("b", "key one").expect("another tenant has its own");
        drop((all, other, neighbour));
        assert!(is_empty(&places), "nobody is remembered");
        assert!(take("a", "key one").is_some());
    }

    #[test]
    fn one_agents_streams_leave_places_to_the_others_of_its_project() {
        let places = Streams::default();
        let fill = |holder: [&str; 3]| {
            std::iter::from_fn(|| places.take("a", &holder.into())).collect::<Vec<_>>()
        };
        let one = fill(["pinned", "project p", "user one"]);
        let two = fill(["pinned", "project p", "user two"]);
        let other = fill(["pinned", "project q", "no user"]);
        for (left, others) in [(&one, "two"), (&two, "other"), (&other, "the owner")] {
            assert!(left.len() > 100, "{} beside {others}", left.len());
        }
        assert!(places.take("a", &["key own"].into()).is_some());
    }

    #[tokio::test]
    async fn pages_that_nobody_takes_are_few_and_small_ones_many() {
        let places = Streams::default();
        let open = |credential| places.take("a", &[credential].into()).unwrap();
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
        let page_of_its_own =
            three.room().now_or_never().expect("whatever others have").fill(page());
        assert!(three.room().now_or_never().is_none(), "nine pages with the rest");
        let neighbour = places.take("b", &["one"].into()).unwrap();
        assert!(neighbour.room().now_or_never().is_some());
        drop((large.pop(), large.pop(), page_of_its_own));
        let [_first, _second] =
            [(); 2].map(|()| three.room().now_or_never().expect("there is room").fill(page()));
    }

    #[test]
    fn one_credential_fills_its_own_part_and_pinned_ones_leave_half_to_the_others() {
        let places = Streams::default();
        let fill = |holder: Holder| {
            let stream = places.take("a", &holder).unwrap();
            let rooms = std::iter::from_fn(|| stream.room().now_or_never());
            rooms.map(|room| room.fill(page())).collect::<Vec<_>>()
        };
        let agent = |user: &str| fill(["pinned", "project p", user].into());
        let (one, two) = (agent("user one"), agent("user two"));
        assert_eq!((one.len(), two.len(), agent("user three").len()), (2, 2, 1), "one is its own");
        let whole = fill(["pinned", "project q", "no user"].into());
        assert_eq!((whole.len(), fill(["pinned", "project q", "user four"].into()).len()), (2, 2));
        let made = fill(["own", "made by it"].into());
        let own = fill(["own"].into());
        assert_eq!((made.len(), own.len()), (3, 2));
        assert_eq!(agent("user one").len(), 0, "a stream that has ended holds its pages still");
        drop(one);
        assert_eq!(agent("user three").len(), 2);
        drop((two, whole, own, made));
        assert!(is_empty(&places), "nobody is remembered");
    }

    #[test]
    fn who_reads_gets_a_page_whatever_others_leave_unread() {
        let places = Streams::default();
        let fill = |holder: &Holder| {
            let stream = places.take("a", holder).unwrap();
            let rooms = std::iter::from_fn(|| stream.room().now_or_never());
            rooms.map(|room| room.fill(page())).collect::<Vec<_>>()
        };
        let others = ["one", "two", "three", "four"].map(|other| fill(&[other].into()));
        let agents = fill(&["pinned", "project p", "no user"].into());
        for reader in [
            Holder::signed_in("person"),
            ["pinned", "project q", "no user"].into(),
            ["pinned", "project p", "user one"].into(),
        ] {
            let [one, two] = [(); 2].map(|()| places.take("a", &reader).unwrap());
            for stream in [&one, &two, &two, &one] {
                let held = stream.room().now_or_never().expect("none of its own is unread");
                let held = held.fill(page());
                assert!(one.room().now_or_never().is_none() && two.room().now_or_never().is_none());
                drop(held);
            }
        }
        drop((others, agents));
        assert!(is_empty(&places));
    }
}

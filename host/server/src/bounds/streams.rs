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

/// Streams of one organization at once.
const STREAMS_MAX: usize = 2_000;
/// A page, in KiB.
const PAGE_KIB: usize = PAGE_BYTES_MAX >> 10;
/// Bytes of one organization's streams that are read and not taken yet, in KiB: eight pages.
const ROOM_KIB: usize = 8 * PAGE_KIB;
/// The share that is the whole.
const WHOLE: &str = "";

/// The open streams, by organization.
#[derive(Debug, Default)]
pub struct Streams(Arc<Open>);

/// The shares of each organization, by their names.
type Open = Mutex<HashMap<String, HashMap<String, Share>>>;

/// The streams that count in a share, and its room.
#[derive(Debug)]
struct Share {
    streams: usize,
    room: Arc<Semaphore>,
}

/// One open stream; it is closed once this and its pages are dropped.
#[derive(Clone, Debug)]
pub struct OpenStream(Arc<Place>);

#[derive(Debug)]
struct Place {
    open: Arc<Open>,
    organization: String,
    holder: Holder,
    /// The rooms that a page counts in, the widest first.
    rooms: Vec<Arc<Semaphore>>,
    /// How many of them are wider than the one that has room for one page in any case.
    wider: usize,
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

fn lock_open(open: &Open) -> MutexGuard<'_, HashMap<String, HashMap<String, Share>>> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The room of a share, in KiB: half of that around it, and a page in any case.
fn room_kib(depth: usize) -> usize {
    (ROOM_KIB >> depth.min(31)).max(PAGE_KIB)
}

/// The shares of a holder, the widest first.
fn shares(holder: &Holder) -> impl Iterator<Item = &str> {
    std::iter::once(WHOLE).chain(holder.shares().iter().map(String::as_str))
}

/// Whether one more fits: a share has at most as many as are free in the one around it, so that
/// nobody takes the last places, and whoever has none gets one.
fn is_free(open: Option<&HashMap<String, Share>>, holder: &Holder) -> bool {
    let count = |name: &str| open.and_then(|own| own.get(name)).map_or(0, |share| share.streams);
    if holder.floor().is_some_and(|name| count(name) == 0) {
        return true;
    }
    let (mut max, mut free) = (STREAMS_MAX, STREAMS_MAX);
    shares(holder).all(|name| {
        let streams = count(name);
        let fits = streams < free;
        free = max.saturating_sub(streams);
        max /= 2;
        fits
    })
}

impl Streams {
    /// A place for one more. `None` where the holder has as many as it may, unless it is owed one.
    pub fn take(&self, organization: &str, holder: Holder, owed: bool) -> Option<OpenStream> {
        let mut open = lock_open(&self.0);
        if !owed && !is_free(open.get(organization), &holder) {
            return None;
        }
        let own = open.entry(organization.to_owned()).or_default();
        let rooms = shares(&holder).enumerate().map(|(depth, name)| {
            let share = own.entry(name.to_owned());
            let room = || Arc::new(Semaphore::new(room_kib(depth)));
            let share = share.or_insert_with(|| Share { streams: 0, room: room() });
            share.streams += 1;
            share.room.clone()
        });
        let rooms = rooms.collect();
        let wider = shares(&holder).position(|name| holder.floor() == Some(name)).unwrap_or(0);
        let (open, organization) = (self.0.clone(), organization.to_owned());
        Some(OpenStream(Arc::new(Place { open, organization, holder, rooms, wider })))
    }
}

impl OpenStream {
    /// Waits for room for a page, which other streams of the holder and of the organization may
    /// have.
    pub async fn room(&self) -> Room {
        let page = u32::try_from(PAGE_KIB).unwrap_or(u32::MAX);
        let place = &self.0;
        let mut held = Vec::with_capacity(place.rooms.len());
        let mut first = false;
        for (depth, room) in place.rooms.iter().enumerate().rev() {
            if first && depth < place.wider {
                // Nobody waits for what others have with no page of their own.
                held.extend(room.clone().try_acquire_many_owned(page).ok());
                continue;
            }
            held.extend(room.clone().acquire_many_owned(page).await.ok());
            first |= depth == place.wider && room.available_permits() + PAGE_KIB == room_kib(depth);
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
        for name in shares(&self.holder) {
            let Some(share) = own.get_mut(name) else { continue };
            share.streams -= 1;
            if share.streams == 0 {
                own.remove(name);
            }
        }
        if own.is_empty() {
            open.remove(&self.organization);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn page() -> String {
        "x".repeat(PAGE_BYTES_MAX)
    }

    #[test]
    fn a_share_has_at_most_as_many_streams_as_are_free_around_it() {
        let places = Streams::default();
        let take = |organization, share, owed| places.take(organization, [share].into(), owed);
        let fill =
            |share| std::iter::from_fn(|| take("a", share, false)).collect::<Vec<OpenStream>>();
        let all = fill("key one");
        let other = fill("key two");
        assert_eq!((all.len(), other.len()), (STREAMS_MAX / 2, STREAMS_MAX / 4));
        assert!(take("a", "key one", false).is_none());
        let neighbour = take("b", "key one", false).expect("another tenant has its own");
        let owed = take("a", "key one", true).expect("what was done already is answered");
        drop((owed, all, other, neighbour));
        assert!(places.0.lock().unwrap().is_empty(), "nobody is remembered");
        assert!(take("a", "key one", false).is_some());
    }

    #[test]
    fn one_agents_streams_leave_places_to_the_others_of_its_project() {
        let places = Streams::default();
        let fill = |holder: [&str; 3]| {
            std::iter::from_fn(|| places.take("a", holder.into(), false)).collect::<Vec<_>>()
        };
        let one = fill(["pinned", "project p", "user one"]);
        let two = fill(["pinned", "project p", "user two"]);
        let other = fill(["pinned", "project q", "no user"]);
        for (left, others) in [(&one, "two"), (&two, "other"), (&other, "the owner")] {
            assert!(left.len() > 100, "{} beside {others}", left.len());
        }
        assert!(places.take("a", ["key own"].into(), false).is_some());
    }

    #[tokio::test]
    async fn pages_that_nobody_takes_are_few_and_small_ones_many() {
        let places = Streams::default();
        let open = |credential| places.take("a", [credential].into(), false).unwrap();
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
        let neighbour = places.take("b", ["one"].into(), false).unwrap();
        assert!(neighbour.room().now_or_never().is_some());
        drop((large.pop(), large.pop(), page_of_its_own));
        let [_first, _second] =
            [(); 2].map(|()| three.room().now_or_never().expect("there is room").fill(page()));
    }

    #[test]
    fn one_credential_fills_its_own_part_and_pinned_ones_leave_half_to_the_others() {
        let places = Streams::default();
        let fill = |holder: Holder| {
            let stream = places.take("a", holder, false).unwrap();
            let rooms = std::iter::from_fn(|| stream.room().now_or_never());
            rooms.map(|room| room.fill(page())).collect::<Vec<_>>()
        };
        let agent = |user: &str| fill(["pinned", "project p", user].into());
        let (one, two) = (agent("user one"), agent("user two"));
        assert_eq!((one.len(), two.len(), agent("user three").len()), (1, 1, 0));
        let whole = fill(["pinned", "project q", "no user"].into());
        assert_eq!((whole.len(), fill(["pinned", "project q", "user four"].into()).len()), (1, 1));
        let made = fill(["own", "made by it"].into());
        let own = fill(["own"].into());
        assert_eq!((made.len(), own.len()), (2, 2));
        assert_eq!(agent("user one").len(), 0, "a stream that has ended holds its pages still");
        drop(one);
        assert_eq!(agent("user three").len(), 1);
        drop((two, whole, own, made));
        assert!(places.0.lock().unwrap().is_empty(), "nobody is remembered");
    }
}

//! How many streams each organization has open: a stream costs little, but it costs for as long as
//! it lasts, and one tenant must not have them all. Holds an entry only while an organization has a
//! stream.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use charter_store::PAGE_BYTES_MAX;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Streams of one organization at once.
const STREAMS_MAX: usize = 1_000;
/// Bytes of one organization's streams that are read and not taken yet, in KiB: eight pages.
const WAITING_KIB: usize = 8 * PAGE_KIB;
/// A page, in KiB.
const PAGE_KIB: usize = PAGE_BYTES_MAX >> 10;

/// The open streams.
#[derive(Debug, Default)]
pub struct Streams(Arc<Mutex<HashMap<String, Own>>>);

/// An organization's own of them.
#[derive(Debug)]
struct Own {
    streams: usize,
    waiting: Arc<Semaphore>,
}

/// One open stream; dropping it closes it.
#[derive(Debug)]
pub struct OpenStream {
    open: Arc<Mutex<HashMap<String, Own>>>,
    organization: String,
    waiting: Arc<Semaphore>,
}

/// Room for a page that is about to be read.
#[derive(Debug)]
pub struct Room(Option<OwnedSemaphorePermit>);

/// Bytes that take their room until nobody holds them.
struct Piece(String, #[expect(dead_code, reason = "given back with the bytes")] Room);

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        self.0.as_bytes()
    }
}

fn lock_open(open: &Mutex<HashMap<String, Own>>) -> MutexGuard<'_, HashMap<String, Own>> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Streams {
    /// A place for one more. `None` where the organization has as many as it may, unless it is owed
    /// one.
    pub fn take(&self, organization: &str, owed: bool) -> Option<OpenStream> {
        let mut open = lock_open(&self.0);
        let streams = open.get(organization).map_or(0, |own| own.streams);
        if streams >= STREAMS_MAX && !owed {
            return None;
        }
        let own = open
            .entry(organization.to_owned())
            .or_insert_with(|| Own { streams: 0, waiting: Arc::new(Semaphore::new(WAITING_KIB)) });
        own.streams += 1;
        let (open, waiting) = (self.0.clone(), own.waiting.clone());
        Some(OpenStream { open, organization: organization.to_owned(), waiting })
    }
}

impl OpenStream {
    /// Waits for room for a page, which other streams of the organization may have.
    pub async fn room(&self) -> Room {
        let page = u32::try_from(PAGE_KIB).unwrap_or(u32::MAX);
        Room(self.waiting.clone().acquire_many_owned(page).await.ok())
    }
}

impl Room {
    /// The bytes of a page, which take as much of the room as they have.
    pub fn fill(self, text: String) -> Bytes {
        let kib = text.len().div_ceil(1 << 10);
        let room = self.0.map(|mut page| {
            let rest = page.num_permits().saturating_sub(kib);
            drop(page.split(rest));
            page
        });
        Bytes::from_owner(Piece(text, Self(room)))
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let mut open = lock_open(&self.open);
        match open.get_mut(&self.organization) {
            Some(own) if own.streams > 1 => own.streams -= 1,
            _ => drop(open.remove(&self.organization)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_organization_fills_its_own_places_only_and_gets_them_back() {
        let places = Streams::default();
        let all: Vec<_> =
            (0..STREAMS_MAX).map(|_| places.take("a", false).expect("there is room")).collect();
        assert!(places.take("a", false).is_none());
        let neighbour = places.take("b", false).expect("another tenant has its own");
        let owed = places.take("a", true).expect("what was done already is answered");
        drop(owed);
        assert!(places.take("a", false).is_none());
        drop(all);
        drop(neighbour);
        assert!(places.0.lock().unwrap().is_empty(), "nobody is remembered");
        assert!(places.take("a", false).is_some());
    }

    #[tokio::test]
    async fn pages_that_nobody_takes_are_few_and_small_ones_many() {
        let places = Streams::default();
        let (one, two) = (places.take("a", false).unwrap(), places.take("a", false).unwrap());
        let small: Vec<_> = futures::future::join_all(
            (0..100).map(async |_| one.room().await.fill("x".repeat(1_000))),
        )
        .await;
        assert_eq!(small[0].len(), 1_000);
        let mut large = Vec::new();
        for _ in 0..7 {
            large.push(two.room().await.fill("x".repeat(PAGE_BYTES_MAX)));
        }
        assert!(
            futures::FutureExt::now_or_never(two.room()).is_none(),
            "eight pages with the rest"
        );
        assert!(
            futures::FutureExt::now_or_never(places.take("b", false).unwrap().room()).is_some()
        );
        drop(large.pop());
        assert!(futures::FutureExt::now_or_never(one.room()).is_some());
    }
}

//! The places of a listener, for its connections and for requests beside the first of a connection:
//! a bounded number of each, of which each client address has its share.
//!
//! One address takes half of what the others have left, so that nobody keeps everybody else out by
//! opening connections, or streams on them. A trusted proxy's connections are its clients', who are
//! told apart by request: they count in no share.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use ipnet::IpNet;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::forwarded::is_trusted;
use crate::bounds::shares::{Share, Shares};
use crate::bounds::strangers;

/// The places. Cheap to clone: the clones share them.
#[derive(Clone)]
pub(super) struct Places {
    all: Arc<Semaphore>,
    shares: Arc<Mutex<Shares>>,
    proxies: Arc<[IpNet]>,
}

/// A place in somebody's share, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    _one: OwnedSemaphorePermit,
    shares: Arc<Mutex<Shares>>,
    path: Arc<[Share]>,
}

impl Places {
    /// So many places, with the proxies that have no share.
    pub(super) fn new(count: usize, proxies: &[IpNet]) -> Self {
        Self {
            all: Arc::new(Semaphore::new(count)),
            shares: Arc::new(Mutex::new(Shares::new(count))),
            proxies: proxies.into(),
        }
    }

    /// The shares that this address counts in.
    pub(super) fn path(&self, address: IpAddr) -> Arc<[Share]> {
        let address = address.to_canonical();
        if is_trusted(address, &self.proxies) {
            return Arc::default();
        }
        Arc::new([Share { name: strangers::client(address).into(), max: usize::MAX }])
    }

    /// Waits for a place, whoever is to have it.
    pub(super) async fn free(&self) -> Option<OwnedSemaphorePermit> {
        self.all.clone().acquire_owned().await.ok()
    }

    /// Gives it to whoever counts in these shares; `None` where they have what they may.
    pub(super) fn give(&self, one: OwnedSemaphorePermit, path: &Arc<[Share]>) -> Option<Place> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        shares.admit(path, 1).ok()?;
        shares.add(path, 1);
        drop(shares);
        Some(Place { _one: one, shares: self.shares.clone(), path: path.clone() })
    }

    /// Takes a place without waiting; `None`, too, where all are taken.
    pub(super) fn take(&self, path: &Arc<[Share]>) -> Option<Place> {
        let one = self.all.clone().try_acquire_owned().ok()?;
        self.give(one, path)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.path, 1);
    }
}

/// Refusals of one connection that are not read yet: one with more is cut, for each takes a kilobyte.
const REFUSALS_UNREAD_MAX: usize = 32;

/// The requests that are under way on one HTTP/2 connection at once. One of them needs no place, as
/// over HTTP/1; each further one takes a place among those of all connections.
pub(super) struct Requests {
    beside: Places,
    path: Arc<[Share]>,
    /// Whether the one that needs no place is under way.
    has_first: Arc<AtomicBool>,
    refused: Arc<()>,
}

/// The refusal of one that found no place, until it is sent or dropped.
pub(super) struct Refused(#[expect(dead_code, reason = "it is counted")] Arc<()>);

/// A request that is under way, until it is dropped.
#[derive(Debug)]
pub(super) struct Underway {
    /// Set where it is the one that needs no place.
    first: Option<Arc<AtomicBool>>,
    _place: Option<Place>,
}

impl Requests {
    /// Those of a connection from this address.
    pub(super) fn new(beside: Places, address: IpAddr) -> Self {
        let path = beside.path(address);
        Self { beside, path, has_first: Arc::default(), refused: Arc::default() }
    }

    /// Begins one more; `None` where there is no place for it.
    pub(super) fn begin(&self) -> Option<Underway> {
        if !self.has_first.swap(true, Relaxed) {
            return Some(Underway { first: Some(self.has_first.clone()), _place: None });
        }
        self.beside.take(&self.path).map(|place| Underway { first: None, _place: Some(place) })
    }

    /// Notes that one found no place.
    pub(super) fn refuse(&self) -> Refused {
        Refused(self.refused.clone())
    }

    /// Whether so many refusals are not read that the peer sends requests and reads nothing.
    pub(super) fn has_unread_refusals(&self) -> bool {
        Arc::strong_count(&self.refused) > REFUSALS_UNREAD_MAX
    }
}

impl Drop for Underway {
    fn drop(&mut self) {
        if let Some(has_first) = &self.first {
            has_first.store(false, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Takes whatever an address may have.
    fn fill(places: &Places, address: &str) -> Vec<Place> {
        let path = places.path(address.parse().unwrap());
        std::iter::from_fn(|| places.take(&path)).collect()
    }

    fn is_idle(places: &Places, count: usize) -> bool {
        places.shares.lock().unwrap().is_empty() && places.all.available_permits() == count
    }

    #[test]
    fn an_address_with_thousands_leaves_places_to_the_next() {
        let places = Places::new(4_096, &[]);
        let addresses = [
            ("192.0.2.1", 2_048),
            ("::ffff:192.0.2.1", 0),
            ("192.0.2.2", 1_024),
            ("2001:db8::1", 512),
            ("2001:db8::2", 0),
            ("2001:db8:0:1::1", 256),
        ];
        let mut taken = Vec::new();
        for (address, count) in addresses {
            let own = fill(&places, address);
            assert_eq!(own.len(), count, "{address}");
            taken.push(own);
        }
        drop(taken);
        assert!(is_idle(&places, 4_096));
        assert_eq!(fill(&places, "2001:db8::2").len(), 2_048);
    }

    #[test]
    fn a_proxy_has_no_share_and_counts_in_the_whole() {
        let places = Places::new(8, &["10.0.0.0/8".parse().unwrap()]);
        let proxied = fill(&places, "::ffff:10.0.0.1");
        assert_eq!((proxied.len(), fill(&places, "192.0.2.1").len()), (8, 0));
        drop(proxied);
        assert!(is_idle(&places, 8));
    }

    #[tokio::test]
    async fn a_place_that_is_refused_is_free_again() {
        let places = Places::new(2, &[]);
        let path = places.path("192.0.2.1".parse().unwrap());
        let one = places.free().await.unwrap();
        let own = places.give(one, &path);
        assert!(own.is_some());
        let next = places.free().await.unwrap();
        assert!(places.give(next, &path).is_none());
        assert_eq!(places.all.available_permits(), 1);
        drop(own);
        assert!(is_idle(&places, 2));
    }

    #[test]
    fn a_connection_has_one_request_for_nothing_and_takes_places_for_more() {
        let places = Places::new(2, &[]);
        let connect = |address: &str| Requests::new(places.clone(), address.parse().unwrap());
        let (one, again, other) =
            (connect("192.0.2.1"), connect("192.0.2.1"), connect("192.0.2.2"));
        let first = one.begin();
        assert!(first.is_some() && places.all.available_permits() == 2);
        let second = one.begin();
        assert!(second.is_some() && one.begin().is_none(), "its address has its share");
        let alone = again.begin();
        assert!(alone.is_some() && again.begin().is_none(), "one share an address");
        let others = [other.begin(), other.begin()];
        assert!(others.iter().all(Option::is_some) && other.begin().is_none());
        drop(first);
        let next = one.begin();
        assert!(next.is_some() && one.begin().is_none(), "the one for nothing, once");
        let refusals: Vec<_> = (0..REFUSALS_UNREAD_MAX).map(|_| one.refuse()).collect();
        assert!(one.has_unread_refusals() && !other.has_unread_refusals());
        drop(refusals);
        assert!(!one.has_unread_refusals());
        drop((second, alone, others, next));
        assert!(is_idle(&places, 2));
        assert!(again.begin().is_some());
    }
}

//! The places of a listener's connections: a bounded number, of which each client address has its
//! share.
//!
//! One address takes half of what the others have left, so that nobody keeps everybody else out by
//! opening connections. A trusted proxy's connections are its clients', who are told apart by request:
//! they count in no share.

use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use ipnet::IpNet;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::forwarded::is_trusted;
use crate::bounds::shares::{Share, Shares};
use crate::bounds::strangers;

/// The places.
pub(super) struct Places {
    all: Arc<Semaphore>,
    shares: Arc<Mutex<Shares>>,
    proxies: Vec<IpNet>,
}

/// A place in somebody's share, until it is dropped.
pub(super) struct Place {
    _one: OwnedSemaphorePermit,
    shares: Arc<Mutex<Shares>>,
    path: Vec<Share>,
}

impl Places {
    /// So many places, with the proxies that have no share.
    pub(super) fn new(count: usize, proxies: &[IpNet]) -> Self {
        Self {
            all: Arc::new(Semaphore::new(count)),
            shares: Arc::new(Mutex::new(Shares::new(count))),
            proxies: proxies.to_vec(),
        }
    }

    /// Waits for a place, whoever is to have it.
    pub(super) async fn free(&self) -> Option<OwnedSemaphorePermit> {
        self.all.clone().acquire_owned().await.ok()
    }

    /// Gives it to this address; `None` where that has its share.
    pub(super) fn give(&self, one: OwnedSemaphorePermit, address: IpAddr) -> Option<Place> {
        let address = address.to_canonical();
        let path = match is_trusted(address, &self.proxies) {
            true => Vec::new(),
            false => vec![Share { name: strangers::client(address).into(), max: usize::MAX }],
        };
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        shares.admit(&path, 1).ok()?;
        shares.add(&path, 1);
        drop(shares);
        Some(Place { _one: one, shares: self.shares.clone(), path })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.shares.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.path, 1);
    }
}

//! Places for reads that take their time, shared fairly by organizations: none waits for all of
//! another's reads.

use std::sync::Arc;

use crate::lobby::{Lobby, Seat};

/// Reads of one organization that wait for a place; more are refused.
pub(super) const WAITING_MAX: usize = 256;

/// The places, of which one organization alone gets half.
pub(crate) struct Seats {
    all: Arc<Lobby>,
    /// The same, for the host's own reads alone.
    kept: Arc<Lobby>,
}

impl Seats {
    pub(crate) fn new(places: u32) -> Self {
        Self { all: Lobby::with_reserve(places as usize), kept: Lobby::open(1) }
    }

    /// A place for a read of an organization, or of the host itself, which names none and has a
    /// place of its own beside its share.
    pub(super) async fn take(&self, organization: &str) -> sqlx::Result<Seat> {
        let (party, is_host): (Arc<str>, _) = (organization.into(), organization.is_empty());
        if is_host && let Some(seat) = self.kept.try_enter(&party) {
            return Ok(seat);
        }
        let waiter = match self.all.enter(&party) {
            Ok(seat) => return Ok(seat),
            Err(waiter) => waiter,
        };
        if !is_host && self.all.count_waiting(&party) > WAITING_MAX {
            return Err(sqlx::Error::Io(std::io::ErrorKind::ResourceBusy.into()));
        }
        Ok(waiter.await)
    }
}

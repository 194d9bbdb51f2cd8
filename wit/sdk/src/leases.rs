//! Documents handed out one at a time, never twice: what a collection declared
//! [`Collection::lease_by`] can do.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::documents::{Collection, Doc};
use crate::failure::Result;
use crate::host::leases as host;
use crate::time::Instant;

/// A document handed out to this caller alone.
#[derive(Clone, Debug)]
pub struct Leased<T> {
    /// The document.
    pub doc: Doc<T>,
    /// The proof of the lease: [`settle`], [`release`] and [`extend`] take it.
    pub token: String,
    /// How often it was handed out, this time included.
    pub count: u32,
    /// When the lease ends.
    pub until: Instant,
}

/// The counts of one group now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Due and held by nobody.
    pub ready: u64,
    /// Held under a lease.
    pub held: u64,
    /// Not due yet.
    pub waiting: u64,
    /// When the oldest document that is ready or waiting was inserted.
    pub oldest: Option<Instant>,
}

impl<T: Serialize + DeserializeOwned> Collection<T> {
    /// Up to `limit` documents of the group that are due, until `until`. Commits at once; given
    /// back if the request fails.
    pub fn take(&self, group: &str, limit: u32, until: Instant) -> Result<Vec<Leased<T>>> {
        let taken = host::take(self.name(), group, limit, until.as_ms())?.into_iter();
        taken
            .map(|leased| {
                let until = Instant::from_ms(leased.until);
                Ok(Leased {
                    doc: Doc::read(leased.document)?,
                    token: leased.token,
                    count: leased.count,
                    until,
                })
            })
            .collect()
    }
    /// The counts of the group now.
    pub fn standing(&self, group: &str) -> Result<Standing> {
        let standing = host::standing_of(self.name(), group)?;
        let oldest = standing.oldest.map(Instant::from_ms);
        Ok(Standing {
            ready: standing.ready,
            held: standing.held,
            waiting: standing.waiting,
            oldest,
        })
    }
    /// A document that nobody holds is not handed out before `due`.
    pub fn defer(&self, id: &str, due: Instant) -> Result<()> {
        Ok(host::defer(self.name(), id, due.as_ms())?)
    }
    /// Removes documents of the group, held ones too, bounded a call; true while more are left.
    pub fn purge(&self, group: &str) -> Result<bool> {
        Ok(host::purge(self.name(), group)?)
    }
}

/// Ends the lease and removes the document; `state_conflict` if the token no longer holds.
pub fn settle(token: &str) -> Result<()> {
    Ok(host::settle(token)?)
}

/// Ends the lease; the document is due again at `due`.
pub fn release(token: &str, due: Instant) -> Result<()> {
    Ok(host::release(token, due.as_ms())?)
}

/// Moves the lease's end.
pub fn extend(token: &str, until: Instant) -> Result<()> {
    Ok(host::extend(token, until.as_ms())?)
}

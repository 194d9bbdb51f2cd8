//! The story of one request: what its attempts were given and have done, as the next one must know
//! it.
//!
//! Lives as long as the request, and is handed from attempt to attempt. Knows no guest and no call:
//! the loop and the capabilities write here what became of them.

use std::sync::Arc;

use charter_kernel::unit::Taken;

mod marks;
pub(crate) mod permits;
pub(crate) mod rates;

pub(crate) use marks::{Abort, Marks, over};

use permits::Permitted;
use rates::RateRecord;

/// The part of a request's work that outlives an attempt.
#[derive(Clone, Debug, Default)]
pub(crate) struct Story {
    /// The rows that were handed out, by place in the request.
    pub(crate) takes: Vec<TakeRecord>,
    /// The leave that it was given, by place in the request.
    pub(crate) permits: Vec<Permitted>,
    /// The amounts that it took from rates, by place in the request.
    pub(crate) rates: Vec<RateRecord>,
    /// Shared with requests in flight to the outside.
    pub(crate) marks: Arc<Marks>,
    /// The number of the attempt, from 1.
    pub(crate) attempt: u32,
}

/// Rows handed out to one request.
#[derive(Clone, Debug)]
pub(crate) struct TakeRecord {
    pub(crate) collection: String,
    pub(crate) group: String,
    pub(crate) limit: u32,
    pub(crate) taken: Vec<Taken>,
    /// The attempt that asked for it last.
    pub(crate) attempt: u32,
}

impl Story {
    /// Forgets the leave under which nothing was taken.
    pub(crate) async fn forget_untaken(&mut self) {
        let untaken = std::mem::take(&mut *self.marks.untaken.lock().await);
        self.permits.retain(|permit| untaken.iter().all(|untaken| untaken.id != permit.id));
    }
}

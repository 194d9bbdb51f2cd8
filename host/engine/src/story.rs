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
    /// The bytes of these rows, about.
    pub(crate) taken_bytes: usize,
    /// The leave that it was given, by place in the request.
    pub(crate) permits: Vec<Permitted>,
    /// The amounts that it took from rates, by place in the request.
    pub(crate) rates: Vec<RateRecord>,
    /// Shared with requests in flight to the outside.
    pub(crate) marks: Arc<Marks>,
    /// The number of the attempt, from 1.
    pub(crate) attempt: u32,
}

/// In place of an attempt: what is part of a commit in the middle of the request.
pub(crate) const COMMITTED: u32 = u32::MAX;

/// Rows handed out to one request.
#[derive(Clone, Debug)]
pub(crate) struct TakeRecord {
    pub(crate) collection: String,
    pub(crate) group: String,
    pub(crate) limit: u32,
    pub(crate) taken: Vec<Taken>,
    /// The attempt that asked for it last, or [`COMMITTED`].
    pub(crate) attempt: u32,
}

/// Memory that a record costs beside its texts, about.
const RECORD_BYTES: usize = 512;

impl TakeRecord {
    fn bytes(&self) -> usize {
        let row = |taken: &Taken| {
            taken.row.text_bytes() + taken.key.id.len() + taken.token.len() + RECORD_BYTES
        };
        self.group.len() + self.taken.iter().map(row).sum::<usize>() + RECORD_BYTES
    }
}

impl Story {
    /// Bytes that it keeps for later attempts, about: they are the request's memory in each of them.
    pub(crate) fn held_bytes(&self) -> usize {
        self.taken_bytes + self.permits.iter().map(|permit| permit.bytes).sum::<usize>()
    }

    /// Notes what was handed out at a place of the request. Rows that an earlier attempt was handed
    /// out there stand behind it.
    pub(crate) fn keep_take(&mut self, place: usize, record: TakeRecord) {
        self.taken_bytes += record.bytes();
        self.takes.insert(place.min(self.takes.len()), record);
    }

    /// Rows and amounts that this attempt was handed out are part of a commit in its middle: they do
    /// not go back, and it does not ask for them again. The others go back at the end, unless it
    /// asks for them still.
    pub(crate) fn commit_taken(&mut self) {
        let attempt = self.attempt;
        for record in self.takes.iter_mut().filter(|record| record.attempt == attempt) {
            record.attempt = COMMITTED;
            record.taken = Vec::new();
        }
        self.taken_bytes = self.takes.iter().map(TakeRecord::bytes).sum();
        for record in self.rates.iter_mut().filter(|record| record.attempt == attempt) {
            record.attempt = COMMITTED;
        }
    }

    /// Forgets the leave under which nothing was taken.
    pub(crate) async fn forget_untaken(&mut self) {
        let untaken = std::mem::take(&mut *self.marks.untaken.lock().await);
        self.permits.retain(|permit| untaken.iter().all(|untaken| untaken.id != permit.id));
    }
}

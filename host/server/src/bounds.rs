//! How much of one process callers may have: their rates, their bodies, the checks of those, the
//! answers that they do not read, their streams, their reads of many rows, and each idempotency key's
//! one run at a time.
//!
//! Knows no request and no row. Each bound is kept in memory, for this replica alone, and holds an
//! entry only while somebody uses it.

use std::num::NonZero;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread::available_parallelism;

use crate::config::Config;

pub mod answers;
pub mod bodies;
pub mod checks;
pub mod holder;
pub mod lines;
pub mod memory;
pub mod rate;
pub mod room;
pub mod running;
pub mod shares;
pub mod strangers;
pub mod streams;

use answers::Answers;
use bodies::BodyRoom;
use bytes::Bytes;
use checks::Checks;
use lines::Lines;
use rate::Buckets;
use running::Running;
use strangers::Strangers;
use streams::Streams;

/// The bounds of this process.
pub struct Bounds {
    /// Token buckets of the configured rates.
    pub buckets: Buckets,
    /// The share and the deeds of client addresses without a credential.
    pub strangers: Strangers,
    /// Room for request bodies.
    pub room: BodyRoom,
    /// Room for answers that are not read yet.
    pub answers: Answers,
    /// Checks of bodies that take long.
    pub checks: Checks,
    /// Reads of the host's own that look at a page of rows.
    pub pages: Lines,
    /// Those that look at as many as there are: nobody's page waits for one.
    pub sums: Lines,
    /// Requests under an idempotency key that run now.
    pub running: Running,
    /// Streams that are open.
    pub streams: Streams,
}

impl Bounds {
    /// As the operator has set them.
    pub fn new(config: &Config) -> Self {
        let cores = available_parallelism().map_or(1, NonZero::get);
        Self {
            buckets: Buckets::new(),
            strangers: Strangers::new(&config.auth),
            room: BodyRoom::new(config.http.bodies_bytes_max),
            answers: Answers::new(config.http.bodies_bytes_max),
            checks: Checks::beside(cores),
            pages: Lines::new(cores.max(2)),
            sums: Lines::new(cores.max(2)),
            running: Running::default(),
            streams: Streams::default(),
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Bytes that take up their room until nobody holds them.
pub fn keep<T, R>(bytes: T, room: R) -> Bytes
where
    T: AsRef<[u8]> + Send + 'static,
    R: Send + 'static,
{
    struct Piece<T, R>(T, R);

    impl<T: AsRef<[u8]>, R> AsRef<[u8]> for Piece<T, R> {
        fn as_ref(&self) -> &[u8] {
            self.0.as_ref()
        }
    }

    Bytes::from_owner(Piece(bytes, room))
}

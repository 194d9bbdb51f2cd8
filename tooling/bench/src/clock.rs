//! The machine's clock, for stores and engines that are measured without a server around them.

use std::time::SystemTime;

use charter_kernel::time::{Clock, Instant};

/// The wall clock.
pub struct Wall;

impl Clock for Wall {
    #[expect(clippy::disallowed_methods, reason = "the program's one look at the real clock")]
    fn now(&self) -> Instant {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        Instant(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
    }
}

//! Waiting for what a server does in its own time: looks again and again, and complains at a
//! deadline of what it waited for.
//!
//! Knows nothing of what it looks at. Nothing here waits without a deadline, and whoever works
//! beside a test ends with it.

use std::fmt::Display;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Nothing that a test waits for takes longer, on a busy machine either.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Between two looks: the server needs the machine to get there.
const PAUSE: Duration = Duration::from_millis(5);

/// Waits until it holds.
#[track_caller]
pub fn until(what: &str, holds: impl FnMut() -> bool) {
    within(PATIENCE, what, holds);
}

/// The same where the time is part of what is promised.
#[track_caller]
pub fn within(limit: Duration, what: &str, mut holds: impl FnMut() -> bool) {
    look_for(limit, what, || if holds() { Ok(()) } else { Err("it does not hold") });
}

/// Waits until a look finds something, and answers that; the complaint tells what the last look saw
/// in its place.
#[track_caller]
pub fn look_for<T, E: Display>(
    limit: Duration,
    what: &str,
    mut look: impl FnMut() -> Result<T, E>,
) -> T {
    let began = Instant::now();
    loop {
        match look() {
            Ok(found) => return found,
            Err(instead) => {
                assert!(began.elapsed() < limit, "not within {limit:?}: {what}; {instead}")
            }
        }
        std::thread::sleep(PAUSE);
    }
}

/// Says that it is over when it is dropped, which a failed step does too: those who work beside a
/// test until then do not keep it from failing.
#[derive(Debug)]
pub struct Over<'a>(pub &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::*;

    #[test]
    fn a_wait_ends_and_says_what_it_waited_for_and_what_it_saw() {
        let wait = || {
            look_for(Duration::from_millis(20), "the moon is full", || Err::<(), _>("a crescent"))
        };
        let told = catch_unwind(wait).expect_err("it never comes");
        let told = told.downcast_ref::<String>().map_or("", String::as_str);
        assert!(told.contains("the moon is full") && told.contains("a crescent"), "{told:?}");
    }

    #[test]
    fn who_works_beside_a_failed_step_ends_with_it() {
        let over = AtomicBool::new(false);
        let failed = catch_unwind(|| {
            std::thread::scope(|scope| {
                let _working = Over(&over);
                scope.spawn(|| {
                    while !over.load(Ordering::SeqCst) {
                        std::thread::yield_now();
                    }
                });
                within(Duration::ZERO, "what never holds", || false);
            });
        });
        assert!(failed.is_err());
    }
}

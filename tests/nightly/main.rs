//! The tests of each night, too slow for each change: peers that somebody else wrote, where a
//! double stands in for them by day.
#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]

mod stripe;

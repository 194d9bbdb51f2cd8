//! The tests of each night, too slow for each change: peers that somebody else wrote, where a
//! double stands in for them by day.

mod stripe;

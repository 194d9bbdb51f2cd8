//! Events that come as time passes, in whole servers of this process whose clock each test moves.

#[path = "timed/bed.rs"]
mod bed;
#[path = "timed/governed.rs"]
mod governed;
#[path = "timed/workers.rs"]
mod workers;

//! The rules that decide whether a regulated action may happen, and how much of it.
//!
//! Knows no primitive, no clock and no database: an action is a name, a moment is an argument, and
//! what was spent is a row that the committer hands in. In the order in which they are asked:
//! [`proposal`] (may it be asked for), [`policy`] (may it happen at all, or does a person decide), [`limit`] and [`meter`] (does every
//! cap still admit it), [`hold`] (what becomes of the money in between); [`crate::calendar`] says which
//! window of a period counts.

pub mod books;
pub mod gauge;
pub mod hold;
pub mod leave;
pub mod limit;
mod names;
pub mod policy;
pub mod proposal;
pub mod rate;
pub mod settle;

pub use crate::meter;

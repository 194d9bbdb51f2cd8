//! Accounts, organizations, projects, users, kits and their credentials, as rows of the store and
//! as requests look them up: who asks for whom.
//!
//! Knows the store and the kernel's rules; knows neither an engine nor HTTP, and nothing of how a
//! credential reached the host. Invariant: what another tenant has is absent here, not refused, and
//! no secret that can be hashed is kept otherwise.
//!
//! Adding a record: a file in [`records`] with its address, what it is found by and what is unique
//! about it; read and write it with [`stored`]. A request's look-ups go through [`directory`]'s
//! cache, which names the collections that it is read from.

pub mod directory;
pub mod identity;
pub mod notices;
pub mod operator;
pub mod place;
pub mod records;
pub mod secret;
pub mod stored;

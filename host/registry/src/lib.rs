//! The installed and live component versions, and the parts of one that a request needs,
//! precomputed.
//!
//! Knows the engine that loads components and the rows that say what is installed; knows no HTTP,
//! and no primitive by name: all of it comes from manifests. Invariant: the database is the truth;
//! what is live is replaced whole, so that a request sees one state from start to end.

pub mod components;
pub mod served;
pub mod settings;
pub mod stats;

//! The rules, asked through the crate's front door: each test calls them as the store, the engine
//! and the server do.
//!
//! One binary, so that they are linked once. No test reads a clock, a file or a database.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod bed;

mod apply_changes;
mod apply_claims;
mod apply_guards;
mod apply_leases;
mod apply_limits;
mod apply_logs;
mod apply_money;
mod apply_touches;
mod apply_writes;
mod caps;
mod classes;
mod hold_steps;
mod holds;
mod identity;
mod kits;
mod ledger_books;
mod limits_of_actions;
mod manifests;
mod merkle_vectors;
mod policies;
mod primitives_books;
mod records;
mod refusals;
mod routes;
mod schemas;
mod scopes;
mod times;

//! The store through its public face, every test on SQLite and on a private PostgreSQL server.
//!
//! Invariant: a test names what must stay true, and fails when the rule behind it is taken away.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]
#![expect(
    unreachable_pub,
    dead_code,
    reason = "two of the files belong to a library crate and offer it more than is used here"
)]

#[path = "../../../tests/src/postgres.rs"]
mod postgres;
#[path = "../../../tests/src/tether.rs"]
mod tether;

#[path = "store/bed.rs"]
mod bed;
#[path = "store/clock.rs"]
mod clock;
#[path = "store/facts.rs"]
mod facts;
#[path = "store/keeping.rs"]
mod keeping;
#[path = "store/leases.rs"]
mod leases;
#[path = "store/money.rs"]
mod money;
#[path = "store/pages.rs"]
mod pages;
#[path = "store/proxy.rs"]
mod proxy;
#[path = "store/questions.rs"]
mod questions;
#[path = "store/races.rs"]
mod races;
#[path = "store/rows.rs"]
mod rows;
#[path = "store/trouble.rs"]
mod trouble;

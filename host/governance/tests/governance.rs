//! Governing through the crate's public face, over a real store: what is decided, held, asked of
//! people and proved is what the rows say afterwards.
//!
//! Knows no HTTP. Invariant: a test names what a caller or an auditor could notice, and fails when
//! the rule behind it is taken away.

#![expect(clippy::unwrap_used, reason = "a failed step is a failed test")]
#![expect(
    unreachable_pub,
    dead_code,
    reason = "files belong to other tests as well and offer them more than is used here"
)]

#[path = "../../engine/tests/guests/fixture.rs"]
mod fixture;
#[path = "../../../tests/src/postgres.rs"]
mod postgres;
#[path = "../../engine/tests/guests/template.rs"]
mod template;
#[path = "../../../tests/src/tether.rs"]
mod tether;

#[path = "governance/bed.rs"]
mod bed;
#[path = "governance/books.rs"]
mod books;
#[path = "governance/bounds.rs"]
mod bounds;
#[path = "governance/caps.rs"]
mod caps;
#[path = "governance/decisions.rs"]
mod decisions;
#[path = "governance/exports.rs"]
mod exports;
#[path = "governance/holds.rs"]
mod holds;
#[path = "governance/leave.rs"]
mod leave;
#[path = "governance/logs.rs"]
mod logs;
#[path = "governance/races.rs"]
mod races;
#[path = "governance/repeats.rs"]
mod repeats;
#[path = "governance/signals.rs"]
mod signals;
#[path = "governance/waiting.rs"]
mod waiting;
#[path = "governance/words.rs"]
mod words;

//! The sandbox: loads components, runs them one fresh instance a call, and hands them the
//! capabilities of the interface.
//!
//! The only crate that knows wasmtime. It knows no HTTP listener, no SQL and no primitive: what a
//! component may reach is its [`Call`]'s scope, its manifest's collections, and what the server's
//! [`Host`] and [`Egress`] answer. Its invariant: no guest state outlives a call, and nothing a
//! guest does costs more than its own call.

mod admission;
pub mod answer;
mod backlog;
mod bindings;
mod cache;
pub mod call;
mod capabilities;
mod compilations;
pub mod component;
pub mod config;
pub mod egress;
mod engine;
mod failure;
mod fairness;
mod handles;
pub mod hook;
pub mod host;
pub mod job;
pub mod leave;
mod limiter;
mod load;
mod outbound;
mod room;
mod run;
mod sandbox;
mod shared;
mod state;
pub mod stats;
mod story;
mod wasi;

pub use admission::Parked;
pub use answer::{Answer, AnswerBody, Outcome};
pub use call::{Call, Claiming, Ending, EndingResult, Entry, Finish, Request, Shown, Signal};
pub use charter_kernel::refusal::Failure;
pub use component::Component;
pub use config::{AdmissionConfig, EngineConfig, EngineError};
pub use egress::{Egress, EgressBody, EgressError, Outbound, Target};
pub use engine::Engine;
pub use host::{Host, Nested, Reply};
pub use leave::{Granted, Leave, Proposal, Ungranted};

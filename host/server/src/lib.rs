//! The Charter server: HTTP in front of the engine and the store.
//!
//! A library with a thin `main`, so that tests and benchmarks embed the same server that is
//! shipped. Knows hyper; knows no primitive by name: what is served comes from the components'
//! manifests and from the one list in [`routes`].

pub use charter_adapters::{mail, providers, public};
pub use charter_governance::{self as governance, audit, lifecycle};
pub use charter_registry::{components, served};
pub use charter_tenancy::{directory, operator, place, records};

pub mod app;
pub mod cli;
pub mod config;
pub mod events;
pub mod hooks;
pub mod http;
pub mod metrics;
pub mod openapi;
pub mod pipeline;
pub mod reply;
pub mod request;
pub mod routes;
pub mod strangers;
pub mod telemetry;
pub mod workers;

//! The Charter server: HTTP in front of the engine and the store.
//!
//! A library with a thin `main`, so that tests and benchmarks embed the same server that is
//! shipped. Knows hyper; knows no primitive by name: what is served comes from the components'
//! manifests and from the one list in [`routes`].

pub mod app;
pub mod bounds;
pub mod cli;
pub mod config;
pub mod description;
pub mod events;
pub mod hooks;
pub mod html;
pub mod http;
pub mod metrics;
pub mod openapi;
pub mod paging;
pub mod pipeline;
pub mod reply;
pub mod request;
pub mod route;
pub mod routes;
pub mod schema;
pub mod serve;
pub mod table;
pub mod telemetry;
pub mod workers;

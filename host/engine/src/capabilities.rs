//! What a guest can do beyond computing: one file an interface, each scoped to the call's caller.
//!
//! None of them takes an organization, project or reach from the guest. Each answers a failure
//! rather than trapping; what this deployment or version does not have answers `not_configured` and
//! names what is missing.

use wasmtime::component::{HasSelf, Linker};

use crate::bindings::Primitive;
use crate::state::State;

mod answering;
mod blobs;
mod dns;
mod documents;
mod events;
mod governance;
mod hooks;
mod jobs;
mod leases;
mod ledger;
mod log;
mod mail;
mod names;
mod primitives;
pub(crate) mod rates;
mod secrets;
mod settings;
mod streams;

/// Adds every interface to a linker: once for the process.
pub(crate) fn link(linker: &mut Linker<State>) -> wasmtime::Result<()> {
    wasmtime_wasi::p2::add_to_linker_async(linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(linker)?;
    Primitive::add_to_linker::<_, HasSelf<_>>(linker, |state| state)
}

/// `types` holds shapes only.
impl crate::bindings::charter::primitive::types::Host for State {}

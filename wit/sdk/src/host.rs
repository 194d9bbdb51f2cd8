//! The one switch of the SDK: under wasm32 capability calls go through the generated imports,
//! elsewhere to the host that [`crate::native`] has.

#[cfg(target_arch = "wasm32")]
pub(crate) use crate::bindings::charter::primitive::{
    documents, events, governance, hooks, jobs, leases, ledger, log, primitives, secrets, settings,
    streams,
};
#[cfg(not(target_arch = "wasm32"))]
pub(crate) use crate::native::{
    clock, documents, events, governance, hooks, jobs, leases, ledger, log, outside, primitives,
    secrets, settings, streams,
};

/// The host's clock by WASI.
#[cfg(target_arch = "wasm32")]
pub(crate) mod clock {
    pub(crate) fn now_ms() -> i64 {
        let now = wasip2::clocks::wall_clock::now();
        i64::try_from(now.seconds).unwrap_or(i64::MAX).saturating_mul(1_000)
            + i64::from(now.nanoseconds / 1_000_000)
    }
}

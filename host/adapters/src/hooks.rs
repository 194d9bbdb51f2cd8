//! How calls of inbound URLs are signed, and how providers word theirs: one file a kind.
//!
//! Knows no hook, no tenant and no primitive: bytes and secrets come in, and what they say goes
//! out.

use charter_engine::hook::Scheme;
use charter_kernel::time::Instant;

pub mod signature;
pub mod stripe;

/// How far a sender's clock may be from ours.
pub const TOLERANCE_MS: i64 = 300_000;

/// Whether a moment in seconds is within [`TOLERANCE_MS`] of now.
pub fn is_fresh(seconds: i64, now: Instant) -> bool {
    seconds
        .checked_mul(1_000)
        .and_then(|ms| now.0.checked_sub(ms))
        .is_some_and(|apart| apart.abs() <= TOLERANCE_MS)
}

/// Where calls of a hook come to, below the address that clients use.
pub fn path(id: &str, scheme: &Scheme) -> String {
    match scheme {
        Scheme::Binding(name) => provider_path(name),
        _ => format!("/v1/hooks/{id}"),
    }
}

/// Where a provider calls for all hooks of its binding.
pub fn provider_path(binding: &str) -> String {
    format!("/v1/hooks/providers/{binding}")
}

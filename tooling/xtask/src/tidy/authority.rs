//! Only the resolver builds a scope: identity is proved in one place.

use super::Files;

/// The resolver, and the crate that defines what it builds.
const MAKERS: [&str; 2] = ["host/tenancy/src/place.rs", "host/kernel/src/"];

pub(super) fn faults(files: &Files) -> Vec<String> {
    let sources = files.below(&["host/"]).filter(|file| file.path.contains("/src/"));
    let makes = |text: &str| text.lines().any(|line| line.contains("Proof::of("));
    let elsewhere = sources.filter(|file| !MAKERS.iter().any(|maker| file.path.starts_with(maker)));
    elsewhere
        .filter(|file| makes(&file.text))
        .map(|file| {
            format!(
                "{}: builds a scope; only host/tenancy/src/place.rs resolves who asks",
                file.path
            )
        })
        .collect()
}

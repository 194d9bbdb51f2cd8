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

#[cfg(test)]
mod tests {
    use super::super::File;
    use super::*;

    #[test]
    fn a_scope_that_is_built_outside_the_resolver_is_named() {
        let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
        let builds = "fn scope() -> Scope {\n    Proof::of(principal).scope()\n}\n";
        let files = Files(vec![
            file("host/tenancy/src/place.rs", builds),
            file("host/kernel/src/scope.rs", builds),
            file("host/tenancy/tests/tenancy/places.rs", builds),
            file("host/server/src/routes/jobs.rs", "fn scope() -> Scope { place.scope() }"),
            file("host/server/src/pipeline/caller.rs", builds),
            file("host/tenancy/src/places.rs", builds),
        ]);
        let faults = faults(&files);
        assert_eq!(faults.len(), 2, "{faults:?}");
        assert!(faults[0].starts_with("host/server/src/pipeline/caller.rs: "), "{faults:?}");
        assert!(faults[1].starts_with("host/tenancy/src/places.rs: "), "{faults:?}");
    }
}

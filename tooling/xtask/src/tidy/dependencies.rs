//! Which crate may know which: server → engine → store → kernel, and each outside world behind one
//! crate.

use crate::workspace::{Package, Workspace};

/// A dependency that only these members of `host/` may have.
const OWNERS: [(&str, &str); 7] = [
    ("rusqlite", "charter-store"),
    ("sqlx", "charter-store"),
    ("wasmtime", "charter-engine"),
    ("wasmtime-wasi", "charter-engine"),
    ("wasmtime-wasi-http", "charter-engine"),
    ("hyper", "charter-server"),
    ("hyper-util", "charter-server"),
];

/// What each crate of `host/` may know of the others.
const BELOW: [(&str, &[&str]); 4] = [
    ("charter-kernel", &[]),
    ("charter-store", &["charter-kernel"]),
    ("charter-engine", &["charter-kernel", "charter-store"]),
    ("charter-server", &["charter-kernel", "charter-store", "charter-engine"]),
];

/// What the kernel's rules must not need.
const IMPURE: [&str; 6] = ["tokio", "futures", "tracing", "getrandom", "rustls", "notify"];

pub(super) fn faults(workspace: &Workspace) -> Vec<String> {
    let mut faults = Vec::new();
    for (_, package) in workspace.members_in("host") {
        for dependency in &package.dependencies {
            if let Some(fault) = fault(package, dependency) {
                faults.push(fault);
            }
        }
    }
    for (name, package) in workspace.members_in("plugins") {
        for dependency in package
            .dependencies
            .iter()
            .filter(|dependency| dependency.starts_with("charter-") && *dependency != "charter-sdk")
        {
            faults.push(format!(
                "plugins/{name}: depends on {dependency}; a primitive knows the guest SDK alone"
            ));
        }
    }
    faults
}

fn fault(package: &Package, dependency: &str) -> Option<String> {
    let name = package.name.as_str();
    if let Some((_, owner)) =
        OWNERS.iter().find(|(owned, owner)| *owned == dependency && *owner != name)
    {
        return Some(format!("{name}: depends on {dependency}, which only {owner} may know"));
    }
    if name == "charter-kernel" && IMPURE.contains(&dependency) {
        return Some(format!(
            "{name}: depends on {dependency}; the kernel is rules without a clock, IO or async"
        ));
    }
    let (_, below) = BELOW.iter().find(|(member, _)| *member == name)?;
    // The harness may stand beside a crate's tests; nothing else of the workspace may.
    if dependency.starts_with("charter-")
        && dependency != "charter-tests"
        && !below.contains(&dependency)
    {
        return Some(format!(
            "{name}: depends on {dependency}; the direction is server → engine → store → kernel"
        ));
    }
    None
}

//! Which crate may know which: the floors of the house, and each outside world behind one crate.

use crate::workspace::{Package, Workspace};

/// A floor of `host/`, and the floors below it that it may stand on.
struct Floor {
    /// The folder; its package is `charter-<folder>`.
    name: &'static str,
    /// The floors that it may know.
    below: &'static [&'static str],
}

/// The floors, the lowest first.
const FLOORS: [Floor; 8] = [
    Floor { name: "kernel", below: &[] },
    Floor { name: "store", below: &["kernel"] },
    Floor { name: "engine", below: &["kernel", "store"] },
    Floor { name: "tenancy", below: &["kernel", "store"] },
    Floor { name: "registry", below: &["kernel", "store", "engine", "tenancy"] },
    Floor { name: "governance", below: &["kernel", "store", "engine", "tenancy", "registry"] },
    Floor { name: "adapters", below: &["kernel", "store", "engine", "tenancy"] },
    Floor {
        name: "server",
        below: &["kernel", "store", "engine", "tenancy", "registry", "governance", "adapters"],
    },
];

/// A dependency that only these floors may have.
const OWNERS: [(&str, &[&str]); 8] = [
    ("rusqlite", &["store"]),
    ("sqlx", &["store"]),
    ("wasmtime", &["engine"]),
    ("wasmtime-wasi", &["engine"]),
    ("wasmtime-wasi-http", &["engine"]),
    ("lettre", &["adapters"]),
    ("hyper", &["adapters", "server"]),
    ("hyper-util", &["adapters", "server"]),
];

/// A dependency that these floors must not have, and why.
const WITHOUT: [(&str, &[&str], &str); 4] = [
    ("kernel", &IMPURE, "the kernel is rules without a clock, IO or async"),
    ("tenancy", &["http", "http-body"], "who asks is known before anything of HTTP"),
    ("governance", &["http", "http-body"], "what is allowed does not depend on how it was asked"),
    ("registry", &["http", "http-body"], "a route is declared, not answered, there"),
];

/// What the kernel's rules must not need.
const IMPURE: [&str; 6] = ["tokio", "futures", "tracing", "getrandom", "rustls", "notify"];

pub(super) fn faults(workspace: &Workspace) -> Vec<String> {
    let mut faults = Vec::new();
    for (folder, package) in workspace.members_in("host") {
        if is_floor(&folder) && package.name != format!("charter-{folder}") {
            faults.push(format!(
                "host/{folder}: its package is named {}, not charter-{folder}",
                package.name
            ));
        }
        for dependency in &package.dependencies {
            if let Some(fault) = fault(&folder, package, dependency) {
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

/// Whether a folder of `host/` is one of the floors.
pub(super) fn is_floor(folder: &str) -> bool {
    FLOORS.iter().any(|floor| floor.name == folder)
}

fn fault(folder: &str, package: &Package, dependency: &str) -> Option<String> {
    let name = package.name.as_str();
    if let Some((_, owners)) =
        OWNERS.iter().find(|(owned, owners)| *owned == dependency && !owners.contains(&folder))
    {
        return Some(format!("{name}: depends on {dependency}, which only {owners:?} may know"));
    }
    if let Some((.., why)) =
        WITHOUT.iter().find(|(floor, without, _)| *floor == folder && without.contains(&dependency))
    {
        return Some(format!("{name}: depends on {dependency}; {why}"));
    }
    let floor = FLOORS.iter().find(|floor| floor.name == folder)?;
    let other = dependency.strip_prefix("charter-")?;
    // The harness may stand beside a crate's tests; nothing else of the workspace may.
    if other != "tests" && !floor.below.contains(&other) {
        return Some(format!("{name}: depends on {dependency}; it stands on {:?}", floor.below));
    }
    None
}

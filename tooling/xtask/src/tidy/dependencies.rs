//! The permitted dependencies between crates: the floors of the house, and each outside world
//! behind one crate.

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

/// The dependencies that the kernel's rules must not need.
const IMPURE: [&str; 6] = ["tokio", "futures", "tracing", "getrandom", "rustls", "notify"];

/// Folders of what guests are made of, and the crates of the workspace that are built into them.
/// Beside their tests the double may stand, too.
const GUESTS: [(&str, &[&str]); 2] = [("plugins", &["charter-sdk"]), ("wit", &[])];
/// The double of the host: it decides by the host's rules, so no guest ships it.
const DOUBLE: (&str, &[&str]) = ("charter-double", &["charter-kernel", "charter-sdk"]);

/// Why a guest, or what it is made of, may not be built as it says.
fn guest_faults(name: &str, package: &Package, known: &[&str]) -> Vec<String> {
    let known = if package.name == DOUBLE.0 { DOUBLE.1 } else { known };
    let ours = |list: &Vec<String>| -> Vec<String> {
        list.iter().filter(|name| name.starts_with("charter-")).cloned().collect()
    };
    let fault = |dependency: &String, may: &str| format!("{name}: depends on {dependency}; {may}");
    let shipped = ours(&package.shipped).into_iter();
    let shipped = shipped
        .filter(|dependency| !known.contains(&dependency.as_str()))
        .map(|dependency| fault(&dependency, "a primitive knows the guest SDK alone"));
    let tested = ours(&package.dependencies).into_iter();
    let tested = tested
        .filter(|dependency| {
            let is_fixture = dependency.starts_with("charter-fixture-") && package.name == DOUBLE.0;
            !package.shipped.contains(dependency) && *dependency != DOUBLE.0 && !is_fixture
        })
        .map(|dependency| fault(&dependency, "its tests know the double alone"));
    shipped.chain(tested).collect()
}

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
    for (folder, known) in GUESTS {
        for (name, package) in workspace.members_in(folder) {
            faults.extend(guest_faults(&format!("{folder}/{name}"), package, known));
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
    // Tests may look at the outside world from behind.
    let is_shipped = package.shipped.iter().any(|shipped| shipped == dependency);
    let owned = OWNERS.iter().find(|(owned, _)| *owned == dependency);
    if let Some((_, owners)) = owned.filter(|(_, owners)| is_shipped && !owners.contains(&folder)) {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, shipped: &[&str], beside: &[&str]) -> Package {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Package {
            name: name.into(),
            folder: "folder".into(),
            artefact: None,
            dependencies: owned(&[shipped, beside].concat()),
            shipped: owned(shipped),
        }
    }

    #[test]
    fn the_double_stands_beside_a_guests_tests_and_never_in_it() {
        let faults = |shipped: &[&str], beside: &[&str]| {
            guest_faults("plugins/notes", &package("charter-notes", shipped, beside), GUESTS[0].1)
        };
        assert!(faults(&["charter-sdk", "serde"], &["charter-double"]).is_empty());
        assert_eq!(faults(&["charter-sdk", "charter-double"], &[]).len(), 1);
        assert_eq!(faults(&["charter-sdk", "charter-kernel"], &[]).len(), 1);
        assert_eq!(faults(&["charter-sdk"], &["charter-kernel"]).len(), 1);
    }
}

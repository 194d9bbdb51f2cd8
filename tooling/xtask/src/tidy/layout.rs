//! The layout of the repository: the top level is closed, and each folder under `plugins/` is one
//! primitive and the whole of it.

use std::collections::BTreeSet;

use super::{Files, dependencies};
use crate::workspace::Workspace;

const TOP_LEVEL: [&str; 17] = [
    ".cargo",
    ".ci",
    ".clippy.toml",
    ".gitignore",
    ".rustfmt.toml",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "Cargo.lock",
    "Cargo.toml",
    "LICENSE",
    "README.md",
    "docs",
    "host",
    "migrations",
    "plugins",
    "tests",
    "tooling",
];

pub(super) fn faults(workspace: &Workspace, files: &Files) -> Vec<String> {
    let mut faults = Vec::new();
    let top: BTreeSet<&str> = files.iter().filter_map(|file| file.path.split('/').next()).collect();
    for entry in top {
        if !TOP_LEVEL.contains(&entry) && entry != "wit" && !entry.starts_with(".git") {
            faults.push(format!("{entry}: does not belong at the top level"));
        }
    }
    let crates: Vec<_> = workspace.members_in("host").into_iter().map(|(name, _)| name).collect();
    for name in crates.iter().filter(|name| !dependencies::is_floor(name)) {
        faults.push(format!("host/{name}: stands on no floor; dependencies.rs has the table"));
    }
    for (name, package) in workspace.members_in("plugins") {
        if package.name != format!("charter-{name}") {
            faults.push(format!(
                "plugins/{name}: its package is named {}, not charter-{name}",
                package.name
            ));
        }
        if package.artefact.is_none() {
            faults.push(format!(
                "plugins/{name}: builds no component: `[lib] crate-type = [\"cdylib\", \"rlib\"]`"
            ));
        }
        for needed in ["src/lib.rs", "cases/"] {
            let path = format!("plugins/{name}/{needed}");
            if !files.iter().any(|file| file.path.starts_with(&path)) {
                faults.push(format!("plugins/{name}: {needed} is missing"));
            }
        }
    }
    faults
}

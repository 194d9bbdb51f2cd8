//! `cargo xtask lint`: format, the repository's own rules, lints and docs, cheapest first, so that
//! a slip is found early.

use anyhow::Result;

use crate::workspace::Workspace;
use crate::{prerequisites, process, tidy};

/// Everything that is checked without running it.
pub fn run(workspace: &Workspace) -> Result<()> {
    prerequisites::guest_target(&workspace.root)?;
    let cargo = |arguments: &[&str]| {
        let mut command = process::cargo(&workspace.root);
        command.args(arguments);
        command
    };
    process::run(cargo(&["fmt", "--all", "--check"]))?;
    tidy::run(workspace, &tidy::Options::default())?;
    process::run(cargo(&[
        "clippy",
        "--workspace",
        "--all-targets",
        "--locked",
        "--",
        "-D",
        "warnings",
    ]))?;
    let mut docs = cargo(&["doc", "--workspace", "--no-deps", "--locked"]);
    docs.env("RUSTDOCFLAGS", "-D warnings");
    process::run(docs)
}

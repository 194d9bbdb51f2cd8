//! `cargo xtask lint`: format, the repository's own rules and lints, cheapest first, so that a slip
//! is found early.

use anyhow::Result;

use crate::workspace::Workspace;
use crate::{prerequisites, process, tidy};

/// Names the program that compiles the workspace's own crates to cargo.
const WRAPPER: &str = "RUSTC_WORKSPACE_WRAPPER";
/// Clippy as such a program.
const CLIPPY: &str = "clippy-driver";

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
    // Clippy reads all that is built for the tests if it compiles the workspace.
    if std::env::var_os(WRAPPER).is_none_or(|wrapper| wrapper != CLIPPY) {
        process::run(cargo(&[
            "clippy",
            "--workspace",
            "--all-targets",
            "--locked",
            "--",
            "-D",
            "warnings",
        ]))?;
    }
    Ok(())
}

/// Whether rustdoc understands every comment. It reads the metadata of all dependencies, which
/// nothing else is built of.
pub fn docs(workspace: &Workspace) -> Result<()> {
    let mut docs = process::cargo(&workspace.root);
    docs.args(["doc", "--workspace", "--no-deps", "--locked"]).env("RUSTDOCFLAGS", "-D warnings");
    process::run(docs)
}

//! `cargo xtask lint`: format, the repository's own rules and lints, cheapest first, so that a slip
//! is found early.

use anyhow::Result;

use crate::workspace::Workspace;
use crate::{prerequisites, process, tidy};

/// Names the program that compiles the workspace's own crates to cargo.
const WRAPPER: &str = "RUSTC_WORKSPACE_WRAPPER";
/// Clippy as such a program.
const CLIPPY: &str = "clippy-driver";

/// The tests that are not run with each change, and so are not among all targets.
pub const NIGHTLY: &str = "nightly";

/// Whether Clippy compiles the workspace, and so reads all that is built for the tests.
pub fn reads_what_is_built() -> bool {
    std::env::var_os(WRAPPER).is_some_and(|wrapper| wrapper == CLIPPY)
}

/// Everything that is checked without running it; lints are left to the build of the tests where
/// Clippy makes it.
pub fn run(workspace: &Workspace) -> Result<()> {
    prerequisites::guest_target(&workspace.root)?;
    let cargo = |arguments: &[&str]| {
        let mut command = process::cargo(&workspace.root);
        command.args(arguments);
        command
    };
    process::run(cargo(&["fmt", "--all", "--check"]))?;
    tidy::run(workspace, &tidy::Options::default())?;
    if reads_what_is_built() {
        return Ok(());
    }
    for targets in [&["--all-targets"][..], &["--test", NIGHTLY]] {
        let mut clippy = cargo(&["clippy", "--workspace", "--locked"]);
        clippy.args(targets).args(["--", "-D", "warnings"]);
        process::run(clippy)?;
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

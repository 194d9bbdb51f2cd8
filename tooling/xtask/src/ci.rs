//! `cargo xtask ci`: what continuous integration runs, cheapest first, so that a slip is found before the long build.

use anyhow::Result;

use crate::workspace::Workspace;
use crate::{prerequisites, process, test, tidy};

/// Format, tidy, lints, docs and every test.
pub fn run(workspace: &Workspace) -> Result<()> {
    prerequisites::guest_target(&workspace.root)?;
    prerequisites::postgresql()?;
    let cargo = |arguments: &[&str]| {
        let mut command = process::cargo(&workspace.root);
        command.args(arguments);
        command
    };
    process::run(cargo(&["fmt", "--all", "--check"]))?;
    tidy::run(workspace)?;
    process::run(cargo(&["clippy", "--workspace", "--all-targets", "--locked", "--", "-D", "warnings"]))?;
    let mut docs = cargo(&["doc", "--workspace", "--no-deps", "--locked"]);
    docs.env("RUSTDOCFLAGS", "-D warnings");
    process::run(docs)?;
    test::run(workspace, &test::Options::default())
}

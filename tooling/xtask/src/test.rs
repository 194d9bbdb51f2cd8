//! `cargo xtask test`: everything that the README promises is tested, on one debug build.
//!
//! The host, the primitives and the fixtures are built once, here; the end-to-end tests are told where they are.

use anyhow::Result;
use clap::Args;

use crate::workspace::Workspace;
use crate::{components, prerequisites, process};

/// Names the built `charter` to the end-to-end tests.
pub const BINARY: &str = "CHARTER_TEST_BINARY";
/// Names the folder of built primitives to the end-to-end tests.
pub const COMPONENTS: &str = "CHARTER_TEST_COMPONENTS";
/// Names the folder of built fixtures to the end-to-end tests.
pub const FIXTURES: &str = "CHARTER_TEST_FIXTURES";

/// What to test.
#[derive(Args, Debug, Default)]
pub struct Options {
    /// Only tests whose name contains this
    filter: Option<String>,
    /// Only this package, such as charter-store or charter-tests
    #[arg(long, short)]
    package: Option<String>,
}

/// Builds once and runs `cargo test`.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    prerequisites::of_tests()?;
    let mut command = process::cargo(&workspace.root);
    command.args(["test", "--no-fail-fast"]);
    match &options.package {
        Some(package) => command.args(["--package", package]),
        None => command.arg("--workspace"),
    };
    command.args(&options.filter);
    command.env(COMPONENTS, components::primitives(workspace)?);
    command.env(FIXTURES, components::fixtures(workspace)?);
    command.env(BINARY, components::host(workspace, false)?);
    process::run(command)
}

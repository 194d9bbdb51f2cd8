//! `cargo xtask bench`: builds the release binary, the primitives and the load generator, and hands over to it.

use anyhow::Result;
use clap::Args;

use crate::workspace::Workspace;
use crate::{components, process};

/// What to measure.
#[derive(Args, Debug)]
pub struct Options {
    /// Arguments for the benchmark program; `--help` lists them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

/// Builds with optimisation and measures.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let folder = components::primitives(workspace)?;
    let fixtures = components::fixtures(workspace)?;
    let charter = components::host(workspace, true)?;
    let mut command = process::cargo(&workspace.root);
    command.args(["run", "--quiet", "--release", "--package", "charter-bench", "--"]);
    command.arg("--charter").arg(charter).arg("--components").arg(folder).arg("--fixtures").arg(fixtures);
    command.args(&options.arguments);
    process::run(command)
}

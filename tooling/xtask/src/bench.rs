//! `cargo xtask bench`: builds everything that is measured, with optimisation, and hands over to
//! the load generator.

use anyhow::{Context, Result};
use clap::Args;

use crate::workspace::Workspace;
use crate::{components, prerequisites, process};

/// The runtime that Charter is compared with, in the version of Charter's own engine.
const WASMTIME: &str = "48.0.8";
/// The gateway whose budgets Charter's are raced against.
const LITELLM: &str = "litellm[proxy]==1.106.2";

/// The parts that are measured unless one is named.
pub const ALWAYS: [&str; 10] = [
    "reads",
    "sends",
    "committer",
    "decision",
    "governed",
    "instances",
    "neighbour",
    "reloads",
    "start",
    "streams",
];
/// Those that run only when they are named: `race` installs LiteLLM (Python, 750 MB), `scale` takes
/// minutes and gigabytes.
pub const ASKED_FOR: [&str; 2] = ["race", "scale"];

/// The measurements to make.
#[derive(Args, Debug)]
pub struct Options {
    /// One part only; all but race, which installs LiteLLM (Python, 750 MB), and scale, which takes
    /// minutes and gigabytes, if absent
    #[arg(value_parser = ALWAYS.into_iter().chain(ASKED_FOR).collect::<Vec<_>>())]
    part: Option<String>,
    /// For scale: how many users instead of a million
    #[arg(requires = "part")]
    users: Option<usize>,
}

/// Builds and measures.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    prerequisites::postgresql()?;
    components::primitives(workspace)?;
    components::benchmarks(workspace)?;
    components::fixtures(workspace)?;
    match options.part.as_deref() {
        None | Some("reads") => wasmtime(workspace)?,
        Some("race") => litellm(workspace)?,
        Some(_) => {}
    }
    components::host(workspace, true)?;
    let measure = components::binary(workspace, "charter-bench", true)?;
    let mut measure = std::process::Command::new(measure);
    measure
        .arg(&workspace.target)
        .args(&options.part)
        .args(options.users.map(|users| users.to_string()));
    process::run(measure)
}

/// Installs `wasmtime` below the target folder, once.
fn wasmtime(workspace: &Workspace) -> Result<()> {
    let root = workspace.target.join("bench-tools");
    if root.join("bin/wasmtime").exists() {
        return Ok(());
    }
    let mut install = process::cargo(&workspace.root);
    install
        .args([
            "install",
            "wasmtime-cli",
            "--version",
            WASMTIME,
            "--locked",
            "--no-default-features",
            "--root",
        ])
        .arg(root);
    let features = "serve,run,cranelift,pooling-allocator,component-model,component-model-async,parallel-compilation";
    install.args(["--features", features]);
    process::run(install)
}

/// Installs LiteLLM's proxy below the target folder, once.
fn litellm(workspace: &Workspace) -> Result<()> {
    let root = workspace.target.join("bench-tools/litellm");
    if root.join("bin/litellm").exists() {
        return Ok(());
    }
    let mut make = std::process::Command::new("python3");
    make.args(["-m", "venv"]).arg(&root);
    process::run(make).context("python3 and python3-venv are needed for the race")?;
    let mut install = std::process::Command::new(root.join("bin/pip"));
    install.args(["install", "--quiet", LITELLM]);
    process::run(install)
}

//! `cargo xtask bench`: builds everything that is measured, with optimisation, and hands over to
//! the load generator.

use std::path::Path;

use anyhow::{Context, Result};
use clap::Args;

use crate::workspace::Workspace;
use crate::{components, prerequisites, process};

/// What Charter is compared with, in the version whose engine it runs on.
const WASMTIME: &str = "48.0.8";
/// Whose budgets Charter's are raced against.
const LITELLM: &str = "litellm[proxy]==1.106.2";

/// What to measure.
#[derive(Args, Debug)]
pub struct Options {
    /// One part only: reads, sends, committer, decision, governed, instances, reloads, start,
    /// streams; all of these if absent. Or race, which installs LiteLLM (Python, 750 MB), or scale,
    /// which takes minutes and gigabytes
    part: Option<String>,
    /// For scale: how many users instead of a million
    #[arg(requires = "part")]
    users: Option<usize>,
}

/// Builds and measures.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    prerequisites::postgresql()?;
    components::primitives(workspace)?;
    guests(workspace)?;
    wasmtime(workspace)?;
    if options.part.as_deref() == Some("race") {
        litellm(workspace)?;
    }
    let mut build = process::cargo(&workspace.root);
    build.args(["build", "--release", "--package", "charter-server", "--package", "charter-bench"]);
    build.args(["--package", "charter-store", "--package", "charter-engine"]);
    build.args([
        "--bin",
        "charter",
        "--bin",
        "charter-bench",
        "--example",
        "committer_bench",
        "--example",
        "instantiate",
    ]);
    process::run(build)?;
    let mut measure = std::process::Command::new(workspace.target.join("release/charter-bench"));
    measure
        .arg(&workspace.target)
        .args(&options.part)
        .args(options.users.map(|users| users.to_string()));
    process::run(measure)
}

/// The components that only the benchmark knows.
fn guests(workspace: &Workspace) -> Result<()> {
    let names = ["charter-bench-proxy", "charter-bench-copied"];
    let mut build = process::cargo(&workspace.root);
    build.args([
        "build",
        "--quiet",
        "--profile",
        "component",
        "--target",
        prerequisites::GUEST_TARGET,
    ]);
    names.iter().for_each(|name| {
        build.args(["--package", name]);
    });
    process::run(build)?;
    let (built, kept) = (
        workspace.target.join(prerequisites::GUEST_TARGET).join("component"),
        workspace.target.join("bench"),
    );
    std::fs::create_dir_all(&kept).with_context(|| format!("cannot make {}", kept.display()))?;
    names
        .iter()
        .try_for_each(|name| copy(&built, &kept, &format!("{}.wasm", name.replace('-', "_"))))
}

fn copy(from: &Path, to: &Path, file: &str) -> Result<()> {
    std::fs::copy(from.join(file), to.join(file))
        .map(drop)
        .with_context(|| format!("cannot copy {file}"))
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

//! `cargo xtask fuzz`: coverage-guided fuzzing of what parses strangers' input. The same entry
//! points run under proptest in the ordinary tests; this looks longer and deeper.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::process;
use crate::workspace::Workspace;

/// The targets to fuzz, and for how long.
#[derive(Args, Debug)]
pub struct Options {
    /// One target only; every target under tests/fuzz/fuzz_targets if absent
    target: Option<String>,
    /// How long each target runs
    #[arg(long, default_value_t = 60)]
    seconds: u32,
}

/// Runs the targets one after the other; stops at the first crash.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let missing = missing();
    if !missing.is_empty() {
        bail!("fuzzing needs {}", missing.join(" and "));
    }
    let folder = workspace.root.join("tests/fuzz");
    let targets = match &options.target {
        Some(target) => vec![target.clone()],
        None => targets(&folder)?,
    };
    for target in targets {
        let mut command = Command::new("cargo");
        command.current_dir(&folder).args([
            "+nightly",
            "fuzz",
            "run",
            "--fuzz-dir",
            ".",
            &target,
            "--",
        ]);
        command.arg(format!("-max_total_time={}", options.seconds));
        process::run(command)?;
    }
    Ok(())
}

fn missing() -> Vec<&'static str> {
    let works = |arguments: &[&str]| {
        Command::new("cargo")
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    };
    let mut missing = Vec::new();
    if !works(&["+nightly", "--version"]) {
        missing.push("a nightly toolchain (`rustup toolchain install nightly`)");
    }
    if !works(&["fuzz", "--version"]) {
        missing.push("cargo-fuzz (`cargo install cargo-fuzz`)");
    }
    missing
}

fn targets(folder: &Path) -> Result<Vec<String>> {
    let folder = folder.join("fuzz_targets");
    let entries =
        std::fs::read_dir(&folder).with_context(|| format!("cannot list {}", folder.display()))?;
    let mut names: Vec<String> = entries
        .flatten()
        .filter(|entry| entry.path().extension().is_some_and(|extension| extension == "rs"))
        .filter_map(|entry| entry.path().file_stem()?.to_str().map(str::to_owned))
        .collect();
    names.sort();
    Ok(names)
}

//! `cargo xtask test`: everything that the README promises is tested, on one debug build.
//!
//! The host, the primitives and the fixtures are built once, here; the end-to-end tests are told
//! where they are.

use std::process::Command;

use anyhow::{Result, bail};
use clap::Args;

use crate::workspace::{Package, Workspace};
use crate::{components, prerequisites, process};

/// Names the built `charter` to the end-to-end tests.
pub const BINARY: &str = "CHARTER_TEST_BINARY";
/// Names the folder of built primitives to the end-to-end tests.
pub const COMPONENTS: &str = "CHARTER_TEST_COMPONENTS";
/// Names the folder of built fixtures to the end-to-end tests.
pub const FIXTURES: &str = "CHARTER_TEST_FIXTURES";
/// Names the folder of the benchmarks' own guests to their test.
pub const BENCHMARKS: &str = "CHARTER_TEST_BENCHMARKS";
/// Names the one primitive whose cases are run to the end-to-end tests.
pub const CASES: &str = "CHARTER_TEST_CASES";

/// The end-to-end test that runs the cases.
const CASES_TEST: &str = "every_case_of_every_primitive_passes";

/// What to test.
#[derive(Args, Debug, Default)]
pub struct Options {
    /// A primitive: its rules, and its cases through a real server; or a part of tests' names
    #[arg(value_name = "PRIMITIVE|WORD")]
    filter: Option<String>,
    /// Only this package, such as charter-store or charter-tests
    #[arg(long, short)]
    package: Option<String>,
}

/// Builds once and runs `cargo test`.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    prerequisites::of_tests()?;
    let primitives = workspace.members_in("plugins");
    let named = |word: &str| {
        primitives
            .iter()
            .find(|(name, _)| name == word)
            .map(|(name, package)| (name.as_str(), *package))
    };
    match (options.filter.as_deref(), options.package.as_deref()) {
        (None, package) => process::run(all(workspace, package)?),
        (Some(word), None) if let Some((name, package)) = named(word) => {
            primitive(workspace, name, package)
        }
        (Some(word), package) => {
            let mut command = all(workspace, package)?;
            command.arg(word);
            let mut count = 0;
            process::watched(command, |line| count += running(line))?;
            if count == 0 {
                let names: Vec<&str> = primitives.iter().map(|(name, _)| name.as_str()).collect();
                bail!(
                    "no test's name contains `{word}`, and no primitive is called so; there are {}",
                    names.join(", ")
                );
            }
            Ok(())
        }
    }
}

/// One primitive's rules, natively, and its cases through a real server.
fn primitive(workspace: &Workspace, name: &str, package: &Package) -> Result<()> {
    let mut rules = process::cargo(&workspace.root);
    rules.args(["test", "--package", &package.name]);
    process::run(rules)?;
    let holds_cases = || {
        let entries = std::fs::read_dir(package.folder.join("cases")).ok()?;
        Some(
            entries
                .flatten()
                .any(|entry| entry.path().extension().is_some_and(|extension| extension == "json")),
        )
    };
    if holds_cases() != Some(true) {
        bail!(
            "its rules hold, but plugins/{name}/cases has no case to run through a server (tests/CASES.md)"
        );
    }
    let mut cases = process::cargo(&workspace.root);
    cases.args(["test", "--workspace", "--test", "e2e", CASES_TEST]);
    cases.env(COMPONENTS, components::primitives(workspace)?);
    // No case needs a fixture: what is there is good enough.
    cases.env(FIXTURES, workspace.target.join("fixtures"));
    cases.env(BINARY, components::host(workspace, false)?);
    cases.env(CASES, name);
    let mut count = 0;
    process::watched(cases, |line| count += running(line))?;
    if count == 0 {
        bail!("the end-to-end test of the cases was not found: {CASES_TEST}");
    }
    Ok(())
}

/// All tests, or a package's.
fn all(workspace: &Workspace, package: Option<&str>) -> Result<Command> {
    let mut command = process::cargo(&workspace.root);
    command.args(["test", "--no-fail-fast"]);
    match package {
        Some(package) => command.args(["--package", package]),
        None => command.arg("--workspace"),
    };
    command.env(COMPONENTS, components::primitives(workspace)?);
    command.env(FIXTURES, components::fixtures(workspace)?);
    command.env(BENCHMARKS, components::benchmarks(workspace)?);
    command.env(BINARY, components::host(workspace, false)?);
    Ok(command)
}

/// How many tests a line says that it runs.
fn running(line: &str) -> u64 {
    let rest = line.strip_prefix("running ").and_then(|rest| rest.split_once(" test"));
    rest.and_then(|(count, _)| count.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    #[test]
    fn what_runs_is_counted() {
        let lines = [
            "running 12 tests",
            "test a ... ok",
            "running 1 test",
            "running late",
            "running 0 tests",
        ];
        assert_eq!(lines.map(super::running).iter().sum::<u64>(), 13);
    }
}

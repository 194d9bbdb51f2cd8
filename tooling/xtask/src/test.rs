//! `cargo xtask test`: everything that the README promises is tested, on one debug build.
//!
//! The host, the primitives and the fixtures are built once, here; the end-to-end tests are told
//! where they are.

use std::ffi::OsString;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::Value;

use crate::workspace::{Package, Workspace};
use crate::{components, lint, prerequisites, process};

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

/// Says how many tests run at once.
const THREADS: &str = "RUST_TEST_THREADS";
/// Tests that run at once for each core: most of them wait for a server most of the time.
const TESTS_PER_CORE: usize = 3;

/// The end-to-end test that runs the cases.
const CASES_TEST: &str = "every_case_of_every_primitive_passes";

/// The tests to run.
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
    let commands = match (options.filter.as_deref(), options.package.as_deref()) {
        (None, None) => return process::run(all(workspace)?),
        (Some(word), None) if let Some((name, package)) = named(word) => {
            return primitive(workspace, name, package);
        }
        (Some(_), None) => vec![all(workspace)?],
        (_, Some(package)) => package_tests(workspace, package)?,
    };
    let mut count = 0;
    for mut command in commands {
        command.args(options.filter.as_deref());
        process::run_watching(command, |line| count += running(line))?;
    }
    if let Some(word) = options.filter.as_deref().filter(|_| count == 0) {
        let names: Vec<&str> = primitives.iter().map(|(name, _)| name.as_str()).collect();
        bail!(
            "no test's name contains `{word}`, and no primitive is called so; there are {}",
            names.join(", ")
        );
    }
    Ok(())
}

/// `cargo xtask nightly`: what is too slow for each change, or needs programs that somebody else
/// wrote.
pub fn nightly(workspace: &Workspace) -> Result<()> {
    prerequisites::of_tests()?;
    lint::docs(workspace)?;
    let mut command = process::cargo(&workspace.root);
    command.args(["test", "--no-fail-fast", "--workspace", "--test", lint::NIGHTLY]);
    command.envs(artefacts(workspace)?);
    process::run(command)
}

/// One primitive's rules, natively, and its cases through a real server.
fn primitive(workspace: &Workspace, name: &str, package: &Package) -> Result<()> {
    for rules in programs(workspace, package, &["--lib"])? {
        process::run(rules)?;
    }
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
    process::run_watching(cases, |line| count += running(line))?;
    if count == 0 {
        bail!("the end-to-end test of the cases was not found: {CASES_TEST}");
    }
    Ok(())
}

/// The commands that run a package's tests.
fn package_tests(workspace: &Workspace, name: &str) -> Result<Vec<Command>> {
    let Some(package) = workspace.packages.iter().find(|package| package.name == name) else {
        bail!("the workspace has no package `{name}`");
    };
    let artefacts = artefacts(workspace)?;
    let mut commands = programs(workspace, package, &["--lib", "--bins", "--tests"])?;
    for command in &mut commands {
        command.envs(artefacts.iter().map(|(name, value)| (name, value)));
    }
    Ok(commands)
}

/// Builds a package's native tests of these kinds and answers the programs.
///
/// They are built with the whole workspace: cargo unifies the features of what is selected, so the
/// package alone would have the kernel, and all that the kernel stands on, built a second time.
fn programs(workspace: &Workspace, package: &Package, kinds: &[&str]) -> Result<Vec<Command>> {
    let mut build = process::cargo(&workspace.root);
    build.args(["test", "--quiet", "--workspace", "--no-run"]).args(kinds);
    build.args(["--message-format", "json-render-diagnostics"]);
    let messages = String::from_utf8(process::output(build)?)?;
    let found = messages.lines().filter_map(|line| program_of(line, &package.folder));
    let commands: Vec<Command> = found
        .map(|program| {
            let mut command = Command::new(program);
            command.current_dir(&package.folder).env("CARGO_MANIFEST_DIR", &package.folder);
            command
        })
        .collect();
    if commands.is_empty() {
        bail!("{} has no native tests: its Cargo.toml turns them off", package.name);
    }
    Ok(commands)
}

/// The test program that a message of cargo names, if it is of the package in this folder.
fn program_of(message: &str, folder: &Path) -> Option<PathBuf> {
    let message: Value = serde_json::from_str(message).ok()?;
    let manifest = Path::new(message["manifest_path"].as_str()?);
    let is_ours = manifest.parent() == Some(folder) && message["profile"]["test"] == true;
    message["executable"].as_str().filter(|_| is_ours).map(PathBuf::from)
}

/// All tests.
fn all(workspace: &Workspace) -> Result<Command> {
    let mut command = process::cargo(&workspace.root);
    command.args(["test", "--no-fail-fast", "--workspace"]);
    command.envs(artefacts(workspace)?);
    Ok(command)
}

/// Builds the tests and what the end-to-end ones run; answers the variables that tell them where it
/// is, and how many run at once.
fn artefacts(workspace: &Workspace) -> Result<Vec<(&'static str, OsString)>> {
    let guests = || {
        Ok(vec![
            (COMPONENTS, components::primitives(workspace)?.into()),
            (FIXTURES, components::fixtures(workspace)?.into()),
            (BENCHMARKS, components::benchmarks(workspace)?.into()),
        ])
    };
    let (mut variables, charter) = process::side_by_side(guests, || build(workspace))?;
    variables.push((BINARY, charter.into()));
    if std::env::var_os(THREADS).is_none() {
        let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        variables.push((THREADS, (cores * TESTS_PER_CORE).to_string().into()));
    }
    Ok(variables)
}

/// Builds all tests, and with them the host; answers where it is.
fn build(workspace: &Workspace) -> Result<PathBuf> {
    eprintln!("The tests, the host and what both stand on: minutes, the first time.");
    let mut build = process::cargo(&workspace.root);
    build.args(["test", "--quiet", "--workspace", "--no-run", "--lib", "--bins", "--tests"]);
    if lint::reads_what_is_built() {
        build.args(["--test", lint::NIGHTLY, "--locked"]);
    }
    process::run(build)?;
    Ok(workspace.target.join("debug/charter"))
}

/// How many tests a line says that it runs.
fn running(line: &str) -> u64 {
    let rest = line.strip_prefix("running ").and_then(|rest| rest.split_once(" test"));
    rest.and_then(|(count, _)| count.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::path::{Path, PathBuf};

    #[test]
    fn a_packages_own_test_programs_are_found_among_the_messages() {
        let message = |folder: &str, test: bool| {
            format!(
                r#"{{"reason":"compiler-artifact","manifest_path":"{folder}/Cargo.toml","profile":{{"test":{test}}},"executable":"/target/notes-1"}}"#
            )
        };
        let found = |text: &str| super::program_of(text, Path::new("/plugins/notes"));
        assert_eq!(found(&message("/plugins/notes", true)), Some(PathBuf::from("/target/notes-1")));
        for other in [
            message("/plugins/notes", false),
            message("/plugins/other", true),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
            "no message".to_owned(),
        ] {
            assert_eq!(found(&other), None, "{other}");
        }
    }

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

//! `cargo xtask mutants`: whether the tests notice when a rule is changed.
//!
//! cargo-mutants changes one operator or answer of a rule at a time, in a copy of the tree, and runs
//! the tests of the crate that holds the rule. A change that no test notices survives: it is listed
//! in `docs/mutants.md`, with the reason that a person has written there. Nine of ten have to be
//! caught.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::Value;

use crate::process;
use crate::workspace::Workspace;

/// The rules: policy, caps, holds, ledger, apply, scope and the matrix of authority.
const FILES: [&str; 9] = [
    "host/kernel/src/apply/*.rs",
    "host/kernel/src/authority.rs",
    "host/kernel/src/class.rs",
    "host/kernel/src/governance/*.rs",
    "host/kernel/src/governance/*/*.rs",
    "host/kernel/src/ledger.rs",
    "host/kernel/src/meter.rs",
    "host/kernel/src/role.rs",
    "host/kernel/src/scope.rs",
];
/// The crate that holds them.
const PACKAGE: &str = "charter-kernel";
/// The report.
const REPORT: &str = "docs/mutants.md";
/// Of a hundred mutants, at least so many are caught.
const CAUGHT_PERCENT_MIN: usize = 90;
/// Cases of each property: a mutant that no case of these finds is rarely found by more.
const PROPERTY_CASES: &str = "48";
/// The reason of a survivor that nobody has looked at.
const NO_REASON: &str = "not looked at yet";

/// The rules to change, and how.
#[derive(Args, Debug)]
pub struct Options {
    /// Only files whose path contains this; the report is left as it is
    file: Option<String>,
    /// Mutants at once; each builds the crate and runs its tests
    #[arg(long, short, default_value_t = 2)]
    jobs: u8,
    /// One part of them, such as 0/4; the report is left as it is
    #[arg(long)]
    shard: Option<String>,
}

/// Counts of one file.
#[derive(Debug, Default, PartialEq, Eq)]
struct Count {
    caught: usize,
    missed: usize,
    /// Does not compile: no mutant of a program.
    unviable: usize,
}

/// The fate of all mutants.
#[derive(Debug, Default)]
struct Outcome {
    files: BTreeMap<String, Count>,
    /// Survivors by file and change, without their lines.
    survivors: Vec<String>,
}

/// Runs cargo-mutants over the rules and fails where too many survive.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    if !is_installed() {
        bail!("this needs cargo-mutants: `cargo install cargo-mutants --locked`");
    }
    let output = workspace.target.join("mutants");
    let mut command = process::cargo(&workspace.root);
    command.args(["mutants", "--package", PACKAGE, "--no-shuffle", "--colors=never"]);
    command.args(["--jobs", &options.jobs.to_string(), "--output"]).arg(&output);
    for file in FILES {
        command.args(["--file", file]);
    }
    if let Some(shard) = &options.shard {
        command.args(["--shard", shard]);
    }
    if let Some(part) = &options.file {
        command.args(["--re", &part.replace('.', "\\.")]);
    }
    // The crate's tests alone, and small: a line of debug information costs a link of each mutant.
    command.args(["--", "--lib", "--tests"]);
    command.env("PROPTEST_CASES", PROPERTY_CASES);
    command.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_PROFILE_TEST_DEBUG", "0");
    eprintln!("Every mutant is a build and a run of the tests: an hour or more on two cores.");
    let status = command.status().context("cannot start cargo mutants")?;
    let text = std::fs::read_to_string(output.join("mutants.out/outcomes.json"))
        .with_context(|| format!("cargo mutants ended without outcomes: {status}"))?;
    let outcome = Outcome::read(&text)?;
    let is_whole = options.file.is_none() && options.shard.is_none();
    let path = workspace.root.join(REPORT);
    let reasons = reasons(&std::fs::read_to_string(&path).unwrap_or_default());
    let report = outcome.report(&heading(&workspace.root)?, &reasons);
    print!("{report}");
    if is_whole {
        std::fs::write(&path, report).with_context(|| format!("cannot write {REPORT}"))?;
    }
    let (caught, all) = outcome.sums();
    if caught * 100 < all * CAUGHT_PERCENT_MIN {
        bail!("{caught} of {all} mutants were caught, and {CAUGHT_PERCENT_MIN} of 100 have to be");
    }
    Ok(())
}

fn is_installed() -> bool {
    let mut command = Command::new("cargo");
    command.args(["mutants", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The commit and the day of a run.
fn heading(root: &Path) -> Result<String> {
    let text = |program: &str, arguments: &[&str]| -> Result<String> {
        let mut command = Command::new(program);
        command.current_dir(root).args(arguments);
        Ok(String::from_utf8(process::output(command)?)?.trim().to_owned())
    };
    let commit = text("git", &["rev-parse", "--short", "HEAD"])?;
    Ok(format!("Commit {commit}, {}.", text("date", &["-u", "+%Y-%m-%d"])?))
}

impl Outcome {
    /// Reads what cargo-mutants has written.
    fn read(text: &str) -> Result<Self> {
        let outcomes: Value = serde_json::from_str(text).context("outcomes.json is no JSON")?;
        let mut outcome = Self::default();
        for one in outcomes["outcomes"].as_array().into_iter().flatten() {
            let mutant = &one["scenario"]["Mutant"];
            let (Some(file), Some(name)) = (mutant["file"].as_str(), mutant["name"].as_str())
            else {
                continue;
            };
            let count = outcome.files.entry(file.to_owned()).or_default();
            match one["summary"].as_str() {
                // A test that does not end has noticed, too.
                Some("CaughtMutant" | "Timeout") => count.caught += 1,
                Some("MissedMutant") => {
                    count.missed += 1;
                    outcome.survivors.push(without_line(file, name));
                }
                _ => count.unviable += 1,
            }
        }
        outcome.survivors.sort();
        Ok(outcome)
    }

    /// How many were caught, of how many.
    fn sums(&self) -> (usize, usize) {
        let caught = self.files.values().map(|count| count.caught).sum();
        (caught, caught + self.survivors.len())
    }

    /// The report, with the reasons of survivors that an earlier one has.
    fn report(&self, heading: &str, reasons: &BTreeMap<String, String>) -> String {
        let (caught, all) = self.sums();
        let mut text = format!(
            "# Mutants\n\n`cargo xtask mutants` changes one operator or answer of a rule at a time and runs \
             the kernel's tests.\n{heading} {caught} of {all} were caught. A mutant that does not \
             compile is none; one that makes a test\nrun for ever is caught.\n\n\
             | file | caught | missed |\n|---|---|---|\n"
        );
        for (file, count) in &self.files {
            let _ = writeln!(text, "| `{file}` | {} | {} |", count.caught, count.missed);
        }
        text.push_str("\n## Survivors\n\nEach with the reason why no test notices it.\n\n");
        let mut survivors = self.survivors.clone();
        survivors.dedup();
        for survivor in survivors {
            let reason = reasons.get(&survivor).map_or(NO_REASON, String::as_str);
            let _ = writeln!(text, "* `{survivor}`: {reason}");
        }
        text
    }
}

/// The change and its file, without the line: lines move, reasons stay.
fn without_line(file: &str, name: &str) -> String {
    let change = name.strip_prefix(file).unwrap_or(name);
    let change = change.trim_start_matches(|c: char| c == ':' || c == ' ' || c.is_ascii_digit());
    format!("{file}: {}", change.replace('`', "'"))
}

/// The reasons that a report has, by survivor.
fn reasons(report: &str) -> BTreeMap<String, String> {
    let lines = report.lines().filter_map(|line| line.strip_prefix("* `")?.split_once("`: "));
    lines.map(|(survivor, reason)| (survivor.to_owned(), reason.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const OUTCOMES: &str = r#"{"outcomes": [
        {"scenario": "Baseline", "summary": "Success"},
        {"scenario": {"Mutant": {"file": "a.rs", "name": "a.rs:3:5: replace f -> bool with true"}}, "summary": "CaughtMutant"},
        {"scenario": {"Mutant": {"file": "a.rs", "name": "a.rs:9:1: replace + with - in g"}}, "summary": "MissedMutant"},
        {"scenario": {"Mutant": {"file": "b.rs", "name": "b.rs:1:1: replace h with ()"}}, "summary": "Timeout"},
        {"scenario": {"Mutant": {"file": "b.rs", "name": "b.rs:2:1: replace i with Default"}}, "summary": "Unviable"}
    ]}"#;

    #[test]
    fn mutants_are_counted_by_file_and_those_that_do_not_compile_are_none() {
        let outcome = Outcome::read(OUTCOMES).unwrap();
        assert_eq!(outcome.files["a.rs"], Count { caught: 1, missed: 1, unviable: 0 });
        assert_eq!(outcome.files["b.rs"], Count { caught: 1, missed: 0, unviable: 1 });
        assert_eq!(outcome.sums(), (2, 3));
        assert!(Outcome::read("no").is_err());
    }

    #[test]
    fn a_reason_stays_with_its_survivor_when_lines_move() {
        let outcome = Outcome::read(OUTCOMES).unwrap();
        let first = outcome.report("Commit a.", &BTreeMap::new());
        assert!(first.contains("* `a.rs: replace + with - in g`: not looked at yet"), "{first}");
        let told = first.replace(NO_REASON, "both sides are equal there");
        let moved = OUTCOMES.replace("a.rs:9:1", "a.rs:77:8");
        let second = Outcome::read(&moved).unwrap().report("Commit b.", &reasons(&told));
        assert!(second.contains("in g`: both sides are equal there"), "{second}");
        assert!(second.contains("| `a.rs` | 1 | 1 |"), "{second}");
    }
}

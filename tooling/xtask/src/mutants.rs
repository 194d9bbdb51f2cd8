//! `cargo xtask mutants`: whether the tests notice when a rule is changed.
//!
//! cargo-mutants changes one operator or answer of a rule at a time, in a copy of the tree, and runs
//! the tests of the crate that holds the rule. A change that no test notices survives: it is listed
//! in `docs/mutants.md`, with the reason that a person has written there. Nine of ten have to be
//! caught. All of them take hours: a run of some files brings their lines of the report up to date
//! and leaves the others as they are.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use clap::Args;
use serde_json::Value;

use crate::process;
use crate::workspace::Workspace;

/// The rules: policy, caps, holds, ledger, apply, shares, scope with its resolver, and the matrix of
/// authority. A folder stands for all below it.
const RULES: [&str; 11] = [
    "host/kernel/src/apply.rs",
    "host/kernel/src/apply/",
    "host/kernel/src/authority.rs",
    "host/kernel/src/class.rs",
    "host/kernel/src/governance/",
    "host/kernel/src/ledger.rs",
    "host/kernel/src/meter.rs",
    "host/kernel/src/role.rs",
    "host/kernel/src/scope.rs",
    "host/kernel/src/share.rs",
    "host/tenancy/src/place.rs",
];
/// The crates that hold them.
const PACKAGES: [&str; 2] = ["charter-kernel", "charter-tenancy"];
/// The report.
const REPORT: &str = "docs/mutants.md";
/// Seconds that a mutant's tests have in any case: on a busy machine, slow is not for ever.
const TEST_SECONDS_MIN: &str = "90";
/// Of a hundred mutants, at least so many are caught.
const CAUGHT_PERCENT_MIN: usize = 90;
/// Cases of each property: a mutant that no case of these finds is rarely found by more.
const PROPERTY_CASES: &str = "48";
/// The variables that name the folder in which cargo builds.
const TARGETS: [&str; 2] = ["CARGO_TARGET_DIR", "CARGO_BUILD_TARGET_DIR"];
/// The reason of a survivor that nobody has looked at.
const NO_REASON: &str = "not looked at yet";

/// The rules to change, and how.
#[derive(Args, Debug)]
pub struct Options {
    /// Only files whose path contains one of these
    files: Vec<String>,
    /// Mutants at once; each builds the crate and runs its tests
    #[arg(long, short, default_value_t = 2)]
    jobs: u8,
}

/// The fate of the mutants of one file. One that does not compile is no mutant of a program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Count {
    caught: usize,
    missed: usize,
    /// The commit and the day of the run.
    when: String,
}

/// A report: the fate of all mutants, the last time that their file was looked at.
#[derive(Debug, Default, PartialEq, Eq)]
struct Report {
    files: BTreeMap<String, Count>,
    /// Survivors by file and change, without their lines, and the reason of each.
    survivors: BTreeMap<String, String>,
}

/// Runs cargo-mutants over the rules and fails where too many survive.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    if !is_installed() {
        bail!("this needs cargo-mutants: `cargo install cargo-mutants --locked`");
    }
    let files = rules(&workspace.root, &options.files)?;
    let output = workspace.target.join("mutants");
    let mut command = process::cargo(&workspace.root);
    command.args(["mutants", "--no-shuffle", "--colors=never", "--minimum-test-timeout"]);
    command.arg(TEST_SECONDS_MIN);
    command.args(["--jobs", &options.jobs.to_string(), "--output"]).arg(&output);
    for package in PACKAGES {
        command.args(["--package", package]);
    }
    for file in &files {
        command.args(["--file", file]);
    }
    // The tests of the mutant's crate alone, and small: a line of debug information costs a link of each mutant,
    // and the bounds of schemas, most of the time of these tests, hold whatever the rules say.
    command.args(["--", "--lib", "--tests", "--", "--skip", "schema::"]);
    // A case that failed is enough: nobody reads the smallest one.
    command.env("PROPTEST_CASES", PROPERTY_CASES).env("PROPTEST_MAX_SHRINK_ITERS", "0");
    // Each job builds in its own copy of the tree: in a folder that all share, one job would wait
    // for the other's lock until its time is over, or run the other's mutant.
    for name in TARGETS {
        command.env_remove(name);
    }
    command.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_PROFILE_TEST_DEBUG", "0");
    eprintln!("Every mutant is a build and a run of the tests: seconds each, a thousand in all.");
    let status = command.status().context("cannot start cargo mutants")?;
    let text = std::fs::read_to_string(output.join("mutants.out/outcomes.json"))
        .with_context(|| format!("cargo mutants ended without outcomes: {status}"))?;
    let path = workspace.root.join(REPORT);
    let mut report = Report::parse(&std::fs::read_to_string(&path).unwrap_or_default());
    let all = rules(&workspace.root, &[])?;
    report.renew(&text, &files, &when(&workspace.root)?)?;
    report.files.retain(|file, _| all.contains(file));
    std::fs::write(&path, report.to_string()).with_context(|| format!("cannot write {REPORT}"))?;
    print!("{report}");
    let (caught, all) = report.sums();
    if caught * 100 < all * CAUGHT_PERCENT_MIN {
        bail!("{caught} of {all} mutants were caught, and {CAUGHT_PERCENT_MIN} of 100 have to be");
    }
    Ok(())
}

/// The files of the rules whose path contains one of the words, if there are any.
fn rules(root: &Path, words: &[String]) -> Result<Vec<String>> {
    let mut command = Command::new("git");
    command.current_dir(root).args(["ls-files", "--cached", "--others", "--exclude-standard"]);
    command.args(RULES);
    let listed = String::from_utf8(process::output(command)?)?;
    let is_test = |file: &&str| file.contains("/tests/") || file.ends_with("tests.rs");
    let is_named = |file: &&str| words.is_empty() || words.iter().any(|word| file.contains(word));
    let files = listed.lines().filter(|file| !is_test(file)).filter(is_named);
    let files: Vec<String> = files.map(str::to_owned).collect();
    if files.is_empty() {
        bail!("no file of the rules has {} in its path", words.join(" or "));
    }
    Ok(files)
}

fn is_installed() -> bool {
    let mut command = Command::new("cargo");
    command.args(["mutants", "--version"]).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// The commit and the day of a run.
fn when(root: &Path) -> Result<String> {
    let text = |program: &str, arguments: &[&str]| -> Result<String> {
        let mut command = Command::new(program);
        command.current_dir(root).args(arguments);
        Ok(String::from_utf8(process::output(command)?)?.trim().to_owned())
    };
    let commit = text("git", &["rev-parse", "--short", "HEAD"])?;
    Ok(format!("{commit}, {}", text("date", &["-u", "+%Y-%m-%d"])?))
}

impl Report {
    /// Reads one that was written before.
    fn parse(text: &str) -> Self {
        let row = |line: &str| {
            let mut cells = line.strip_prefix("| `")?.trim_end_matches(" |").split(" | ");
            let file = cells.next()?.trim_end_matches('`').to_owned();
            let mut number = || cells.next()?.parse().ok();
            let (caught, missed) = (number()?, number()?);
            Some((file, Count { caught, missed, when: cells.next()?.to_owned() }))
        };
        let survivor = |line: &str| {
            let (survivor, reason) = line.strip_prefix("* `")?.split_once("`: ")?;
            Some((survivor.to_owned(), reason.to_owned()))
        };
        Self {
            files: text.lines().filter_map(row).collect(),
            survivors: text.lines().filter_map(survivor).collect(),
        }
    }

    /// Takes over what cargo-mutants has written of these files.
    fn renew(&mut self, outcomes: &str, files: &[String], when: &str) -> Result<()> {
        let outcomes: Value = serde_json::from_str(outcomes).context("outcomes.json is no JSON")?;
        let before = self.survivors.clone();
        for file in files {
            self.survivors.retain(|survivor, _| !survivor.starts_with(&format!("{file}: ")));
            let count = Count { when: when.to_owned(), ..Count::default() };
            self.files.insert(file.clone(), count);
        }
        for one in outcomes["outcomes"].as_array().into_iter().flatten() {
            let mutant = &one["scenario"]["Mutant"];
            let (Some(file), Some(name)) = (mutant["file"].as_str(), mutant["name"].as_str())
            else {
                continue;
            };
            let ran = files.iter().any(|ran| ran == file);
            let Some(count) = self.files.get_mut(file).filter(|_| ran) else { continue };
            match one["summary"].as_str() {
                // A test that does not end has noticed, too.
                Some("CaughtMutant" | "Timeout") => count.caught += 1,
                Some("MissedMutant") => {
                    count.missed += 1;
                    let survivor = without_line(file, name);
                    let reason = before.get(&survivor).map_or(NO_REASON, String::as_str);
                    self.survivors.insert(survivor, reason.to_owned());
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// How many were caught, of how many.
    fn sums(&self) -> (usize, usize) {
        let caught = self.files.values().map(|count| count.caught).sum();
        let missed = self.files.values().map(|count| count.missed).sum::<usize>();
        (caught, caught + missed)
    }
}

impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (caught, all) = self.sums();
        writeln!(
            f,
            "# Mutants\n\n`cargo xtask mutants` changes one operator or answer of a rule at a time and runs \
             the tests of its crate.\n{caught} of {all} were caught. A mutant that does not compile is none; one \
             that makes a test run for ever is caught.\n\n\
             | file | caught | missed | commit and day of the run |\n|---|---|---|---|"
        )?;
        for (file, Count { caught, missed, when }) in &self.files {
            writeln!(f, "| `{file}` | {caught} | {missed} | {when} |")?;
        }
        writeln!(f, "\n## Survivors\n\nEach with the reason why no test notices it.\n")?;
        self.survivors
            .iter()
            .try_for_each(|(survivor, reason)| writeln!(f, "* `{survivor}`: {reason}"))
    }
}

/// The change and its file, without the line: lines move, reasons stay.
fn without_line(file: &str, name: &str) -> String {
    let change = name.strip_prefix(file).unwrap_or(name);
    let change = change.trim_start_matches(|c: char| c == ':' || c == ' ' || c.is_ascii_digit());
    format!("{file}: {}", change.replace('`', "'"))
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

    fn renewed(mut report: Report, outcomes: &str, files: &[&str], when: &str) -> Report {
        let files: Vec<String> = files.iter().map(|file| (*file).to_owned()).collect();
        report.renew(outcomes, &files, when).unwrap();
        report
    }

    #[test]
    fn mutants_are_counted_by_file_and_those_that_do_not_compile_are_none() {
        let report = renewed(Report::default(), OUTCOMES, &["a.rs", "b.rs"], "1, today");
        let when = || "1, today".to_owned();
        assert_eq!(report.files["a.rs"], Count { caught: 1, missed: 1, when: when() });
        assert_eq!(report.files["b.rs"], Count { caught: 1, missed: 0, when: when() });
        assert_eq!(report.sums(), (2, 3));
        assert!(Report::default().renew("no", &[], "").is_err());
        assert_eq!(Report::parse(&report.to_string()), report, "{report}");
    }

    #[test]
    fn a_reason_stays_with_its_survivor_when_lines_move() {
        let first = renewed(Report::default(), OUTCOMES, &["a.rs", "b.rs"], "1, today").to_string();
        assert!(first.contains("* `a.rs: replace + with - in g`: not looked at yet"), "{first}");
        let told = Report::parse(&first.replace(NO_REASON, "both sides are equal there"));
        let moved = OUTCOMES.replace("a.rs:9:1", "a.rs:77:8");
        let second = renewed(told, &moved, &["a.rs"], "2, later").to_string();
        assert!(second.contains("in g`: both sides are equal there"), "{second}");
        assert!(second.contains("| `a.rs` | 1 | 1 | 2, later |"), "{second}");
        // The other file was not looked at again.
        let third = renewed(Report::parse(&second), r#"{"outcomes": []}"#, &["a.rs"], "3, later");
        assert_eq!((third.survivors.len(), third.files["a.rs"].when.as_str()), (0, "3, later"));
        assert_eq!(
            (third.files["b.rs"].caught, third.files["b.rs"].when.as_str()),
            (1, "1, today")
        );
    }
}

//! `cargo xtask tidy --figures`: the figures by which the house is judged, so that they can be
//! measured again.
//!
//! Nothing fails by them. Code is what a crate builds for its users: no tests, neither inline nor
//! beside it, and no examples.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::circles::{self, Circles};
use super::{File, Files};
use crate::rust::Code;
use crate::rust::imports::{self, Module};
use crate::workspace::Workspace;

mod source;

use source::Source;

/// Lines of a function beyond which it is long.
const FUNCTION_LINES_MAX: usize = 70;
/// Columns of a line.
const COLUMNS_MAX: usize = 100;

/// The row of the end-to-end tests.
const END_TO_END: &str = "(end to end)";

/// Each figure that has places, by the name under which they are listed.
const LISTED: [&str; 8] =
    ["allowed", "long", "openings", "one-word", "participles", "undocumented", "unwraps", "wide"];

/// One crate, or all of them.
#[derive(Default)]
struct Measured<'a> {
    sources: Vec<(&'a str, Source)>,
    test_lines: usize,
}

/// The figures as a table for people.
pub(super) fn table(workspace: &Workspace, files: &Files) -> String {
    let crates = crates(workspace, files);
    let circles = circles::all(workspace, files);
    let mut all = Measured::default();
    let mut text = format!(
        "{:<24}{:>6}{:>8}{:>8}{:>7}{:>6}{:>6}{:>9}{:>8}\n",
        "crate", "files", "code", "tests", "ratio", "long", "wide", "circle", "folders"
    );
    for (name, measured) in crates {
        let of = circles.iter().find(|circles| circles.package == name);
        let (files, folders) = of.map_or((0, 0), |of: &Circles| (of.files.len(), of.folders.len()));
        let _ = writeln!(
            text,
            "{name:<24}{:>6}{:>8}{:>8}{:>7.2}{:>6}{:>6}{files:>9}{folders:>8}",
            measured.sources.len(),
            measured.lines(),
            measured.test_lines,
            ratio(measured.test_lines, measured.lines()),
            measured.count("long"),
            measured.count("wide"),
        );
        all.test_lines += measured.test_lines;
        all.sources.extend(measured.sources);
    }
    text + "\n" + &all.summary()
}

/// The places of one figure, a line each.
pub(super) fn list(workspace: &Workspace, files: &Files, figure: &str) -> Result<String, String> {
    if !LISTED.contains(&figure) {
        return Err(format!("`{figure}` has no places; there are {}", LISTED.join(", ")));
    }
    let mut text = String::new();
    for (_, measured) in crates(workspace, files) {
        for (path, source) in &measured.sources {
            for place in source.places.get(figure).into_iter().flatten() {
                let _ = writeln!(text, "{path}:{}: {}", place.line, place.text);
            }
        }
    }
    Ok(text)
}

/// Each member with its code and its tests; the end-to-end tests are those of the whole.
fn crates<'a>(workspace: &Workspace, files: &'a Files) -> BTreeMap<String, Measured<'a>> {
    let mut crates: BTreeMap<String, Measured<'a>> = BTreeMap::new();
    for package in &workspace.packages {
        let Ok(folder) = package.folder.strip_prefix(&workspace.root) else { continue };
        let folder = folder.to_string_lossy();
        // The harness and its fixtures are tests of the whole.
        let is_tests = folder == "tests" || folder.starts_with("tests/");
        let name = if is_tests { END_TO_END } else { package.name.as_str() };
        let measured = crates.entry(name.to_owned()).or_default();
        let below = format!("{folder}/");
        let own: Vec<_> =
            files.rust().filter_map(|file| Some((file.path.strip_prefix(&below)?, file))).collect();
        let codes: Vec<_> = own
            .iter()
            .filter_map(|(path, file)| {
                Some((imports::module(path.strip_prefix("src/")?), Code::of(&file.text)))
            })
            .collect();
        let tests = imports::tests(codes.iter().map(|(module, code)| (module.as_slice(), code)));
        for (path, file) in own {
            measured.add(is_tests, path, file, &tests);
        }
    }
    crates
}

impl<'a> Measured<'a> {
    fn add(&mut self, is_tests_own: bool, path: &str, file: &'a File, tests: &[Module]) {
        let is_test = |path: &str| tests.iter().any(|test| imports::module(path).starts_with(test));
        match path.split_once('/') {
            Some(("src", path)) if !is_tests_own && !is_test(path) => {
                let source = Source::of(&file.text);
                self.test_lines += source.test_lines;
                self.sources.push((&file.path, source));
            }
            Some(("src" | "tests" | "e2e", _)) => self.test_lines += file.text.lines().count(),
            _ => {}
        }
    }

    fn lines(&self) -> usize {
        self.sum(|source| source.lines)
    }

    fn sum(&self, of: impl Fn(&Source) -> usize) -> usize {
        self.sources.iter().map(|(_, source)| of(source)).sum()
    }

    fn count(&self, figure: &str) -> usize {
        self.sum(|source| source.places.get(figure).map_or(0, Vec::len))
    }

    fn summary(&self) -> String {
        let lines = self.lines();
        let files = spread(self.sources.iter().map(|(_, source)| source.lines).collect());
        let functions =
            spread(self.sources.iter().flat_map(|(_, source)| source.functions.clone()).collect());
        let share = |part, whole| 100.0 * ratio(part, whole);
        let per_kloc = |count| 1000.0 * ratio(count, lines);
        let headers = self.sum(|source| usize::from(source.has_header));
        let (functions_all, types) =
            (self.sum(|source| source.functions.len()), self.sum(|source| source.types));
        let (sentences, public) =
            (self.sum(|source| source.sentences), self.sum(|source| source.public));
        let rows = [
            ("files, lines", format!("{}, {lines}", self.sources.len())),
            ("lines a file: median, p95, most", files),
            ("lines a function: median, p95, most", functions),
            ("functions above 70 lines", format!("{} of {functions_all}", self.count("long"))),
            (
                "unwrap, expect in 1,000 lines",
                format!(
                    "{:.1}, {:.1}",
                    per_kloc(self.count("unwraps")),
                    per_kloc(self.sum(|source| source.expects))
                ),
            ),
            ("files that open with //!", format!("{:.0} %", share(headers, self.sources.len()))),
            (
                "lines that are comments",
                format!("{:.0} %", share(self.sum(|source| source.comment_lines), lines)),
            ),
            ("pub without a comment", format!("{} of {public}", self.count("undocumented"))),
            ("tests to code", format!("{:.2}", ratio(self.test_lines, lines))),
            (
                "mean width, lines above 100 columns",
                format!(
                    "{:.0}, {}",
                    ratio(self.sum(|source| source.columns), self.sum(|source| source.full_lines)),
                    self.count("wide")
                ),
            ),
            (
                "expect to allow (lints)",
                format!(
                    "{} to {}",
                    self.sum(|source| source.expected_lints),
                    self.count("allowed")
                ),
            ),
            (
                "names of types of one word",
                format!("{:.0} % of {types}", share(self.count("one-word"), types)),
            ),
            (
                "functions named by a participle",
                format!("{} of {functions_all}", self.count("participles")),
            ),
            (
                "sentences that open with What, Who, Where",
                format!("{:.1} % of {sentences}", share(self.count("openings"), sentences)),
            ),
        ];
        rows.iter().fold(String::new(), |mut text, (name, value)| {
            let _ = writeln!(text, "{name:<44}{value}");
            text
        })
    }
}

fn ratio(part: usize, whole: usize) -> f64 {
    part as f64 / whole.max(1) as f64
}

/// Median, 95th percentile and maximum.
fn spread(mut values: Vec<usize>) -> String {
    values.sort_unstable();
    let at = |share: f64| {
        let index = (share * values.len().saturating_sub(1) as f64).round() as usize;
        values.get(index).copied().unwrap_or_default()
    };
    format!("{}, {}, {}", at(0.5), at(0.95), at(1.0))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_spread_is_median_p95_and_most() {
        assert_eq!(super::spread((1..=100).collect()), "51, 95, 100");
        assert_eq!(super::spread(Vec::new()), "0, 0, 0");
    }
}

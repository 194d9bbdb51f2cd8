//! `cargo xtask`: everything that is done to this repository, as one command line without shell
//! scripts.
//!
//! Only parses arguments; each command is a function of the library beside it.

use anyhow::Result;
use clap::{Parser, Subcommand};
use xtask::workspace::Workspace;
use xtask::{bench, components, fuzz, lint, mutants, run, scaffold, test, tidy};

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    about = "Build, run, test and extend Charter",
    disable_help_subcommand = true
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Build target/release/charter and every primitive as target/components/<name>.wasm
    Build(components::Options),
    /// Build everything and start Charter on an embedded SQLite database
    Run(run::Options),
    /// Run every test: units, properties, and end to end on SQLite and PostgreSQL
    Test(test::Options),
    /// Run what is tested each night: rustdoc, and peers that somebody else wrote, installed from
    /// their registry
    Nightly,
    /// Scaffold a primitive as plugins/<name>, ready to build, test and serve
    New(scaffold::Options),
    /// Measure, and print each figure as a ratio within the run
    Bench(bench::Options),
    /// Fuzz the parsers that face strangers (needs a nightly toolchain and cargo-fuzz)
    Fuzz(fuzz::Options),
    /// Change the rules one at a time, and see whether the tests notice (needs cargo-mutants)
    Mutants(mutants::Options),
    /// Check the rules of the repository that no compiler checks
    Tidy(tidy::Options),
    /// Format, tidy and lints: what continuous integration checks before the tests
    Lint,
}

fn main() -> Result<()> {
    let workspace = Workspace::find()?;
    match Arguments::parse().command {
        Command::Build(options) => components::run(&workspace, &options),
        Command::Run(options) => run::run(&workspace, &options),
        Command::Test(options) => test::run(&workspace, &options),
        Command::Nightly => test::nightly(&workspace),
        Command::New(options) => scaffold::run(&workspace, &options),
        Command::Bench(options) => bench::run(&workspace, &options),
        Command::Fuzz(options) => fuzz::run(&workspace, &options),
        Command::Mutants(options) => mutants::run(&workspace, &options),
        Command::Tidy(options) => tidy::run(&workspace, &options),
        Command::Lint => lint::run(&workspace),
    }
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory as _, Parser as _};

    use super::Arguments;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
        for good in [
            &["xtask", "build"] as &[&str],
            &["xtask", "build", "notes", "--into", "x"],
            &["xtask", "test", "notes"],
        ] {
            assert!(Arguments::try_parse_from(good).is_ok(), "{good:?}");
        }
        assert!(Arguments::try_parse_from(["xtask", "build", "--into", "x"]).is_err(), "of what");
    }
}

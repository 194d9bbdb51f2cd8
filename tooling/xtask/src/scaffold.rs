//! `cargo xtask new <name>`: a primitive that builds, is tested end to end and shows up in OpenAPI,
//! with no other file touched.
//!
//! `tooling/scaffold/` is the template, laid out as the folder it becomes. In its files and file
//! names `{{name}}` stands for the kebab name, `{{crate_name}}` for the name as Rust writes it,
//! `{{Name}}` for a type's name and `{{title}}` for people; a last extension `.template` is
//! dropped, so that no tool takes the template for code.

use std::path::Path;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::workspace::Workspace;

/// The primitive to make.
#[derive(Args, Debug)]
pub struct Options {
    /// Lower-case words joined by hyphens, such as `address-book`
    name: String,
}

/// Names that a primitive cannot have: the host's own, and cargo's for artefacts of the workspace.
const RESERVED: [&str; 8] =
    ["host", "server", "store", "engine", "kernel", "sdk", "tests", "bench"];

/// Writes `plugins/<name>`.
pub fn run(workspace: &Workspace, options: &Options) -> Result<()> {
    let name = options.name.as_str();
    if let Some(fault) = fault(name) {
        bail!("`{name}` cannot be a primitive's name: {fault}");
    }
    let folder = workspace.root.join("plugins").join(name);
    if folder.exists() {
        bail!("plugins/{name} is there already");
    }
    copy(&workspace.root.join("tooling/scaffold"), &folder, &Words::of(name))?;
    eprintln!(
        "made plugins/{name}\n\n\
         Next:\n\
         {}",
        hints(name)
    );
    Ok(())
}

/// The next commands to run; the purpose of each stands in one column.
fn hints(name: &str) -> String {
    let commands = [
        (format!("cargo test --package charter-{name}"), "its rules, without a runtime"),
        (format!("cargo xtask test {name}"), "the same and its cases, through a real server"),
        (format!("cargo xtask build {name}"), "a running `cargo xtask run` takes it at once"),
        ("cargo xtask run".to_owned(), "and look for it in /openapi.json and /skill.md"),
    ];
    let width = commands.iter().map(|(command, _)| command.len()).max().unwrap_or_default();
    commands.map(|(command, says)| format!("  {command:width$}  {says}")).join("\n")
}

/// Why it cannot be a primitive's name.
pub fn fault(name: &str) -> Option<&'static str> {
    let is_word = |word: &str| {
        !word.is_empty()
            && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    if name.len() > 40 {
        return Some("it is longer than 40 characters");
    }
    if !name.split('-').all(is_word) {
        return Some("it must be lower-case words joined by single hyphens");
    }
    if !name.starts_with(|first: char| first.is_ascii_lowercase()) {
        return Some("it must start with a letter");
    }
    if RESERVED.contains(&name) {
        return Some("the workspace uses it itself");
    }
    None
}

/// The values of the placeholders.
struct Words([(&'static str, String); 4]);

impl Words {
    fn of(name: &str) -> Self {
        let capital = |word: &str| word[..1].to_ascii_uppercase() + &word[1..];
        let words: Vec<String> = name.split('-').map(capital).collect();
        Self([
            ("{{name}}", name.to_owned()),
            ("{{crate_name}}", name.replace('-', "_")),
            ("{{Name}}", words.concat()),
            ("{{title}}", words.join(" ")),
        ])
    }

    fn fill(&self, text: &str) -> String {
        self.0
            .iter()
            .fold(text.to_owned(), |text, (placeholder, word)| text.replace(placeholder, word))
    }
}

fn copy(from: &Path, to: &Path, words: &Words) -> Result<()> {
    std::fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    for entry in
        std::fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))?
    {
        let path = entry?.path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .context("a template's file name is not UTF-8")?;
        let target = to.join(words.fill(name.strip_suffix(".template").unwrap_or(name)));
        if path.is_dir() {
            copy(&path, &target, words)?;
        } else {
            let text = std::fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            std::fs::write(&target, words.fill(&text))
                .with_context(|| format!("cannot write {}", target.display()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_kebab_case() {
        for good in ["notes", "address-book", "web3"] {
            assert_eq!(fault(good), None, "{good}");
        }
        for bad in
            ["", "Notes", "notes-", "-notes", "a--b", "a_b", "3d", "host", "a/../b", "sdk", "é"]
        {
            assert!(fault(bad).is_some(), "{bad}");
        }
        assert!(fault(&"a".repeat(41)).is_some());
    }

    #[test]
    fn hints_stand_in_one_column() {
        for name in ["a", "a-name-that-is-longer-than-most"] {
            let told = hints(name);
            let says = |line: &str| line.len() - line.rsplit("  ").next().map_or(0, str::len);
            let columns: Vec<usize> = told.lines().map(says).collect();
            assert!(columns.iter().all(|column| *column == columns[0]), "{told}");
        }
    }

    #[test]
    fn placeholders_are_filled() {
        let words = Words::of("address-book");
        assert_eq!(
            words.fill("{{name}} {{crate_name}} {{Name}} {{title}}"),
            "address-book address_book AddressBook Address Book"
        );
    }
}

//! The host knows no primitive: no operation id, route or route prefix of one appears in `host/`,
//! `wit/` or `migrations/`.
//!
//! The ids and routes are read from the primitives' sources, where each is a string literal.

use std::collections::BTreeSet;

use super::{File, Files};
use crate::workspace::Workspace;

pub(super) fn faults(workspace: &Workspace, files: &Files) -> Vec<String> {
    let mut faults = Vec::new();
    for (name, _) in workspace.members_in("plugins") {
        let folder = format!("plugins/{name}/src/");
        let mut words: BTreeSet<String> = BTreeSet::new();
        for file in files.rust().filter(|file| file.path.starts_with(&folder)) {
            words.extend(
                literals(&file.text)
                    .filter(|text| is_operation(text, &name) || is_route(text))
                    .map(str::to_owned),
            );
        }
        words.insert(format!("/{name}"));
        words.insert(format!("plugins/{name}"));
        words.insert(format!("charter-{name}"));
        words.insert(format!("charter_{}", name.replace('-', "_")));
        for file in files.below(&["host/", "wit/", "migrations/"]).filter(|file| !is_prose(file)) {
            faults.extend(mentions(file, &words).map(|(line, word)| {
                format!("{}:{line}: names `{word}` of the primitive {name}", file.path)
            }));
        }
    }
    faults
}

/// A manual is allowed to have examples; code is not.
fn is_prose(file: &File) -> bool {
    file.path.ends_with(".md")
}

fn mentions<'a>(
    file: &'a File,
    words: &'a BTreeSet<String>,
) -> impl Iterator<Item = (usize, &'a str)> {
    // Comments and documentation may tell with an example what a field holds; only code can depend
    // on it.
    let code = |line: &str| !matches!(line.trim_start().get(..2), Some("//" | "--"));
    file.text.lines().enumerate().filter(move |(_, line)| code(line)).flat_map(|(index, line)| {
        words
            .iter()
            .filter(|word| contains_word(line, word))
            .map(move |word| (index + 1, word.as_str()))
    })
}

/// Whether the word stands in the line on its own: `/queue` in `"/v1/queue/x"`, not in `/queued`.
fn contains_word(line: &str, word: &str) -> bool {
    let is_inner =
        |character: char| character.is_alphanumeric() || character == '_' || character == '-';
    line.match_indices(word).any(|(start, _)| !line[start + word.len()..].starts_with(is_inner))
}

fn is_operation(text: &str, name: &str) -> bool {
    text.strip_prefix(name).and_then(|rest| rest.strip_prefix('.')).is_some_and(|verb| {
        !verb.is_empty() && verb.chars().all(|c| c.is_ascii_lowercase() || c == '_' || c == '.')
    })
}

/// Whether the text is a route: it opens with a literal segment, which a piece of a format string
/// (`/{}`) does not.
fn is_route(text: &str) -> bool {
    text.strip_prefix('/')
        .is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_lowercase()))
        && !text.contains(char::is_whitespace)
}

/// The plain string literals of a source file: what stands between two quotes of one line.
fn literals(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter(|line| !line.trim_start().starts_with("//"))
        .flat_map(|line| line.split('"').skip(1).step_by(2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_end_where_names_end() {
        assert!(contains_word("match \"/v1/notes/x\" {", "/notes"));
        assert!(!contains_word("/notesbook", "/notes"));
        assert!(!contains_word("/notes-book", "/notes"));
        assert!(contains_word("\"notes.purge\"", "notes.purge"));
    }

    #[test]
    fn literals_tell_operations_and_routes_from_other_text() {
        let source = "const ID: &str = \"notes.purge\"; // \"notes.no\"\nroute(\"/notes/{id}\", \"Some text.\"); format!(\"/{}\", \"//x\")";
        let found: Vec<_> =
            literals(source).filter(|text| is_operation(text, "notes") || is_route(text)).collect();
        assert_eq!(found, ["notes.purge", "notes.no", "/notes/{id}"]);
    }
}

//! The docs against the tree: every path, link, test and reason that a document names is there, and
//! every reason that the host gives is named.
//!
//! Knows Markdown only as far as it needs to: code spans and links outside fenced blocks.

use std::collections::BTreeSet;

use super::{File, Files};

/// A code span that begins with one of these is a path from the root of the repository.
const ROOTS: [&str; 7] =
    ["docs/", "host/", "migrations/", "plugins/", "tests/", "tooling/", "wit/"];

/// The paths that a reader makes by doing as a document says.
const MADE_BY_READERS: [&str; 1] = ["plugins/notes"];

/// The comment ahead of the table whose second column is the host's reasons.
const REASONS: &str = "<!-- reasons -->";

/// The calls and members by which a refusal gets its reason, up to the reason and behind it. A row
/// of the audit log has a reason too, which is no `String`.
const GIVES: [(&str, &str); 5] = [
    ("forbidden(", ""),
    ("state_conflict(", ""),
    (".reason(", ""),
    ("State { reason: ", ""),
    ("reason: Some(", ".into()"),
];

/// A word with that many underscores is a sentence, and names a test.
const UNDERSCORES_OF_TESTS: usize = 4;

pub(super) fn faults(files: &Files) -> Vec<String> {
    let known = Known::of(files);
    let documents = files.iter().filter(|file| file.path.ends_with(".md"));
    let reasons = files.iter().flat_map(|file| reasons(&file.text).map(move |named| (file, named)));
    documents
        .flat_map(|file| known.faults_of(file))
        .chain(reasons.filter_map(|(file, (line, reason))| {
            let literal = format!("\"{reason}\"");
            let mut sources = files.rust().filter(|file| file.path.starts_with("host/"));
            (!sources.any(|source| source.text.contains(&literal))).then(|| {
                format!("{}:{line}: names the reason `{reason}`, which no refusal has", file.path)
            })
        }))
        .chain(find_unnamed(files))
        .collect()
}

/// The reasons that the host gives and the document with the table of reasons does not name.
fn find_unnamed(files: &Files) -> Vec<String> {
    let has_table = |file: &&File| file.text.lines().any(|line| line == REASONS);
    let Some(table) = files.iter().find(has_table) else { return Vec::new() };
    let spans = prose(&table.text).flat_map(|(_, line)| line.split('`').skip(1).step_by(2));
    let named: BTreeSet<&str> =
        spans.map(|span| span.strip_prefix("reason: ").unwrap_or(span)).collect();
    let is_tested = |path: &str| path.ends_with("/tests.rs") || path.contains("/tests/");
    let sources = files.rust().filter(|file| file.path.starts_with("host/"));
    sources
        .filter(|file| !is_tested(&file.path))
        .flat_map(|file| find_given(&file.text).into_iter().map(move |given| (file, given)))
        .filter(|(_, (_, reason))| !named.contains(reason))
        .map(|(file, (line, reason))| {
            format!("{}:{line}: gives the reason `{reason}`, which {} lacks", file.path, table.path)
        })
        .collect()
}

/// The reasons that a source gives to refusals as literals ahead of its tests, with their lines.
fn find_given(text: &str) -> Vec<(usize, &str)> {
    let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let found = GIVES.iter().flat_map(|(ahead, behind)| {
        text.match_indices(ahead).filter_map(move |(at, _)| {
            let literal = text[at + ahead.len()..].trim_start().strip_prefix('"')?;
            let (reason, rest) = literal.split_once('"')?;
            let line = 1 + text[..at].matches('\n').count();
            rest.starts_with(behind).then_some((line, reason))
        })
    });
    let mut found: Vec<_> = found.collect();
    found.sort_unstable();
    found
}

/// The things that documents may name.
struct Known<'a> {
    /// Every file, and every folder that holds one.
    paths: BTreeSet<&'a str>,
    functions: BTreeSet<&'a str>,
}

impl<'a> Known<'a> {
    fn of(files: &'a Files) -> Self {
        let folders = |path: &'a str| path.match_indices('/').map(|(end, _)| &path[..end]);
        let paths = files.iter().map(|file| file.path.as_str());
        let paths = paths.flat_map(|path| std::iter::once(path).chain(folders(path))).collect();
        let functions = files.rust().flat_map(|file| functions(&file.text)).collect();
        Self { paths, functions }
    }

    fn faults_of(&self, file: &File) -> Vec<String> {
        let mut faults = Vec::new();
        for (line, text) in prose(&file.text) {
            let mut fault = |name: &str, what: &str| {
                faults.push(format!(
                    "{}:{line}: names {what} `{name}`, which is not there",
                    file.path
                ));
            };
            for span in text.split('`').skip(1).step_by(2) {
                if is_path(span) && !self.has(span) {
                    fault(span, "the path");
                }
                if let Some(test) = test(span)
                    && !self.functions.contains(test)
                {
                    fault(span, "the test");
                }
            }
            for link in links(text).filter(|link| !self.has(&resolve(&file.path, link))) {
                fault(link, "the file");
            }
        }
        faults
    }

    fn has(&self, path: &str) -> bool {
        let path = path.trim_end_matches('/');
        MADE_BY_READERS.contains(&path) || self.paths.contains(path)
    }
}

/// The lines outside fenced blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_fenced ^= is_fence;
        (!is_fenced && !is_fence).then_some((index + 1, line))
    })
}

fn is_path(span: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_');
    ROOTS.iter().any(|root| span.starts_with(root)) && span.chars().all(is_plain)
}

/// The second column of the table of reasons, with its lines.
fn reasons(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = text.lines().enumerate().skip_while(|(_, line)| *line != REASONS).skip(3);
    lines.take_while(|(_, line)| line.starts_with('|')).filter_map(|(index, line)| {
        let reason = line.split('|').nth(2)?.trim().trim_matches('`');
        Some((index + 1, reason))
    })
}

/// The function that a span names, where it names a test: `rules::a_trap_leaves_no_document`.
fn test(span: &str) -> Option<&str> {
    let name = span.rsplit("::").next()?;
    let is_name = name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    let is_sentence = name.matches('_').count() >= UNDERSCORES_OF_TESTS;
    (is_name && is_sentence).then_some(name)
}

/// The targets of a line's links, without those that leave the repository.
fn links(line: &str) -> impl Iterator<Item = &str> {
    let targets = line.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    targets
        .map(|target| target.split('#').next().unwrap_or_default())
        .filter(|target| !target.is_empty() && !target.contains(':'))
}

/// A link's target from the root of the repository.
fn resolve(from: &str, target: &str) -> String {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in target.split('/') {
        match part {
            ".." => drop(parts.pop()),
            "." | "" => {}
            part => parts.push(part),
        }
    }
    parts.join("/")
}

/// The names that follow `fn` in a source file.
fn functions(text: &str) -> impl Iterator<Item = &str> {
    text.split("fn ").skip(1).map(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        &rest[..end.unwrap_or(rest.len())]
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_named_with_its_line() {
        let file = |path: &str, text: &str| File { path: path.into(), text: text.into() };
        let files = Files(vec![
            file("README.md", "See [docs](docs/a.md#part), [web](https://example.org)."),
            file(
                "docs/a.md",
                "`host/kernel/src/` and `host/kernel/lost.rs`\n```\n`host/fenced`\n```\n[up](../README.md) [no](b.md)\n\
                 `rules::a_trap_leaves_no_document` `a_test_that_is_not_there` `links_per_hour` `host/<name>`",
            ),
            file(
                "docs/errors.md",
                "<!-- reasons -->\n| code | reason |\n|---|---|\n| | `pinned` |\n| | `lost` |\n\n\
                 `reason: said`\n",
            ),
            file(
                "host/kernel/src/lib.rs",
                "#[test]\nfn a_trap_leaves_no_document() { forbidden(\"pinned\") }\n\
                 fn refuse() { forbidden(\n\"unsaid\"); refusal.reason(\"said\") }\n\
                 const ROW: Row = Row { reason: Some(\"of a row\"), fault: reason };\n\
                 const NO: Failure = Failure { reason: Some(\"hidden\".into()) };\n\
                 #[cfg(test)]\nmod tests { fn make() { forbidden(\"made up\") } }",
            ),
        ]);
        assert_eq!(
            faults(&files),
            [
                "docs/a.md:1: names the path `host/kernel/lost.rs`, which is not there",
                "docs/a.md:5: names the file `b.md`, which is not there",
                "docs/a.md:6: names the test `a_test_that_is_not_there`, which is not there",
                "docs/errors.md:5: names the reason `lost`, which no refusal has",
                "host/kernel/src/lib.rs:3: gives the reason `unsaid`, which docs/errors.md lacks",
                "host/kernel/src/lib.rs:6: gives the reason `hidden`, which docs/errors.md lacks",
            ]
        );
    }
}

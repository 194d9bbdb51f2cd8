//! The figures of one source file.

use std::collections::BTreeMap;

use super::super::names;
use super::super::prose::{self, Place};
use super::{COLUMNS_MAX, FUNCTION_LINES_MAX};
use crate::rust::{Code, Kind, Token};

/// A text of this length may stand on a line that is too long: no tool breaks it.
const LITERAL_BYTES: usize = 40;

/// The figures of a file, its tests apart.
#[derive(Debug, Default)]
pub(super) struct Source {
    pub(super) lines: usize,
    pub(super) test_lines: usize,
    pub(super) comment_lines: usize,
    /// Lines that are not empty, and the columns of all of them.
    pub(super) full_lines: usize,
    pub(super) columns: usize,
    pub(super) has_header: bool,
    /// The lines of each function.
    pub(super) functions: Vec<usize>,
    pub(super) types: usize,
    pub(super) public: usize,
    pub(super) sentences: usize,
    pub(super) expects: usize,
    pub(super) expected_lints: usize,
    pub(super) places: BTreeMap<&'static str, Vec<Place>>,
}

impl Source {
    pub(super) fn of(text: &str) -> Self {
        let code = Code::of(text);
        let words: Vec<_> =
            code.tokens.iter().filter(|token| !token.is_comment()).copied().collect();
        let (sentences, openings) = prose::sentences(&code.tokens);
        let mut source = Self {
            lines: text.lines().count() - code.test_lines,
            test_lines: code.test_lines,
            comment_lines: code
                .tokens
                .iter()
                .filter(|token| token.is_comment())
                .map(|token| token.text.lines().count())
                .sum(),
            has_header: code.tokens.iter().any(|token| token.text.starts_with("//!")),
            sentences,
            ..Self::default()
        };
        openings.into_iter().for_each(|place| source.note("openings", place.line, place.text));
        source.widths(text, &code);
        for at in 0..words.len() {
            source.word(&words, at);
        }
        source.public_items(&code.tokens);
        source
    }

    fn note(&mut self, figure: &'static str, line: usize, text: impl Into<String>) {
        self.places.entry(figure).or_default().push(Place { line, text: text.into() });
    }

    /// Looks at lines as they are set.
    fn widths(&mut self, text: &str, code: &Code<'_>) {
        let long_text = |line: usize| {
            code.tokens.iter().any(|token| {
                let last = token.line + token.text.matches('\n').count();
                token.kind == Kind::Literal
                    && token.text.len() > LITERAL_BYTES
                    && (token.line..=last).contains(&line)
            })
        };
        let own: std::collections::BTreeSet<usize> =
            code.tokens.iter().map(|token| token.line).collect();
        for (at, line) in text.lines().enumerate() {
            let columns = line.chars().count();
            if columns == 0 {
                continue;
            }
            self.full_lines += 1;
            self.columns += columns;
            if columns > COLUMNS_MAX && own.contains(&(at + 1)) && !long_text(at + 1) {
                self.note("wide", at + 1, line.trim());
            }
        }
    }

    /// Looks at what one word of the code begins.
    fn word(&mut self, words: &[Token<'_>], at: usize) {
        let token = words[at];
        let next = |n: usize| words.get(at + n).map_or("", |token| token.text);
        let is_called = |name: &str| at > 0 && words[at - 1].text == "." && next(0) == name;
        match token.text {
            "fn" if words.get(at + 1).is_some_and(|name| name.kind == Kind::Word) => {
                self.function(words, at);
            }
            "struct" | "enum" | "trait" | "type" | "union"
                if words.get(at + 1).is_some_and(|name| is_type_name(name.text)) =>
            {
                self.types += 1;
                let name = next(1);
                if name.chars().filter(|c| c.is_uppercase()).count() == 1 {
                    self.note("one-word", token.line, name);
                }
            }
            "unwrap" if is_called("unwrap") && next(1) == "(" && next(2) == ")" => {
                self.note("unwraps", token.line, "unwrap()");
            }
            "expect" if is_called("expect") => self.expects += 1,
            "expect" if is_attribute(words, at) => self.expected_lints += 1,
            "allow" if is_attribute(words, at) => self.note("allowed", token.line, next(2)),
            _ => {}
        }
    }

    fn function(&mut self, words: &[Token<'_>], at: usize) {
        let (line, name) = (words[at].line, words[at + 1].text);
        if let Some(last) = end_of_body(&words[at..]) {
            let lines = last - line + 1;
            self.functions.push(lines);
            if lines > FUNCTION_LINES_MAX {
                self.note("long", line, format!("{name}: {lines} lines"));
            }
        }
        if names::is_participle(name) {
            self.note("participles", line, name);
        }
    }

    /// Counts what is public, and what of it has no comment.
    fn public_items(&mut self, tokens: &[Token<'_>]) {
        for (at, token) in tokens.iter().enumerate() {
            let next = |n: usize| tokens.get(at + n).map_or("", |token| token.text);
            if token.text != "pub" || token.kind != Kind::Word || next(1) == "(" {
                continue;
            }
            // A module's comment is its file's.
            if next(1) == "use" || (next(1) == "mod" && next(3) == ";") {
                continue;
            }
            self.public += 1;
            if !is_documented(&tokens[..at]) {
                self.note("undocumented", token.line, format!("{} {}", next(1), next(2)));
            }
        }
    }
}

fn is_type_name(text: &str) -> bool {
    text.starts_with(|first: char| first.is_uppercase())
}

fn is_attribute(words: &[Token<'_>], at: usize) -> bool {
    at > 0 && words[at - 1].text == "[" && words.get(at + 1).is_some_and(|next| next.text == "(")
}

/// The line on which the body of the function that begins here ends; nothing where it has none.
fn end_of_body(words: &[Token<'_>]) -> Option<usize> {
    let mut depth = 0_usize;
    for word in words {
        match word.text {
            "(" | "[" | "{" if word.kind == Kind::Mark => depth += 1,
            mark @ (")" | "]" | "}") if word.kind == Kind::Mark => {
                depth = depth.checked_sub(1)?;
                if depth == 0 && mark == "}" {
                    return Some(word.line);
                }
            }
            ";" if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// Whether a comment stands above what follows these tokens; attributes may lie between.
fn is_documented(before: &[Token<'_>]) -> bool {
    let mut depth = 0_usize;
    for token in before.iter().rev() {
        match (token.kind, token.text) {
            (Kind::Doc, text) if depth == 0 => return text.starts_with("///"),
            (Kind::Comment, _) => {}
            (Kind::Mark, "]") => depth += 1,
            (Kind::Mark, "[") if depth > 0 => depth -= 1,
            (Kind::Mark, "#") if depth == 0 => {}
            _ if depth > 0 => {}
            _ => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(text: &str, figure: &str) -> Vec<String> {
        let source = Source::of(text);
        source.places.get(figure).into_iter().flatten().map(|place| place.text.clone()).collect()
    }

    #[test]
    fn functions_are_measured_and_named() {
        let source = Source::of(
            "fn told() {\n  x();\n}\nfn need();\nimpl A for B { fn send(&self) -> [u8; 2] { [1; 2] } }",
        );
        assert_eq!(source.functions, [3, 1]);
        let names = "fn told() {} fn expired_rows() {} fn need() {} fn feed() {} fn tell() {}";
        assert_eq!(listed(names, "participles"), ["told"]);
        let long = format!("fn a() {{\n{}}}", "x();\n".repeat(FUNCTION_LINES_MAX));
        assert_eq!(listed(&long, "long"), ["a: 72 lines"]);
    }

    #[test]
    fn public_items_need_a_comment() {
        let text = "/// Said.\n#[derive(Debug)]\npub struct A {\n pub a: u8,\n /// Said.\n pub b: u8,\n}\n\
                    pub(crate) fn c() {}\npub use x::Y;\npub mod z;";
        assert_eq!(listed(text, "undocumented"), ["a :"]);
        assert_eq!(Source::of(text).public, 3);
        assert_eq!(listed(text, "one-word"), ["A"]);
    }

    #[test]
    fn a_long_text_may_make_a_line_long() {
        let long = format!("let a = \"{}\";\nlet {} = 1;\n", "x".repeat(100), "b".repeat(100));
        assert_eq!(listed(&long, "wide").len(), 1);
        assert_eq!(listed(&long, "wide")[0].chars().next(), Some('l'));
    }

    #[test]
    fn unwraps_and_lints_are_counted() {
        let text = "#[expect(x, reason = \"y\")] fn a() { b.unwrap(); c.expect(\"d\"); e.unwrap_or(1); }\n#![allow(z)]";
        let source = Source::of(text);
        assert_eq!((source.expects, source.expected_lints), (1, 1));
        assert_eq!((listed(text, "unwraps").len(), listed(text, "allowed")), (1, vec!["z".into()]));
    }
}

//! The English of comments: sentences, and how they open.

use crate::rust::{Kind, Token};

/// The place of one finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) line: usize,
    pub(super) text: String,
}

/// A sentence does not open with these in the place of a noun.
const OPENINGS: [&str; 10] = [
    "What",
    "Whatever",
    "Who",
    "Whoever",
    "Whom",
    "Whose",
    "Where",
    "Wherever",
    "Which",
    "Whichever",
];

/// The sentences of a file's comments: how many there are, and those that open with a relative.
pub(super) fn sentences(tokens: &[Token<'_>]) -> (usize, Vec<Place>) {
    let (mut count, mut openings) = (0, Vec::new());
    for paragraph in paragraphs(tokens) {
        for (line, sentence) in split(&paragraph) {
            count += 1;
            let first = sentence.split(|c: char| !c.is_alphabetic()).next().unwrap_or_default();
            if OPENINGS.contains(&first) && !sentence.ends_with('?') {
                openings.push(Place { line, text: sentence });
            }
        }
    }
    (count, openings)
}

/// Lines of text that belong together, each with its number.
fn paragraphs<'a>(tokens: &[Token<'a>]) -> Vec<Vec<(usize, &'a str)>> {
    let mut paragraphs: Vec<Vec<(usize, &str)>> = Vec::new();
    let (mut last, mut is_code) = (0, false);
    for token in tokens.iter().filter(|token| token.is_comment() && token.text.starts_with("//")) {
        let text = token.text.trim_start_matches('/').trim_start_matches('!').trim();
        let is_first = last + 1 != token.line;
        last = token.line;
        if text.starts_with("```") {
            is_code = !is_code;
            continue;
        }
        if token.kind == Kind::Doc && is_code {
            continue;
        }
        is_code &= token.kind == Kind::Doc;
        let opens = is_first || text.is_empty() || text.starts_with(['*', '-', '|', '#']);
        if opens {
            paragraphs.push(Vec::new());
        }
        if !text.is_empty() && !text.starts_with(['#', '|']) {
            let text = text.trim_start_matches(['*', '-', ' ']);
            match paragraphs.last_mut() {
                Some(paragraph) => paragraph.push((token.line, text)),
                None => paragraphs.push(vec![(token.line, text)]),
            }
        }
    }
    paragraphs.retain(|paragraph| !paragraph.is_empty());
    paragraphs
}

/// The sentences of a paragraph, each with the line on which it begins.
fn split(paragraph: &[(usize, &str)]) -> Vec<(usize, String)> {
    let mut sentences: Vec<(usize, String)> = Vec::new();
    let mut is_over = true;
    for (line, text) in paragraph {
        for word in text.split_whitespace() {
            match sentences.last_mut() {
                Some((_, sentence)) if !is_over => {
                    sentence.push(' ');
                    sentence.push_str(word);
                }
                _ => sentences.push((*line, word.to_owned())),
            }
            let end = word.trim_end_matches([')', '`', '"', '*']);
            is_over = end.ends_with(['.', '!', '?']) && !end.ends_with("..");
        }
    }
    sentences
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rust::tokens;

    #[test]
    fn openings_are_found_with_their_lines() {
        let source = "//! A thing. What it does is\n//! said here.\n//!\n//! Who asks?\n\n\
                      /// Where it\n/// lies.\nfn a() {} // Whatever\n/// ```\n/// What\n/// ```\nfn b() {}";
        let (count, openings) = sentences(&tokens(source));
        let lines: Vec<_> = openings.iter().map(|place| place.line).collect();
        assert_eq!((count, lines), (5, vec![1, 6, 8]));
        assert_eq!(openings[1].text, "Where it lies.");
    }
}

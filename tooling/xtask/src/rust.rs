//! Rust sources as far as the repository's own rules look at them: words, marks and comments, and
//! which of them are tests.
//!
//! No parser of the language: what is asked for here shows in the tokens. Macros are read as they
//! are written.

pub mod imports;

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A name or a keyword.
    Word,
    /// A string, a character or a number.
    Literal,
    /// `::`, or one character of punctuation.
    Mark,
    /// A lifetime.
    Lifetime,
    /// `// …` or `/* … */`.
    Comment,
    /// `/// …` or `//! …`.
    Doc,
}

/// One token and where it begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Token<'a> {
    /// The token's kind.
    pub kind: Kind,
    /// As it is written.
    pub text: &'a str,
    /// The line of its first character, from 1.
    pub line: usize,
}

impl Token<'_> {
    /// Whether it is a comment of either kind.
    pub fn is_comment(&self) -> bool {
        matches!(self.kind, Kind::Comment | Kind::Doc)
    }
}

/// The tokens of a source text, comments included.
pub fn tokens(text: &str) -> Vec<Token<'_>> {
    let (mut found, mut rest, mut line) = (Vec::new(), text, 1);
    while let Some(first) = rest.chars().next() {
        if first.is_whitespace() {
            line += usize::from(first == '\n');
            rest = &rest[first.len_utf8()..];
            continue;
        }
        let (kind, length) = token(rest, first);
        let (token, after) = rest.split_at(length);
        found.push(Token { kind, text: token, line });
        line += token.matches('\n').count();
        rest = after;
    }
    found
}

fn token(text: &str, first: char) -> (Kind, usize) {
    let is_inner = |c: char| c.is_alphanumeric() || c == '_';
    let word = || text.find(|c| !is_inner(c)).unwrap_or(text.len());
    if text.starts_with("//") {
        let is_doc =
            text.starts_with("//!") || (text.starts_with("///") && !text.starts_with("////"));
        let kind = if is_doc { Kind::Doc } else { Kind::Comment };
        return (kind, text.find('\n').unwrap_or(text.len()));
    }
    if text.starts_with("/*") {
        return (Kind::Comment, block(text));
    }
    if let Some(length) = string(text) {
        return (Kind::Literal, length);
    }
    match first {
        '\'' => lex_quote(text),
        c if c.is_ascii_digit() => (Kind::Literal, number(text)),
        c if is_inner(c) => (Kind::Word, word()),
        _ if text.starts_with("::") => (Kind::Mark, 2),
        c => (Kind::Mark, c.len_utf8()),
    }
}

/// The length of a block comment, which may hold others.
fn block(text: &str) -> usize {
    let (mut depth, mut at) = (0_usize, 0);
    while at < text.len() {
        let rest = &text[at..];
        if rest.starts_with("/*") {
            (depth, at) = (depth + 1, at + 2);
        } else if rest.starts_with("*/") {
            (depth, at) = (depth - 1, at + 2);
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// The length of a string of any kind, where one begins here.
fn string(text: &str) -> Option<usize> {
    let prefix = text.len() - text.trim_start_matches(['b', 'c', 'r']).len();
    if prefix > 2 {
        return None;
    }
    let (is_raw, rest) = (text[..prefix].contains('r'), &text[prefix..]);
    let hashes = rest.len() - rest.trim_start_matches('#').len();
    let rest = rest[hashes..].strip_prefix('"')?;
    let opening = prefix + hashes + 1;
    if is_raw {
        let closing = format!("\"{}", "#".repeat(hashes));
        return Some(rest.find(&closing).map_or(text.len(), |at| opening + at + closing.len()));
    }
    if hashes > 0 {
        return None;
    }
    Some(text_length(rest, '"').map_or(text.len(), |length| opening + length))
}

/// How long a text is up to its closing quote, that included.
fn text_length(text: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return Some(at + 1),
            _ => {}
        }
    }
    None
}

/// A character or a lifetime.
fn lex_quote(text: &str) -> (Kind, usize) {
    let rest = &text[1..];
    let mut ahead = rest.chars();
    let is_character = match (ahead.next(), ahead.next()) {
        (Some('\\'), _) => true,
        (_, after) => after == Some('\''),
    };
    if is_character {
        return (Kind::Literal, text_length(rest, '\'').map_or(text.len(), |length| length + 1));
    }
    let name = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    (Kind::Lifetime, name + 1)
}

/// The length of a number; a dot belongs to it only before a digit.
fn number(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    while let Some(byte) = bytes.get(at) {
        let goes_on = byte.is_ascii_alphanumeric()
            || *byte == b'_'
            || (*byte == b'.' && bytes.get(at + 1).is_some_and(u8::is_ascii_digit));
        if !goes_on {
            break;
        }
        at += 1;
    }
    at
}

/// A source without its tests.
#[derive(Debug, Default)]
pub struct Code<'a> {
    /// The tokens that are no tests, comments included.
    pub tokens: Vec<Token<'a>>,
    /// The lines that tests take.
    pub test_lines: usize,
    /// Modules in files of their own that are declared as tests.
    pub test_modules: Vec<&'a str>,
}

impl<'a> Code<'a> {
    /// Leaves out each item under `#[cfg(test)]`.
    pub fn of(text: &'a str) -> Self {
        let all = tokens(text);
        let mut code = Self::default();
        let mut at = 0;
        while at < all.len() {
            if !is_test_attribute(&all[at..]) {
                code.tokens.push(all[at]);
                at += 1;
                continue;
            }
            let end = at + 7 + item(&all[at + 7..]);
            let skipped = &all[at..end];
            if let (Some(first), Some(last)) = (skipped.first(), skipped.last()) {
                code.test_lines += last.line + last.text.matches('\n').count() - first.line + 1;
            }
            if let [.., keyword, name, end] = skipped
                && keyword.text == "mod"
                && end.text == ";"
            {
                code.test_modules.push(name.text);
            }
            at = end;
        }
        code
    }
}

fn is_test_attribute(tokens: &[Token<'_>]) -> bool {
    let words = ["#", "[", "cfg", "(", "test", ")", "]"];
    tokens.len() >= words.len()
        && tokens.iter().zip(words).all(|(token, word)| token.text == word && !token.is_comment())
}

/// How many tokens an item, a field or a statement takes.
fn item(tokens: &[Token<'_>]) -> usize {
    const ITEMS: [&str; 14] = [
        "pub", "fn", "mod", "use", "impl", "struct", "enum", "const", "static", "type", "trait",
        "async", "unsafe", "extern",
    ];
    let (mut depth, mut is_item) = (0_usize, None);
    for (at, token) in tokens.iter().enumerate() {
        if depth == 0 && is_item.is_none() && token.kind == Kind::Word {
            is_item = Some(ITEMS.contains(&token.text));
        }
        match (token.kind, token.text) {
            (Kind::Mark, "(" | "[" | "{") => depth += 1,
            (Kind::Mark, ")" | "]" | "}") if depth == 0 => return at,
            (Kind::Mark, mark @ (")" | "]" | "}")) => {
                depth -= 1;
                if depth == 0 && mark == "}" {
                    return at + 1;
                }
            }
            (Kind::Mark, ";") if depth == 0 => return at + 1,
            (Kind::Mark, ",") if depth == 0 && is_item == Some(false) => return at + 1,
            _ => {}
        }
    }
    tokens.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(source: &str) -> Vec<&str> {
        tokens(source).into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn tokens_are_words_marks_literals_and_comments() {
        let source = "a::b(\"x // y\\\"\", 'c', '\\'', 'life, 1.5, 0..9) // end\n/* a /* b */ */ z";
        let expected = [
            "a",
            "::",
            "b",
            "(",
            "\"x // y\\\"\"",
            ",",
            "'c'",
            ",",
            "'\\''",
            ",",
            "'life",
            ",",
            "1.5",
            ",",
            "0",
            ".",
            ".",
            "9",
            ")",
            "// end",
            "/* a /* b */ */",
            "z",
        ];
        assert_eq!(texts(source), expected);
        assert_eq!(
            texts("r#\"a \" b\"# b\"c\" brand r\"d\\\" e"),
            ["r#\"a \" b\"#", "b\"c\"", "brand", "r\"d\\\"", "e"]
        );
    }

    #[test]
    fn lines_are_counted_through_strings_and_comments() {
        let lines: Vec<_> = tokens("a\n\"b\nc\" d\n/* e\nf */ g").iter().map(|t| t.line).collect();
        assert_eq!(lines, [1, 2, 3, 4, 5]);
    }

    #[test]
    fn tests_are_left_out() {
        let source = "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b<A, B>() {}\n}\n#[cfg(test)]\nmod far;\n\
                      struct S {\n a: u8,\n #[cfg(test)]\n b: u8,\n}\n#[cfg(test)]\nfn c<A, B>() {}\nfn d() {}";
        let code = Code::of(source);
        let left: Vec<_> = code.tokens.iter().map(|token| token.text).collect();
        assert_eq!(left.join(" "), "fn a ( ) { } struct S { a : u8 , } fn d ( ) { }");
        assert_eq!(code.test_modules, ["far"]);
        assert_eq!(code.test_lines, 4 + 2 + 2 + 2);
    }
}

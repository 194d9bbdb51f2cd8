//! Text of a stranger as one line: no line of a log, and no terminal, is the writer's own.

use std::borrow::Cow;

/// The text with each control character, each break of a line and each mark of direction in its
/// escaped form (`\n`, `\u{1b}`).
pub fn one_line(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_control) {
        return Cow::Borrowed(text);
    }
    let mut line = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_control(c) { line.extend(c.escape_default()) } else { line.push(c) }
    }
    Cow::Owned(line)
}

/// Whether a character turns around how what follows it is shown (Unicode's bidirectional controls).
pub fn is_turn(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

fn is_control(c: char) -> bool {
    c.is_control() || is_turn(c) || matches!(c, '\u{2028}' | '\u{2029}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_breaks_the_line() {
        assert!(matches!(one_line("plain text, ünïcode"), Cow::Borrowed(_)));
        assert_eq!(one_line("a\nb\r\x1b[2J\t\u{85}\u{2028}"), r"a\nb\r\u{1b}[2J\t\u{85}\u{2028}");
        assert_eq!(one_line("pay \u{202e}00.1$"), r"pay \u{202e}00.1$");
    }
}

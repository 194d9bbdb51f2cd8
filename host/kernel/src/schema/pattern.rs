//! The cost of a pattern, read from its syntax.
//!
//! The engine's time is bounded by a text's length times the states that are alive at once, and
//! those are at most the places in the pattern where a match can stand: its letters and classes, a
//! repeated one as often as it may be counted.

use regex_syntax::hir::{Hir, HirKind};

use crate::limits::PATTERN_TEXT_BYTES_MAX;

/// The places of a pattern that was not read.
pub(super) const UNREAD: u64 = u64::MAX;

/// The places of a pattern; [`UNREAD`] where it is too long or does not parse.
pub(super) fn states(pattern: &str) -> u64 {
    if pattern.len() > PATTERN_TEXT_BYTES_MAX {
        return UNREAD;
    }
    let read = jsonschema_regex::to_rust_regex(pattern)
        .ok()
        .and_then(|pattern| regex_syntax::parse(&pattern).ok());
    read.map_or(UNREAD, |hir| places(&hir).clamp(1, UNREAD - 1))
}

fn places(hir: &Hir) -> u64 {
    match hir.kind() {
        HirKind::Empty => 0,
        HirKind::Literal(literal) => literal.0.len() as u64,
        HirKind::Class(_) | HirKind::Look(_) => 1,
        HirKind::Repetition(repeated) => {
            let times = repeated.max.unwrap_or(repeated.min.saturating_add(1)).max(1);
            places(&repeated.sub).saturating_mul(times.into())
        }
        HirKind::Capture(capture) => places(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => {
            parts.iter().map(places).fold(0, u64::saturating_add)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counted_repetitions_multiply() {
        for (pattern, expected) in [
            ("", 1),
            ("^abc$", 5),
            ("[a-z]+", 2),
            (r"\d{3,10}", 10),
            ("(a|bc){100}", 300),
            ("((x{10}){10}){10}", 1_000),
            ("(((((((((((x{99}){99}){99}){99}){99}){99}){99}){99}){99}){99}){99}){99}", UNREAD - 1),
            ("(", UNREAD),
        ] {
            assert_eq!(states(pattern), expected, "{pattern}");
        }
    }
}

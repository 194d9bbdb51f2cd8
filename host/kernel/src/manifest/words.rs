//! Names of operations, actions and events: dotted words, the first of them whose they are.

/// Whether a dotted name is `<primitive>.<verb>`, or longer.
pub fn belongs(name: &str, primitive: &str) -> bool {
    name.strip_prefix(primitive)
        .and_then(|rest| rest.strip_prefix('.'))
        .is_some_and(|rest| rest.split('.').all(is_word))
}

/// Whether it is one word in lower case.
pub(super) fn is_word(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

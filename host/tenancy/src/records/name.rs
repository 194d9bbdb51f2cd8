//! Names that people give to organizations, projects, users, kits and keys.

/// The longest name, in characters.
pub const CHARACTERS_MAX: usize = 128;

/// The fault of a name, if any.
pub fn fault(name: &str) -> Option<&'static str> {
    if name.trim().is_empty() {
        Some("must not be blank")
    } else if name.chars().count() > CHARACTERS_MAX {
        Some("must have at most 128 characters")
    } else if name.chars().any(char::is_control) {
        Some("must not contain control characters")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::fault;

    #[test]
    fn a_name_is_one_line_of_text() {
        assert!(fault("").is_some());
        assert!(fault("  ").is_some());
        assert!(fault("two\nlines").is_some());
        assert!(fault(&"x".repeat(129)).is_some());
        assert!(fault(&"ü".repeat(128)).is_none());
        assert!(fault("Acme, Inc.").is_none());
    }
}

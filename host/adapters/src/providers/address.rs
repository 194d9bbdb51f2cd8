//! What may stand as a binding's address.

/// Whether it is an http or https address with a host, and without user, query and fragment: the
/// credential goes to its origin and below its path, so both must be plain to see.
pub fn is_address(text: &str) -> bool {
    let Ok(uri) = text.parse::<http::Uri>() else { return false };
    matches!(uri.scheme_str(), Some("http" | "https"))
        && uri.host().is_some_and(|host| !host.is_empty())
        && uri.query().is_none()
        && uri.authority().is_some_and(|authority| !authority.as_str().contains('@'))
        && !text.contains(['#', '\\'])
        && !uri.path().split('/').any(|part| part == "..")
}

#[cfg(test)]
mod tests {
    use super::is_address;

    #[test]
    fn an_address_is_an_origin_and_a_path() {
        for good in ["http://127.0.0.1:8080", "https://api.example.com/v1/"] {
            assert!(is_address(good), "{good}");
        }
        for bad in [
            "",
            "ftp://x/",
            "api.example.com",
            "https://user:pw@x/",
            "https://x/?q=1",
            "https://x/#f",
            "https://x/a/../b",
        ] {
            assert!(!is_address(bad), "{bad}");
        }
    }
}

//! The addresses that a binding can have.

use http::uri::Authority;

/// Whether it is an http or https address with a host, and without user, query and fragment: the
/// credential goes to its origin and below its path, so both must be plain to see.
pub fn is_address(text: &str) -> bool {
    let Ok(uri) = text.parse::<http::Uri>() else { return false };
    matches!(uri.scheme_str(), Some("http" | "https"))
        && uri.host().is_some_and(|host| !host.is_empty())
        && uri.query().is_none()
        && uri.authority().is_some_and(|authority| {
            !authority.as_str().contains('@') && port(authority, 80).is_some()
        })
        && !text.contains(['#', '\\'])
        && !uri.path().split('/').any(|part| part == "..")
}

/// The port of an address, or `standard` where it names none; `None` for one that does not exist.
/// The library reads such a port as absent, and what was to go there would go elsewhere.
pub fn port(authority: &Authority, standard: u16) -> Option<u16> {
    let behind = authority.as_str().rsplit_once('@').map_or(authority.as_str(), |(_, rest)| rest);
    let named = behind.strip_prefix(authority.host())?;
    if named.is_empty() {
        return Some(standard);
    }
    let port = named.strip_prefix(':')?;
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    port.parse().ok().filter(|port| digits && *port > 0)
}

#[cfg(test)]
mod tests {
    use super::{is_address, port};

    #[test]
    fn a_port_that_does_not_exist_is_no_other_one() {
        let read = |text: &str| port(&text.parse().unwrap(), 443);
        for (text, found) in [
            ("example.com", Some(443)),
            ("example.com:8443", Some(8443)),
            ("[::1]", Some(443)),
            ("[::1]:65535", Some(65_535)),
            ("example.com:0", None),
            ("example.com:65536", None),
            ("example.com:99999", None),
            ("[::1]:00000000000", None),
        ] {
            assert_eq!(read(text), found, "{text}");
        }
    }

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
            "https://x:99999/",
            "https://x:0/",
        ] {
            assert!(!is_address(bad), "{bad}");
        }
    }
}

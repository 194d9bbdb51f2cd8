//! Addresses of pages: what may be asked for, and what a reference on a page means (RFC 3986,
//! section 5.2).
//!
//! Whether an address is public is not decided here: the host resolves it and refuses what is not.
//! This file decides that an address which a caller or a page names is never one of our own
//! providers: the host would add the operator's credential.

/// Characters of an address.
pub(crate) const CHARS_MAX: usize = 2_048;

/// An `http` or `https` address, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    scheme: String,
    authority: String,
    /// Begins with `/`.
    path: String,
    /// With its `?`, or empty.
    query: String,
}

impl Address {
    /// Reads an absolute address; a fragment is dropped. `None` for another scheme, credentials, or
    /// a host that is absent, not in ASCII, or a provider's.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.len() > CHARS_MAX || text.chars().any(|c| c.is_control() || c == ' ' || c == '\\') {
            return None;
        }
        let (scheme, rest) = text.split_once("://")?;
        let scheme = scheme.to_ascii_lowercase();
        if scheme != "http" && scheme != "https" {
            return None;
        }
        let rest = rest.split('#').next()?;
        let (authority, tail) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        let authority = authority.to_ascii_lowercase();
        if !is_plain_name(&authority) {
            return None;
        }
        let (path, query) = tail.split_at(tail.find('?').unwrap_or(tail.len()));
        let path = if path.is_empty() { "/".into() } else { ascii(path) };
        Some(Self { scheme, authority, path, query: ascii(query) })
    }

    /// The meaning of a reference on the page at this address; `None` where it leads to no page.
    pub(crate) fn join(&self, reference: &str) -> Option<Self> {
        let reference = reference.trim();
        if reference.is_empty() || reference.starts_with('#') {
            return None;
        }
        if let Some(rest) = reference.strip_prefix("//") {
            return Self::parse(&format!("{}://{rest}", self.scheme));
        }
        if has_scheme(reference) {
            return Self::parse(reference);
        }
        let reference = reference.split('#').next()?;
        let (path, query) = reference.split_at(reference.find('?').unwrap_or(reference.len()));
        let path = match path {
            "" => self.path.clone(),
            absolute if absolute.starts_with('/') => without_dots(absolute),
            relative => {
                let folder = &self.path[..=self.path.rfind('/').unwrap_or(0)];
                without_dots(&format!("{folder}{relative}"))
            }
        };
        Self::parse(&format!("{}://{}{path}{query}", self.scheme, self.authority))
    }

    /// The address as it is asked for.
    pub(crate) fn text(&self) -> String {
        format!("{}://{}{}{}", self.scheme, self.authority, self.path, self.query)
    }
}

/// Whether it is a host and perhaps a port, in the characters that such have, and so without
/// credentials.
fn is_plain_name(authority: &str) -> bool {
    let (host, port) = match authority.rfind(':') {
        Some(colon) if !authority.ends_with(']') => (&authority[..colon], &authority[colon + 1..]),
        _ => (authority, ""),
    };
    let host = host.trim_end_matches('.');
    let is_plain = |c: u8| c.is_ascii_alphanumeric() || b"-._".contains(&c);
    let is_ip6 = || {
        host.starts_with('[')
            && host.ends_with(']')
            && host.bytes().all(|c| c.is_ascii_hexdigit() || b"[]:.".contains(&c))
    };
    !host.is_empty()
        && (host.bytes().all(is_plain) || is_ip6())
        && port.bytes().all(|c| c.is_ascii_digit())
}

fn has_scheme(reference: &str) -> bool {
    let end = reference.find([':', '/', '?', '#']).filter(|end| reference.as_bytes()[*end] == b':');
    let scheme = end.map(|end| &reference[..end]);
    scheme.is_some_and(|scheme| {
        scheme.starts_with(|c: char| c.is_ascii_alphabetic())
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    })
}

fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut ends_in_folder = false;
    for segment in path.split('/').skip(1) {
        ends_in_folder = matches!(segment, "." | ".." | "");
        match segment {
            "." => {}
            ".." => drop(kept.pop()),
            segment => kept.push(segment),
        }
    }
    if ends_in_folder && kept.last().is_none_or(|last| !last.is_empty()) {
        kept.push("");
    }
    format!("/{}", kept.join("/"))
}

/// Percent-encodes what is no ASCII: browsers do the same before they ask.
fn ascii(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_graphic() && !b"\"<>^`{|}".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::Address;

    fn join_text(base: &str, reference: &str) -> Option<String> {
        Address::parse(base)?.join(reference).map(|address| address.text())
    }

    #[test]
    fn references_mean_what_rfc_3986_says() {
        let base = "http://a/b/c/d;p?q";
        for (reference, meant) in [
            ("g", "http://a/b/c/g"),
            ("./g", "http://a/b/c/g"),
            ("g/", "http://a/b/c/g/"),
            ("/g", "http://a/g"),
            ("//g", "http://g/"),
            ("?y", "http://a/b/c/d;p?y"),
            ("g?y#s", "http://a/b/c/g?y"),
            (".", "http://a/b/c/"),
            ("..", "http://a/b/"),
            ("../g", "http://a/b/g"),
            ("../../../g", "http://a/g"),
            ("g/../h", "http://a/b/c/h"),
            ("https://x/y", "https://x/y"),
            ("é", "http://a/b/c/%C3%A9"),
        ] {
            assert_eq!(join_text(base, reference).as_deref(), Some(meant), "{reference}");
        }
        for nowhere in ["", "#s", "mailto:a@b", "javascript:void(0)", "ftp://x/"] {
            assert_eq!(join_text(base, nowhere), None, "{nowhere}");
        }
    }

    #[test]
    fn only_web_addresses_without_credentials_are_read() {
        for bad in [
            "",
            "x",
            "ftp://a/",
            "http://",
            "http://u:p@a/",
            "http:///x",
            "file:///etc/passwd",
            "http://a b/",
        ] {
            assert_eq!(Address::parse(bad), None, "{bad}");
        }
        assert_eq!(
            Address::parse("HTTPS://Example.COM?q#f").map(|a| a.text()).as_deref(),
            Some("https://example.com/?q")
        );
    }
}

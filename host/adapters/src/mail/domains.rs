//! Domains whose mail this deployment receives itself: an agent could read it, so no link is mailed
//! there.
//!
//! Every question is decided on the ASCII form of a domain (UTS 46), and whatever has none counts
//! as hosted.

use idna::AsciiDenyList;

/// The longest domain (RFC 1035, 2.3.4).
const DOMAIN_BYTES_MAX: usize = 253;
/// The longest part of one.
const LABEL_BYTES_MAX: usize = 63;

/// The one spelling of a domain: ASCII, small letters, no dot at its end. `None` for what is no
/// domain.
pub fn ascii(domain: &str) -> Option<String> {
    let domain = domain.trim();
    let domain = domain.strip_suffix('.').unwrap_or(domain);
    let ascii =
        idna::domain_to_ascii_cow(domain.as_bytes(), AsciiDenyList::STD3).ok()?.into_owned();
    let fits = |label: &str| !label.is_empty() && label.len() <= LABEL_BYTES_MAX;
    (ascii.len() <= DOMAIN_BYTES_MAX && ascii.split('.').all(fits)).then_some(ascii)
}

/// The host of an address on the web, an IPv6 one without its brackets.
pub fn host(url: &str) -> Option<String> {
    let url = url.parse::<http::Uri>().ok()?;
    url.host().map(|host| host.trim_start_matches('[').trim_end_matches(']').to_owned())
}

/// Whether an address is at one of the hosted domains, below one, or at the host of the public
/// address. In doubt it is. `hosted` are ASCII forms.
pub fn is_hosted(hosted: &[String], public_url: Option<&str>, email: &str) -> bool {
    let Some(domain) = email.rsplit_once('@').and_then(|(_, domain)| ascii(domain)) else {
        return true;
    };
    let within = |own: &str| {
        domain == own || domain.strip_suffix(own).is_some_and(|rest| rest.ends_with('.'))
    };
    // Nobody receives what is mailed there (RFC 2606, section 2).
    if within("invalid") || hosted.iter().any(|own| within(own)) {
        return true;
    }
    let Some(url) = public_url else { return false };
    let Some(bare) = host(url) else { return true };
    // An address is no domain that anybody's mail is at.
    bare.parse::<std::net::IpAddr>().is_err() && ascii(&bare).is_none_or(|own| within(&own))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hosted() -> Vec<String> {
        ["mail.example.com", "exämple.de"].iter().map(|domain| ascii(domain).unwrap()).collect()
    }

    #[test]
    fn a_hosted_domain_is_one_in_every_spelling_with_all_below_it() {
        for email in [
            "a@mail.example.com",
            "a@MAIL.Example.COM",
            "a@mail.example.com.",
            "a@deep.mail.example.com",
            "a@exämple.de",
            "a@EXÄMPLE.de",
            "a@xn--exmple-cua.de",
            "a@sub.xn--EXMPLE-CUA.de",
            "a@ｍａｉｌ.example.com",
            "a@mail。example.com",
        ] {
            assert!(is_hosted(&hosted(), None, email), "{email}");
        }
        for email in [
            "a@example.com",
            "a@notmail.example.com",
            "a@mail.example.com.evil.net",
            "mail.example.com@example.net",
        ] {
            assert!(!is_hosted(&hosted(), None, email), "{email}");
        }
    }

    #[test]
    fn the_host_of_the_public_address_is_hosted_too() {
        for (url, email, held) in [
            ("https://api.example.org:8443/base", "a@api.example.org", true),
            ("https://api.example.org", "a@x.API.example.org", true),
            ("https://api.example.org", "a@example.org", false),
            ("http://127.0.0.1:8080", "a@example.org", false),
            ("http://[::1]:8080", "a@example.org", false),
        ] {
            assert_eq!(is_hosted(&[], Some(url), email), held, "{url} {email}");
        }
    }

    #[test]
    fn what_is_in_doubt_is_hosted() {
        for email in [
            "",
            "nobody",
            "a@",
            "a@x..y",
            "a@[127.0.0.1]",
            "a@under_score.example",
            "a@xn--a",
            "a@b c.de",
        ] {
            assert!(is_hosted(&[], None, email), "{email}");
        }
    }
}

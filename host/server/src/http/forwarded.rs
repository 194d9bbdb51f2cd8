//! The client of a request behind proxies: the address nearest to us that none of our own proxies
//! has.
//!
//! A header is believed only as far as it was written by proxies that the operator trusts, so it is
//! read from its end. An entry that cannot be read leaves the request with the connection's own
//! address. Entries further left were sent by anybody.

use std::net::{IpAddr, SocketAddr};

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName};
use ipnet::IpNet;

use crate::config::ClientField;

const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// Proxies in a row that are looked at.
const HOPS_MAX: usize = 32;
/// Bytes of one `Forwarded` field that is read; its quotes can be told from the left only.
const FIELD_BYTES_MAX: usize = 8 * 1024;
/// Bytes of one address, with brackets, port and quotes.
const NODE_BYTES_MAX: usize = 64;

/// The address of the client whose connection, or whose proxy's, comes from `peer`. Only the field
/// that the proxies write is read: the other one may be the client's own.
pub(super) fn client(
    peer: IpAddr,
    headers: &HeaderMap,
    trusted: &[IpNet],
    field: ClientField,
) -> IpAddr {
    let peer = peer.to_canonical();
    if !is_trusted(peer, trusted) {
        return peer;
    }
    let found = match field {
        ClientField::Forwarded => nearest(forwarded_hops(headers), trusted),
        ClientField::ForwardedFor => nearest(x_forwarded_for_hops(headers), trusted),
    };
    found.unwrap_or(peer)
}

/// Whether an address is one of the proxies that the operator trusts.
pub(super) fn is_trusted(address: IpAddr, trusted: &[IpNet]) -> bool {
    trusted.iter().any(|range| range.contains(&address))
}

/// Of hops, the last first: the first that is no trusted proxy, or the farthest one where all are.
/// `None` where one on the way to it cannot be read, or there are too many.
fn nearest(hops: impl Iterator<Item = Option<IpAddr>>, trusted: &[IpNet]) -> Option<IpAddr> {
    let mut farthest = None;
    for (passed, hop) in hops.enumerate() {
        let hop = hop.filter(|_| passed < HOPS_MAX)?;
        if !is_trusted(hop, trusted) {
            return Some(hop);
        }
        farthest = Some(hop);
    }
    farthest
}

/// The hops of all `X-Forwarded-For` fields, the last first.
fn x_forwarded_for_hops(headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
    let fields = headers.get_all(FORWARDED_FOR).iter().collect::<Vec<_>>().into_iter().rev();
    fields
        .flat_map(|field| field.as_bytes().rsplit(|byte| *byte == b','))
        .map(|node| address(std::str::from_utf8(node).ok()?))
}

/// The hops of all `Forwarded` fields, the last first. A field that cannot be read is one hop that
/// cannot.
fn forwarded_hops(headers: &HeaderMap) -> impl Iterator<Item = Option<IpAddr>> {
    let fields = headers.get_all(FORWARDED).iter().collect::<Vec<_>>().into_iter().rev();
    fields.flat_map(|field| {
        let text = field.to_str().ok().filter(|text| text.len() <= FIELD_BYTES_MAX);
        let elements = text.and_then(|text| split(text, ','));
        let hops = elements.map(|elements| elements.into_iter().rev().map(hop).collect());
        hops.unwrap_or_else(|| vec![None])
    })
}

/// The address in one element: `for=192.0.2.43;proto=https`.
fn hop(element: &str) -> Option<IpAddr> {
    let mut found = None;
    for pair in split(element, ';')? {
        let (name, value) = pair.split_once('=')?;
        if name.trim().eq_ignore_ascii_case("for") {
            // Named twice, it says nothing.
            found = match found {
                None => Some(value.trim()),
                Some(_) => return None,
            };
        }
    }
    let value = found?;
    let bare = match value.strip_prefix('"') {
        Some(quoted) => quoted.strip_suffix('"')?,
        None => value,
    };
    address(bare)
}

/// Splits at a separator outside quotes; `None` where a quote stays open.
fn split(text: &str, separator: char) -> Option<Vec<&str>> {
    let (mut quoted, mut escaped, mut from) = (false, false, 0);
    let mut parts = Vec::new();
    for (at, character) in text.char_indices() {
        match character {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            _ if character == separator && !quoted => {
                parts.push(text.get(from..at)?);
                from = at + separator.len_utf8();
            }
            _ => {}
        }
    }
    parts.push(text.get(from..)?);
    (!quoted).then_some(parts)
}

/// `192.0.2.43`, `2001:db8::1`, `[2001:db8::1]`, each with or without a port (in brackets where
/// IPv6).
fn address(node: &str) -> Option<IpAddr> {
    let node = node.trim();
    if node.len() > NODE_BYTES_MAX {
        return None;
    }
    let bracketed = || node.strip_prefix('[')?.strip_suffix(']')?.parse().ok().map(IpAddr::V6);
    let with_port = || node.parse::<SocketAddr>().ok().map(|address| address.ip());
    let found = node.parse().ok().or_else(bracketed).or_else(with_port);
    found.map(|address: IpAddr| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Read where the first of the fields is where the proxies name their clients.
    fn seen(peer: &str, sent: &[(&'static str, &str)]) -> String {
        let mut headers = HeaderMap::new();
        for (name, value) in sent {
            headers.append(HeaderName::from_static(name), value.parse().unwrap());
        }
        let trusted: Vec<IpNet> =
            ["10.0.0.0/8", "2001:db8:1::/48"].iter().map(|range| range.parse().unwrap()).collect();
        let standard = sent.first().is_some_and(|(name, _)| *name == "forwarded");
        let field = if standard { ClientField::Forwarded } else { ClientField::ForwardedFor };
        client(peer.parse().unwrap(), &headers, &trusted, field).to_string()
    }

    #[test]
    fn a_stranger_is_who_its_connection_says_whatever_it_sends() {
        for sent in [("x-forwarded-for", "192.0.2.1"), ("forwarded", "for=192.0.2.1")] {
            assert_eq!(seen("203.0.113.9", &[sent]), "203.0.113.9");
        }
        assert_eq!(seen("203.0.113.9", &[]), "203.0.113.9");
        assert_eq!(seen("::ffff:203.0.113.9", &[]), "203.0.113.9");
    }

    #[test]
    fn behind_proxies_it_is_the_last_address_that_none_of_them_has() {
        for (sent, client) in [
            ("192.0.2.1", "192.0.2.1"),
            (" 192.0.2.1 ", "192.0.2.1"),
            ("198.51.100.7, 192.0.2.1", "192.0.2.1"),
            ("198.51.100.7, 192.0.2.1, 10.1.1.1", "192.0.2.1"),
            ("192.0.2.1:4711", "192.0.2.1"),
            ("2001:db8::7", "2001:db8::7"),
            ("[2001:db8::7]:443, [2001:db8:1::5]", "2001:db8::7"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            // Left of the client's own address anybody may have written anything.
            ("nonsense, 192.0.2.1", "192.0.2.1"),
            // Somebody within.
            ("10.2.2.2, 10.1.1.1", "10.2.2.2"),
        ] {
            assert_eq!(seen("10.0.0.1", &[("x-forwarded-for", sent)]), client, "{sent}");
        }
        let two_fields = [("x-forwarded-for", "198.51.100.7"), ("x-forwarded-for", "192.0.2.1")];
        assert_eq!(seen("10.0.0.1", &two_fields), "192.0.2.1");
        assert_eq!(seen("::ffff:10.0.0.1", &[("x-forwarded-for", "192.0.2.1")]), "192.0.2.1");
    }

    #[test]
    fn the_standard_field_is_read_where_the_proxies_write_it() {
        for (sent, client) in [
            ("for=192.0.2.1", "192.0.2.1"),
            ("For=\"[2001:db8::7]:4711\";proto=https;by=10.0.0.1", "2001:db8::7"),
            ("for=198.51.100.7, for=192.0.2.1;host=\"a,b;c\", for=10.1.1.1", "192.0.2.1"),
            ("proto=https; for=192.0.2.1", "192.0.2.1"),
        ] {
            assert_eq!(seen("10.0.0.1", &[("forwarded", sent)]), client, "{sent}");
        }
        // The other field is whatever the client sent.
        let both = [("x-forwarded-for", "198.51.100.7"), ("forwarded", "for=192.0.2.1")];
        assert_eq!(seen("10.0.0.1", &both), "198.51.100.7");
        let open_quote_of_somebody = [("forwarded", "for=\"x"), ("forwarded", "for=192.0.2.1")];
        assert_eq!(seen("10.0.0.1", &open_quote_of_somebody), "192.0.2.1");
    }

    #[test]
    fn what_cannot_be_read_leaves_the_connections_address() {
        let many = vec!["10.1.1.1"; HOPS_MAX + 1].join(", ");
        let long = format!("192.0.2.1{}", " x".repeat(NODE_BYTES_MAX));
        for sent in [
            "",
            "unknown",
            "192.0.2.1, unknown",
            "192.0.2.1,",
            "192.0.2.256",
            "[192.0.2.1]",
            "192.0.2.1, ::1%eth0",
            &many,
            &long,
        ] {
            assert_eq!(seen("10.0.0.1", &[("x-forwarded-for", sent)]), "10.0.0.1", "{sent}");
        }
        let large = format!("for=192.0.2.1;host={}", "x".repeat(FIELD_BYTES_MAX));
        for sent in [
            "",
            "for=unknown",
            "for=_hidden",
            "for=\"192.0.2.1",
            "proto=https",
            "for=192.0.2.1;for=192.0.2.2",
            "192.0.2.1",
            &large,
        ] {
            let both = [("forwarded", sent), ("x-forwarded-for", "192.0.2.1")];
            assert_eq!(seen("10.0.0.1", &both), "10.0.0.1", "{sent}");
        }
    }

    proptest! {
        #[test]
        fn no_field_panics_and_a_trusted_proxys_word_is_the_last(text in "[ -~]{0,200}") {
            seen("10.0.0.1", &[("forwarded", &text)]);
            seen("10.0.0.1", &[("x-forwarded-for", &text)]);
            let appended = format!("{text}, 192.0.2.1");
            prop_assert_eq!(seen("10.0.0.1", &[("x-forwarded-for", &appended)]), "192.0.2.1");
        }
    }
}

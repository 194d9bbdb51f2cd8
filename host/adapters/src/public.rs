//! The address that clients use: in links and documents, in what providers are told to call.
//!
//! It is what the operator has set, or else where the host itself listens, and never what a request
//! says of where it was sent: whoever sends it writes that.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use crate::Adapters;

/// The address, without a slash at its end.
pub fn base(adapters: &Adapters) -> String {
    match &adapters.settings.public_url {
        Some(url) => url.trim_end_matches('/').to_owned(),
        None => {
            let scheme = if adapters.settings.tls { "https" } else { "http" };
            format!("{scheme}://{}", reachable(listens(adapters)))
        }
    }
}

/// The same where links of mails can lead there: what the operator has set, or on this machine
/// alone the address that is listened on.
pub fn base_of_links(adapters: &Adapters) -> Option<String> {
    let leads = adapters.settings.public_url.is_some() || listens(adapters).ip().is_loopback();
    leads.then(|| base(adapters))
}

/// Whether browsers keep what they are given for encrypted connections: this one is, or whoever
/// stands in front of the host speaks TLS with them.
pub fn is_secure(adapters: &Adapters, tls: bool) -> bool {
    let scheme = adapters.settings.public_url.as_deref().and_then(|url| url.split_once("://"));
    tls || scheme.is_some_and(|(scheme, _)| scheme.eq_ignore_ascii_case("https"))
}

fn listens(adapters: &Adapters) -> SocketAddr {
    let own = adapters.gate.get().and_then(|gate| gate.own());
    // Nothing is served, and nothing mailed, before it listens.
    own.unwrap_or(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))
}

/// A host that listens on all addresses of a machine is reached on it by one of them.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(ip) if ip.is_unspecified() => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_listens_everywhere_is_reached_on_its_own_machine() {
        for (listens, reached) in [
            ("0.0.0.0:8080", "127.0.0.1:8080"),
            ("[::]:8080", "[::1]:8080"),
            ("192.0.2.1:80", "192.0.2.1:80"),
        ] {
            assert_eq!(reachable(listens.parse().unwrap()).to_string(), reached);
        }
    }
}

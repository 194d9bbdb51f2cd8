//! The address guard: which addresses a guest's request may be sent to.
//!
//! Knows nothing of HTTP. Refuses everything that is not plainly public: loopback, private,
//! link-local (cloud metadata), shared, multicast and reserved ranges, and the ways to write an
//! IPv4 address inside an IPv6 one. The operator's list lifts a range by name; the host's own
//! listeners stay closed.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use charter_engine::EgressError;
use ipnet::IpNet;

use super::target::{Aim, literal};

/// Resolves once, and answers the first address that may be dialled.
pub(super) async fn resolve(
    aim: &Aim,
    allow: &[IpNet],
    own: &[SocketAddr],
) -> Result<SocketAddr, EgressError> {
    let found: Vec<SocketAddr> = match literal(&aim.host) {
        Some(address) => vec![SocketAddr::new(address, aim.port)],
        None => {
            let found = tokio::net::lookup_host((aim.host.as_str(), aim.port)).await;
            found.map_err(|_| EgressError::Dns)?.collect()
        }
    };
    let mut denied = EgressError::Dns;
    for address in found {
        match check(address, aim, allow, own) {
            Ok(()) => return Ok(address),
            Err(text) => denied = EgressError::Denied(text),
        }
    }
    Err(denied)
}

fn check(
    address: SocketAddr,
    aim: &Aim,
    allow: &[IpNet],
    own: &[SocketAddr],
) -> Result<(), String> {
    let ip = plain(address.ip());
    let is_own = |own: &&SocketAddr| {
        own.port() == address.port()
            && own.port() != 0
            && (own.ip() == ip || (own.ip().is_unspecified() && special(ip).is_some()))
    };
    if own.iter().any(|own| is_own(&own)) {
        return Err(format!("{address} is this host's own address"));
    }
    let allowed = aim.trusted || allow.iter().any(|range| range.contains(&ip));
    if !allowed && let Some(why) = special(address.ip()) {
        return Err(format!(
            "{} resolves to {ip}, {why}; the operator can open it with egress.allow (CHARTER_EGRESS_ALLOW={ip}/{})",
            aim.host,
            if ip.is_ipv4() { 32 } else { 128 }
        ));
    }
    if !aim.bound && !allowed && !matches!(address.port(), 80 | 443) {
        return Err(format!(
            "port {} is not reachable: public addresses are reached at 80 and 443",
            address.port()
        ));
    }
    Ok(())
}

/// An IPv4 address that stands in an IPv6 one, as itself.
fn plain(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(ip, IpAddr::V4),
        IpAddr::V4(_) => ip,
    }
}

/// Why an address is not of the public internet; `None` where it is.
pub(super) fn special(ip: IpAddr) -> Option<&'static str> {
    match ip {
        IpAddr::V4(ip) => special_v4(ip),
        IpAddr::V6(ip) => special_v6(ip),
    }
}

fn special_v4(ip: Ipv4Addr) -> Option<&'static str> {
    let [a, b, c, _] = ip.octets();
    Some(match (a, b, c) {
        (0, ..) => "an address of no host",
        (10, ..) | (172, 16..=31, _) | (192, 168, _) => "a private address",
        (100, 64..=127, _) => "an address of a carrier's own network",
        (127, ..) => "a loopback address",
        (169, 254, _) => "a link-local address, where clouds serve credentials",
        (192, 0, 0)
        | (192, 0, 2)
        | (192, 31, 196)
        | (192, 52, 193)
        | (192, 175, 48)
        | (198, 51, 100)
        | (203, 0, 113) => "a reserved address",
        (192, 88, 99) => "a 6to4 relay",
        (198, 18..=19, _) => "an address for measurements",
        (224..=239, ..) => "a multicast address",
        (240..=255, ..) => "a reserved address",
        _ => return None,
    })
}

fn special_v6(ip: Ipv6Addr) -> Option<&'static str> {
    if let Some(v4) = ip.to_ipv4_mapped() {
        return special_v4(v4);
    }
    let parts = ip.segments();
    Some(match parts {
        [0, 0, 0, 0, 0, 0, 0, 0] => "an address of no host",
        [0, 0, 0, 0, 0, 0, 0, 1] => "a loopback address",
        [0, 0, 0, 0, 0, 0, _, _] => "an IPv4 address in disguise",
        [0, 0, 0, 0, 0xffff, 0, _, _] | [0x64, 0xff9b, ..] => "a translated IPv4 address (NAT64)",
        [0x100, 0, 0, _, ..] => "a discarding address",
        [0x2001, 0, ..] => "a Teredo address",
        [0x2001, 0x1..=0x1ff, ..] | [0x2001, 0xdb8, ..] | [0x3fff, ..] => "a reserved address",
        [0x2002, ..] => "a 6to4 address",
        [first, ..] if first & 0xfe00 == 0xfc00 => "a private address",
        [first, ..] if first & 0xffc0 == 0xfe80 => "a link-local address",
        [first, ..] if first & 0xffc0 == 0xfec0 => "a private address",
        [first, ..] if first & 0xff00 == 0xff00 => "a multicast address",
        // Only 2000::/3 is given out.
        [first, ..] if first & 0xe000 != 0x2000 => "a reserved address",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn aim() -> Aim {
        Aim {
            host: "x".into(),
            port: 443,
            tls: true,
            trusted: false,
            bound: false,
            credential: None,
        }
    }

    #[test]
    fn special_addresses_are_refused_in_every_spelling() {
        for text in [
            "127.0.0.1",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "198.18.0.1",
            "192.0.2.1",
            "192.88.99.1",
            "::1",
            "::",
            "::ffff:127.0.0.1",
            "::127.0.0.1",
            "::ffff:169.254.169.254",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:7f00:1::",
            "2001::1",
            "fc00::1",
            "fd00:ec2::254",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "2001:db8::1",
            "100::1",
            "4000::1",
        ] {
            assert!(special(text.parse().unwrap()).is_some(), "{text}");
        }
        for text in [
            "1.1.1.1",
            "93.184.216.34",
            "172.32.0.1",
            "100.128.0.1",
            "2606:4700::1111",
            "2a00:1450:4001::8a",
        ] {
            assert_eq!(special(text.parse().unwrap()), None, "{text}");
        }
    }

    #[test]
    fn a_denial_says_which_rule_to_add_and_that_rule_works() {
        let address: SocketAddr = "10.1.2.3:443".parse().unwrap();
        let denied = check(address, &aim(), &[], &[]).unwrap_err();
        assert!(denied.contains("CHARTER_EGRESS_ALLOW=10.1.2.3/32"), "{denied}");
        assert!(check(address, &aim(), &["10.1.2.3/32".parse().unwrap()], &[]).is_ok());
    }

    #[test]
    fn the_hosts_own_listener_stays_closed_and_public_ports_are_two() {
        let own = ["127.0.0.1:8080".parse().unwrap(), "0.0.0.0:9090".parse().unwrap()];
        let all = ["0.0.0.0/0".parse().unwrap()];
        for text in ["127.0.0.1:8080", "127.0.0.1:9090", "10.0.0.1:9090"] {
            assert!(check(text.parse().unwrap(), &aim(), &all, &own).is_err(), "{text}");
        }
        assert!(check("1.1.1.1:8443".parse().unwrap(), &aim(), &[], &own).is_err());
        assert!(
            check("1.1.1.1:8443".parse().unwrap(), &Aim { bound: true, ..aim() }, &[], &own)
                .is_ok()
        );
    }

    proptest! {
        #[test]
        fn what_is_special_stays_special_when_mapped_into_ipv6(bits: u32) {
            let v4 = Ipv4Addr::from(bits);
            prop_assert_eq!(special(IpAddr::V4(v4)), special(IpAddr::V6(v4.to_ipv6_mapped())));
            prop_assert!(special(IpAddr::V6(v4.to_ipv6_compatible())).is_some());
        }

        #[test]
        fn nothing_that_the_standard_library_calls_local_is_public(bits: u32) {
            let v4 = Ipv4Addr::from(bits);
            let local = v4.is_private() || v4.is_loopback() || v4.is_link_local() || v4.is_multicast() || v4.is_broadcast()
                || v4.is_documentation() || v4.is_unspecified();
            prop_assert!(!local || special(IpAddr::V4(v4)).is_some());
        }
    }
}

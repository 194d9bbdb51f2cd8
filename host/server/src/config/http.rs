//! The public listener: where it listens, and what it admits of a client.

use std::net::SocketAddr;
use std::path::PathBuf;

use ipnet::IpNet;

use super::source::Section;

/// The share of all bodies' bytes that one organization may hold: one of so many.
pub const BODIES_SHARE: usize = 4;

/// The field in which trusted proxies name their clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientField {
    /// `X-Forwarded-For`.
    ForwardedFor,
    /// `Forwarded` (RFC 7239).
    Forwarded,
}

/// `[http]`
#[derive(Clone, Debug)]
pub struct Http {
    /// The address of the API; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The address that clients use, in links and documents; absent means where the host listens.
    pub public_url: Option<String>,
    /// The proxies that say who the client is.
    pub trusted_proxies: Vec<IpNet>,
    /// The field in which they name their clients.
    pub client_field: ClientField,
    /// Open connections, of which a client address has half of what the others leave.
    pub connections_max: usize,
    /// Bytes of one request's head.
    pub head_bytes_max: usize,
    /// Header fields of one request.
    pub headers_max: usize,
    /// Bytes of one request's body.
    pub body_bytes_max: usize,
    /// Bytes of all requests' bodies that are held at once; one organization may hold a quarter.
    pub bodies_bytes_max: usize,
    /// Time for a request's head to arrive.
    pub head_timeout_ms: u64,
    /// Time for a request's body to arrive.
    pub body_timeout_ms: u64,
    /// Time a connection may idle between requests.
    pub idle_timeout_ms: u64,
    /// Time one call may take where its operation declares none.
    pub deadline_ms: u32,
    /// Time that requests in flight get on shutdown.
    pub drain_ms: u64,
    /// Concurrent streams of one HTTP/2 connection.
    pub http2_streams_max: u32,
}

impl Http {
    pub(super) fn read(mut of: Section<'_>) -> Self {
        let fields =
            [("x-forwarded-for", ClientField::ForwardedFor), ("forwarded", ClientField::Forwarded)];
        let http = Self {
            listen: of.take(
                "listen",
                SocketAddr::from(([127, 0, 0, 1], 8080)),
                "where the API listens; port 0 takes a free port",
            ),
            public_url: of.optional(
                "public_url",
                "the address that clients use, such as https://api.example.com",
            ),
            client_field: of
                .choice(
                    "client_field",
                    &fields,
                    "where the trusted proxies name their clients: x-forwarded-for or forwarded",
                )
                .unwrap_or(ClientField::ForwardedFor),
            trusted_proxies: of.take(
                "trusted_proxies",
                Vec::new(),
                "ranges of the proxies in front, which say whose request it is",
            ),
            connections_max: of.within(
                "connections_max",
                10_000,
                (1, 1_000_000),
                "open connections; one client address has at most half of what the others leave, a trusted proxy as many as it likes",
            ),
            head_bytes_max: of.within(
                "head_bytes_max",
                32 * 1024,
                (8 * 1024, 1024 * 1024),
                "bytes of one request's head",
            ),
            headers_max: of.within("headers_max", 100, (16, 1_000), "header fields of one request"),
            body_bytes_max: of.within(
                "body_bytes_max",
                4 << 20,
                (1024, 1 << 30),
                "bytes of one request's body",
            ),
            bodies_bytes_max: of.within(
                "bodies_bytes_max",
                256 << 20,
                (1 << 20, 1 << 40),
                "bytes of all requests' bodies that are held at once",
            ),
            head_timeout_ms: of.within(
                "head_timeout_ms",
                10_000,
                (10, 600_000),
                "time for a request's head to arrive",
            ),
            body_timeout_ms: of.within(
                "body_timeout_ms",
                30_000,
                (10, 3_600_000),
                "time for a request's body to arrive",
            ),
            idle_timeout_ms: of.within(
                "idle_timeout_ms",
                75_000,
                (10, 3_600_000),
                "time a connection may idle",
            ),
            deadline_ms: of.within(
                "deadline_ms",
                30_000,
                (10, 600_000),
                "time a call may take where its operation declares none",
            ),
            drain_ms: of.within(
                "drain_ms",
                30_000,
                (0, 600_000),
                "time from SIGTERM to the end; calls that still run just before it are cut",
            ),
            http2_streams_max: of.within(
                "http2_streams_max",
                200,
                (1, 10_000),
                "concurrent streams of one HTTP/2 connection",
            ),
        };
        if http.bodies_bytes_max / BODIES_SHARE < http.body_bytes_max {
            of.fault(
                "bodies_bytes_max",
                "must be at least four times body_bytes_max: one organization may hold a quarter of it",
            );
        }
        if let Some(url) = &http.public_url {
            let parsed = url.parse::<::http::Uri>().ok();
            let ok = parsed.is_some_and(|uri| {
                matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some()
            });
            if !ok {
                of.fault(
                    "public_url",
                    "must be an http or https address, such as https://api.example.com",
                );
            }
        }
        http
    }

    /// Whether links of mails can lead here: by the address that clients use, or on this machine
    /// alone.
    pub fn has_base(&self) -> bool {
        self.public_url.is_some() || self.listen.ip().is_loopback()
    }
}

/// `[tls]`
#[derive(Clone, Debug)]
pub struct Tls {
    /// PEM file of the certificate chain, leaf first.
    pub certificate: PathBuf,
    /// PEM file of the private key.
    pub key: PathBuf,
}

impl Tls {
    pub(super) fn read(mut of: Section<'_>) -> Option<Self> {
        let certificate = of.optional(
            "certificate",
            "PEM file of the certificate chain, leaf first; with `key` it switches TLS on",
        );
        let key = of.optional("key", "PEM file of the certificate's private key");
        match (certificate, key) {
            (Some(certificate), Some(key)) => Some(Self { certificate, key }),
            (None, None) => None,
            (Some(_), None) => {
                of.fault("key", "is missing: TLS needs the private key beside the certificate");
                None
            }
            (None, Some(_)) => {
                of.fault(
                    "certificate",
                    "is missing: TLS needs the certificate beside the private key",
                );
                None
            }
        }
    }
}

//! One outbound request of a guest, as the server sends it.
//!
//! Knows the shape only: address guard, credentials and connections are the server's. A guest
//! addresses `https://<binding>.binding/…`, or with the capability `public-web` any public host.

use bytes::Bytes;
use charter_kernel::scope::Scope;
use futures::future::BoxFuture;
use http_body_util::combinators::UnsyncBoxBody;

/// A body that streams either way.
pub type EgressBody = UnsyncBoxBody<Bytes, EgressError>;

/// The server's side of `wasi:http/outgoing-handler`.
pub trait Egress: Send + Sync + 'static {
    /// Sends one request; the answer's body streams.
    fn send(
        &self,
        outbound: Outbound,
    ) -> BoxFuture<'_, Result<http::Response<EgressBody>, EgressError>>;
}

/// One outbound request.
pub struct Outbound {
    /// On whose behalf.
    pub scope: Scope,
    /// The primitive that asks.
    pub primitive: String,
    /// The request's id, for logs.
    pub request_id: String,
    /// The request's destination.
    pub target: Target,
    /// The request as the guest wrote it, its URI absolute.
    pub request: http::Request<EgressBody>,
    /// How long the guest waits for a connection, in milliseconds.
    pub connect_timeout_ms: Option<u64>,
    /// How long it waits for the first byte of the answer.
    pub first_byte_timeout_ms: Option<u64>,
    /// How long it waits between two pieces of the answer's body.
    pub between_bytes_timeout_ms: Option<u64>,
}

/// The destination of an outbound request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The provider bound under this name.
    Binding(String),
    /// Any public host.
    Public,
}

/// Why an outbound request failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EgressError {
    /// Not allowed; the text says which rule to add.
    #[error("{0}")]
    Denied(String),
    /// No provider is bound under that name.
    #[error("no provider is bound as {0}")]
    Unbound(String),
    /// The name does not resolve.
    #[error("the name does not resolve")]
    Dns,
    /// No connection.
    #[error("the connection was refused or lost")]
    Connection,
    /// Too late.
    #[error("the other side took too long")]
    Timeout,
    /// TLS failed.
    #[error("the TLS handshake failed")]
    Tls,
    /// More bytes than allowed.
    #[error("the body exceeds {limit} bytes")]
    TooLarge {
        /// The limit.
        limit: u64,
    },
    /// More connections at once than the tenant may have.
    #[error("too many connections at once")]
    TooMany,
    /// Not HTTP.
    #[error("{0}")]
    Protocol(String),
}

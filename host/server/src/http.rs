//! The listener: accepts connections, bounds them, speaks HTTP/1.1 and HTTP/2, and drains.
//!
//! Knows nothing of routes or credentials: each request goes to the [`Answer`] that it is given.
//! Invariant: every connection has a place of the bounded number, and so has every request that is
//! under way beside another of its connection; no client address takes all of either, and no client
//! can hold one without making progress.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Http;
use crate::metrics::Metrics;
use drain::Drain;
use places::{Place, Places, Underway};

pub mod body;
mod connection;
pub mod drain;
mod forwarded;
mod places;
mod sent;
pub mod tls;
mod watched;

/// Bytes that hyper buffers of a head beyond what the pipeline admits, so that the pipeline's own
/// refusal is the one answered.
const HEAD_SLACK_BYTES: usize = 96 * 1024;
/// The same for the number of header fields.
const HEADERS_SLACK: usize = 400;
/// How often an idle HTTP/2 peer is asked whether it is alive.
const PING_EVERY: Duration = Duration::from_secs(20);
/// How long it may take to say so.
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// Wait after an accept failed for want of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Requests that a listener has under way over HTTP/2 beside one of each connection, long polls and
/// event streams among them. Each takes some 28 KiB before any of its body has come: together 112
/// MiB, of which one client address has half at most.
const STREAMS_BESIDE_MAX: usize = 4_096;

/// The door of a listener, which says which routes it serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    /// All of them.
    Both,
    /// All but the operator's, which have a listener of their own.
    Public,
    /// The operator's, and the open ones.
    Operator,
}

/// The other side of a connection.
#[derive(Clone, Debug)]
pub struct Peer {
    /// Its address.
    pub address: IpAddr,
    /// Whether the connection is encrypted.
    pub tls: bool,
    /// The listener that it came to.
    pub door: Door,
    /// Cuts the connection; absent where a proxy has it for other clients, too.
    pub cut: Option<CancellationToken>,
    /// Whether there is no place for its request beside the others of the connection: it is to be
    /// refused before anything large is made for it.
    pub crowded: bool,
    /// The place of its request over HTTP/2, kept wherever the request is still under way.
    underway: Option<Arc<Underway>>,
}

/// Answers one request of a peer.
pub type Answer = Arc<
    dyn Fn(Peer, http::Request<Incoming>) -> BoxFuture<'static, http::Response<body::Body>>
        + Send
        + Sync,
>;

/// The parts that all connections of a listener share.
#[derive(Clone)]
pub struct Serving {
    /// The bounds of a connection.
    pub limits: Arc<Http>,
    /// The metrics that count connections.
    pub metrics: Metrics,
    /// Canceled once the server begins to drain.
    pub draining: CancellationToken,
    /// Answers each request.
    pub answer: Answer,
}

/// A bound address.
pub struct Listener {
    socket: TcpListener,
    tls: Option<TlsAcceptor>,
    door: Door,
}

impl Listener {
    /// Binds `address`; port 0 takes a free one.
    ///
    /// # Errors
    /// When the address cannot be bound.
    pub async fn bind(
        address: SocketAddr,
        tls: Option<TlsAcceptor>,
        door: Door,
    ) -> io::Result<Self> {
        Ok(Self { socket: TcpListener::bind(address).await?, tls, door })
    }

    /// The listener's own address.
    ///
    /// # Errors
    /// When the socket does not say.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Serves until the server drains; then stops accepting, lets requests in flight finish within the
    /// configured time, and closes what is left.
    pub async fn serve(self, serving: Serving) {
        let limits = serving.limits.clone();
        let builder = Arc::new(builder(&limits));
        let places = Places::new(limits.connections_max, &limits.trusted_proxies);
        let streams = Places::new(STREAMS_BESIDE_MAX, &limits.trusted_proxies);
        let connections = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                () = serving.draining.cancelled() => break,
                accepted = self.accept(&places) => accepted,
            };
            let Some((stream, peer, place)) = accepted else { continue };
            let connection = connection::Connection {
                serving: serving.clone(),
                builder: builder.clone(),
                tls: self.tls.clone(),
                door: self.door,
                streams: streams.clone(),
                peer,
            };
            connections.spawn(async move {
                connection.run(stream).await;
                drop(place);
            });
        }
        drop(self.socket);
        connections.close();
        let within = Drain::of(limits.drain_ms).closed;
        if tokio::time::timeout(within, connections.wait()).await.is_err() {
            tracing::warn!(
                left = connections.len(),
                "the time for draining is over: connections are closed"
            );
        }
    }

    async fn accept(&self, places: &Places) -> Option<(TcpStream, IpAddr, Place)> {
        let free = places.free().await?;
        match self.socket.accept().await {
            Ok((stream, peer)) => {
                let peer = peer.ip();
                let Some(place) = places.give(free, &places.path(peer)) else {
                    tracing::debug!(%peer, "a connection is closed: its address has its share of them");
                    return None;
                };
                // Answers are written whole: waiting for more to send would only delay them.
                let _ = stream.set_nodelay(true);
                Some((stream, peer, place))
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                None
            }
        }
    }
}

/// hyper's settings. Its own limits stand behind the pipeline's, which answer with the error
/// envelope.
fn builder(limits: &Http) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(Duration::from_millis(
            limits.idle_timeout_ms.max(limits.head_timeout_ms),
        ))
        .max_headers(limits.headers_max + HEADERS_SLACK)
        .max_buf_size(limits.head_bytes_max + HEAD_SLACK_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.http2_streams_max)
        .max_header_list_size(
            u32::try_from(limits.head_bytes_max + HEAD_SLACK_BYTES).unwrap_or(u32::MAX),
        )
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}

/// The stream as hyper wants it.
pub(crate) type Io<T> = TokioIo<T>;

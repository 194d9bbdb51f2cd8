//! One connection from handshake to close: its requests are answered, its progress is watched.

use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioExecutor;
use hyper_util::server::conn::auto;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

use super::places::{Places, Requests};
use super::sent::Sent;
use super::watched::{Patience, Progress, WatchAction, Watched};
use super::{Door, Io, Peer, Serving, forwarded};

/// How often progress is looked at: twice within the shortest patience, between these.
const WATCH_EVERY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// One connection, and what it needs to be served.
pub(super) struct Connection {
    pub(super) serving: Serving,
    pub(super) builder: Arc<auto::Builder<TokioExecutor>>,
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) door: Door,
    pub(super) streams: Places,
    pub(super) peer: IpAddr,
}

impl Connection {
    /// Serves the connection to its end.
    pub(super) async fn run(self, stream: TcpStream) {
        let _open = self.serving.metrics.connection();
        let Some(tls) = self.tls.clone() else { return self.serve(stream, false).await };
        let handshake = tokio::time::timeout(
            Duration::from_millis(self.serving.limits.head_timeout_ms),
            tls.accept(stream),
        );
        match handshake.await {
            Ok(Ok(stream)) => self.serve(stream, true).await,
            Ok(Err(error)) => tracing::debug!(%error, "the TLS handshake failed"),
            Err(_) => tracing::debug!("the TLS handshake took too long"),
        }
    }

    async fn serve<T: AsyncRead + AsyncWrite + Send + Unpin + 'static>(self, stream: T, tls: bool) {
        let limits = &self.serving.limits;
        let patience = Patience {
            head: Duration::from_millis(limits.head_timeout_ms),
            idle: Duration::from_millis(limits.idle_timeout_ms),
            write: Duration::from_millis(limits.body_timeout_ms),
        };
        let watch_every = (patience.head.min(patience.idle).min(patience.write) / 2)
            .clamp(WATCH_EVERY.0, WATCH_EVERY.1);
        let progress = Arc::new(Progress::new());
        let http2 = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let (cut, is_proxy) = (
            CancellationToken::new(),
            forwarded::is_trusted(self.peer.to_canonical(), &limits.trusted_proxies),
        );
        let requests = Requests::new(self.streams.clone(), self.peer);
        let service = service_fn(|request: http::Request<Incoming>| {
            let in_flight = progress.request();
            let is_http2 = request.version() == http::Version::HTTP_2;
            if is_http2 {
                http2.store(true, std::sync::atomic::Ordering::Relaxed);
            }
            let is_shared = is_proxy && is_http2;
            let own_cut = (!is_shared).then(|| cut.clone());
            let peer = self.sender(&request, &requests, tls, own_cut.clone());
            let refusal = peer.crowded.then(|| requests.refuse());
            if requests.has_unread_refusals() {
                own_cut.iter().for_each(CancellationToken::cancel);
            }
            // One of a proxy's clients that does not read is no fault of the others.
            let watched = (is_http2 && !is_shared).then(|| progress.clone());
            let (answer, underway) = (self.serving.answer.clone(), peer.underway.clone());
            async move {
                // The answer begins here: a stream that waits for its first turn has nothing large.
                let answer = answer(peer, request).await;
                drop(in_flight);
                Ok::<_, Infallible>(
                    answer.map(|body| Sent::new(body, watched, (underway, refusal))),
                )
            }
        });
        let connection =
            self.builder.serve_connection(Io::new(Watched::new(stream, progress.clone())), service);
        tokio::pin!(connection);
        let mut leaving = false;
        loop {
            let watch = tokio::time::sleep(watch_every);
            tokio::select! {
                ended = connection.as_mut() => {
                    if let Err(error) = ended {
                        tracing::debug!(error, "a connection broke");
                    }
                    return;
                }
                () = cut.cancelled() => return,
                () = self.serving.draining.cancelled(), if !leaving => {
                    leaving = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = watch => match progress.action(patience, http2.load(std::sync::atomic::Ordering::Relaxed)) {
                    WatchAction::Fine => {}
                    WatchAction::Cut => return,
                    WatchAction::Retire => {
                        leaving = true;
                        connection.as_mut().graceful_shutdown();
                    }
                },
            }
        }
    }

    /// The sender of a request, with the request's place. Each request of a proxy's connection may
    /// be another client's.
    fn sender(
        &self,
        request: &http::Request<Incoming>,
        requests: &Requests,
        tls: bool,
        cut: Option<CancellationToken>,
    ) -> Peer {
        let limits = &self.serving.limits;
        let address = forwarded::client(
            self.peer,
            request.headers(),
            &limits.trusted_proxies,
            limits.client_field,
        );
        // Over HTTP/1 the next request of a connection waits for the answer of the one before.
        let is_http2 = request.version() == http::Version::HTTP_2;
        let underway = if is_http2 { requests.begin().map(Arc::new) } else { None };
        let crowded = is_http2 && underway.is_none();
        Peer { address, tls, door: self.door, cut, crowded, underway }
    }
}

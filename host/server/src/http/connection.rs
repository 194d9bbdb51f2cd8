//! One connection from handshake to close: its requests go to the pipeline, its progress is
//! watched.

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

use super::watched::{Patience, Progress, Verdict, Watched};
use super::{Door, Io, forwarded};
use crate::app::App;
use crate::pipeline::{self, Peer};

/// How often progress is looked at: twice within the shortest patience, between these.
const WATCH_EVERY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// What a connection needs to be served.
pub(super) struct Serving {
    pub(super) app: Arc<App>,
    pub(super) builder: Arc<auto::Builder<TokioExecutor>>,
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) door: Door,
    pub(super) peer: IpAddr,
}

impl Serving {
    /// Serves the connection to its end.
    pub(super) async fn run(self, stream: TcpStream) {
        let _open = self.app.metrics.connection();
        let Some(tls) = self.tls.clone() else { return self.serve(stream, false).await };
        let handshake = tokio::time::timeout(
            Duration::from_millis(self.app.config.http.head_timeout_ms),
            tls.accept(stream),
        );
        match handshake.await {
            Ok(Ok(stream)) => self.serve(stream, true).await,
            Ok(Err(error)) => tracing::debug!(%error, "the TLS handshake failed"),
            Err(_) => tracing::debug!("the TLS handshake took too long"),
        }
    }

    async fn serve<T: AsyncRead + AsyncWrite + Send + Unpin + 'static>(self, stream: T, tls: bool) {
        let limits = &self.app.config.http;
        let patience = Patience {
            head: Duration::from_millis(limits.head_timeout_ms),
            idle: Duration::from_millis(limits.idle_timeout_ms),
            write: Duration::from_millis(limits.body_timeout_ms),
        };
        let watch_every = (patience.head.min(patience.idle).min(patience.write) / 2)
            .clamp(WATCH_EVERY.0, WATCH_EVERY.1);
        let progress = Arc::new(Progress::new());
        let http2 = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let service = service_fn(|request: http::Request<Incoming>| {
            let in_flight = progress.request();
            if request.version() == http::Version::HTTP_2 {
                http2.store(true, std::sync::atomic::Ordering::Relaxed);
            }
            let app = self.app.clone();
            // Each request of a proxy's connection may be another client's.
            let address = forwarded::client(
                self.peer,
                request.headers(),
                &limits.trusted_proxies,
                limits.client_field,
            );
            let peer = Peer { address, tls, door: self.door };
            async move {
                let answer = pipeline::handle(app, peer, request).await;
                drop(in_flight);
                Ok::<_, Infallible>(answer)
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
                () = self.app.draining.cancelled(), if !leaving => {
                    leaving = true;
                    connection.as_mut().graceful_shutdown();
                }
                () = watch => match progress.verdict(patience, http2.load(std::sync::atomic::Ordering::Relaxed)) {
                    Verdict::Fine => {}
                    Verdict::Cut => return,
                    Verdict::Retire => {
                        leaving = true;
                        connection.as_mut().graceful_shutdown();
                    }
                },
            }
        }
    }
}

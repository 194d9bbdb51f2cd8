//! One connection for one exchange: TCP to the checked address, TLS for the name, HTTP/1.1 or
//! HTTP/2 as they agree.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use charter_engine::{EgressBody, EgressError};
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio_rustls::TlsConnector;

use super::target::Aim;
use crate::metered::{Allowance, meter};

/// Bytes of an answer's head.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Headers of an answer.
const HEADERS_MAX: usize = 100;

/// Interim answers (1xx) ahead of an answer. A hostile endpoint sends them for as long as anybody
/// listens; an honest one sends one or two.
const INTERIM_MAX: u32 = 16;
/// Bytes that may come over HTTP/2 ahead of an answer's head, interim answers and all.
const AHEAD_BYTES_MAX: usize = 4 << 20;

/// A connection; dropping it closes it.
pub(super) struct Wire {
    sender: Sender,
    task: AbortHandle,
}

enum Sender {
    One(http1::SendRequest<EgressBody>),
    Two(http2::SendRequest<EgressBody>, Allowance),
}

impl Drop for Wire {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// TLS that trusts the public certificate authorities.
pub(super) fn tls() -> TlsConnector {
    let mut config =
        trusting(rustls::RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.into() });
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    TlsConnector::from(Arc::new(config))
}

/// The same for another protocol than HTTP, with these authorities beside the public ones.
///
/// # Errors
/// When one of them is no certificate.
pub fn client_config(
    authorities: &[CertificateDer<'static>],
) -> Result<rustls::ClientConfig, rustls::Error> {
    let mut roots = rustls::RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.into() };
    for authority in authorities {
        roots.add(authority.clone())?;
    }
    Ok(trusting(roots))
}

fn trusting(roots: rustls::RootCertStore) -> rustls::ClientConfig {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = match rustls::ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
    {
        Ok(builder) => builder,
        // Unreachable with this provider; TLS 1.3 alone then.
        Err(_) => rustls::ClientConfig::builder_with_protocol_versions(&[&rustls::version::TLS13]),
    };
    builder.with_root_certificates(roots).with_no_client_auth()
}

/// Connects to the address that was checked.
pub(super) async fn dial(
    tls: &TlsConnector,
    aim: &Aim,
    address: SocketAddr,
) -> Result<Wire, EgressError> {
    let stream = TcpStream::connect(address).await.map_err(|_| EgressError::Connection)?;
    let _ = stream.set_nodelay(true);
    if !aim.tls {
        return connect_http1(stream).await;
    }
    let name = aim.host.trim_start_matches('[').trim_end_matches(']').to_owned();
    let name = ServerName::try_from(name).map_err(|_| EgressError::Tls)?;
    let stream = tls.connect(name, stream).await.map_err(|error| {
        tracing::info!(%error, host = aim.host, "a TLS handshake failed");
        EgressError::Tls
    })?;
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        connect_http2(stream).await
    } else {
        connect_http1(stream).await
    }
}

async fn connect_http1(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<Wire, EgressError> {
    let mut builder = http1::Builder::new();
    builder.max_buf_size(HEAD_BYTES_MAX).max_headers(HEADERS_MAX);
    let (sender, connection) =
        builder.handshake(TokioIo::new(stream)).await.map_err(|error| failure(&error))?;
    let task = tokio::spawn(async move {
        // The request or the body says what went wrong.
        let _ = connection.await;
    });
    Ok(Wire { sender: Sender::One(sender), task: task.abort_handle() })
}

fn too_much() -> std::io::Error {
    std::io::Error::other("more came than was allowed")
}

async fn connect_http2(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<Wire, EgressError> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.max_header_list_size(HEAD_BYTES_MAX as u32);
    let (stream, ahead) = meter(stream, AHEAD_BYTES_MAX, too_much);
    let (sender, connection) =
        builder.handshake(TokioIo::new(stream)).await.map_err(|error| failure(&error))?;
    let task = tokio::spawn(async move {
        let _ = connection.await;
    });
    Ok(Wire { sender: Sender::Two(sender, ahead), task: task.abort_handle() })
}

impl Wire {
    /// Sends the request and waits for the answer's head.
    pub(super) async fn send(
        &mut self,
        mut request: http::Request<EgressBody>,
    ) -> Result<http::Response<Incoming>, EgressError> {
        let response = match &mut self.sender {
            Sender::One(sender) => {
                let path =
                    request.uri().path_and_query().map_or("/", |path| path.as_str()).to_owned();
                *request.uri_mut() = path
                    .parse()
                    .map_err(|_| EgressError::Protocol("the path is malformed".into()))?;
                let too_many = count_interim(&mut request);
                tokio::select! {
                    response = sender.send_request(request) => response,
                    () = too_many.notified() => return Err(chatty()),
                }
            }
            Sender::Two(sender, ahead) => {
                request.headers_mut().remove(http::header::HOST);
                *request.version_mut() = http::Version::HTTP_2;
                let response = sender.send_request(request).await;
                ahead.lift();
                response
            }
        };
        response.map_err(|error| failure(&error))
    }
}

/// Notified once more interim answers came than are listened to.
fn count_interim(request: &mut http::Request<EgressBody>) -> Arc<Notify> {
    let too_many = Arc::new(Notify::new());
    let (told, count) = (too_many.clone(), AtomicU32::new(0));
    hyper::ext::on_informational(request, move |_| {
        if count.fetch_add(1, Relaxed) >= INTERIM_MAX {
            told.notify_one();
        }
    });
    too_many
}

fn chatty() -> EgressError {
    EgressError::Protocol("the other side sends interim answers without end".into())
}

/// The guest's error for a failure of the protocol. A limit that its own body met travels inside.
pub(super) fn failure(error: &hyper::Error) -> EgressError {
    if let Some(own) =
        std::error::Error::source(error).and_then(|source| source.downcast_ref::<EgressError>())
    {
        return own.clone();
    }
    if error.is_parse() || error.is_parse_too_large() {
        return EgressError::Protocol(
            "the other side does not speak HTTP, or sends too large a head".into(),
        );
    }
    EgressError::Connection
}

#[cfg(test)]
mod tests;

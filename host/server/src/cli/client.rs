//! One HTTP request of the command line to a running host.

use std::sync::Arc;

use anyhow::Context as _;
use bytes::Bytes;
use charter_adapters::providers;
use clap::Args;
use http::{HeaderMap, HeaderName, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;

/// Bytes of an answer.
const ANSWER_BYTES_MAX: usize = 64 << 20;

/// The host that is spoken to.
#[derive(Args, Clone)]
pub(super) struct Target {
    /// The host's address
    #[arg(long, value_name = "URL", env = "CHARTER_URL", default_value = "http://127.0.0.1:8080")]
    url: String,
}

/// The request to send.
pub(super) struct Sent<'a> {
    pub(super) method: Method,
    pub(super) path: String,
    pub(super) bearer: &'a str,
    pub(super) headers: Vec<(HeaderName, String)>,
    pub(super) body: Bytes,
}

impl<'a> Sent<'a> {
    pub(super) fn new(method: Method, path: impl Into<String>, bearer: &'a str) -> Self {
        Self { method, path: path.into(), bearer, headers: Vec::new(), body: Bytes::new() }
    }

    /// The same with this header.
    pub(super) fn header(mut self, name: HeaderName, value: impl Into<String>) -> Self {
        self.headers.push((name, value.into()));
        self
    }

    pub(super) fn json(mut self, body: &Value) -> Self {
        self.headers.push((header::CONTENT_TYPE, "application/json".into()));
        self.body = body.to_string().into();
        self
    }
}

impl Target {
    /// The host at this address.
    pub(super) fn at(url: String) -> Self {
        Self { url }
    }

    /// The address, without what follows its authority.
    pub(super) fn origin(&self) -> &str {
        let rest = self.url.find("://").map_or(0, |at| at + 3);
        self.url[rest..].find('/').map_or(self.url.as_str(), |at| &self.url[..rest + at])
    }

    /// Sends it; an answer that is no success is an error in the host's own words.
    pub(super) async fn send(&self, sent: Sent<'_>) -> anyhow::Result<Value> {
        Ok(self.answer(sent).await?.1)
    }

    /// The same, with the answer's headers.
    pub(super) async fn answer(&self, sent: Sent<'_>) -> anyhow::Result<(HeaderMap, Value)> {
        let uri: Uri = self.url.parse().with_context(|| format!("{:?} is no address", self.url))?;
        let host = uri.host().context("the address names no host")?.to_owned();
        let tls = uri.scheme_str() == Some("https");
        let standard = if tls { 443 } else { 80 };
        let port = uri.authority().and_then(|authority| providers::port(authority, standard));
        let port = port.context("the address names a port that does not exist")?;
        let stream = TcpStream::connect((host.trim_matches(['[', ']']), port)).await;
        let stream = stream
            .with_context(|| format!("nothing answers at {} (--url, CHARTER_URL)", self.url))?;
        let mut request = Request::builder().method(sent.method).uri(&sent.path).header(
            header::HOST,
            uri.authority().map_or(host.as_str(), http::uri::Authority::as_str),
        );
        if !sent.bearer.is_empty() {
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", sent.bearer));
        }
        for (name, value) in sent.headers {
            request = request.header(name, value);
        }
        let request =
            request.body(Full::new(sent.body)).context("the request cannot be written")?;
        let (status, headers, body) = if tls {
            let name = rustls::pki_types::ServerName::try_from(host)
                .context("the address names no host")?;
            let stream =
                connector().connect(name, stream).await.context("the TLS handshake failed")?;
            exchange(TokioIo::new(stream), request).await?
        } else {
            exchange(TokioIo::new(stream), request).await?
        };
        let answer: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
        if status.is_success() {
            Ok((headers, answer))
        } else {
            Err(Refused { status, answer }.into())
        }
    }
}

fn connector() -> tokio_rustls::TlsConnector {
    let roots: rustls::RootCertStore = webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect();
    let config =
        rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    tokio_rustls::TlsConnector::from(Arc::new(config))
}

async fn exchange<S>(
    stream: S,
    request: Request<Full<Bytes>>,
) -> anyhow::Result<(StatusCode, HeaderMap, Bytes)>
where
    S: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
{
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    tokio::spawn(async move {
        // How it ends shows in the answer.
        let _ = connection.await;
    });
    let answer = sender.send_request(request).await.context("the host hung up")?;
    let (status, headers) = (answer.status(), answer.headers().clone());
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map_err(|error| anyhow::anyhow!("the answer broke off: {error}"))?;
    Ok((status, headers, body.to_bytes()))
}

/// A refusal of the host's. Shown in its own words, every fault on a line of its own.
#[derive(Debug)]
pub(super) struct Refused {
    status: StatusCode,
    answer: Value,
}

impl Refused {
    /// Whether what was addressed is not there.
    pub(super) fn is_absent(&self) -> bool {
        self.status == StatusCode::NOT_FOUND
    }

    /// Whether one of the faults is of this member.
    pub(super) fn names(&self, path: &str) -> bool {
        self.faults().any(|(at, _)| at == path)
    }

    fn faults(&self) -> impl Iterator<Item = (&str, &str)> {
        let faults = self.answer["error"]["details"]["faults"].as_array();
        faults.into_iter().flatten().map(|fault| {
            (
                fault["path"].as_str().unwrap_or_default(),
                fault["message"].as_str().unwrap_or_default(),
            )
        })
    }
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let text = |name: &str| self.answer["error"][name].as_str();
        write!(f, "{} ({})", text("message").unwrap_or("the host refused"), self.status)?;
        for (path, message) in self.faults() {
            write!(f, "\n  {path}{}{message}", if path.is_empty() { "" } else { ": " })?;
        }
        if let Some(hint) = text("hint") {
            write!(f, "\n  hint: {hint}")?;
        }
        text("request_id").map_or(Ok(()), |id| write!(f, "\n  request {id}"))
    }
}

impl std::error::Error for Refused {}

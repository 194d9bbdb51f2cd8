//! The yardstick: a bare hyper server that answers fixed bytes, as fast as hyper goes.

use std::convert::Infallible;
use std::net::SocketAddr;

use anyhow::Result;
use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

/// A server on threads of its own, which end with it.
pub struct Bare {
    /// `127.0.0.1:port`.
    pub address: String,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Bare {
    /// Answers `body` to every request.
    pub fn start(body: Bytes) -> Result<Self> {
        let listener = std::net::TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?.to_string();
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        runtime.spawn(async move {
            if let Err(error) = serve(listener, body).await {
                eprintln!("the bare server has ended: {error:#}");
            }
        });
        Ok(Self { address, runtime: Some(runtime) })
    }
}

impl Drop for Bare {
    fn drop(&mut self) {
        // It is dropped by a task of another runtime, which must not wait for this one's threads.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

async fn serve(listener: std::net::TcpListener, body: Bytes) -> Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        let body = body.clone();
        tokio::spawn(async move {
            let service = service_fn(move |_| {
                let body = body.clone();
                async move {
                    let answer = http::Response::builder()
                        .header("content-type", "application/json")
                        .body(Full::new(body));
                    Ok::<_, Infallible>(answer.unwrap_or_default())
                }
            });
            // A client that hangs up is how each run ends.
            drop(
                hyper::server::conn::http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await,
            );
        });
    }
}

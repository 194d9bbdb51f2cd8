//! The yardstick: a bare hyper server that answers fixed bytes, as fast as hyper goes.

use std::convert::Infallible;

use anyhow::Result;
use bytes::Bytes;
use http_body_util::Full;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

/// Serves `body` for every request until the process ends; the address is the first line printed.
pub async fn serve(body: Bytes) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("http://{}", listener.local_addr()?);
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

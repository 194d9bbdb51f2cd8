//! The way out against a provider of our own: what it gets, and what of its answer comes back.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bytes::Bytes;
use charter_engine::{EgressError, Outbound, Target};
use charter_kernel::scope::Actor;
use charter_kernel::time::{Clock, Instant};
use charter_store::{Store, StoreConfig};
use charter_tenancy::place;
use charter_tenancy::secret::Secret;
use http_body_util::{BodyExt, Empty};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::settings::Provider;

struct Still;

impl Clock for Still {
    fn now(&self) -> Instant {
        Instant(1_700_000_000_000)
    }
}

/// A provider that answers each request with this head and, behind it, what it was sent.
async fn provider(head: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut got = vec![0; 16 << 10];
                let length = stream.read(&mut got).await.unwrap_or(0);
                let _ = stream
                    .write_all(format!("HTTP/1.1 {head}\r\nconnection: close\r\n\r\n").as_bytes())
                    .await;
                // In small pieces, so that what must be masked spans several.
                for piece in got[..length].chunks(7) {
                    let _ = stream.write_all(piece).await;
                    let _ = stream.flush().await;
                }
            });
        }
    });
    address
}

async fn gate(name: &str, address: SocketAddr, bytes_max: u64) -> (Gate, PathBuf) {
    gate_beside(name, address, bytes_max, Vec::new()).await
}

/// A way out of a host that listens at `own`.
async fn gate_beside(
    name: &str,
    address: SocketAddr,
    bytes_max: u64,
    own: Vec<SocketAddr>,
) -> (Gate, PathBuf) {
    let folder = std::env::temp_dir().join(format!("charter-egress-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    let store = Store::open(StoreConfig::new(&folder, Arc::new(Still))).await.expect("a store");
    let bound = Provider {
        kind: "http".into(),
        url: format!("http://{address}/base"),
        credential: Some(Secret::new("s3cret-token".into())),
        webhook_secret: None,
        webhook_secret_previous: None,
        options: serde_json::json!({}),
    };
    let providers = Providers::open(store, &BTreeMap::from([("engine".to_owned(), bound)]))
        .await
        .expect("bindings");
    let config = settings::Egress {
        allow: Vec::new(),
        connect_timeout_ms: 2_000,
        timeout_ms: 5_000,
        response_bytes_max: bytes_max,
        tenant_connections_max: 1,
    };
    (Gate::new(config, providers, own), folder)
}

fn outbound(target: Target, address: &str) -> Outbound {
    let mut request =
        http::Request::new(Empty::<Bytes>::new().map_err(|never| match never {}).boxed_unsync());
    *request.uri_mut() = address.parse().expect("an address");
    Outbound {
        scope: place::of_deployment(Actor::anonymous()),
        primitive: "probe".into(),
        request_id: "r".into(),
        target,
        request,
        connect_timeout_ms: None,
        first_byte_timeout_ms: None,
        between_bytes_timeout_ms: None,
    }
}

fn to_binding() -> Outbound {
    outbound(Target::Binding("engine".into()), "https://engine.binding/find?q=a")
}

#[tokio::test]
async fn a_provider_gets_the_credential_and_its_echo_is_masked() {
    let address = provider("200 OK\r\nx-echo: s3cret-token").await;
    let (gate, folder) = gate("masked", address, 1 << 20).await;
    let response = gate.send(to_binding()).await.expect("an answer");
    assert_eq!(response.headers()["x-echo"], "************");
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    let text = String::from_utf8_lossy(&body);
    assert!(text.starts_with("GET /base/find?q=a HTTP/1.1\r\n"), "{text}");
    assert!(text.contains("authorization: Bearer ************\r\n"), "{text}");
    let _ = std::fs::remove_dir_all(folder);
}

#[tokio::test]
async fn a_redirect_is_handed_to_the_guest() {
    let address = provider("302 Found\r\nlocation: http://169.254.169.254/").await;
    let (gate, folder) = gate("redirect", address, 1 << 20).await;
    let response = gate.send(to_binding()).await.expect("an answer");
    assert_eq!(response.status(), 302);
    let followed = gate.send(outbound(Target::Public, "http://169.254.169.254/")).await;
    drop(response);
    assert!(
        matches!(followed, Err(EgressError::TooMany)),
        "the first answer still holds the only place"
    );
    let denied = gate.send(outbound(Target::Public, "http://169.254.169.254/")).await;
    assert!(
        matches!(denied, Err(EgressError::Denied(text)) if text.contains("CHARTER_EGRESS_ALLOW"))
    );
    let _ = std::fs::remove_dir_all(folder);
}

#[tokio::test]
async fn an_answer_that_is_too_large_ends() {
    let address = provider("200 OK").await;
    let (gate, folder) = gate("large", address, 20).await;
    let response = gate.send(to_binding()).await.expect("an answer");
    let read = response.into_body().collect().await;
    assert_eq!(read.err(), Some(EgressError::TooLarge { limit: 20 }));
    let unbound =
        gate.send(outbound(Target::Binding("other".into()), "https://other.binding/")).await;
    assert_eq!(unbound.err(), Some(EgressError::Unbound("other".into())));
    let _ = std::fs::remove_dir_all(folder);
}

/// A provider that answers at once and then echoes what it is sent, piece by piece, until the other
/// side ends.
async fn echo() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let Ok((mut stream, _)) = listener.accept().await else { return };
        let (mut got, mut piece) = (Vec::new(), [0; 4096]);
        while !got.windows(4).any(|end| end == b"\r\n\r\n") {
            match stream.read(&mut piece).await {
                Ok(length) if length > 0 => got.extend_from_slice(&piece[..length]),
                _ => return,
            }
        }
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await;
        let head = got.windows(4).position(|end| end == b"\r\n\r\n").map_or(got.len(), |at| at + 4);
        let mut sent = got.split_off(head);
        loop {
            let ends = sent.ends_with(b"0\r\n\r\n");
            let plain: Vec<u8> = sent.iter().copied().filter(u8::is_ascii_lowercase).collect();
            if !plain.is_empty() {
                let _ = stream.write_all(format!("{:x}\r\n", plain.len()).as_bytes()).await;
                let _ = stream.write_all(&[plain.as_slice(), b"\r\n"].concat()).await;
            }
            if ends {
                let _ = stream.write_all(b"0\r\n\r\n").await;
                return;
            }
            match stream.read(&mut piece).await {
                Ok(length) if length > 0 => sent = piece[..length].to_vec(),
                _ => return,
            }
        }
    });
    address
}

/// A body whose pieces the test sends one by one.
fn pieces() -> (tokio::sync::mpsc::Sender<Bytes>, EgressBody) {
    let (sender, pieces) = tokio::sync::mpsc::channel::<Bytes>(1);
    let next = |mut pieces: tokio::sync::mpsc::Receiver<Bytes>| async move {
        let piece = pieces.recv().await?;
        Some((Ok::<_, EgressError>(http_body::Frame::data(piece)), pieces))
    };
    (
        sender,
        http_body_util::StreamBody::new(Box::pin(futures::stream::unfold(pieces, next)))
            .boxed_unsync(),
    )
}

async fn piece(body: &mut EgressBody) -> Option<Bytes> {
    let frame = tokio::time::timeout(Duration::from_secs(10), body.frame())
        .await
        .expect("a piece in time")?;
    Some(frame.expect("no fault").into_data().expect("no trailers"))
}

#[tokio::test]
async fn both_bodies_stream_at_once() {
    let address = echo().await;
    let (gate, folder) = gate("both", address, 1 << 20).await;
    let (sender, body) = pieces();
    let mut asked = to_binding();
    *asked.request.method_mut() = http::Method::POST;
    *asked.request.body_mut() = body;
    let response = gate.send(asked).await.expect("an answer before the request's end");
    let mut answer = response.into_body();
    // Nothing can be masked that has not come: with a credential the end of what came is held back.
    let held = "s3cret-token".len() - 1;
    let mut got = Vec::new();
    for text in ["one".repeat(8), "two".repeat(8)] {
        sender.send(text.clone().into()).await.expect("the body is read");
        let before = got.len();
        while got.len() < before + text.len() - held {
            got.extend_from_slice(
                &piece(&mut answer).await.expect("an echo while the request goes on"),
            );
        }
    }
    drop(sender);
    while let Some(rest) = piece(&mut answer).await {
        got.extend_from_slice(&rest);
    }
    assert_eq!(String::from_utf8_lossy(&got), format!("{}{}", "one".repeat(8), "two".repeat(8)));
    let _ = std::fs::remove_dir_all(folder);
}

#[tokio::test]
async fn a_request_that_is_too_large_ends() {
    let address = echo().await;
    let (gate, folder) = gate("large-request", address, 20).await;
    let mut asked = to_binding();
    *asked.request.method_mut() = http::Method::POST;
    *asked.request.body_mut() = http_body_util::Full::new(Bytes::from(vec![b'A'; 21]))
        .map_err(|never| match never {})
        .boxed_unsync();
    let ended = match gate.send(asked).await {
        Err(error) => error,
        Ok(response) => {
            response.into_body().collect().await.expect_err("the body does not end well")
        }
    };
    assert!(
        matches!(ended, EgressError::TooLarge { limit: 20 } | EgressError::Connection),
        "{ended:?}"
    );
    let _ = std::fs::remove_dir_all(folder);
}

#[tokio::test]
async fn a_provider_that_stalls_is_given_up() {
    // Takes connections and never answers.
    let silent = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let (gate, folder) = gate("silent", silent.local_addr().expect("an address"), 1 << 20).await;
    let asked = Outbound { first_byte_timeout_ms: Some(50), ..to_binding() };
    assert_eq!(gate.send(asked).await.err(), Some(EgressError::Timeout));
    let _ = std::fs::remove_dir_all(folder);
    // Answers a head and stalls in the body.
    let address = echo().await;
    let (gate, folder) = self::gate("stalled", address, 1 << 20).await;
    let (_sender, body) = pieces();
    let mut asked = Outbound { between_bytes_timeout_ms: Some(50), ..to_binding() };
    *asked.request.method_mut() = http::Method::POST;
    *asked.request.body_mut() = body;
    let response = gate.send(asked).await.expect("a head");
    assert_eq!(response.into_body().collect().await.err(), Some(EgressError::Timeout));
    let _ = std::fs::remove_dir_all(folder);
}

#[tokio::test]
async fn nobody_reaches_the_host_itself_and_no_name_leads_inwards() {
    let address = provider("200 OK").await;
    let (gate, folder) = gate_beside("own", address, 1 << 20, vec![address]).await;
    let own = gate.send(to_binding()).await.err();
    assert!(
        matches!(&own, Some(EgressError::Denied(text)) if text.contains("own address")),
        "{own:?}"
    );
    for inward in [
        "http://localhost/",
        "http://127.0.0.1/",
        "http://[::1]/",
        "http://0x7f000001/",
        "http://[::ffff:127.0.0.1]/",
    ] {
        let denied = gate.send(outbound(Target::Public, inward)).await.err();
        assert!(
            matches!(denied, Some(EgressError::Denied(_) | EgressError::Dns)),
            "{inward}: {denied:?}"
        );
    }
    let _ = std::fs::remove_dir_all(folder);
}

#[tokio::test]
async fn interim_answers_are_few_or_the_exchange_is_over() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let chatter = tokio::spawn(async move {
        let (mut first, _) = listener.accept().await.expect("a client");
        let _ = first.read(&mut [0; 4096]).await;
        let few = "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n".repeat(3);
        let answer = format!("{few}HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n");
        first.write_all(answer.as_bytes()).await.expect("somebody listens");
        let (mut second, _) = listener.accept().await.expect("a client");
        let _ = second.read(&mut [0; 4096]).await;
        let mut written = 0;
        while second.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.is_ok() {
            written += 25;
        }
        written
    });
    let (gate, folder) = gate("interim", address, 1 << 20).await;
    assert_eq!(gate.send(to_binding()).await.expect("an answer").status(), 204);
    let refused = gate.send(to_binding()).await.expect_err("no answer ever comes");
    assert!(matches!(&refused, EgressError::Protocol(why) if why.contains("interim")), "{refused}");
    let written = chatter.await.expect("it ends once nobody listens");
    assert!(written < 16 << 20, "{written} bytes were listened to");
    let _ = std::fs::remove_dir_all(folder);
}

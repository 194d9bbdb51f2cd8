//! The way out against a provider of our own: what it gets, and what of its answer comes back.

use std::collections::BTreeMap;
use std::path::PathBuf;

use bytes::Bytes;
use charter_engine::{EgressError, Outbound, Target};
use charter_kernel::scope::{Actor, Proof};
use charter_kernel::time::{Clock, Instant};
use charter_store::{Store, StoreConfig};
use http_body_util::{BodyExt, Empty};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::config::{Provider, Secret};

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
                let _ = stream.write_all(format!("HTTP/1.1 {head}\r\nconnection: close\r\n\r\n").as_bytes()).await;
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
    let folder = std::env::temp_dir().join(format!("charter-egress-{}-{name}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    let store = Store::open(StoreConfig::new(&folder, Arc::new(Still))).await.expect("a store");
    let bound = Provider {
        kind: "http".into(),
        url: format!("http://{address}/base"),
        credential: Some(Secret::new("s3cret-token".into())),
        options: toml::Table::new(),
    };
    let providers = Providers::open(store, &BTreeMap::from([("engine".to_owned(), bound)])).await.expect("bindings");
    let config = config::Egress {
        allow: Vec::new(),
        connect_timeout_ms: 2_000,
        timeout_ms: 5_000,
        response_bytes_max: bytes_max,
        tenant_connections_max: 1,
    };
    (Gate::new(config, providers, Vec::new()), folder)
}

fn outbound(target: Target, address: &str) -> Outbound {
    let mut request = http::Request::new(Empty::<Bytes>::new().map_err(|never| match never {}).boxed_unsync());
    *request.uri_mut() = address.parse().expect("an address");
    Outbound {
        scope: Proof::of(Actor::anonymous()).scope(),
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
    assert!(matches!(followed, Err(EgressError::TooMany)), "the first answer still holds the only place");
    let denied = gate.send(outbound(Target::Public, "http://169.254.169.254/")).await;
    assert!(matches!(denied, Err(EgressError::Denied(text)) if text.contains("CHARTER_EGRESS_ALLOW")));
    let _ = std::fs::remove_dir_all(folder);
}

#[tokio::test]
async fn an_answer_that_is_too_large_ends() {
    let address = provider("200 OK").await;
    let (gate, folder) = gate("large", address, 20).await;
    let response = gate.send(to_binding()).await.expect("an answer");
    let read = response.into_body().collect().await;
    assert_eq!(read.err(), Some(EgressError::TooLarge { limit: 20 }));
    let unbound = gate.send(outbound(Target::Binding("other".into()), "https://other.binding/")).await;
    assert_eq!(unbound.err(), Some(EgressError::Unbound("other".into())));
    let _ = std::fs::remove_dir_all(folder);
}

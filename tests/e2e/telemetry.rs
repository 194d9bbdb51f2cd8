//! Telemetry to the operator's own systems: spans to a collector, and the log as JSON lines.

use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc;

use charter_tests::Database;
use charter_tests::double::{self, Heard, Reply};
use charter_tests::patience::until;
use charter_tests::world::Builder;
use serde_json::{Value, json};

/// A double of an OTLP/HTTP collector: takes every export and answers as the protocol says, with an
/// empty message.
fn collector() -> (SocketAddr, mpsc::Receiver<Heard>) {
    let (sender, exports) = mpsc::channel();
    let address = double::listen(move |heard| {
        // A test that has seen enough hangs up.
        let _ = sender.send(heard);
        let headers = vec![("content-type".to_owned(), "application/x-protobuf".to_owned())];
        Reply { status: 200, headers, body: Vec::new() }
    });
    (address, exports)
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn spans_go_to_the_collector_that_is_configured() {
    let (address, exports) = collector();
    let endpoint = format!("http://{address}");
    let world = Builder::new()
        .bare()
        .environment("CHARTER_TELEMETRY_OTLP_ENDPOINT", &endpoint)
        .start(Database::Sqlite);
    let answer = world.anonymous().get("/v1/users");
    answer.expect_error(401, "unauthorized");
    let request = answer.header("x-request-id").unwrap();
    until("an export holds the request's span", || {
        exports.try_iter().any(|export| {
            assert_eq!((export.method.as_str(), export.target.as_str()), ("POST", "/v1/traces"));
            assert_eq!(export.header("content-type"), Some("application/x-protobuf"));
            assert!(holds(&export.body, "charter"), "an export that does not say whose it is");
            holds(&export.body, request)
        })
    });
}

#[test]
fn a_collector_that_is_gone_holds_nobody_up() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let endpoint = format!("http://{free}");
    let mut world = Builder::new()
        .bare()
        .environment("CHARTER_TELEMETRY_OTLP_ENDPOINT", &endpoint)
        .start(Database::Sqlite);
    let tenant = world.register();
    for n in 0..20 {
        tenant.client.post("/v1/users", &json!({ "name": format!("user {n}") })).expect(201);
    }
    world.stop();
}

#[test]
fn the_log_can_be_one_object_a_line() {
    let world = Builder::new()
        .bare()
        .environment("CHARTER_TELEMETRY_LOG_FORMAT", "json")
        .environment("CHARTER_TELEMETRY_LOG", "debug")
        .start(Database::Sqlite);
    let answer = world.anonymous().get("/v1/users");
    let request = answer.header("x-request-id").unwrap();
    let log = world.server().log();
    // The last line may be half written, and the server prints what is for people on standard
    // output, which ends up here too.
    let lines = log.lines().filter(|line| line.starts_with('{') && line.ends_with('}'));
    let parsed: Vec<Value> = lines
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    assert!(
        parsed.iter().all(|line| line["level"].is_string() && line["timestamp"].is_string()),
        "{log}"
    );
    assert!(
        parsed.iter().any(|line| line.to_string().contains(request)),
        "no line names the request {request}: {log}"
    );
}

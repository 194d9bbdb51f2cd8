//! What goes to the operator's own systems: spans to a collector, and the log as JSON lines.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Duration;

use charter_tests::Database;
use charter_tests::world::Builder;
use serde_json::{Value, json};

/// Nothing that is waited for takes longer.
const PATIENCE: Duration = Duration::from_secs(40);

/// One export as the collector got it.
struct Export {
    line: String,
    content_type: String,
    body: Vec<u8>,
}

/// A double of an OTLP/HTTP collector: takes every export and answers as the protocol says, with an empty message.
fn collector() -> (String, mpsc::Receiver<Export>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let (sender, exports) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let sender = sender.clone();
            std::thread::spawn(move || while take(&stream).is_ok_and(|export| sender.send(export).is_ok()) {});
        }
    });
    (address, exports)
}

fn take(stream: &TcpStream) -> std::io::Result<Export> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut line, mut length, mut content_type) = (String::new(), 0, String::new());
    if reader.read_line(&mut line)? == 0 {
        return Err(std::io::ErrorKind::UnexpectedEof.into());
    }
    loop {
        let mut header = String::new();
        if reader.read_line(&mut header)? == 0 || header.trim().is_empty() {
            break;
        }
        let (name, value) = header.split_once(':').unwrap_or_default();
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().unwrap_or(0),
            "content-type" => content_type = value.trim().to_owned(),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let mut stream = stream;
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n")?;
    Ok(Export { line: line.trim().to_owned(), content_type, body })
}

fn holds(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

#[test]
fn spans_go_to_the_collector_that_is_configured() {
    let (address, exports) = collector();
    let world = Builder::new().bare().environment("CHARTER_TELEMETRY_OTLP_ENDPOINT", &address).start(Database::Sqlite);
    let answer = world.anonymous().get("/v1/users");
    answer.expect_error(401, "unauthorized");
    let request = answer.header("x-request-id").unwrap();
    loop {
        let export = exports.recv_timeout(PATIENCE).expect("no export holds the request's span");
        assert_eq!(export.line, "POST /v1/traces HTTP/1.1");
        assert_eq!(export.content_type, "application/x-protobuf");
        assert!(holds(&export.body, "charter"), "an export that does not say whose it is");
        if holds(&export.body, request) {
            return;
        }
    }
}

#[test]
fn a_collector_that_is_gone_holds_nobody_up() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let endpoint = format!("http://{free}");
    let mut world = Builder::new().bare().environment("CHARTER_TELEMETRY_OTLP_ENDPOINT", &endpoint).start(Database::Sqlite);
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
    // The last line may be half written, and the server prints what is for people on standard output, which ends up here too.
    let lines = log.lines().filter(|line| line.starts_with('{') && line.ends_with('}'));
    let parsed: Vec<Value> =
        lines.map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect();
    assert!(parsed.iter().all(|line| line["level"].is_string() && line["timestamp"].is_string()), "{log}");
    assert!(parsed.iter().any(|line| line.to_string().contains(request)), "no line names the request {request}: {log}");
}

//! The cost of an organization's calls to its neighbour: the neighbour's slowest reads and writes
//! beside 64 hostile calls of a kind in flight, as a multiple of their time while it is alone, and
//! the memory that stays.
//!
//! Each kind is played by an organization of its own, and measured beside a calm of the same minute.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::load::{self, Plan, Report, Requests};
use crate::server::Server;
use crate::table::Row;
use crate::tools::{self, Scratch, Tools};

/// Hostile calls in flight.
const HOSTILE: usize = 64;
/// The neighbour's connections for reads, and as many for writes.
const CONNECTIONS: usize = 4;
/// Its reads a second, and as many writes.
const RATE: f64 = 50.0;
/// The slowdown that the neighbour may notice.
const TIMES_MAX: f64 = 3.0;
/// Documents that hostile pages are made of, and entries of hostile logs.
const LARGE: usize = 40;
/// Bytes of each.
const LARGE_BYTES: usize = 3_900_000;

/// Letters of a riddle, near the most that is checked at all.
const RIDDLE_LETTERS: usize = 200_000;

/// Messages of one large send, and letters of each.
const SENT: (usize, usize) = (4, 220_000);
/// Stands for the hostile organization's queue in a path.
const QUEUE: &str = "{queue}";

/// One kind of hostile calls.
struct Kind {
    /// The kind's name in the table.
    name: &'static str,
    /// The operation of each call.
    method: &'static str,
    path: &'static str,
    /// The body of each call.
    body: Option<Value>,
    /// The calls that prepare what each call reads.
    before: Before,
}

/// The calls that prepare what hostile calls read.
enum Before {
    Nothing,
    /// As many scripts as there are to be large things.
    Large(Value),
    /// As many sends as fit into some seconds, each of which has a row of the log.
    Rows,
}

impl Kind {
    fn script(name: &'static str, steps: Value) -> Self {
        let body = Some(json!({ "steps": steps }));
        Self { name, method: "POST", path: "/v1/script", body, before: Before::Nothing }
    }

    fn peek(name: &'static str, step: Value, large: Value) -> Self {
        let before = Before::Large(json!({ "steps": [large] }));
        Self { path: "/v1/script/peek", before, ..Self::script(name, json!([step])) }
    }
}

fn kinds() -> [Kind; 12] {
    let nested = json!([{"call": "script.play", "body": {"steps": [{"sleep_ms": 5_000}]}}]);
    let job = json!({"enqueue": [{"spin_ms": 50}]});
    let message = json!({ "body": "x".repeat(SENT.1) });
    [
        Kind::script("a neighbour beside 64 spinning calls", json!([{"spin_ms": 60_000}])),
        Kind::script("a neighbour beside 64 sleeping calls", json!([{"sleep_ms": 5_000}])),
        Kind::script("a neighbour beside 64 calls that sleep nested", nested),
        Kind::peek(
            "a neighbour beside 64 calls that read big pages",
            json!({"pages": 8}),
            json!({"fill": 1, "bytes": LARGE_BYTES}),
        ),
        Kind::peek(
            "a neighbour beside 64 calls that read big streams",
            json!({"entries_of": "big", "times": 8}),
            json!({"append": "big", "bytes": LARGE_BYTES}),
        ),
        Kind::script(
            "a neighbour beside 64 calls that flood the log",
            json!([{"log": 2_000, "line": "x".repeat(1_000)}]),
        ),
        Kind::script("a neighbour beside 64 short calls", json!([{"spin_ms": 4}])),
        Kind::script("a neighbour beside 64 calls that enqueue jobs", vec![job; 20].into()),
        Kind {
            body: Some(json!({ "steps": [], "riddle": riddle() })),
            ..Kind::script("a neighbour beside 64 calls whose bodies take long to check", json!([]))
        },
        Kind {
            name: "a neighbour beside 64 calls that look for a row the log has not",
            method: "GET",
            path: "/v1/logs?action=none",
            body: None,
            before: Before::Rows,
        },
        Kind {
            name: "a neighbour beside 64 calls that read pages of the audit log",
            method: "GET",
            path: "/v1/logs?limit=200",
            body: None,
            before: Before::Rows,
        },
        Kind {
            name: "a neighbour beside 64 calls that send large messages",
            method: "POST",
            path: "/v1/queue/{queue}/messages",
            body: Some(json!({ "messages": vec![message; SENT.0] })),
            before: Before::Nothing,
        },
    ]
}

/// A text that the pattern of a script's riddle takes long over: no part of it is like another.
fn riddle() -> String {
    let mut state = 1_u32;
    let mut letter = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        if state >> 31 == 0 { 'a' } else { 'b' }
    };
    (0..RIDDLE_LETTERS).map(|_| letter()).collect()
}

/// The measured organization, with its queue.
struct Neighbour {
    address: String,
    read: Vec<u8>,
    write: Vec<u8>,
}

/// The neighbour's slowest reads and writes but one of a hundred, and what was refused.
struct Slowest {
    read: Duration,
    write: Duration,
    failed: u64,
}

fn request_of(key: &str, method: &str, path: &str, body: Option<&str>) -> Vec<u8> {
    let authorization = format!("Bearer {key}");
    load::request(method, path, &[("authorization", &authorization)], body)
}

impl Neighbour {
    async fn new(server: &Server) -> Result<Self> {
        let key = tools::register(server, "neighbour").await?;
        let queue = tools::queue(server, &key, "calm").await?;
        let path = format!("/v1/queue/{queue}");
        let body = r#"{"messages":[{"body":{"company":"Initech"}}]}"#;
        Ok(Self {
            address: server.address.clone(),
            read: request_of(&key, "GET", &path, None),
            write: request_of(&key, "POST", &format!("{path}/messages"), Some(body)),
        })
    }

    async fn slowest(&self, duration: Duration) -> Slowest {
        let plan = Plan {
            address: self.address.clone(),
            connections: CONNECTIONS,
            duration,
            rate: Some(RATE),
        };
        let (reads, writes) = tokio::join!(
            load::run(&plan, load::repeat(self.read.clone())),
            load::run(&plan, load::repeat(self.write.clone())),
        );
        let slowest = |report: &Report| report.percentile(0.99);
        for report in [&reads, &writes] {
            if let Some(failure) = &report.first_failure {
                eprintln!(
                    "{} of the neighbour's calls failed; the first: {failure}",
                    report.failed
                );
            }
        }
        let failed = reads.failed + writes.failed;
        Slowest { read: slowest(&reads), write: slowest(&writes), failed }
    }
}

/// The rows of this part.
pub async fn measure(tools: &Tools) -> Result<Vec<Row>> {
    let scratch = Scratch::new(tools, "neighbour")?;
    let server = tools.server(&scratch.0).await?;
    let script = std::fs::read(&tools.script).context("the script's component")?;
    server.upload("script", &script, true).await?;
    let neighbour = Neighbour::new(&server).await?;
    neighbour.slowest(tools.pace.time(2.0)).await;
    let mut rows = Vec::new();
    for (n, kind) in kinds().into_iter().enumerate() {
        rows.push(beside(tools, &server, &neighbour, n, kind).await?);
    }
    Ok(rows)
}

/// The neighbour alone, then beside one kind of hostile calls.
async fn beside(
    tools: &Tools,
    server: &Server,
    neighbour: &Neighbour,
    n: usize,
    kind: Kind,
) -> Result<Row> {
    let villain = tools::register(server, &format!("villain-{n}")).await?;
    let queue = tools::queue(server, &villain, "hostile").await?;
    prepare(tools, server, &villain, &queue, kind.before).await?;
    let calm = neighbour.slowest(tools.pace.time(5.0)).await;
    let before = server.resident()?;
    let (path, body) = (kind.path.replace(QUEUE, &queue), kind.body.map(|body| body.to_string()));
    let plan = Plan {
        address: server.address.clone(),
        connections: tools.pace.count(HOSTILE),
        duration: tools.pace.time(12.0),
        rate: None,
    };
    let requests: Requests =
        load::repeat(request_of(&villain, kind.method, &path, body.as_deref()));
    let attack = tokio::spawn(async move { load::run(&plan, requests).await });
    // They are under way before anybody looks.
    tokio::time::sleep(tools.pace.time(2.0)).await;
    let pressed = neighbour.slowest(tools.pace.time(8.0)).await;
    let during = server.resident()?;
    drop(attack.await);
    tokio::time::sleep(tools.pace.time(3.0)).await;
    let after = server.resident()?;
    let times = |pressed: Duration, calm: Duration| pressed.as_secs_f64() / calm.as_secs_f64();
    let (read, write) = (times(pressed.read, calm.read), times(pressed.write, calm.write));
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let mib = |bytes: u64| bytes >> 20;
    Ok(Row {
        name: kind.name,
        figure: format!("{read:.1} × reads, {write:.1} × writes"),
        target: format!("< {TIMES_MAX} × at p99"),
        reached: read < TIMES_MAX && write < TIMES_MAX && pressed.failed == 0,
        detail: format!(
            "reads {:.1} to {:.1} ms, writes {:.1} to {:.1} ms, {} refused; {} MiB before, {} during, {} after",
            ms(calm.read),
            ms(pressed.read),
            ms(calm.write),
            ms(pressed.write),
            pressed.failed,
            mib(before),
            mib(during),
            mib(after),
        ),
    })
}

/// Prepares what the calls read.
async fn prepare(
    tools: &Tools,
    server: &Server,
    villain: &str,
    queue: &str,
    before: Before,
) -> Result<()> {
    match before {
        Before::Nothing => {}
        Before::Large(script) => {
            let fill = request_of(villain, "POST", "/v1/script", Some(&script.to_string()));
            let fill = Arc::new(fill);
            for _ in 0..tools.pace.count(LARGE) {
                server.send(&fill).await.context("something large is written")?;
            }
        }
        Before::Rows => {
            let plan = Plan {
                address: server.address.clone(),
                connections: HOSTILE,
                duration: tools.pace.time(10.0),
                rate: None,
            };
            let path = format!("/v1/queue/{queue}/messages");
            let send = request_of(villain, "POST", &path, Some(r#"{"messages":[{"body":1}]}"#));
            load::run(&plan, load::repeat(send)).await;
        }
    }
    Ok(())
}

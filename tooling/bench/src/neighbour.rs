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

/// One kind of hostile calls: its name in the table, the operation, and the body of one call.
type Kind = (&'static str, &'static str, Value);

fn kinds() -> [Kind; 9] {
    let (play, peek) = ("/v1/script", "/v1/script/peek");
    let nested = json!([{"call": "script.play", "body": {"steps": [{"sleep_ms": 5_000}]}}]);
    let job = json!({"enqueue": [{"spin_ms": 50}]});
    let of = |steps: Value| json!({ "steps": steps });
    [
        ("a neighbour beside 64 spinning calls", play, of(json!([{"spin_ms": 60_000}]))),
        ("a neighbour beside 64 sleeping calls", play, of(json!([{"sleep_ms": 5_000}]))),
        ("a neighbour beside 64 calls that sleep nested", play, of(nested)),
        ("a neighbour beside 64 calls that read big pages", peek, of(json!([{"pages": 8}]))),
        (
            "a neighbour beside 64 calls that read big streams",
            peek,
            of(json!([{"entries_of": "big", "times": 8}])),
        ),
        (
            "a neighbour beside 64 calls that flood the log",
            play,
            of(json!([{"log": 2_000, "line": "x".repeat(1_000)}])),
        ),
        ("a neighbour beside 64 short calls", play, of(json!([{"spin_ms": 4}]))),
        ("a neighbour beside 64 calls that enqueue jobs", play, of(vec![job; 20].into())),
        (
            "a neighbour beside 64 calls whose bodies take long to check",
            play,
            json!({ "steps": [], "riddle": riddle() }),
        ),
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
    (name, path, body): Kind,
) -> Result<Row> {
    let villain = tools::register(server, &format!("villain-{n}")).await?;
    prepare(tools, server, &villain, path, &body["steps"][0]).await?;
    let calm = neighbour.slowest(tools.pace.time(5.0)).await;
    let before = server.resident()?;
    let body = body.to_string();
    let plan = Plan {
        address: server.address.clone(),
        connections: tools.pace.count(HOSTILE),
        duration: tools.pace.time(12.0),
        rate: None,
    };
    let requests: Requests = load::repeat(request_of(&villain, "POST", path, Some(&body)));
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
        name,
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

/// Prepares the rows that the script reads.
async fn prepare(
    tools: &Tools,
    server: &Server,
    villain: &str,
    path: &str,
    step: &Value,
) -> Result<()> {
    let first = if step.get("pages").is_some() {
        json!({"fill": 1, "bytes": LARGE_BYTES})
    } else if step.get("entries_of").is_some() {
        json!({"append": "big", "bytes": LARGE_BYTES})
    } else {
        return Ok(());
    };
    debug_assert!(path.ends_with("/peek"), "only reads need something to read");
    let fill =
        request_of(villain, "POST", "/v1/script", Some(&json!({"steps": [first]}).to_string()));
    let fill = Arc::new(fill);
    for _ in 0..tools.pace.count(LARGE) {
        server.send(&fill).await.context("something large is written")?;
    }
    Ok(())
}

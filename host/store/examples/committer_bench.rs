//! The committer against a writer that spends a transaction a unit, over the same rows on the same database.
//!
//! `committer_bench [postgres://…] [seconds]`: without an address on SQLite in a temporary folder. Each unit replaces one row and
//! appends one log entry, spread over 2,000 organizations or all on one hot row, with 1 to 128 in flight; then single-row reads.
//! Prints one JSON document of rates a second; what is compared was measured in turns.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a measuring program: it stops at the first failure and looks at the real clock"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant as Moment, SystemTime};

use charter_kernel::time::{Clock, Instant};
use charter_kernel::unit::{Draft, Key, LogKey, Reach, Space, Unit, Write};
use charter_store::{Store, StoreConfig};
use serde_json::{Value, json};
use sqlx::AnyConnection;
use sqlx::Connection;
use tokio::sync::Mutex;

const ORGANIZATIONS: u64 = 2_000;
const IN_FLIGHT: [u64; 4] = [1, 32, 64, 128];
const ROUNDS: u32 = 3;
/// Connections of the writer that is compared with.
const CONNECTIONS: u64 = 32;

struct Wall;

impl Clock for Wall {
    fn now(&self) -> Instant {
        Instant(SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis() as i64)
    }
}

fn organization(hot: bool, n: u64) -> String {
    if hot { "hot".into() } else { format!("org-{}", (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % ORGANIZATIONS) }
}

fn body(n: u64) -> String {
    format!("{{\"n\":{n},\"filler\":\"{}\"}}", "x".repeat(120))
}

fn unit(hot: bool, n: u64) -> Unit {
    let organization = organization(hot, n);
    let reach = Reach::organization(&organization);
    let key = Key::new(&reach, &Space::of("bench", "rows"), "row");
    let draft = Draft { body: body(n), ..Draft::default() };
    let log = LogKey { reach, log: "bench.log".into() };
    let append = Write::Append { log, name: "put".into(), payload: "{}".into() };
    Unit { organization, writes: vec![Write::Put { key, draft }, append], ..Unit::default() }
}

/// Counts what tasks do until the time is over.
struct Race {
    done: AtomicU64,
    until: Moment,
    begun: Moment,
}

impl Race {
    fn new(seconds: f64) -> Arc<Self> {
        let begun = Moment::now();
        Arc::new(Self { done: AtomicU64::new(0), until: begun + Duration::from_secs_f64(seconds), begun })
    }
    /// The next number, while there is time.
    fn next(&self) -> Option<u64> {
        (Moment::now() < self.until).then(|| self.done.fetch_add(1, Ordering::Relaxed))
    }
    fn rate(&self) -> f64 {
        self.done.load(Ordering::Relaxed) as f64 / self.begun.elapsed().as_secs_f64()
    }
}

async fn committer(store: &Store, hot: bool, in_flight: u64, seconds: f64) -> f64 {
    let race = Race::new(seconds);
    let tasks = (0..in_flight).map(|_| {
        let (store, race) = (store.clone(), race.clone());
        tokio::spawn(async move {
            while let Some(n) = race.next() {
                store.commit(unit(hot, n)).await.unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    race.rate()
}

async fn reads(store: &Store, in_flight: u64, seconds: f64) -> f64 {
    let race = Race::new(seconds);
    let tasks = (0..in_flight).map(|_| {
        let (store, race) = (store.clone(), race.clone());
        tokio::spawn(async move {
            while let Some(n) = race.next() {
                let reach = Reach::organization(&organization(false, n));
                store.get(&Key::new(&reach, &Space::of("bench", "rows"), "row")).await.unwrap();
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    race.rate()
}

/// The same rows, a transaction each: read, write, append, commit. SQLite has one writer, so there it has one connection.
async fn one_by_one(url: &str, shared: bool, hot: bool, in_flight: u64, seconds: f64) -> f64 {
    let mut connections = Vec::new();
    for _ in 0..if shared { in_flight.min(CONNECTIONS) } else { 1 } {
        let mut connection = AnyConnection::connect(url).await.unwrap();
        if !shared {
            let words = "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA busy_timeout = 10000";
            sqlx::raw_sql(words).execute(&mut connection).await.unwrap();
        }
        connections.push(Mutex::new(connection));
    }
    let (connections, race) = (Arc::new(connections), Race::new(seconds));
    let tasks = (0..in_flight).map(|task| {
        let (connections, race) = (connections.clone(), race.clone());
        tokio::spawn(async move {
            while let Some(n) = race.next() {
                let mut connection = connections[task as usize % connections.len()].lock().await;
                write_one(&mut connection, shared, hot, n).await;
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
    race.rate()
}

async fn write_one(connection: &mut AnyConnection, shared: bool, hot: bool, n: u64) {
    let reach = format!("o/{}", organization(hot, n));
    let (begin, read) = if shared {
        ("BEGIN", "SELECT version FROM one_by_one WHERE reach = $1 AND id = 'row' FOR NO KEY UPDATE")
    } else {
        ("BEGIN IMMEDIATE", "SELECT version FROM one_by_one WHERE reach = $1 AND id = 'row'")
    };
    sqlx::raw_sql(begin).execute(&mut *connection).await.unwrap();
    sqlx::query(read).bind(reach.clone()).fetch_optional(&mut *connection).await.unwrap();
    let write = "INSERT INTO one_by_one (reach, id, version, body, head) VALUES ($1, 'row', 1, $2, 1) \
                 ON CONFLICT (reach, id) DO UPDATE SET version = one_by_one.version + 1, body = excluded.body, \
                 head = one_by_one.head + 1";
    sqlx::query(write).bind(reach.clone()).bind(body(n)).execute(&mut *connection).await.unwrap();
    let append = "INSERT INTO one_by_one_log (reach, sequence, payload) SELECT $1, head, '{}' FROM one_by_one WHERE reach = $1";
    sqlx::query(append).bind(reach).execute(&mut *connection).await.unwrap();
    sqlx::raw_sql("COMMIT").execute(&mut *connection).await.unwrap();
}

/// One database, measured: `[{in_flight, hot, committer, writer}]` and single-row reads a second by requests in flight.
async fn measure(address: Option<&str>, seconds: f64) -> Value {
    let folder = std::env::temp_dir().join(format!("charter-bench-{}", std::process::id()));
    let mut config = StoreConfig::new(&folder, Arc::new(Wall));
    config.url = address.unwrap_or_default().to_owned();
    let store = Store::open(config).await.unwrap();
    let shared = store.is_shared();
    let beside = format!("sqlite://{}?mode=rwc", folder.join("one_by_one.db").display());
    let url = address.unwrap_or(&beside);
    let mut connection = AnyConnection::connect(url).await.unwrap();
    let tables = "CREATE TABLE IF NOT EXISTS one_by_one (reach TEXT, id TEXT, version BIGINT, body TEXT, head BIGINT, \
                  PRIMARY KEY (reach, id)); CREATE TABLE IF NOT EXISTS one_by_one_log (reach TEXT, sequence BIGINT, payload TEXT, \
                  PRIMARY KEY (reach, sequence)); DELETE FROM one_by_one; DELETE FROM one_by_one_log";
    sqlx::raw_sql(tables).execute(&mut connection).await.unwrap();
    let (mut rows, mut read) = (Vec::new(), Vec::new());
    for in_flight in IN_FLIGHT {
        for hot in [false, true] {
            let (mut alone, mut together) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                // They take turns, so that a drifting machine drifts for both.
                alone.push(one_by_one(url, shared, hot, in_flight, seconds).await);
                together.push(committer(&store, hot, in_flight, seconds).await);
            }
            rows.push(json!({ "in_flight": in_flight, "hot": hot, "committer": median(together), "writer": median(alone) }));
        }
        read.push(json!({ "in_flight": in_flight, "rate": reads(&store, in_flight, seconds).await }));
    }
    store.close().await;
    let _ = std::fs::remove_dir_all(&folder);
    json!({ "units": rows, "reads": read })
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1).peekable();
    let address = arguments.next_if(|address| address.starts_with("postgres"));
    let seconds: f64 = arguments.next().map_or(2.0, |seconds| seconds.parse().unwrap());
    println!("{}", measure(address.as_deref(), seconds).await);
}

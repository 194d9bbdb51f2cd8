//! The committer against a writer that spends a transaction a unit, over the same rows on the same
//! database.
//!
//! `committer_bench [postgres://…] [seconds]`: without an address on SQLite in a temporary folder.
//! Each unit replaces one row and appends one log entry, spread over 2,000 organizations or all on
//! one hot row, with 1 to 128 in flight; then single-row reads. Prints one JSON document of rates a
//! second; what is compared was measured in turns. `committer_bench [postgres://…] seconds
//! in-flight [hot]` drives the committer alone, for a profiler to look at.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a measuring program: it stops at the first failure and looks at the real clock"
)]

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant as Moment, SystemTime};

use charter_kernel::time::{Clock, Instant};
use charter_kernel::unit::{Draft, Key, LogKey, Reach, Space, Unit, Write};
use charter_store::{Store, StoreConfig};
use rusqlite::OptionalExtension;
use serde_json::{Value, json};
use sqlx::postgres::PgRow;
use sqlx::{Connection, PgConnection, Row};
use tokio::sync::{Mutex, mpsc, oneshot};

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
    if hot {
        "hot".into()
    } else {
        format!("org-{}", (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % ORGANIZATIONS)
    }
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
        Arc::new(Self {
            done: AtomicU64::new(0),
            until: begun + Duration::from_secs_f64(seconds),
            begun,
        })
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

/// The writer that is compared with keeps the same rows in tables of the same shape: the document,
/// its space's revision, the log's head and its entry. It reads what it must know, as the committer
/// does, and spends a transaction on each unit.
const READ_ROW: &str = "SELECT version, stamp, created_at FROM one_documents WHERE reach = $1 AND space = 'bench.rows' AND id = 'row'";
const READ_SPACE: &str =
    "SELECT revision FROM one_revisions WHERE reach = $1 AND space = 'bench.rows'";
const READ_LOG: &str = "SELECT head FROM one_logs WHERE reach = $1 AND log = 'bench.log'";
const PUT_ROW: &str = "INSERT INTO one_documents (reach, space, id, organization, body, entries, version, stamp, was, created_at, \
     updated_at) VALUES ($1, 'bench.rows', 'row', $2, $3, '', $4, $5, 0, $6, $6) ON CONFLICT (reach, space, id) DO UPDATE SET \
     version = excluded.version, stamp = excluded.stamp, body = excluded.body, updated_at = excluded.updated_at";
const PUT_SPACE: &str = "INSERT INTO one_revisions (reach, space, revision, was) VALUES ($1, 'bench.rows', $2, 0) \
     ON CONFLICT (reach, space) DO UPDATE SET revision = excluded.revision";
const PUT_LOG: &str = "INSERT INTO one_logs (reach, log, head, was, closed) VALUES ($1, 'bench.log', $2, 0, 0) \
     ON CONFLICT (reach, log) DO UPDATE SET head = excluded.head";
const ADD_ENTRY: &str = "INSERT INTO one_log_entries (reach, log, sequence, at, name, payload) \
     VALUES ($1, 'bench.log', $2, $3, 'put', '{}')";
const TABLES: [&str; 4] = ["documents", "revisions", "logs", "log_entries"];

/// A writer that spends a transaction a unit, over the same rows.
enum Writer {
    /// SQLite has one writer: a thread that takes one unit after another, and answers it when it is
    /// on disk.
    Alone(mpsc::Sender<(bool, u64, oneshot::Sender<()>)>),
    /// As many connections as there are units in flight.
    Together(Vec<Mutex<PgConnection>>),
}

impl Writer {
    async fn open(address: Option<&str>, folder: &Path) -> Self {
        let Some(address) = address else {
            // The store's own tables, renamed, in a file beside its own.
            let (made, file) = (folder.join("charter.db"), folder.join("one_by_one.db"));
            let schema = rusqlite::Connection::open(made).unwrap();
            let connection = rusqlite::Connection::open(file).unwrap();
            connection
                .execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL")
                .unwrap();
            for table in TABLES {
                let sql = "SELECT sql FROM sqlite_schema WHERE tbl_name = $1 AND sql IS NOT NULL ORDER BY type DESC";
                let mut statement = schema.prepare(sql).unwrap();
                for sql in statement.query_map([table], |row| row.get::<_, String>(0)).unwrap() {
                    let renamed = sql.unwrap().replacen(
                        &format!("TABLE {table} "),
                        &format!("TABLE one_{table} "),
                        1,
                    );
                    let renamed =
                        renamed.replace(&format!(" ON {table} "), &format!(" ON one_{table} "));
                    connection.execute_batch(&renamed).unwrap();
                }
            }
            let (units, mut taken) = mpsc::channel::<(bool, u64, oneshot::Sender<()>)>(1_024);
            std::thread::spawn(move || {
                while let Some((hot, n, answer)) = taken.blocking_recv() {
                    write_alone(&connection, hot, n).unwrap();
                    let _ = answer.send(());
                }
            });
            return Self::Alone(units);
        };
        let mut connections = Vec::new();
        for _ in 0..CONNECTIONS {
            connections.push(Mutex::new(PgConnection::connect(address).await.unwrap()));
        }
        for table in TABLES {
            let sql = format!(
                "DROP TABLE IF EXISTS one_{table}; CREATE TABLE one_{table} (LIKE {table} INCLUDING ALL)"
            );
            sqlx::raw_sql(sqlx::AssertSqlSafe(sql))
                .execute(&mut *connections[0].lock().await)
                .await
                .unwrap();
        }
        Self::Together(connections)
    }

    async fn write(&self, task: u64, hot: bool, n: u64) {
        match self {
            Self::Alone(units) => {
                let (answer, answered) = oneshot::channel();
                units.send((hot, n, answer)).await.unwrap();
                answered.await.unwrap();
            }
            Self::Together(connections) => {
                let mut connection = connections[task as usize % connections.len()].lock().await;
                write_together(&mut connection, hot, n).await.unwrap();
            }
        }
    }

    async fn rate(self: &Arc<Self>, hot: bool, in_flight: u64, seconds: f64) -> f64 {
        let race = Race::new(seconds);
        let tasks = (0..in_flight).map(|task| {
            let (writer, race) = (self.clone(), race.clone());
            tokio::spawn(async move {
                while let Some(n) = race.next() {
                    writer.write(task, hot, n).await;
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.unwrap();
        }
        race.rate()
    }
}

fn write_alone(connection: &rusqlite::Connection, hot: bool, n: u64) -> rusqlite::Result<()> {
    let organization = organization(hot, n);
    let reach = format!("o/{organization}");
    let now = Wall.now().0;
    connection.prepare_cached("BEGIN IMMEDIATE")?.execute([])?;
    let three = |row: &rusqlite::Row<'_>| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
    };
    let row = connection.prepare_cached(READ_ROW)?.query_row([&reach], three).optional()?;
    let one = |sql| {
        connection.prepare_cached(sql)?.query_row([&reach], |row| row.get::<_, i64>(0)).optional()
    };
    let (revision, head) = (one(READ_SPACE)?.unwrap_or(0) + 1, one(READ_LOG)?.unwrap_or(0) + 1);
    let (version, _, created) = row.unwrap_or((0, 0, now));
    connection.prepare_cached(PUT_ROW)?.execute((
        &reach,
        &organization,
        body(n),
        version + 1,
        revision,
        created,
    ))?;
    connection.prepare_cached(PUT_SPACE)?.execute((&reach, revision))?;
    connection.prepare_cached(PUT_LOG)?.execute((&reach, head))?;
    connection.prepare_cached(ADD_ENTRY)?.execute((&reach, head, now))?;
    connection.prepare_cached("COMMIT")?.execute([]).map(drop)
}

async fn write_together(connection: &mut PgConnection, hot: bool, n: u64) -> sqlx::Result<()> {
    let organization = organization(hot, n);
    let reach = format!("o/{organization}");
    let now = Wall.now().0;
    sqlx::raw_sql("BEGIN").execute(&mut *connection).await?;
    let locked = |sql: &str| sqlx::AssertSqlSafe(format!("{sql} FOR NO KEY UPDATE"));
    let row = sqlx::query(locked(READ_ROW)).bind(&reach).fetch_optional(&mut *connection).await?;
    let revision =
        sqlx::query(locked(READ_SPACE)).bind(&reach).fetch_optional(&mut *connection).await?;
    let head = sqlx::query(locked(READ_LOG)).bind(&reach).fetch_optional(&mut *connection).await?;
    let number = |row: &Option<PgRow>, n: usize| row.as_ref().map_or(0, |row| row.get::<i64, _>(n));
    let (version, created) =
        (number(&row, 0) + 1, if row.is_some() { number(&row, 2) } else { now });
    let (revision, head) = (number(&revision, 0) + 1, number(&head, 0) + 1);
    let put = sqlx::query(PUT_ROW)
        .bind(&reach)
        .bind(&organization)
        .bind(body(n))
        .bind(version)
        .bind(revision)
        .bind(created);
    put.execute(&mut *connection).await?;
    sqlx::query(PUT_SPACE).bind(&reach).bind(revision).execute(&mut *connection).await?;
    sqlx::query(PUT_LOG).bind(&reach).bind(head).execute(&mut *connection).await?;
    let added =
        sqlx::query(ADD_ENTRY).bind(&reach).bind(head).bind(now).execute(&mut *connection).await;
    // Who made the row first has it: two that found it absent cannot both be right.
    let end = if added.is_ok() { "COMMIT" } else { "ROLLBACK" };
    sqlx::raw_sql(end).execute(&mut *connection).await.map(drop)
}

/// A store of its own. On PostgreSQL its key file stays, as the database does.
async fn open(address: Option<&str>) -> (Store, PathBuf) {
    let folder = std::env::temp_dir().join(format!("charter-bench-{}", std::process::id()));
    let mut config = StoreConfig::new(&folder, Arc::new(Wall));
    config.url = address.unwrap_or_default().to_owned();
    config.key_file = address.map(|_| std::env::temp_dir().join("charter-bench.key"));
    (Store::open(config).await.unwrap(), folder)
}

/// One database, measured: `[{in_flight, hot, committer, writer}]` and single-row reads a second by
/// requests in flight.
async fn measure(address: Option<&str>, seconds: f64) -> Value {
    let (store, folder) = open(address).await;
    let writer = Arc::new(Writer::open(address, &folder).await);
    let (mut rows, mut read) = (Vec::new(), Vec::new());
    for in_flight in IN_FLIGHT {
        for hot in [false, true] {
            let (mut alone, mut together) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                // They take turns, so that a drifting machine drifts for both.
                alone.push(writer.rate(hot, in_flight, seconds).await);
                together.push(committer(&store, hot, in_flight, seconds).await);
            }
            rows.push(json!({ "in_flight": in_flight, "hot": hot, "committer": median(together), "writer": median(alone) }));
        }
        read.push(
            json!({ "in_flight": in_flight, "rate": reads(&store, in_flight, seconds).await }),
        );
    }
    store.close().await;
    let _ = std::fs::remove_dir_all(&folder);
    json!({ "units": rows, "reads": read })
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

/// The server's own.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[tokio::main]
async fn main() {
    let mut arguments = std::env::args().skip(1).peekable();
    let address = arguments.next_if(|address| address.starts_with("postgres"));
    let seconds: f64 = arguments.next().map_or(2.0, |seconds| seconds.parse().unwrap());
    let Some(in_flight) = arguments.next() else {
        return println!("{}", measure(address.as_deref(), seconds).await);
    };
    let (store, folder) = open(address.as_deref()).await;
    let rate =
        committer(&store, arguments.next().is_some(), in_flight.parse().unwrap(), seconds).await;
    let status = store.status();
    println!(
        "{}",
        json!({ "rate": rate, "batch": status.units as f64 / status.batches as f64, "retries": status.retries })
    );
    store.close().await;
    let _ = std::fs::remove_dir_all(&folder);
}

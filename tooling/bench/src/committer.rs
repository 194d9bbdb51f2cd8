//! The committer alone, beside a writer that spends a transaction on each unit, on both databases.
//!
//! Each unit replaces one row and appends one log entry, spread over 2,000 organizations or all on
//! one hot row. The two sides take turns.

mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant as Moment};

use anyhow::{Context, Result};
use charter_kernel::unit::{Draft, Key, LogKey, Reach, Space, Unit, Write};
use charter_store::{Store, StoreConfig};
use charter_tests::postgres::Postgres;

use crate::clock::Wall;
use crate::pace::Pace;
use crate::table::{Row, median};
use crate::tools::{Scratch, Tools};
use writer::Writer;

const ORGANIZATIONS: u64 = 2_000;
const ROUNDS: usize = 3;
const SECONDS: f64 = 2.0;

/// Units a second on one database, with one number of units in flight.
#[derive(Clone, Copy)]
struct Rates {
    committer: f64,
    writer: f64,
}

/// The rates on SQLite, which sends are held against too.
pub struct Figures {
    alone: Rates,
    spread: Rates,
    many: Rates,
}

impl Figures {
    /// Units a second of the writer, at its best.
    pub fn writer(&self) -> f64 {
        self.alone.writer.max(self.spread.writer)
    }

    /// Units a second of the committer with 64 in flight.
    pub fn committer(&self) -> f64 {
        self.many.committer
    }
}

/// On SQLite.
pub async fn sqlite(tools: &Tools) -> Result<Figures> {
    let scratch = Scratch::new(tools, "committer")?;
    let bed = Bed::open(None, &scratch, tools.pace).await?;
    let figures = Figures {
        alone: bed.rates(false, 1).await?,
        spread: bed.rates(false, 32).await?,
        many: bed.rates(false, 64).await?,
    };
    bed.store.close().await;
    Ok(figures)
}

/// The rows of this part.
pub async fn measure(tools: &Tools) -> Result<Vec<Row>> {
    let sqlite = sqlite(tools).await?;
    let server = Postgres::durable("bench").map_err(anyhow::Error::msg).context("PostgreSQL")?;
    let scratch = Scratch::new(tools, "committer-postgresql")?;
    let bed = Bed::open(Some(&server.database()), &scratch, tools.pace).await?;
    let (spread, hot) = (bed.rates(false, 32).await?, bed.rates(true, 32).await?);
    bed.store.close().await;
    let row = |name, rates: Rates, least| Row::at_least(name, rates.committer, rates.writer, least);
    Ok(vec![
        row("committer, 32 in flight / that writer, SQLite", sqlite.spread, 10.0),
        row("committer, 32 in flight / 32 connections one by one, PostgreSQL", spread, 4.0),
        row("the same on one hot row", hot, 15.0),
    ])
}

/// A store and the writer beside it, on one database.
struct Bed {
    store: Store,
    writer: Arc<Writer>,
    pace: Pace,
}

impl Bed {
    async fn open(address: Option<&str>, scratch: &Scratch, pace: Pace) -> Result<Self> {
        let mut config = StoreConfig::new(&scratch.0, Arc::new(Wall));
        config.url = address.unwrap_or_default().to_owned();
        let store = Store::open(config).await?;
        let writer = Arc::new(Writer::open(address, &scratch.0).await?);
        Ok(Self { store, writer, pace })
    }

    /// They take turns, so that a drifting machine drifts for both.
    async fn rates(&self, hot: bool, in_flight: u64) -> Result<Rates> {
        let (mut committer, mut writer) = (Vec::new(), Vec::new());
        for _ in 0..self.pace.count(ROUNDS) {
            let time = self.pace.time(SECONDS);
            writer.push(self.writer(hot, in_flight, time).await?);
            committer.push(self.committer(hot, in_flight, time).await?);
        }
        Ok(Rates { committer: median(committer), writer: median(writer) })
    }

    async fn committer(&self, hot: bool, in_flight: u64, time: Duration) -> Result<f64> {
        let race = Race::new(time);
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..in_flight {
            let (store, race) = (self.store.clone(), race.clone());
            tasks.spawn(async move {
                while let Some(n) = race.next() {
                    store.commit(unit(hot, n)).await?;
                }
                anyhow::Ok(())
            });
        }
        race.rate(tasks).await
    }

    async fn writer(&self, hot: bool, in_flight: u64, time: Duration) -> Result<f64> {
        let race = Race::new(time);
        let mut tasks = tokio::task::JoinSet::new();
        for task in 0..in_flight {
            let (writer, race) = (self.writer.clone(), race.clone());
            tasks.spawn(async move {
                while let Some(n) = race.next() {
                    writer.write(task, hot, n).await?;
                }
                anyhow::Ok(())
            });
        }
        race.rate(tasks).await
    }
}

/// Counts what tasks do until the time is over.
struct Race {
    done: AtomicU64,
    until: Moment,
    begun: Moment,
}

impl Race {
    fn new(time: Duration) -> Arc<Self> {
        let begun = Moment::now();
        Arc::new(Self { done: AtomicU64::new(0), until: begun + time, begun })
    }

    /// The next number, while there is time.
    fn next(&self) -> Option<u64> {
        (Moment::now() < self.until).then(|| self.done.fetch_add(1, Ordering::Relaxed))
    }

    /// How much a second, once all have ended.
    async fn rate(&self, mut tasks: tokio::task::JoinSet<Result<()>>) -> Result<f64> {
        while let Some(ended) = tasks.join_next().await {
            ended??;
        }
        Ok(self.done.load(Ordering::Relaxed) as f64 / self.begun.elapsed().as_secs_f64())
    }
}

fn organization(hot: bool, n: u64) -> String {
    match hot {
        true => "hot".into(),
        false => format!("org-{}", (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % ORGANIZATIONS),
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

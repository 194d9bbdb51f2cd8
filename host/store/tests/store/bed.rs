//! A database of its own for each test, and the few words the tests are written in.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use charter_kernel::time::{Clock, Instant};
use charter_kernel::unit::{Draft, Key, Reach, Space, Unit, Write};
use charter_store::{Store, StoreConfig};
use sqlx::Connection;

use crate::postgres::Postgres;

/// A clock that tests move.
#[derive(Debug)]
pub struct Hands(AtomicI64);

impl Hands {
    pub fn forward_ms(&self, ms: i64) {
        self.0.fetch_add(ms, Ordering::SeqCst);
    }
}

impl Clock for Hands {
    fn now(&self) -> Instant {
        Instant(self.0.load(Ordering::SeqCst))
    }
}

/// A database and the first store on it.
pub struct Bed {
    pub store: Store,
    pub config: StoreConfig,
    pub clock: Arc<Hands>,
}

static BEDS: AtomicU32 = AtomicU32::new(0);

pub fn folder() -> PathBuf {
    let n = BEDS.fetch_add(1, Ordering::SeqCst);
    let folder = std::env::temp_dir().join(format!("charter-store-{}-{n}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    folder
}

/// The private server, where the machine has the programs for one.
pub fn server() -> Option<&'static Postgres> {
    Postgres::if_installed("store")
}

pub fn config(url: String) -> (StoreConfig, Arc<Hands>) {
    let clock = Arc::new(Hands(AtomicI64::new(1_800_000_000_000)));
    let mut config = StoreConfig::new(folder(), clock.clone());
    config.url = url;
    config.ballast_bytes = 1024 * 1024;
    (config, clock)
}

impl Bed {
    pub async fn sqlite() -> Self {
        Self::open(String::new()).await
    }

    pub async fn postgres() -> Option<Self> {
        Some(Self::open(server()?.database()).await)
    }

    async fn open(url: String) -> Self {
        let (config, clock) = config(url);
        let store = Store::open(config.clone()).await.unwrap();
        Self { store, config, clock }
    }

    /// Runs statements behind the store's back.
    pub async fn run(&self, words: &'static str) {
        if self.store.is_shared() {
            let mut connection = sqlx::PgConnection::connect(&self.config.url).await.unwrap();
            sqlx::raw_sql(words).execute(&mut connection).await.unwrap();
        } else {
            let connection =
                rusqlite::Connection::open(self.config.data_dir.join("charter.db")).unwrap();
            connection.execute_batch(words).unwrap();
        }
    }

    /// Deadlocks that the database has had to end. A server's connections say so when they end.
    pub async fn deadlocks(&self) -> i64 {
        if !self.store.is_shared() {
            return 0;
        }
        let mut connection = sqlx::PgConnection::connect(&self.config.url).await.unwrap();
        let end = "SELECT count(pg_terminate_backend(pid, 60000)) FROM pg_stat_activity \
                   WHERE datname = current_database() AND pid <> pg_backend_pid()";
        sqlx::raw_sql(end).execute(&mut connection).await.unwrap();
        let count = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
        sqlx::query_scalar(count).fetch_one(&mut connection).await.unwrap()
    }

    /// Another store on the same database: a replica.
    pub async fn replica(&self) -> Store {
        Store::open(self.config.clone()).await.unwrap()
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.config.data_dir);
    }
}

/// Each function runs as a test on both databases.
macro_rules! on_both {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                super::$name(crate::bed::Bed::sqlite().await).await;
            })*
        }
        mod postgres {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $name() {
                if let Some(bed) = crate::bed::Bed::postgres().await {
                    super::$name(bed).await;
                }
            })*
        }
    };
}
pub(crate) use on_both;

pub const ORG: &str = "org_a";

pub fn reach() -> Reach {
    Reach::user("usr_a")
}

pub fn space() -> Space {
    Space::of("shelf", "books")
}

pub fn key(id: &str) -> Key {
    Key::new(&reach(), &space(), id)
}

pub fn draft(body: &str) -> Draft {
    Draft { body: body.into(), ..Draft::default() }
}

pub fn indexed(body: &str, index: &[(&str, &str)]) -> Draft {
    Draft { index: index.iter().map(|(f, v)| ((*f).into(), (*v).into())).collect(), ..draft(body) }
}

pub fn unit(writes: Vec<Write>) -> Unit {
    Unit { organization: ORG.into(), writes, ..Unit::default() }
}

pub fn insert(id: &str, body: &str) -> Write {
    Write::Insert { key: key(id), draft: draft(body) }
}

pub fn number(row: &charter_kernel::unit::Row, field: &str) -> i64 {
    serde_json::from_str::<serde_json::Value>(&row.body).unwrap()[field].as_i64().unwrap()
}

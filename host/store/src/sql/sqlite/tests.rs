//! Long reads of several organizations on one database: whose turn comes, and how many wait.

use charter_kernel::time::{Clock, Instant};
use charter_kernel::unit::{Draft, Fact, FactKind, Key, Reach, Space, Unit, Write};
use futures::FutureExt as _;

use super::super::seats::WAITING_MAX;
use super::*;
use crate::error::ReadError;
use crate::sql::query;
use crate::{Store, StoreConfig};

struct Still;

impl Clock for Still {
    fn now(&self) -> Instant {
        Instant(1_800_000_000_000)
    }
}

/// A store with two places for long reads, in a folder of its own.
async fn open(name: &str) -> (Store, std::path::PathBuf) {
    let folder = std::env::temp_dir().join(format!("charter-{name}-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    let mut config = StoreConfig::new(&folder, Arc::new(Still));
    (config.readers, config.ballast_bytes) = (2, 1024 * 1024);
    (Store::open(config).await.expect("it opens"), folder)
}

fn pool(store: &Store) -> SqlitePool {
    store.inner.readers.of_sqlite().expect("the folder has an embedded database").clone()
}

/// A row, and an audit row of each organization, that are too long to be read in place.
async fn shelve(store: &Store, key: &Key) {
    let body = format!("{{\"text\":\"{}\"}}", "x".repeat(300 << 10));
    for organization in ["flood", "calm"] {
        let fact = Fact {
            id: organization.into(),
            kind: FactKind::Audit,
            organization: organization.into(),
            at: store.now(),
            name: "long.told".into(),
            body: body.clone(),
            private: None,
            user: None,
        };
        let draft = Draft { body: body.clone(), ..Draft::default() };
        let unit = Unit {
            organization: organization.into(),
            writes: vec![Write::Put { key: key.clone(), draft }],
            facts: vec![fact],
            ..Unit::default()
        };
        store.commit(unit).await.expect("it is committed");
    }
}

#[tokio::test]
async fn long_reads_of_one_organization_keep_no_other_waiting_and_only_so_many_of_them_wait() {
    let (store, folder) = open("long-reads").await;
    let key = Key::new(&Reach::user("u"), &Space::of("shelf", "books"), "long");
    shelve(&store, &key).await;
    let pool = pool(&store);
    let _held = pool.0.long.take("flood").await.expect("a place");
    let mut waiting: Vec<_> =
        (0..WAITING_MAX).map(|_| Box::pin(pool.0.long.take("flood"))).collect();
    assert!(waiting.iter_mut().all(|seat| seat.as_mut().now_or_never().is_none()));
    let logs =
        |organization: &'static str| store.facts_before(FactKind::Audit, organization, None, 10);
    let refused = store.begin("flood").get(&key).await;
    assert!(matches!(refused, Err(ReadError::Overloaded)), "{refused:?}");
    let refused = store.reading_for("flood").get(&key).await;
    assert!(matches!(refused, Err(ReadError::Overloaded)), "{refused:?}");
    let refused = logs("flood").await;
    assert!(matches!(refused, Err(ReadError::Overloaded)), "{refused:?}");
    assert!(store.begin("calm").get(&key).await.expect("another's place").is_some());
    assert_eq!(logs("calm").await.expect("another's place").len(), 1);
    let _calm = pool.0.long.take("calm").await.expect("the other place");
    assert!(store.get(&key).await.expect("the host's own place").is_some());
    drop(waiting);
    store.close().await;
    let _ = std::fs::remove_dir_all(folder);
}

#[tokio::test]
async fn a_place_goes_to_who_has_none_before_who_came_first() {
    let (store, folder) = open("next-place").await;
    let pool = pool(&store);
    let _flood = pool.0.long.take("flood").await.expect("a place");
    let calm = pool.0.long.take("calm").await.expect("the other place");
    let mut again = Box::pin(pool.0.long.take("flood"));
    assert!(again.as_mut().now_or_never().is_none());
    let mut new = Box::pin(pool.0.long.take("new"));
    assert!(new.as_mut().now_or_never().is_none());
    drop(calm);
    assert!(new.as_mut().now_or_never().is_some_and(|seat| seat.is_ok()));
    drop(new);
    store.close().await;
    let _ = std::fs::remove_dir_all(folder);
}

async fn count_rows(pool: &SqlitePool) -> i64 {
    let told = pool.rows(query("SELECT count(*) FROM t"), "").await.expect("it is read");
    told[0].try_get(0).expect("a number")
}

/// Whether SQLite can begin the log anew, which any reader from before prevents.
fn begins_log_anew(connection: &SqliteConnection) -> bool {
    let told = connection.rows(&query("PRAGMA wal_checkpoint(RESTART)")).expect("an answer");
    told[0].try_get::<i64>(0).expect("a number") == 0
}

#[tokio::test]
async fn what_a_connection_keeps_is_seen_anew_behind_each_commit_and_is_not_in_the_logs_way() {
    let folder = std::env::temp_dir().join(format!("charter-snapshots-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).expect("a folder");
    let file = folder.join("t.db");
    let open = |words| SqliteConnection::open(&file, words);
    let words = "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0";
    let writer = open(words).and_then(SqliteConnection::tell_readers).expect("a writer");
    writer.run("CREATE TABLE t (n); INSERT INTO t VALUES (1)").expect("it is written");
    let of_readers = file.clone();
    let pool = SqlitePool::new(2, move || SqliteConnection::open(&of_readers, "")).expect("a pool");
    pool.keep_snapshots(true);
    for n in 1..100 {
        assert_eq!(count_rows(&pool).await, n);
        assert_eq!(count_rows(&pool).await, n, "the same, as nothing was committed");
        writer.run("INSERT INTO t VALUES (1)").expect("it is written");
    }
    assert_eq!(count_rows(&pool).await, 100);
    writer.run("INSERT INTO t VALUES (1)").expect("it is written");
    let own = open("PRAGMA busy_timeout = 1").expect("a connection");
    assert!(!begins_log_anew(&own), "nothing was kept, and this test shows nothing");
    pool.keep_snapshots(false);
    assert_eq!(count_rows(&pool).await, 101);
    assert!(begins_log_anew(&own), "a connection that nobody reads from is in the log's way");
    let _ = std::fs::remove_dir_all(&folder);
}

#[tokio::test]
async fn the_log_of_a_store_begins_anew_though_its_rows_are_read_all_the_time() {
    let (store, folder) = open("log-beside-reads").await;
    let key = |n: u32| Key::new(&Reach::user("u"), &Space::of("shelf", "books"), format!("{n}"));
    let body = format!("{{\"text\":\"{}\"}}", "x".repeat(200 << 10));
    // Three logs' worth, of which one is begun anew above sixteen megabytes.
    for n in 0..400 {
        let draft = Draft { body: body.clone(), ..Draft::default() };
        let writes = vec![Write::Put { key: key(n % 10), draft }];
        let unit = Unit { organization: "o".into(), writes, ..Unit::default() };
        store.commit(unit).await.expect("it is committed");
        let found = store.get(&key(n % 10)).await.expect("it is read").expect("it is there");
        assert_eq!(found.version, u64::from(n / 10) + 1, "an answered commit is seen");
    }
    let log = folder.join("charter.db-wal");
    let bytes = std::fs::metadata(log).expect("the log").len();
    assert!(bytes < 60 << 20, "{bytes} bytes were kept by reads that had ended");
    store.close().await;
    let _ = std::fs::remove_dir_all(folder);
}

//! Long reads of several organizations on one database: whose turn comes, and how many wait.

use charter_kernel::time::{Clock, Instant};
use charter_kernel::unit::{Draft, Fact, FactKind, Key, Reach, Space, Unit, Write};
use futures::FutureExt as _;

use super::*;
use crate::error::ReadError;
use crate::sql::Pool;
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
    match &store.inner.readers {
        Pool::Sqlite(pool) => pool.clone(),
        Pool::Postgres(_) => unreachable!("the folder has an embedded database"),
    }
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
    let _held = pool.seat("flood").await.expect("a place");
    let mut waiting: Vec<_> = (0..WAITING_MAX).map(|_| Box::pin(pool.seat("flood"))).collect();
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
    let _calm = pool.seat("calm").await.expect("the other place");
    assert!(store.get(&key).await.expect("the host's own place").is_some());
    drop(waiting);
    store.close().await;
    let _ = std::fs::remove_dir_all(folder);
}

#[tokio::test]
async fn a_place_goes_to_who_has_none_before_who_came_first() {
    let (store, folder) = open("next-place").await;
    let pool = pool(&store);
    let _flood = pool.seat("flood").await.expect("a place");
    let calm = pool.seat("calm").await.expect("the other place");
    let mut again = Box::pin(pool.seat("flood"));
    assert!(again.as_mut().now_or_never().is_none());
    let mut new = Box::pin(pool.seat("new"));
    assert!(new.as_mut().now_or_never().is_none());
    drop(calm);
    assert!(new.as_mut().now_or_never().is_some_and(|seat| seat.is_ok()));
    drop(new);
    store.close().await;
    let _ = std::fs::remove_dir_all(folder);
}

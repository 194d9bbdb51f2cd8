//! A database that refuses, fills up, breaks off and comes back.

use std::time::Duration;

use charter_kernel::unit::{Key, LogKey, Reach, Write};
use charter_store::{CommitError, Query, Store};

use crate::bed::{Bed, draft, insert, key, on_both, reach, server, space, unit};
use crate::proxy::{Cut, Proxy};

on_both!(
    the_unit_that_the_database_refuses_fails_alone,
    a_full_queue_is_said_to_be_full_and_nothing_is_lost,
);

/// A trigger stands for whatever a database may refuse that the rules did not foresee.
async fn refuse_rows_that_say_refuse(bed: &Bed) {
    let trigger = if bed.store.is_shared() {
        "CREATE FUNCTION refuse() RETURNS trigger AS $$ BEGIN RAISE EXCEPTION 'refused'; END $$ LANGUAGE plpgsql; \
         CREATE TRIGGER refuse BEFORE INSERT ON documents FOR EACH ROW WHEN (NEW.body LIKE '%refuse%') \
         EXECUTE FUNCTION refuse()"
    } else {
        "CREATE TRIGGER refuse BEFORE INSERT ON documents WHEN NEW.body LIKE '%refuse%' \
         BEGIN SELECT RAISE(ABORT, 'refused'); END"
    };
    bed.run(trigger).await;
}

async fn the_unit_that_the_database_refuses_fails_alone(bed: Bed) {
    refuse_rows_that_say_refuse(&bed).await;
    let units = (0..100).map(|n| {
        let body = if n % 33 == 5 { r#""refuse""# } else { "{}" };
        bed.store.commit(unit(vec![insert(&n.to_string(), body)]))
    });
    for (n, answer) in futures::future::join_all(units).await.into_iter().enumerate() {
        match n % 33 {
            5 => assert_eq!(answer, Err(CommitError::Failed)),
            _ => assert!(answer.is_ok(), "{n}: {answer:?}"),
        }
    }
    assert_eq!(bed.store.count(&Query::all(&reach(), &space())).await.unwrap(), 97);
}

async fn a_full_queue_is_said_to_be_full_and_nothing_is_lost(bed: Bed) {
    let (mut config, _clock) = crate::bed::config(if bed.store.is_shared() {
        server().unwrap().database()
    } else {
        String::new()
    });
    config.queue_units_max = 8;
    config.lanes = 1;
    let store = Store::open(config).await.unwrap();
    let answers = futures::future::join_all(
        (0..200).map(|n| store.commit(unit(vec![insert(&n.to_string(), "{}")]))),
    )
    .await;
    let accepted = answers.iter().filter(|answer| answer.is_ok()).count() as u64;
    let full = answers
        .iter()
        .filter(|answer| matches!(answer, Err(CommitError::Overloaded { retry_after_s: 1.. })))
        .count();
    assert!(full > 0 && accepted > 0);
    assert_eq!(accepted as usize + full, 200);
    assert_eq!(store.count(&Query::all(&reach(), &space())).await.unwrap(), accepted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_disk_refuses_mutations_until_there_is_room_again() {
    let (mut config, _clock) = crate::bed::config(String::new());
    config.size_bytes_max = Some(4 * 1024 * 1024);
    let store = Store::open(config.clone()).await.unwrap();
    let large = format!("\"{}\"", "x".repeat(200_000));
    let mut kept = Vec::new();
    let reason = loop {
        match store.commit(unit(vec![insert(&kept.len().to_string(), &large)])).await {
            Ok(_) => kept.push(key(&kept.len().to_string())),
            Err(CommitError::ReadOnly { reason }) => break reason,
            Err(other) => panic!("{other:?}"),
        }
        assert!(kept.len() < 100, "the disk never filled");
    };
    assert_eq!(reason, "the disk is full");
    assert_eq!(store.status().read_only.as_deref(), Some("the disk is full"));
    assert!(!config.data_dir.join("charter.ballast").exists(), "the ballast is freed");
    assert!(matches!(
        store.commit(unit(vec![insert("small", "{}")])).await,
        Err(CommitError::ReadOnly { .. })
    ));
    assert_eq!(
        store.count(&Query::all(&reach(), &space())).await.unwrap(),
        kept.len() as u64,
        "all that was answered is there"
    );
    // A unit that settles an effect is still taken; here it also makes room.
    let free = kept.iter().map(|key| Write::Remove { key: key.clone(), expected: None });
    store.commit_settling(unit(free.collect())).await.unwrap();
    let mut tries = 0;
    while let Err(error) = store.commit(unit(vec![insert("small", "{}")])).await {
        assert!(matches!(error, CommitError::ReadOnly { .. }));
        tries += 1;
        assert!(tries < 200, "the store stays read-only");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(config.data_dir.join("charter.ballast").exists(), "the ballast is back");
    let _ = std::fs::remove_dir_all(&config.data_dir);
}

/// SQLite begins its log anew only when nobody reads from before.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_reader_keeps_no_write_waiting_and_the_log_is_cut_behind_it() {
    // Half of the time that a statement waits for SQLite's one writer.
    const PATIENCE: Duration = Duration::from_secs(5);
    let bed = Bed::sqlite().await;
    bed.store.commit(unit(vec![insert("before", "{}")])).await.unwrap();
    let mut reader = bed.store.snapshot().await.unwrap();
    assert_eq!(reader.scan(&space(), None, 10).await.unwrap().len(), 1);
    let log = bed.config.data_dir.join("charter.db-wal");
    let bytes = || std::fs::metadata(&log).unwrap().len();
    let large = vec![7; 16 * 1024 * 1024];
    for n in 0..10 {
        let digest = format!("sha256:{n}");
        let put = bed.store.blob_put(&digest, &large);
        tokio::time::timeout(PATIENCE, put).await.expect("a write waits for a reader").unwrap();
    }
    assert!(bytes() > 128 * 1024 * 1024);
    // Several looks at the log go by meanwhile.
    let begun = std::time::Instant::now();
    let mut written = 0_u64;
    while begun.elapsed() < Duration::from_secs(1) {
        let commit = bed.store.commit(unit(vec![insert(&written.to_string(), "{}")]));
        tokio::time::timeout(PATIENCE, commit).await.expect("a write waits for a reader").unwrap();
        written += 1;
    }
    assert_eq!(reader.scan(&space(), None, 10).await.unwrap().len(), 1, "its moment stays");
    drop(reader);
    let cut = async {
        while bytes() > 0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), cut).await.expect("the log is never cut");
    assert_eq!(bed.store.count(&Query::all(&reach(), &space())).await.unwrap(), written + 1);
}

/// Connections are cut at every moment of a batch, COMMIT included: an answer is true, whatever the
/// connection went through.
#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_is_cut_in_mid_commit_costs_nobody_an_answer() {
    let Some(bed) = Bed::postgres().await else { return };
    let cutter = sqlx::PgPool::connect(&bed.config.url).await.unwrap();
    let done = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let cutting = {
        let done = done.clone();
        tokio::spawn(async move {
            let mut cuts = 0_u64;
            while !done.load(std::sync::atomic::Ordering::SeqCst) {
                let cut = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = current_database() \
                           AND pid <> pg_backend_pid() AND (query LIKE 'COMMIT%' OR query LIKE 'WITH%' OR query LIKE 'BEGIN%')";
                let hit: i64 = sqlx::query_scalar(cut).fetch_one(&cutter).await.unwrap();
                cuts += hit as u64;
                tokio::time::sleep(Duration::from_millis(15)).await;
            }
            cuts
        })
    };
    let writers = (0..8).map(|w| {
        let store = bed.store.clone();
        tokio::spawn(async move {
            let mut answered = Vec::new();
            for n in 0..60 {
                let organization = format!("org-{w}");
                let key =
                    Key::new(&Reach::organization(&organization), &space(), format!("{n:03}"));
                let write = Write::Insert { key: key.clone(), draft: draft("{}") };
                let unit = charter_kernel::unit::Unit {
                    organization,
                    writes: vec![write],
                    ..Default::default()
                };
                answered.push((key, store.commit(unit).await));
            }
            answered
        })
    });
    let mut answered = Vec::new();
    for writer in writers.collect::<Vec<_>>() {
        answered.extend(writer.await.unwrap());
    }
    done.store(true, std::sync::atomic::Ordering::SeqCst);
    assert!(cutting.await.unwrap() > 0, "nothing was cut");
    let fresh = bed.replica().await;
    for (key, answer) in answered {
        let there = fresh.get(&key).await.unwrap();
        match answer {
            Ok(_) => assert!(there.is_some(), "an answered unit is gone"),
            // The insert of a commit in doubt that was taken for lost would come back as "exists".
            Err(CommitError::ReadOnly { .. }) => {
                assert!(there.is_none(), "a refused unit is there")
            }
            Err(other) => panic!("{other:?}"),
        }
    }
}

/// The sequencer commits too; it is cut as well, and numbers the facts all the same.
#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_answer_is_lost_is_asked_after() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(&server.database()).await;
    let (mut config, _clock) = crate::bed::config(proxy.url());
    config.lanes = 1;
    config.answer_ms_max = 400;
    let store = Store::open(config).await.unwrap();
    for (n, cut) in
        [Cut::After, Cut::Before, Cut::Silence, Cut::Nothing, Cut::Before].into_iter().enumerate()
    {
        let mut tries = 0;
        loop {
            // The sequencer's look may come first and take the cut.
            proxy.arm(cut);
            let id = format!("{n}-{tries}");
            let applied = store.commit(unit(vec![insert(&id, "{}")])).await.unwrap();
            assert_eq!(applied.versions, vec![(key(&id), 1)]);
            assert!(store.get(&key(&id)).await.unwrap().is_some());
            tries += 1;
            if tries == 5 {
                break;
            }
        }
        assert!(proxy.is_spent());
    }
    assert_eq!(store.count(&Query::all(&reach(), &space())).await.unwrap(), 25);
    // A component's bytes go beside the committer: they wait no longer, and are whole when they are
    // put again.
    for _ in 0..5 {
        proxy.arm(Cut::Silence);
        let _ = store.blob_put("digest", b"bytes").await;
        store.blob_remove("digest").await.unwrap();
    }
    proxy.arm(Cut::Nothing);
    store.blob_put("digest", b"bytes").await.unwrap();
    assert_eq!(store.blob_get("digest").await.unwrap().as_deref(), Some(&b"bytes"[..]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_database_that_restarts_is_waited_for() {
    let Ok(own) = crate::postgres::Postgres::start("restart") else {
        server();
        return;
    };
    let own = std::sync::Arc::new(own);
    let (config, _clock) = crate::bed::config(own.database());
    let store = Store::open(config).await.unwrap();
    store.commit(unit(vec![insert("before", "{}")])).await.unwrap();
    let restarting = {
        let own = own.clone();
        tokio::task::spawn_blocking(move || own.crash_and_restart())
    };
    let mut n = 0;
    let mut answered = Vec::new();
    while !restarting.is_finished() || n < 20 {
        let id = format!("during-{n}");
        match store.commit(unit(vec![insert(&id, "{}")])).await {
            Ok(_) => answered.push(id),
            Err(CommitError::ReadOnly { .. }) => {}
            Err(other) => panic!("{other:?}"),
        }
        n += 1;
    }
    restarting.await.unwrap();
    assert!(!answered.is_empty());
    for id in answered {
        assert!(store.get(&key(&id)).await.unwrap().is_some());
    }
}

/// PostgreSQL works on a statement until it is done, whoever has left meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn reads_that_nobody_waits_for_any_more_are_in_nobody_elses_way() {
    let Some(bed) = Bed::postgres().await else { return };
    let log = LogKey { reach: reach(), log: "shelf.history".into() };
    let (hog, other) = (bed.store.reading_for("hog"), bed.store.reading_for("other"));
    let given_up =
        async || tokio::time::timeout(Duration::from_millis(5), hog.log_head(&log)).await;
    // No read of a log ends once the lock is taken.
    let slow = bed.run("BEGIN; LOCK TABLE logs IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(8)");
    let others = async {
        let mut left = 0;
        while left < 100 {
            left += usize::from(given_up().await.is_err());
        }
        other.get(&key("a")).await.unwrap();
    };
    tokio::select! {
        () = slow => panic!("it waits for reads that nobody waits for"),
        () = others => {}
    }
}

//! Sealing, blobs, backup and restore, opening.

use std::os::unix::fs::PermissionsExt;
use std::pin::pin;
use std::task::Poll;

use charter_kernel::governance::hold;
use charter_kernel::unit::{Claim, Draft, FactKind, Guard, Key, LogKey, Reach, Space, Unit, Write};
use charter_store::{
    BackupError, OpenError, Query, RotateError, Rotation, SealError, Store, StoreConfig,
};

use sha2::{Digest as _, Sha256};

use crate::bed::{Bed, ORG, config, draft, folder, indexed, key, on_both, reach, space, unit};

on_both!(
    a_sealed_value_opens_only_where_it_belongs,
    the_master_key_is_rotated_under_sealed_values,
    rotations_that_break_off_are_gone_on_with_and_lose_no_key,
    a_key_stays_in_the_file_while_a_data_key_is_under_it,
    a_process_makes_no_data_key_under_a_master_key_that_another_has_replaced,
    a_rotation_that_breaks_off_at_its_very_end_is_gone_on_with,
    bytes_are_kept_in_parts,
    a_backup_restores_to_either_database,
    a_torn_backup_and_a_full_target_are_refused,
    a_newer_schema_is_refused_in_plain_words,
    looking_changes_nothing_and_makes_nothing,
    holds_of_an_older_schema_are_where_they_are_looked_for,
    a_missing_key_file_is_not_made_for_a_database_that_is_sealed,
    a_restore_that_fails_leaves_nothing,
);

async fn a_sealed_value_opens_only_where_it_belongs(bed: Bed) {
    let sealed = bed.store.seal(ORG, "secrets/a", b"hush").await.unwrap();
    assert!(!sealed.windows(4).any(|part| part == b"hush"));
    assert_ne!(
        sealed,
        bed.store.seal(ORG, "secrets/a", b"hush").await.unwrap(),
        "equal values do not look equal"
    );
    assert_eq!(bed.store.unseal(ORG, "secrets/a", &sealed).await.unwrap(), b"hush");
    for (organization, context) in [(ORG, "secrets/b"), ("org_b", "secrets/a")] {
        assert!(matches!(
            bed.store.unseal(organization, context, &sealed).await,
            Err(SealError::Broken)
        ));
    }
    let mut changed = sealed.clone();
    *changed.last_mut().unwrap() ^= 1;
    assert!(matches!(bed.store.unseal(ORG, "secrets/a", &changed).await, Err(SealError::Broken)));
    assert!(matches!(bed.store.unseal(ORG, "secrets/a", b"").await, Err(SealError::Broken)));
    let file = bed.config.data_dir.join("master.key");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_ne!(bed.store.derive("cursors"), bed.store.derive("code cache"));
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
    match Store::open(bed.config.clone()).await {
        Err(OpenError::Configuration(why)) => assert!(why.contains("chmod 600"), "{why}"),
        other => panic!("{other:?}"),
    }
    // Another deployment's key does not quietly start a new life on this database.
    std::fs::remove_file(&file).unwrap();
    match Store::open(bed.config.clone()).await {
        Err(OpenError::Configuration(why)) => assert!(why.contains("key file"), "{why}"),
        other => panic!("{other:?}"),
    }
}

async fn the_master_key_is_rotated_under_sealed_values(bed: Bed) {
    let organizations = ["a", "b", "c"];
    let mut sealed = Vec::new();
    for organization in organizations {
        sealed.push(bed.store.seal(organization, "x", organization.as_bytes()).await.unwrap());
    }
    let derived = bed.store.derive("cursors");
    let other = if bed.store.is_shared() { bed.replica().await } else { bed.store.clone() };
    let before = std::fs::read_to_string(bed.config.data_dir.join("master.key")).unwrap();
    assert_eq!(
        bed.store.rotate_master().await.unwrap(),
        Rotation { resumed: false, data_keys: 4 },
        "three organizations and the deployment"
    );
    assert_ne!(std::fs::read_to_string(bed.config.data_dir.join("master.key")).unwrap(), before);
    assert_eq!(bed.store.rotate_master().await.unwrap(), Rotation { resumed: false, data_keys: 4 });
    let again = if bed.store.is_shared() { bed.replica().await } else { bed.store.clone() };
    for store in [&bed.store, &other, &again] {
        for (organization, sealed) in organizations.iter().zip(&sealed) {
            assert_eq!(
                store.unseal(organization, "x", sealed).await.unwrap(),
                organization.as_bytes()
            );
        }
        assert_eq!(store.derive("cursors"), derived);
    }
}

/// Each organization's row of its data key, and the deployment's.
async fn data_keys(store: &Store) -> Vec<(Key, String)> {
    let all = Query::all(&Reach::deployment(), &Space::host("data_keys")).limit(100);
    let page = store.find(&all).await.unwrap();
    page.items.into_iter().map(|(key, row)| (key, row.body)).collect()
}

/// Rotates until so many data keys are no longer as they were, and gives up there.
async fn break_off(store: &Store, were: &[(Key, String)], after: usize) {
    let mut rotation = pin!(store.rotate_master());
    loop {
        let step = std::future::poll_fn(|context| Poll::Ready(rotation.as_mut().poll(context)));
        if let Poll::Ready(ended) = step.await {
            panic!("it has ended: {ended:?}");
        }
        let now = data_keys(store).await;
        if now.iter().zip(were).filter(|(now, was)| now != was).count() >= after {
            break;
        }
        tokio::task::yield_now().await;
    }
    match store.rotate_master().await {
        Err(RotateError::Refused(why)) => assert!(why.contains("another rotation"), "{why}"),
        other => panic!("two rotated at once: {other:?}"),
    }
}

async fn rotations_that_break_off_are_gone_on_with_and_lose_no_key(bed: Bed) {
    let organizations: Vec<String> = (0..40).map(|n| format!("org_{n:02}")).collect();
    let mut sealed = Vec::new();
    for organization in &organizations {
        sealed.push(bed.store.seal(organization, "x", organization.as_bytes()).await.unwrap());
    }
    let (derived, were) = (bed.store.derive("cursors"), data_keys(&bed.store).await);
    let keys = || -> Vec<String> {
        let text = std::fs::read_to_string(bed.config.data_dir.join("master.key")).unwrap();
        text.lines().map(str::to_owned).collect()
    };
    let first = keys();
    let mut store = bed.store.clone();
    let mut begun = None;
    for after in [1, 9, 17] {
        break_off(&store, &were, after).await;
        store.close().await;
        store = bed.replica().await;
        assert_eq!(keys().last(), first.last());
        assert_eq!(*begun.get_or_insert_with(keys), keys(), "another key was made");
    }
    assert_eq!(
        store.rotate_master().await.unwrap(),
        Rotation { resumed: true, data_keys: 41 },
        "it goes on with the key that was made first"
    );
    assert_eq!(Some(keys()), begun);
    assert!(data_keys(&store).await.iter().zip(&were).all(|(now, was)| now.1 != was.1));
    assert_eq!(store.rotate_master().await.unwrap(), Rotation { resumed: false, data_keys: 41 });
    assert_eq!((keys().len(), &keys()[1]), (2, &begun.unwrap()[0]));
    store.close().await;
    let store = bed.replica().await;
    for (organization, sealed) in organizations.iter().zip(&sealed) {
        assert_eq!(store.unseal(organization, "x", sealed).await.unwrap(), organization.as_bytes());
    }
    assert_eq!(store.derive("cursors"), derived);
    store.close().await;
}

async fn a_process_makes_no_data_key_under_a_master_key_that_another_has_replaced(bed: Bed) {
    if !bed.store.is_shared() {
        return;
    }
    let mut sealed = Vec::new();
    for round in 0..3 {
        let organization = format!("org_{round}");
        sealed.push((
            organization.clone(),
            bed.store.seal(&organization, "x", b"hush").await.unwrap(),
        ));
        // Another process rotates twice: the key that this one has begun with leaves the file.
        let other = bed.replica().await;
        for _ in 0..2 {
            other.rotate_master().await.unwrap();
        }
        other.close().await;
    }
    let fresh = bed.replica().await;
    for (organization, sealed) in sealed {
        assert_eq!(fresh.unseal(&organization, "x", &sealed).await.unwrap(), b"hush");
    }
    fresh.close().await;
}

async fn a_rotation_that_breaks_off_at_its_very_end_is_gone_on_with(bed: Bed) {
    bed.store.seal("b", "x", b"hush").await.unwrap();
    bed.store.rotate_master().await.unwrap();
    // As one leaves it that ends behind its last data key, and before it says so.
    let key = Key::new(&Reach::deployment(), &Space::host("master_key"), "-");
    let mark = bed.store.get(&key).await.unwrap().unwrap().body;
    let body = mark.replace(r#""ended":true"#, r#""ended":false"#);
    assert_ne!(body, mark);
    let writes = vec![Write::Put { key, draft: draft(&body) }];
    bed.store.commit(Unit { writes, ..Unit::default() }).await.unwrap();
    let keys = || std::fs::read_to_string(bed.config.data_dir.join("master.key")).unwrap();
    let begun = keys();
    assert_eq!(bed.store.rotate_master().await.unwrap(), Rotation { resumed: true, data_keys: 2 });
    assert_eq!(keys(), begun);
    assert_eq!(bed.store.rotate_master().await.unwrap(), Rotation { resumed: false, data_keys: 2 });
}

async fn a_key_stays_in_the_file_while_a_data_key_is_under_it(bed: Bed) {
    let sealed = bed.store.seal("b", "x", b"hush").await.unwrap();
    bed.store.seal("c", "x", b"hush").await.unwrap();
    let file = bed.config.data_dir.join("master.key");
    let read = || std::fs::read_to_string(&file).unwrap();
    let oldest = read();
    let were = data_keys(&bed.store).await;
    for _ in 0..2 {
        bed.store.rotate_master().await.unwrap();
    }
    // As a replica leaves it that knows of neither.
    let (key, body) = were.into_iter().find(|(key, _)| key.id == "b").unwrap();
    let write = Write::Put { key, draft: draft(&body) };
    let old = Unit { organization: "b".into(), writes: vec![write], ..Unit::default() };
    bed.store.commit(old).await.unwrap();
    let (kept, left) = (read(), data_keys(&bed.store).await);
    for _ in 0..3 {
        match bed.store.rotate_master().await {
            Err(RotateError::Refused(why)) => {
                assert!(why.contains("1 data keys") && why.contains("that of b"), "{why}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!((read(), data_keys(&bed.store).await), (kept.clone(), left.clone()));
    }
    // With its key in the file again, below more of them than a rotation leaves.
    std::fs::write(&file, format!("{kept}{oldest}")).unwrap();
    assert_eq!(bed.store.rotate_master().await.unwrap(), Rotation { resumed: false, data_keys: 3 });
    let lines = |text: &str| text.lines().map(str::to_owned).collect::<Vec<_>>();
    let left = lines(&read());
    assert_eq!(
        (left.len(), &left[1]),
        (2, &lines(&kept)[0]),
        "nothing is under the oldest any more"
    );
    bed.store.close().await;
    let store = bed.replica().await;
    assert_eq!(store.unseal("b", "x", &sealed).await.unwrap(), b"hush");
    store.close().await;
}

async fn bytes_are_kept_in_parts(bed: Bed) {
    let bytes: Vec<u8> = (0..3_500_000_u32).map(|n| (n % 251) as u8).collect();
    bed.store.blob_put("sha256:x", &bytes).await.unwrap();
    bed.store.blob_put("sha256:x", &bytes).await.unwrap();
    assert!(bed.store.blob_exists("sha256:x").await.unwrap());
    assert_eq!(bed.store.blob_get("sha256:x").await.unwrap(), Some(bytes));
    assert!(bed.store.blob_remove("sha256:x").await.unwrap());
    assert!(!bed.store.blob_remove("sha256:x").await.unwrap());
    assert_eq!(bed.store.blob_get("sha256:x").await.unwrap(), None);
}

/// Something of everything.
async fn furnish(store: &Store) {
    let text = charter_kernel::unit::Draft {
        text: Some("quick brown fox".into()),
        unique: vec![("isbn".into(), "1".into())],
        lease: Some(("q".into(), store.now())),
        ..indexed("{\"n\":1}", &[("color", "red")])
    };
    let log = LogKey { reach: reach(), log: "shelf.history".into() };
    let fact = charter_kernel::unit::Fact {
        id: "f".into(),
        kind: FactKind::Audit,
        organization: ORG.into(),
        at: store.now(),
        name: "book.put".into(),
        body: "{}".into(),
        private: Some("{}".into()),
        user: Some("u".into()),
    };
    let mut all = unit(vec![
        Write::Insert { key: key("a"), draft: text },
        Write::Claim { claim: Claim::name("domain", "example.org"), holder: key("a") },
        Write::Append { log, name: "put".into(), payload: "{}".into() },
    ]);
    all.facts.push(fact);
    all.writes.extend((0..450).map(|n| Write::Insert {
        key: key(&format!("row-{n:04}")),
        draft: draft("{\"日本\":\"\\u0000\"}"),
    }));
    store.commit(all).await.unwrap();
    store.blob_put("sha256:x", &vec![7; 2_500_000]).await.unwrap();
    store.commit(unit(vec![])).await.unwrap();
}

async fn check(store: &Store, sealed: &[u8]) {
    assert_eq!(store.get(&key("a")).await.unwrap().unwrap().body, "{\"n\":1}");
    assert_eq!(store.count(&Query::all(&reach(), &space())).await.unwrap(), 451);
    assert_eq!(
        store.count(&Query::all(&reach(), &space()).equal("color", "red")).await.unwrap(),
        1
    );
    assert_eq!(store.search(&reach(), &space(), "fox", 5).await.unwrap().len(), 1);
    assert_eq!(store.lookup(&Claim::name("domain", "example.org")).await.unwrap(), Some(key("a")));
    assert_eq!(store.standing(&reach(), &space(), "q").await.unwrap().ready, 1);
    assert_eq!(store.blob_get("sha256:x").await.unwrap().map(|bytes| bytes.len()), Some(2_500_000));
    assert_eq!(store.unseal(ORG, "x", sealed).await.unwrap(), b"hush");
    let mut changed = store.facts_changes(FactKind::Audit, ORG);
    while store.facts(FactKind::Audit, ORG, 0, 5).await.unwrap().len() != 1 {
        changed.wait().await;
    }
    // And it goes on: what was read before the backup still guards, numbers go on.
    let log = LogKey { reach: reach(), log: "shelf.history".into() };
    let append = Write::Append { log, name: "put".into(), payload: "{}".into() };
    let applied = store
        .commit(unit(vec![append, Write::Put { key: key("a"), draft: draft("{}") }]))
        .await
        .unwrap();
    assert_eq!((applied.sequences, applied.versions), (vec![2], vec![(key("a"), 2)]));
}

async fn a_backup_restores_to_either_database(bed: Bed) {
    furnish(&bed.store).await;
    let sealed = bed.store.seal(ORG, "x", b"hush").await.unwrap();
    let file = bed.config.data_dir.join("backup");
    bed.store.backup(&file).await.unwrap();
    let mut targets = vec![String::new()];
    targets.extend(crate::bed::server().map(|server| server.database()));
    for url in targets {
        let (mut target, _clock) = config(url);
        target.key_file = Some(bed.config.data_dir.join("master.key"));
        Store::restore(target.clone(), &file, None).await.unwrap();
        let store = Store::open(target.clone()).await.unwrap();
        check(&store, &sealed).await;
        store.close().await;
        let _ = std::fs::remove_dir_all(&target.data_dir);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_backups_to_one_name_one_is_written_and_the_other_refused() {
    let bed = Bed::sqlite().await;
    furnish(&bed.store).await;
    let file = bed.config.data_dir.join("backup");
    let unfinished = bed.config.data_dir.join("backup.unfinished");
    let another = std::fs::File::create(&unfinished).unwrap();
    another.lock().unwrap();
    let refused = bed.store.backup(&file).await.unwrap_err().to_string();
    assert!(refused.contains("another backup"), "{refused}");
    assert!(unfinished.exists() && !file.exists(), "what the other writes stays");
    drop(another);
    bed.store.backup(&file).await.unwrap();
    assert!(file.exists() && !unfinished.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn backups_to_names_alike_do_not_meet() {
    let bed = Bed::sqlite().await;
    furnish(&bed.store).await;
    let file = |name: &str| bed.config.data_dir.join(name);
    std::fs::write(file("backup.unfinished"), b"another's").unwrap();
    let (mine, other) = (file("backup.mine"), file("backup.other"));
    let (first, second) = tokio::join!(bed.store.backup(&mine), bed.store.backup(&other));
    assert_eq!(first.unwrap(), second.unwrap());
    assert_eq!(std::fs::read(file("backup.unfinished")).unwrap(), b"another's");
    for from in [mine, other] {
        let (mut target, _clock) = config(String::new());
        target.key_file = Some(file("master.key"));
        Store::restore(target.clone(), &from, None).await.unwrap();
        let _ = std::fs::remove_dir_all(&target.data_dir);
    }
}

async fn a_torn_backup_and_a_full_target_are_refused(bed: Bed) {
    furnish(&bed.store).await;
    let file = folder().join("backup");
    bed.store.backup(&file).await.unwrap();
    let why = |result: Result<u64, BackupError>| match result {
        Err(BackupError::Refused(why)) => why,
        other => panic!("{other:?}"),
    };
    assert!(
        why(Store::restore(bed.config.clone(), &file, None).await).contains("already holds data")
    );
    let whole = std::fs::read(&file).unwrap();
    let (target, _clock) = config(String::new());
    for torn in [whole[..whole.len() / 2].to_vec(), whole[..whole.len() - 1].to_vec(), {
        let mut flipped = whole.clone();
        let at = flipped.len() / 2;
        flipped[at] = if flipped[at] == b'a' { b'b' } else { b'a' };
        flipped
    }] {
        std::fs::write(&file, torn).unwrap();
        why(Store::restore(target.clone(), &file, None).await);
    }
    std::fs::write(&file, b"{}\n").unwrap();
    assert!(Store::restore(target.clone(), &file, None).await.is_err());
    for (schema, says) in [("99", "newer version"), ("4", "the version that made it")] {
        std::fs::write(&file, format!("{{\"header\":{{\"format\":1,\"schema\":{schema}}}}}\n"))
            .unwrap();
        let refused = why(Store::restore(target.clone(), &file, None).await);
        assert!(refused.contains(says), "{refused}");
    }
    // Rows of an earlier schema come up to date with it, and not beside a later one.
    Store::open(target.clone()).await.unwrap().close().await;
    let header = "{\"header\":{\"format\":1,\"schema\":5}}\n";
    let digest: String = Sha256::digest(header).iter().map(|byte| format!("{byte:02x}")).collect();
    let trailer = format!("{{\"trailer\":{{\"rows\":0,\"sha256\":\"{digest}\"}}}}\n");
    std::fs::write(&file, header.to_owned() + &trailer).unwrap();
    let refused = why(Store::restore(target, &file, None).await);
    assert!(refused.contains("no version has started on"), "{refused}");
}

async fn a_newer_schema_is_refused_in_plain_words(bed: Bed) {
    bed.store.close().await;
    bed.run("INSERT INTO migrations (number, name, digest) VALUES (99, 'later', 'x')").await;
    match Store::open(bed.config.clone()).await {
        Err(OpenError::Configuration(why)) => {
            assert!(why.contains("schema 99") && why.contains("newer"), "{why}")
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn an_embedded_database_is_held_by_one() {
    let (config, _clock) = config(String::new());
    let held = Store::hold(&config).unwrap();
    match Store::hold(&config) {
        Err(OpenError::Held(place)) => assert_eq!(place, config.data_dir.display().to_string()),
        other => panic!("{other:?}"),
    }
    drop(held);
    Store::hold(&config).unwrap();
    let _ = std::fs::remove_dir_all(&config.data_dir);
}

async fn looking_changes_nothing_and_makes_nothing(bed: Bed) {
    furnish(&bed.store).await;
    let looking = Store::look(bed.config.clone()).await.unwrap();
    assert_eq!(looking.get(&key("a")).await.unwrap().unwrap().body, "{\"n\":1}");
    assert!(looking.status().read_only.is_some());
    assert!(
        looking.commit(unit(vec![Write::Put { key: key("a"), draft: draft("{}") }])).await.is_err()
    );
    let file = bed.config.data_dir.join("backup");
    let rows = looking.backup(&file).await.unwrap();
    assert_eq!(std::fs::read_to_string(&file).unwrap().matches("{\"row\":").count() as u64, rows);
    looking.close().await;
    // A schema of another version is left as it is.
    bed.run("DELETE FROM migrations WHERE number > 1").await;
    match Store::look(bed.config.clone()).await {
        Err(OpenError::Configuration(why)) => assert!(why.contains("schema 1"), "{why}"),
        other => panic!("{other:?}"),
    }
    let mut nowhere = config(String::new()).0;
    nowhere.data_dir.push("typo");
    assert!(matches!(Store::look(nowhere.clone()).await, Err(OpenError::Absent(_))));
    assert!(!nowhere.data_dir.exists(), "something was made");
}

async fn holds_of_an_older_schema_are_where_they_are_looked_for(bed: Bed) {
    let log = LogKey { reach: reach(), log: "held".into() };
    let told = Write::Append { log: log.clone(), name: "put".into(), payload: "{}".into() };
    bed.store.commit(unit(vec![told])).await.unwrap();
    bed.store.close().await;
    bed.run(
        "ALTER TABLE documents ADD COLUMN was BIGINT NOT NULL DEFAULT 0;
         DELETE FROM migrations WHERE number >= 5;
         INSERT INTO documents (reach, space, id, organization, user_id, body, entries, lease_group, version, stamp, was, created_at, \
             updated_at, due_at, lease_count) VALUES
             ('u/usr_a', 'host.holds', 'open', 'org_a', 'usr_a', '{\"n\":1}', \
              '{\"index\":[[\"found\",\"org_a held\"],[\"reference\",\"org_a open\"],[\"state\",\"held\"]]}', 'open', 1, 7, 6, 1, 1, 5, 0),
             ('u/usr_a', 'host.holds', 'over', 'org_a', 'usr_a', '{\"n\":2}', \
              '{\"index\":[[\"found\",\"org_a captured\"],[\"reference\",\"org_a over\"],[\"state\",\"captured\"]]}', 'ended', 2, 8, 7, 1, 1, 5, 0);
         INSERT INTO document_index (reach, space, field, value, id) VALUES
             ('u/usr_a', 'host.holds', 'found', 'org_a held', 'open'), ('u/usr_a', 'host.holds', 'reference', 'org_a open', 'open'),
             ('u/usr_a', 'host.holds', 'state', 'held', 'open'), ('u/usr_a', 'host.holds', 'found', 'org_a captured', 'over'),
             ('u/usr_a', 'host.holds', 'reference', 'org_a over', 'over'), ('u/usr_a', 'host.holds', 'state', 'captured', 'over');
         INSERT INTO revisions (reach, space, revision, was) VALUES ('u/usr_a', 'host.holds', 8, 7);
         INSERT INTO group_sizes (reach, space, lease_group, total) VALUES ('u/usr_a', 'host.holds', 'open', 1);",
    )
    .await;
    let store = bed.replica().await;
    let (open, over) = (hold::key(ORG, "open"), hold::key(ORG, "over"));
    let found = store.get(&open).await.unwrap().unwrap();
    assert_eq!(
        (found.index, found.lease.map(|lease| lease.group)),
        (vec![("state".into(), "held".into())], Some("open".into()))
    );
    let found = store.get(&over).await.unwrap().unwrap();
    assert_eq!((found.index, found.lease), (Vec::new(), None));
    assert_eq!(store.log_read(&log, 0, 10).await.unwrap().entries.len(), 1, "logs go on");
    let held = Query::all(&open.reach, &open.space).equal("state", "held").relax();
    assert_eq!(store.find(&held).await.unwrap().items.len(), 1);
    // And a step of it is taken.
    let guard = Guard::Entry { key: open.clone(), field: "state".into(), value: "held".into() };
    let replaced = Write::Replace {
        key: open.clone(),
        draft: Draft { unleased: true, ..draft("{}") },
        expected: None,
    };
    store.commit(Unit { guards: vec![guard], ..unit(vec![replaced]) }).await.unwrap();
    assert_eq!(store.find(&held).await.unwrap().items.len(), 0);
    assert_eq!(store.get(&open).await.unwrap().unwrap().lease, None);
    store.close().await;
}

async fn a_missing_key_file_is_not_made_for_a_database_that_is_sealed(bed: Bed) {
    let file = bed.config.data_dir.join("master.key");
    std::fs::rename(&file, bed.config.data_dir.join("elsewhere")).unwrap();
    match Store::open(bed.config.clone()).await {
        Err(OpenError::Configuration(why)) => {
            assert!(why.contains("master.key is missing"), "{why}")
        }
        other => panic!("{other:?}"),
    }
    assert!(!file.exists(), "a key that opens nothing was made");
}

async fn a_restore_that_fails_leaves_nothing(bed: Bed) {
    furnish(&bed.store).await;
    let file = bed.config.data_dir.join("backup");
    bed.store.backup(&file).await.unwrap();
    let mut targets = vec![String::new()];
    targets.extend(crate::bed::server().map(|server| server.database()));
    for url in targets {
        let (mut target, _clock) = config(url);
        let other = target.data_dir.join("other.key");
        let store =
            Store::open(StoreConfig { key_file: Some(other.clone()), ..config(String::new()).0 })
                .await
                .unwrap();
        store.close().await;
        target.key_file = Some(other);
        target.data_dir.push("new");
        match Store::restore(target.clone(), &file, None).await {
            Err(BackupError::Refused(why)) => assert!(why.contains("key file"), "{why}"),
            other => panic!("{other:?}"),
        }
        assert!(!target.data_dir.exists(), "a failed restore left its folder");
        match Store::is_there(&target).await {
            Err(OpenError::Absent(_)) => {}
            other => panic!("a failed restore left a database: {other:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restore_that_was_killed_is_begun_again_and_no_host_starts_on_what_it_left() {
    let bed = Bed::sqlite().await;
    furnish(&bed.store).await;
    let sealed = bed.store.seal(ORG, "x", b"hush").await.unwrap();
    let from = bed.config.data_dir.join("backup");
    bed.store.backup(&from).await.unwrap();
    let (mut target, _clock) = config(String::new());
    target.key_file = Some(bed.config.data_dir.join("master.key"));
    let file = |name: &str| target.data_dir.join(name);
    // It is given up in the middle: nothing of it runs any more, as after a kill.
    let in_the_middle = async {
        while !file("charter.db.restoring").exists() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        ended = Store::restore(target.clone(), &from, None) => panic!("it has ended: {ended:?}"),
        () = in_the_middle => {}
    }
    // A kill leaves more.
    let left = ["charter.db.restoring-wal", "charter.db.restoring-shm", "charter.db.restoring.new"];
    for name in left {
        std::fs::write(file(name), b"half of it").unwrap();
    }
    assert!(!file("charter.db").exists(), "half a database is in the place of a whole one");
    match Store::open(target.clone()).await {
        Err(OpenError::Configuration(why)) => assert!(why.contains("restore the backup"), "{why}"),
        other => panic!("{other:?}"),
    }
    match Store::is_there(&target).await {
        Err(OpenError::Configuration(why)) => assert!(why.contains("restore the backup"), "{why}"),
        other => panic!("a look tells of another fault than a start: {other:?}"),
    }
    assert!(!file("charter.db").exists(), "a new deployment began in its place");
    std::fs::remove_file(file("charter.db.restoring")).unwrap();
    match Store::open(target.clone()).await {
        Err(OpenError::Configuration(why)) => assert!(why.contains("restoring.new"), "{why}"),
        other => panic!("it had just begun: {other:?}"),
    }
    Store::restore(target.clone(), &from, None).await.unwrap();
    assert!(!file("charter.db.restoring").exists());
    assert!(left.iter().all(|name| !file(name).exists()), "what was left is gone");
    let mode = std::fs::metadata(file("charter.db")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let store = Store::open(target.clone()).await.unwrap();
    check(&store, &sealed).await;
    store.close().await;
    let _ = std::fs::remove_dir_all(&target.data_dir);
}

/// SQLite would read the log that stands there into the restored database.
#[tokio::test(flavor = "multi_thread")]
async fn a_restore_leaves_the_log_of_a_database_that_is_gone() {
    let bed = Bed::sqlite().await;
    let from = bed.config.data_dir.join("backup");
    bed.store.backup(&from).await.unwrap();
    let (target, _clock) = config(String::new());
    let log = target.data_dir.join("charter.db-wal");
    std::fs::write(&log, [1_u8; 4096]).unwrap();
    match Store::restore(target.clone(), &from, None).await {
        Err(BackupError::Open(OpenError::Configuration(why))) => {
            assert!(why.contains("beside its log"), "{why}");
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(std::fs::read(&log).unwrap(), [1_u8; 4096], "the log stays for who can save it");
    let _ = std::fs::remove_dir_all(&target.data_dir);
}

#[tokio::test]
async fn what_is_made_is_ours_alone_to_read() {
    let (mut config, _clock) = config(String::new());
    config.data_dir.push("new");
    let mode = |name: &str| {
        std::fs::metadata(config.data_dir.join(name)).unwrap().permissions().mode() & 0o777
    };
    let store = Store::open(config.clone()).await.unwrap();
    assert_eq!(mode(""), 0o700);
    for name in ["charter.db", "charter.db-wal", "charter.db-shm", "charter.ballast", "master.key"]
    {
        assert_eq!(mode(name), 0o600, "{name}");
    }
    store.close().await;
    std::fs::set_permissions(
        config.data_dir.join("charter.db"),
        std::fs::Permissions::from_mode(0o644),
    )
    .unwrap();
    Store::open(config.clone()).await.unwrap().close().await;
    assert_eq!(mode("charter.db"), 0o600, "what an older version made is closed to others");
    let _ = std::fs::remove_dir_all(config.data_dir.parent().unwrap());
}

#[tokio::test]
async fn an_empty_file_is_no_new_deployment() {
    let (config, _clock) = config(String::new());
    std::fs::create_dir_all(&config.data_dir).unwrap();
    let file = config.data_dir.join("charter.db");
    std::fs::write(&file, b"").unwrap();
    // SQLite throws a log away that stands beside an empty file, with all that it holds.
    let log = config.data_dir.join("charter.db-wal");
    for written in [None, Some(vec![1; 4096])] {
        if let Some(written) = &written {
            std::fs::write(&log, written).unwrap();
        }
        match Store::open(config.clone()).await {
            Err(OpenError::Configuration(why)) => {
                assert!(why.contains("is empty") && why.contains("remove the file"), "{why}");
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(std::fs::read(&log).ok(), written, "the log stays for who can save it");
    }
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 0, "nothing was made of it");
    std::fs::remove_file(&file).unwrap();
    match Store::open(config.clone()).await {
        Err(OpenError::Configuration(why)) => assert!(why.contains("beside its log"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert!(log.exists() && !file.exists(), "the log stays, and nothing is made beside it");
    std::fs::remove_file(&log).unwrap();
    Store::open(config.clone()).await.unwrap().close().await;
    Store::open(config.clone()).await.unwrap().close().await;
    let _ = std::fs::remove_dir_all(&config.data_dir);
}

#[tokio::test]
async fn a_first_start_that_was_killed_is_begun_again() {
    let (config, _clock) = config(String::new());
    std::fs::create_dir_all(&config.data_dir).unwrap();
    let file = |name: &str| config.data_dir.join(name);
    // Nothing is in the database's place before it is written elsewhere.
    std::fs::create_dir(file("charter.db.new")).unwrap();
    match Store::open(config.clone()).await {
        Err(OpenError::File { path, .. }) => assert!(path.ends_with("charter.db.new"), "{path}"),
        other => panic!("{other:?}"),
    }
    assert!(!file("charter.db").exists(), "a start that failed left a database");
    std::fs::remove_dir(file("charter.db.new")).unwrap();
    let left = ["charter.db.new", "charter.db.new-journal", "charter.db.new-wal"];
    for name in left {
        std::fs::write(file(name), b"half of it").unwrap();
        std::fs::set_permissions(file(name), std::fs::Permissions::from_mode(0o644)).unwrap();
    }
    Store::open(config.clone()).await.unwrap().close().await;
    assert!(left.iter().all(|name| !file(name).exists()), "what was left is gone");
    let mode = std::fs::metadata(file("charter.db")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600);
    let _ = std::fs::remove_dir_all(&config.data_dir);
}

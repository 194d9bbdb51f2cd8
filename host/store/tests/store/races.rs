//! Many at once: on one row, on rows that do not exist yet, on two committers.

use std::sync::atomic::{AtomicU32, Ordering};

use charter_kernel::time::Instant;
use charter_kernel::unit::{
    Claim, Draft, Guard, Key, LogKey, Reach, Refused, Space, Take, Unit, Write,
};
use charter_store::{CommitError, ReadError, Store, TransactError, WriteError};

use crate::bed::{Bed, ORG, draft, indexed, key, number, on_both, reach, space, unit};

on_both!(
    thirty_two_writers_of_one_row_all_get_their_turn,
    a_row_that_two_committers_want_to_insert_is_inserted_once,
    a_cap_whose_row_is_missing_is_not_overshot_by_two_committers,
    two_units_that_rely_on_the_other_not_writing_do_not_both_commit,
    a_revocation_lands_between_two_batches,
    units_of_many_organizations_commit_side_by_side,
    a_dropped_caller_does_not_cancel_its_unit,
    a_unit_that_another_commits_takes_its_conditions_with_it,
    hand_outs_across_reaches_wait_for_each_other_in_no_circle,
    a_row_is_handed_out_beside_those_who_rely_on_it,
    units_of_every_kind_wait_for_each_other_in_no_circle,
    who_relies_on_a_row_and_writes_another_waits_for_the_reverse_in_no_circle,
    who_looks_up_a_value_and_who_removes_its_row_wait_for_each_other_in_no_circle,
);

/// Two committers: on PostgreSQL two stores.
async fn two(bed: &Bed) -> [Store; 2] {
    if bed.store.is_shared() {
        [bed.store.clone(), bed.replica().await]
    } else {
        [bed.store.clone(), bed.store.clone()]
    }
}

async fn count_up(store: &Store) -> Result<u32, TransactError<WriteError>> {
    let runs = AtomicU32::new(0);
    store
        .transact(ORG, async |txn| {
            runs.fetch_add(1, Ordering::SeqCst);
            let row = txn.get(&key("hot")).await?.ok_or(ReadError::Failed(None))?;
            let next = number(&row, "n") + 1;
            txn.replace(key("hot"), draft(&format!("{{\"n\":{next}}}")), None).await?;
            Ok::<_, WriteError>(())
        })
        .await?;
    Ok(runs.into_inner())
}

async fn thirty_two_writers_of_one_row_all_get_their_turn(bed: Bed) {
    bed.store
        .commit(unit(vec![Write::Insert { key: key("hot"), draft: draft(r#"{"n":0}"#) }]))
        .await
        .unwrap();
    let writers = (0..32).map(|_| {
        let store = bed.store.clone();
        tokio::spawn(async move {
            let mut runs = 0;
            for _ in 0..4 {
                runs += count_up(&store).await.unwrap();
            }
            runs
        })
    });
    let mut runs = 0;
    for writer in writers.collect::<Vec<_>>() {
        runs += writer.await.unwrap();
    }
    let row = bed.store.get(&key("hot")).await.unwrap().unwrap();
    assert_eq!(number(&row, "n"), 128, "an update was lost");
    assert!(runs < 128 * 2, "{runs} runs for 128 updates: the tickets do not queue");
}

async fn a_row_that_two_committers_want_to_insert_is_inserted_once(bed: Bed) {
    let stores = two(&bed).await;
    for round in 0..40 {
        let inserts = stores.iter().map(|store| {
            store.commit(unit(vec![Write::Insert {
                key: key(&round.to_string()),
                draft: draft("{}"),
            }]))
        });
        let answers = futures::future::join_all(inserts).await;
        let accepted = answers.iter().filter(|answer| answer.is_ok()).count();
        assert_eq!(accepted, 1, "round {round}: {answers:?}");
    }
}

async fn a_cap_whose_row_is_missing_is_not_overshot_by_two_committers(bed: Bed) {
    let stores = two(&bed).await;
    for round in 0..40 {
        let cap = key(&format!("cap-{round}"));
        let spenders = (0..8).map(|n| {
            let (store, cap) = (stores[n % 2].clone(), cap.clone());
            tokio::spawn(async move {
                let spend = store.transact(ORG, async |txn| {
                    let spent = txn.get(&cap).await?.map_or(0, |row| number(&row, "spent"));
                    if spent + 1 > 3 {
                        return Ok(false);
                    }
                    txn.put(cap.clone(), draft(&format!("{{\"spent\":{}}}", spent + 1))).await?;
                    Ok::<_, WriteError>(true)
                });
                spend.await.unwrap()
            })
        });
        let mut admitted = 0;
        for spender in spenders.collect::<Vec<_>>() {
            admitted += u32::from(spender.await.unwrap());
        }
        assert_eq!(admitted, 3, "round {round}");
        assert_eq!(number(&bed.store.get(&cap).await.unwrap().unwrap(), "spent"), 3);
    }
}

async fn two_units_that_rely_on_the_other_not_writing_do_not_both_commit(bed: Bed) {
    let stores = two(&bed).await;
    for round in 0..40 {
        let (a, b) = (key(&format!("a-{round}")), key(&format!("b-{round}")));
        let shelf = |n: usize| Space::of("shelf", &format!("r{round}-{n}"));
        let absent = |read: Key, write: Key| Unit {
            guards: vec![Guard::Version { key: read, version: None }],
            ..unit(vec![Write::Insert { key: write, draft: draft("{}") }])
        };
        let (one, two) = (absent(a.clone(), b.clone()), absent(b.clone(), a.clone()));
        let (one, two) = tokio::join!(stores[0].commit(one), stores[1].commit(two));
        assert!(one.is_ok() != two.is_ok(), "round {round}: {one:?} {two:?}");
        // The same by searching two spaces that nobody ever wrote.
        let searched = |read: usize, write: usize| Unit {
            guards: vec![Guard::Revision { reach: reach(), space: shelf(read), revision: 0 }],
            ..unit(vec![Write::Insert {
                key: Key::new(&reach(), &shelf(write), "x"),
                draft: draft("{}"),
            }])
        };
        let (one, two) =
            tokio::join!(stores[0].commit(searched(0, 1)), stores[1].commit(searched(1, 0)));
        assert!(one.is_ok() != two.is_ok(), "round {round}: {one:?} {two:?}");
        // And by a claim that nobody holds.
        let claim = |n: usize| charter_kernel::unit::Claim::name("host", &format!("{round}-{n}"));
        let relied = |read: usize, take: usize| {
            let holder =
                Key::new(&reach(), &Space::of("shelf", "holders"), format!("{round}-{take}"));
            Unit {
                guards: vec![Guard::Claim { claim: claim(read), holder: None }],
                ..unit(vec![
                    Write::Insert { key: holder.clone(), draft: draft("{}") },
                    Write::Claim { claim: claim(take), holder },
                ])
            }
        };
        let (one, two) =
            tokio::join!(stores[0].commit(relied(0, 1)), stores[1].commit(relied(1, 0)));
        assert!(one.is_ok() != two.is_ok(), "round {round}: {one:?} {two:?}");
    }
    assert_eq!(bed.deadlocks().await, 0);
}

async fn a_revocation_lands_between_two_batches(bed: Bed) {
    let stores = two(&bed).await;
    for round in 0..20 {
        let user = Key::new(&Reach::organization(ORG), &Space::host("users"), format!("u{round}"));
        let status = |status: &str| indexed("{}", &[("status", status)]);
        bed.store
            .commit(unit(vec![Write::Insert { key: user.clone(), draft: status("active") }]))
            .await
            .unwrap();
        let acts = (0..16).map(|n| {
            let (store, user) = (stores[n % 2].clone(), user.clone());
            async move {
                let guard =
                    Guard::Entry { key: user, field: "status".into(), value: "active".into() };
                let act = Write::Insert { key: key(&format!("{round}-{n}")), draft: draft("{}") };
                store.commit(Unit { guards: vec![guard], ..unit(vec![act]) }).await
            }
        });
        let revoke = async {
            stores[1]
                .commit(unit(vec![Write::Put { key: user.clone(), draft: status("revoked") }]))
                .await
                .unwrap();
            // From here on nothing more of this user is committed.
            bed.store.count(&charter_store::Query::all(&reach(), &space())).await.unwrap()
        };
        let (acts, at_revocation) = tokio::join!(futures::future::join_all(acts), revoke);
        for refused in acts.iter().filter_map(|act| act.as_ref().err()) {
            assert!(matches!(refused.refusal(), Some(Refused::Inactive { .. })), "{refused:?}");
        }
        let after = bed.store.count(&charter_store::Query::all(&reach(), &space())).await.unwrap();
        assert_eq!(after, at_revocation, "a unit was committed after the revocation was answered");
    }
}

/// The batch of an admitted unit is held up in its writes; the revocation that comes meanwhile must
/// wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_waits_for_the_batches_that_rely_on_the_user() {
    let Some(bed) = Bed::postgres().await else { return };
    let pool = sqlx::PgPool::connect(&bed.config.url).await.unwrap();
    let pause = "CREATE FUNCTION pause() RETURNS trigger AS $$ BEGIN PERFORM pg_sleep(0.5); RETURN NEW; END $$ LANGUAGE plpgsql; \
                 CREATE TRIGGER pause BEFORE INSERT ON documents FOR EACH ROW WHEN (NEW.body LIKE '%slow%') EXECUTE FUNCTION pause()";
    bed.run(pause).await;
    let user = Key::new(&Reach::organization(ORG), &Space::host("users"), "u");
    let status = |status: &str| indexed("{}", &[("status", status)]);
    bed.store
        .commit(unit(vec![Write::Insert { key: user.clone(), draft: status("active") }]))
        .await
        .unwrap();
    let guard = Guard::Entry { key: user.clone(), field: "status".into(), value: "active".into() };
    let act = Unit {
        guards: vec![guard],
        ..unit(vec![Write::Insert { key: key("act"), draft: draft(r#""slow""#) }])
    };
    let other = bed.replica().await;
    let acting = {
        let store = bed.store.clone();
        tokio::spawn(async move { store.commit(act).await })
    };
    let asleep = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event = 'PgSleep'";
    while sqlx::query_scalar::<_, i64>(asleep).fetch_one(&pool).await.unwrap() == 0 {}
    other.commit(unit(vec![Write::Put { key: user, draft: status("revoked") }])).await.unwrap();
    let there = other.get(&key("act")).await.unwrap().is_some();
    acting.await.unwrap().unwrap();
    assert!(there, "the unit was committed after the revocation had been answered");
}

async fn units_of_many_organizations_commit_side_by_side(bed: Bed) {
    let stores = two(&bed).await;
    let units = (0..400).map(|n| {
        let store = stores[n % 2].clone();
        async move {
            let organization = format!("org-{}", n % 40);
            let at = Reach::organization(&organization);
            let write =
                Write::Insert { key: Key::new(&at, &space(), n.to_string()), draft: draft("{}") };
            store.commit(Unit { organization, writes: vec![write], ..Unit::default() }).await
        }
    });
    for answer in futures::future::join_all(units).await {
        answer.unwrap();
    }
    let status = bed.store.status();
    assert!(status.batches < status.units, "nothing was batched: {status:?}");
}

async fn a_dropped_caller_does_not_cancel_its_unit(bed: Bed) {
    let mut changed = bed.store.space_changes(&reach(), &space());
    {
        let commit =
            bed.store.commit(unit(vec![Write::Insert { key: key("a"), draft: draft("{}") }]));
        tokio::pin!(commit);
        // Polled once, so that it is queued, and dropped; where the committer was faster, there was
        // nothing to cancel.
        let _ = futures::poll!(commit.as_mut());
    }
    while bed.store.get(&key("a")).await.unwrap().is_none() {
        changed.wait().await;
    }
    let full = CommitError::Overloaded { retry_after_s: 1 };
    assert!(!full.is_conflict());
}

async fn a_unit_that_another_commits_takes_its_conditions_with_it(bed: Bed) {
    let row = |id: &str| Write::Put { key: key(id), draft: draft("{}") };
    bed.store.commit(unit(vec![row("read")])).await.unwrap();
    let mut txn = bed.store.begin(ORG);
    let guard = Guard::Version { key: key("read"), version: Some(1) };
    txn.step(vec![guard], vec![row("written")]);
    let later = txn.into_unit();
    bed.store.commit(unit(vec![row("read")])).await.unwrap();
    assert!(bed.store.commit(later).await.is_err_and(|error| error.is_conflict()));
    assert!(bed.store.get(&key("written")).await.unwrap().is_none());
}

/// One due job of a group, wherever it lies.
fn across(bed: &Bed, group: &str, token: String) -> Take {
    Take {
        reach: None,
        space: Space::host("jobs"),
        group: group.to_owned(),
        until: bed.store.now().plus_ms(30_000),
        tokens: vec![token],
    }
}

/// Each writes where the other finds what it hands out.
async fn hand_outs_across_reaches_wait_for_each_other_in_no_circle(bed: Bed) {
    let stores = two(&bed).await;
    let jobs = Space::host("jobs");
    let insert = |user: &str, id: String, draft| Write::Insert {
        key: Key::new(&Reach::user(user), &jobs, id),
        draft,
    };
    for round in 0..40 {
        let now = bed.store.now();
        let due = |user: &str| {
            let lease = Some((user.to_owned(), now));
            insert(user, format!("due-{round}"), Draft { lease, ..draft("{}") })
        };
        let both = Unit { writes: vec![due("a"), due("b")], ..unit(Vec::new()) };
        bed.store.commit(both).await.unwrap();
        let hand_out = |found: &str, written: &str| Unit {
            organization: found.to_owned(),
            writes: vec![insert(written, format!("new-{round}"), draft("{}"))],
            takes: vec![across(&bed, found, format!("{found}-{round}"))],
            ..Unit::default()
        };
        let [one, other] = &stores;
        let done = tokio::join!(one.commit(hand_out("a", "b")), other.commit(hand_out("b", "a")));
        for done in [done.0, done.1] {
            let taken = &done.unwrap().taken[0];
            assert_eq!(taken.len(), 1, "round {round}: what was due is handed out");
        }
    }
    // And where one appends to a log, and finds what it hands out where the other writes.
    let log = LogKey { reach: Reach::organization("o"), log: "told".into() };
    let append = || Write::Append { log: log.clone(), name: "n".into(), payload: "{}".into() };
    for round in 0..40 {
        let now = bed.store.now();
        let lease = Some(("log".to_owned(), now));
        let due = insert("a", format!("logged-{round}"), Draft { lease, ..draft("{}") });
        bed.store.commit(unit(vec![due])).await.unwrap();
        let take = across(&bed, "log", format!("log-{round}"));
        let organization = "b".to_owned();
        let takes = Unit { organization, takes: vec![take], ..unit(vec![append()]) };
        let writes = unit(vec![insert("a", format!("beside-{round}"), draft("{}")), append()]);
        let [one, other] = &stores;
        let done = tokio::join!(one.commit(takes), other.commit(writes));
        assert_eq!(done.0.unwrap().taken[0].len(), 1, "round {round}");
        done.1.unwrap();
    }
    assert_eq!(bed.deadlocks().await, 0);
}

/// Numbers that are the same in each run.
struct Dice(u64);

impl Dice {
    /// Less than `sides`.
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % sides
    }

    fn key(&mut self) -> Key {
        let space = Space::of("shelf", ["films", "books"][self.roll(2) as usize]);
        Key::new(&Reach::user(&format!("u{}", self.roll(2))), &space, format!("r{}", self.roll(3)))
    }

    /// A unit that relies on some and writes others, of all kinds, in no order.
    fn unit(&mut self, now: Instant, token: String) -> Unit {
        let organization = format!("o{}", self.roll(3));
        let mut unit = Unit { organization, ..Unit::default() };
        let value =
            |key: &Key, n: u64| Claim::unique(&key.reach, &key.space, "slug", &format!("v{n}"));
        for _ in 0..=self.roll(2) {
            let key = self.key();
            let claim = value(&key, self.roll(3));
            unit.guards.push(match self.roll(4) {
                0 => Guard::Entry { key, field: "status".into(), value: "active".into() },
                1 => Guard::Version { key, version: None },
                2 => Guard::Claim { claim, holder: None },
                _ => Guard::Claim { claim, holder: Some(key.id) },
            });
        }
        for _ in 0..=self.roll(3) {
            let key = self.key();
            let unique = vec![("slug".to_owned(), format!("v{}", self.roll(3)))];
            let valued = Draft { unique, ..indexed("{}", &[("status", "active")]) };
            let log = LogKey { reach: key.reach.clone(), log: format!("l{}", self.roll(2)) };
            let due = Draft { lease: Some(("due".to_owned(), now)), ..draft("{}") };
            let job =
                Key::new(&key.reach, &Space::host("jobs"), format!("{token}-{}", self.roll(9)));
            unit.writes.push(match self.roll(7) {
                0 => Write::Put { key, draft: valued },
                1 => Write::Insert { key, draft: valued },
                2 => Write::Remove { key, expected: None },
                3 => Write::Claim {
                    claim: Claim::name("name", &format!("n{}", self.roll(3))),
                    holder: key,
                },
                4 => Write::Append { log, name: "n".into(), payload: "{}".into() },
                5 => Write::Put { key: job, draft: due },
                _ => Write::Put { key, draft: indexed("{}", &[("status", "active")]) },
            });
        }
        if self.roll(3) == 0 {
            unit.takes.push(Take {
                reach: None,
                space: Space::host("jobs"),
                group: "due".into(),
                until: now.plus_ms(30_000),
                tokens: vec![token],
            });
        }
        unit
    }
}

async fn units_of_every_kind_wait_for_each_other_in_no_circle(bed: Bed) {
    let stores = two(&bed).await;
    let mut dice = Dice(7);
    let mut committed = 0;
    for round in 0..150 {
        let now = bed.store.now();
        let units: Vec<_> = (0..8).map(|n| dice.unit(now, format!("{round}-{n}"))).collect();
        let commits = units.into_iter().enumerate().map(|(n, unit)| stores[n % 2].commit(unit));
        for done in futures::future::join_all(commits).await {
            match done {
                Ok(_) => committed += 1,
                Err(error) => assert!(matches!(error, CommitError::Rejected(_)), "{error:?}"),
            }
        }
    }
    assert!(committed > 100, "{committed}");
    assert_eq!(bed.deadlocks().await, 0);
}

/// Users whom requests rely on, and whom others change.
async fn who_relies_on_a_row_and_writes_another_waits_for_the_reverse_in_no_circle(bed: Bed) {
    let stores = two(&bed).await;
    let user = |id: &str| Key::new(&Reach::organization(ORG), &Space::host("users"), id);
    let put =
        |id: &str| Write::Put { key: user(id), draft: indexed("{}", &[("status", "active")]) };
    bed.store.commit(unit(vec![put("a"), put("b")])).await.unwrap();
    let relies = |id: &str, writes: &str| {
        let guard = Guard::Entry { key: user(id), field: "status".into(), value: "active".into() };
        Unit { guards: vec![guard], ..unit(vec![put(writes)]) }
    };
    for round in 0..60 {
        let [one, other] = &stores;
        let done = tokio::join!(one.commit(relies("a", "b")), other.commit(relies("b", "a")));
        assert!(done.0.is_ok() && done.1.is_ok(), "round {round}: {done:?}");
    }
    assert_eq!(bed.deadlocks().await, 0);
}

/// The one holds the value and writes where the row lies; the other holds that place and the row.
async fn who_looks_up_a_value_and_who_removes_its_row_wait_for_each_other_in_no_circle(bed: Bed) {
    let stores = two(&bed).await;
    for round in 0..60 {
        let value = format!("v{round}");
        let unique = vec![("slug".to_owned(), value.clone())];
        let held = Write::Insert { key: key(&value), draft: Draft { unique, ..draft("{}") } };
        bed.store.commit(unit(vec![held])).await.unwrap();
        let claim = Claim::unique(&reach(), &space(), "slug", &value);
        let looks_up = |n: usize| {
            let guard = Guard::Claim { claim: claim.clone(), holder: Some(value.clone()) };
            let beside =
                Write::Insert { key: key(&format!("beside-{round}-{n}")), draft: draft("{}") };
            stores[0].commit(Unit { guards: vec![guard], ..unit(vec![beside]) })
        };
        let removes = Write::Remove { key: key(&value), expected: None };
        let (removed, looked_up) = tokio::join!(
            stores[1].commit(unit(vec![removes])),
            futures::future::join_all((0..4).map(looks_up)),
        );
        removed.unwrap();
        for late in looked_up.into_iter().filter_map(Result::err) {
            assert!(late.is_conflict(), "round {round}: {late:?}");
        }
        assert_eq!(bed.store.lookup(&claim).await.unwrap(), None, "round {round}");
    }
    assert_eq!(bed.deadlocks().await, 0);
}

/// In one batch with them.
async fn a_row_is_handed_out_beside_those_who_rely_on_it(bed: Bed) {
    let jobs = Space::host("jobs");
    for round in 0..20 {
        let now = bed.store.now();
        let found = Key::new(&Reach::user("a"), &jobs, format!("due-{round}"));
        let due = Draft { lease: Some(("mail".into(), now)), ..draft("{}") };
        let insert = Write::Insert { key: found.clone(), draft: due };
        bed.store.commit(unit(vec![insert])).await.unwrap();
        let take = across(&bed, "mail", format!("t-{round}"));
        let relies = |n: usize| {
            let guards = vec![Guard::Version { key: found.clone(), version: Some(1) }];
            let note = Write::Insert { key: key(&format!("{round}-{n}")), draft: draft("{}") };
            bed.store.commit(Unit { guards, ..unit(vec![note]) })
        };
        let takes = bed.store.commit(Unit { takes: vec![take], ..unit(Vec::new()) });
        let (relied, taken) = tokio::join!(futures::future::join_all((0..8).map(relies)), takes);
        assert_eq!(taken.unwrap().taken[0].len(), 1, "round {round}");
        // Those that come behind the hand-out are told that the row has changed.
        for relied in relied.into_iter().filter_map(Result::err) {
            assert!(relied.refusal().is_none(), "round {round}: {relied:?}");
        }
    }
}

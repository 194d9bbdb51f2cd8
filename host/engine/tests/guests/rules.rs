//! The rules of the request's transaction, met in the middle of a script: what is kept, what is run
//! again, and what is not.

use charter_engine::Outcome;
use charter_kernel::unit::{Draft, Guard, Key, Reach, Space};
use serde_json::json;

use crate::stage::{Stage, refused, script};

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_and_a_trap_leave_no_document() {
    let stage = Stage::new().await;
    let steps = json!([{ "note": "note" }, { "emit": "x" }, { "refuse": "state_conflict" }]);
    assert_eq!(refused(stage.play(steps).await), ("state_conflict".into(), "script".into()));
    let trapped = stage.play(json!([{ "note": "note" }, { "trap": 1 }])).await;
    assert!(matches!(trapped, Outcome::Trapped { .. }), "{trapped:?}");
    assert_eq!(stage.kept().await, (vec![], 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_many_want_goes_to_one_and_the_guest_tells_the_others() {
    let stage = Stage::new().await;
    let wish = || stage.seen(json!([{ "try": { "note": "note", "slug": "one" } }]));
    let all = futures::future::join_all((0..8).map(|_| wish())).await.concat();
    assert_eq!(all.iter().filter(|said| said.is_string()).count(), 1, "{all:?}");
    let told = |said: &&serde_json::Value| said["failure"] == "duplicate_record";
    assert_eq!(all.iter().filter(told).count(), 7, "{all:?}");
    assert_eq!(stage.kept().await.0, ["one"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_read_is_validated_and_the_second_run_sees_what_came_between() {
    let stage = Stage::new().await;
    stage.seen(json!([{ "items": 1 }])).await;
    let steps = json!([
        { "attempt": 1 }, { "take": 1 }, { "count": "note" }, { "fetch": "GET", "path": "/hold" },
        { "note": "note" },
    ]);
    let outcome = stage.interrupted(script(steps), async {
        stage.seen(json!([{ "note": "note" }])).await;
    });
    let answer = crate::json(outcome.await);
    let seen = answer["seen"].as_array().unwrap();
    assert_eq!((&seen[0], &seen[2]), (&json!(2), &json!(1)), "{answer}");
    assert_eq!(seen[1].as_array().unwrap().len(), 1, "what it took is the same, and taken once");
    assert_eq!(stage.kept().await, (vec!["note".into(), "note".into()], 0));
    assert_eq!(stage.peer.count("GET"), 2, "a read of the outside is done again");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_second_run_does_not_ask_for_again_is_given_back() {
    let rate = json!({ "rate": "sends", "reach": "user", "amount": 1, "seconds": 3_600 });
    for (end, is_refused) in [
        (json!([]), false),
        (json!([{ "checkpoint": 1 }]), false),
        (json!([{ "checkpoint": 1 }, { "refuse": "state_conflict" }]), true),
    ] {
        let stage = Stage::new().await;
        stage.seen(json!([{ "items": 1 }])).await;
        let steps = json!([
            { "on_attempt": 1, "steps": [{ "take": 1 }, rate] }, { "count": "note" },
            { "fetch": "GET", "path": "/hold" }, { "note": "note" },
            { "on_attempt": 2, "steps": end },
        ]);
        let outcome = stage.interrupted(script(steps), async {
            assert_eq!(stage.kept().await.1, 0, "the first run holds the item");
            stage.seen(json!([{ "note": "note" }])).await;
        });
        assert_eq!(matches!(outcome.await, Outcome::Refused(_)), is_refused, "{end}");
        crate::until("the item is given back", async || stage.kept().await.1 == 1).await;
        stage.seen(json!([rate])).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_acted_is_not_run_again() {
    for act in [json!({ "checkpoint": 1 }), json!({ "fetch": "POST", "path": "/act" })] {
        let stage = Stage::new().await;
        let steps = json!([
            { "note": "note", "slug": "before" }, act, { "count": "note" },
            { "fetch": "GET", "path": "/hold" }, { "note": "note", "slug": "after" },
        ]);
        let outcome = stage.interrupted(script(steps), async {
            stage.seen(json!([{ "note": "note", "slug": "between" }])).await;
        });
        let (_, reason) = refused(outcome.await);
        assert_eq!(reason, "EFFECT_WITHOUT_RECORD", "{act}");
        assert_eq!(stage.peer.count("GET"), 1, "{act}");
        let (kept, _) = stage.kept().await;
        assert!(!kept.contains(&"after".to_owned()), "{act}: {kept:?}");
        // A checkpoint commits what there is so far; what is sent does not.
        let before = kept.contains(&"before".to_owned());
        assert_eq!(before, act.get("checkpoint").is_some(), "{act}: {kept:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revocation_in_the_middle_lets_nothing_be_committed() {
    let stage = Stage::new().await;
    let user = Key::new(&Reach::project("p"), &Space::host("users"), "u");
    let put = async |status: &str| {
        let mut txn = stage.store().begin("");
        let index = vec![("status".to_owned(), status.to_owned())];
        let draft = Draft { body: "{}".into(), index, ..Draft::default() };
        txn.put(user.clone(), draft).await.unwrap();
        txn.commit().await.unwrap();
    };
    put("active").await;
    let steps = json!([{ "fetch": "GET", "path": "/hold" }, { "note": "note" }]);
    let guard = Guard::Entry { key: user.clone(), field: "status".into(), value: "active".into() };
    let call = charter_engine::Call { guards: vec![guard], ..script(steps) };
    let outcome = stage.interrupted(call, put("revoked")).await;
    assert!(matches!(outcome, Outcome::Inactive), "{outcome:?}");
    assert_eq!(stage.kept().await.0, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_caller_was_admitted_under_is_asked_again() {
    let stage = Stage::new().await;
    let kit = Key::new(&Reach::project("p"), &Space::host("kits"), "k");
    let put = async || {
        let mut txn = stage.store().begin("");
        let draft = Draft { body: "{}".into(), ..Draft::default() };
        txn.put(kit.clone(), draft).await.unwrap();
        txn.commit().await.unwrap();
    };
    put().await;
    let steps = json!([{ "fetch": "GET", "path": "/hold" }, { "note": "note" }]);
    let guards = vec![Guard::Unchanged { key: kit.clone(), version: 1 }];
    let call = charter_engine::Call { guards, ..script(steps) };
    let outcome = stage.interrupted(call, put()).await;
    assert!(matches!(outcome, Outcome::Restart), "{outcome:?}");
    assert_eq!(stage.kept().await.0, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn additions_and_appends_of_many_all_count() {
    let stage = Stage::new().await;
    stage.seen(json!([{ "note": "note", "slug": "sum" }])).await;
    let steps =
        || json!([{ "add": "sum", "amount": 2 }, { "append": "log", "payload": { "n": 1 } }]);
    let calls = (0..12).map(|_| stage.seen(steps()));
    futures::future::join_all(calls).await;
    let sum = stage.seen(json!([{ "lookup": "sum" }])).await;
    assert_eq!(sum[0]["count"], 24);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_commits_nothing_that_it_writes() {
    let stage = Stage::new().await;
    let call = charter_engine::Call { mutates: false, ..script(json!([{ "note": "note" }])) };
    stage.run(call).await;
    assert_eq!(stage.kept().await.0, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_before_an_effect_leaves_nothing_and_one_behind_it_says_so() {
    let stage = Stage::new().await;
    let late = |steps| charter_engine::Call { deadline_ms: 700, ..script(steps) };
    let steps = json!([{ "note": "note" }, { "sleep_ms": 20_000 }]);
    let nothing = stage.run(late(steps)).await;
    assert!(matches!(nothing, Outcome::Deadline), "{nothing:?}");
    assert_eq!(stage.kept().await.0, [""; 0]);
    let steps = json!([{ "note": "note" }, { "checkpoint": 1 }, { "sleep_ms": 20_000 }]);
    let behind = refused(stage.run(late(steps)).await);
    assert_eq!(behind, ("internal_error".into(), "EFFECT_WITHOUT_RECORD".into()));
    assert_eq!(stage.kept().await.0, ["note"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_stops_what_has_not_acted_and_not_what_has() {
    let stage = Stage::new().await;
    stage.seen(json!([{ "items": 1 }])).await;
    let leave = async |steps| {
        let call = script(steps);
        let gone = call.client_gone.clone();
        stage.interrupted(call, async { gone.cancel() }).await
    };
    let hold = || json!({ "fetch": "GET", "path": "/hold" });
    let left = leave(json!([{ "take": 1 }, hold(), { "note": "note", "slug": "unacted" }])).await;
    assert!(matches!(left, Outcome::ClientGone), "{left:?}");
    crate::until("the item is given back", async || stage.kept().await.1 == 1).await;
    let act = json!({ "fetch": "POST", "path": "/act" });
    let acted = leave(json!([act, hold(), { "note": "note", "slug": "acted" }])).await;
    assert!(matches!(acted, Outcome::Answered(_)), "{acted:?}");
    assert_eq!(stage.kept().await.0, ["acted"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn facts_of_a_refusal_stay_and_those_of_a_trap_go() {
    let stage = Stage::new().await;
    let organization = crate::scope().lane().to_owned();
    let told = async || {
        let kind = charter_kernel::unit::FactKind::Audit;
        stage.store().facts_head_settled(kind, &organization).await.unwrap()
    };
    let audit = || json!({ "audit": "script.looked" });
    refused(stage.play(json!([audit(), { "refuse": "state_conflict" }])).await);
    assert_eq!(told().await, 1);
    stage.play(json!([audit(), { "trap": 1 }])).await;
    assert_eq!(told().await, 1);
    stage.seen(json!([audit()])).await;
    assert_eq!(told().await, 2);
}

//! How a request ends, as the pipeline is told to record it, and what of it outlives the end: claims,
//! rates, and what the host's own end leaves.

use std::sync::{Arc, Mutex};

use charter_engine::{
    AdmissionConfig, Call, Claiming, Ending, EndingResult, EngineConfig, Finish, Outcome,
};
use charter_kernel::unit::{Draft, Guard, Key, Reach, Space, Write};
use charter_store::{CommitError, Txn};
use futures::future::BoxFuture;
use serde_json::{Value, json};

use crate::World;
use crate::stage::{Stage, refused, script};

/// The pipeline's part of each commit: notes what it was told, and records it in a row.
#[derive(Default)]
struct Recorder {
    told: Mutex<Vec<(String, bool, bool)>>,
}

fn claims() -> Key {
    Key::new(&Reach::user("u"), &Space::host("claims"), "c")
}

fn records() -> Key {
    Key::new(&Reach::user("u"), &Space::host("records"), "r")
}

fn name_of(result: EndingResult<'_>) -> String {
    match result {
        EndingResult::Answered(_) => "answered".into(),
        EndingResult::Refused(failure) => format!("refused {}", failure.code),
        EndingResult::Pending { approval, .. } => format!("pending {approval}"),
        EndingResult::Trapped(_) => "trapped".into(),
        EndingResult::Deadline => "deadline".into(),
        EndingResult::OutOfMemory => "out of memory".into(),
        EndingResult::ClientGone => "client gone".into(),
    }
}

impl Finish for Recorder {
    fn finish<'a>(
        &'a self,
        txn: &'a mut Txn,
        ending: Ending<'a>,
    ) -> BoxFuture<'a, Result<(), CommitError>> {
        Box::pin(async move {
            let name = name_of(ending.result);
            self.told.lock().unwrap().push((name.clone(), ending.claimed, ending.dispatched));
            let body = json!({ "ended": name }).to_string();
            txn.put(records(), Draft { body, ..Draft::default() }).await.unwrap();
            Ok(())
        })
    }
}

/// A request with an idempotency key, and what becomes of it.
fn with_key(steps: Value) -> (Call, Arc<Recorder>) {
    let recorder = Arc::<Recorder>::default();
    let status = ("status".to_owned(), "taken".to_owned());
    let draft = Draft { body: "{}".into(), index: vec![status], ..Draft::default() };
    let claim = Claiming {
        key: claims(),
        writes: vec![Write::Insert { key: claims(), draft }],
        undo: vec![Write::Remove { key: claims(), expected: None }],
        guards: Vec::new(),
        fence: Guard::Entry { key: claims(), field: "status".into(), value: "taken".into() },
    };
    (Call { claim: Some(claim), finish: recorder.clone(), ..script(steps) }, recorder)
}

async fn is_there(stage: &Stage, key: &Key) -> bool {
    stage.store().get(key).await.unwrap().is_some()
}

/// Forgets the claim, as the record that takes its place would.
async fn forget(stage: &Stage) {
    let mut txn = stage.store().begin("");
    txn.remove(&claims(), None).await.unwrap();
    txn.commit().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_end_is_recorded_once_with_what_went_before_it() {
    let stage = Stage::new().await;
    let act = || json!({ "fetch": "POST", "path": "/act" });
    let look = || json!({ "fetch": "GET", "path": "/look" });
    let late = || json!({ "sleep_ms": 20_000 });
    for (steps, end, acted) in [
        (json!([]), "answered", false),
        (json!([look()]), "answered", false),
        (json!([{ "note": "note" }, act()]), "answered", true),
        (json!([{ "checkpoint": 1 }]), "answered", true),
        (json!([{ "call": "other.read" }]), "answered", false),
        (json!([{ "call": "other.echo" }]), "answered", true),
        (json!([{ "refuse": "state_conflict" }]), "refused state_conflict", false),
        (json!([act(), { "refuse": "state_conflict" }]), "refused state_conflict", true),
        (json!([{ "trap": 1 }]), "trapped", false),
        (json!([act(), { "trap": 1 }]), "trapped", true),
        (json!([late()]), "deadline", false),
        (json!([act(), late()]), "deadline", true),
    ] {
        let (call, recorder) = with_key(steps.clone());
        let deadline_ms = if end == "deadline" { 600 } else { 5_000 };
        stage.run(Call { deadline_ms, ..call }).await;
        // A claim goes before an effect, and with it only.
        let told = recorder.told.lock().unwrap().clone();
        assert_eq!(told, [(end.to_owned(), acted, acted)], "{steps}");
        assert_eq!(is_there(&stage, &claims()).await, acted, "{steps}");
        forget(&stage).await;
    }
    *stage.desk.approval.lock().unwrap() = Some("a-7".into());
    let (call, recorder) = with_key(json!([{ "leave": "script.spend", "amount": 1, "as": "p" }]));
    stage.run(call).await;
    assert_eq!(*recorder.told.lock().unwrap(), [("pending a-7".to_owned(), false, false)]);
    assert!(is_there(&stage, &records()).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_after_an_effect_asks_nobody_to_send_the_request_again() {
    let stage = Stage::new().await;
    let acts = [json!({ "fetch": "POST", "path": "/act" }), json!({ "checkpoint": 1 })];
    for act in acts.into_iter().chain([json!({ "call": "other.echo" })]) {
        for code in ["rate_limited", "overloaded", "deadline_exceeded", "request_timeout"] {
            let refuse = json!({ "refuse": code });
            let untouched = stage.play(json!([{ "fetch": "GET", "path": "/look" }, refuse])).await;
            assert_eq!(refused(untouched), (code.to_owned(), "script".to_owned()), "{act}");
            let (call, recorder) = with_key(json!([act, refuse]));
            let Outcome::Refused(told) = stage.run(call).await else { panic!("{act}: {code}") };
            assert_eq!(told.code, "state_conflict", "{act}");
            assert_eq!(told.reason.as_deref(), Some("EFFECT_WITHOUT_RECORD"), "{act}");
            assert!(told.message.contains("The script says so."), "{}", told.message);
            let recorded = recorder.told.lock().unwrap().clone();
            assert_eq!(recorded, [("refused state_conflict".to_owned(), true, true)], "{act}");
            forget(&stage).await;
        }
        for code in ["not_found", "provider_error"] {
            let told = refused(stage.play(json!([act, { "refuse": code }])).await);
            assert_eq!(told, (code.to_owned(), "script".to_owned()), "{act}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_whose_request_came_to_nothing_is_given_up() {
    let config = EngineConfig { reruns_max: 0, ..World::config() };
    let stage = Stage::with(config).await;
    let steps = json!([
        { "count": "note" }, { "fetch": "GET", "path": "/hold" }, { "note": "note" },
        { "checkpoint": 1 },
    ]);
    let (call, recorder) = with_key(steps);
    let between = async {
        stage.seen(json!([{ "note": "note" }])).await;
    };
    // The claim would have come with the portion, which meets a conflict.
    let outcome = stage.interrupted(call, between).await;
    assert!(matches!(outcome, Outcome::Unavailable { .. }), "{outcome:?}");
    assert!(!is_there(&stage, &claims()).await, "the next request finds none in its way");
    assert!(recorder.told.lock().unwrap().is_empty());
    assert_eq!(stage.kept().await.0, ["note"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_claim_is_left_by_a_portion_that_never_came() {
    let stage = Stage::new().await;
    let admitted = Key::new(&Reach::user("u"), &Space::host("admitted"), "a");
    let steps = json!([
        { "count": "note" }, { "fetch": "GET", "path": "/hold" }, { "note": "note" },
        { "on_attempt": 2, "steps": [{ "sleep_ms": 20_000 }] }, { "checkpoint": 1 },
    ]);
    let (call, recorder) = with_key(steps);
    let guards = vec![Guard::Version { key: admitted.clone(), version: None }];
    let call = Call { guards, deadline_ms: 2_000, ..call };
    let between = async {
        stage.seen(json!([{ "note": "note" }])).await;
    };
    // Its checkpoint meets a conflict, and what it was admitted under changes in its second run.
    let changes = async {
        let reruns = &stage.world.engine.stats().reruns;
        while reruns.load(std::sync::atomic::Ordering::SeqCst) == 0 {
            tokio::task::yield_now().await;
        }
        let mut txn = stage.store().begin("");
        txn.put(admitted, Draft { body: "{}".into(), ..Draft::default() }).await.unwrap();
        txn.commit().await.unwrap();
    };
    let (outcome, ()) = tokio::join!(stage.interrupted(call, between), changes);
    assert!(matches!(outcome, Outcome::Deadline), "{outcome:?}");
    assert_eq!(*recorder.told.lock().unwrap(), [("deadline".to_owned(), false, false)]);
    assert!(!is_there(&stage, &claims()).await, "the next request finds none in its way");
    assert_eq!(stage.kept().await.0, ["note"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_whose_key_is_anothers_begins_from_the_top_and_leaves_the_claim() {
    let stage = Stage::new().await;
    let (first, _) = with_key(json!([{ "fetch": "POST", "path": "/act" }]));
    stage.run(first).await;
    for steps in [json!([{ "fetch": "POST", "path": "/act" }]), json!([{ "checkpoint": 1 }])] {
        let (second, recorder) = with_key(steps);
        let outcome = stage.run(second).await;
        assert!(matches!(outcome, Outcome::Restart), "{outcome:?}");
        assert!(recorder.told.lock().unwrap().is_empty());
    }
    assert!(is_there(&stage, &claims()).await);
    assert_eq!(stage.peer.count("POST"), 1, "nothing left twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rate_is_given_back_by_who_comes_to_nothing_and_not_by_who_acted() {
    let stage = Stage::new().await;
    let rate = || json!({ "rate": "send", "reach": "user", "amount": 1, "seconds": 600 });
    for end in [json!({ "refuse": "state_conflict" }), json!({ "trap": 1 })] {
        stage.play(json!([rate(), end])).await;
    }
    let (two, act) = (json!([rate(), rate()]), json!({ "fetch": "POST", "path": "/act" }));
    assert_eq!(refused(stage.play(two).await).0, "rate_limited", "there is one, and it was back");
    stage.play(json!([rate(), act, { "refuse": "state_conflict" }])).await;
    let said = refused(stage.play(json!([rate()])).await);
    assert_eq!(said.0, "rate_limited", "what left the host counts, whatever was answered");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_ends_cuts_what_has_done_nothing_and_records_what_has_acted() {
    for (act, acted) in [(json!([]), false), (json!([{ "fetch": "POST", "path": "/act" }]), true)] {
        let stage = Stage::new().await;
        let mut steps = act.as_array().unwrap().clone();
        steps.push(json!({ "fetch": "GET", "path": "/hold" }));
        steps.push(json!({ "note": "note" }));
        let (call, recorder) = with_key(json!(steps));
        let outcome = stage.interrupted(call, async { stage.world.engine.cut() }).await;
        if acted {
            assert_eq!(refused(outcome).1, "EFFECT_WITHOUT_RECORD");
            let told = recorder.told.lock().unwrap().clone();
            assert_eq!(told, [("refused internal_error".to_owned(), true, true)]);
        } else {
            assert!(matches!(outcome, Outcome::Unavailable { .. }), "{outcome:?}");
            assert!(recorder.told.lock().unwrap().is_empty());
        }
        let next = stage.play(json!([])).await;
        assert!(matches!(next, Outcome::Unavailable { .. }), "none that comes is begun: {next:?}");
    }
}

/// The client leaves, the time is over, the host ends: at the moment in which what the guest
/// commits before its end is being committed, the claim of its key or its own rows.
#[tokio::test(flavor = "multi_thread")]
async fn an_end_amid_a_commit_knows_what_was_committed() {
    let told = |name: &str, is_claimed| vec![(name.to_owned(), is_claimed, true)];
    for is_claimed in [true, false] {
        let stage = Stage::new().await;
        let begin = |slug: &str| {
            let steps = json!([
                { "fetch": "GET", "path": "/hold" }, { "note": "note", "slug": slug },
                { "checkpoint": 1 }, { "note": "note", "slug": "after" },
            ]);
            let (call, recorder) = with_key(steps);
            let claim = call.claim.clone().filter(|_| is_claimed);
            (Call { claim, ..call }, recorder)
        };
        // Nobody waits for it: it goes on, as after any effect.
        let (call, recorder) = begin("left");
        let left = call.client_gone.clone();
        let outcome = stage.amid_a_commit(call, async { left.cancel() }).await;
        assert!(matches!(outcome, Outcome::Answered(_)), "{outcome:?}");
        assert_eq!(*recorder.told.lock().unwrap(), told("answered", is_claimed));
        assert_eq!(is_there(&stage, &claims()).await, is_claimed);
        forget(&stage).await;

        let (call, recorder) = begin("late");
        let late = async {
            let asleep = Call { deadline_ms: 600, ..script(json!([{ "sleep_ms": 20_000 }])) };
            assert!(matches!(stage.run(asleep).await, Outcome::Deadline));
        };
        let outcome = stage.amid_a_commit(Call { deadline_ms: 600, ..call }, late).await;
        assert_eq!(refused(outcome).1, "EFFECT_WITHOUT_RECORD");
        assert_eq!(*recorder.told.lock().unwrap(), told("deadline", is_claimed));
        assert_eq!(is_there(&stage, &claims()).await, is_claimed);
        forget(&stage).await;
        assert_eq!(stage.kept().await.0, ["after", "late", "left"]);

        let (call, recorder) = begin("cut");
        let cut = async { stage.world.engine.cut() };
        assert_eq!(refused(stage.amid_a_commit(call, cut).await).1, "EFFECT_WITHOUT_RECORD");
        assert_eq!(*recorder.told.lock().unwrap(), told("refused internal_error", is_claimed));
        assert_eq!(is_there(&stage, &claims()).await, is_claimed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_meets_conflicts_gives_up_after_so_many_runs() {
    let config = EngineConfig { reruns_max: 1, ..World::config() };
    let stage = Stage::with(config).await;
    let steps = json!([
        { "attempt": 1 }, { "count": "note" }, { "fetch": "GET", "path": "/hold" },
        { "note": "note" },
    ]);
    let between = async {
        stage.seen(json!([{ "note": "note" }])).await;
    };
    let answer = crate::json(stage.interrupted(script(steps), between).await);
    assert_eq!(answer["seen"][0], 2, "its second run went through");
    assert_eq!(stage.world.engine.stats().reruns.load(std::sync::atomic::Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_has_committed_is_not_told_to_come_again_where_others_hold_the_memory() {
    let admission = AdmissionConfig { bytes_max: 128 << 20, ..World::config().admission };
    let stage = Stage::with(EngineConfig { admission, ..World::config() }).await;
    for _ in 0..4 {
        stage.seen(json!([{ "fill": 20, "bytes": 45_000 }])).await;
    }
    let eat = |first: Value| script(json!([first, { "pages": 4 }]));
    let alone = stage.run(eat(json!({ "note": "alone" }))).await;
    assert!(matches!(alone, Outcome::Answered(_)), "{alone:?}");
    let hold = script(json!([{ "pages": 4 }, { "fetch": "GET", "path": "/hold" }]));
    let (mut shed, mut committed) = (None, None);
    let meanwhile = async {
        shed = Some(stage.run(eat(json!({ "note": "shed" }))).await);
        let steps = json!([{ "note": "paid" }, { "checkpoint": 1 }, { "pages": 4 }]);
        committed = Some(stage.run(script(steps)).await);
    };
    let held = stage.interrupted(hold, meanwhile).await;
    assert!(matches!(held, Outcome::Answered(_)), "{held:?}");
    let (shed, committed) = (shed.unwrap(), format!("{:?}", committed.unwrap()));
    assert!(matches!(shed, Outcome::Shed { tenant: false, .. }), "{shed:?}");
    let is_told = committed == "OutOfMemory" || committed.contains("EFFECT_WITHOUT_RECORD");
    assert!(is_told, "{committed}");
    let counted = stage.seen(json!([{ "count": "shed" }, { "count": "paid" }])).await;
    assert_eq!(counted, [0, 1]);
}

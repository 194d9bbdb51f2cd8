//! Leave for regulated actions, as the host is asked for it: what the guest cannot decide itself.

use charter_engine::Outcome;
use serde_json::json;

use crate::stage::{Stage, refused};

#[tokio::test(flavor = "multi_thread")]
async fn a_proposal_says_what_its_manifest_and_its_request_do() {
    let stage = Stage::new().await;
    for (action, spends, capturable) in [
        ("script.spend", true, 1_000),
        ("script.guess", true, 1_500),
        ("script.send", false, 1_000),
    ] {
        let step = json!({ "leave": action, "amount": 1_000, "entity": "box-7", "as": "p" });
        let seen = stage.seen(json!([{ "try": step }])).await;
        assert_eq!(seen[0]["failure"], "budget_exceeded", "{action}");
        let leave = stage.desk.leaves.lock().unwrap().pop().unwrap();
        assert_eq!(leave.scope, crate::scope());
        assert_eq!((leave.primitive.as_str(), leave.request.as_str()), ("script", "request"));
        assert_eq!(leave.proposal.action, action);
        assert_eq!((leave.proposal.amount, leave.proposal.spends), (Some(1_000), spends));
        assert_eq!(leave.proposal.capturable, capturable, "{action}");
        assert_eq!(leave.proposal.entity, "box-7");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_declared_is_not_even_asked() {
    let stage = Stage::new().await;
    for action in ["script.undeclared", "other.spend", "", "spend"] {
        let step = json!({ "leave": action, "amount": 1, "as": "p" });
        let seen = stage.seen(json!([{ "try": step }])).await;
        assert!(seen[0]["failure"].is_string(), "{action}: {seen:?}");
    }
    assert!(stage.desk.leaves.lock().unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_ends_a_request_that_does_not_catch_it() {
    let stage = Stage::new().await;
    let steps = json!([{ "note": "note" }, { "leave": "script.spend", "amount": 1, "as": "p" }]);
    assert_eq!(refused(stage.play(steps).await).0, "budget_exceeded");
    assert_eq!(stage.kept().await.0, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_cannot_swallow_that_a_person_decides() {
    let stage = Stage::new().await;
    *stage.desk.approval.lock().unwrap() = Some("a-7".into());
    let leave = json!({ "leave": "script.spend", "amount": 1, "as": "p" });
    for steps in [
        json!([{ "note": "note" }, leave]),
        json!([{ "note": "note" }, { "try": leave }, { "note": "note" }]),
        json!([{ "try": leave }, { "refuse": "state_conflict" }]),
        json!([{ "try": leave }, { "fetch": "POST", "path": "/act" }]),
    ] {
        let outcome = stage.play(steps.clone()).await;
        let Outcome::Pending { approval } = &outcome else { panic!("{steps}: {outcome:?}") };
        assert_eq!(approval, "a-7");
    }
    assert_eq!(stage.kept().await.0, [""; 0], "nothing of the guest's is committed");
    assert_eq!(stage.peer.count("POST"), 0, "and nothing leaves any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_permit_that_nobody_gave_settles_nothing() {
    let stage = Stage::new().await;
    for step in [json!({ "reopen": "made-up", "as": "p" }), json!({ "capture": "p", "amount": 1 })]
    {
        let seen = stage.seen(json!([{ "try": step }])).await;
        assert!(seen[0]["failure"].is_string(), "{step}: {seen:?}");
    }
}

//! Items that are handed out: to one caller alone, back where a request fails, gone where it
//! settles.

use std::collections::BTreeSet;

use serde_json::json;

use crate::stage::{Stage, refused, script};

#[tokio::test(flavor = "multi_thread")]
async fn no_item_goes_to_two() {
    let stage = Stage::new().await;
    stage.seen(json!([{ "items": 20 }])).await;
    let takes = (0..10).map(|_| stage.seen(json!([{ "take": 3 }])));
    let taken: Vec<String> = futures::future::join_all(takes)
        .await
        .into_iter()
        .flat_map(|seen| seen[0].as_array().unwrap().clone())
        .map(|id| id.as_str().unwrap().to_owned())
        .collect();
    assert_eq!(taken.len(), 20, "ten callers want thirty");
    assert_eq!(taken.iter().collect::<BTreeSet<_>>().len(), 20);
    assert_eq!(stage.kept().await.1, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_failed_request_took_is_there_for_the_next() {
    for end in [json!({ "refuse": "state_conflict" }), json!({ "trap": 1 })] {
        let stage = Stage::new().await;
        stage.seen(json!([{ "items": 2 }])).await;
        stage.play(json!([{ "take": 2 }, end])).await;
        crate::until("the items are given back", async || stage.kept().await.1 == 2).await;
        let seen = stage.seen(json!([{ "take": 5 }])).await;
        assert_eq!(seen[0].as_array().unwrap().len(), 2, "{end}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_settled_is_gone_with_the_commit_and_not_before() {
    let stage = Stage::new().await;
    stage.seen(json!([{ "items": 2 }])).await;
    let steps = json!([{ "take": 1, "settle": true }, { "refuse": "state_conflict" }]);
    refused(stage.play(steps).await);
    crate::until("the item is given back", async || stage.kept().await.1 == 2).await;
    stage.seen(json!([{ "take": 1, "settle": true }])).await;
    assert_eq!(stage.kept().await.1, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_request_gets_nothing_of_what_one_in_its_middle_holds() {
    let stage = Stage::new().await;
    stage.seen(json!([{ "items": 1 }])).await;
    let steps = json!([{ "take": 1 }, { "fetch": "GET", "path": "/hold" }]);
    let outcome = stage.interrupted(script(steps), async {
        let seen = stage.seen(json!([{ "take": 1 }])).await;
        assert_eq!(seen[0], json!([]));
    });
    assert_eq!(crate::json(outcome.await)["seen"][0].as_array().unwrap().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_log_goes_on_until_it_is_closed() {
    let stage = Stage::new().await;
    let append = || json!({ "append": "log", "payload": { "n": 1 } });
    stage.seen(json!([append(), append(), { "close": "log" }])).await;
    // The commit finds it closed: the guest has answered by then, and cannot have caught it.
    for steps in [json!([append()]), json!([{ "try": append() }])] {
        assert_eq!(refused(stage.play(steps).await).0, "state_conflict");
    }
}

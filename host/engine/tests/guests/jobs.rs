//! Jobs that a request enqueues: rows of its own commit, or of none.

use charter_engine::job::{JobRecord, jobs};
use charter_engine::{Answer, AnswerBody, Outcome};
use charter_store::Query;
use serde_json::json;

use crate::stage::{Stage, refused};

async fn rows(stage: &Stage) -> Vec<JobRecord> {
    let scope = crate::scope();
    let query = Query::all(&scope.narrowest(), &jobs());
    let found = stage.store().find(&query).await.unwrap();
    found.items.iter().map(|(_, row)| serde_json::from_str(&row.body).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_its_requests_and_says_who_set_it_up() {
    let stage = Stage::new().await;
    let payload = json!([{ "note": "note" }]);
    stage.seen(json!([{ "enqueue": payload, "public": true, "attempts": 3 }])).await;
    let rows = rows(&stage).await;
    let [job] = rows.as_slice() else { panic!("{} jobs", rows.len()) };
    assert_eq!((job.primitive.as_str(), job.name.as_str()), ("script", "play"));
    assert_eq!((job.attempts_max, job.public), (3, true));
    assert_eq!(job.payload.value(), json!({ "steps": payload }));
    let scope = crate::scope();
    assert_eq!(job.owner.organization, scope.lane());
    assert_eq!(job.owner.user.as_deref(), scope.user().map(|user| user.as_str()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_or_trapped_request_enqueues_none() {
    let stage = Stage::new().await;
    let enqueue = || json!({ "enqueue": [{ "note": "note" }] });
    refused(stage.play(json!([enqueue(), { "refuse": "state_conflict" }])).await);
    stage.play(json!([enqueue(), { "trap": 1 }])).await;
    assert!(rows(&stage).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_names_one_live_job() {
    let stage = Stage::new().await;
    let enqueue = || json!({ "enqueue": [], "key": "daily" });
    let first = stage.seen(json!([enqueue(), enqueue()])).await;
    let second = stage.seen(json!([enqueue(), { "enqueue": [], "key": "weekly" }])).await;
    assert!(first[0] == first[1] && first[0] == second[0], "{first:?} {second:?}");
    assert_ne!(second[0], second[1]);
    assert_eq!(rows(&stage).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_can_be_a_jobs() {
    let stage = Stage::new().await;
    let outcome = stage.play(json!([{ "enqueue": [], "answer": true }])).await;
    let Outcome::Answered(Answer { body: AnswerBody::Job(id), .. }) = &outcome else {
        panic!("{outcome:?}")
    };
    let scope = crate::scope();
    let key = charter_kernel::unit::Key::new(&scope.narrowest(), &jobs(), id);
    assert!(stage.store().get(&key).await.unwrap().is_some(), "the job is committed with it");
}

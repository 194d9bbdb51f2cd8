//! Rolling back: to what served before, from what the operator saw, and never to what must not.

use charter_registry::components::{LifeCycleError, State};
use charter_registry::settings::{Primitives, Settings};
use serde_json::json;

use crate::bed::{Bed, reason, settings};

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_goes_back_step_by_step_and_no_further_than_the_first() {
    let bed = Bed::new().await;
    let first = bed.serve(900_001).await;
    let second = bed.serve(900_002).await;
    bed.serve(900_003).await;
    for wanted in [&second, &first] {
        let step = bed.rollback(None).await.unwrap();
        assert!(step.changed);
        assert_eq!(&step.active.digest, wanted);
        assert_eq!(bed.serving().as_ref(), Some(wanted));
    }
    assert_eq!(reason(bed.rollback(None).await.unwrap_err()), "no_predecessor");
    assert_eq!(bed.serving(), Some(first));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_came_after_is_no_predecessor_of_what_is_gone_back_to() {
    let bed = Bed::new().await;
    let first = bed.serve(900_001).await;
    bed.serve(900_002).await;
    bed.serve(900_003).await;
    bed.activate(&first).await.unwrap();
    // Forward to the first again: both others lie before it now.
    assert_eq!(bed.registry.inventory().activations["probe"].history.len(), 3);
    bed.rollback(None).await.unwrap();
    bed.rollback(None).await.unwrap();
    bed.rollback(None).await.unwrap();
    assert_eq!(reason(bed.rollback(None).await.unwrap_err()), "no_predecessor");
    assert_eq!(bed.serving(), Some(first));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_leaves_only_what_its_asker_saw() {
    let bed = Bed::new().await;
    let first = bed.serve(900_001).await;
    let second = bed.serve(900_002).await;
    let told = bed.rollback(Some(&first)).await.unwrap_err();
    assert!(told.to_string().contains(&second), "{told}");
    assert_eq!(reason(told), "not_active");
    assert_eq!(bed.serving().as_ref(), Some(&second));
    bed.rollback(Some(&second)).await.unwrap();
    // Two people who press the same button go back once.
    assert_eq!(reason(bed.rollback(Some(&second)).await.unwrap_err()), "not_active");
    assert_eq!(bed.serving(), Some(first));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_never_served_cannot_be_rolled_back() {
    let bed = Bed::new().await;
    bed.stage(900_001).await;
    assert!(matches!(bed.rollback(None).await, Err(LifeCycleError::Absent(_))));
    let step = bed.registry.rollback("other", None, "operator", &|_, _| None).await;
    assert!(matches!(step, Err(LifeCycleError::Absent(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_compiles_nothing() {
    let bed = Bed::new().await;
    let first = bed.serve(900_001).await;
    bed.serve(900_002).await;
    // Neither the code cache nor the bytes are there any more: what is gone back to is in memory.
    std::fs::remove_dir_all(bed.folder().join("code")).unwrap();
    bed.store.blob_remove(&first).await.unwrap();
    bed.rollback(None).await.unwrap();
    assert_eq!(bed.serving(), Some(first));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_fit_what_is_set_by_now_is_not_gone_back_to() {
    let bed = Bed::new().await;
    bed.serve(900_001).await;
    let second = bed.serve(900_002).await;
    // Each build of the probe knows one setting, which bears its number.
    let values = json!({"only_900002": true}).as_object().unwrap().clone();
    let set = Settings {
        primitives: Primitives::new([("probe".to_owned(), values)].into()),
        ..settings()
    };
    let restarted = bed.restarted(set).await;
    let step = restarted.rollback("probe", None, "operator", &|_, _| None).await;
    let told = reason(step.unwrap_err());
    assert!(told.contains("only_900002"), "{told}");
    assert_eq!(bed.version(&second).state, State::Active);
    assert_eq!(restarted.current().primitive("probe").unwrap().active.digest(), second);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_long_history_keeps_its_latest_part() {
    let bed = Bed::new().await;
    let (one, other) = (bed.stage(900_001).await, bed.stage(900_002).await);
    for n in 0..30 {
        bed.activate(if n % 2 == 0 { &one } else { &other }).await.unwrap();
    }
    let history = bed.registry.inventory().activations["probe"].history.clone();
    assert_eq!(history.len(), 20);
    assert_eq!(history.last(), Some(&one), "{history:?}");
}

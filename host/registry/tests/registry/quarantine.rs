//! A version that was stepped back from: kept out by every way in, until a mended one comes under a
//! new number.

use charter_registry::components::{LifeCycleError, State};
use serde_json::json;

use crate::bed::{Bed, reason, settings};
use crate::fixture::probe;

/// A deployment on which the breaker has left the second build for the first; the bad one's digest.
async fn stepped_back() -> (Bed, String) {
    let bed = Bed::new().await;
    bed.serve(900_001).await;
    let bad = bed.serve(900_003).await;
    assert_eq!(bed.trap(&bad, &["one", "two"], 4).await, 1);
    (bed, bad)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_version_stays_out_however_it_is_brought_in() {
    let (bed, bad) = stepped_back().await;
    let again = bed.install(probe(900_003)).await.unwrap();
    assert!(!again.fresh);
    assert_eq!(again.version.state, State::Quarantined, "installed again it is no better");
    let refused = bed.activate(&bad).await.unwrap_err();
    assert!(refused.to_string().contains("trapped too often"), "{refused}");
    assert_eq!(reason(refused), "quarantined");
    assert!(bed.registry.load_pinned("probe", "1.0.900003").await.is_none());
    let restarted = bed.restarted(settings()).await;
    let step = restarted.activate("probe", &bad, "o", &crate::bed::ALL, &|_, _| None).await;
    assert_eq!(reason(step.unwrap_err()), "quarantined");
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_rolls_back_to_a_bad_version() {
    let (bed, bad) = stepped_back().await;
    let first = bed.serving().unwrap();
    let mended = bed.serve(900_004).await;
    let step = bed.rollback(Some(&mended)).await.unwrap();
    assert_eq!(step.active.digest, first, "past {bad}");
    assert_eq!(bed.version(&mended).state, State::Retired);
    assert_eq!(bed.version(&bad).state, State::Quarantined);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_version_is_shown_with_its_reason_and_is_not_forgotten_by_itself() {
    let (bed, bad) = stepped_back().await;
    bed.registry.forget_versions(0).await.unwrap();
    let view = json!(bed.registry.describe("probe").unwrap());
    let versions = view["versions"].as_array().unwrap();
    let shown = versions.iter().find(|version| version["digest"] == bad.as_str()).unwrap();
    assert_eq!(shown["state"], "quarantined");
    assert!(shown["reason"].as_str().unwrap().contains("trapped too often"), "{shown}");
    assert_eq!(view["rollback_to"], json!(null));
    assert_eq!(view["activated_by"], "breaker");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_removes_a_bad_version_and_installs_it_anew_has_decided_so() {
    let (bed, bad) = stepped_back().await;
    bed.registry.remove("probe", &bad, &|_, _| None).await.unwrap();
    let step = bed.registry.remove("probe", &bad, &|_, _| None).await;
    assert!(matches!(step, Err(LifeCycleError::Absent(_))));
    let anew = bed.install(probe(900_003)).await.unwrap();
    assert!(anew.fresh);
    assert_eq!(anew.version.state, State::Staged);
    bed.activate(&bad).await.unwrap();
    assert_eq!(bed.serving(), Some(bad));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_of_a_person_comes_first() {
    let bed = Bed::new().await;
    bed.serve(900_001).await;
    let second = bed.serve(900_002).await;
    let bad = bed.serve(900_003).await;
    bed.rollback(Some(&bad)).await.unwrap();
    // The version that trapped was left already: it is not bad by that.
    assert_eq!(bed.trap(&bad, &["one", "two"], 4).await, 0);
    assert_eq!((bed.serving(), bed.version(&bad).state), (Some(second), State::Retired));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_breaker_goes_back_to_what_is_healthy_only() {
    let bed = Bed::new().await;
    let first = bed.serve(900_002).await;
    let second = bed.serve(900_003).await;
    // The one before has trapped as much, within the same window.
    for n in 0..8 {
        let caller = crate::bed::proved(["one", "two"][n % 2]);
        let step = bed.registry.observe("probe", &first, caller, true);
        if let Some(step) = step {
            step.await.unwrap();
        }
    }
    assert_eq!(bed.trap(&second, &["one", "two"], 4).await, 0);
    assert_eq!(bed.serving(), Some(second.clone()));
    assert_eq!(bed.version(&second).state, State::Active, "there is nothing to go back to");
}

//! Activating: one commit, after which each request gets the version and its predecessor is known.

use std::sync::Arc;

use charter_kernel::unit::{Fact, FactKind};
use charter_registry::components::{Consent, LifeCycleError, State, Version};
use charter_store::Store;

use crate::bed::{Bed, reason, settings};

async fn events(store: &Store) -> Vec<(String, serde_json::Value)> {
    store.facts_head_settled(FactKind::Event, "").await.unwrap();
    let facts = store.facts(FactKind::Event, "", 0, 100).await.unwrap();
    let told = |fact: Fact| (fact.name, serde_json::from_str(&fact.body).unwrap());
    facts.into_iter().map(|fact| told(fact.fact)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_activation_serves_and_retires_what_served() {
    let bed = Bed::new().await;
    let first = bed.serve(900_001).await;
    assert_eq!(bed.serving().as_ref(), Some(&first));
    let second = bed.stage(900_002).await;
    let activated = bed.activate(&second).await.unwrap();
    assert!(activated.changed);
    assert_eq!(activated.previous.as_ref(), Some(&first));
    assert_eq!(activated.active.digest, second);
    assert_eq!(bed.serving().as_ref(), Some(&second));
    assert_eq!(bed.version(&first).state, State::Retired);
    assert_eq!(bed.version(&second).state, State::Active);
    let inventory = bed.registry.inventory();
    assert_eq!(inventory.predecessor("probe").unwrap().digest, first);
    assert_eq!(inventory.activations["probe"].by, "operator");
}

#[tokio::test(flavor = "multi_thread")]
async fn activating_what_serves_changes_nothing_and_tells_nobody() {
    let bed = Bed::new().await;
    let digest = bed.serve(900_001).await;
    let before = events(&bed.store).await.len();
    let again = bed.activate(&digest).await.unwrap();
    assert!(!again.changed);
    assert_eq!(bed.registry.inventory().activations["probe"].history, Vec::<String>::new());
    assert_eq!(events(&bed.store).await.len(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn each_step_is_an_event_of_the_deployment() {
    let bed = Bed::new().await;
    let first = bed.serve(900_001).await;
    let second = bed.serve(900_002).await;
    bed.rollback(None).await.unwrap();
    let told: Vec<_> = events(&bed.store)
        .await
        .into_iter()
        .map(|(name, body)| (name, body["digest"].clone(), body["previous"].clone()))
        .collect();
    let step = |name: &str, to: &str, from: Option<&str>| {
        (name.to_owned(), serde_json::json!(to), serde_json::json!(from))
    };
    assert_eq!(
        told,
        [
            step("component.activated", &first, None),
            step("component.activated", &second, Some(&first)),
            step("component.rolled_back", &first, Some(&second)),
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_installed_is_not_activated() {
    let bed = Bed::new().await;
    let digest = bed.stage(900_001).await;
    for (name, digest) in [("probe", "sha256:00"), ("other", digest.as_str()), ("", "")] {
        let by = &Consent::All;
        let outcome = bed.registry.activate(name, digest, "operator", by, &|_, _| None).await;
        assert!(matches!(outcome, Err(LifeCycleError::Absent(_))), "{name} {digest}");
    }
    assert_eq!(bed.serving(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_keeps_the_state_that_it_began_with() {
    let bed = Bed::new().await;
    let first = bed.serve(900_001).await;
    let live = bed.registry.current();
    let second = bed.serve(900_002).await;
    assert_eq!(live.primitive("probe").unwrap().active.digest(), first);
    assert!(bed.registry.current().revision() > live.revision());
    assert_eq!(bed.serving(), Some(second));
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_start_what_was_active_serves() {
    let bed = Bed::new().await;
    bed.serve(900_001).await;
    let second = bed.serve(900_002).await;
    bed.stage(900_003).await;
    let restarted = bed.restarted(settings()).await;
    let live = restarted.current();
    assert_eq!(live.primitive("probe").unwrap().active.digest(), second);
    assert_eq!(live.primitives().count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_activations_at_once_each_happens_whole() {
    let bed = Arc::new(Bed::new().await);
    let mut digests = Vec::new();
    for build in crate::bed::BUILDS {
        digests.push(bed.stage(build).await);
    }
    let steps = digests.iter().cloned().map(|digest| {
        let bed = bed.clone();
        tokio::spawn(async move { bed.activate(&digest).await.map(|step| step.previous) })
    });
    let mut before = Vec::new();
    for step in steps.collect::<Vec<_>>() {
        before.push(step.await.unwrap().unwrap());
    }
    // One of them found nothing before it, and each other one what another had put there.
    before.sort();
    assert_eq!(before[0], None);
    let serving = bed.serving().unwrap();
    let mut others: Vec<_> = digests.iter().filter(|digest| **digest != serving).collect();
    others.sort();
    assert_eq!(before[1..].iter().flatten().collect::<Vec<_>>(), others);
    let active = digests.iter().filter(|digest| bed.version(digest).state == State::Active);
    assert_eq!(active.count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_row_of_a_step_says_whether_it_changed_anything() {
    let bed = Bed::new().await;
    let digest = bed.stage(900_001).await;
    for changed in [true, false] {
        let row = |version: &Version, changes: bool| {
            assert_eq!((version.digest.as_str(), changes), (digest.as_str(), changed));
            None
        };
        let consent = &Consent::All;
        bed.registry.activate("probe", &digest, "operator", consent, &row).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_was_stepped_back_from_is_not_activated_again() {
    let bed = Bed::new().await;
    bed.serve(900_001).await;
    let bad = bed.serve(900_003).await;
    assert_eq!(bed.trap(&bad, &["one", "two"], 4).await, 1);
    assert_eq!(reason(bed.activate(&bad).await.unwrap_err()), "quarantined");
}

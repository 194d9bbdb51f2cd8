//! A component's terms, put to the operator: it serves once all of them were agreed to, and not
//! before.

use std::collections::BTreeSet;

use charter_registry::components::{Activated, Consent, LifeCycleError};

use crate::bed::{Bed, reason};
use crate::fixture::{declaring, fixture, rewrite};

/// An open route at the root and a provider.
const ASKING: &str = r#",{"id":"hostile.open","method":"GET","path":"/hostile-open","summary":"s","mounts":["root"],"auth":"none","answer":{}}],"providers":[{"name":"web.index"}"#;

/// Another version of the hostile component that asks for all of this and for one provider more.
fn asking_more() -> Vec<u8> {
    let more = format!("{ASKING},{{\"name\":\"mail.relay\"}}");
    rewrite(declaring(&more), "\"version\": \"1.0.0\"", "\"version\": \"1.0.1\"")
}

async fn activate(bed: &Bed, digest: &str, agree: &str) -> Result<Activated, LifeCycleError> {
    let consent = Consent::read(agree);
    bed.registry.activate("hostile", digest, "operator", &consent, &|_, _| None).await
}

#[tokio::test(flavor = "multi_thread")]
async fn all_that_is_asked_for_has_to_be_agreed_to() {
    let bed = Bed::new().await;
    let digest = bed.install(declaring(ASKING)).await.unwrap().version.digest.clone();
    for (agree, missing) in [
        ("", "GET /hostile-open, web.index"),
        ("web.index", "GET /hostile-open"),
        ("GET /hostile-open", "web.index"),
        ("search, GET /hostile", "GET /hostile-open, web.index"),
        ("**", "GET /hostile-open, web.index"),
    ] {
        let refused = activate(&bed, &digest, agree).await.unwrap_err();
        assert!(refused.to_string().contains(&format!(": {missing};")), "{agree}: {refused}");
        assert_eq!(reason(refused), "consent_required");
        let inventory = bed.registry.inventory();
        assert_eq!(inventory.missing_consents(&bed.version(&digest)).len(), 2);
        assert!(bed.registry.current().primitive("hostile").is_none());
    }
    activate(&bed, &digest, " web.index , GET /hostile-open,").await.unwrap();
    assert!(bed.registry.current().primitive("hostile").is_some());
    assert!(bed.registry.inventory().missing_consents(&bed.version(&digest)).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_agreed_to_once_is_agreed_to_and_what_is_new_is_not() {
    let bed = Bed::new().await;
    let first = bed.install(declaring(ASKING)).await.unwrap().version.digest.clone();
    activate(&bed, &first, "*").await.unwrap();
    let second = bed.install(asking_more()).await.unwrap().version.digest.clone();
    let refused = activate(&bed, &second, "").await.unwrap_err();
    assert!(refused.to_string().contains(": mail.relay;"), "{refused}");
    activate(&bed, &second, "mail.relay").await.unwrap();
    activate(&bed, &first, "").await.unwrap();
    activate(&bed, &second, "").await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kit_that_pins_what_nobody_agreed_to_gets_nothing() {
    let bed = Bed::new().await;
    let first = bed.install(fixture("hostile")).await.unwrap().version.digest.clone();
    activate(&bed, &first, "").await.unwrap();
    let second = bed.install(asking_more()).await.unwrap().version.digest.clone();
    assert!(bed.registry.load_pinned("hostile", "1.0.1").await.is_none());
    let live = bed.registry.current();
    let versions: Vec<_> = live.primitive("hostile").unwrap().versions().collect();
    assert!(versions.iter().all(|served| served.version() == "1.0.0"), "{second}");
    activate(&bed, &second, "*").await.unwrap();
    activate(&bed, &first, "").await.unwrap();
    let pinned = bed.registry.load_pinned("hostile", "1.0.1").await.unwrap();
    assert_eq!(pinned.digest(), second);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rollback_needs_no_word_again() {
    let bed = Bed::new().await;
    let first = bed.install(declaring(ASKING)).await.unwrap().version.digest.clone();
    activate(&bed, &first, "*").await.unwrap();
    let second = bed.install(asking_more()).await.unwrap().version.digest.clone();
    activate(&bed, &second, "*").await.unwrap();
    let step = bed.registry.rollback("hostile", None, "operator", &|_, _| None).await.unwrap();
    assert_eq!(step.active.digest, first);
}

#[test]
fn a_consent_is_a_star_or_a_list() {
    for (text, wanted) in [
        ("*", None),
        (" * ", None),
        ("", Some(vec![])),
        (",,", Some(vec![])),
        ("a", Some(vec!["a"])),
        ("a, b ,a", Some(vec!["a", "b"])),
        ("*,a", Some(vec!["*", "a"])),
    ] {
        let read = match Consent::read(text) {
            Consent::All => None,
            Consent::To(agreed) => Some(agreed),
        };
        let wanted = wanted.map(|list| list.into_iter().map(str::to_owned).collect());
        assert_eq!(read, wanted as Option<BTreeSet<String>>, "{text:?}");
    }
}

//! The installed and active versions, as a plain value: the target of a rollback, the version that
//! a request reaches, the terms that have been agreed to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use charter_kernel::time::Instant;
use charter_registry::components::{Activation, Inventory, State, Version};
use proptest::prelude::*;
use serde_json::json;

fn version(n: usize, state: State, providers: &[&str]) -> Version {
    let providers: Vec<_> = providers.iter().map(|name| json!({"name": name})).collect();
    let manifest = json!({
        "name": "notes", "version": format!("1.0.{n}"), "title": "Notes", "providers": providers,
    });
    Version {
        name: "notes".into(),
        version: format!("1.0.{n}"),
        digest: format!("sha256:{n}"),
        state,
        manifest: serde_json::from_value(manifest).unwrap(),
        signature: None,
        bytes: 1,
        installed_at: Instant(n as i64),
        reason: None,
        removals: 0,
        built: false,
    }
}

fn activation(active: Option<usize>, history: &[usize]) -> Activation {
    Activation {
        name: "notes".into(),
        active: active.map(|n| format!("sha256:{n}")),
        history: history.iter().map(|n| format!("sha256:{n}")).collect(),
        at: Instant(1),
        by: "operator".into(),
        agreed: None,
    }
}

fn inventory(versions: Vec<Version>, activation: Activation) -> Inventory {
    Inventory {
        versions: [("notes".to_owned(), versions.into_iter().map(Arc::new).collect())].into(),
        activations: [("notes".to_owned(), Arc::new(activation))].into(),
    }
}

fn plain(n: usize) -> Version {
    version(n, State::Retired, &[])
}

#[test]
fn a_rollback_goes_to_the_latest_before_that_is_there_and_sound() {
    let bad = |n| version(n, State::Quarantined, &[]);
    for (versions, active, history, wanted) in [
        (vec![plain(1), plain(2)], 2, vec![1], Some(1)),
        (vec![plain(1), plain(2), plain(3)], 3, vec![1, 2], Some(2)),
        (vec![plain(1), bad(2), plain(3)], 3, vec![1, 2], Some(1)),
        (vec![plain(1), plain(3)], 3, vec![1, 2], Some(1)),
        (vec![bad(1), bad(2), plain(3)], 3, vec![1, 2], None),
        (vec![plain(1), plain(2)], 2, vec![2, 1, 2], Some(1)),
        (vec![plain(1)], 1, vec![1], None),
        (vec![plain(1), plain(2)], 2, vec![], None),
    ] {
        let told = format!("{active} after {history:?}");
        let inventory = inventory(versions, activation(Some(active), &history));
        let found = inventory.predecessor("notes").map(|found| found.digest.clone());
        assert_eq!(found, wanted.map(|n: usize| format!("sha256:{n}")), "{told}");
        assert!(inventory.predecessor("other").is_none());
    }
}

#[test]
fn a_version_is_found_by_digest_and_by_number_of_its_own_primitive() {
    let inventory = inventory(vec![plain(1), plain(2)], activation(Some(1), &[]));
    assert_eq!(inventory.find("notes", "sha256:2").unwrap().version, "1.0.2");
    assert_eq!(inventory.by_digest("sha256:2").unwrap().version, "1.0.2");
    assert_eq!(inventory.by_number("notes", "1.0.2").unwrap().digest, "sha256:2");
    assert!(inventory.find("other", "sha256:2").is_none());
    assert!(inventory.by_number("other", "1.0.2").is_none());
    assert!(inventory.by_number("notes", "1.0").is_none());
    assert_eq!(inventory.active("notes"), Some("sha256:1"));
    assert_eq!(inventory.active("other"), None);
}

#[test]
fn a_quarantined_version_is_reached_by_no_request_and_looks_for_nothing() {
    let versions = vec![plain(1), version(2, State::Quarantined, &[]), plain(3)];
    let inventory = inventory(versions, activation(Some(1), &[]));
    let live: Vec<_> = inventory.live().map(|version| version.version.as_str()).collect();
    assert_eq!(live, ["1.0.1", "1.0.3"]);
    let beside: Vec<_> = inventory.beside(&plain(1)).map(|other| other.version.as_str()).collect();
    assert_eq!(beside, ["1.0.3"]);
}

#[test]
fn an_activation_whose_version_is_gone_serves_nothing() {
    let gone = inventory(vec![plain(1)], activation(Some(2), &[]));
    assert_eq!(gone.serving().count(), 0);
    let none = inventory(vec![plain(1)], activation(None, &[]));
    assert_eq!(none.serving().count(), 0);
    let one = inventory(vec![plain(1)], activation(Some(1), &[]));
    assert_eq!(
        one.serving().map(|version| version.version.as_str()).collect::<Vec<_>>(),
        ["1.0.1"]
    );
}

#[test]
fn what_served_before_anybody_was_asked_counts_as_agreed_to() {
    let asks = |n, providers: &[&str]| version(n, State::Retired, providers);
    let versions = || vec![asks(1, &["a"]), asks(2, &["a", "b"]), asks(3, &["a", "b", "c"])];
    let names = |set: BTreeSet<String>| set.into_iter().collect::<Vec<_>>().join(" ");
    for (activation, agreed, missing) in [
        (activation(Some(1), &[]), "a", "b c"),
        (activation(Some(2), &[1]), "a b", "c"),
        (activation(Some(1), &[3]), "a b c", ""),
        (Activation { agreed: Some(BTreeSet::new()), ..activation(Some(1), &[]) }, "", "a b c"),
        (
            Activation { agreed: Some(["b".into()].into()), ..activation(Some(3), &[1, 2]) },
            "b",
            "a c",
        ),
    ] {
        let inventory = inventory(versions(), activation);
        assert_eq!(names(inventory.consents("notes")), agreed);
        assert_eq!(names(inventory.missing_consents(&asks(3, &["a", "b", "c"]))), missing);
    }
    let nothing = Inventory { versions: BTreeMap::new(), activations: BTreeMap::new() };
    assert_eq!(names(nothing.missing_consents(&asks(1, &["a"]))), "a");
}

#[test]
fn the_states_are_words_on_the_wire() {
    for (state, word) in [
        (State::Staged, "staged"),
        (State::Active, "active"),
        (State::Retired, "retired"),
        (State::Quarantined, "quarantined"),
    ] {
        assert_eq!(state.as_str(), word);
        assert_eq!(serde_json::to_value(state).unwrap(), word);
    }
}

proptest! {
    #[test]
    fn a_rollback_never_goes_to_what_serves_or_is_unsound(
        states in proptest::collection::vec(any::<bool>(), 1..6),
        history in proptest::collection::vec(0_usize..8, 0..10),
        active in 0_usize..8,
    ) {
        let state = |sound| if sound { State::Retired } else { State::Quarantined };
        let versions: Vec<_> =
            states.iter().enumerate().map(|(n, sound)| version(n, state(*sound), &[])).collect();
        let inventory = inventory(versions, activation(Some(active), &history));
        match inventory.predecessor("notes") {
            Some(found) => {
                prop_assert_ne!(Some(found.digest.as_str()), inventory.active("notes"));
                prop_assert_ne!(found.state, State::Quarantined);
                let at = |digest: &str| format!("sha256:{digest}");
                let number = found.version.strip_prefix("1.0.").unwrap_or_default();
                prop_assert!(history.iter().any(|n| at(&n.to_string()) == at(number)));
            }
            None => {
                let sound = |n: &usize| *n != active && states.get(*n) == Some(&true);
                prop_assert!(!history.iter().any(sound));
            }
        }
    }
}

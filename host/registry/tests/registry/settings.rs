//! The operator's settings of primitives: checked against each version that would run under them.

use charter_registry::components::State;
use charter_registry::served::Reserved;
use charter_registry::settings::{Primitives, Settings};
use serde_json::{Value, json};

use crate::bed::{Bed, reason, settings};

fn set(values: Value) -> Settings {
    let by_primitive = values.as_object().unwrap().iter();
    let values = by_primitive.map(|(name, of)| (name.clone(), of.as_object().unwrap().clone()));
    Settings { primitives: Primitives::new(values.collect()), ..settings() }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_does_not_know_what_is_set_is_not_activated() {
    let bed = Bed::with(set(json!({"probe": {"only_900001": 1}})), Reserved::default()).await;
    let fits = bed.serve(900_001).await;
    let other = bed.stage(900_002).await;
    assert_eq!(bed.version(&other).state, State::Staged, "it may wait for other settings");
    let told = reason(bed.activate(&other).await.unwrap_err());
    assert!(told.contains("primitives.probe.only_900001"), "{told}");
    assert!(told.contains("it has only_900002"), "the fault names what there is: {told}");
    assert_eq!(bed.serving(), Some(fits));
    assert!(bed.registry.load_pinned("probe", "1.0.900002").await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_start_names_what_does_not_fit_what_serves() {
    let bed = Bed::new().await;
    bed.serve(900_001).await;
    bed.stage(900_002).await;
    for (values, faults) in [
        (json!({}), 0),
        (json!({"probe": {"only_900001": true}}), 0),
        // The staged one is not asked: another serves.
        (json!({"probe": {"only_900002": true}}), 1),
        (json!({"probe": {"only_900001": true, "a": 1, "b": 2}}), 2),
        // Settings of a primitive that is not installed are checked when it is.
        (json!({"absent": {"anything": 1}}), 0),
    ] {
        let registry = bed.restarted(set(values.clone())).await;
        assert_eq!(registry.settings_faults().len(), faults, "{values}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn where_nothing_serves_the_first_to_would_be_asked() {
    let bed = Bed::new().await;
    bed.stage(900_001).await;
    let registry = bed.restarted(set(json!({"probe": {"only_900002": true}}))).await;
    let told: Vec<_> = registry.settings_faults().iter().map(ToString::to_string).collect();
    assert_eq!(told.len(), 1);
    assert!(told[0].starts_with("primitives.probe.only_900002"), "{told:?}");
}

#[test]
fn a_value_is_found_by_primitive_and_key() {
    let primitives = set(json!({"a": {"x": 1, "y": null}, "b": {}})).primitives;
    for (primitive, key, wanted) in [
        ("a", "x", Some(json!(1))),
        ("a", "y", Some(Value::Null)),
        ("a", "z", None),
        ("b", "x", None),
        ("c", "x", None),
    ] {
        assert_eq!(primitives.get(primitive, key), wanted.as_ref(), "{primitive}.{key}");
    }
    assert_eq!(primitives.names().collect::<Vec<_>>(), ["a", "b"]);
}

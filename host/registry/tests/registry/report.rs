//! The operator's view of components.

use serde_json::{Value, json};

use crate::bed::Bed;
use crate::fixture::fixture;

#[tokio::test(flavor = "multi_thread")]
async fn the_list_has_a_line_for_each_primitive() {
    let bed = Bed::new().await;
    assert!(bed.registry.list().is_empty());
    let digest = bed.serve(900_001).await;
    bed.stage(900_002).await;
    bed.install(fixture("hostile")).await.unwrap();
    let list = json!(bed.registry.list());
    let names: Vec<_> = list.as_array().unwrap().iter().map(|line| line["name"].clone()).collect();
    assert_eq!(names, ["hostile", "probe"]);
    let probe = &list[1];
    assert_eq!(probe["title"], "Probe");
    assert_eq!(probe["active"]["digest"], digest.as_str());
    assert_eq!(probe["active"]["state"], "active");
    assert_eq!((&probe["versions_installed"], &probe["calls"]), (&json!(2), &json!(0)));
    assert_eq!(list[0]["active"], Value::Null, "what is staged serves nobody");
    assert_eq!(list[0]["title"], "Hostile", "it has a title all the same");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_primitive_is_shown_with_its_versions_the_newest_first() {
    let bed = Bed::new().await;
    assert!(bed.registry.describe("probe").is_none());
    let first = bed.serve(900_001).await;
    let second = bed.serve(900_002).await;
    bed.stage(900_003).await;
    let view = json!(bed.registry.describe("probe").unwrap());
    let versions = view["versions"].as_array().unwrap();
    let column = |name: &str| versions.iter().map(|row| row[name].clone()).collect::<Vec<_>>();
    assert_eq!(column("version"), ["1.0.900003", "1.0.900002", "1.0.900001"]);
    assert_eq!(column("state"), ["staged", "active", "retired"]);
    assert_eq!(column("signed"), [false, false, false]);
    assert_eq!(column("unagreed"), [json!([]), json!([]), json!([])]);
    assert!(column("operations").iter().all(|count| count.as_u64().unwrap() > 5));
    assert!(column("bytes").iter().all(|bytes| bytes.as_u64().unwrap() > 10_000));
    assert_eq!(view["rollback_to"], first.as_str());
    assert_eq!(view["active"]["digest"], second.as_str());
    assert_eq!(view["activated_by"], "operator");
    assert!(view["activated_at"].as_str().unwrap().ends_with('Z'));
}

//! A loaded component's knowledge of its collections and operations.

use charter_kernel::role::Role;
use charter_kernel::scope::{Actor, ActorKind, Principal};
use serde_json::json;

use super::*;
use crate::run::bed::{Bed, alone, key, scope, shop, user};

#[tokio::test]
async fn an_operation_that_nobody_declared_takes_the_power_to_change() {
    let bed = Bed::new().await;
    assert_eq!(bed.component.class("shop.undeclared"), Class::Regulated);
    assert_eq!(bed.component.class(""), Class::Regulated);
    assert_eq!(bed.component.class("shop.look"), Class::ProfileRead);
    assert_eq!(bed.component.class("shop.peek"), Class::ProfileRead);
    assert_eq!(bed.component.class("shop.do"), Class::ProfileChange);
}

#[tokio::test]
async fn a_collections_reach_is_its_callers() {
    let bed = Bed::new().await;
    let (user_of, project, organization) = (
        user(3),
        scope(key(Role::Admin), 1, Some(2), None),
        scope(key(Role::Admin), 1, None, None),
    );
    let nobody = alone(Principal::of(Actor::anonymous()));
    let host = alone(Principal::of(Actor::new(ActorKind::System, "s")));
    for (collection, depth) in [("notes", 1), ("plans", 2), ("house", 3), ("world", 5)] {
        let plan = bed.component.collection(collection).unwrap();
        for (at, by) in [&user_of, &project, &organization, &nobody, &host].into_iter().enumerate()
        {
            assert_eq!(plan.reach(by).is_ok(), at < depth, "{collection}: {by:?}");
            // A collection that everybody shares is read by everybody and written by the host.
            let writes = if collection == "world" { by == &host } else { at < depth };
            assert_eq!(plan.reach_to_write(by).is_ok(), writes, "{collection}: {by:?}");
        }
    }
    assert!(bed.component.collection("nothing").is_err());
    assert!(bed.component.collection("shop.notes").is_err());
}

#[tokio::test]
async fn a_version_writes_what_the_versions_beside_it_look_for() {
    let bed = Bed::new().await;
    let manifest = |indexes: serde_json::Value| {
        let mut other = shop();
        other["collections"][0]["indexes"] = indexes;
        serde_json::from_value::<Manifest>(other).unwrap()
    };
    let further = |bed: &Bed| bed.component.collection("notes").unwrap().further();
    let before = further(&bed);
    bed.component.stand_beside(&[bed.component.manifest()]);
    assert_eq!(further(&bed), before, "itself asks for nothing more");
    let (color, none) = (manifest(json!([{ "field": "color" }])), manifest(json!([])));
    bed.component.stand_beside(&[&color]);
    let beside = further(&bed);
    assert_ne!(beside, before);
    bed.component.stand_beside(&[&color, &none]);
    assert_eq!(further(&bed), beside);
    bed.component.stand_beside(&[]);
    assert_eq!(further(&bed), before, "it forgets those that went");
}

//! The audit row of a step: of the same commit, none where the step is refused, and no step is
//! taken without it.

use charter_kernel::audit::AuditRow;
use charter_kernel::time::Instant;
use charter_kernel::unit::FactKind;
use charter_registry::components::{LifeCycleError, State, Version};
use charter_store::audit_fact;
use charter_tenancy::operator::{self, Act, Operator};

use crate::bed::{ALL, Bed, reason, upload};
use crate::fixture::probe;

/// The row of an action.
fn row(action: &str) -> impl Fn(&Version, bool) -> Option<Act> + Sync {
    move |version, _| {
        let entity_id = Some(version.digest.as_str());
        audit_fact(&AuditRow { at: Instant(1), action, entity_id, ..AuditRow::default() })
            .ok()
            .map(Act::from)
    }
}

/// A row that no store takes.
fn unfit(version: &Version, changes: bool) -> Option<Act> {
    row("")(version, changes)
}

/// The actions of the deployment's rows, in their order.
async fn actions(bed: &Bed) -> Vec<String> {
    bed.store.facts_head_settled(FactKind::Audit, "").await.unwrap();
    let facts = bed.store.facts(FactKind::Audit, "", 0, 100).await.unwrap();
    facts.into_iter().map(|row| row.fact.name.clone()).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn each_step_that_is_taken_leaves_its_row_and_no_other_does() {
    let bed = Bed::new().await;
    let first = bed.serve(900_001).await;
    let second = bed.stage(900_002).await;
    let activate = async |digest: &str| {
        bed.registry.activate("probe", digest, "operator", &ALL, &row("activate")).await
    };
    let rollback = async || bed.registry.rollback("probe", None, "operator", &row("back")).await;
    let remove = async |digest: &str| bed.registry.remove("probe", digest, &row("remove")).await;

    let absent = format!("sha256:{}", "0".repeat(64));
    assert!(matches!(activate(&absent).await, Err(LifeCycleError::Absent(_))));
    assert_eq!(reason(rollback().await.unwrap_err()), "no_predecessor");
    assert_eq!(actions(&bed).await, [""; 0]);
    activate(&second).await.unwrap();
    assert_eq!(actions(&bed).await, ["activate"]);
    assert_eq!(reason(remove(&second).await.unwrap_err()), "active");
    rollback().await.unwrap();
    assert_eq!(actions(&bed).await, ["activate", "back"]);
    assert_eq!(reason(rollback().await.unwrap_err()), "no_predecessor");
    remove(&second).await.unwrap();
    assert_eq!(actions(&bed).await, ["activate", "back", "remove"]);
    assert!(matches!(remove(&second).await, Err(LifeCycleError::Absent(_))));
    // A version that serves already serves still, and the operator has said so.
    activate(&first).await.unwrap();
    assert_eq!(actions(&bed).await, ["activate", "back", "remove", "activate"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_step_is_taken_whose_row_is_not() {
    let bed = Bed::new().await;
    let first = bed.serve(900_001).await;
    let second = bed.stage(900_002).await;
    bed.registry.activate("probe", &second, "operator", &ALL, &unfit).await.unwrap_err();
    bed.registry.refresh().await.unwrap();
    assert_eq!((bed.serving(), bed.version(&second).state), (Some(first.clone()), State::Staged));
    bed.activate(&second).await.unwrap();
    bed.registry.rollback("probe", None, "operator", &unfit).await.unwrap_err();
    bed.registry.refresh().await.unwrap();
    assert_eq!((bed.serving(), bed.version(&first).state), (Some(second), State::Retired));
    bed.registry.remove("probe", &first, &unfit).await.unwrap_err();
    bed.registry.refresh().await.unwrap();
    assert_eq!(bed.version(&first).state, State::Retired);
    assert!(bed.store.blob_exists(&first).await.unwrap());
    assert_eq!(actions(&bed).await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_step_is_taken_by_a_token_that_was_replaced() {
    let bed = Bed::new().await;
    let (operator, token) = Operator::open(bed.store.clone(), None).await.unwrap();
    let version = operator.admit(token.unwrap().reveal()).await.unwrap();
    let act = |component: &Version, changes: bool| {
        let act = row("step")(component, changes)?;
        Some(Act { guards: vec![operator::guard(version)], ..act })
    };
    let first = bed.serve(900_001).await;
    let second = bed.stage(900_002).await;
    bed.registry.activate("probe", &second, "operator", &ALL, &act).await.unwrap();
    let mut txn = bed.store.begin("");
    operator::rotate(&mut txn).await.unwrap();
    txn.commit().await.unwrap();
    bed.registry.install(upload(probe(900_003)), &act).await.unwrap_err();
    bed.registry.activate("probe", &first, "operator", &ALL, &act).await.unwrap_err();
    bed.registry.rollback("probe", None, "operator", &act).await.unwrap_err();
    bed.registry.remove("probe", &first, &act).await.unwrap_err();
    bed.registry.refresh().await.unwrap();
    assert_eq!((bed.serving(), bed.version(&first).state), (Some(second), State::Retired));
    assert!(bed.registry.inventory().by_number("probe", "1.0.900003").is_none());
    assert_eq!(actions(&bed).await, ["step"]);
}

//! A step that was not taken, in the words of the wire.

use charter_kernel::fault::Fault;
use charter_kernel::id::{KitId, OrganizationId, ProjectId};
use charter_kernel::refusal::{Code, Refusal};
use charter_kernel::time::Instant;
use charter_registry::components::{LifeCycleError, digest_of};
use charter_store::{CommitError, ReadError};
use charter_tenancy::records::pin::Pin;

#[test]
fn each_error_has_its_code_and_says_whether_to_try_again() {
    let state = LifeCycleError::State { reason: "active", message: "it serves".into() };
    for (error, code, reason, retry) in [
        (
            LifeCycleError::Unfit(vec![Fault::new("a", "is wrong")]),
            Code::InvalidComponent,
            None,
            None,
        ),
        (LifeCycleError::Absent("notes 1".into()), Code::NotFound, None, None),
        (state, Code::StateConflict, Some("active"), None),
        (LifeCycleError::Lags("later".into()), Code::Overloaded, Some("replica_lags"), Some(5)),
        (ReadError::Overloaded.into(), Code::Overloaded, None, Some(1)),
        (CommitError::Failed.into(), Code::Overloaded, None, Some(1)),
    ] {
        let told = error.to_string();
        let refusal = Refusal::from(error);
        assert_eq!(refusal.code, code, "{told}");
        assert_eq!(refusal.reason.as_deref(), reason, "{told}");
        assert_eq!(refusal.retry_after_seconds, retry, "{told}");
    }
}

#[test]
fn every_fault_is_in_the_refusal() {
    let faults =
        vec![Fault::new("operations.0.path", "overlaps"), Fault::new("", "is no component")];
    let error = LifeCycleError::Unfit(faults);
    let told = error.to_string();
    assert!(told.contains("operations.0.path overlaps") && told.contains("is no component"));
    let refusal = Refusal::from(error);
    assert_eq!(refusal.details["faults"].as_array().unwrap().len(), 2);
}

#[test]
fn a_pinned_versions_refusal_names_the_kits_and_counts_all() {
    let id = |n: u8| charter_kernel::id::uuid_v7(Instant(1), [n; 10]);
    let pin = Pin {
        primitive: "notes".into(),
        version: "1.0.0".into(),
        organization: OrganizationId::parse(&id(1)).unwrap(),
        project: ProjectId::parse(&id(2)).unwrap(),
        kit: KitId::parse(&id(3)).unwrap(),
    };
    let error = LifeCycleError::Pinned { version: "notes 1.0.0".into(), kits: vec![pin], all: 40 };
    let refusal = Refusal::from(error);
    assert_eq!((refusal.code, refusal.reason.as_deref()), (Code::StateConflict, Some("pinned")));
    assert_eq!(refusal.details["kits_total"], 40);
    let kit = &refusal.details["kits"][0];
    assert_eq!((&kit["id"], &kit["organization_id"]), (&id(3).into(), &id(1).into()));
    assert_eq!(kit["project_id"], id(2));
    assert!(refusal.message.contains("notes 1.0.0") && refusal.message.contains("40"));
    assert!(refusal.hint.is_some(), "there is a way out");
}

#[test]
fn a_digest_is_taken_with_and_without_its_algorithm() {
    assert_eq!(digest_of("00ff"), "sha256:00ff");
    assert_eq!(digest_of("sha256:00ff"), "sha256:00ff");
}

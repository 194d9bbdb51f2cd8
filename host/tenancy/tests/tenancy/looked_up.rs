//! Approvals, and the people and grants around them: where each stands and what finds it.

use charter_kernel::governance::hold::Subject;
use charter_kernel::governance::policy::Grant;
use charter_kernel::id::OrganizationId;
use charter_kernel::lease;
use charter_kernel::role::Role;
use charter_kernel::unit::Reach;
use charter_tenancy::records::approval::{
    APPROVED, Approval, PENDING, PROJECT, RESOLVED, Status, Word,
};
use charter_tenancy::records::grant::Given;
use charter_tenancy::records::member::Member;
use charter_tenancy::records::{ACTIVE, EXPIRES, Record as _, STATUS};
use charter_tenancy::stored;

use crate::bed::Bed;

const ALL: [Status; 8] = [
    Status::PendingApproval,
    Status::Approved,
    Status::Executing,
    Status::Succeeded,
    Status::Failed,
    Status::Denied,
    Status::Expired,
    Status::Canceled,
];

fn approval(organization: &OrganizationId, id: &str, status: Status) -> Approval {
    let at = charter_kernel::time::Instant(1_800_000_000_000);
    serde_json::from_value(serde_json::json!({
        "id": id, "organization": organization, "status": status.as_str(),
        "action": "notes.buy", "primitive": "notes", "entity": "book", "title": "", "message": "",
        "context": {"to": "Ada"}, "amount_micro_usd": 5, "policy_ids": ["r"], "approvals_required": 1,
        "subject": {
            "organization": organization, "project": "p1", "user": "u1", "kit": null,
            "actor": ["key", "k"]
        },
        "asked_by": null, "hold": "h", "request_id": "r", "ordinal": 0, "request_sha256": "",
        "request": "sealed", "base": "", "expires_at": at, "created_at": at,
    }))
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_is_due_where_its_state_puts_it() {
    let bed = Bed::new().await;
    let organization = bed.house().await.organization.id;
    for status in ALL {
        let at = bed.now();
        let draft = approval(&organization, "a", status).due(at).unwrap();
        let group = |kind| lease::group(organization.as_str(), kind);
        let group = match status {
            Status::PendingApproval => group(PENDING),
            Status::Approved | Status::Executing => group(APPROVED),
            _ => RESOLVED.to_owned(),
        };
        assert_eq!(status.is_over(), group == RESOLVED, "{status:?}");
        assert_eq!(draft.lease, Some((group, at)), "{status:?}");
        assert_eq!(serde_json::to_value(status).unwrap(), status.as_str());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_is_found_by_its_state_its_user_and_its_project() {
    let bed = Bed::new().await;
    let organization = bed.house().await.organization.id;
    for (n, status) in ALL.into_iter().enumerate() {
        bed.put(&approval(&organization, &format!("a{n}"), status)).await;
    }
    let nobodys = Approval {
        subject: Subject {
            project: None,
            user: None,
            ..approval(&organization, "x", Status::Denied).subject
        },
        ..approval(&organization, "x", Status::Denied)
    };
    bed.put(&nobodys).await;
    let reach = Reach::organization(organization.as_str());
    for (matching, count) in [
        (vec![(STATUS, "pending_approval")], 1),
        (vec![(STATUS, "denied")], 2),
        (vec![(PROJECT, "p1")], 8),
        (vec![("user", "u1")], 8),
        (vec![("user", "u1"), (STATUS, "denied")], 1),
        (vec![(PROJECT, "p2")], 0),
    ] {
        let mut txn = bed.store.begin("");
        let found = stored::list::<Approval>(&mut txn, &reach, &matching, 100, 0).await.unwrap();
        assert_eq!(found.0.len(), count, "{matching:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_forgets_what_was_asked_and_keeps_what_was_decided() {
    let bed = Bed::new().await;
    let organization = bed.house().await.organization.id;
    let at = bed.now();
    let told = Approval {
        title: "for Ada".into(),
        message: "of Ada".into(),
        decisions: vec![Word {
            by: "a".into(),
            decision: "approve".into(),
            reason: Some("Ada asked".into()),
            self_approved: false,
            at,
        }],
        result: Some(serde_json::json!({"to": "Ada"})),
        error: Some(serde_json::json!({"code": "forbidden", "reason": "r", "message": "no, Ada"})),
        reason: Some("Ada again".into()),
        resolved_at: Some(at),
        ..approval(&organization, "a", Status::Failed)
    };
    bed.put(&told).await;
    let forgotten = told.clone().forget();
    assert!(!serde_json::to_string(&forgotten).unwrap().contains("Ada"), "{forgotten:?}");
    assert!(forgotten.is_forgotten() && !told.is_forgotten());
    assert_eq!((forgotten.entity.as_str(), forgotten.title.as_str()), ("", "notes.buy"));
    assert_eq!((forgotten.status, forgotten.amount_micro_usd), (told.status, Some(5)));
    assert_eq!((forgotten.created_at, forgotten.resolved_at), (told.created_at, Some(at)));
    assert_eq!(forgotten.decisions[0].decision, "approve");
    assert_eq!(forgotten.error, Some(serde_json::json!({"code": "forbidden", "reason": "r"})));
    bed.put(&forgotten).await;
    let mut txn = bed.store.begin("");
    let reach = Reach::organization(organization.as_str());
    let found = stored::list::<Approval>(&mut txn, &reach, &[("user", "u1")], 10, 0).await.unwrap();
    assert!(found.0.is_empty(), "it is not forgotten twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn members_are_found_by_role_and_a_person_is_one_once() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let organization = &house.organization.id;
    for role in [Role::Approver, Role::Approver, Role::Viewer] {
        bed.member(organization, role).await;
    }
    let again = crate::bed::membership(organization, &house.owner, Role::Admin);
    bed.put(&again).await;
    let reach = Reach::organization(organization.as_str());
    for (matching, count) in [
        ([("role", "approver")], 2),
        ([("role", "viewer")], 1),
        ([("role", "owner")], 0),
        ([("role", "admin")], 1),
        ([(STATUS, ACTIVE)], 4),
    ] {
        let mut txn = bed.store.begin("");
        let count_now = stored::count::<Member>(&mut txn, &reach, &matching).await.unwrap();
        assert_eq!(count_now, count, "{matching:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_is_found_by_its_user_and_swept_when_it_is_over() {
    let bed = Bed::new().await;
    let organization = bed.house().await.organization.id;
    let given = |id: &str, user: &str, after_ms: i64| Given {
        organization: organization.clone(),
        project: None,
        grant: Grant {
            id: id.into(),
            user_id: user.into(),
            actions: vec!["notes.*".into()],
            max_uses: None,
            cap_micro_usd: None,
            until: bed.now().plus_ms(after_ms),
            reason: "a trip".into(),
        },
        given_by: ("account".into(), "a".into()),
        created_at: bed.now(),
    };
    for given in [given("g1", "u1", 1_000), given("g2", "u1", 2_000), given("g3", "u2", 3_000)] {
        bed.put(&given).await;
    }
    let reach = Reach::organization(organization.as_str());
    let mut txn = bed.store.begin("");
    let found = stored::list::<Given>(&mut txn, &reach, &[("user", "u1")], 10, 0).await.unwrap();
    assert_eq!(found.0.len(), 2);
    for (after_ms, count) in [(1_000, 0), (1_001, 1), (5_000, 3)] {
        let before = bed.now().plus_ms(after_ms).to_string();
        let swept = bed.store.find_expired(&Given::space(), EXPIRES, &before, 10).await.unwrap();
        assert_eq!(swept.len(), count, "{after_ms}");
    }
}

//! Requests made again, and jobs that wait for a person: with what is left of the authority that
//! asked, and ended where the answer is no.

use charter_engine::job::{JobRecord, NEVER, Owner, jobs};
use charter_governance::approvals::{self, Job, Origin, Request};
use charter_kernel::governance::hold::State;
use charter_kernel::refusal::Refusal;
use charter_kernel::role::Role;
use charter_kernel::scope::{ActorKind, Level, Naming, Principal, Subject};
use charter_kernel::unit::{Draft, Key, Take, Unit, Write};
use charter_tenancy::records::Record as _;
use charter_tenancy::records::approval::{Approval, Status};
use charter_tenancy::records::user::User;
use serde_json::{Value, json};

use crate::bed::{Bed, on_both};
use crate::words::{
    CENT, account, api_key, asker, asking, id, leave, member, principal, project, request, scope,
    user, user_reach,
};

on_both!(
    a_request_is_made_again_with_what_is_left_of_its_authority,
    a_job_waits_by_its_approval_and_nobody_else_runs_it,
    a_job_that_was_not_approved_has_failed,
    a_cancelled_job_takes_what_waits_for_it_with_it,
);

/// The request as it is made again now.
async fn again(
    bed: &Bed,
    request: &Request,
    approval: &Approval,
) -> Result<charter_engine::Nested, Refusal> {
    request.repetition(&bed.governance.directory, approval, 5_000).await
}

async fn a_request_is_made_again_with_what_is_left_of_its_authority(bed: Bed) {
    bed.set_organization(asking(1)).await;
    bed.insert(&api_key(Role::Admin)).await;
    bed.insert(&member(9, Role::Admin)).await;
    let approval = bed.wait(leave(1)).await;
    let asked = Request { principal: Some(principal(Role::Admin)), ..request() };
    let call = again(&bed, &asked, &approval).await.unwrap();
    assert_eq!(call.operation, "shop.buy");
    assert_eq!(
        (call.parameters.as_slice(), call.body.as_deref()),
        ([("id".to_owned(), "1".to_owned())].as_slice(), request().body.as_deref())
    );
    // However often it is made, it is one: its key is the approval.
    assert_eq!(call.idempotency_key, approval.id);
    assert_eq!((call.scope.user(), call.scope.role()), (Some(&user()), Some(Role::Admin)));
    assert!(!call.repeatable, "nobody is asked about it once more");
    assert!(!call.credential.is_empty(), "it is committed while the key counts");
    bed.remove(&member(9, Role::Admin).key()).await;
    bed.insert(&member(9, Role::Viewer)).await;
    let call = again(&bed, &asked, &approval).await.unwrap();
    assert_eq!(call.scope.role(), Some(Role::Viewer));
    bed.remove(&User::address(&project(), &user())).await;
    let gone = again(&bed, &asked, &approval).await.unwrap_err();
    assert_eq!(gone.code.own_name(), "not_found");
    bed.remove(&api_key(Role::Admin).key()).await;
    let revoked = again(&bed, &asked, &approval).await.unwrap_err();
    assert_eq!(revoked.code.own_name(), "unauthorized");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_of_an_earlier_build_is_made_by_who_it_says() {
    let bed = Bed::sqlite().await;
    bed.set_organization(asking(1)).await;
    bed.insert(&api_key(Role::Developer)).await;
    bed.insert(&member(9, Role::Owner)).await;
    let approval = bed.wait(leave(1)).await;
    let earlier = |kind: &str, account: Option<String>| Request {
        principal: None,
        actor: (kind.into(), id(60)),
        account,
        role: Some(Role::Admin),
        ..request()
    };
    for (kind, account, wanted) in [
        ("key", Some(asker()), Ok((ActorKind::Key, Role::Developer))),
        ("session", Some(asker()), Ok((ActorKind::Session, Role::Admin))),
        ("system", None, Ok((ActorKind::System, Role::Admin))),
        // A session is somebody's, and a stranger's is nobody's here.
        ("session", None, Err("unauthorized")),
        ("session", Some(account(1).into_string()), Err("unauthorized")),
        ("hook", None, Err("internal_error")),
    ] {
        let made = again(&bed, &earlier(kind, account), &approval).await;
        let made = made.map(|call| (call.scope.actor().kind, call.scope.role().unwrap()));
        assert_eq!(made.map_err(|refusal| refusal.code.own_name()), wanted, "{kind}");
    }
    let lost = Request { organization: "nowhere".into(), ..request() };
    assert_eq!(again(&bed, &lost, &approval).await.unwrap_err().code.own_name(), "internal_error");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_is_made_again_as_one_that_names_whom_it_named() {
    let bed = Bed::sqlite().await;
    bed.set_organization(asking(1)).await;
    bed.insert(&api_key(Role::Developer)).await;
    bed.insert(&member(9, Role::Owner)).await;
    let approval = bed.wait(leave(1)).await;
    for (naming, wanted) in [
        (Some(Naming { project: false, user: Subject::Default }), Level::Organization),
        (Some(Naming { project: true, user: Subject::Default }), Level::Project),
        (Some(Naming { project: false, user: Subject::Header }), Level::User),
        // Of an earlier build, which did not keep it.
        (None, Level::User),
    ] {
        let call = again(&bed, &Request { naming, ..request() }, &approval).await.unwrap();
        assert_eq!((call.scope.level(), call.scope.user()), (wanted, Some(&user())), "{naming:?}");
    }
}

#[test]
fn a_request_of_an_earlier_build_keeps_its_digest() {
    let earlier = Request { naming: None, ..request() };
    let kept = json!(earlier);
    assert!(kept.get("naming").is_none(), "{kept}");
    let read: Request = serde_json::from_value(kept).unwrap();
    assert_eq!(read.sha256(), earlier.sha256());
}

/// A job of the user's that runs under a lease, as the gateway is told of it.
async fn job(bed: &Bed) -> Job {
    let owner =
        Owner { organization: id(1), project: id(2), user: Some(id(3)), root: Some(asker()) };
    let record: JobRecord = serde_json::from_value(json!({
        "primitive": "shop", "signal": "job", "name": "restock", "payload": { "books": 3 },
        "owner": owner, "key": "daily", "attempts_max": 5, "public": true,
        "run_at": bed.now(), "state": "queued",
    }))
    .unwrap();
    let key = Key::new(&user_reach(), &jobs(), id(80));
    let unique = vec![("key".to_owned(), "shop/daily".to_owned())];
    let draft = Draft {
        user: Some(id(3)),
        index: record.index(),
        unique: unique.clone(),
        lease: Some((record.group(), bed.now())),
        body: json!(record).to_string(),
        ..Draft::default()
    };
    let write = Write::Insert { key: key.clone(), draft };
    bed.commit(Unit { writes: vec![write], ..Unit::default() }).await.unwrap();
    let taken = take(bed, &record.group()).await.unwrap();
    let base = "https://charter.example".to_owned();
    Job { key, record, unique, token: taken, base, tells: Some("shop".into()) }
}

/// Takes the job that is due in a group; its token.
async fn take(bed: &Bed, group: &str) -> Option<String> {
    let take = Take {
        reach: None,
        space: jobs(),
        group: group.into(),
        until: bed.now().plus_ms(1_000),
        tokens: vec![format!("token {}", bed.now().0)],
    };
    bed.begin().take(take).await.unwrap().pop().map(|taken| taken.token)
}

/// Has the job wait for a person.
async fn park(bed: &Bed, job: Job) -> Approval {
    let asked = bed.ask_from(Some(Origin::Job(Box::new(job))), leave(CENT)).await;
    match asked {
        Err(charter_engine::Ungranted::Pending { approval }) => bed.approval(&approval).await,
        other => panic!("does not wait: {other:?}"),
    }
}

async fn a_job_waits_by_its_approval_and_nobody_else_runs_it(bed: Bed) {
    bed.set_organization(asking(1)).await;
    let job = job(&bed).await;
    let (key, group) = (job.key.clone(), job.record.group());
    let approval = park(&bed, job).await;
    assert_eq!((approval.job.as_ref(), approval.tells.as_deref()), (Some(&key), Some("shop")));
    assert_eq!(approval.asked_by, Some(asker()), "the person behind the job has asked");
    let parked: JobRecord = serde_json::from_str(&bed.row(&key).await.unwrap().body).unwrap();
    assert_eq!(
        (parked.approval.clone(), parked.state.as_str()),
        (Some(approval.id.clone()), "queued")
    );
    let waits = parked.parked_group();
    bed.clock.forward_ms(365 * 86_400_000);
    assert_eq!((take(&bed, &group).await, take(&bed, &waits).await), (None, None));
    let sealed = approvals::request(bed.store(), &approval).await.unwrap();
    assert_eq!((sealed.operation.as_str(), sealed.job), ("shop:restock", Some(key)));
    assert_eq!(sealed.body.as_deref(), Some(r#"{"books":3}"#));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_lease_has_ended_parks_nothing() {
    let bed = Bed::sqlite().await;
    bed.set_organization(asking(1)).await;
    let lost = Job { token: "another host's".into(), ..job(&bed).await };
    let asked = bed.ask_from(Some(Origin::Job(Box::new(lost))), leave(CENT)).await;
    assert!(matches!(asked, Err(charter_engine::Ungranted::Uncommitted(_))), "{asked:?}");
    assert!(bed.audit().await.is_empty());
}

async fn a_job_that_was_not_approved_has_failed(bed: Bed) {
    bed.set_organization(asking(1)).await;
    let job = job(&bed).await;
    let key = job.key.clone();
    let approval = park(&bed, job).await;
    let denied = Approval { status: Status::Denied, ..approval };
    let read =
        async || -> JobRecord { serde_json::from_str(&bed.row(&key).await.unwrap().body).unwrap() };
    // Another approval's end is not this one's.
    let other = Approval { id: id(90), ..denied.clone() };
    let nowhere =
        Approval { job: Some(Key::new(&user_reach(), &jobs(), "gone")), ..denied.clone() };
    let without = Approval { job: None, ..denied.clone() };
    let mut txn = bed.begin();
    for none in [&other, &nowhere, &without] {
        approvals::unpark(&mut txn, none, bed.now()).await.unwrap();
    }
    assert!(txn.unit().writes.is_empty());
    approvals::unpark(&mut txn, &denied, bed.now()).await.unwrap();
    txn.commit().await.unwrap();
    let ended = read().await;
    assert_eq!(ended.state, "failed");
    let error: Value = ended.error.unwrap();
    assert_eq!(
        (&error["code"], &error["reason"]),
        (&json!("forbidden"), &json!("approval_denied"))
    );
    // Its key is free for the next one, and an end stays one.
    let (second, unique) =
        (Key::new(&user_reach(), &jobs(), id(81)), vec![("key".into(), "shop/daily".into())]);
    let write = Write::Insert { key: second, draft: Draft { unique, ..Draft::default() } };
    bed.commit(Unit { writes: vec![write], ..Unit::default() }).await.unwrap();
    let mut txn = bed.begin();
    approvals::unpark(&mut txn, &denied, bed.now()).await.unwrap();
    assert!(txn.unit().writes.is_empty());
}

async fn a_cancelled_job_takes_what_waits_for_it_with_it(bed: Bed) {
    bed.set_organization(asking(1)).await;
    let job = job(&bed).await;
    let key = job.key.clone();
    let approval = park(&bed, job).await;
    let parked: JobRecord = serde_json::from_str(&bed.row(&key).await.unwrap().body).unwrap();
    let other = Key::new(&user_reach(), &jobs(), "other");
    let without = JobRecord { approval: None, ..parked.clone() };
    let mut txn = bed.begin();
    for none in [(&other, &parked), (&key, &without)] {
        approvals::cancel_of_job(&mut txn, none, bed.now()).await.unwrap();
    }
    assert!(txn.unit().writes.is_empty());
    approvals::cancel_of_job(&mut txn, (&key, &parked), bed.now()).await.unwrap();
    txn.commit().await.unwrap();
    let ended = bed.approval(&approval.id).await;
    assert_eq!((ended.status, ended.resolved_at), (Status::Canceled, Some(bed.now())));
    assert_eq!(bed.hold(&approval.hold).await.state, State::Voided);
    let (name, event) = bed.events().await.remove(0);
    assert_eq!(
        (name.as_str(), &event["payload"]["reason"]),
        ("approval.resolved", &json!("canceled"))
    );
    let mut txn = bed.begin();
    approvals::cancel_of_job(&mut txn, (&key, &parked), bed.now()).await.unwrap();
    assert!(txn.unit().writes.is_empty(), "an end stays one");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_failed_once_it_was_approved_says_why() {
    let bed = Bed::sqlite().await;
    bed.set_organization(asking(1)).await;
    let job = job(&bed).await;
    let key = job.key.clone();
    let approval = park(&bed, job).await;
    let error = json!({ "code": "budget_exceeded", "message": "No more." });
    let failed = Approval { status: Status::Failed, error: Some(error.clone()), ..approval };
    let mut txn = bed.begin();
    approvals::unpark(&mut txn, &failed, bed.now()).await.unwrap();
    txn.commit().await.unwrap();
    let row = bed.row(&key).await.unwrap();
    let ended: JobRecord = serde_json::from_str(&row.body).unwrap();
    assert_eq!(ended.error, Some(error));
    bed.clock.forward_ms(NEVER.0 / 1_000_000);
    assert_eq!(take(&bed, &ended.group()).await, None, "nobody runs it again");
}

#[test]
fn a_jobs_request_is_the_job_and_whose_it_is() {
    let key = Key::new(&user_reach(), &jobs(), id(80));
    let record: JobRecord = serde_json::from_value(json!({
        "primitive": "shop", "signal": "job", "name": "restock", "payload": [1],
        "owner": { "organization": id(1), "project": id(2) }, "attempts_max": 1, "public": false,
        "run_at": crate::bed::START, "state": "queued",
    }))
    .unwrap();
    let base = "https://charter.example".to_owned();
    let job = Job { key, record, unique: Vec::new(), token: "t".into(), base, tells: None };
    let made = job.request(&scope(Role::Developer));
    assert_eq!((made.organization, made.project), (id(1), (id(2), false)));
    assert_eq!((made.user, made.account), (Some(id(3)), Some(asker())));
    assert_eq!(made.principal, Some(principal(Role::Developer)));
    // A caller without user and project has an organization.
    let whole = Principal { role: None, ..principal(Role::Developer) };
    let scope = charter_kernel::scope::Proof::of(whole).organization(crate::words::organization());
    let made = job.request(&scope.scope());
    assert_eq!((made.project, made.user, made.role), ((String::new(), false), None, None));
}

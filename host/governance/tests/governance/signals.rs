//! Signals to primitives: each change of a user is a job of its own commit, for those whose
//! manifest asks for it, where its end finds it.

use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use charter_engine::EngineConfig;
use charter_engine::hook::{HookRecord, SIGNAL, Scheme};
use charter_engine::job::{JobRecord, Owner, Payload, jobs};
use charter_governance::lifecycle::{self, Billed, Called, Change, Told, is_told};
use charter_kernel::scope::Behind;
use charter_kernel::unit::{Key, Reach};
use charter_registry::components::{Consent, Upload};
use charter_store::{Query, StoreConfig, Txn};
use charter_tenancy::records::Record as _;
use charter_tenancy::records::approval::{Approval, Status};
use charter_tenancy::records::erasure::Erasure;
use charter_tenancy::records::project::{Mode, Project};
use charter_tenancy::records::user::User;
use serde_json::{Value, json};

use crate::bed::{Bed, Hands, START};
use crate::fixture::{probe, rewrite};
use crate::template;
use crate::words::{
    CENT, asking, id, leave, organization, organization_reach, project_record, user_reach,
    user_record,
};

/// The probe, asking for this signal (with its quotes, ten bytes) in the place of `restored`.
fn asking_for(build: u32, signal: &str) -> Vec<u8> {
    rewrite(probe(build), "\"restored\"", &format!("{signal:<10}"))
}

/// The components whose code is cached from the start.
fn usual() -> Vec<Vec<u8>> {
    vec![probe(910_001), asking_for(910_002, "\"credit\""), asking_for(910_003, "\"doubt\"")]
}

/// A deployment on which this component serves.
async fn with(wasm: Vec<u8>) -> Bed {
    let folder = template::folder();
    template::copy(&folder, usual).await;
    let clock = Arc::new(Hands(AtomicI64::new(START.0)));
    let config = EngineConfig { instances_max: 2, ..EngineConfig::default() };
    let (store, engine) = template::open(&folder, config, clock.clone()).await;
    let bed = Bed::over(store, engine, StoreConfig::new(folder, clock.clone()), clock).await;
    let registry = &bed.governance.registry;
    registry.refresh().await.unwrap();
    let upload = Upload { name: None, bytes: wasm.into(), signature: None };
    let digest = registry.install(upload, &|_, _| None).await.unwrap().version.digest.clone();
    registry.activate("probe", &digest, "operator", &Consent::All, &|_, _| None).await.unwrap();
    bed
}

/// The jobs of a reach, oldest first.
async fn jobs_of(bed: &Bed, reach: &Reach) -> Vec<JobRecord> {
    let found = bed.store().find(&Query::all(reach, &jobs())).await.unwrap();
    found.items.iter().rev().map(|(_, row)| serde_json::from_str(&row.body).unwrap()).collect()
}

async fn only_job(bed: &Bed, reach: &Reach) -> JobRecord {
    let all = jobs_of(bed, reach).await;
    let [only] = all.as_slice() else { panic!("{all:?}") };
    only.clone()
}

fn told<'a>(bed: &Bed, user: &'a User) -> Told<'a> {
    Told { user, test: true, now: bed.now(), request: "r", behind: Behind::Organization }
}

async fn tell(bed: &Bed, user: &User, change: Change) -> Vec<String> {
    let mut txn = bed.begin();
    let ids = told(bed, user).tell(&bed.governance, &mut txn, change).await.unwrap();
    txn.commit().await.unwrap();
    ids
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_for_a_change_is_told_of_it_in_its_commit() {
    let bed = with(probe(910_001)).await;
    let revoked = json!({ "at": START, "reason": "lost" });
    let user: User = {
        let mut user = json!(user_record(3));
        user["revoked"] = revoked;
        serde_json::from_value(user).unwrap()
    };
    let mut dropped = bed.begin();
    told(&bed, &user).tell(&bed.governance, &mut dropped, Change::Revoked).await.unwrap();
    drop(dropped);
    assert!(jobs_of(&bed, &user_reach()).await.is_empty(), "of what did not happen nobody hears");
    let ids = tell(&bed, &user, Change::Revoked).await;
    let job = only_job(&bed, &user_reach()).await;
    assert_eq!(ids.len(), 1);
    assert_eq!(
        (job.primitive.as_str(), job.signal.as_str(), job.name.as_str()),
        ("probe", "revoked", "revoked")
    );
    assert_eq!(job.payload.value()["user_id"], id(3));
    assert_eq!(
        (&job.payload.value()["reason"], &job.payload.value()["test"]),
        (&json!("lost"), &json!(true))
    );
    assert_eq!(job.payload.value()["external_id"], "scout-3");
    assert_eq!((job.owner.project, job.owner.user), (id(2), Some(id(3))));
    assert_eq!((job.run_at, job.request.as_deref(), job.attempts_max), (START, Some("r"), 12));
    assert!(!job.public, "it is the host's word, and none of the user's jobs");
}

#[tokio::test(flavor = "multi_thread")]
async fn who_does_not_ask_is_not_told() {
    let bed = with(asking_for(910_003, "\"doubt\"")).await;
    let user = user_record(3);
    assert!(tell(&bed, &user, Change::Restored).await.is_empty());
    assert_eq!(tell(&bed, &user, Change::Created).await.len(), 1);
    let without = Bed::sqlite().await;
    assert!(tell(&without, &user, Change::Created).await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_word_of_an_end_outlives_whom_it_is_about() {
    let bed = with(probe(910_001)).await;
    let user = user_record(3);
    let mut txn = bed.begin();
    let ids = told(&bed, &user).delete(&bed.governance, &mut txn).await.unwrap();
    txn.commit().await.unwrap();
    assert!(bed.row(&user.key()).await.is_none());
    assert!(jobs_of(&bed, &user_reach()).await.is_empty());
    let job = only_job(&bed, &organization_reach()).await;
    assert_eq!((job.signal.as_str(), &job.owner.user), ("deleted", &Some(id(3))));
    let found = bed.store().find(&Query::all(&organization_reach(), &Erasure::all())).await;
    let rows = found.unwrap().items;
    let [(_, row)] = rows.as_slice() else { panic!("{rows:?}") };
    let erasure = Erasure::read(row).unwrap();
    assert_eq!((erasure.user(), &erasure.after), (Some(id(3).as_str()), &ids));
    assert_eq!((erasure.since, &erasure.organization), (bed.now(), &id(1)));
    assert_eq!((&erasure.project, erasure.test), (&id(2), true));
    // It can be told again when nothing is left of the user's record.
    let later = bed.now().plus_ms(1);
    let again = lifecycle::tell_again(&bed.governance, &erasure, later).unwrap();
    let [(key, draft)] = again.as_slice() else { panic!("{again:?}") };
    let told: JobRecord = serde_json::from_str(&draft.body).unwrap();
    assert_eq!((&key.reach, &told.signal), (&organization_reach(), &job.signal));
    assert_eq!((told.owner, told.run_at), (job.owner, later));
    assert_eq!(
        (&told.payload.value()["user_id"], &told.payload.value()["at"]),
        (&json!(id(3)), &job.payload.value()["at"])
    );
    assert!(told.payload.value()["external_id"].is_null());
    let of_project = Erasure { reach: Reach::project(&id(2)).as_str().into(), ..erasure };
    assert!(lifecycle::tell_again(&bed.governance, &of_project, later).unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reach_is_erased_once_however_often_it_is_said() {
    let bed = Bed::sqlite().await;
    let erase = async |txn: &mut Txn| {
        lifecycle::erase(txn, &id(1), &Reach::project(&id(2)), Vec::new(), bed.now()).await
    };
    let mut txn = bed.begin();
    erase(&mut txn).await.unwrap();
    txn.commit().await.unwrap();
    let mut txn = bed.begin();
    erase(&mut txn).await.unwrap();
    assert!(txn.commit().await.is_err(), "it is under way");
    let key = Key::new(&organization_reach(), &Erasure::all(), Reach::project(&id(2)).as_str());
    let erasure = Erasure::read(&bed.row(&key).await.unwrap()).unwrap();
    assert_eq!((erasure.project(), erasure.user()), (Some(id(2).as_str()), None));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_biller_hears_of_its_organization_and_nobody_else_does() {
    let bed = with(asking_for(910_002, "\"credit\"")).await;
    let organization = organization();
    let news = |kind| Billed {
        organization: &organization,
        kind,
        payload: json!({ "amount_micro_usd": 5 }),
        now: bed.now(),
        request: "r",
    };
    let mut txn = bed.begin();
    // It has not asked to hear of this.
    news("registered").tell(&bed.governance, &mut txn).await.unwrap();
    assert!(txn.unit().writes.is_empty());
    news("credit").tell(&bed.governance, &mut txn).await.unwrap();
    txn.commit().await.unwrap();
    let job = only_job(&bed, &organization_reach()).await;
    assert_eq!(
        (job.primitive.as_str(), job.payload.value()["amount_micro_usd"].as_i64()),
        ("probe", Some(5))
    );
    assert_eq!((job.owner.user, job.owner.project.as_str()), (None, ""), "no user's end ends it");
    // Another primitive may ask, but does not bill.
    let store = bed.store().clone();
    let charter_governance::Governance { directory, registry, clock, notices, .. } =
        &*bed.governance;
    let other = charter_governance::Governance {
        store,
        directory: directory.clone(),
        registry: registry.clone(),
        notices: notices.clone(),
        biller: "billing".into(),
        sums: charter_governance::sums::Sums::default(),
        approvals_waiting_max: charter_governance::approvals::WAITING_MAX,
        clock: clock.clone(),
    };
    let mut txn = bed.begin();
    news("credit").tell(&other, &mut txn).await.unwrap();
    assert!(txn.unit().writes.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_took_a_hold_is_asked_what_became_of_it() {
    let bed = with(asking_for(910_003, "\"doubt\"")).await;
    let ask = async |primitive: &str| {
        let granted =
            bed.grant(charter_engine::Leave { primitive: primitive.into(), ..leave(CENT) }).await;
        let hold = bed.hold(&granted.id).await;
        let mut txn = bed.begin();
        lifecycle::ask(&bed.governance, &mut txn, &granted.id, &hold, bed.now()).await.unwrap();
        txn.commit().await.unwrap();
        granted.id
    };
    ask("shop").await;
    assert!(jobs_of(&bed, &user_reach()).await.is_empty(), "it would not understand");
    let hold = ask("probe").await;
    let job = only_job(&bed, &user_reach()).await;
    assert_eq!((job.signal.as_str(), job.attempts_max), ("doubt", 1));
    assert_eq!(
        (&job.payload.value()["permit"], &job.payload.value()["entity"]),
        (&json!(hold), &json!("card-1"))
    );
    assert_eq!(job.payload.value()["amount_micro_usd"], CENT);
    assert_eq!(job.payload.value()["request_id"], id(50));
}

#[tokio::test(flavor = "multi_thread")]
async fn who_made_an_approved_call_hears_of_its_end() {
    let bed = Bed::sqlite().await;
    bed.set_organization(asking(1)).await;
    let waits = bed.wait(leave(CENT)).await;
    assert!(lifecycle::answer(&waits, bed.now()).unwrap().is_none(), "a client asks by itself");
    let over = Approval {
        tells: Some("shop".into()),
        status: Status::Denied,
        reason: Some("too dear".into()),
        ..waits
    };
    let mut txn = bed.begin();
    charter_governance::approvals::tell(&mut txn, &over, bed.now()).unwrap();
    txn.commit().await.unwrap();
    let job = only_job(&bed, &user_reach()).await;
    assert_eq!((job.primitive.as_str(), job.signal.as_str()), ("shop", "approval"));
    assert_eq!(
        (&job.payload.value()["status"], &job.payload.value()["reason"]),
        (&json!("denied"), &json!("too dear"))
    );
    assert_eq!(job.payload.value()["approval_id"], over.id);
    assert_eq!(bed.events().await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hooks_call_is_told_where_the_hook_belongs() {
    let bed = Bed::sqlite().await;
    let owner = |project: &str, user: Option<String>| Owner {
        organization: id(1),
        project: project.into(),
        user,
        root: None,
    };
    for (owner, reach) in [
        (owner(&id(2), Some(id(3))), user_reach()),
        (owner(&id(2), None), Reach::project(&id(2))),
        (owner("", None), organization_reach()),
    ] {
        let hook = HookRecord {
            id: "h".into(),
            owner: owner.clone(),
            primitive: "shop".into(),
            collection: "orders".into(),
            document: (reach.as_str().into(), "o1".into()),
            scheme: Scheme::None,
            secret: None,
            reference: None,
            by: None,
            opened_at: START,
        };
        let mut txn = bed.begin();
        let payload = json!({ "body": "paid" });
        let called = Called { hook: &hook, payload, now: bed.now(), request: "r" };
        called.tell(&mut txn).await.unwrap();
        txn.commit().await.unwrap();
        let job = only_job(&bed, &reach).await;
        assert_eq!((job.signal.as_str(), &job.payload.value()["body"]), (SIGNAL, &json!("paid")));
        assert_eq!((job.owner, job.attempts_max), (owner, 100), "who called does not call again");
    }
}

#[test]
fn what_is_done_to_a_user_arrives_however_it_stands() {
    let none = Payload::from(Value::Null);
    for signal in ["created", "revoked", "restored", "deleted", "doubt", "approval"] {
        assert!(is_told(signal, &none), "{signal}");
    }
    for signal in ["job", "name", "question", "schedule", "hook", ""] {
        assert!(!is_told(signal, &none), "{signal}");
    }
    // A stranger's call is the user's own affair; a bound provider's word has happened.
    assert!(is_told("hook", &json!({ "provider": "acquirer" }).into()));
    assert!(!is_told("hook", &json!({ "provider": null }).into()));
    assert!(!is_told("job", &json!({ "provider": "acquirer" }).into()));
}

#[test]
fn a_test_project_is_one_that_says_so() {
    assert!(!lifecycle::is_test(&project_record()));
    assert!(lifecycle::is_test(&Project { mode: Mode::Test, ..project_record() }));
}

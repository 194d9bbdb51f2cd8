//! Records within a host route: read, written and listed, with each failure in the words of the
//! wire.

use charter_kernel::id::ProjectId;
use charter_kernel::unit::{Draft, Key, Reach, Refused, Rejection};
use charter_store::{CommitError, ReadError, WriteError};
use charter_tenancy::records::Record as _;
use charter_tenancy::records::account::Account;
use charter_tenancy::records::link::Link;
use charter_tenancy::records::pin::Pin;
use charter_tenancy::records::project::Project;
use charter_tenancy::stored;

use crate::bed::{Bed, random, short};

#[tokio::test(flavor = "multi_thread")]
async fn a_record_is_inserted_read_replaced_and_removed_with_its_versions() {
    let bed = Bed::new().await;
    let project = bed.house().await.main.project;
    let project = Project { id: ProjectId::new(bed.now(), random()), ..project };
    let mut txn = bed.store.begin("");
    assert!(stored::get::<Project>(&mut txn, &project.key()).await.unwrap().is_none());
    assert_eq!(stored::insert(&mut txn, &project, "id").await.unwrap(), 1);
    txn.commit().await.unwrap();
    let renamed = Project { name: "renamed".into(), ..project.clone() };
    let mut txn = bed.store.begin("");
    assert_eq!(stored::replace(&mut txn, &renamed, "id").await.unwrap(), 2);
    let own = stored::get::<Project>(&mut txn, &project.key()).await.unwrap().unwrap();
    assert_eq!((own.record.name.as_str(), own.version), ("renamed", 2), "own writes are read");
    txn.commit().await.unwrap();
    let mut txn = bed.store.begin("");
    stored::remove(&mut txn, &renamed).await.unwrap();
    txn.commit().await.unwrap();
    let mut txn = bed.store.begin("");
    assert!(stored::get::<Project>(&mut txn, &project.key()).await.unwrap().is_none());
    let missing = stored::replace(&mut txn, &renamed, "id").await.unwrap_err();
    assert_eq!(short(&missing), "NotFound");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_somebody_has_is_a_duplicate_of_the_field_that_was_given() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let second = bed.member(&house.organization.id, charter_kernel::role::Role::Viewer).await;
    let same = Account { email: house.owner.email.to_uppercase(), ..second };
    let mut txn = bed.store.begin("");
    let refusal = stored::replace(&mut txn, &same, "email").await.unwrap_err();
    assert_eq!(short(&refusal), "DuplicateRecord");
    assert_eq!(refusal.param.as_deref(), Some("email"));
    let holder = stored::holder::<Account>(&mut txn, &Account::claim(&same.email)).await.unwrap();
    assert_eq!(holder.unwrap().record.id, house.owner.id);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_goes_from_the_oldest_and_says_whether_there_is_more() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let reach = Reach::organization(house.organization.id.as_str());
    let page = async |limit, offset| {
        let mut txn = bed.store.begin("");
        let found = stored::list::<Project>(&mut txn, &reach, &[], limit, offset).await.unwrap();
        let ids: Vec<_> = found.0.into_iter().map(|found| found.record.id).collect();
        (ids, found.1)
    };
    let (main, side) = (house.main.project.id.clone(), house.side.project.id.clone());
    bed.clock.forward_ms(1_000);
    let late = Project { id: ProjectId::new(bed.now(), random()), ..house.main.project.clone() };
    bed.put(&late).await;
    assert_eq!(page(10, 0).await, (vec![main.clone(), side.clone(), late.id.clone()], false));
    assert_eq!(page(2, 0).await, (vec![main, side.clone()], true));
    assert_eq!(page(2, 1).await, (vec![side, late.id], false));
    assert_eq!(page(2, 3).await, (vec![], false));
    let mut txn = bed.store.begin("");
    assert_eq!(stored::count::<Project>(&mut txn, &reach, &[]).await.unwrap(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_counted_holds_at_the_commit() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let reach = Reach::organization(house.organization.id.as_str());
    let insert = async |meanwhile: bool| {
        let mut txn = bed.store.begin("");
        stored::count::<Project>(&mut txn, &reach, &[]).await.unwrap();
        let another =
            || Project { id: ProjectId::new(bed.now(), random()), ..house.main.project.clone() };
        if meanwhile {
            bed.put(&another()).await;
        }
        stored::insert(&mut txn, &another(), "id").await.unwrap();
        txn.commit().await.is_ok()
    };
    assert!(insert(false).await);
    assert!(!insert(true).await, "two that counted at once would both come in under a limit");
}

#[tokio::test(flavor = "multi_thread")]
async fn all_of_a_collection_is_more_than_a_page_and_leaves_out_what_nobody_can_read() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let pin = |n: usize| Pin {
        primitive: format!("p{n}"),
        version: "1.0.0".into(),
        organization: house.organization.id.clone(),
        project: house.main.project.id.clone(),
        kit: house.main.kit.id.clone(),
    };
    let mut txn = bed.store.begin("");
    for n in 0..450 {
        txn.put(pin(n).key(), pin(n).draft().unwrap()).await.unwrap();
    }
    let broken = Key::new(&Reach::deployment(), &Pin::space(), "broken");
    txn.put(broken, Draft { body: "{\"primitive\": 7}".into(), ..Draft::default() }).await.unwrap();
    txn.commit().await.unwrap();
    for relaxed in [true, false] {
        let mut txn = bed.store.begin("");
        assert_eq!(stored::all::<Pin>(&mut txn, relaxed).await.unwrap().len(), 450);
        // Every read is validated, unless nothing is decided by it.
        assert_eq!(txn.unit().guards.is_empty(), relaxed);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_record_that_nobody_can_read_is_an_error_and_not_absent() {
    let bed = Bed::new().await;
    let key = Link::address("digest");
    let mut txn = bed.store.begin("");
    txn.put(key.clone(), Draft { body: "{}".into(), ..Draft::default() }).await.unwrap();
    txn.commit().await.unwrap();
    let mut txn = bed.store.begin("");
    let refusal = stored::get::<Link>(&mut txn, &key).await.unwrap_err();
    assert_eq!(short(&refusal), "InternalError");
    assert!(!refusal.message.contains("links"), "what went wrong is for the log");
}

#[test]
fn each_failure_of_the_store_has_its_words() {
    let key = || Key::new(&Reach::deployment(), &Pin::space(), "x");
    for (refusal, wanted, retry) in [
        (stored::reading(ReadError::Overloaded), "Overloaded", Some(1)),
        (stored::reading(ReadError::Unavailable(None)), "Overloaded", Some(1)),
        (stored::reading(ReadError::Failed(None)), "InternalError", None),
        (stored::committing(CommitError::Overloaded { retry_after_s: 7 }), "Overloaded", Some(7)),
        (stored::committing(CommitError::Failed), "InternalError", None),
        (
            stored::committing(CommitError::ReadOnly { reason: "full".into() }),
            "Overloaded",
            Some(1),
        ),
        (
            stored::committing(CommitError::Rejected(Rejection::Conflict { keys: vec![] })),
            "Overloaded",
            Some(1),
        ),
        (
            stored::commit_refusal(&CommitError::Overloaded { retry_after_s: 7 }),
            "Overloaded",
            Some(7),
        ),
        (
            stored::commit_refusal(&CommitError::ReadOnly { reason: "the disk is full".into() }),
            "Overloaded read_only",
            Some(30),
        ),
        (stored::commit_refusal(&CommitError::Failed), "InternalError", None),
        (
            stored::breaking(WriteError::Refused(Refused::Stale { key: key(), current: 3 })),
            "VersionConflict",
            None,
        ),
        (stored::breaking(WriteError::Refused(Refused::Missing { key: key() })), "NotFound", None),
        (
            stored::breaking(WriteError::Refused(Refused::Exists { key: key() })),
            "InternalError",
            None,
        ),
        (stored::breaking(WriteError::Read(ReadError::Overloaded)), "Overloaded", Some(1)),
    ] {
        assert_eq!(short(&refusal), wanted);
        assert_eq!(refusal.retry_after_seconds, retry, "{wanted}");
    }
    let read_only = stored::commit_refusal(&CommitError::ReadOnly { reason: "full".into() });
    assert!(read_only.message.contains("full"), "{}", read_only.message);
}

#[test]
fn random_bits_are_not_the_same_twice() {
    assert_ne!(stored::random().unwrap(), stored::random().unwrap());
}

//! The operator's token: made once, given by the configuration, rotated, and shared by replicas.

use charter_kernel::audit::AuditRow;
use charter_kernel::unit::{Fact, FactKind};
use charter_store::{CommitError, audit_fact};
use charter_tenancy::operator::{self, Act, Operator};
use charter_tenancy::secret::Secret;

use crate::bed::Bed;

async fn admits(operator: &Operator, token: &Secret) -> bool {
    operator.admit(token.reveal()).await.is_some()
}

fn row(bed: &Bed) -> Fact {
    let row = AuditRow { action: "operator.rotate", at: bed.now(), ..AuditRow::default() };
    audit_fact(&row).unwrap()
}

/// A rotation by whoever was admitted by this version of the token.
async fn rotate(bed: &Bed, admitted: u64) -> Result<Secret, CommitError> {
    let mut txn = bed.store.begin("");
    Act { row: row(bed), guards: vec![operator::guard(admitted)] }.join(&mut txn);
    let token = operator::rotate(&mut txn).await.unwrap();
    txn.commit().await.map(|_| token)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_start_makes_a_token_and_no_later_one_shows_it_again() {
    let bed = Bed::new().await;
    let (operator, token) = Operator::open(bed.store.clone(), None).await.unwrap();
    let token = token.unwrap();
    assert!(token.reveal().starts_with("op_"), "a secret scanner has to find one that leaked");
    assert!(charter_tenancy::operator::is_strong(token.reveal()));
    assert!(admits(&operator, &token).await);
    let (again, shown) = Operator::open(bed.store.clone(), None).await.unwrap();
    assert!(shown.is_none());
    assert!(admits(&again, &token).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_but_the_token_is_admitted() {
    let bed = Bed::new().await;
    let (operator, token) = Operator::open(bed.store.clone(), None).await.unwrap();
    let token = token.unwrap();
    let text = token.reveal();
    for presented in ["", "op_", &text[..text.len() - 1], &format!("{text} "), &text.to_lowercase()]
    {
        let admitted = operator.admit(presented).await;
        assert_eq!(admitted.is_some(), presented == text, "{presented}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configured_token_replaces_the_one_that_was_made() {
    let bed = Bed::new().await;
    let (_, made) = Operator::open(bed.store.clone(), None).await.unwrap();
    let made = made.unwrap();
    let given = Secret::new("9f8e7d6c5b4a39281706f5e4".into());
    let (operator, shown) = Operator::open(bed.store.clone(), Some(&given)).await.unwrap();
    assert!(shown.is_none(), "who gave it knows it");
    assert!(admits(&operator, &given).await && !admits(&operator, &made).await);
    let (later, shown) = Operator::open(bed.store.clone(), None).await.unwrap();
    assert!(shown.is_none());
    assert!(admits(&later, &given).await, "it stays when the configuration names none any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_ends_the_old_token_on_every_replica_at_once() {
    let bed = Bed::new().await;
    let (operator, old) = Operator::open(bed.store.clone(), None).await.unwrap();
    let (replica, _) = Operator::open(bed.store.clone(), None).await.unwrap();
    let old = old.unwrap();
    let admitted = operator.admit(old.reveal()).await.unwrap();
    assert!(admits(&replica, &old).await);
    let new = rotate(&bed, admitted).await.unwrap();
    assert_ne!(new.reveal(), old.reveal());
    for one in [&operator, &replica] {
        assert!(admits(one, &new).await && !admits(one, &old).await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_rotations_by_one_token_one_is_made() {
    let bed = Bed::new().await;
    let (operator, old) = Operator::open(bed.store.clone(), None).await.unwrap();
    let admitted = operator.admit(old.unwrap().reveal()).await.unwrap();
    let new = rotate(&bed, admitted).await.unwrap();
    assert!(rotate(&bed, admitted).await.is_err(), "the token that admitted it is another by now");
    assert!(admits(&operator, &new).await);
    let again = operator.admit(new.reveal()).await.unwrap();
    assert!(rotate(&bed, again).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_act_of_a_token_that_was_replaced_is_done() {
    let bed = Bed::new().await;
    let (operator, old) = Operator::open(bed.store.clone(), None).await.unwrap();
    let admitted = operator.admit(old.unwrap().reveal()).await.unwrap();
    let act = async || {
        let mut txn = bed.store.begin("");
        Act { row: row(&bed), guards: vec![operator::guard(admitted)] }.join(&mut txn);
        txn.commit().await.is_ok()
    };
    assert!(act().await);
    rotate(&bed, admitted).await.unwrap();
    assert!(!act().await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_and_its_audit_row_are_one_commit() {
    let bed = Bed::new().await;
    let (operator, token) = Operator::open(bed.store.clone(), None).await.unwrap();
    let admitted = operator.admit(token.unwrap().reveal()).await.unwrap();
    rotate(&bed, admitted).await.unwrap();
    rotate(&bed, admitted).await.unwrap_err();
    bed.store.facts_head_settled(FactKind::Audit, "").await.unwrap();
    let facts = bed.store.facts(FactKind::Audit, "", 0, 10).await.unwrap();
    assert_eq!(facts.len(), 1);
    assert_eq!(facts[0].fact.name, "operator.rotate");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_itself_is_nowhere_in_the_database() {
    let bed = Bed::new().await;
    let (_, token) = Operator::open(bed.store.clone(), None).await.unwrap();
    let token = token.unwrap();
    let secret = token.reveal().strip_prefix("op_").unwrap();
    bed.store.close().await;
    for file in std::fs::read_dir(bed.folder()).unwrap() {
        let path = file.unwrap().path();
        let Ok(bytes) = std::fs::read(&path) else { continue };
        let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
        assert!(!found, "{}", path.display());
    }
}

#[test]
fn no_token_prints_itself() {
    let token = Secret::new("op_hunter2hunter2hunter2".into());
    assert!(!format!("{token:?}").contains("hunter2"));
}

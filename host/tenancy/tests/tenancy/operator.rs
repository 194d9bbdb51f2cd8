//! The operator's token: made once, given by the configuration, rotated, and shared by replicas.

use charter_kernel::audit::AuditRow;
use charter_kernel::unit::FactKind;
use charter_store::audit_fact;
use charter_tenancy::operator::Operator;
use charter_tenancy::secret::Secret;

use crate::bed::Bed;

#[tokio::test(flavor = "multi_thread")]
async fn the_first_start_makes_a_token_and_no_later_one_shows_it_again() {
    let bed = Bed::new().await;
    let (operator, token) = Operator::open(bed.store.clone(), None).await.unwrap();
    let token = token.unwrap();
    assert!(token.reveal().starts_with("op_"), "a secret scanner has to find one that leaked");
    assert!(charter_tenancy::operator::is_strong(token.reveal()));
    assert!(operator.admits(token.reveal()));
    let (again, shown) = Operator::open(bed.store.clone(), None).await.unwrap();
    assert!(shown.is_none());
    assert!(again.admits(token.reveal()));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_but_the_token_is_admitted() {
    let bed = Bed::new().await;
    let (operator, token) = Operator::open(bed.store.clone(), None).await.unwrap();
    let token = token.unwrap();
    let text = token.reveal();
    for presented in ["", "op_", &text[..text.len() - 1], &format!("{text} "), &text.to_lowercase()]
    {
        assert_eq!(operator.admits(presented), presented == text, "{presented}");
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
    assert!(operator.admits(given.reveal()) && !operator.admits(made.reveal()));
    let (later, shown) = Operator::open(bed.store.clone(), None).await.unwrap();
    assert!(shown.is_none());
    assert!(later.admits(given.reveal()), "it stays when the configuration names none any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_ends_the_old_token_here_at_once_and_elsewhere_with_the_next_look() {
    let bed = Bed::new().await;
    let (operator, old) = Operator::open(bed.store.clone(), None).await.unwrap();
    let (replica, _) = Operator::open(bed.store.clone(), None).await.unwrap();
    let old = old.unwrap();
    let row = AuditRow { action: "operator.rotate", at: bed.now(), ..AuditRow::default() };
    let new = operator.rotate(audit_fact(&row).unwrap()).await.unwrap();
    assert_ne!(new.reveal(), old.reveal());
    assert!(operator.admits(new.reveal()) && !operator.admits(old.reveal()));
    assert!(replica.admits(old.reveal()));
    replica.refresh().await.unwrap();
    assert!(replica.admits(new.reveal()) && !replica.admits(old.reveal()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotation_and_its_audit_row_are_one_commit() {
    let bed = Bed::new().await;
    let (operator, _) = Operator::open(bed.store.clone(), None).await.unwrap();
    let row = AuditRow { action: "operator.rotate", at: bed.now(), ..AuditRow::default() };
    operator.rotate(audit_fact(&row).unwrap()).await.unwrap();
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

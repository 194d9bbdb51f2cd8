//! The operator's token: made once, given by the configuration, rotated, and shared by replicas.

use charter_kernel::audit::AuditRow;
use charter_kernel::unit::{Draft, Fact, FactKind, Key, Reach, Space};
use charter_store::{CommitError, audit_fact};
use charter_tenancy::identity::Identity;
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

/// The operator's rows, by action.
async fn log(bed: &Bed) -> Vec<Fact> {
    bed.store.facts_head_settled(FactKind::Audit, "").await.unwrap();
    let facts = bed.store.facts(FactKind::Audit, "", 0, 1_000).await.unwrap();
    facts.into_iter().map(|numbered| numbered.fact).collect()
}

fn given(number: u32) -> Secret {
    Secret::new(format!("9f8e7d6c5b4a39281706f5e4-{number}"))
}

async fn start(bed: &Bed, token: Option<&Secret>) -> anyhow::Result<Operator> {
    Operator::open(bed.store.clone(), token).await.map(|(operator, _)| operator)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_changes_the_token_leaves_a_row_and_no_other_start_does() {
    let bed = Bed::new().await;
    start(&bed, Some(&given(1))).await.unwrap();
    start(&bed, Some(&given(1))).await.unwrap();
    start(&bed, None).await.unwrap();
    assert!(log(&bed).await.is_empty(), "nothing was replaced");
    start(&bed, Some(&given(2))).await.unwrap();
    start(&bed, Some(&given(2))).await.unwrap();
    let rows = log(&bed).await;
    assert_eq!(rows.len(), 1, "{rows:?}");
    assert_eq!(rows[0].name, "operator.token.set");
    assert!(rows[0].body.contains("configuration"), "{}", rows[0].body);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_that_was_replaced_counts_no_more_whatever_a_later_start_is_given() {
    let bed = Bed::new().await;
    let operator = start(&bed, Some(&given(1))).await.unwrap();
    let admitted = operator.admit(given(1).reveal()).await.unwrap();
    let new = rotate(&bed, admitted).await.unwrap();
    let rows = log(&bed).await.len();
    let Err(told) = start(&bed, Some(&given(1))).await else { panic!("it counts again") };
    for words in ["CHARTER_OPERATOR_TOKEN", "token_file", "was replaced", "give a new one"] {
        assert!(told.to_string().contains(words), "{told}");
    }
    assert!(admits(&operator, &new).await && !admits(&operator, &given(1)).await);
    assert_eq!(log(&bed).await.len(), rows, "nothing was done");
    // A rotation and another configuration replace it alike.
    start(&bed, Some(&given(2))).await.unwrap();
    start(&bed, Some(&given(3))).await.unwrap();
    for former in [given(1), given(2), new] {
        assert!(start(&bed, Some(&former)).await.is_err());
    }
    assert!(admits(&start(&bed, Some(&given(3))).await.unwrap(), &given(3)).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_newest_hundred_of_the_tokens_that_were_replaced_are_remembered() {
    let bed = Bed::new().await;
    for number in 0..=101 {
        start(&bed, Some(&given(number))).await.unwrap();
    }
    assert!(start(&bed, Some(&given(1))).await.is_err());
    assert!(start(&bed, Some(&given(0))).await.is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_of_an_earlier_build_counts_and_is_remembered_once_it_is_replaced() {
    let bed = Bed::new().await;
    start(&bed, Some(&given(1))).await.unwrap();
    let key = Key::new(&Reach::deployment(), &Space::host("operator"), "token");
    let mut txn = bed.store.begin("");
    let row = txn.get(&key).await.unwrap().unwrap();
    let mut body: serde_json::Value = serde_json::from_str(&row.body).unwrap();
    body.as_object_mut().unwrap().remove("former").unwrap();
    let draft = Draft { body: body.to_string(), ..Draft::default() };
    txn.put(key, draft).await.unwrap();
    txn.commit().await.unwrap();
    assert!(admits(&start(&bed, None).await.unwrap(), &given(1)).await);
    start(&bed, Some(&given(2))).await.unwrap();
    assert!(start(&bed, Some(&given(1))).await.is_err());
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
    // An export of the log that it has begun ends likewise.
    let begun = Identity::Operator { token: Some(admitted) };
    let goes_on = async || begun.lets_go_on(&bed.directory, &begun.guards()).await;
    assert!(act().await && goes_on().await);
    rotate(&bed, admitted).await.unwrap();
    assert!(!act().await && !goes_on().await);
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

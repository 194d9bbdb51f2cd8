//! E-mail addresses and names: what is one, and which two are the same.

use charter_tenancy::records::account::{
    Account, EMAIL_BYTES_MAX, NO_MAIL, email_fault, normalize,
};
use charter_tenancy::records::name;
use proptest::prelude::*;

use crate::bed::Bed;

#[test]
fn each_part_of_an_address_has_its_edge() {
    let local = |n: usize| format!("{}@example.com", "a".repeat(n));
    let label = |n: usize| format!("a@{}.com", "b".repeat(n));
    for (email, fits) in [
        (local(64), true),
        (local(65), false),
        (label(63), true),
        (label(64), false),
        ("a@b.c".into(), true),
        ("a@b.c.".into(), false),
        ("a@.b.c".into(), false),
        ("a@b-c.d".into(), true),
        ("a@b-.d".into(), false),
        ("a@b_c.d".into(), false),
        ("\"a b\"@c.d".into(), false),
        ("a\u{7f}@c.d".into(), false),
        ("a\n@c.d".into(), false),
        ("a@c.d\n".into(), false),
        ("a@[192.0.2.1]".into(), false),
    ] {
        assert_eq!(email_fault(&email).is_none(), fits, "{email:?}");
    }
    let labels = format!("{}.", "b".repeat(60)).repeat(4);
    let long = format!("aaaaaaaa@{labels}c");
    assert_eq!(long.len(), EMAIL_BYTES_MAX);
    assert_eq!(email_fault(&long), None);
    assert!(email_fault(&format!("a{long}")).is_some());
}

#[test]
fn names_have_their_edges_in_characters() {
    for (text, fits) in [
        ("ü".repeat(name::CHARACTERS_MAX), true),
        ("ü".repeat(name::CHARACTERS_MAX + 1), false),
        ("a".into(), true),
        (" a ".into(), true),
        ("\u{a0}".into(), false),
        ("a\tb".into(), false),
        ("a\u{1b}[31mb".into(), false),
    ] {
        assert_eq!(name::fault(&text).is_none(), fits, "{text:?}");
    }
}

#[test]
fn a_mailbox_has_one_spelling_up_to_case() {
    for (email, fits) in [
        ("a@CORPORATION.example", true),
        ("a@münchen.example", true),
        ("a@MÜNCHEN.example", true),
        ("müller@b.example", true),
        ("a@ｃorporation.example", false),
        ("a@corporation。example", false),
        ("a@xn--mnchen-3ya.example", false),
        ("a@ΑΣ-Α.example", false),
        ("\u{212a}ate@b.example", false),
        ("\"a\"@b.example", false),
        ("\"\\a\"@b.example", false),
    ] {
        assert_eq!(email_fault(email).is_none(), fits, "{email}");
    }
    let kept = format!("a@{}", NO_MAIL.replace('d', "ｄ"));
    assert!(email_fault(&kept).is_some(), "the host's own, however it is spelled");
}

proptest! {
    #[test]
    fn normalizing_twice_is_normalizing_once(text in "\\PC{0,60}") {
        prop_assert_eq!(normalize(&normalize(&text)), normalize(&text));
    }

    #[test]
    fn an_address_stays_one_when_it_is_normalized(
        local in "[a-zA-Z0-9.+_-]{1,20}",
        domain in "[a-zA-Z0-9]{1,10}(\\.[a-zA-Z]{1,10}){1,3}",
    ) {
        let email = format!("{local}@{domain}");
        prop_assert_eq!(email_fault(&email), None);
        prop_assert_eq!(email_fault(&normalize(&email)), None);
        prop_assert_eq!(Account::claim(&email), Account::claim(&email.to_uppercase()));
    }

    #[test]
    fn what_has_no_at_no_dot_or_a_space_is_no_address(text in "[a-z @]{0,30}") {
        prop_assert!(email_fault(&text).is_some());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_is_found_by_any_spelling_of_its_address() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let account = Account { email: "Ann@Example.com".into(), ..house.owner };
    bed.put(&account).await;
    for email in ["ann@example.com", "ANN@EXAMPLE.COM", " ann@example.com "] {
        let found = bed.directory.account(email).await.unwrap();
        assert_eq!(found.map(|found| found.id), Some(account.id.clone()), "{email}");
    }
    for email in ["", "ann", "ann@example.co", "ann+tag@example.com"] {
        assert!(bed.directory.account(email).await.unwrap().is_none(), "{email}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_that_lost_its_address_leaves_it_to_the_next() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let email = house.owner.email.clone();
    let moved = Account { email: house.owner.address_without_mail(), ..house.owner.clone() };
    assert!(moved.email.ends_with(&format!("@{NO_MAIL}")));
    assert!(email_fault(&moved.email).is_some(), "nobody gives it themselves");
    bed.put(&moved).await;
    assert!(bed.directory.account(&email).await.unwrap().is_none());
    let next = bed.member(&house.organization.id, charter_kernel::role::Role::Viewer).await;
    bed.put(&Account { email: email.clone(), ..next.clone() }).await;
    let found = bed.directory.account(&email).await.unwrap().unwrap();
    assert_eq!(found.id, next.id);
}

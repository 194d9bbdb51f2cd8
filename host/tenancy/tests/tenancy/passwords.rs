//! Passwords: which are taken, and who may wait to have one hashed.

use charter_tenancy::directory::password::{
    PASSWORD_BYTES_MAX, PASSWORD_CHARACTERS_MIN, PasswordError, Passwords, fault,
};
use proptest::prelude::*;

const EMAIL: &str = "ann@example.com";

#[test]
fn each_rule_has_its_edge() {
    for (password, fits) in [
        ("1234567", false),
        ("12345678", true),
        ("пароль12", true),
        ("🔑🔒🗝🔐🔓🔏🗄🧷", true),
        ("🔑🔒🗝🔐🔓🔏🗄", false),
        ("        ", false),
        ("ssssssss", false),
        ("sssssssS", true),
        (EMAIL, false),
        ("ANN@EXAMPLE.COM", false),
        ("ann@example.com1", true),
        ("correct horse battery staple", true),
    ] {
        assert_eq!(fault(password, EMAIL).is_none(), fits, "{password:?}");
    }
    let longest = format!("{}b", "a".repeat(PASSWORD_BYTES_MAX - 1));
    assert_eq!(fault(&longest, EMAIL), None);
    assert!(fault(&format!("{longest}a"), EMAIL).is_some());
}

proptest! {
    #[test]
    fn a_password_of_words_is_taken_and_a_short_one_never(password in "\\PC{0,40}") {
        let long_enough = password.chars().count() >= PASSWORD_CHARACTERS_MIN;
        match fault(&password, EMAIL) {
            None => prop_assert!(long_enough),
            Some(told) => prop_assert!(!long_enough || told.contains("single character")),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_password_has_another_hash_each_time_and_fits_both() {
    let passwords = Passwords::new(2).unwrap();
    let hash = async || passwords.hash("client", "correct horse".into()).await.unwrap();
    let (one, other) = (hash().await, hash().await);
    assert_ne!(one, other);
    for stored in [one, other] {
        assert!(passwords.verify("client", "correct horse".into(), Some(stored)).await.unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_hash_fits_nothing() {
    let passwords = Passwords::new(1).unwrap();
    for stored in ["", "none", "correct horse", "$argon2id$v=19$m=19456,t=2,p=1$c2FsdA$"] {
        let fits = passwords.verify("client", "correct horse".into(), Some(stored.into())).await;
        assert!(!fits.unwrap(), "{stored}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_is_too_long_fits_nothing_and_costs_no_more() {
    let passwords = Passwords::new(1).unwrap();
    let long = "ab".repeat(PASSWORD_BYTES_MAX);
    let stored = passwords.hash("client", long.clone()).await.unwrap();
    assert!(!passwords.verify("client", long, Some(stored)).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_floods_is_told_so_and_another_is_served() {
    let passwords = Passwords::new(1).unwrap();
    let stored = passwords.hash("calm", "correct horse".into()).await.unwrap();
    let attempts = (0..200).map(|_| passwords.verify("flood", "x".into(), None));
    let flood = futures_of(attempts);
    let calm = passwords.verify("calm", "correct horse".into(), Some(stored));
    let (refused, calm) = tokio::join!(flood, calm);
    assert!(calm.unwrap());
    assert!(refused > 100, "{refused} of 200 were refused");
}

/// How many of these were refused, all begun at once.
async fn futures_of(
    attempts: impl Iterator<Item = impl Future<Output = Result<bool, PasswordError>>>,
) -> usize {
    let mut attempts: Vec<_> = attempts.map(Box::pin).collect();
    let mut refused = 0;
    std::future::poll_fn(|cx| {
        attempts.retain_mut(|attempt| match attempt.as_mut().poll(cx) {
            std::task::Poll::Ready(Err(PasswordError::Busy)) => {
                refused += 1;
                false
            }
            poll => poll.is_pending(),
        });
        if attempts.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    refused
}

//! A person's sessions as cookies present them.

use charter_kernel::role::Role;
use charter_kernel::scope::ActorKind;
use charter_tenancy::directory::csrf_token;
use charter_tenancy::records::Record as _;
use charter_tenancy::records::account::Account;
use charter_tenancy::records::session::{LIFETIME_MS, Session};
use charter_tenancy::secret::Plain;

use crate::bed::{Bed, membership};

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_its_cookies_with_the_role_that_its_person_has_now() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let organization = &house.organization.id;
    let person = bed.member(organization, Role::Admin).await;
    let (cookie, session) = bed.sign_in(&person, organization).await;
    let found = bed.directory.session(cookie.reveal()).await.unwrap().unwrap();
    assert_eq!((&found.id, &found.account), (&session.id, &person.id));
    assert_eq!((found.membership.role, &found.organization), (Role::Admin, organization));
    let asks = found.principal();
    assert_eq!(
        (asks.actor.kind, asks.actor.id.as_str()),
        (ActorKind::Session, session.id.as_str())
    );
    assert_eq!((asks.project, asks.user), (None, None));
    assert_eq!(asks.root, Some(person.id.to_string()));
    bed.put(&membership(organization, &person, Role::Viewer)).await;
    let found = bed.directory.session(cookie.reveal()).await.unwrap().unwrap();
    assert_eq!(found.principal().role, Some(Role::Viewer));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_with_its_time_although_it_is_remembered() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let (cookie, _) = bed.sign_in(&house.owner, &house.organization.id).await;
    for (forward, counts) in [(0, true), (LIFETIME_MS - 1, true), (1, false)] {
        bed.clock.forward_ms(forward);
        let found = bed.directory.session(cookie.reveal()).await.unwrap();
        assert_eq!(found.is_some(), counts, "at {}", bed.now());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_with_whatever_it_stands_on() {
    for end in ["signed out", "removed", "account gone", "password", "organization left"] {
        let bed = Bed::new().await;
        let house = bed.house().await;
        let organization = &house.organization.id;
        let person = bed.member(organization, Role::Admin).await;
        let (cookie, session) = bed.sign_in(&person, organization).await;
        assert!(bed.directory.session(cookie.reveal()).await.unwrap().is_some(), "{end}");
        match end {
            "signed out" => bed.remove(&session.key()).await,
            "removed" => bed.remove(&membership(organization, &person, Role::Admin).key()).await,
            "account gone" => bed.remove(&person.key()).await,
            "password" => bed.put(&Account { password_version: 1, ..person }).await,
            _ => {
                let other = bed.house().await.organization.id;
                bed.put(&Session { organization: other, ..session }).await;
            }
        }
        assert!(bed.directory.session(cookie.reveal()).await.unwrap().is_none(), "{end}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_that_was_opened_under_the_new_password_stays() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let organization = &house.organization.id;
    let (old, _) = bed.sign_in(&house.owner, organization).await;
    let changed = Account { password_version: 7, ..house.owner.clone() };
    bed.put(&changed).await;
    let (new, _) = bed.sign_in(&changed, organization).await;
    assert!(bed.directory.session(old.reveal()).await.unwrap().is_none());
    assert!(bed.directory.session(new.reveal()).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn no_other_text_than_the_cookie_is_the_session() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let (cookie, session) = bed.sign_in(&house.owner, &house.organization.id).await;
    let csrf = csrf_token(&cookie);
    for presented in ["", session.id.as_str(), &session.digest, csrf.reveal()] {
        assert!(bed.directory.session(presented).await.unwrap().is_none(), "{presented}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_csrf_token_is_the_cookies_own() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let (cookie, _) = bed.sign_in(&house.owner, &house.organization.id).await;
    let (other, _) = bed.sign_in(&house.owner, &house.organization.id).await;
    let found = bed.directory.session(cookie.reveal()).await.unwrap().unwrap();
    assert!(found.csrf_token.is(csrf_token(&cookie).reveal()));
    assert!(!found.csrf_token.is(csrf_token(&other).reveal()));
    assert!(!found.csrf_token.is(cookie.reveal()));
    assert!(!found.csrf_token.is(""));
    assert!(!csrf_token(&Plain::from_client("")).is(""));
}

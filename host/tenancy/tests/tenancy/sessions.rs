//! A person's sessions as cookies present them.

use charter_kernel::role::Role;
use charter_kernel::scope::ActorKind;
use charter_tenancy::directory::csrf_token;
use charter_tenancy::records::Record as _;
use charter_tenancy::records::account::Account;
use charter_tenancy::records::member::Member;
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
async fn all_sessions_end_with_the_account_that_says_so_but_the_one_that_is_kept() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let organization = &house.organization.id;
    let (kept, session) = bed.sign_in(&house.owner, organization).await;
    let (other, _) = bed.sign_in(&house.owner, organization).await;
    let counts =
        async |cookie: &Plain| bed.directory.session(cookie.reveal()).await.unwrap().is_some();
    let mut account = house.owner.clone();
    account.end_sessions(Some(&session.id));
    bed.put(&account).await;
    assert_eq!((counts(&kept).await, counts(&other).await), (true, false));
    let (third, own) = bed.sign_in(&account, organization).await;
    assert!(counts(&third).await);
    account.end_sessions(Some(&own.id));
    bed.put(&account).await;
    assert_eq!((counts(&kept).await, counts(&third).await), (false, true), "one is kept");
    account.end_sessions(None);
    bed.put(&account).await;
    assert!(!counts(&third).await);
    // As the account was before: who signs in meanwhile ends no session that was opened since.
    assert!(!house.owner.has_ended(&own) && account.has_ended(&own));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_of_the_membership_that_it_was_opened_in() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let organization = &house.organization.id;
    let person = bed.member(organization, Role::Admin).await;
    let (cookie, session) = bed.sign_in(&person, organization).await;
    let counts = async || bed.directory.session(cookie.reveal()).await.unwrap().is_some();
    let member = membership(organization, &person, Role::Admin);
    bed.put(&Session { member_since: Some(member.created_at), ..session }).await;
    assert!(counts().await);
    let changed = member.clone().in_role(Role::Viewer, bed.now().plus_ms(1));
    bed.put(&changed).await;
    assert!(counts().await, "the same membership in another role");
    bed.remove(&member.key()).await;
    assert!(!counts().await);
    bed.put(&Member { created_at: member.created_at.plus_ms(1), ..member }).await;
    assert!(!counts().await, "who is invited anew signs in anew");
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

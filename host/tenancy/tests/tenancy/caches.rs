//! The directory's memory: never of a record that was changed or revoked since, whoever changed it.

use charter_kernel::id::UserId;
use charter_kernel::kit::Entry;
use charter_kernel::manifest::Gate;
use charter_kernel::role::Role;
use charter_kernel::standing::{Reason, Standing};
use charter_kernel::unit::Draft;
use charter_tenancy::directory::Directory;
use charter_tenancy::records::Record as _;
use charter_tenancy::records::kit::StoredKit;
use charter_tenancy::records::organization::Organization;
use charter_tenancy::records::project::Project;
use charter_tenancy::records::user::User;

use crate::bed::{Bed, random};

#[tokio::test(flavor = "multi_thread")]
async fn an_organization_is_as_it_is_now() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let id = &house.organization.id;
    let read = async || bed.directory.organization(id).await.unwrap();
    assert_eq!(read().await.unwrap().time_zone, "UTC");
    let zone = "Europe/Zurich".to_owned();
    bed.put(&Organization { time_zone: zone, ..house.organization.clone() }).await;
    let now = read().await.unwrap();
    assert_eq!((now.time_zone.as_str(), now.version), ("Europe/Zurich", 2));
    bed.remove(&house.organization.key()).await;
    assert!(read().await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_project_is_as_it_is_now_and_absent_for_everybody_else() {
    let bed = Bed::new().await;
    let (house, other) = (bed.house().await, bed.house().await);
    let (own, project) = (&house.organization.id, &house.main.project);
    for organization in [own, &other.organization.id, own, &other.organization.id] {
        let found = bed.directory.project(organization, &project.id).await.unwrap();
        assert_eq!(found.is_some(), organization == own, "although it is remembered");
    }
    let moved = Project { default_user: house.main.agent.id.clone(), ..project.clone() };
    bed.put(&moved).await;
    let found = bed.directory.project(own, &project.id).await.unwrap().unwrap();
    assert_eq!(found.default_user, house.main.agent.id);
    bed.remove(&project.key()).await;
    assert!(bed.directory.project(own, &project.id).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_is_as_it_is_now_and_absent_in_every_other_project() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let agent = &house.main.agent;
    let read = async || bed.directory.user(&agent.project, &agent.id).await.unwrap();
    assert!(read().await.unwrap().active);
    let elsewhere = bed.directory.user(&house.side.project.id, &agent.id).await.unwrap();
    assert!(elsewhere.is_none(), "although it is remembered");
    for (user, active) in [(true, false), (false, true)] {
        if user {
            bed.revoke_user(agent).await;
        } else {
            bed.put(agent).await;
        }
        assert_eq!(read().await.unwrap().active, active);
    }
    bed.remove(&agent.key()).await;
    assert!(read().await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_absent_is_found_once_it_is_there() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let user = User { id: UserId::new(bed.now(), random()), ..house.main.agent.clone() };
    assert!(bed.directory.user(&user.project, &user.id).await.unwrap().is_none());
    bed.put(&user).await;
    assert!(bed.directory.user(&user.project, &user.id).await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kit_says_what_it_says_now() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let project =
        bed.directory.project(&house.organization.id, &house.main.project.id).await.unwrap();
    let project = project.unwrap();
    let decide = async || {
        let kit = bed.directory.kit(&project, None).await.unwrap().unwrap();
        kit.decide("notes", Gate::Open).map(|pin| pin.map(str::to_owned)).map_err(drop)
    };
    assert_eq!(decide().await, Ok(None));
    for (entry, wanted) in [
        (Entry::off(), Err(())),
        (Entry { version: Some("1.2.0".into()), ..Entry::on() }, Ok(Some("1.2.0".to_owned()))),
        (Entry::on(), Ok(None)),
    ] {
        let primitives = [("notes".to_owned(), entry)].into();
        bed.put(&StoredKit { primitives, ..house.main.kit.clone() }).await;
        assert_eq!(decide().await, wanted);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_organization_that_does_not_pay_is_known_at_once_and_forgiven_at_once() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let id = &house.organization.id;
    assert_eq!(bed.directory.standing(id).await.unwrap(), None);
    let standing = Standing { reason: Reason::CreditsExhausted, since: bed.now() };
    let body = serde_json::to_string(&standing).unwrap();
    let mut txn = bed.store.begin("");
    let key = Standing::address(id.as_str());
    txn.put(key.clone(), Draft { body, ..Draft::default() }).await.unwrap();
    txn.commit().await.unwrap();
    assert_eq!(bed.directory.standing(id).await.unwrap(), Some((standing, 1)));
    assert_eq!(bed.directory.standing(id).await.unwrap(), Some((standing, 1)));
    bed.remove(&key).await;
    assert_eq!(bed.directory.standing(id).await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standing_that_cannot_be_read_stops_the_request_rather_than_the_check() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let mut txn = bed.store.begin("");
    let key = Standing::address(house.organization.id.as_str());
    txn.put(key, Draft { body: "{\"reason\":\"new\"}".into(), ..Draft::default() }).await.unwrap();
    txn.commit().await.unwrap();
    assert!(bed.directory.standing(&house.organization.id).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_directories_over_one_store_see_the_same() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let second = Directory::new(bed.store.clone(), bed.clock.clone(), 1).unwrap();
    let (secret, key) = bed.key(&house, |key| key.role = Role::Admin).await;
    for directory in [&bed.directory, &second] {
        assert!(directory.key(secret.reveal()).await.unwrap().is_some());
    }
    bed.revoke_key(&key).await;
    for directory in [&bed.directory, &second] {
        assert!(directory.key(secret.reveal()).await.unwrap().is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_was_lowered_counts_with_the_next_request() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let (secret, key) = bed.key(&house, |key| key.role = Role::Admin).await;
    let role = async || bed.directory.key(secret.reveal()).await.unwrap().unwrap().role;
    assert_eq!(role().await, Role::Admin);
    bed.put(&charter_tenancy::records::key::ApiKey { role: Role::Viewer, ..key }).await;
    assert_eq!(role().await, Role::Viewer);
}

#[tokio::test(flavor = "multi_thread")]
async fn look_ups_beside_changes_never_answer_an_older_state_than_the_last_commit() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let agent = &house.main.agent;
    let reader = {
        let (directory, project, id) =
            (bed.directory.clone(), agent.project.clone(), agent.id.clone());
        tokio::spawn(async move {
            let mut newest = 0;
            while newest < 40 {
                let found = directory.user(&project, &id).await.unwrap().unwrap();
                assert!(found.version >= newest, "{} after {newest}", found.version);
                newest = found.version;
                tokio::task::yield_now().await;
            }
        })
    };
    for n in 2..=40_u64 {
        bed.put(&User { name: n.to_string(), ..agent.clone() }).await;
        let found = bed.directory.user(&agent.project, &agent.id).await.unwrap().unwrap();
        assert_eq!(found.version, n, "what was committed is what is read next");
    }
    reader.await.unwrap();
}

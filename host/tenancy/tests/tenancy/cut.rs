//! The rest, later, of the authority that something was asked with.

use charter_kernel::role::Role;
use charter_kernel::scope::{Actor, ActorKind, Principal};
use charter_tenancy::records::Record as _;
use charter_tenancy::records::former::FormerMember;
use charter_tenancy::records::member::Member;

use crate::bed::{Bed, House, membership, short};

async fn left(bed: &Bed, house: &House, asked: &Principal) -> Result<Option<Role>, String> {
    let now = bed.directory.cut(asked, &house.organization.id).await;
    let now = now.map_err(|refusal| short(&refusal))?.principal;
    assert_eq!(Principal { role: asked.role, ..now.clone() }, *asked, "only the role is cut");
    Ok(now.role)
}

fn of_session(role: Role, root: Option<String>) -> Principal {
    let actor = Actor::new(ActorKind::Session, "s");
    Principal { role: Some(role), root, ..Principal::of(actor) }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_keeps_what_its_person_has_still() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    for (asked, member_now, wanted) in [
        (Role::Admin, Some(Role::Admin), Ok(Some(Role::Admin))),
        (Role::Admin, Some(Role::Owner), Ok(Some(Role::Admin))),
        (Role::Admin, Some(Role::Developer), Ok(Some(Role::Developer))),
        (Role::Admin, Some(Role::Viewer), Ok(Some(Role::Viewer))),
        (Role::Developer, Some(Role::Approver), Ok(Some(Role::Viewer))),
        (Role::Approver, Some(Role::Developer), Ok(Some(Role::Viewer))),
        (Role::Owner, None, Err("Unauthorized".to_owned())),
    ] {
        let person = bed.member(&house.organization.id, asked).await;
        let root = Some(person.id.to_string());
        let member = membership(&house.organization.id, &person, asked);
        match member_now {
            Some(role) => bed.put(&membership(&house.organization.id, &person, role)).await,
            None => bed.remove(&member.key()).await,
        }
        let asked_with = of_session(asked, root);
        assert_eq!(left(&bed, &house, &asked_with).await, wanted, "{asked} now {member_now:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_whose_person_was_removed_and_came_back_has_nothing_left() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let organization = &house.organization.id;
    let person = bed.member(organization, Role::Admin).await;
    let (cookie, _) = bed.sign_in(&person, organization).await;
    let found = bed.directory.session(cookie.reveal()).await.unwrap().unwrap();
    // The request that waits for people, and the job that it left behind.
    let (request, job) = (found.principal(), found.principal().hand_on());
    assert_eq!(left(&bed, &house, &request).await, Ok(Some(Role::Admin)));
    assert_eq!(left(&bed, &house, &job).await, Ok(Some(Role::Developer)));
    let member = membership(organization, &person, Role::Admin);
    bed.put(&Member { role: Role::Developer, ..member.clone() }).await;
    assert_eq!(left(&bed, &house, &request).await, Ok(Some(Role::Developer)), "the same member");
    bed.remove(&member.key()).await;
    bed.clock.forward_ms(1_000);
    bed.put(&member).await;
    for asked in [&request, &job] {
        assert_eq!(left(&bed, &house, asked).await, Err("Unauthorized".into()), "{asked:?}");
    }
    // A row of an earlier build does not say which member asked.
    let earlier = Principal { member_since: None, ..request };
    assert_eq!(left(&bed, &house, &earlier).await, Ok(Some(Role::Admin)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_whose_person_nobody_knows_has_nothing_left() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    for root in [None, Some("nobody".to_owned()), Some(String::new())] {
        let asked = of_session(Role::Owner, root.clone());
        assert_eq!(left(&bed, &house, &asked).await, Err("Unauthorized".into()), "{root:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_of_another_organization_has_nothing_left_here() {
    let bed = Bed::new().await;
    let (house, other) = (bed.house().await, bed.house().await);
    let asked = of_session(Role::Owner, Some(other.owner.id.to_string()));
    assert_eq!(left(&bed, &house, &asked).await, Err("Unauthorized".into()));
    assert_eq!(left(&bed, &other, &asked).await, Ok(Some(Role::Owner)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_keeps_what_it_and_its_person_have_still() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let organization = &house.organization.id;
    for (asked, key_now, person_now, wanted) in [
        (Role::Admin, Role::Admin, Some(Role::Owner), Role::Admin),
        (Role::Admin, Role::Developer, Some(Role::Owner), Role::Developer),
        (Role::Admin, Role::Admin, Some(Role::Viewer), Role::Viewer),
        (Role::Developer, Role::Admin, Some(Role::Approver), Role::Viewer),
        (Role::Viewer, Role::Admin, Some(Role::Owner), Role::Viewer),
        // A person who left breaks no chain: the organization's keys are the organization's.
        (Role::Admin, Role::Admin, None, Role::Admin),
    ] {
        let person = bed.member(organization, Role::Owner).await;
        let root = Some(person.id.to_string());
        let (secret, key) = bed.key(&house, |key| key.role = asked).await;
        let record = bed.directory.key(secret.reveal()).await.unwrap().unwrap();
        let asked_with = Principal { root: root.clone(), ..record.principal() };
        bed.put(&charter_tenancy::records::key::ApiKey { role: key_now, ..key }).await;
        let member = membership(organization, &person, Role::Owner);
        match person_now {
            Some(role) => bed.put(&membership(organization, &person, role)).await,
            None => bed.remove(&member.key()).await,
        }
        let told = format!("{asked} key {key_now} person {person_now:?}");
        assert_eq!(left(&bed, &house, &asked_with).await, Ok(Some(wanted)), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_keys_work_is_committed_only_while_its_person_is_the_member_they_were() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let organization = &house.organization.id;
    let person = bed.member(organization, Role::Admin).await;
    let (secret, _) = bed.key(&house, |key| key.role = Role::Admin).await;
    let record = bed.directory.key(secret.reveal()).await.unwrap().unwrap();
    let asked = Principal { root: Some(person.id.to_string()), ..record.principal() };
    let left = bed.directory.cut(&asked, organization).await.unwrap();
    bed.directory.require_credential(&left.guards).await.unwrap();
    bed.put(&membership(organization, &person, Role::Viewer)).await;
    assert!(bed.directory.require_credential(&left.guards).await.is_err(), "it is decided anew");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_was_revoked_has_ended_or_lost_its_maker_has_nothing_left() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let (_, maker) = bed.key(&house, |_| ()).await;
    let ancestor = maker.id.clone();
    let (made, _) = bed.key(&house, |key| key.ancestors = vec![ancestor]).await;
    let (short_lived, _) =
        bed.key(&house, |key| key.expires_at = Some(key.created_at.plus_ms(1_000))).await;
    let (plain, revoked) = bed.key(&house, |_| ()).await;
    let mut asked = Vec::new();
    for secret in [&made, &short_lived, &plain] {
        let key = bed.directory.key(secret.reveal()).await.unwrap().unwrap();
        asked.push(key.principal());
        assert!(left(&bed, &house, &key.principal()).await.is_ok());
    }
    bed.revoke_key(&maker).await;
    bed.revoke_key(&revoked).await;
    bed.clock.forward_ms(1_000);
    for asked in &asked {
        assert_eq!(left(&bed, &house, asked).await, Err("Unauthorized".into()), "{asked:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_counts_in_its_own_organization_alone() {
    let bed = Bed::new().await;
    let (house, other) = (bed.house().await, bed.house().await);
    let (secret, _) = bed.key(&house, |_| ()).await;
    let asked = bed.directory.key(secret.reveal()).await.unwrap().unwrap().principal();
    assert_eq!(left(&bed, &other, &asked).await, Err("Unauthorized".into()));
    let forged = Principal { actor: Actor::new(ActorKind::Key, "no id"), ..asked };
    assert_eq!(left(&bed, &house, &forged).await, Err("Unauthorized".into()));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_schedule_asks_for_has_what_its_person_has_or_had_when_they_left() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let organization = &house.organization.id;
    for (member_now, at_the_end, wanted) in [
        (Some(Role::Owner), None, Role::Developer),
        (Some(Role::Developer), None, Role::Developer),
        (Some(Role::Viewer), None, Role::Viewer),
        (Some(Role::Approver), None, Role::Viewer),
        (None, Some(Role::Developer), Role::Developer),
        (None, Some(Role::Viewer), Role::Viewer),
        // A person who came back has what they have now, whatever they left with.
        (Some(Role::Developer), Some(Role::Viewer), Role::Developer),
        (Some(Role::Viewer), Some(Role::Developer), Role::Viewer),
    ] {
        let person = bed.member(organization, Role::Developer).await;
        // No credential: it outlives the key that set it up.
        let root = Some(person.id.to_string());
        let role = Some(Role::Developer);
        let asked = Principal { role, root, ..Principal::of(Actor::system("job")) };
        let member = membership(organization, &person, Role::Developer);
        match member_now {
            Some(role) => bed.put(&membership(organization, &person, role)).await,
            None => bed.remove(&member.key()).await,
        }
        if let Some(role) = at_the_end {
            let (organization, account) = (organization.clone(), person.id.clone());
            bed.put(&FormerMember { organization, account, role, left_at: bed.now() }).await;
        }
        let told = format!("now {member_now:?}, at the end {at_the_end:?}");
        assert_eq!(left(&bed, &house, &asked).await, Ok(Some(wanted)), "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hosts_own_work_has_no_person_to_lose() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    for kind in [ActorKind::System, ActorKind::Hook, ActorKind::Agent] {
        let asked = Principal::of(Actor::new(kind, "x"));
        assert_eq!(left(&bed, &house, &asked).await, Ok(None), "{kind:?}");
    }
}

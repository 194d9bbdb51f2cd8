//! The finds when somebody or something goes: keys, invitations, links and records that remain to
//! be erased.

use charter_kernel::id::{InvitationId, KeyId, OrganizationId};
use charter_kernel::role::Role;
use charter_kernel::unit::Reach;
use charter_tenancy::records::erasure::Erasure;
use charter_tenancy::records::invitation::{INVITER, Invitation};
use charter_tenancy::records::key::{ANCESTOR, ApiKey};
use charter_tenancy::records::link::{ACCOUNT, APPROVAL, Link, Mailed, Purpose};
use charter_tenancy::records::session::Session;
use charter_tenancy::records::{ACTIVE, EXPIRES, Record, STATUS};
use charter_tenancy::secret::Plain;
use charter_tenancy::stored;

use crate::bed::{Bed, House, random};

async fn found<R: Record>(bed: &Bed, reach: &Reach, matching: &[(&str, &str)]) -> usize {
    let mut txn = bed.store.begin("");
    stored::list::<R>(&mut txn, reach, matching, 100, 0).await.unwrap().0.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_a_project_or_a_key_that_goes_finds_the_keys_that_end_with_it() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let (project, agent) = (house.main.project.id.clone(), house.main.agent.id.clone());
    let (_, first) = bed.key(&house, |key| key.project = Some(project.clone())).await;
    let of_both = |key: &mut ApiKey| {
        (key.project, key.user) = (Some(project.clone()), Some(agent.clone()));
        key.ancestors = vec![first.id.clone()];
    };
    let (_, second) = bed.key(&house, of_both).await;
    let grandchild = |key: &mut ApiKey| key.ancestors = vec![second.id.clone(), first.id.clone()];
    bed.key(&house, grandchild).await;
    let organization = house.organization.id.to_string();
    let erasure = |reach: String| Erasure {
        organization: organization.clone(),
        reach,
        since: bed.now(),
        ..Erasure::default()
    };
    let reach = Reach::organization(&organization);
    for (erasure, keys) in [
        (erasure(format!("u/{agent}")), 1),
        (erasure(format!("p/{project}")), 2),
        (Erasure::of_key(&first, bed.now()), 2),
        (Erasure::of_key(&second, bed.now()), 1),
        (erasure(format!("u/{}", house.main.own.id)), 0),
    ] {
        let (field, id) = erasure.keys().unwrap();
        assert_eq!(found::<ApiKey>(&bed, &reach, &[(field, id)]).await, keys, "{}", erasure.reach);
    }
    assert_eq!(found::<ApiKey>(&bed, &reach, &[(STATUS, ACTIVE)]).await, 3);
    assert_eq!(found::<ApiKey>(&bed, &reach, &[(ANCESTOR, "nobody")]).await, 0);
}

#[test]
fn an_erasure_names_what_goes_and_no_other() {
    let erasure = |reach: &str| Erasure {
        organization: "o".into(),
        reach: reach.into(),
        since: charter_kernel::time::Instant(1),
        ..Erasure::default()
    };
    for (reach, user, project, keys) in [
        ("u/1", Some("1"), None, Some(("user_id", "1"))),
        ("p/2", None, Some("2"), Some(("project_id", "2"))),
        ("k/3", None, None, Some((ANCESTOR, "3"))),
        ("o/4", None, None, None),
        ("d", None, None, None),
    ] {
        let erasure = erasure(reach);
        assert_eq!((erasure.user(), erasure.project(), erasure.keys()), (user, project, keys));
    }
    assert_ne!(erasure("u/1").key(), erasure("p/1").key());
}

fn invitation(bed: &Bed, house: &House, by: (&str, &str), ancestors: Vec<KeyId>) -> Invitation {
    Invitation {
        id: InvitationId::new(bed.now(), random()),
        organization: house.organization.id.clone(),
        email: "New@Example.com".into(),
        role: Role::Developer,
        digest: Plain::generate("").unwrap().digest().hex(),
        mailed: None,
        invited_by: (by.0.into(), by.1.into()),
        ancestors,
        created_at: bed.now(),
        expires_at: bed.now().plus_ms(1),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_invited_directly_or_through_keys_is_found_by_each_invitation() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let (_, first) = bed.key(&house, |_| ()).await;
    let (_, second) = bed.key(&house, |key| key.ancestors = vec![first.id.clone()]).await;
    let person = house.owner.id.as_str();
    for invitation in [
        invitation(&bed, &house, ("account", person), vec![]),
        invitation(&bed, &house, ("key", first.id.as_str()), vec![]),
        invitation(&bed, &house, ("key", second.id.as_str()), vec![first.id.clone()]),
    ] {
        bed.put(&invitation).await;
    }
    let reach = Reach::organization(house.organization.id.as_str());
    for (inviter, count) in [(person, 1), (first.id.as_str(), 2), (second.id.as_str(), 1)] {
        assert_eq!(found::<Invitation>(&bed, &reach, &[(INVITER, inviter)]).await, count);
    }
    assert_eq!(found::<Invitation>(&bed, &reach, &[("email", "new@example.com")]).await, 3);
    let other = OrganizationId::new(bed.now(), random());
    let elsewhere = Reach::organization(other.as_str());
    assert_eq!(found::<Invitation>(&bed, &elsewhere, &[(INVITER, person)]).await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_invitation_is_found_by_each_of_its_tokens() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let mailed = Plain::generate("").unwrap();
    let offered = Invitation {
        mailed: Some(mailed.digest().hex()),
        ..invitation(&bed, &house, ("account", house.owner.id.as_str()), vec![])
    };
    assert_eq!(offered.digests().count(), 2);
    let mut txn = bed.store.begin("");
    stored::insert(&mut txn, &offered, "id").await.unwrap();
    for digest in offered.digests() {
        assert!(txn.claim(&Invitation::claim(digest), &offered.key()).await.unwrap());
    }
    txn.commit().await.unwrap();
    for digest in [offered.digest.clone(), mailed.digest().hex()] {
        let mut txn = bed.store.begin("");
        let held = stored::holder::<Invitation>(&mut txn, &Invitation::claim(&digest)).await;
        assert_eq!(held.unwrap().unwrap().record.id, offered.id);
        // A key's secret of the same digest would be another claim.
        let key = stored::holder::<ApiKey>(&mut txn, &ApiKey::claim(&digest)).await;
        assert!(key.unwrap().is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approvals_links_are_the_approvals_and_all_others_the_accounts() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let of = |purpose: Purpose| Link {
        digest: Plain::generate("link_").unwrap().digest().hex(),
        purpose,
        account: Some(house.owner.id.clone()),
        password_version: Some(0),
        email: house.owner.email.clone(),
        mailed: Mailed::Waiting,
        reason: None,
        used: false,
        created_at: bed.now(),
        expires_at: bed.now().plus_ms(60_000),
    };
    let approval = || Purpose::Approval {
        organization: house.organization.id.to_string(),
        approval: "a1".into(),
        request_sha256: String::new(),
    };
    let stranger = Link { account: None, ..of(Purpose::Proof) };
    for link in [
        of(approval()),
        of(approval()),
        of(Purpose::SignIn),
        of(Purpose::Reset),
        of(Purpose::Proof),
        stranger,
    ] {
        bed.put(&link).await;
    }
    let here = Reach::deployment();
    assert_eq!(found::<Link>(&bed, &here, &[(APPROVAL, "a1")]).await, 2);
    assert_eq!(found::<Link>(&bed, &here, &[(ACCOUNT, house.owner.id.as_str())]).await, 3);
    // A link outlives its end by a day, so that who comes late is told so.
    let expired = async |at: i64| {
        let before = bed.now().plus_ms(at).to_string();
        bed.store.find_expired(&Link::space(), EXPIRES, &before, 100).await.unwrap().len()
    };
    assert_eq!((expired(60_001).await, expired(86_400_000 + 60_001).await), (0, 6));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_accounts_sessions_are_found_and_swept_at_their_end() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let other = bed.member(&house.organization.id, Role::Viewer).await;
    for person in [&house.owner, &house.owner, &other] {
        bed.sign_in(person, &house.organization.id).await;
    }
    let own = [("account", house.owner.id.as_str())];
    assert_eq!(found::<Session>(&bed, &Reach::deployment(), &own).await, 2);
    let lifetime = charter_tenancy::records::session::LIFETIME_MS;
    for (after, count) in [(lifetime, 0), (lifetime + 1, 3)] {
        let before = bed.now().plus_ms(after).to_string();
        let swept = bed.store.find_expired(&Session::space(), "expires_at", &before, 10).await;
        assert_eq!(swept.unwrap().len(), count);
    }
}

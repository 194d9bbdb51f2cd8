//! API keys as requests present them: which counts, for how long, and whose it is.

use charter_kernel::role::Role;
use charter_kernel::scope::ActorKind;
use charter_tenancy::records::key::ApiKey;
use charter_tenancy::secret::Plain;

use crate::bed::Bed;

#[tokio::test(flavor = "multi_thread")]
async fn a_key_is_known_by_its_whole_secret_and_by_nothing_else() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let (secret, key) = bed.key(&house, |_| ()).await;
    let found = bed.directory.key(secret.reveal()).await.unwrap().unwrap();
    assert_eq!((&found.id, &found.organization), (&key.id, &house.organization.id));
    let text = secret.reveal();
    let another = Plain::generate("sk_live_").unwrap();
    for presented in [
        "",
        &key.digest,
        &key.prefix,
        key.id.as_str(),
        &text[..text.len() - 1],
        &format!("{text} "),
        &text.to_uppercase(),
        another.reveal(),
    ] {
        assert!(bed.directory.key(presented).await.unwrap().is_none(), "{presented}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_ends_at_its_moment_although_it_is_remembered() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let (secret, _) =
        bed.key(&house, |key| key.expires_at = Some(key.created_at.plus_ms(60_000))).await;
    for (forward, counts) in [(0, true), (59_999, true), (1, false), (1, false)] {
        bed.clock.forward_ms(forward);
        let found = bed.directory.key(secret.reveal()).await.unwrap();
        assert_eq!(found.is_some(), counts, "at {}", bed.now());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_is_revoked_ends_at_once_and_all_that_descend_from_it() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let (_, first) = bed.key(&house, |_| ()).await;
    let of = |ancestors: &[&ApiKey]| ancestors.iter().map(|key| key.id.clone()).collect();
    let (second_secret, second) = bed.key(&house, |key| key.ancestors = of(&[&first])).await;
    let (third_secret, _) = bed.key(&house, |key| key.ancestors = of(&[&second, &first])).await;
    let (bystander, _) = bed.key(&house, |_| ()).await;
    let counts = async |secret: &Plain| bed.directory.key(secret.reveal()).await.unwrap().is_some();
    assert!(counts(&second_secret).await && counts(&third_secret).await);
    bed.revoke_key(&second).await;
    assert!(!counts(&second_secret).await && !counts(&third_secret).await);
    assert!(counts(&bystander).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn revoking_the_eldest_ends_grandchildren_whose_parent_is_there_still() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let (_, first) = bed.key(&house, |_| ()).await;
    let (_, second) = bed.key(&house, |key| key.ancestors = vec![first.id.clone()]).await;
    let (third, _) =
        bed.key(&house, |key| key.ancestors = vec![second.id.clone(), first.id.clone()]).await;
    assert!(bed.directory.key(third.reveal()).await.unwrap().is_some());
    bed.revoke_key(&first).await;
    assert!(bed.directory.key(third.reveal()).await.unwrap().is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn who_asks_by_a_key_is_the_key_with_its_pins_and_its_person() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let (secret, key) = bed
        .key(&house, |key| {
            key.role = Role::Developer;
            key.project = Some(house.main.project.id.clone());
            key.user = Some(house.main.agent.id.clone());
        })
        .await;
    let asks = bed.directory.key(secret.reveal()).await.unwrap().unwrap().principal();
    assert_eq!((asks.actor.kind, asks.actor.id.as_str()), (ActorKind::Key, key.id.as_str()));
    assert_eq!(asks.role, Some(Role::Developer));
    assert_eq!(asks.project, Some(house.main.project.id.clone()));
    assert_eq!(asks.user, Some(house.main.agent.id.clone()));
    assert_eq!(asks.root, Some(house.owner.id.to_string()));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_person_behind_a_key_of_an_earlier_build_is_who_made_the_eldest() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let person = house.owner.id.to_string();
    let by_key = |key: &ApiKey| ("key".to_owned(), key.id.to_string());
    let (eldest_secret, eldest) = bed.key(&house, |key| key.root = None).await;
    let (child_secret, child) = bed
        .key(&house, |key| {
            (key.root, key.made_by) = (None, by_key(&eldest));
            key.ancestors = vec![eldest.id.clone()];
        })
        .await;
    let (grandchild_secret, _) = bed
        .key(&house, |key| {
            (key.root, key.made_by) = (None, by_key(&child));
            key.ancestors = vec![child.id.clone(), eldest.id.clone()];
        })
        .await;
    let (operators, _) = bed
        .key(&house, |key| {
            (key.root, key.made_by) = (None, ("operator".into(), "operator".into()));
        })
        .await;
    for (secret, root) in [
        (eldest_secret, Some(person.clone())),
        (child_secret, Some(person.clone())),
        (grandchild_secret, Some(person)),
        (operators, None),
    ] {
        let found = bed.directory.key(secret.reveal()).await.unwrap().unwrap();
        assert_eq!(found.principal().root, root);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_that_leads_to_another_key_opens_nothing() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let (secret, key) = bed.key(&house, |_| ()).await;
    // The row was made anew with another secret; the old claim is left behind.
    let other = Plain::generate("sk_live_").unwrap();
    bed.put(&ApiKey { digest: other.digest().hex(), ..key }).await;
    assert!(bed.directory.key(secret.reveal()).await.unwrap().is_none());
}

//! The values that no two records may share, and within whom.

use std::collections::BTreeMap;

use charter_kernel::id::{KitId, OrganizationId, UserId};
use charter_tenancy::records::Record;
use charter_tenancy::records::kit::StoredKit;
use charter_tenancy::records::user::User;
use charter_tenancy::stored;

use crate::bed::{Bed, House, random, short};

async fn inserted(bed: &Bed, record: &impl Record, param: &str) -> Result<(), String> {
    let mut txn = bed.store.begin("");
    stored::insert(&mut txn, record, param).await.map_err(|refusal| {
        assert_eq!(refusal.param.as_deref(), Some(param));
        short(&refusal)
    })?;
    txn.commit().await.map(drop).map_err(|error| error.to_string())
}

fn user(bed: &Bed, house: &House, external_id: &str) -> User {
    User {
        id: UserId::new(bed.now(), random()),
        external_id: Some(external_id.to_owned()),
        ..house.main.agent.clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_external_id_is_one_users_of_its_project() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let first = user(&bed, &house, "crm-1");
    let duplicate = Err("DuplicateRecord".to_owned());
    assert_eq!(inserted(&bed, &first, "external_id").await, Ok(()));
    assert_eq!(inserted(&bed, &user(&bed, &house, "crm-1"), "external_id").await, duplicate);
    assert_eq!(inserted(&bed, &user(&bed, &house, "CRM-1"), "external_id").await, Ok(()));
    let aside = User { project: house.side.project.id.clone(), ..user(&bed, &house, "crm-1") };
    assert_eq!(inserted(&bed, &aside, "external_id").await, Ok(()));
    bed.remove(&first.key()).await;
    assert_eq!(inserted(&bed, &user(&bed, &house, "crm-1"), "external_id").await, Ok(()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kits_name_is_one_kits_of_its_project_whatever_its_capitals() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let kit = |name: &str, house: &House, side: bool| {
        let estate = if side { &house.side } else { &house.main };
        StoredKit { id: KitId::new(bed.now(), random()), name: name.into(), ..estate.kit.clone() }
    };
    for (name, side, fits) in [
        ("Researcher", false, true),
        ("researcher", false, false),
        (" RESEARCHER ", false, false),
        ("default", false, false),
        ("Researcher", true, true),
        ("researcher 2", false, true),
    ] {
        let outcome = inserted(&bed, &kit(name, &house, side), "name").await;
        assert_eq!(outcome.is_ok(), fits, "{name} {side}: {outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_who_take_one_value_at_once_one_is_run_again_and_told() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let (one, other) = (user(&bed, &house, "crm-1"), user(&bed, &house, "crm-1"));
    let mut first = bed.store.begin("");
    let mut second = bed.store.begin("");
    for (txn, user) in [(&mut first, &one), (&mut second, &other)] {
        stored::insert(txn, user, "external_id").await.unwrap();
    }
    first.commit().await.unwrap();
    assert!(second.commit().await.is_err());
    assert_eq!(inserted(&bed, &other, "external_id").await, Err("DuplicateRecord".into()));
}

/// One record of each kind of an organization, with rows of another one beside them.
#[tokio::test(flavor = "multi_thread")]
async fn no_two_records_of_two_organizations_share_an_address() {
    let bed = Bed::new().await;
    let (house, other) = (bed.house().await, bed.house().await);
    let mut seen = BTreeMap::new();
    for house in [&house, &other] {
        let owner = &house.organization.id;
        let member = crate::bed::membership(owner, &house.owner, charter_kernel::role::Role::Owner);
        for (key, organization) in [
            (house.organization.key(), owner),
            (house.main.project.key(), owner),
            (house.side.project.key(), owner),
            (house.main.kit.key(), owner),
            (house.main.agent.key(), owner),
            (house.main.own.key(), owner),
            (house.owner.key(), owner),
            (member.key(), owner),
        ] {
            let before: Option<OrganizationId> = seen.insert(key.clone(), organization.clone());
            assert_eq!(before, None, "{key:?}");
        }
    }
}

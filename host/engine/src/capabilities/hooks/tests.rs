//! The rules of hooks, over a real store: whose document one is of, how its calls are checked, how
//! many there are, and who closes it.

use charter_kernel::id::UserId;
use charter_kernel::role::Role;
use charter_kernel::scope::{Actor, Principal, Scope};
use charter_kernel::unit::{Draft, Unit};
use serde_json::json;

use super::*;
use crate::bindings::charter::primitive::documents::Host as _;
use crate::run::bed::{Bed, alone, id, key, long, scope, shop, user};

async fn document(bed: &Bed, by: &Scope, collection: &str) -> String {
    let insert = async |guest: &mut State| guest.insert(collection.into(), "{}".into(), None).await;
    bed.by(by.clone(), insert).await.unwrap().id
}

async fn open(bed: &Bed, by: &Scope, at: (&str, &str), scheme: &str) -> Result<Hook, String> {
    let (collection, document) = (at.0.to_owned(), at.1.to_owned());
    let scheme = scheme.to_owned();
    let open = async |guest: &mut State| Host::open(guest, collection, document, scheme).await;
    bed.by(by.clone(), open).await
}

async fn refer(bed: &Bed, by: &Scope, id: &str, reference: &str) -> Result<(), String> {
    let (id, reference) = (id.to_owned(), reference.to_owned());
    bed.by(by.clone(), async |guest| guest.refer(id, reference).await).await
}

async fn close(bed: &Bed, by: &Scope, id: &str) -> Result<bool, String> {
    let id = id.to_owned();
    bed.by(by.clone(), async |guest| Host::close(guest, id).await).await
}

async fn record(bed: &Bed, id: &str) -> Option<HookRecord> {
    let row = bed.row(&HookRecord::address(user(3).lane(), id)).await?;
    Some(serde_json::from_str(&row.body).unwrap())
}

#[tokio::test]
async fn a_hook_is_checked_in_a_way_that_the_manifest_provides_for() {
    let mut bed = Bed::new().await;
    let note = document(&bed, &user(3), "notes").await;
    for (scheme, is_keyed) in [
        ("standard-webhooks", true),
        ("hmac-sha256", true),
        ("none", false),
        ("binding:shop.peer", false),
    ] {
        let hook = open(&bed, &user(3), ("notes", &note), scheme).await.unwrap();
        assert_eq!(hook.secret.is_some(), is_keyed, "{scheme}");
        let record = record(&bed, &hook.id).await.unwrap();
        assert_eq!(String::from(record.scheme), scheme);
        if let (Some(secret), Some(sealed)) = (&hook.secret, &record.secret) {
            assert!(!sealed.contains(&secret[SECRET_PREFIX.len()..]), "it is kept sealed");
            let sealed = STANDARD.decode(sealed).unwrap();
            let context = HookRecord::context(&hook.id);
            let opened = bed.store().unseal(user(3).lane(), &context, &sealed).await.unwrap();
            assert_eq!(&opened[..], secret.as_bytes());
        }
    }
    for (scheme, word) in [
        ("", "invalid_input:scheme"),
        ("md5", "invalid_input:scheme"),
        ("binding:", "invalid_input:scheme"),
        (&format!("binding:{}", long(81)), "invalid_input:scheme"),
        ("binding:other.peer", "internal_error:UNDECLARED"),
    ] {
        let said = open(&bed, &user(3), ("notes", &note), scheme).await.map(drop);
        assert_eq!(said, Err(word.into()), "{scheme}");
    }
    let mut deaf = shop();
    deaf["signals"] = json!([]);
    bed.beside(deaf);
    let said = open(&bed, &user(3), ("notes", &note), "none").await.map(drop);
    assert_eq!(said, Err("internal_error:UNDECLARED".into()), "nothing would hear its calls");
}

#[tokio::test]
async fn a_hook_is_of_a_document_that_its_caller_may_write() {
    let bed = Bed::new().await;
    let note = document(&bed, &user(3), "notes").await;
    let nobodys = alone(Principal::of(Actor::system("s")));
    let catalogue = document(&bed, &nobodys, "world").await;
    let viewer = scope(key(Role::Viewer), 1, Some(2), Some(3));
    for (by, at, word) in [
        (user(3), ("notes", "absent"), "not_found"),
        (user(4), ("notes", note.as_str()), "not_found"),
        (user(3), ("nothing", &note), "internal_error:UNDECLARED"),
        (user(3), ("world", &catalogue), "forbidden"),
        (nobodys, ("world", &catalogue), "invalid_input:document"),
        (viewer, ("notes", &note), "forbidden:role_insufficient"),
    ] {
        let said = open(&bed, &by, at, "none").await.map(drop);
        assert_eq!(said, Err(word.into()), "{at:?}: {by:?}");
    }
}

#[tokio::test]
async fn its_calls_are_told_in_the_scope_of_its_document() {
    let bed = Bed::new().await;
    let root = Principal { root: Some("ada".into()), ..key(Role::Developer) };
    let by = scope(root, 1, Some(2), Some(3));
    let (organization, project) = (by.lane().to_owned(), by.project().unwrap().as_str().to_owned());
    let person = by.user().map(|id| id.as_str().to_owned());
    for (collection, project, user) in [
        ("notes", project.as_str(), person.clone()),
        ("plans", &project, None),
        ("house", "", None),
    ] {
        let id = document(&bed, &by, collection).await;
        let hook = open(&bed, &by, (collection, &id), "none").await.unwrap();
        let owner = record(&bed, &hook.id).await.unwrap().owner;
        let root = Some("ada".to_owned());
        let expected =
            Owner { organization: organization.clone(), project: project.to_owned(), user, root };
        assert_eq!(owner, expected, "{collection}");
    }
}

#[tokio::test]
async fn a_hook_is_closed_by_who_may_write_its_document_and_by_its_primitive() {
    let mut bed = Bed::new().await;
    let note = document(&bed, &user(3), "notes").await;
    let hook = open(&bed, &user(3), ("notes", &note), "none").await.unwrap();
    let elsewhere = scope(key(Role::Owner), 9, Some(8), Some(7));
    for by in [user(4), elsewhere] {
        assert_eq!(close(&bed, &by, &hook.id).await, Ok(false), "{by:?}");
    }
    let mut other = shop();
    other["name"] = "other".into();
    bed.beside(other);
    assert_eq!(close(&bed, &user(3), &hook.id).await, Ok(false));
    bed.beside(shop());
    for id in ["", "absent", "a\0b"] {
        assert_eq!(close(&bed, &user(3), id).await, Ok(false), "{id}");
    }
    assert_eq!(close(&bed, &user(3), &hook.id).await, Ok(true));
    assert_eq!(close(&bed, &user(3), &hook.id).await, Ok(false));
    assert_eq!(bed.store().lookup(&HookRecord::name(&hook.id)).await.unwrap(), None);
}

#[tokio::test]
async fn a_providers_object_leads_to_the_hook_that_was_referred_to_it_last() {
    let bed = Bed::new().await;
    let note = document(&bed, &user(3), "notes").await;
    let hook = open(&bed, &user(3), ("notes", &note), "binding:shop.peer").await.unwrap();
    let plain = open(&bed, &user(3), ("notes", &note), "none").await.unwrap();
    let leads = async |reference: &str| {
        let name = HookRecord::reference_name("shop.peer", reference);
        bed.store().lookup(&name).await.unwrap().map(|key| key.id)
    };
    for (by, id, reference, word) in [
        (user(3), &hook.id, "", "invalid_input:reference"),
        (user(3), &hook.id, "a\nb", "invalid_input:reference"),
        (user(3), &hook.id, &*long(201), "invalid_input:reference"),
        (user(3), &plain.id, "cus_1", "invalid_input:id"),
        (user(4), &hook.id, "cus_1", "not_found"),
        (user(3), &"absent".to_owned(), "cus_1", "not_found"),
    ] {
        assert_eq!(refer(&bed, &by, id, reference).await, Err(word.into()), "{reference}");
    }
    for _ in 0..2 {
        assert_eq!(refer(&bed, &user(3), &hook.id, "cus_1").await, Ok(()));
        assert_eq!(leads("cus_1").await.as_ref(), Some(&hook.id));
    }
    assert_eq!(refer(&bed, &user(3), &hook.id, "cus_2").await, Ok(()));
    assert_eq!((leads("cus_1").await, leads("cus_2").await), (None, Some(hook.id.clone())));
    // Another organization's neither, though the provider has given its id twice.
    let elsewhere = scope(key(Role::Developer), 9, Some(8), Some(7));
    let theirs = document(&bed, &elsewhere, "notes").await;
    let second = open(&bed, &elsewhere, ("notes", &theirs), "binding:shop.peer").await.unwrap();
    let taken = refer(&bed, &elsewhere, &second.id, "cus_2").await;
    assert_eq!(taken, Err("state_conflict".into()));
    assert_eq!(leads("cus_2").await.as_ref(), Some(&hook.id));
    close(&bed, &user(3), &hook.id).await.unwrap();
    assert_eq!(leads("cus_2").await, None);
    assert_eq!(refer(&bed, &elsewhere, &second.id, "cus_2").await, Ok(()));
}

#[tokio::test]
async fn an_organization_has_so_many_hooks_and_another_as_many() {
    let bed = Bed::new().await;
    let note = document(&bed, &user(3), "notes").await;
    let organization = Reach::organization(user(3).lane());
    let rows = |from: u64, to: u64| {
        (from..to).map(|n| Write::Insert {
            key: Key::new(&organization, &hooks(), format!("h{n}")),
            draft: Draft {
                body: "{}".into(),
                index: vec![(OWN.to_owned(), "1".to_owned())],
                ..Draft::default()
            },
        })
    };
    let pinned = Principal { user: UserId::parse(&id(3)), ..key(Role::Developer) };
    let agent = scope(pinned, 1, Some(2), Some(3));
    // Two short of the bound, as if opened before.
    for from in (0..HOOKS_MAX - 2).step_by(500) {
        let by_agent = open(&bed, &agent, ("notes", &note), "none").await;
        if let Ok(hook) = &by_agent {
            close(&bed, &agent, &hook.id).await.unwrap();
        }
        assert_eq!(by_agent.is_ok(), from < HOOKS_MAX / 2, "agents find half");
        let writes = rows(from, (from + 500).min(HOOKS_MAX - 2)).collect();
        let organization = user(3).lane().to_owned();
        bed.store().commit(Unit { organization, writes, ..Unit::default() }).await.unwrap();
    }
    let three = bed.by(user(3), async |guest| {
        for _ in 0..3 {
            Host::open(guest, "notes".into(), note.clone(), "none".into()).await?;
        }
        Ok(())
    });
    assert_eq!(three.await, Err("state_conflict".into()), "those of the request count");
    let first = open(&bed, &user(3), ("notes", &note), "none").await.unwrap();
    assert!(open(&bed, &user(3), ("notes", &note), "none").await.is_ok());
    let full = open(&bed, &user(3), ("notes", &note), "none").await.map(drop);
    assert_eq!(full, Err("state_conflict".into()));
    let called = open(&bed, &user(3), ("notes", &note), "binding:shop.peer").await.map(drop);
    assert_eq!(called, Ok(()), "a provider calls for as many documents as there are");
    let exchanged = bed.by(user(3), async |guest| {
        Host::close(guest, first.id.clone()).await?;
        Host::open(guest, "notes".into(), note.clone(), "none".into()).await
    });
    assert!(exchanged.await.is_ok(), "one that is closed makes room in the same request");
    let elsewhere = scope(key(Role::Developer), 9, Some(8), Some(7));
    let theirs = document(&bed, &elsewhere, "notes").await;
    assert!(open(&bed, &elsewhere, ("notes", &theirs), "none").await.is_ok());
}

#[tokio::test]
async fn hooks_of_one_agent_leave_room_for_the_next_ones() {
    let bed = Bed::new().await;
    let organization = Reach::organization(user(3).lane());
    let rows = |from: u64, user: &str| {
        let own = format!("{}/{user}", id(2));
        let entries = [(OWN, "1"), (BY, own.as_str()), (BY_PROJECT, &id(2))];
        let index =
            entries.map(|(field, value): (&str, &str)| (field.to_owned(), value.to_owned()));
        let draft = Draft { body: "{}".into(), index: index.into(), ..Draft::default() };
        let row = |n| Write::Insert {
            key: Key::new(&organization, &hooks(), format!("h{n}")),
            draft: draft.clone(),
        };
        (from..from + 500).map(row).collect::<Vec<_>>()
    };
    let agent = |n| {
        let pinned = Principal { user: UserId::parse(&id(n)), ..key(Role::Developer) };
        scope(pinned, 1, Some(2), Some(n))
    };
    let opens = async |n| {
        let note = document(&bed, &agent(n), "notes").await;
        open(&bed, &agent(n), ("notes", &note), "none").await.is_ok()
    };
    // Half of its part of the room, as if opened before.
    for from in (0..HOOKS_MAX / 4).step_by(500) {
        assert!(opens(3).await, "{from}");
        let unit = Unit {
            organization: user(3).lane().to_owned(),
            writes: rows(from, &id(3)),
            ..Unit::default()
        };
        bed.store().commit(unit).await.unwrap();
    }
    assert!(!opens(3).await && opens(4).await);
}

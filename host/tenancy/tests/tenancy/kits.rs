//! The kit that applies, and the versions that it pins.

use charter_kernel::id::KitId;
use charter_kernel::kit::{Budget, Connections, Entry, Limits, Period};
use charter_kernel::manifest::Gate;
use charter_kernel::role::Role;
use charter_kernel::scope::Subject;
use charter_tenancy::place::Named;
use charter_tenancy::records::Record as _;
use charter_tenancy::records::kit::{StoredKit, loosens};
use charter_tenancy::records::pin::{PINNED, Pin};
use charter_tenancy::records::user::User;
use charter_tenancy::stored;
use proptest::prelude::*;

use crate::bed::{Bed, House, principal, random};

async fn another_kit(bed: &Bed, house: &House) -> StoredKit {
    let kit = StoredKit {
        id: KitId::new(bed.now(), random()),
        name: "researcher".into(),
        default: false,
        primitives: [("notes".to_owned(), Entry::off())].into(),
        ..house.main.kit.clone()
    };
    bed.put(&kit).await;
    kit
}

async fn kit_of_agent(bed: &Bed, house: &House) -> Option<KitId> {
    let named = Named { project: None, user: Some((house.main.agent.id.as_str(), Subject::Path)) };
    let asks = principal(Role::Developer, None, None);
    let place = bed.directory.place(asks, &house.organization.id, named).await.unwrap();
    place.kit().map(|kit| kit.id.clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_users_own_kit_comes_before_its_projects() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    assert_eq!(kit_of_agent(&bed, &house).await, Some(house.main.kit.id.clone()));
    let kit = another_kit(&bed, &house).await;
    bed.put(&User { kit: Some(kit.id.clone()), ..house.main.agent.clone() }).await;
    assert_eq!(kit_of_agent(&bed, &house).await, Some(kit.id.clone()));
    let named = Named { project: None, user: Some((house.main.own.id.as_str(), Subject::Path)) };
    let asks = principal(Role::Developer, None, None);
    let place = bed.directory.place(asks, &house.organization.id, named).await.unwrap();
    assert_eq!(place.kit().unwrap().id, house.main.kit.id, "another user's kit is its own");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_kit_that_is_gone_or_of_another_project_is_none_and_never_the_default() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let foreign = bed.house().await.main.kit.id;
    let gone = KitId::new(bed.now(), random());
    for kit in [house.side.kit.id.clone(), foreign, gone] {
        bed.put(&User { kit: Some(kit.clone()), ..house.main.agent.clone() }).await;
        assert_eq!(kit_of_agent(&bed, &house).await, None, "{kit}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_default_kit_is_the_only_one_that_grows_with_what_is_installed() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let kit = another_kit(&bed, &house).await;
    let project =
        bed.directory.project(&house.organization.id, &house.main.project.id).await.unwrap();
    let project = project.unwrap();
    let default = bed.directory.kit(&project, None).await.unwrap().unwrap();
    let own = bed.directory.kit(&project, Some(&kit.id)).await.unwrap().unwrap();
    for (gate, by_default, by_own) in
        [(Gate::Open, true, true), (Gate::Strict, true, false), (Gate::OptIn, false, false)]
    {
        assert_eq!(default.decide("later", gate).is_ok(), by_default, "{gate:?}");
        assert_eq!(own.decide("later", gate).is_ok(), by_own, "{gate:?}");
        assert!(own.decide("notes", gate).is_err(), "switched off is off at every gate");
    }
}

fn pinning(house: &House, entries: &[(&str, Entry)]) -> StoredKit {
    let primitives = entries.iter().map(|(name, entry)| ((*name).to_owned(), entry.clone()));
    StoredKit { primitives: primitives.collect(), ..house.main.kit.clone() }
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_removes_a_version_finds_the_kits_of_all_tenants_that_pin_it() {
    let bed = Bed::new().await;
    let (house, other) = (bed.house().await, bed.house().await);
    let at = |version: &str| Entry { version: Some(version.into()), ..Entry::on() };
    let off = Entry { enabled: false, ..at("1.0.0") };
    for (house, entries) in [
        (&house, vec![("notes", at("1.0.0")), ("books", at("2.0.0")), ("ships", Entry::on())]),
        (&other, vec![("notes", at("1.0.0")), ("books", off)]),
    ] {
        for pin in Pin::all(&pinning(house, &entries)) {
            bed.put(&pin).await;
        }
    }
    let mut txn = bed.store.begin("");
    let all = stored::all::<Pin>(&mut txn, true).await.unwrap();
    for (primitive, version, count) in [
        ("notes", "1.0.0", 2),
        ("notes", "1.0", 0),
        ("books", "2.0.0", 1),
        // An entry that is switched off gives its users nothing that they could lose.
        ("books", "1.0.0", 0),
        ("ships", "1.0.0", 0),
    ] {
        let on = Pin::on(primitive, version);
        let found = all.iter().filter(|pin| pin.index() == [(PINNED.to_owned(), on.clone())]);
        assert_eq!(found.count(), count, "{on}");
    }
    let kits: Vec<_> = all.iter().filter(|pin| pin.primitive == "notes").collect();
    assert_ne!(kits[0].key(), kits[1].key(), "two kits hold one version with a pin each");
    assert_ne!(kits[0].organization, kits[1].organization);
}

fn entries() -> impl Strategy<Value = Vec<(u8, Entry)>> {
    let version = proptest::option::of("[12]\\.0\\.0");
    let entry = (any::<bool>(), version).prop_map(|(enabled, version)| Entry {
        enabled,
        version,
        policy: None,
    });
    proptest::collection::vec((0_u8..3, entry), 0..4)
}

fn budgets() -> impl Strategy<Value = Option<Budget>> {
    let period = prop_oneof![Just(Period::Day), Just(Period::Total)];
    let budget = (1_u64..4, period, any::<bool>()).prop_map(|(cap_cents, period, hard)| Budget {
        cap_cents,
        period,
        hard,
    });
    proptest::option::of(budget)
}

fn stored_kits() -> impl Strategy<Value = StoredKit> {
    (entries(), budgets(), proptest::option::of(1_u32..4)).prop_map(|(entries, budget, limit)| {
        let id = |n: u8| charter_kernel::id::uuid_v7(charter_kernel::time::Instant(1), [n; 10]);
        StoredKit {
            id: KitId::parse(&id(1)).unwrap(),
            organization: charter_kernel::id::OrganizationId::parse(&id(2)).unwrap(),
            project: charter_kernel::id::ProjectId::parse(&id(3)).unwrap(),
            name: "kit".into(),
            default: false,
            primitives: entries.into_iter().map(|(n, entry)| (n.to_string(), entry)).collect(),
            budget,
            connections: Connections::default(),
            limits: Limits { requests_per_minute: limit },
            created_at: charter_kernel::time::Instant(1),
        }
    })
}

proptest! {
    #[test]
    fn a_kit_that_stays_as_it_is_loosens_nothing(kit in stored_kits()) {
        prop_assert!(!loosens(&kit, &kit));
    }

    #[test]
    fn a_change_that_does_not_loosen_opens_no_gate(
        before in stored_kits(),
        other in stored_kits(),
        keep in any::<[bool; 2]>(),
        open in any::<bool>(),
    ) {
        // Changes of one part at a time are more often tightenings than changes of all.
        let after = StoredKit {
            primitives: if keep[0] { before.primitives.clone() } else { other.primitives },
            budget: if keep[1] { before.budget } else { other.budget },
            ..other
        };
        if loosens(&before, &after) {
            return Ok(());
        }
        let gate = if open { Gate::Open } else { Gate::Strict };
        for name in ["0", "1", "2"] {
            let decide = |kit: &StoredKit| {
                let kit = kit.rules(1);
                charter_kernel::kit::decide(name, gate, Some(&kit))
                    .map(|pin| pin.map(str::to_owned))
                    .ok()
            };
            let (then, now) = (decide(&before), decide(&after));
            // A primitive that is admitted now was admitted before, at the same version.
            prop_assert!(now.is_none() || now == then, "{name}: {then:?} to {now:?}");
        }
        let cap = |kit: &StoredKit| kit.budget.map_or(u64::MAX, |budget| budget.cap_cents);
        prop_assert!(cap(&after) <= cap(&before));
    }
}

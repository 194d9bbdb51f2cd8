//! The guards of a mutation at its commit: a credential, a user, a kit or a rule that changed
//! meanwhile keeps it from being committed.

use std::sync::Arc;

use charter_kernel::kit::{Budget, Entry, Period};
use charter_kernel::role::Role;
use charter_kernel::unit::{Guard, Key, Reach, Space};
use charter_tenancy::directory::SessionRecord;
use charter_tenancy::records::Record as _;
use charter_tenancy::records::key::ApiKey;
use charter_tenancy::records::kit::StoredKit;
use charter_tenancy::records::member::Member;
use charter_tenancy::records::organization::{Loosening, Organization};
use charter_tenancy::records::project::Project;
use charter_tenancy::records::session::Session;
use charter_tenancy::records::user::User;

use crate::bed::{Bed, House, membership};

/// Whether a change under these guards is committed now.
async fn commits(bed: &Bed, guards: Vec<Guard>) -> bool {
    let key = Key::new(&Reach::deployment(), &Space::of("notes", "notes"), "note");
    let mut txn = bed.store.begin("");
    txn.put(key, charter_kernel::unit::Draft { body: "{}".into(), ..Default::default() })
        .await
        .unwrap();
    guards.into_iter().for_each(|guard| txn.guard(guard));
    txn.commit().await.is_ok()
}

/// An admin, and the session that is theirs.
struct Admin {
    /// The membership that another role takes.
    demoted: Member,
    found: Arc<SessionRecord>,
}

impl Admin {
    async fn of(bed: &Bed) -> Self {
        let organization = bed.house().await.organization.id;
        let person = bed.member(&organization, Role::Admin).await;
        let (cookie, _) = bed.sign_in(&person, &organization).await;
        let found = bed.directory.session(cookie.reveal()).await.unwrap().unwrap();
        Self { demoted: membership(&organization, &person, Role::Viewer), found }
    }

    /// The change by its name.
    async fn meets(&self, bed: &Bed, change: &str) {
        match change {
            "none" => {}
            "signed out" => bed.remove(&Session::address(&self.found.digest)).await,
            "demoted" => bed.put(&self.demoted).await,
            "removed" => bed.remove(&self.demoted.key()).await,
            "came back" => {
                bed.remove(&self.demoted.key()).await;
                bed.clock.forward_ms(1_000);
                bed.put(&self.demoted).await;
                let row = bed.store.get(&self.demoted.key()).await.unwrap().unwrap();
                assert_eq!(row.version, 1, "as the row that was removed");
            }
            _ => unreachable!("{change}"),
        }
    }
}

async fn key_of(bed: &Bed, house: &House) -> (ApiKey, ApiKey, Vec<Guard>) {
    let (_, maker) = bed.key(house, |_| ()).await;
    let (secret, key) = bed.key(house, |key| key.ancestors = vec![maker.id.clone()]).await;
    let found = bed.directory.key(secret.reveal()).await.unwrap().unwrap();
    (maker, key, found.guards())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mutation_by_a_key_needs_the_key_and_its_makers_at_its_commit() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let (_, _, guards) = key_of(&bed, &house).await;
    assert!(commits(&bed, guards).await);
    let (_, key, guards) = key_of(&bed, &house).await;
    bed.revoke_key(&key).await;
    assert!(!commits(&bed, guards).await, "the key was revoked");
    let (maker, _, guards) = key_of(&bed, &house).await;
    bed.revoke_key(&maker).await;
    assert!(!commits(&bed, guards).await, "its maker was revoked");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mutation_by_a_session_needs_the_session_and_the_membership_as_it_was() {
    for change in ["none", "signed out", "demoted", "removed", "came back"] {
        let bed = Bed::new().await;
        let admin = Admin::of(&bed).await;
        admin.meets(&bed, change).await;
        assert_eq!(commits(&bed, admin.found.guards()).await, change == "none", "{change}");
    }
}

/// Whether a change under these guards of a credential is begun, or the code that refuses it.
async fn begins(bed: &Bed, guards: &[Guard]) -> Result<(), &'static str> {
    let held = bed.directory.require_credential(guards).await;
    held.map_err(|refusal| refusal.code.own_name())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_inside_a_request_is_refused_once_its_credential_counts_otherwise() {
    let (revoked, anew) = (Err("unauthorized"), Err("overloaded"));
    for (change, wanted) in [
        ("none", Ok(())),
        ("signed out", revoked),
        ("demoted", anew),
        ("removed", revoked),
        ("came back", anew),
    ] {
        let bed = Bed::new().await;
        let admin = Admin::of(&bed).await;
        admin.meets(&bed, change).await;
        assert_eq!(begins(&bed, &admin.found.guards()).await, wanted, "{change}");
    }
    let bed = Bed::new().await;
    let house = bed.house().await;
    let (maker, _, guards) = key_of(&bed, &house).await;
    assert_eq!(begins(&bed, &guards).await, Ok(()));
    bed.revoke_key(&maker).await;
    assert_eq!(begins(&bed, &guards).await, revoked);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_session_asked_for_needs_the_membership_that_it_was_cut_by() {
    for (change, stands) in [
        ("none", true),
        ("signed out", true),
        ("demoted", false),
        ("removed", false),
        ("came back", false),
    ] {
        let bed = Bed::new().await;
        let admin = Admin::of(&bed).await;
        let left =
            bed.directory.cut(&admin.found.principal(), &admin.found.organization).await.unwrap();
        admin.meets(&bed, change).await;
        assert_eq!(commits(&bed, left.guards).await, stands, "{change}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mutation_for_a_user_needs_it_active_and_bears_its_other_changes() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let agent = &house.main.agent;
    let found = bed.directory.user(&agent.project, &agent.id).await.unwrap().unwrap();
    bed.put(&User { name: "renamed".into(), ..agent.clone() }).await;
    assert!(commits(&bed, vec![found.guard()]).await, "a new name is no revocation");
    assert!(!commits(&bed, vec![found.guard_kit()]).await, "its kit may have moved with it");
    bed.revoke_user(agent).await;
    assert!(!commits(&bed, vec![found.guard()]).await);
    bed.put(agent).await;
    assert!(commits(&bed, vec![found.guard()]).await, "it was restored");
    bed.remove(&agent.key()).await;
    assert!(!commits(&bed, vec![found.guard()]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mutation_in_an_organization_needs_it_there_and_its_rule_where_it_loosens() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let organization = &house.organization;
    let found = bed.directory.organization(&organization.id).await.unwrap().unwrap();
    assert!(commits(&bed, vec![found.guard(), found.guard_loosening()]).await);
    bed.put(&Organization { loosening: Loosening::Session, ..organization.clone() }).await;
    assert!(commits(&bed, vec![found.guard()]).await);
    assert!(!commits(&bed, vec![found.guard_loosening()]).await, "the rule is another by now");
    bed.remove(&organization.key()).await;
    assert!(!commits(&bed, vec![found.guard()]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_decided_by_a_kit_or_a_project_is_decided_anew_once_it_changed() {
    let bed = Bed::new().await;
    let house = bed.house().await;
    let (project, kit) = (&house.main.project, &house.main.kit);
    let found = bed.directory.project(&house.organization.id, &project.id).await.unwrap().unwrap();
    let decided_by = bed.directory.kit(&found, None).await.unwrap().unwrap();
    assert!(commits(&bed, vec![found.guard(), decided_by.guard()]).await);
    let primitives = [("notes".to_owned(), Entry::off())].into();
    bed.put(&StoredKit { primitives, ..kit.clone() }).await;
    assert!(commits(&bed, vec![found.guard()]).await);
    assert!(!commits(&bed, vec![decided_by.guard()]).await);
    let budget = Some(Budget { cap_cents: 1, period: Period::Day, hard: true });
    bed.put(&Project { budget, ..project.clone() }).await;
    assert!(!commits(&bed, vec![found.guard()]).await);
}

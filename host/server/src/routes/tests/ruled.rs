//! The guards of a change that the organization's rule about who may loosen decides.

use std::sync::Arc;

use charter_kernel::role::Role;
use charter_kernel::unit::{Draft, Guard, Key, Reach, Space};
use charter_tenancy::directory::KeyRecord;
use charter_tenancy::identity::Identity;
use charter_tenancy::place::Named;
use charter_tenancy::records::organization::{Loosening, Organization};
use charter_tenancy::stored;

use super::{Bed, record};
use crate::pipeline::caller::Caller;

impl Bed {
    async fn caller(&self, identity: Identity) -> Caller {
        Caller::resolve(self.app(), identity, Named::default()).await.unwrap()
    }

    async fn caller_by_key(&self, role: Role) -> Caller {
        let stored = record(&self.stored_key(&self.key).await);
        self.caller(Identity::Key(Arc::new(KeyRecord { role, ..stored }))).await
    }

    async fn commits(&self, guards: Vec<Guard>) -> bool {
        let mut txn = self.app().store.begin(self.organization.as_str());
        guards.into_iter().for_each(|guard| txn.guard(guard));
        // A unit that changes nothing needs nothing.
        let reach = Reach::organization(self.organization.as_str());
        let row = Key::new(&reach, &Space::host("test"), "row");
        txn.put(row, Draft { body: "{}".into(), ..Draft::default() }).await.unwrap();
        txn.commit().await.is_ok()
    }
}

/// Whether a change to the account, and one to a profile, need the rule as it was asked.
fn needs_rule(caller: &Caller) -> [bool; 2] {
    let rule = caller.place().unwrap().organization().guard_loosening();
    [caller.guards(), caller.profile_guards()].map(|guards| guards.contains(&rule))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_that_loosens_changes_anything_by_a_rule_that_is_another_by_now() {
    let bed = Bed::new().await;
    let admin = bed.caller_by_key(Role::Admin).await;
    let developer = bed.caller_by_key(Role::Developer).await;
    let owner = bed.session(&bed.owner, &bed.organization);
    let owner = bed.caller(Identity::Session(Arc::new(owner))).await;
    assert_eq!(needs_rule(&admin), [true, true]);
    assert_eq!(needs_rule(&developer), [false, false], "it loosens under no rule");
    assert_eq!(needs_rule(&owner), [false, false], "a session loosens under each");
    for guards in [admin.guards(), admin.profile_guards()] {
        assert!(bed.commits(guards).await);
    }

    let mut txn = bed.app().store.begin(bed.organization.as_str());
    let address = Organization::address(&bed.organization);
    let found = stored::get::<Organization>(&mut txn, &address).await.unwrap().unwrap();
    let ruled = Organization { loosening: Loosening::Session, ..found.record };
    stored::replace(&mut txn, &ruled, "name").await.unwrap();
    txn.commit().await.unwrap();

    for guards in [admin.guards(), admin.profile_guards()] {
        assert!(!bed.commits(guards).await);
    }
    // Somebody who asks from the top is told by the rule of now, and nothing of it is left to require.
    let again = bed.caller_by_key(Role::Admin).await;
    assert!(again.place().unwrap().may_loosen().is_err());
    assert_eq!(needs_rule(&again), [false, false]);
    assert!(bed.commits(again.guards()).await);
    bed.end().await;
}

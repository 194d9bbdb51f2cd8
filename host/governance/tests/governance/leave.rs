//! Leave: what a policy, a role, a pin and a standing say, and the hold and the row that come of
//! it.

use charter_engine::leave::Deferred;
use charter_engine::{Leave, Proposal, Ungranted};
use charter_kernel::governance::hold::State;
use charter_kernel::role::Role;
use charter_kernel::scope::{Actor, Principal, Proof, Subject};
use charter_kernel::time::Instant;
use charter_kernel::unit::Unit;
use charter_tenancy::records::Record as _;
use serde_json::{Value, json};

use crate::bed::{Bed, START, on_both};
use crate::words::{
    CENT, api_key, budget, fund, id, leave, leave_for, member, organization_reach, payment, policy,
    principal, project, proof, proposal, scope, user, user_record,
};

on_both!(
    what_nothing_forbids_is_held_and_told,
    a_denial_holds_nothing_and_is_a_row_too,
    a_shadow_rule_is_reported_and_never_acts,
    a_revoked_user_gets_no_leave,
    money_that_is_not_there_is_not_held,
    later_work_has_the_power_that_is_left_of_its_credential,
);

async fn what_nothing_forbids_is_held_and_told(bed: Bed) {
    let granted = bed.grant(leave(500)).await;
    assert!(granted.untaken.is_none());
    let hold = bed.hold(&granted.id).await;
    assert_eq!(hold, granted.hold);
    assert_eq!((hold.state, hold.amount, hold.capturable), (State::Held, Some(500), Some(500)));
    assert_eq!(hold.subject.user.as_deref(), Some(id(3).as_str()));
    assert_eq!(hold.subject.root, Some(crate::words::asker()));
    assert_eq!((hold.at, hold.until), (START, START.plus_ms(600_000)));
    let rows = bed.audit().await;
    let [(row, private)] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!((&row["action"], &row["decision"]), (&json!("shop.buy"), &json!("allowed")));
    assert_eq!((&row["amount_micro_usd"], &row["primitive"]), (&json!(500), &json!("shop")));
    assert_eq!((&row["actor"]["type"], &row["actor"]["id"]), (&json!("key"), &json!(id(60))));
    assert_eq!((&row["on_behalf_of"], &row["project_id"]), (&json!(id(3)), &json!(id(2))));
    assert_eq!(row["request_id"], id(50));
    // A recipient can be an address: only the half that can be erased has it.
    assert_eq!(private["entity_id"], "card-1");
    assert_eq!(private["details"]["hold_id"], granted.id);
    assert!(!row.to_string().contains("card-1"));
    assert_eq!(bed.told().await, 0, "nobody has to decide");
}

#[tokio::test(flavor = "multi_thread")]
async fn leave_whose_hold_is_never_taken_has_a_row_that_names_none() {
    let bed = Bed::sqlite().await;
    bed.set_organization(budget(10)).await;
    let granted = bed.grant(Leave { defers: true, ..leave(500) }).await;
    let Deferred { unit, facts } = granted.untaken.unwrap();
    for facts in [unit.facts, facts] {
        bed.commit(Unit { facts, ..Unit::default() }).await.unwrap();
    }
    let rows = bed.audit().await;
    let [(taken, with), (untaken, without)] = rows.as_slice() else { panic!("{rows:?}") };
    assert_eq!(with["details"]["hold_id"], granted.id);
    assert_eq!(without["details"]["hold_id"], Value::Null);
    // It is the same decision.
    for member in ["action", "decision", "amount_micro_usd", "on_behalf_of", "request_id"] {
        assert_eq!(taken[member], untaken[member], "{member}");
    }
    for member in ["verdict", "scopes"] {
        assert!(with["details"][member] == without["details"][member], "{rows:?}");
    }
    assert_eq!(untaken["decision"], "allowed");
}

async fn a_denial_holds_nothing_and_is_a_row_too(bed: Bed) {
    bed.set_organization(policy(&json!({ "when": { "amount_over_micro_usd": 100 } }))).await;
    let told = bed.refuse_with(leave(101)).await;
    assert_eq!(told["policy_ids"], json!(["r"]));
    let rows = bed.audit().await;
    let (row, private) = &rows[0];
    assert_eq!((&row["decision"], &row["reason"]), (&json!("denied"), &json!("policy_denied")));
    assert_eq!((&row["code"], &row["policy_ids"]), (&json!("forbidden"), &json!(["r"])));
    assert_eq!(private["details"]["hold_id"], Value::Null);
    bed.grant(leave(100)).await;
    assert_eq!(bed.audit().await.len(), 2);
}

async fn a_shadow_rule_is_reported_and_never_acts(bed: Bed) {
    bed.set_organization(policy(&json!({ "mode": "shadow" }))).await;
    let hold = bed.grant(leave(1)).await.hold;
    let shadow: Vec<&str> = hold.decision.shadow.iter().map(|word| word.rule.as_str()).collect();
    assert_eq!(shadow, ["r"]);
    let (row, private) = bed.audit().await.remove(0);
    assert_eq!((&row["decision"], &row["policy_ids"]), (&json!("allowed"), &json!([])));
    assert_eq!(private["details"]["verdict"]["shadow"][0]["effect"], "deny");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_is_about_what_it_names() {
    let bed = Bed::sqlite().await;
    // Friday, 08:00 in UTC.
    for (when, denies) in [
        (json!({}), true),
        (json!({ "users": [id(3)] }), true),
        (json!({ "users": [id(5)] }), false),
        (json!({ "kits": [id(4)] }), true),
        (json!({ "kits": [id(5)] }), false),
        (json!({ "projects": [id(2)] }), true),
        (json!({ "projects": [id(6)] }), false),
        (json!({ "entities": ["card-*"] }), true),
        (json!({ "entities": ["vendor-*"] }), false),
        (json!({ "hours": { "from": "08:00", "to": "08:01" } }), true),
        (json!({ "hours": { "from": "08:01", "to": "08:00" } }), false),
        (json!({ "hours": { "from": "07:00", "to": "09:00", "days": ["sat"] } }), false),
        (json!({ "amount_over_micro_usd": 4 }), true),
        (json!({ "amount_over_micro_usd": 5 }), false),
    ] {
        bed.set_organization(policy(&json!({ "when": when }))).await;
        assert_eq!(bed.ask(leave(5)).await.is_err(), denies, "{when}");
    }
    bed.set_organization(policy(&json!({ "actions": ["shop.sell", "mail.*"] }))).await;
    bed.grant(leave(5)).await;
    bed.set_organization(json!({ "policy": { "rules": [], "default": "deny" } })).await;
    assert_eq!(bed.refuse(leave(5)).await, "policy_denied");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_that_does_not_say_how_much_is_larger_than_any() {
    let bed = Bed::sqlite().await;
    bed.set_organization(policy(&json!({ "when": { "amount_over_micro_usd": i64::MAX } }))).await;
    assert_eq!(bed.refuse(leave_for(proposal(None))).await, "policy_denied");
    // A proposal that does not spend is about no amount.
    let mail = Proposal { spends: false, ..proposal(None) };
    let hold = bed.grant(leave_for(mail)).await.hold;
    assert_eq!((hold.amount, hold.charges.len(), hold.spends), (None, 0, Some(false)));
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_can_be_asked_where_nothing_can_be_made_again() {
    let bed = Bed::sqlite().await;
    bed.set_organization(crate::words::asking(1)).await;
    assert_eq!(bed.refuse(leave(5)).await, "approval_required");
    let (row, _) = bed.audit().await.remove(0);
    assert_eq!(row["decision"], "denied");
    assert_eq!(bed.told().await, 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_role_that_only_reads_takes_no_action() {
    let bed = Bed::sqlite().await;
    for role in [Role::Viewer, Role::Approver] {
        let reading = Leave { scope: scope(role), ..leave(5) };
        assert_eq!(bed.refuse(reading).await, "role_insufficient", "{role}");
    }
    for role in [Role::Developer, Role::Admin, Role::Owner] {
        bed.grant(Leave { scope: scope(role), ..leave(5) }).await;
    }
}

async fn a_revoked_user_gets_no_leave(bed: Bed) {
    bed.set_user(json!({ "revoked": { "at": START, "reason": "lost" } })).await;
    assert_eq!(bed.refuse(leave(5)).await, "profile_revoked");
    assert!(bed.audit().await.is_empty(), "nothing was decided");
    bed.set_user(json!({ "revoked": null })).await;
    bed.grant(leave(5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leave_is_somebodys() {
    let bed = Bed::sqlite().await;
    let nobody = Proof::of(Principal::of(Actor::anonymous())).scope();
    assert_eq!(bed.refuse(Leave { scope: nobody, ..leave(5) }).await, "no_tenant");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_organizations_own_action_counts_in_the_organization() {
    let bed = Bed::sqlite().await;
    bed.set_organization(budget(10)).await;
    let whole = Proof::of(principal(Role::Admin)).organization(crate::words::organization());
    let own = |amount| Leave { scope: whole.clone().scope(), ..leave(amount) };
    let hold = bed.grant(own(10 * CENT)).await.hold;
    assert_eq!((&hold.subject.project, &hold.subject.user), (&None, &None));
    assert_eq!(hold.charges.len(), 1);
    assert_eq!(bed.refuse(own(1)).await, "budget_exceeded");
    assert_eq!(bed.meter("organization", &organization_reach()).await.now().reserved, 10 * CENT);
}

async fn money_that_is_not_there_is_not_held(bed: Bed) {
    fund(&bed, 5 * CENT).await;
    let told = bed.refuse_with(payment(5 * CENT + 1)).await;
    assert_eq!(told["available_micro_usd"], 5 * CENT);
    assert_eq!(
        (&told["amount_micro_usd"], &told["account"]),
        (&json!(5 * CENT + 1), &json!("credit"))
    );
    bed.grant(payment(5 * CENT)).await;
    assert_eq!(bed.refuse(payment(1)).await, "insufficient_credits");
    let books = charter_governance::verify::verify(bed.store()).await.unwrap();
    assert_eq!((books.faults, books.accounts), (Vec::new(), 3), "the card's account was opened");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_pinned_to_a_user_spends_credit_below_a_hard_cap_only() {
    let bed = Bed::sqlite().await;
    fund(&bed, 100 * CENT).await;
    let pinned = || {
        let principal = Principal { user: Some(user()), ..principal(Role::Developer) };
        let scope = proof(principal).user(user(), Subject::Path).scope();
        Leave { scope, ..payment(CENT) }
    };
    assert_eq!(bed.refuse(pinned()).await, "no_cap");
    let (row, _) = bed.audit().await.remove(0);
    assert_eq!((&row["decision"], &row["reason"]), (&json!("denied"), &json!("no_cap")));
    bed.grant(payment(CENT)).await;
    // A limit says how often, not how much there is.
    let limit = json!({ "id": "l", "actions": ["*"], "period": "day", "max_count": 5 });
    bed.set_organization(json!({ "limits": [limit] })).await;
    assert_eq!(bed.refuse(pinned()).await, "no_cap");
    for scope in ["kit", "user", "project", "organization"] {
        let none = json!({ "budget": null });
        let set = async |members: &Value| match scope {
            "kit" => bed.set_kit(members.clone()).await,
            "user" => bed.set_user(members.clone()).await,
            "project" => bed.set_project(members.clone()).await,
            _ => bed.set_organization(members.clone()).await,
        };
        set(&crate::words::soft_budget(100)).await;
        assert_eq!(bed.refuse(pinned()).await, "no_cap", "{scope}");
        set(&budget(100)).await;
        let granted = bed.grant(pinned()).await;
        bed.void(&granted.id).await;
        set(&none).await;
        assert_eq!(bed.refuse(pinned()).await, "no_cap", "{scope}");
    }
    // Money that is the user's own already is its own to spend.
    let own =
        Proposal { pay: Some((crate::words::card(), crate::words::credit())), ..proposal(Some(0)) };
    bed.grant(Leave { proposal: own, ..pinned() }).await;
}

/// The host, doing later what the key asked for.
fn later(role: Role) -> Leave {
    let scope = proof(principal(role).hand_on()).user(user(), Subject::Path).scope();
    Leave { scope, ..leave(5) }
}

async fn later_work_has_the_power_that_is_left_of_its_credential(bed: Bed) {
    bed.insert(&api_key(Role::Developer)).await;
    bed.insert(&member(9, Role::Developer)).await;
    bed.grant(later(Role::Developer)).await;
    // The person behind the key is only a viewer by now.
    bed.remove(&member(9, Role::Developer).key()).await;
    bed.insert(&member(9, Role::Viewer)).await;
    assert_eq!(bed.refuse(later(Role::Developer)).await, "role_insufficient");
    bed.remove(&member(9, Role::Viewer).key()).await;
    // One who has left takes nothing from the key.
    bed.grant(later(Role::Developer)).await;
    bed.remove(&api_key(Role::Developer).key()).await;
    assert_eq!(bed.refuse(later(Role::Developer)).await, "unauthorized");
    // An action that goes on for ever outlives the credential that set it up.
    let principal = principal(Role::Developer).hand_over();
    let scope = proof(principal).user(user(), Subject::Path).scope();
    bed.grant(Leave { scope, ..leave(5) }).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_has_outlived_its_user_takes_no_leave_and_leaves_no_row_of_them() {
    let bed = Bed::sqlite().await;
    bed.set_organization(policy(&json!({}))).await;
    bed.remove(&user_record(3).key()).await;
    assert_eq!(bed.refuse(leave(5)).await, "not_found");
    assert!(bed.audit().await.is_empty(), "the request's own row tells of it");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_of_another_project_is_nobody_there() {
    let bed = Bed::sqlite().await;
    let other = charter_tenancy::records::user::User {
        project: charter_kernel::id::ProjectId::parse(&id(6)).unwrap(),
        ..user_record(7)
    };
    bed.insert(&other).await;
    // The directory makes no such scope.
    let scope = Proof::of(principal(Role::Developer))
        .organization(crate::words::organization())
        .project(project(), false, true)
        .user(other.id.clone(), Subject::Path)
        .scope();
    assert_eq!(bed.refuse(Leave { scope, ..leave(5) }).await, "not_found");
}

#[tokio::test(flavor = "multi_thread")]
async fn each_action_has_a_hold_of_its_own() {
    let bed = Bed::sqlite().await;
    let first = bed.grant(leave(5)).await;
    let second = bed.grant(Leave { ordinal: 1, until: Instant(7), ..leave(5) }).await;
    assert_ne!(first.id, second.id);
    assert_eq!((second.hold.ordinal, second.hold.until), (1, Instant(7)));
    assert!(!matches!(bed.ask(leave(-1)).await, Ok(_) | Err(Ungranted::Pending { .. })));
}

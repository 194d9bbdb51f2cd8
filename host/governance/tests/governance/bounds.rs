//! Limits on how often an action is taken, and grants that stand in for a person: what each
//! counts, and when it is used up.

use charter_engine::{Leave, Proposal, Ungranted};
use charter_governance::gateway;
use charter_kernel::governance::leave::Asked;
use charter_kernel::governance::policy::Verdict;
use charter_kernel::role::Role;
use charter_kernel::scope::Proof;
use charter_kernel::unit::Reach;
use charter_tenancy::records::Record as _;
use serde_json::{Value, json};

use crate::bed::{Bed, on_both, reason};
use crate::words::{
    CENT, DAY_MS, asking, case, client, given, id, leave, leave_for, leave_of, organization,
    organization_reach, policy, principal, proposal, user_reach, user_record,
};

on_both!(
    a_limit_counts_how_often_each_user_takes_an_action,
    a_limit_counts_what_is_no_spending_too,
    a_limit_is_for_whom_and_what_it_names,
    a_limit_counts_the_organizations_own_once_for_the_organization,
    a_grant_stands_in_for_a_person,
    a_grant_never_stands_against_a_denial,
    a_grant_is_for_its_user_its_actions_and_its_time,
    a_grant_that_is_used_up_has_the_next_ones_asked,
    however_many_grants_are_used_up_the_next_one_counts_or_a_person_is_asked,
    a_grant_that_is_taken_back_is_not_used_any_more,
);

fn limits(all: Value) -> Value {
    json!({ "limits": all })
}

async fn a_limit_counts_how_often_each_user_takes_an_action(bed: Bed) {
    bed.insert(&user_record(5)).await;
    let limit = json!({ "id": "l", "actions": ["shop.*"], "period": "day", "max_count": 2 });
    bed.set_organization(limits(json!([limit]))).await;
    bed.spend(CENT).await;
    let second = bed.grant(leave(CENT)).await;
    let told = bed.refuse_with(leave(CENT)).await;
    assert_eq!(
        (&told["limit_id"], &told["max"], &told["used"]),
        (&json!("l"), &json!(2), &json!(2))
    );
    assert_eq!(told["resets_at"], "2027-01-16T00:00:00.000Z");
    assert_eq!(bed.refuse(leave(CENT)).await, "limit_exceeded");
    let (row, _) = bed.audit().await.pop().unwrap();
    assert_eq!((&row["decision"], &row["reason"]), (&json!("denied"), &json!("limit_exceeded")));
    // Each user has its own; what was cancelled was not taken; a day later it is another day.
    bed.grant(leave_of(5, CENT)).await;
    bed.void(&second.id).await;
    bed.spend(CENT).await;
    assert_eq!(bed.refuse(leave(CENT)).await, "limit_exceeded");
    bed.clock.forward_ms(DAY_MS);
    bed.spend(CENT).await;
}

async fn a_limit_counts_what_is_no_spending_too(bed: Bed) {
    let limit =
        json!({ "id": "l", "actions": ["*"], "period": "total", "max_amount_micro_usd": 100 });
    bed.set_organization(limits(json!([limit]))).await;
    let charge = |amount| leave_for(Proposal { spends: false, ..proposal(Some(amount)) });
    bed.grant(charge(60)).await;
    let told = bed.refuse_with(charge(41)).await;
    assert_eq!((&told["used"], &told["resets_at"]), (&json!(60), &Value::Null), "it never resets");
    bed.grant(charge(40)).await;
    let meter = bed.meter("limit:l:amount", &user_reach()).await;
    assert_eq!(meter.now().reserved, 100);
}

async fn a_limit_is_for_whom_and_what_it_names(bed: Bed) {
    bed.insert(&user_record(5)).await;
    let limit = json!({
        "id": "l", "actions": ["shop.buy", "mail.*"], "users": [id(5)], "period": "day", "max_count": 0,
    });
    bed.set_organization(limits(json!([limit]))).await;
    bed.grant(leave(1)).await;
    assert_eq!(bed.refuse(leave_of(5, 1)).await, "limit_exceeded");
    let sell = Proposal { action: "shop.sell".into(), ..proposal(Some(1)) };
    bed.grant(Leave { proposal: sell, ..leave_of(5, 1) }).await;
    let mail = Proposal { action: "mail.send".into(), ..proposal(Some(1)) };
    assert_eq!(bed.refuse(Leave { proposal: mail, ..leave_of(5, 1) }).await, "limit_exceeded");
}

async fn a_limit_counts_the_organizations_own_once_for_the_organization(bed: Bed) {
    let limit = |id: &str, changes: Value| {
        let mut limit = json!({ "id": id, "actions": ["shop.*"], "period": "day" });
        limit.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
        limit
    };
    let some = limit("some", json!({ "users": [id(3)], "max_count": 0 }));
    let all = limit("all", json!({ "max_count": 2, "max_amount_micro_usd": 100 }));
    bed.set_organization(limits(json!([some, all.clone()]))).await;
    let own = |role, amount| {
        let whole = Proof::of(principal(role)).organization(organization());
        let charge = Proposal { spends: false, ..proposal(Some(amount)) };
        Leave { scope: whole.scope(), ..leave_for(charge) }
    };
    // Both ask for the same organization.
    let first = bed.grant(own(Role::Developer, 60)).await;
    let told = bed.refuse_with(own(Role::Admin, 41)).await;
    assert_eq!((&told["limit_id"], &told["used"]), (&json!("all"), &json!(60)));
    bed.grant(own(Role::Admin, 40)).await;
    let told = bed.refuse_with(own(Role::Developer, 0)).await;
    assert_eq!((&told["limit_id"], &told["used"]), (&json!("all"), &json!(2)));
    let counted = bed.meter("limit:all:count", &organization_reach()).await.now();
    assert_eq!(counted.reserved, 2);
    // A simulation reads the same gauges.
    let case = charter_governance::caps::Case { project: None, user: None, ..case(&bed).await };
    let txn = bed.begin();
    let gauges = case.limits(&bed.governance, &txn, "shop.buy", bed.now()).await.unwrap();
    assert_eq!(gauges.iter().map(|gauge| gauge.admits(0)).collect::<Vec<_>>(), [false, true]);
    // A user has meters of its own still.
    bed.set_organization(limits(json!([all]))).await;
    bed.grant(leave(60)).await;
    assert_eq!(bed.meter("limit:all:count", &user_reach()).await.now().reserved, 1);
    bed.void(&first.id).await;
    bed.grant(own(Role::Developer, 60)).await;
    assert_eq!(bed.refuse(own(Role::Developer, 0)).await, "limit_exceeded");
}

async fn a_grant_stands_in_for_a_person(bed: Bed) {
    bed.set_organization(asking(2)).await;
    assert_eq!(bed.refuse(leave(CENT)).await, "approval_required");
    bed.insert(&given(&json!({ "max_uses": 2, "cap_micro_usd": 3 * CENT }))).await;
    let granted = bed.grant(leave(CENT)).await;
    assert_eq!(granted.hold.decision.verdict, Verdict::Allow);
    assert_eq!(granted.hold.decision.grant.as_deref(), Some("g"));
    let (_, private) = bed.audit().await.pop().unwrap();
    assert_eq!(private["details"]["verdict"]["grant"], "g");
    assert_eq!(bed.meter("grant:g:count", &user_reach()).await.now().reserved, 1);
    assert_eq!(bed.meter("grant:g:amount", &user_reach()).await.now().reserved, CENT);
    // A policy that allows it anyway uses up no grant.
    bed.set_organization(json!({ "policy": { "rules": [] } })).await;
    assert_eq!(bed.grant(leave(CENT)).await.hold.decision.grant, None);
    assert_eq!(bed.meter("grant:g:count", &user_reach()).await.now().reserved, 1);
}

async fn a_grant_never_stands_against_a_denial(bed: Bed) {
    bed.insert(&given(&json!({}))).await;
    bed.set_organization(policy(&json!({}))).await;
    assert_eq!(bed.refuse(leave(1)).await, "policy_denied");
    // It stands in for an allow that is missing.
    bed.set_organization(json!({ "policy": { "rules": [], "default": "deny" } })).await;
    bed.grant(leave(1)).await;
    // And never for room.
    bed.set_organization(crate::words::budget(1)).await;
    assert_eq!(bed.refuse(leave(CENT + 1)).await, "budget_exceeded");
}

async fn a_grant_is_for_its_user_its_actions_and_its_time(bed: Bed) {
    bed.insert(&user_record(5)).await;
    bed.set_organization(json!({ "policy": { "rules": [], "default": "deny" } })).await;
    bed.insert(&given(&json!({}))).await;
    bed.grant(leave(1)).await;
    assert_eq!(bed.refuse(leave_of(5, 1)).await, "policy_denied");
    let mail = Proposal { action: "mail.send".into(), ..proposal(Some(1)) };
    assert_eq!(bed.refuse(leave_for(mail)).await, "policy_denied");
    bed.clock.forward_ms(3_600_000 - 1);
    bed.grant(leave(1)).await;
    bed.clock.forward_ms(1);
    assert_eq!(bed.refuse(leave(1)).await, "policy_denied");
}

async fn a_grant_that_is_used_up_has_the_next_ones_asked(bed: Bed) {
    bed.set_organization(asking(1)).await;
    bed.insert(&given(&json!({ "id": "g1", "max_uses": 1 }))).await;
    bed.insert(&given(&json!({ "id": "g2", "cap_micro_usd": 100 }))).await;
    let mut used: Vec<Option<String>> = Vec::new();
    for amount in [60, 60, 40] {
        used.push(bed.grant(leave(amount)).await.hold.decision.grant);
    }
    used.sort();
    assert_eq!(used, [Some("g1".to_owned()), Some("g2".into()), Some("g2".into())]);
    // A simulation finds both full, too.
    let case = case(&bed).await;
    let asked = Asked { action: "shop.buy", entity: "", spends: true, amount: Some(1) };
    let foreseen = gateway::foresee(&bed.governance, &case, &asked, bed.now()).await.unwrap();
    assert_eq!((foreseen.verdict, foreseen.grant), (Verdict::RequireApproval, None));
    let asked = bed.ask_from(Some(client()), leave(1)).await;
    assert!(matches!(asked, Err(Ungranted::Pending { .. })), "now a person is asked: {asked:?}");
    assert_eq!(reason(bed.ask(leave(1)).await), "approval_required");
}

async fn however_many_grants_are_used_up_the_next_one_counts_or_a_person_is_asked(bed: Bed) {
    bed.set_organization(asking(1)).await;
    for n in 0..20 {
        bed.insert(&given(&json!({ "id": format!("g{n:02}"), "max_uses": 1 }))).await;
        bed.grant(leave(1)).await;
    }
    let asked = bed.ask_from(Some(client()), leave(1)).await;
    assert!(matches!(asked, Err(Ungranted::Pending { .. })), "{asked:?}");
    bed.insert(&given(&json!({ "id": "g20", "max_uses": 1 }))).await;
    assert_eq!(bed.grant(leave(1)).await.hold.decision.grant.as_deref(), Some("g20"));
}

async fn a_grant_that_is_taken_back_is_not_used_any_more(bed: Bed) {
    bed.set_organization(asking(1)).await;
    let grant = given(&json!({}));
    bed.insert(&grant).await;
    let granted = bed.grant(Leave { defers: true, ..leave(1) }).await;
    bed.remove(&grant.key()).await;
    let unit = granted.untaken.unwrap().unit;
    assert!(bed.commit(unit).await.is_err_and(|error| error.is_conflict()));
    assert_eq!(bed.refuse(leave(1)).await, "approval_required");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_grant_asks_nothing_of_those_who_have_none() {
    let bed = Bed::sqlite().await;
    bed.insert(&given(&json!({}))).await;
    let txn = bed.begin();
    let case = crate::words::case(&bed).await;
    let grants = charter_governance::gateway::grants(&bed.governance, &case).await.unwrap();
    assert_eq!(grants.len(), 1);
    // Without bounds of its own it has no meter.
    let gauges = case.grant(&bed.governance, &txn, &grants[0].0, bed.now()).await.unwrap();
    assert!(gauges.is_empty());
    let nobody = charter_governance::caps::Case { user: None, ..case };
    assert!(
        charter_governance::gateway::grants(&bed.governance, &nobody).await.unwrap().is_empty()
    );
    let limits = nobody.limits(&bed.governance, &txn, "shop.buy", bed.now()).await.unwrap();
    assert!(limits.is_empty());
    assert_eq!(nobody.subject(Default::default()).reach(), Reach::project(&id(2)));
}

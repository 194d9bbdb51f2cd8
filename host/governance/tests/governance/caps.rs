//! Caps over a real database: which scopes bind whom, when a window ends, what a cap finds that
//! comes late, and how a frozen scope admits again.

use std::sync::Arc;
use std::time::Duration;

use charter_engine::leave::{caps_space, own_scope};
use charter_engine::{Leave, Proposal};
use charter_governance::caps;
use charter_governance::sums::Sums;
use charter_kernel::calendar::Slot;
use charter_kernel::governance::hold::{meters_space, spend_space};
use charter_kernel::meter::Meter;
use charter_kernel::role::Role;
use charter_kernel::scope::{Actor, Principal, Subject};
use charter_kernel::unit::{Draft, Key, Reach, Unit, Write};
use futures::future::join_all;
use serde_json::{Value, json};

use crate::bed::{Bed, START, ask_of, on_both};
use crate::words::{
    CENT, DAY_MS, budget, case, id, leave, leave_for, leave_of, organization_reach, principal,
    proof, proposal, soft_budget, user, user_reach, user_record,
};

on_both!(
    a_cap_admits_what_is_left_and_no_more,
    each_scope_has_a_cap_of_its_own_and_is_named_where_it_refuses,
    a_kit_bounds_each_user_and_a_project_all_of_them,
    a_window_ends_and_another_begins,
    a_soft_cap_asks_a_person_where_one_can_be_asked,
    what_waits_beyond_a_soft_cap_is_bounded_by_it_once_more,
    beyond_a_soft_cap_the_others_bind_still,
    money_of_a_user_is_counted_without_any_cap,
    a_cap_that_comes_finds_what_was_spent_in_its_window,
    a_cap_that_goes_and_comes_again_has_forgotten_nothing,
    a_hold_from_before_a_first_budget_counts_in_it,
    a_hold_of_an_earlier_window_counts_in_a_cap_that_has_come_or_changed_since,
    spending_is_summed_up_however_many_records_there_are,
    a_sum_that_outlasts_who_asks_for_it_is_made_once_and_kept,
    of_two_hosts_that_sum_up_at_once_neither_refuses,
    a_sum_of_an_organization_outlasts_changes_of_its_users,
    a_cap_that_comes_beside_a_stream_of_captures_counts_all_of_them,
    a_window_that_ends_amid_a_sum_leaves_nothing_to_the_next,
    a_scope_that_a_provider_overspent_admits_nothing_until_it_is_thawed,
    a_project_that_a_provider_overspent_is_thawed_too,
    a_user_with_many_meters_is_thawed_whole,
    a_primitive_has_caps_of_its_own,
    a_cap_of_a_primitives_own_begins_with_what_its_scope_has_spent_and_holds,
    another_period_of_a_primitives_own_cap_forgets_nothing,
    what_a_removed_user_spent_stays_in_the_wider_scopes,
);

fn project_reach() -> Reach {
    Reach::project(&id(2))
}

/// Writes rows of the books as they are.
async fn put(bed: &Bed, rows: impl IntoIterator<Item = (Key, Draft)>) {
    let writes = rows.into_iter().map(|(key, draft)| Write::Put { key, draft }).collect();
    bed.commit(Unit { writes, ..Unit::default() }).await.unwrap();
}

fn body(value: &Value) -> Draft {
    Draft { body: value.to_string(), ..Draft::default() }
}

async fn a_cap_admits_what_is_left_and_no_more(bed: Bed) {
    bed.set_organization(budget(10)).await;
    bed.grant(leave(7 * CENT)).await;
    assert_eq!(bed.refuse(leave(3 * CENT + 1)).await, "budget_exceeded");
    bed.grant(leave(3 * CENT)).await;
    let told = bed.refuse_with(leave(1)).await;
    assert_eq!(told["scope"], "organization");
    assert_eq!(told["cap_micro_usd"], 10 * CENT);
    assert_eq!(
        (&told["spent_micro_usd"], &told["reserved_micro_usd"]),
        (&json!(0), &json!(10 * CENT))
    );
    assert_eq!(told["resets_at"], "2027-01-16T00:00:00.000Z");
    // Nothing costs nothing, however full the cap is.
    bed.grant(leave(0)).await;
}

async fn each_scope_has_a_cap_of_its_own_and_is_named_where_it_refuses(bed: Bed) {
    bed.set_organization(budget(40)).await;
    bed.set_project(budget(30)).await;
    bed.set_kit(budget(20)).await;
    bed.set_user(budget(10)).await;
    // Of those that are full the outermost answers.
    for (scope, most) in [("user", 10), ("kit", 20), ("project", 30), ("organization", 40)] {
        let told = bed.refuse_with(leave(most * CENT + 1)).await;
        assert_eq!(told["scope"], scope);
        assert_eq!(told["cap_micro_usd"], most * CENT);
    }
    bed.grant(leave(10 * CENT)).await;
    for (scope, reach) in [
        ("organization", organization_reach()),
        ("project", project_reach()),
        ("kit", user_reach()),
        ("user", user_reach()),
    ] {
        assert_eq!(bed.meter(scope, &reach).await.now().reserved, 10 * CENT, "{scope}");
    }
}

async fn a_kit_bounds_each_user_and_a_project_all_of_them(bed: Bed) {
    bed.insert(&user_record(5)).await;
    bed.set_kit(budget(10)).await;
    bed.set_project(budget(15)).await;
    bed.grant(leave(10 * CENT)).await;
    assert_eq!(bed.refuse_with(leave(1)).await["scope"], "kit");
    bed.grant(leave_of(5, 5 * CENT)).await;
    assert_eq!(bed.refuse_with(leave_of(5, 1)).await["scope"], "project");
}

async fn a_window_ends_and_another_begins(bed: Bed) {
    bed.set_organization(budget(10)).await;
    let held = bed.grant(leave(4 * CENT)).await;
    bed.spend(6 * CENT).await;
    // Eight in the morning in UTC: two hours more are not the end of the day there.
    bed.clock.forward_ms(2 * 3_600_000);
    assert_eq!(bed.refuse(leave(1)).await, "budget_exceeded");
    bed.clock.forward_ms(14 * 3_600_000);
    bed.grant(leave(10 * CENT)).await;
    // A hold counts in the window that admitted it, whenever it ends.
    bed.capture(&held.id, 4 * CENT).await;
    let today = bed.meter("organization", &organization_reach()).await.now();
    assert_eq!((today.spent, today.reserved), (0, 10 * CENT));
}

#[tokio::test(flavor = "multi_thread")]
async fn days_begin_in_the_organizations_time_zone() {
    let bed = Bed::sqlite().await;
    // It is 22:00 there.
    bed.set_organization(json!({ "time_zone": "Pacific/Kiritimati" })).await;
    bed.set_organization(budget(10)).await;
    bed.spend(10 * CENT).await;
    bed.clock.forward_ms(2 * 3_600_000 - 1);
    assert_eq!(bed.refuse(leave(1)).await, "budget_exceeded");
    bed.clock.forward_ms(1);
    bed.grant(leave(10 * CENT)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_window_of_each_period_ends_at_its_own_moment() {
    // The start is a Friday, 15 January 2027, at 08:00.
    let ends = [
        ("day", Some(16 * 3_600_000)),
        ("week", Some(16 * 3_600_000 + 2 * DAY_MS)),
        ("month", Some(16 * 3_600_000 + 16 * DAY_MS)),
        ("year", Some(16 * 3_600_000 + 350 * DAY_MS)),
        ("total", None),
    ];
    for (period, ends) in ends {
        let bed = Bed::sqlite().await;
        let set = json!({ "cap_cents": 1, "period": period, "hard": true });
        bed.set_user(json!({ "budget": set })).await;
        bed.spend(CENT).await;
        bed.clock.forward_ms(ends.unwrap_or(4_000 * DAY_MS) - 1);
        assert_eq!(bed.refuse(leave(1)).await, "budget_exceeded", "{period}");
        bed.clock.forward_ms(1);
        assert_eq!(bed.ask(leave(CENT)).await.is_ok(), ends.is_some(), "{period}");
    }
}

async fn a_soft_cap_asks_a_person_where_one_can_be_asked(bed: Bed) {
    bed.set_organization(soft_budget(10)).await;
    bed.grant(leave(10 * CENT)).await;
    assert_eq!(bed.refuse(leave(CENT)).await, "budget_exceeded");
    bed.wait(leave(CENT)).await;
    let stands = bed.meter("organization", &organization_reach()).await.now();
    assert_eq!((stands.reserved, stands.over_reserved), (10 * CENT, CENT), "beside the cap");
    // Up to the cap nobody is asked.
    bed.set_organization(soft_budget(12)).await;
    bed.grant(leave(2 * CENT)).await;
}

async fn what_waits_beyond_a_soft_cap_is_bounded_by_it_once_more(bed: Bed) {
    bed.set_organization(soft_budget(10)).await;
    bed.grant(leave(10 * CENT)).await;
    let ask = async |amount| bed.ask_from(Some(crate::words::client()), leave(amount)).await;
    assert_eq!(crate::bed::reason(ask(10 * CENT + 1).await), "budget_exceeded");
    bed.wait(leave(6 * CENT)).await;
    assert_eq!(crate::bed::reason(ask(5 * CENT).await), "budget_exceeded");
    bed.wait(leave(4 * CENT)).await;
    let stands = bed.meter("organization", &organization_reach()).await.now();
    assert_eq!((stands.reserved, stands.over_reserved), (10 * CENT, 10 * CENT));
}

async fn beyond_a_soft_cap_the_others_bind_still(bed: Bed) {
    bed.set_organization(soft_budget(10)).await;
    bed.set_user(budget(15)).await;
    bed.grant(leave(10 * CENT)).await;
    let asked = bed.ask_from(Some(crate::words::client()), leave(6 * CENT)).await;
    assert_eq!(crate::bed::reason(asked), "budget_exceeded", "the user's own cap is hard");
    let waits = bed.wait(leave(5 * CENT)).await;
    let hold = bed.hold(&waits.hold).await;
    let beyond: Vec<&str> = hold
        .charges
        .iter()
        .filter(|charge| charge.admission.is_beyond())
        .map(|charge| charge.scope.as_str())
        .collect();
    assert_eq!(beyond, ["organization"]);
}

async fn money_of_a_user_is_counted_without_any_cap(bed: Bed) {
    let granted = bed.grant(leave(5 * CENT)).await;
    assert_eq!(bed.meter("kit", &user_reach()).await.now().reserved, 5 * CENT);
    bed.capture(&granted.id, 4 * CENT).await;
    let counted = bed.meter("kit", &user_reach()).await.now();
    assert_eq!((counted.reserved, counted.spent), (0, 4 * CENT));
    // A proposal that does not spend counts nowhere, whatever it is about.
    let mail = leave_for(Proposal { spends: false, ..proposal(Some(CENT)) });
    assert_eq!(bed.grant(mail).await.hold.charges, []);
}

async fn a_cap_that_comes_finds_what_was_spent_in_its_window(bed: Bed) {
    bed.spend(5 * CENT).await;
    bed.clock.forward_ms(DAY_MS);
    bed.spend(6 * CENT).await;
    bed.set_organization(budget(10)).await;
    let begun = bed.meter("organization", &organization_reach()).await;
    assert!(!begun.whole, "nothing is summed up before anybody asks");
    bed.set_project(budget(9)).await;
    bed.set_kit(budget(8)).await;
    bed.set_user(budget(7)).await;
    for (scope, left) in [("user", 1), ("kit", 2), ("project", 3), ("organization", 4)] {
        let told = bed.refuse_with(leave(left * CENT + 1)).await;
        assert_eq!((&told["scope"], &told["spent_micro_usd"]), (&json!(scope), &json!(6 * CENT)));
    }
    bed.grant(leave(CENT)).await;
    for (scope, reach) in [
        ("organization", organization_reach()),
        ("project", project_reach()),
        ("user", user_reach()),
    ] {
        let counted = bed.meter(scope, &reach).await;
        assert_eq!((counted.now().spent, counted.now().reserved), (6 * CENT, CENT), "{scope}");
        assert!(counted.whole, "{scope}");
    }
}

async fn a_cap_that_goes_and_comes_again_has_forgotten_nothing(bed: Bed) {
    bed.set_organization(budget(10)).await;
    bed.spend(4 * CENT).await;
    let held = bed.grant(leave(CENT)).await;
    bed.set_organization(json!({ "budget": null })).await;
    bed.spend(3 * CENT).await;
    bed.set_organization(budget(10)).await;
    assert_eq!(bed.refuse(leave(2 * CENT + 1)).await, "budget_exceeded");
    bed.grant(leave(CENT)).await;
    bed.void(&held.id).await;
    bed.grant(leave(2 * CENT)).await;
    // By another period it is the same money.
    let month = json!({ "budget": { "cap_cents": 10, "period": "month", "hard": true } });
    bed.set_organization(month).await;
    let told = bed.refuse_with(leave(1)).await;
    assert_eq!(told["spent_micro_usd"], 7 * CENT);
    assert_eq!(told["reserved_micro_usd"], 3 * CENT);
}

async fn a_hold_from_before_a_first_budget_counts_in_it(bed: Bed) {
    let early = bed.grant(leave(3 * CENT)).await;
    let late = bed.grant(leave(3 * CENT)).await;
    let gone = bed.grant(leave(3 * CENT)).await;
    bed.set_organization(budget(10)).await;
    bed.capture(&early.id, 3 * CENT).await;
    assert_eq!(bed.refuse(leave(7 * CENT + 1)).await, "budget_exceeded");
    bed.grant(leave(2 * CENT)).await;
    // The meter counts by now, and hears of what was held before it did.
    bed.capture(&late.id, 3 * CENT).await;
    bed.void(&gone.id).await;
    assert_eq!(bed.refuse(leave(2 * CENT + 1)).await, "budget_exceeded");
    bed.grant(leave(2 * CENT)).await;
    let counted = bed.meter("organization", &organization_reach()).await.now();
    assert_eq!((counted.spent, counted.reserved), (6 * CENT, 4 * CENT));
}

async fn a_hold_of_an_earlier_window_counts_in_a_cap_that_has_come_or_changed_since(bed: Bed) {
    let first = bed.grant(leave(3 * CENT)).await;
    let second = bed.grant(leave(2 * CENT)).await;
    bed.clock.forward_ms(DAY_MS);
    bed.set_organization(budget(10)).await;
    // Captured before the cap is used: its sum is not made yet.
    bed.capture(&first.id, 3 * CENT).await;
    let told = bed.refuse_with(leave(7 * CENT + 1)).await;
    assert_eq!(told["spent_micro_usd"], 3 * CENT);
    let third = bed.grant(leave(CENT)).await;
    bed.set_organization(json!({ "budget": { "cap_cents": 10, "period": "month" } })).await;
    bed.capture(&second.id, 2 * CENT).await;
    bed.capture(&third.id, CENT).await;
    assert_eq!(bed.refuse_with(leave(4 * CENT + 1)).await["spent_micro_usd"], 6 * CENT);
    bed.grant(leave(4 * CENT)).await;
}

/// So many records of one micro-US-dollar each.
async fn put_records(bed: &Bed, count: u32) {
    let record = |n: u32| {
        let key = Key::new(&user_reach(), &spend_space(), format!("{START} shop.buy part-{n:05}"));
        let found = vec![("found".to_owned(), format!("{} {START}", id(1)))];
        // Each third one is of a project that was removed since.
        let project = if n.is_multiple_of(3) { id(7) } else { id(2) };
        let body = json!({ "spent_micro_usd": 1, "project": project });
        (key, Draft { index: found, ..self::body(&body) })
    };
    for page in 0..count / 500 {
        put(bed, (page * 500..(page + 1) * 500).map(record)).await;
    }
}

async fn spending_is_summed_up_however_many_records_there_are(bed: Bed) {
    put_records(&bed, 1_500).await;
    bed.set_organization(budget(1)).await;
    bed.set_project(budget(1)).await;
    bed.grant(leave(1)).await;
    let spent = async |scope: &str, reach: &Reach| bed.meter(scope, reach).await.now().spent;
    assert_eq!(spent("organization", &organization_reach()).await, 1_500);
    assert_eq!(spent("project", &project_reach()).await, 1_000);
    assert_eq!(spent("kit", &user_reach()).await, 1_500);
}

async fn a_sum_that_outlasts_who_asks_for_it_is_made_once_and_kept(mut bed: Bed) {
    put_records(&bed, 1_000).await;
    bed.clock.forward_ms(3 * 60 * 60 * 1_000);
    let mut held = Vec::new();
    for _ in 0..20 {
        held.push(bed.grant(leave(7)).await.id);
    }
    bed.set_organization(json!({ "budget": { "cap_cents": 100, "period": "month" } })).await;
    let governance = Arc::get_mut(&mut bed.governance).expect("nobody else has it");
    governance.sums = Sums::new(0, Duration::ZERO);
    assert_eq!(bed.refuse(leave(1)).await, "overloaded");
    let granted = async {
        while ask_of(&bed.governance, None, leave(1)).await.is_err() {
            // Holds from before are captured meanwhile.
            if let Some(id) = held.pop() {
                bed.capture(&id, 7).await;
            }
            tokio::task::yield_now().await;
        }
        held.len() as i64
    };
    let granted = tokio::time::timeout(Duration::from_secs(60), granted).await;
    let left = granted.expect("nobody is let through");
    let counted = bed.meter("organization", &organization_reach()).await.now();
    assert_eq!((counted.spent, counted.reserved), (1_000 + (20 - left) * 7, 1));
}

async fn of_two_hosts_that_sum_up_at_once_neither_refuses(mut bed: Bed) {
    put_records(&bed, 500).await;
    // One has a task make each sum, and the other one makes it as it is asked.
    let governance = Arc::get_mut(&mut bed.governance).expect("nobody else has it");
    governance.sums = Sums::new(0, Duration::from_secs(60));
    let hosts = [bed.replica().await, bed.governance.clone()];
    for _ in 0..5 {
        bed.set_organization(json!({ "budget": null })).await;
        bed.set_organization(budget(100)).await;
        let asked = hosts.iter().cycle().take(8).map(|host| ask_of(host, None, leave(1)));
        for granted in join_all(asked).await {
            granted.unwrap();
        }
    }
    let counted = bed.meter("organization", &organization_reach()).await.now();
    assert_eq!(counted.reserved, 40);
}

async fn a_sum_of_an_organization_outlasts_changes_of_its_users(mut bed: Bed) {
    put_records(&bed, 2_000).await;
    bed.set_organization(budget(1)).await;
    bed.set_project(budget(1)).await;
    let governance = Arc::get_mut(&mut bed.governance).expect("nobody else has it");
    governance.sums = Sums::new(0, Duration::ZERO);
    let granted = async {
        let mut changes = 0;
        while ask_of(&bed.governance, None, leave(1)).await.is_err() {
            changes += 1;
            bed.set_user(json!({ "name": format!("changed {changes} times") })).await;
        }
    };
    let granted = tokio::time::timeout(Duration::from_secs(60), granted).await;
    granted.expect("nobody is let through");
    let counted = bed.meter("organization", &organization_reach()).await.now();
    assert_eq!((counted.spent, counted.reserved), (2_000, 1));
    let counted = bed.meter("project", &project_reach()).await.now();
    assert_eq!((counted.spent, counted.reserved), (1_333, 1), "a third is another project's");
}

async fn a_cap_that_comes_beside_a_stream_of_captures_counts_all_of_them(mut bed: Bed) {
    put_records(&bed, 3_000).await;
    let mut held = Vec::new();
    for _ in 0..200 {
        held.push(bed.grant(leave(7)).await.id);
    }
    bed.set_organization(budget(100)).await;
    bed.set_project(budget(100)).await;
    let governance = Arc::get_mut(&mut bed.governance).expect("nobody else has it");
    governance.sums = Sums::new(0, Duration::ZERO);
    let captured = async {
        for id in &held {
            bed.capture(id, 7).await;
        }
    };
    let granted = async {
        while ask_of(&bed.governance, None, leave(1)).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    let both = async { tokio::join!(captured, granted) };
    tokio::time::timeout(Duration::from_secs(60), both).await.expect("nobody is let through");
    let counted = bed.meter("organization", &organization_reach()).await.now();
    assert_eq!((counted.spent, counted.reserved), (3_000 + 200 * 7, 1));
    let counted = bed.meter("project", &project_reach()).await.now();
    assert_eq!((counted.spent, counted.reserved), (2_000 + 200 * 7, 1));
}

async fn a_window_that_ends_amid_a_sum_leaves_nothing_to_the_next(mut bed: Bed) {
    put_records(&bed, 2_000).await;
    let held = bed.grant(leave(7)).await;
    bed.set_organization(json!({ "budget": { "cap_cents": 100, "period": "day" } })).await;
    let governance = Arc::get_mut(&mut bed.governance).expect("nobody else has it");
    governance.sums = Sums::new(0, Duration::ZERO);
    assert_eq!(bed.refuse(leave(1)).await, "overloaded");
    bed.clock.forward_ms(DAY_MS);
    bed.capture(&held.id, 7).await;
    let granted = async {
        while ask_of(&bed.governance, None, leave(1)).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    let granted = tokio::time::timeout(Duration::from_secs(60), granted).await;
    granted.expect("nobody is let through");
    let counted = bed.meter("organization", &organization_reach()).await.now();
    assert_eq!((counted.spent, counted.reserved), (7, 1));
}

async fn a_scope_that_a_provider_overspent_admits_nothing_until_it_is_thawed(bed: Bed) {
    bed.insert(&user_record(5)).await;
    bed.set_organization(budget(100)).await;
    let granted = bed.grant(leave(CENT)).await;
    bed.capture_signed(&granted.id, 9 * CENT).await;
    assert_eq!(bed.refuse(leave(1)).await, "scope_frozen");
    // One user's excess stops neither another user nor the organization.
    bed.grant(leave_of(5, 1)).await;
    let mut txn = bed.begin();
    caps::thaw(&mut txn, &user_reach()).await.unwrap();
    txn.commit().await.unwrap();
    bed.grant(leave(1)).await;
    let counted = bed.meter("kit", &user_reach()).await;
    assert_eq!(counted.now().spent, 9 * CENT, "nothing is forgotten");
}

async fn a_project_that_a_provider_overspent_is_thawed_too(bed: Bed) {
    bed.set_project(budget(100)).await;
    let scope = proof(principal(Role::Developer)).scope();
    let of_project = || Leave { scope: scope.clone(), ..leave(CENT) };
    let granted = bed.grant(of_project()).await;
    bed.capture_signed(&granted.id, 9 * CENT).await;
    assert_eq!(bed.refuse(of_project()).await, "scope_frozen");
    let mut txn = bed.begin();
    caps::thaw(&mut txn, &project_reach()).await.unwrap();
    txn.commit().await.unwrap();
    bed.grant(of_project()).await;
}

async fn a_user_with_many_meters_is_thawed_whole(bed: Bed) {
    let meter = |n: u32| {
        let key = Key::new(&user_reach(), &meters_space(), format!("shop.card:{n:05}"));
        (key, body(&json!(Meter::new(Slot::without_cap(), 0))))
    };
    for page in 0..3 {
        put(&bed, (page * 500..(page + 1) * 500).map(meter)).await;
    }
    let granted = bed.grant(leave(CENT)).await;
    bed.capture_signed(&granted.id, 2 * CENT).await;
    assert_eq!(bed.refuse(leave(1)).await, "scope_frozen");
    let mut txn = bed.begin();
    caps::thaw(&mut txn, &user_reach()).await.unwrap();
    assert_eq!(txn.unit().writes.len(), 1, "the others are as they were");
    txn.commit().await.unwrap();
    bed.grant(leave(1)).await;
}

/// Sets a cap of the primitive's own, for a card.
async fn cap_card(bed: &Bed, micro_usd: i64, period: &str, zone: &str) {
    let key = Key::new(&user_reach(), &caps_space(), own_scope("shop", "card", "c1"));
    let cap = json!({ "cap_micro_usd": micro_usd, "period": period, "time_zone": zone });
    put(bed, [(key, body(&cap))]).await;
}

/// Leave for so much by that card.
fn by_card(amount: i64) -> Leave {
    by("c1", amount)
}

/// Leave for so much by a card.
fn by(card: &str, amount: i64) -> Leave {
    let scopes = vec![("card".to_owned(), card.to_owned())];
    leave_for(Proposal { scopes, ..proposal(Some(amount)) })
}

/// So much is spent by a card.
async fn spend_by(bed: &Bed, card: &str, amount: i64) {
    let granted = bed.grant(by(card, amount)).await;
    bed.capture(&granted.id, amount).await;
}

async fn a_primitive_has_caps_of_its_own(bed: Bed) {
    cap_card(&bed, 100, "day", "").await;
    bed.grant(by_card(60)).await;
    let told = bed.refuse_with(by_card(41)).await;
    assert_eq!((&told["scope"], &told["reserved_micro_usd"]), (&json!("card"), &json!(60)));
    bed.grant(leave(41)).await;
    bed.grant(by_card(40)).await;
    cap_card(&bed, 130, "day", "Pacific/Kiritimati").await;
    // Held is held, by whatever calendar.
    assert_eq!(bed.refuse(by_card(31)).await, "budget_exceeded");
    bed.grant(by_card(30)).await;
}

async fn a_cap_of_a_primitives_own_begins_with_what_its_scope_has_spent_and_holds(bed: Bed) {
    spend_by(&bed, "c1", 50).await;
    let held = bed.grant(by_card(30)).await;
    // The spending of other cards is theirs, whatever their names.
    for other in ["c1 x", "c10", "c2"] {
        spend_by(&bed, other, 500).await;
    }
    cap_card(&bed, 100, "day", "").await;
    let told = bed.refuse_with(by_card(21)).await;
    assert_eq!(
        (&told["scope"], &told["spent_micro_usd"], &told["reserved_micro_usd"]),
        (&json!("card"), &json!(50), &json!(30))
    );
    bed.capture(&held.id, 30).await;
    assert_eq!(bed.refuse(by_card(21)).await, "budget_exceeded");
    bed.grant(by_card(20)).await;
    let counted = bed.meter(&own_scope("shop", "card", "c1"), &user_reach()).await.now();
    assert_eq!((counted.spent, counted.reserved), (80, 20));
}

async fn another_period_of_a_primitives_own_cap_forgets_nothing(bed: Bed) {
    spend_by(&bed, "c1", 40).await;
    // The first moment of the next day is one of that day.
    bed.clock.forward_ms(16 * 3_600_000);
    spend_by(&bed, "c1", 50).await;
    for (period, spent) in [("day", 50), ("month", 90), ("day", 50), ("total", 90)] {
        cap_card(&bed, spent + 10, period, "").await;
        let told = bed.refuse_with(by_card(11)).await;
        assert_eq!(told["spent_micro_usd"], spent, "{period}");
        let held = bed.grant(by_card(10)).await;
        bed.void(&held.id).await;
    }
}

async fn what_a_removed_user_spent_stays_in_the_wider_scopes(bed: Bed) {
    bed.insert(&user_record(5)).await;
    let held = bed.grant(leave(2 * CENT)).await;
    bed.spend(4 * CENT).await;
    bed.remove(&charter_tenancy::records::Record::key(&user_record(3))).await;
    bed.capture(&held.id, 2 * CENT).await;
    bed.set_organization(budget(10)).await;
    bed.set_project(budget(8)).await;
    assert_eq!(bed.refuse_with(leave_of(5, 2 * CENT + 1)).await["scope"], "project");
    bed.grant(leave_of(5, 2 * CENT)).await;
    // Leave that outlives its user, as the end of a card does, counts there too.
    let host = Principal::of(Actor::system("job"));
    let scope = proof(host).user(user(), Subject::Path).scope();
    assert_eq!(bed.refuse(Leave { scope, ..leave(1) }).await, "budget_exceeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn gauges_stand_outermost_first_and_know_what_is_left() {
    let bed = Bed::sqlite().await;
    bed.set_organization(budget(40)).await;
    bed.set_kit(budget(20)).await;
    bed.set_user(budget(10)).await;
    cap_card(&bed, 5 * CENT, "day", "").await;
    bed.spend(CENT).await;
    let own = [("card".to_owned(), "c1".to_owned()), ("card".to_owned(), "c2".to_owned())];
    let txn = bed.begin();
    let gauges = case(&bed).await.gauges(&bed.governance, &txn, "shop", &own, START).await.unwrap();
    let stand: Vec<(&str, Option<i64>, i64)> = gauges
        .iter()
        .map(|gauge| (gauge.cap.scope.as_str(), gauge.cap.most, gauge.count.spent))
        .collect();
    let wanted = [
        ("organization", Some(40 * CENT), CENT),
        ("kit", Some(20 * CENT), CENT),
        ("user", Some(10 * CENT), CENT),
        ("card", Some(5 * CENT), 0),
        ("card", None, 0),
    ];
    assert_eq!(stand, wanted, "a card without a cap is only counted");
    assert!(gauges[2].admits(9 * CENT) && !gauges[2].admits(9 * CENT + 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_narrower_of_two_budgets_has_the_lower_cap_and_of_two_alike_is_hard() {
    let bed = Bed::sqlite().await;
    let none = || json!({ "budget": null });
    for (kit, own, narrower) in [
        (none(), none(), None),
        (budget(20), none(), Some(("kit", 20, true))),
        (none(), budget(10), Some(("user", 10, true))),
        (none(), soft_budget(10), Some(("user", 10, false))),
        (budget(20), budget(10), Some(("user", 10, true))),
        (budget(10), budget(20), Some(("kit", 10, true))),
        (budget(20), soft_budget(10), Some(("user", 10, false))),
        (budget(10), soft_budget(10), Some(("kit", 10, true))),
        (soft_budget(10), budget(10), Some(("user", 10, true))),
        (budget(10), budget(10), Some(("user", 10, true))),
    ] {
        let told = format!("{kit} {own}");
        bed.set_kit(kit).await;
        bed.set_user(own).await;
        let case = case(&bed).await;
        let found = caps::narrower_budget(case.kit.as_deref(), case.user.as_deref());
        let found = found.map(|(scope, budget)| (scope, budget.cap_cents, budget.hard));
        assert_eq!(found, narrower, "{told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_case_is_the_user_with_its_kit_project_and_organization() {
    let bed = Bed::sqlite().await;
    let case = case(&bed).await;
    let subject = case.subject(("key".into(), "k".into()));
    assert_eq!(subject.organization, id(1));
    assert_eq!((subject.project, subject.user), (Some(id(2)), Some(id(3))));
    assert_eq!(subject.kit, Some(id(4)), "the project's default");
    assert_eq!(case.guards().len(), 6, "organization and user twice, project, kit");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_organization_whose_time_zone_cannot_be_read_gets_no_leave() {
    let bed = Bed::sqlite().await;
    bed.set_organization(json!({ "time_zone": "Nowhere/At_All" })).await;
    assert_eq!(bed.refuse(leave(1)).await, "internal_error");
}

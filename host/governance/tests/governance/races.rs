//! Many at once, and what others change meanwhile: a cap is never overshot, and leave is taken
//! under the very rules that decided.

use charter_engine::{Leave, Ungranted};
use charter_kernel::governance::hold::{Word, meters_space};
use charter_kernel::unit::{Draft, Guard, Key, Unit, Write};
use charter_store::{CommitError, Store};
use charter_tenancy::records::organization::Organization;
use charter_tenancy::records::user::User;
use futures::future::join_all;
use proptest::prelude::*;
use serde_json::json;

use crate::bed::{Bed, ask_of, on_both, reason};
use crate::words::{
    CENT, asking, budget, client, given, id, leave, organization, organization_reach, policy,
    project, user, user_reach,
};

on_both!(
    of_many_at_once_exactly_those_are_admitted_that_fit,
    the_last_unit_goes_to_one,
    a_soft_cap_has_as_many_wait_as_fit_once_more,
    a_grant_is_used_as_often_as_it_says,
    leave_is_taken_by_the_rules_of_its_commit,
    a_request_whose_admission_is_over_begins_from_the_top,
    leave_can_be_taken_with_the_commit_of_its_request,
    a_sum_that_others_have_spent_beyond_is_made_anew,
);

/// The answers to so many equal requests at once, by two hosts.
async fn at_once(bed: &Bed, count: usize, leave: &Leave) -> Vec<Result<String, String>> {
    let hosts = [bed.governance.clone(), bed.replica().await];
    let asked = hosts.iter().cycle().take(count).map(|host| async move {
        // A caller who is told that there is too much to do at the moment asks again.
        loop {
            match ask_of(host, None, leave.clone()).await {
                Ok(granted) => return Ok(granted.id),
                Err(Ungranted::Refused(failure)) if failure.code == "overloaded" => {}
                refused => return Err(reason(refused)),
            }
        }
    });
    join_all(asked).await
}

async fn of_many_at_once_exactly_those_are_admitted_that_fit(bed: Bed) {
    bed.set_organization(budget(7)).await;
    let answers = at_once(&bed, 40, &leave(CENT)).await;
    let admitted = answers.iter().filter(|answer| answer.is_ok()).count();
    assert_eq!(admitted, 7);
    let refused = answers.iter().filter_map(|answer| answer.as_ref().err());
    assert!(refused.clone().all(|told| told == "budget_exceeded"));
    let counted = bed.meter("organization", &organization_reach()).await.now();
    assert_eq!((counted.reserved, counted.spent), (7 * CENT, 0));
    // A row for each, whichever way it went.
    assert_eq!(bed.audit().await.len(), 40);
}

async fn the_last_unit_goes_to_one(bed: Bed) {
    bed.set_user(budget(3)).await;
    bed.spend(2 * CENT).await;
    for _ in 0..3 {
        let answers = at_once(&bed, 8, &leave(CENT)).await;
        let mut admitted = answers.into_iter().filter_map(Result::ok);
        let only = admitted.next().unwrap();
        assert_eq!(admitted.next(), None);
        bed.void(&only).await;
    }
}

async fn a_soft_cap_has_as_many_wait_as_fit_once_more(bed: Bed) {
    bed.set_organization(crate::words::soft_budget(3)).await;
    let asked = join_all((0..8).map(|_| bed.ask_from(Some(client()), leave(CENT)))).await;
    let granted = asked.iter().filter(|answer| answer.is_ok()).count();
    let waits =
        asked.iter().filter(|answer| matches!(answer, Err(Ungranted::Pending { .. }))).count();
    assert_eq!((granted, waits), (3, 3), "and two are refused");
    let counted = bed.meter("organization", &organization_reach()).await.now();
    assert_eq!((counted.reserved, counted.over_reserved), (3 * CENT, 3 * CENT));
}

async fn a_grant_is_used_as_often_as_it_says(bed: Bed) {
    bed.set_organization(asking(1)).await;
    bed.insert(&given(&json!({ "max_uses": 3 }))).await;
    let answers = at_once(&bed, 12, &leave(CENT)).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 3);
    let refused = answers.iter().filter_map(|answer| answer.as_ref().err());
    assert!(refused.clone().all(|told| told == "approval_required"), "{answers:?}");
}

async fn leave_is_taken_by_the_rules_of_its_commit(bed: Bed) {
    for of in ["organization", "project", "kit", "user"] {
        let (_, whole) = defer(&bed, 1).await;
        match of {
            "organization" => bed.set_organization(policy(&json!({}))).await,
            "project" => bed.set_project(budget(1)).await,
            "kit" => bed.set_kit(budget(1)).await,
            _ => bed.set_user(budget(1)).await,
        }
        let refused = bed.commit(whole).await;
        assert!(refused.is_err_and(|error| error.is_conflict()), "{of}");
        bed.set_organization(json!({ "policy": { "rules": [] } })).await;
    }
    let (_, whole) = defer(&bed, 1).await;
    bed.set_user(json!({ "revoked": { "at": bed.now(), "reason": null } })).await;
    let refused = bed.commit(whole).await;
    assert!(refused.is_err_and(|error| error.refusal().is_some()), "no other attempt helps");
    assert!(bed.audit().await.is_empty(), "what was not taken was not told");
}

async fn a_request_whose_admission_is_over_begins_from_the_top(bed: Bed) {
    let organization = Organization::address(&organization());
    let user = User::address(&project(), &user());
    for key in [organization, user] {
        let stale = vec![Guard::Unchanged { key, version: 7 }];
        let refused = bed.ask(Leave { guards: stale, ..leave(5) }).await;
        assert!(
            matches!(&refused, Err(Ungranted::Uncommitted(error)) if error.is_conflict()),
            "{refused:?}"
        );
    }
    assert!(bed.audit().await.is_empty(), "it was not decided");
}

/// Leave that is taken with the commit of its request.
async fn defer(bed: &Bed, amount: i64) -> (Unit, Unit) {
    let granted = bed.grant(Leave { defers: true, ..leave(amount) }).await;
    let before = granted.untaken.unwrap().unit;
    let mut whole = before.clone();
    whole.writes.extend(granted.hold.take(&granted.id));
    (before, whole)
}

async fn leave_can_be_taken_with_the_commit_of_its_request(bed: Bed) {
    let (before, whole) = defer(&bed, CENT).await;
    assert_eq!(before.facts.len(), 1, "its row is told with it");
    assert!(bed.audit().await.is_empty(), "nothing is done yet");
    bed.commit(whole).await.unwrap();
    assert_eq!(bed.audit().await.len(), 1);
}

async fn a_sum_that_others_have_spent_beyond_is_made_anew(bed: Bed) {
    let held = bed.grant(leave(6 * CENT)).await;
    bed.set_organization(budget(10)).await;
    let (_, whole) = defer(&bed, 10 * CENT).await;
    // Nothing was spent when the sum was made.
    bed.capture(&held.id, 6 * CENT).await;
    let refused = bed.commit(whole).await;
    assert!(refused.is_err_and(|error| error.is_conflict()));
    assert_eq!(bed.refuse(leave(4 * CENT + 1)).await, "budget_exceeded");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cap_of_a_primitives_own_that_came_or_was_lowered_meanwhile_is_asked_anew() {
    for (before, lifts) in [(None, false), (Some(100), false), (Some(100), true)] {
        lower_own_cap_meanwhile(before, lifts).await;
    }
}

/// Leave is given under a cap of the primitive's own, or none, that is lower before it is taken, or
/// is lifted and set anew.
async fn lower_own_cap_meanwhile(before: Option<i64>, lifts: bool) {
    use charter_engine::leave::{caps_space, own_scope};
    let bed = Bed::sqlite().await;
    let key = Key::new(&user_reach(), &caps_space(), own_scope("shop", "card", "c1"));
    let cap = |most: i64| {
        let body = json!({ "cap_micro_usd": most, "period": "day", "time_zone": "" }).to_string();
        let write = Write::Put { key: key.clone(), draft: Draft { body, ..Draft::default() } };
        Unit { writes: vec![write], ..Unit::default() }
    };
    if let Some(most) = before {
        bed.commit(cap(most)).await.unwrap();
    }
    let scopes = vec![("card".to_owned(), "c1".to_owned())];
    let proposal = charter_engine::Proposal { scopes, ..crate::words::proposal(Some(60)) };
    let by_card = Leave { proposal, defers: true, ..leave(60) };
    let granted = bed.grant(by_card).await;
    if lifts {
        let write = Write::Remove { key: key.clone(), expected: None };
        bed.commit(Unit { writes: vec![write], ..Unit::default() }).await.unwrap();
        bed.clock.forward_ms(1);
    }
    bed.commit(cap(50)).await.unwrap();
    let mut unit = granted.untaken.unwrap().unit;
    unit.writes.extend(granted.hold.take(&granted.id));
    let refused = bed.commit(unit).await;
    assert!(refused.is_err_and(|error| error.is_conflict()));
}

/// One thing that happens to a cap.
#[derive(Clone, Debug)]
enum Happens {
    /// Leave is asked for so much.
    Ask(i64),
    /// The nth hold ends, so many hundredths of it spent.
    Capture(usize, i64),
    /// The nth hold ends, nothing spent.
    Void(usize),
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        3 => (0..60_i64).prop_map(Happens::Ask),
        1 => (0..8_usize, 0..=100_i64).prop_map(|(n, part)| Happens::Capture(n, part)),
        1 => (0..8_usize).prop_map(Happens::Void),
    ]
}

/// Everything that happens, beside sums that are as simple as can be.
async fn follow(all: Vec<Happens>) {
    const CAP: i64 = CENT;
    let bed = Bed::sqlite().await;
    bed.set_organization(budget(1)).await;
    let (mut spent, mut open) = (0_i64, Vec::<(String, i64)>::new());
    for one in all {
        match one {
            Happens::Ask(part) => {
                let amount = part * CAP / 100;
                let held: i64 = open.iter().map(|(_, amount)| amount).sum();
                let asked = bed.ask(leave(amount)).await;
                assert_eq!(asked.is_ok(), spent + held + amount <= CAP, "{spent} {held} {amount}");
                open.extend(asked.ok().map(|granted| (granted.id, amount)));
            }
            Happens::Capture(n, part) if n < open.len() => {
                let (id, amount) = open.remove(n);
                let actual = amount * part / 100;
                let hold = bed.hold(&id).await;
                let capture = hold.admit_capture(actual, Word::Asker).unwrap();
                bed.step(hold.capture(&id, capture, bed.now())).await.unwrap();
                spent += actual;
            }
            Happens::Void(n) if n < open.len() => bed.void(&open.remove(n).0).await,
            _ => {}
        }
        let held: i64 = open.iter().map(|(_, amount)| amount).sum();
        let counted = bed.meter("organization", &organization_reach()).await.now();
        assert_eq!((counted.spent, counted.reserved), (spent, held));
    }
    let books = charter_governance::verify::verify(bed.store()).await.unwrap();
    assert_eq!(books.faults, Vec::<String>::new());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn a_cap_is_what_is_spent_and_held_whatever_happens(
        all in proptest::collection::vec(happens(), 1..24)
    ) {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        // The meter's row is there from the first time that leave is asked for.
        let all = std::iter::once(Happens::Ask(1)).chain(all).collect();
        runtime.block_on(follow(all));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_meter_that_cannot_be_read_admits_nothing() {
    let bed = Bed::sqlite().await;
    let key = Key::new(&user_reach(), &meters_space(), "kit");
    let draft = Draft { body: "{}".into(), ..Draft::default() };
    let unit = Unit { writes: vec![Write::Put { key, draft }], ..Unit::default() };
    bed.commit(unit).await.unwrap();
    assert_eq!(bed.refuse(leave(1)).await, "internal_error");
    assert!(bed.audit().await.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_that_takes_nothing_gives_no_leave() {
    let bed = Bed::sqlite().await;
    let store: &Store = bed.store();
    store.close().await;
    let asked = bed.ask(leave(1)).await;
    match asked {
        Err(Ungranted::Refused(failure)) => assert_eq!(failure.code, "overloaded"),
        Err(Ungranted::Uncommitted(error)) => {
            assert!(!matches!(error, CommitError::Rejected(_)), "{error:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_denial_whose_row_cannot_be_written_is_not_told() {
    let bed = Bed::bounded(4 * 1024 * 1024).await;
    bed.set_organization(policy(&json!({}))).await;
    assert_eq!(bed.refuse(leave(1)).await, "policy_denied");
    fill(&bed).await;
    // Rows that fit still are written, and their denials told.
    let mut told = 1;
    let refused = loop {
        match bed.refuse(leave(1)).await {
            denied if denied == "policy_denied" => told += 1,
            other => break other,
        }
        assert!(told < 1_000, "there is room still");
    };
    assert_eq!(refused, "overloaded");
    assert_eq!(bed.audit().await.len(), told, "each denial that was told has its row");
}

/// Writes until the database takes no more, in ever smaller pieces.
async fn fill(bed: &Bed) {
    let mut rows = 0..1_000;
    for size in [200_000, 20_000, 2_000] {
        loop {
            let row = rows.next().expect("the database never fills");
            let key = Key::new(&user_reach(), &meters_space(), format!("row-{row}"));
            let draft = Draft { body: format!("\"{}\"", "x".repeat(size)), ..Draft::default() };
            let writes = vec![Write::Insert { key, draft }];
            let unit = Unit { organization: id(1), writes, ..Unit::default() };
            if bed.store().commit_settling(unit).await.is_err() {
                break;
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_waits_for_many_people_is_not_let_through_by_a_race() {
    let bed = Bed::sqlite().await;
    bed.set_organization(asking(2)).await;
    let asked = join_all((0..6).map(|_| bed.ask_from(Some(client()), leave(1)))).await;
    assert!(asked.iter().all(|answer| matches!(answer, Err(Ungranted::Pending { .. }))));
    let ids: std::collections::BTreeSet<String> = asked
        .into_iter()
        .filter_map(|answer| match answer {
            Err(Ungranted::Pending { approval }) => Some(approval),
            _ => None,
        })
        .collect();
    assert_eq!(ids.len(), 6, "each has an approval of its own: {ids:?} {}", id(1));
}

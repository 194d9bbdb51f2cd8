//! Holds after leave was given: captured, cancelled, kept, in doubt, over by themselves; and what
//! each end leaves in the meters, the ledger and the spend records.

use charter_engine::{Leave, Proposal};
use charter_governance::caps;
use charter_kernel::governance::hold::{
    DOUBT, Hold, KEPT_MS, OPEN, OverCapture, Settler, State, Step, Word, entries_of, space,
    spend_space,
};
use charter_kernel::governance::settle::End;
use charter_kernel::ledger::Account;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Key, Take, Unit};
use charter_store::Query;
use serde_json::{Value, json};

use crate::bed::{Bed, on_both};
use crate::words::{
    CENT, budget, card, credit, fund, id, leave, organization_reach, payment, proposal,
    soft_budget, user_reach,
};

on_both!(
    what_is_captured_counts_and_the_rest_is_free_again,
    what_is_cancelled_was_never_spent,
    a_hold_ends_once,
    no_more_is_captured_than_the_action_bounds,
    a_provider_posts_what_has_happened,
    what_a_provider_reports_counts_whatever_rules_and_caps_say,
    money_moves_by_the_capture_and_not_before,
    a_hold_in_doubt_stays_reserved_until_somebody_says,
    one_later_request_settles_what_was_kept,
    who_stood_still_meanwhile_settles_nothing_once_more,
    who_stood_still_changes_nothing_of_what_others_have_taken_up_since,
    a_hold_falls_due_when_nobody_settles_it,
    captures_of_a_quarter_of_an_hour_are_one_record,
);

async fn standing(bed: &Bed) -> (i64, i64) {
    let count = bed.meter("organization", &organization_reach()).await.now();
    (count.spent, count.reserved)
}

async fn account(bed: &Bed, key: &Key) -> Account {
    serde_json::from_str(&bed.row(key).await.unwrap().body).unwrap()
}

async fn what_is_captured_counts_and_the_rest_is_free_again(bed: Bed) {
    bed.set_organization(budget(10)).await;
    let granted = bed.grant(leave(10 * CENT)).await;
    bed.clock.forward_ms(60_000);
    bed.capture(&granted.id, 4 * CENT).await;
    assert_eq!(standing(&bed).await, (4 * CENT, 0));
    let hold = bed.hold(&granted.id).await;
    assert_eq!((hold.state, hold.actual), (State::Captured, Some(4 * CENT)));
    assert_eq!((hold.amount, hold.ended_at), (Some(10 * CENT), Some(bed.now())));
    bed.grant(leave(6 * CENT)).await;
    assert_eq!(bed.refuse(leave(1)).await, "budget_exceeded");
}

async fn what_is_cancelled_was_never_spent(bed: Bed) {
    bed.set_organization(budget(10)).await;
    let granted = bed.grant(leave(10 * CENT)).await;
    bed.void(&granted.id).await;
    assert_eq!(standing(&bed).await, (0, 0));
    let hold = bed.hold(&granted.id).await;
    assert_eq!((hold.state, hold.actual), (State::Voided, None));
    let records = Query::all(&user_reach(), &spend_space());
    assert_eq!(bed.store().count(&records).await.unwrap(), 0);
    bed.grant(leave(10 * CENT)).await;
}

async fn a_hold_ends_once(bed: Bed) {
    bed.set_organization(budget(10)).await;
    let granted = bed.grant(leave(4 * CENT)).await;
    let held = bed.hold(&granted.id).await;
    let capture = held.admit_capture(4 * CENT, Word::Asker).unwrap();
    let ends = || {
        let captured = held.capture(&granted.id, capture, bed.now());
        [captured, held.void(&granted.id, bed.now()), held.doubt(&granted.id)]
    };
    let [first, second, third] = ends();
    let at_once = futures::join!(bed.step(first), bed.step(second), bed.step(third));
    let done = [at_once.0, at_once.1, at_once.2];
    assert_eq!(done.iter().filter(|step| step.is_ok()).count(), 1, "{done:?}");
    let stands = standing(&bed).await;
    for step in ends() {
        let refused = bed.step(step).await.unwrap_err();
        assert!(refused.refusal().is_some(), "no other attempt helps: {refused:?}");
    }
    assert_eq!(standing(&bed).await, stands);
}

async fn no_more_is_captured_than_the_action_bounds(bed: Bed) {
    bed.set_organization(budget(10)).await;
    let granted = bed.grant(leave(CENT)).await;
    let held = bed.hold(&granted.id).await;
    assert_eq!(
        held.admit_capture(CENT + 1, Word::Asker),
        Err(OverCapture { actual: CENT + 1, left: CENT })
    );
    // Tokens that were estimated may be twice as many.
    let estimated = Proposal { capturable: 2 * CENT, ..proposal(Some(CENT)) };
    let granted = bed.grant(crate::words::leave_for(estimated)).await;
    let held = bed.hold(&granted.id).await;
    assert_eq!(
        held.admit_capture(2 * CENT + 1, Word::Asker),
        Err(OverCapture { actual: 2 * CENT + 1, left: 2 * CENT })
    );
    bed.capture(&granted.id, 2 * CENT).await;
    assert_eq!(standing(&bed).await, (2 * CENT, CENT), "what was spent was spent");
    bed.grant(leave(7 * CENT)).await;
    assert_eq!(bed.refuse(leave(1)).await, "budget_exceeded");
}

async fn a_provider_posts_what_has_happened(bed: Bed) {
    fund(&bed, 5 * CENT).await;
    bed.set_organization(budget(2)).await;
    let granted = bed.grant(payment(CENT)).await;
    bed.capture_signed(&granted.id, 9 * CENT).await;
    assert_eq!(standing(&bed).await, (9 * CENT, 0));
    assert_eq!(account(&bed, &credit()).await.balance().posted, -4 * CENT);
    assert_eq!(account(&bed, &card()).await.balance().posted, 9 * CENT);
    let books = charter_governance::verify::verify(bed.store()).await.unwrap();
    assert_eq!(books.faults, Vec::<String>::new());
}

async fn what_a_provider_reports_counts_whatever_rules_and_caps_say(bed: Bed) {
    fund(&bed, 5 * CENT).await;
    bed.set_organization(json!({
        "budget": { "cap_cents": 2, "period": "day" },
        "policy": { "rules": [{ "id": "never", "effect": "deny", "actions": ["shop.buy"] }] },
    }))
    .await;
    assert_eq!(bed.refuse(payment(CENT)).await, "policy_denied");
    let report = || {
        let asked = payment(4 * CENT);
        Leave { proposal: Proposal { reported: true, capturable: 0, ..asked.proposal }, ..asked }
    };
    for happened in 1..=2 {
        // The last one on a day that nothing else has begun.
        bed.clock.forward_ms(86_400_000 * (happened - 1));
        let granted = bed.grant(report()).await;
        assert_eq!(standing(&bed).await.1, 0, "nothing is set aside");
        bed.capture_signed(&granted.id, 4 * CENT).await;
        assert_eq!(standing(&bed).await, (4 * CENT, 0), "each in its own day");
        assert!(bed.meter("kit", &user_reach()).await.frozen);
        assert_eq!(account(&bed, &credit()).await.balance().posted, (5 - 4 * happened) * CENT);
    }
    let told = bed.audit().await.into_iter().map(|(row, _)| row);
    let told: Vec<_> = told.map(|row| (row["decision"].clone(), row["reason"].clone())).collect();
    let reported = (json!("allowed"), json!("provider_reported"));
    assert_eq!(told, [(json!("denied"), json!("policy_denied")), reported.clone(), reported]);
    let books = charter_governance::verify::verify(bed.store()).await.unwrap();
    assert_eq!(books.faults, Vec::<String>::new());
}

async fn money_moves_by_the_capture_and_not_before(bed: Bed) {
    fund(&bed, 10 * CENT).await;
    let taken = bed.grant(payment(6 * CENT)).await;
    let other = bed.grant(payment(3 * CENT)).await;
    let held = account(&bed, &credit()).await.balance();
    assert_eq!((held.posted, held.pending_out, held.available), (10 * CENT, 9 * CENT, CENT));
    assert_eq!(account(&bed, &card()).await.balance().pending_in, 9 * CENT);
    bed.capture(&taken.id, 4 * CENT).await;
    bed.void(&other.id).await;
    let after = account(&bed, &credit()).await.balance();
    assert_eq!((after.posted, after.pending_out), (6 * CENT, 0));
    let of_card = account(&bed, &card()).await.balance();
    assert_eq!((of_card.posted, of_card.pending_in), (4 * CENT, 0));
    let log = bed.begin().log_read(&entries_of(&card()), 0, 10).await.unwrap();
    let entry: Value = serde_json::from_str(&log.entries[0].payload).unwrap();
    assert_eq!((log.entries.len(), log.entries[0].name.as_str()), (1, "credit"));
    assert_eq!((&entry["transfer"], &entry["memo"]), (&json!(taken.id), &json!("A book")));
    assert_eq!(entry["counter_account"], "credit");
}

async fn a_hold_in_doubt_stays_reserved_until_somebody_says(bed: Bed) {
    bed.set_organization(budget(10)).await;
    for happened in [true, false] {
        let granted = bed.grant(leave(5 * CENT)).await;
        let held = bed.hold(&granted.id).await;
        bed.step(held.dispatch(&granted.id)).await.unwrap();
        // The host died: nobody knows what came of it.
        let dispatched = bed.hold(&granted.id).await;
        let end = End { answered: false, asked: false, reopened: false };
        bed.step(dispatched.settle(&granted.id, None, end, bed.now())).await.unwrap();
        assert_eq!(bed.hold(&granted.id).await.state, State::InDoubt);
        assert_eq!(standing(&bed).await.1, 5 * CENT);
        if happened {
            bed.capture(&granted.id, 5 * CENT).await;
        } else {
            bed.void(&granted.id).await;
        }
        assert_eq!(standing(&bed).await, (5 * CENT, 0));
    }
}

async fn one_later_request_settles_what_was_kept(bed: Bed) {
    let granted = bed.grant(leave(CENT)).await;
    let held = bed.hold(&granted.id).await;
    bed.step(held.keep(&granted.id, bed.now().plus_ms(86_400_000))).await.unwrap();
    let key = held.key(&granted.id);
    let kept = bed.hold(&granted.id).await;
    assert!(kept.kept);
    let version = bed.row(&key).await.unwrap().version;
    let by = |request: &str| Settler { request: request.into(), until: bed.now().plus_ms(1_000) };
    let first = kept.reopen(&granted.id, version, by("one"));
    let second = kept.reopen(&granted.id, version, by("other"));
    let (first, second) = futures::join!(bed.step(first), bed.step(second));
    assert!(first.is_ok() != second.is_ok(), "{first:?} {second:?}");
    let reopened = bed.hold(&granted.id).await;
    assert!(reopened.settler.is_some());
    // It did not settle it after all.
    bed.step(reopened.hand_back(&granted.id)).await.unwrap();
    let back = bed.hold(&granted.id).await;
    assert_eq!((back.state, back.kept, back.settler), (State::Held, true, None));
    bed.capture(&granted.id, CENT).await;
}

async fn who_stood_still_meanwhile_settles_nothing_once_more(bed: Bed) {
    bed.set_organization(budget(10)).await;
    let granted = bed.grant(leave(5 * CENT)).await;
    let (id, until) = (granted.id.as_str(), bed.now().plus_ms(86_400_000));
    bed.step(bed.hold(id).await.keep(id, until)).await.unwrap();
    let kept = bed.hold(id).await;
    let key = kept.key(id);
    let version = async || bed.row(&key).await.unwrap().version;
    let by = |request: &str| Settler { request: request.into(), until: bed.now().plus_ms(1_000) };
    // A worker has read it, and a request takes it up.
    let read_in = version().await;
    bed.step(kept.reopen(id, read_in, by("one"))).await.unwrap();
    let first = bed.hold(id).await;
    // Both stand still. Once its time is over another takes it up, and captures a part.
    bed.clock.forward_ms(1_000);
    bed.step(first.reopen(id, version().await, by("other"))).await.unwrap();
    let second = bed.hold(id).await;
    let part = |of: &Hold, amount| of.admit_capture(amount, Word::Asker).unwrap();
    bed.step(second.capture_part(id, part(&second, CENT), until, bed.now())).await.unwrap();
    let late = [
        first.capture(id, part(&first, 2 * CENT), bed.now()),
        first.capture_part(id, part(&first, CENT), until, bed.now()),
        first.keep(id, until),
        first.dispatch(id),
        first.hand_back(id),
        first.void(id, bed.now()),
        kept.void(id, bed.now()).of_row(&key, read_in),
    ];
    for (n, step) in late.into_iter().enumerate() {
        assert!(bed.step(step).await.is_err(), "{n}");
    }
    assert_eq!(standing(&bed).await, (CENT, 4 * CENT));
    assert_eq!(bed.hold(id).await.actual, Some(CENT));
}

/// The steps by which a request that has taken up a hold leaves it open.
type Leaving = fn(&Hold, &str, Instant) -> Vec<Step>;

const LEAVINGS: [Leaving; 5] = [
    |hold, id, until| vec![hold.keep(id, until)],
    |hold, id, until| {
        let part = hold.admit_capture(CENT, Word::Provider).unwrap();
        vec![hold.capture_part(id, part, until, until)]
    },
    |hold, id, _| vec![hold.hand_back(id)],
    |hold, id, until| {
        let acted = hold.dispatch(id);
        let kept = acted.hold.keep(id, until);
        vec![acted, kept]
    },
    |hold, id, _| {
        let acted = hold.dispatch(id);
        let doubted = acted.hold.doubt(id);
        vec![acted, doubted]
    },
];

async fn who_stood_still_changes_nothing_of_what_others_have_taken_up_since(bed: Bed) {
    bed.set_organization(budget(10_000)).await;
    let until = bed.now().plus_ms(86_400_000);
    // Its own request had acted, or had only asked.
    let ways = (0..2).flat_map(|acts| {
        (0..5).flat_map(move |first| (0..5).map(move |then| (acts == 1, first, then)))
    });
    for (had_acted, first, then) in ways {
        let granted = bed.grant(leave(9 * CENT)).await;
        let id = granted.id.as_str();
        let key = bed.hold(id).await.key(id);
        if had_acted {
            bed.step(bed.hold(id).await.dispatch(id)).await.unwrap();
        }
        let mut stale = vec![bed.hold(id).await];
        let over = match had_acted {
            true => stale[0].doubt(id),
            false => stale[0].void(id, bed.now()),
        };
        bed.step(over).await.unwrap();
        for leaving in [first, then] {
            let (hold, version) = (bed.hold(id).await, bed.row(&key).await.unwrap().version);
            let settler = Settler { request: "later".into(), until: bed.now().plus_ms(1_000) };
            let taken = match hold.is_contradicted(Word::Provider) {
                true => hold.contradict(id, version, settler),
                false => hold.reopen(id, version, settler),
            };
            bed.step(taken).await.unwrap();
            let taken = bed.hold(id).await;
            for step in LEAVINGS[leaving](&taken, id, until) {
                bed.step(step).await.unwrap();
            }
            for stale in &stale {
                let part = |amount| stale.admit_capture(amount, Word::Provider).unwrap();
                for late in [
                    stale.capture(id, part(9 * CENT), bed.now()),
                    stale.capture_part(id, part(CENT), until, bed.now()),
                    stale.void(id, bed.now()),
                    stale.doubt(id),
                    stale.keep(id, until),
                    stale.dispatch(id),
                ] {
                    assert!(bed.step(late).await.is_err(), "{had_acted} {first} {then}");
                }
            }
            stale.push(taken);
        }
        let (hold, version) = (bed.hold(id).await, bed.row(&key).await.unwrap().version);
        bed.step(hold.void(id, bed.now()).of_row(&key, version)).await.unwrap();
        assert_eq!(standing(&bed).await.1, 0, "{had_acted} {first} {then}");
        // More than was held has happened, by the provider's word.
        let mut txn = bed.begin();
        caps::thaw(&mut txn, &user_reach()).await.unwrap();
        txn.commit().await.unwrap();
    }
}

/// The holds that are due of a kind.
async fn due(bed: &Bed, kind: &str) -> Vec<String> {
    let take = Take {
        reach: None,
        space: space(),
        group: charter_kernel::lease::group(&id(1), kind),
        until: bed.now().plus_ms(1),
        tokens: vec!["one".into(), "two".into()],
    };
    let taken = bed.begin().take(take).await.unwrap();
    taken.into_iter().map(|taken| taken.key.id).collect()
}

async fn a_hold_falls_due_when_nobody_settles_it(bed: Bed) {
    let until = bed.now().plus_ms(600_000);
    let granted = bed.grant(Leave { until, ..leave(CENT) }).await;
    assert!(due(&bed, OPEN).await.is_empty());
    bed.clock.forward_ms(600_000);
    assert_eq!(due(&bed, OPEN).await, [granted.id.as_str()]);
    bed.clock.forward_ms(2);
    let held = bed.hold(&granted.id).await;
    bed.step(held.doubt(&granted.id)).await.unwrap();
    assert_eq!(due(&bed, DOUBT).await, [granted.id.as_str()], "its primitive is asked");
    bed.clock.forward_ms(2);
    bed.void(&granted.id).await;
    bed.clock.forward_ms(KEPT_MS);
    assert!(due(&bed, OPEN).await.is_empty() && due(&bed, DOUBT).await.is_empty());
}

async fn captures_of_a_quarter_of_an_hour_are_one_record(bed: Bed) {
    bed.spend(CENT).await;
    bed.clock.forward_ms(15 * 60_000 - 1);
    bed.spend(2 * CENT).await;
    let other = Proposal { component: "delivery".into(), ..proposal(Some(CENT)) };
    let granted = bed.grant(crate::words::leave_for(other)).await;
    bed.capture(&granted.id, CENT).await;
    // It counts when it is spent.
    let late = bed.grant(leave(5 * CENT)).await;
    bed.clock.forward_ms(1);
    bed.capture(&late.id, 5 * CENT).await;
    bed.spend(3 * CENT).await;
    let found = bed.store().find(&Query::all(&user_reach(), &spend_space())).await.unwrap();
    let mut records: Vec<(String, i64, i64)> = Vec::new();
    for (_, row) in &found.items {
        let body: Value = serde_json::from_str(&row.body).unwrap();
        assert_eq!((&body["project"], &body["action"]), (&json!(id(2)), &json!("shop.buy")));
        let of = body["component"].as_str().unwrap().to_owned();
        records.push((
            of,
            body["spent_micro_usd"].as_i64().unwrap(),
            body["count"].as_i64().unwrap(),
        ));
    }
    records.sort();
    let wanted = [("delivery", CENT, 1), ("shop", 3 * CENT, 2), ("shop", 8 * CENT, 2)];
    assert_eq!(records, wanted.map(|(of, spent, count)| (of.to_owned(), spent, count)));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_let_through_stands_beside_the_cap_when_it_is_spent() {
    let bed = Bed::sqlite().await;
    bed.set_organization(soft_budget(3)).await;
    bed.spend(CENT).await;
    let waits = bed.wait(leave(3 * CENT)).await;
    bed.capture(&waits.hold, 2 * CENT).await;
    let count = bed.meter("organization", &organization_reach()).await.now();
    assert_eq!((count.over_spent, count.over_reserved, count.spent), (2 * CENT, 0, CENT));
    bed.grant(leave(2 * CENT)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hold_that_was_never_taken_has_no_end() {
    let bed = Bed::sqlite().await;
    let granted = bed.grant(Leave { defers: true, ..leave(CENT) }).await;
    let step = granted.hold.void(&granted.id, Instant(1));
    assert!(bed.step(step).await.is_err());
    // Taken and captured in one unit it ends as any other.
    let capture = granted.hold.admit_capture(CENT, Word::Asker).unwrap();
    let step = granted.hold.capture(&granted.id, capture, bed.now());
    let mut unit = granted.untaken.unwrap().unit;
    unit.writes.extend(granted.hold.take_with(&granted.id, step));
    bed.commit(Unit { organization: String::new(), ..unit }).await.unwrap();
    assert_eq!(bed.hold(&granted.id).await.state, State::Captured);
    assert_eq!(bed.meter("kit", &user_reach()).await.now().spent, CENT);
}

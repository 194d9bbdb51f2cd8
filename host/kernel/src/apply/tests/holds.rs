//! Holds, meters and accounts together: whatever callers do, in whatever order, the caps hold and
//! the books agree.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::governance::hold::{Charge, Counted, Hold, Pay, State as Stand, Step, Subject};
use crate::governance::policy::{Decision, Verdict};

const CAP: i64 = 100;
const TIMES: i64 = 6;

fn hold(amount: i64) -> Hold {
    let charge = |n, amount, cap, unit| Charge {
        scope: if n == 0 { "project" } else { "limit" }.into(),
        meter: meter(n),
        slot: day(1),
        amount,
        admission: Admission::Within(cap),
        unit,
    };
    Hold {
        state: Stand::Held,
        primitive: "shop".into(),
        action: "shop.buy".into(),
        entity: "card".into(),
        component: "shop".into(),
        title: String::new(),
        amount: Some(amount),
        charges: vec![charge(0, amount, CAP, Counted::Money), charge(1, 1, TIMES, Counted::Times)],
        pay: Some(Pay { from: account(1), to: account(2), memo: String::new() }),
        decision: Decision {
            verdict: Verdict::Allow,
            rules: Vec::new(),
            grant: None,
            shadow: Vec::new(),
            approvals_required: 0,
        },
        subject: Subject { organization: "o".into(), user: Some("u".into()), ..Subject::default() },
        request: "r".into(),
        ordinal: 0,
        at: NOW,
        until: Instant(5_000),
        kept: false,
        settler: None,
        actual: None,
        ended_at: None,
    }
}

fn books() -> Model {
    let mut model = Model::default();
    let rows = vec![
        ensured(meter(0), &Meter::opened(day(1), 0)),
        ensured(meter(1), &Meter::opened(day(1), 0)),
        ensured(account(0), &Account::new(Normal::Debit, true)),
        ensured(account(1), &Account::new(Normal::Credit, false)),
        ensured(account(2), &Account::new(Normal::Credit, false)),
        Write::Transfer { from: account(0), to: account(1), amount: 80, phase: Phase::Post },
    ];
    assert!(model.run(&[one(rows)])[0].is_ok());
    model
}

impl Model {
    fn meter(&self, n: u8) -> Meter {
        serde_json::from_str(&self.rows[&meter(n)].row.body).unwrap()
    }
    fn account(&self, n: u8) -> Account {
        serde_json::from_str(&self.rows[&account(n)].row.body).unwrap()
    }
    fn stands(&self) -> BTreeMap<String, Hold> {
        let holds =
            self.rows.iter().filter(|(key, _)| key.space == crate::governance::hold::space());
        holds
            .map(|(key, stored)| (key.id.clone(), serde_json::from_str(&stored.row.body).unwrap()))
            .collect()
    }

    /// What `charter ledger verify` proves of a database, from the holds alone.
    fn books_agree(&self) {
        self.holds();
        let holds = self.stands();
        let sum = |open: bool, of: fn(&Hold) -> i64| -> i64 {
            holds
                .values()
                .filter(
                    |hold| if open { !hold.state.is_over() } else { hold.state == Stand::Captured },
                )
                .map(of)
                .sum()
        };
        let (money, times) = (self.meter(0), self.meter(1));
        assert_eq!(money.now().reserved, sum(true, |hold| hold.amount.unwrap()));
        assert_eq!(money.now().spent, sum(false, |hold| hold.actual.unwrap()));
        assert_eq!(
            (times.now().reserved, times.now().spent),
            (sum(true, |_| 1), sum(false, |_| 1))
        );
        assert!(times.now().reserved + times.now().spent <= TIMES);
        assert!(money.frozen || money.now().spent + money.now().reserved <= CAP);
        assert_eq!(self.account(1).pending_debits, money.now().reserved);
        assert_eq!(self.account(2).balance().posted, money.now().spent);
        let recorded =
            self.rows.iter().filter(|(key, _)| key.space == crate::governance::hold::spend_space());
        let spent = recorded.map(|(_, stored)| {
            let body: serde_json::Value = serde_json::from_str(&stored.row.body).unwrap();
            (body["spent_micro_usd"].as_i64().unwrap(), body["count"].as_i64().unwrap())
        });
        let (spent, count) =
            spent.fold((0, 0), |(spent, count), (more, times)| (spent + more, count + times));
        assert_eq!(
            (spent, count),
            (money.now().spent, times.now().spent),
            "the spend record says the same"
        );
    }
}

fn unit_of(step: Step) -> Unit {
    Unit { organization: "o".into(), guards: step.guards, writes: step.writes, ..Unit::default() }
}

fn taking(id: &str, hold: &Hold) -> Unit {
    Unit { organization: "o".into(), writes: hold.taken(id), ..Unit::default() }
}

#[test]
fn of_two_hundred_callers_exactly_those_are_admitted_that_the_cap_admits() {
    let mut model = books();
    let units: Vec<Unit> = (0..200).map(|n| taking(&format!("h{n}"), &hold(16))).collect();
    let answers = model.run(&units);
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 5, "the account has eighty");
    model.books_agree();
}

#[test]
fn a_hold_is_taken_in_all_its_scopes_or_in_none() {
    let mut model = books();
    let before = model.clone();
    let over = model.run(&[taking("h", &hold(101))]);
    assert!(
        matches!(&over[0], Err(Rejection::Refused(Refused::OverCap { cap: CAP, .. }))),
        "{over:?}"
    );
    let poor = model.run(&[taking("h", &hold(81))]);
    assert_eq!(poor[0], Err(Refused::Overdrawn { account: account(1), available: 80 }.into()));
    assert_eq!(model, before);
}

#[test]
fn a_hold_ends_once_however_many_end_it() {
    let mut model = books();
    let taken = hold(30);
    let ends = [
        taken.captured("h", 25, NOW),
        taken.voided("h", NOW),
        taken.captured("h", 30, NOW),
        taken.dispatched("h"),
    ];
    let answers = model
        .run(&std::iter::once(taking("h", &taken)).chain(ends.map(unit_of)).collect::<Vec<_>>());
    assert_eq!(
        answers.iter().map(Result::is_ok).collect::<Vec<_>>(),
        [true, true, false, false, false]
    );
    assert_eq!(model.meter(0).now().spent, 25);
    model.books_agree();
}

#[test]
fn more_than_was_held_is_posted_as_it_is_and_stops_the_scope() {
    let mut model = books();
    let taken = hold(30);
    let after = model.run(&[
        taking("h", &taken),
        unit_of(taken.captured("h", 90, NOW)),
        taking("next", &hold(1)),
    ]);
    assert!(after[1].is_ok());
    assert_eq!(after[2], Err(Refused::Frozen { key: meter(0) }.into()));
    assert_eq!((model.meter(0).now().spent, model.account(1).balance().available), (90, -10));
    model.books_agree();
}

/// What somebody tries with one of the holds, by what they last knew of it.
#[derive(Clone, Copy, Debug)]
enum Try {
    Take(i64),
    Dispatch,
    Capture(i64),
    Void,
    Doubt,
}

fn tries() -> impl Strategy<Value = Vec<(u8, Try)>> {
    let one = prop_oneof![
        3 => (0..40_i64).prop_map(Try::Take),
        1 => Just(Try::Dispatch),
        2 => (0..50_i64).prop_map(Try::Capture),
        2 => Just(Try::Void),
        1 => Just(Try::Doubt),
    ];
    prop::collection::vec((0..12_u8, one), 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn caps_hold_and_books_agree_whatever_callers_do(tries in tries(), size in 1..5_usize) {
        let mut model = books();
        for batch in tries.chunks(size) {
            // All of a batch know of the holds what was so before it: the second to act on one acts
            // on what is past.
            let known = model.stands();
            let units: Vec<Unit> = batch.iter().filter_map(|(n, what)| {
                let id = format!("h{n}");
                let unit = match (what, known.get(&id)) {
                    (Try::Take(amount), _) => taking(&id, &hold(*amount)),
                    (_, None) => return None,
                    (_, Some(hold)) if hold.state.is_over() => return None,
                    (Try::Dispatch, Some(hold)) => unit_of(hold.dispatched(&id)),
                    (Try::Capture(actual), Some(hold)) => unit_of(hold.captured(&id, *actual, NOW)),
                    (Try::Void, Some(hold)) => unit_of(hold.voided(&id, NOW)),
                    (Try::Doubt, Some(hold)) => unit_of(hold.doubted(&id)),
                };
                Some(unit)
            }).collect();
            model.run(&units);
            model.books_agree();
        }
    }
}

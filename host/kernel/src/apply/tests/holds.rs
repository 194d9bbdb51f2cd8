//! Holds, meters and accounts together: whatever callers do, in whatever order, the caps hold and
//! the books agree.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::governance::hold::{
    Charge, Counted, Hold, OverCapture, Pay, State as Stand, Step, Subject, Word,
};
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
        spends: Some(true),
        capturable: None,
        reported: false,
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
        turn: 0,
        actual: None,
        in_parts: false,
        ended_at: None,
    }
}

fn books() -> Model {
    let mut model = Model::default();
    let rows = vec![
        ensured(meter(0), &Meter::new(day(1), 0)),
        ensured(meter(1), &Meter::new(day(1), 0)),
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

    /// The proof that `charter ledger verify` makes of a database, from the holds alone.
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

/// A capture as a provider's signed word has it: of any amount.
fn captured(hold: &Hold, id: &str, actual: i64) -> Step {
    hold.capture(id, hold.admit_capture(actual, Word::Provider).unwrap(), NOW)
}

fn unit_of(step: Step) -> Unit {
    Unit { organization: "o".into(), guards: step.guards, writes: step.writes, ..Unit::default() }
}

fn taking(id: &str, hold: &Hold) -> Unit {
    Unit { organization: "o".into(), writes: hold.take(id), ..Unit::default() }
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
        captured(&taken, "h", 25),
        taken.void("h", NOW),
        captured(&taken, "h", 30),
        taken.dispatch("h"),
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
fn a_hold_bounds_what_its_own_primitive_captures() {
    let held = |capturable| Hold { capturable, ..hold(30) };
    let asked = |hold: &Hold, actual| hold.admit_capture(actual, Word::Asker).map(drop);
    // One of an earlier build says nothing of its own: what it holds bounds it.
    for hold in [held(None), held(Some(30))] {
        assert_eq!(asked(&hold, 30), Ok(()));
        assert_eq!(asked(&hold, 31), Err(OverCapture { actual: 31, left: 30 }));
    }
    assert_eq!(asked(&held(Some(45)), 45), Ok(()), "what was estimated may overrun");
    assert_eq!(asked(&held(Some(45)), 46), Err(OverCapture { actual: 46, left: 45 }));
    let free = Hold { amount: None, charges: Vec::new(), ..held(None) };
    assert_eq!(asked(&free, 1), Err(OverCapture { actual: 1, left: 0 }));
    let counted = Hold { amount: None, ..held(None) };
    assert_eq!(
        asked(&counted, 31),
        Err(OverCapture { actual: 31, left: 30 }),
        "what limits count is bounded"
    );
}

/// A cap that begins: what was spent before it is not counted yet.
fn begun(n: u8) -> Write {
    ensured(meter(n), &Meter::begin(None))
}

fn opened(n: u8, spent: i64) -> Write {
    Write::Open { meter: meter(n), slot: day(1), spent, since: None }
}

/// The meter of the organization of [`hold`].
fn organizations() -> Key {
    let meters = crate::governance::hold::meters_space();
    Key::new(&Reach::organization("o"), &meters, "organization")
}

#[test]
fn a_hold_from_before_a_first_cap_counts_in_it_once_it_is_captured() {
    let mut model = books();
    let taken = hold(30);
    let begin = Write::Ensure {
        key: organizations(),
        draft: Draft {
            body: serde_json::to_string(&Meter::begin(None)).unwrap(),
            ..Draft::default()
        },
    };
    let open = Write::Open { meter: organizations(), slot: day(1), spent: 1, since: None };
    let units = [
        taking("h", &taken),
        one(vec![begin]),
        one(vec![open]),
        unit_of(captured(&taken, "h", 25)),
    ];
    assert!(model.run(&units).iter().all(Result::is_ok));
    let counted: Meter = serde_json::from_str(&model.rows[&organizations()].row.body).unwrap();
    assert_eq!(counted.now().spent, 26);
    model.books_agree();
}

#[test]
fn a_capture_where_no_cap_ever_stood_makes_no_meter() {
    let mut model = books();
    let taken = hold(30);
    let capture = taken.admit_capture(30, Word::Asker).unwrap();
    let at_once = taken.take_with("h", taken.capture("h", capture, NOW));
    assert!(
        at_once.iter().all(
            |write| !matches!(write, Write::Tally { slot, .. } if *slot == Slot::without_cap())
        )
    );
    let after = model.run(&[one(at_once), taking("i", &taken), unit_of(captured(&taken, "i", 9))]);
    assert!(after.iter().all(Result::is_ok), "{after:?}");
    assert_eq!(model.rows.get(&organizations()), None);
    model.books_agree();
}

#[test]
fn a_meter_that_is_opened_twice_in_one_unit_keeps_what_is_reserved() {
    let mut model = Model::default();
    let reserve = Write::Reserve {
        meter: meter(0),
        slot: day(1),
        amount: 5,
        admission: Admission::Within(100),
    };
    let writes = vec![begun(0), opened(0, 7), reserve.clone(), opened(0, 7), reserve];
    assert!(model.run(&[one(writes)])[0].is_ok());
    assert_eq!((model.meter(0).now().spent, model.meter(0).now().reserved), (7, 10));
}

#[test]
fn an_overrun_within_its_bound_freezes_nothing() {
    let mut model = books();
    let taken = Hold { capturable: Some(60), ..hold(30) };
    let capture = taken.admit_capture(60, Word::Asker).unwrap();
    let after = model.run(&[
        taking("h", &taken),
        unit_of(taken.capture("h", capture, NOW)),
        taking("next", &hold(1)),
    ]);
    assert!(after.iter().all(Result::is_ok), "{after:?}");
    model.books_agree();
}

#[test]
fn a_provider_freezes_the_narrowest_scope_and_never_the_organization() {
    let scoped = |scopes: &[&str]| {
        let charges = scopes.iter().zip(0..).map(|(scope, n)| Charge {
            scope: (*scope).into(),
            meter: meter(n),
            ..hold(30).charges[0].clone()
        });
        Hold { charges: charges.collect(), ..hold(30) }
    };
    let frozen = |scopes: &[&str]| {
        let mut model = books();
        let taken = scoped(scopes);
        model.run(&[taking("h", &taken), unit_of(captured(&taken, "h", 90))]);
        [0, 1].map(|n| model.meter(n).frozen)
    };
    assert_eq!(frozen(&["organization", "user"]), [false, true]);
    assert_eq!(frozen(&["organization"]), [false, false]);
}

#[test]
fn more_than_was_held_is_posted_as_it_is_and_stops_the_scope() {
    let mut model = books();
    let taken = hold(30);
    let after = model.run(&[
        taking("h", &taken),
        unit_of(captured(&taken, "h", 90)),
        taking("next", &hold(1)),
    ]);
    assert!(after[1].is_ok());
    assert_eq!(after[2], Err(Refused::Frozen { key: meter(0) }.into()));
    assert_eq!((model.meter(0).now().spent, model.account(1).balance().available), (90, -10));
    model.books_agree();
}

/// An attempt at one of the holds, by what was last known of it.
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
                    (Try::Dispatch, Some(hold)) => unit_of(hold.dispatch(&id)),
                    (Try::Capture(actual), Some(hold)) => unit_of(captured(hold, &id, *actual)),
                    (Try::Void, Some(hold)) => unit_of(hold.void(&id, NOW)),
                    (Try::Doubt, Some(hold)) => unit_of(hold.doubt(&id)),
                };
                Some(unit)
            }).collect();
            model.run(&units);
            model.books_agree();
        }
    }
}

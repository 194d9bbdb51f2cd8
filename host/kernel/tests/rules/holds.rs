//! Holds that the tests are about, and how an amount of theirs can end.

use charter_kernel::calendar::Slot;
use charter_kernel::governance::hold::{
    Charge, Counted, Hold, OverCapture, Pay, State, Subject, Word,
};
use charter_kernel::governance::policy::{Decision, Verdict};
use charter_kernel::meter::Admission;
use charter_kernel::unit::Reach;
use proptest::prelude::*;

use crate::bed::{NOW, account, meter};

pub fn day() -> Slot {
    Slot::new("day UTC", "2026-11-01")
}

pub fn charge(scope: &str, amount: i64, unit: Counted) -> Charge {
    let id = if unit == Counted::Times { format!("{scope}:count") } else { scope.to_owned() };
    Charge {
        scope: scope.to_owned(),
        meter: meter(&id),
        slot: day(),
        amount,
        admission: Admission::Within(100),
        unit,
    }
}

/// A hold that nothing was set aside for.
pub fn free() -> Hold {
    Hold {
        state: State::Held,
        primitive: "shop".into(),
        action: "shop.buy".into(),
        entity: "card".into(),
        component: "shop".into(),
        title: "a book".into(),
        amount: None,
        spends: Some(true),
        capturable: Some(0),
        reported: false,
        charges: Vec::new(),
        pay: None,
        decision: Decision {
            verdict: Verdict::Allow,
            rules: Vec::new(),
            grant: None,
            shadow: Vec::new(),
            approvals_required: 0,
        },
        subject: Subject {
            organization: "o".into(),
            project: Some("p".into()),
            user: Some("u".into()),
            kit: None,
            root: None,
            gone: false,
            actor: ("key".into(), "k".into()),
        },
        request: "r".into(),
        ordinal: 0,
        at: NOW,
        until: NOW.plus_ms(60_000),
        kept: false,
        settler: None,
        turn: 0,
        actual: None,
        in_parts: false,
        ended_at: None,
    }
}

/// A hold of an amount that an account pays.
pub fn paid(amount: i64) -> Hold {
    Hold {
        amount: Some(amount),
        capturable: Some(amount),
        charges: vec![
            charge("organization", amount, Counted::Money),
            charge("user", amount, Counted::Money),
            charge("limit:l", 1, Counted::Times),
        ],
        pay: Some(Pay { from: account("ada"), to: account("shop"), memo: "a book".into() }),
        ..free()
    }
}

#[test]
fn each_state_has_its_name_and_two_of_them_are_over() {
    let table = [
        (State::Pending, "pending", false),
        (State::Held, "held", false),
        (State::Dispatched, "dispatched", false),
        (State::Captured, "captured", true),
        (State::Voided, "voided", true),
        (State::InDoubt, "in_doubt", false),
    ];
    for (state, name, is_over) in table {
        assert_eq!((state.as_str(), state.is_over()), (name, is_over));
        assert_eq!(serde_json::to_value(state).unwrap(), name);
    }
}

#[test]
fn a_subject_is_as_narrow_as_what_it_names() {
    let subject = free().subject;
    assert_eq!(subject.reach(), Reach::user("u"));
    let project = Subject { user: None, ..subject };
    assert_eq!(project.reach(), Reach::project("p"));
    assert_eq!(Subject { project: None, ..project }.reach(), Reach::organization("o"));
}

#[test]
fn the_bound_of_a_capture_is_what_was_said_or_held_or_charged() {
    let hold = |capturable, amount, charged| Hold {
        capturable,
        amount,
        charges: vec![charge("user", charged, Counted::Money), charge("l", 900, Counted::Times)],
        ..free()
    };
    assert_eq!(hold(Some(40), Some(30), 20).capture_max(), 40);
    assert_eq!(hold(None, Some(30), 20).capture_max(), 30);
    assert_eq!(hold(None, None, 20).capture_max(), 20);
    assert_eq!(Hold { capturable: None, ..free() }.capture_max(), 0);
}

#[test]
fn a_row_of_an_earlier_build_is_read() {
    let mut row = serde_json::to_value(paid(30)).unwrap();
    for member in ["kept", "spends", "capturable", "pay"] {
        row.as_object_mut().unwrap().remove(member);
    }
    let hold: Hold = serde_json::from_value(row).unwrap();
    assert_eq!(hold.capture_max(), 30);
    assert_eq!((hold.kept, hold.spends, hold.capturable, hold.pay), (false, None, None, None));
}

proptest! {
    #[test]
    fn an_asker_never_captures_beyond_the_bound_and_a_provider_is_believed(
        amount in 0..1_000_i64,
        more in prop::option::of(0..1_000_i64),
        actual in 0..3_000_i64,
    ) {
        let hold = Hold { capturable: more.map(|more| amount + more), ..paid(amount) };
        let bound = hold.capture_max();
        prop_assert_eq!(bound, amount + more.unwrap_or(0));
        let asked = hold.admit_capture(actual, Word::Asker);
        prop_assert_eq!(asked.is_ok(), actual <= bound);
        if let Err(over) = asked {
            prop_assert_eq!(over, OverCapture { actual, left: bound });
        }
        let told = hold.admit_capture(actual, Word::Provider).unwrap();
        prop_assert_eq!(hold.capture("h", told, NOW).hold.actual, Some(actual));
    }

    #[test]
    fn a_hold_reads_as_it_was_written(amount in any::<i64>(), kept in any::<bool>()) {
        let hold = Hold { kept, ..paid(amount) };
        let text = serde_json::to_string(&hold).unwrap();
        prop_assert_eq!(serde_json::from_str::<Hold>(&text).unwrap(), hold);
    }
}

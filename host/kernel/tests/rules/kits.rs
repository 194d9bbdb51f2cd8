//! Kits: the gate of a primitive, budgets, and what is closed on the wire.

use charter_kernel::id::uuid_v7;
use charter_kernel::kit::{
    Budget, ConnectionMode, DISABLED_REASON, Denied, Entry, Kit, Period, decide,
};
use charter_kernel::manifest::{Catalogue, Gate};
use charter_kernel::refusal::Refusal;
use charter_kernel::time::Instant;
use serde_json::{Value, json};

const GATES: [Gate; 3] = [Gate::Open, Gate::Strict, Gate::OptIn];

fn kit(members: &Value) -> Kit {
    let mut kit = json!({"id": uuid_v7(Instant(1), [1; 10]), "name": "k"});
    kit.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    serde_json::from_value(kit).unwrap()
}

fn budget(cap_cents: u64, period: Period, hard: bool) -> Option<Budget> {
    Some(Budget { cap_cents, period, hard })
}

#[test]
fn the_gate_of_each_primitive_by_kit() {
    let on = kit(&json!({"primitives": {"mail": {"enabled": true}}}));
    let pinned = kit(&json!({"primitives": {"mail": {"enabled": true, "version": "1.2.0"}}}));
    let off = kit(&json!({"primitives": {"mail": {"enabled": false, "version": "1.2.0"}}}));
    let silent = kit(&json!({}));
    for gate in GATES {
        assert_eq!(decide("mail", gate, Some(&on)), Ok(None), "{gate:?}");
        assert_eq!(decide("mail", gate, Some(&pinned)), Ok(Some("1.2.0")), "{gate:?}");
        let denied = Err(Denied { primitive: "mail".into() });
        assert_eq!(decide("mail", gate, Some(&off)), denied, "{gate:?}");
        let by_gate = if gate == Gate::Open { Ok(None) } else { denied };
        assert_eq!(decide("mail", gate, Some(&silent)), by_gate, "{gate:?}");
        assert_eq!(decide("mail", gate, None), by_gate, "{gate:?} without a kit");
    }
}

#[test]
fn a_shut_gate_says_what_to_do() {
    let refusal = Refusal::from(Denied { primitive: "mail".into() });
    assert_eq!(
        (refusal.reason.as_deref(), refusal.status(Catalogue::Primary)),
        (Some(DISABLED_REASON), 403)
    );
    assert_eq!(
        (&refusal.details["reason"], &refusal.details["primitive"]),
        (&json!(DISABLED_REASON), &json!("mail"))
    );
    assert!(refusal.hint.unwrap().contains("Enable the primitive"));
}

#[test]
fn a_budget_is_loosened_by_more_room_alone() {
    let base = || budget(100, Period::Month, true);
    let soft = || budget(100, Period::Month, false);
    let table = [
        (None, None, false),
        (None, base(), false),
        (base(), None, true),
        (base(), base(), false),
        (base(), budget(99, Period::Month, true), false),
        (base(), budget(101, Period::Month, true), true),
        (base(), budget(100, Period::Day, true), true),
        (base(), budget(1, Period::Year, true), true),
        (base(), soft(), true),
        (soft(), base(), false),
        (soft(), soft(), false),
    ];
    for (before, after, loosens) in table {
        assert_eq!(Budget::loosens(before, after), loosens, "{before:?} to {after:?}");
    }
}

#[test]
fn a_budget_is_hard_unless_it_says_otherwise() {
    let read = |text: &str| serde_json::from_str::<Budget>(text);
    let hard = read(r#"{"cap_cents": 5, "period": "total"}"#).unwrap();
    assert_eq!(Some(hard), budget(5, Period::Total, true));
    assert!(read(r#"{"cap_cents": -5, "period": "day"}"#).is_err());
    assert!(read(r#"{"cap_cents": 5, "period": "day", "currency": "usd"}"#).is_err());
}

#[test]
fn periods_are_named_as_on_the_wire() {
    let periods = [
        (Period::Day, "day"),
        (Period::Week, "week"),
        (Period::Month, "month"),
        (Period::Year, "year"),
        (Period::Total, "total"),
    ];
    for (period, name) in periods {
        assert_eq!((period.as_str(), serde_json::to_value(period).unwrap()), (name, json!(name)));
    }
}

#[test]
fn entries_are_on_or_off() {
    for gate in GATES {
        let entry = Entry::by_default(gate);
        assert_eq!(entry, if gate == Gate::OptIn { Entry::off() } else { Entry::on() }, "{gate:?}");
    }
    assert_eq!(serde_json::to_value(Entry::on()).unwrap(), json!({"enabled": true}));
    let entry: Entry =
        serde_json::from_value(json!({"enabled": true, "policy": {"a": 1}})).unwrap();
    assert_eq!(entry.policy.unwrap()["a"], 1);
}

#[test]
fn a_kit_that_says_little_is_open() {
    let open = kit(&json!({}));
    assert_eq!((open.budget, open.version), (None, 0));
    assert_eq!((open.connections.mode, open.connections.toolkits.len()), (ConnectionMode::Open, 0));
    assert_eq!(open.limits.requests_per_minute, None);
    let listed = kit(
        &json!({"connections": {"mode": "listed", "toolkits": ["a"]}, "limits": {"requests_per_minute": 5}}),
    );
    assert_eq!(
        (listed.connections.mode, listed.limits.requests_per_minute),
        (ConnectionMode::Listed, Some(5))
    );
    let again: Kit = serde_json::from_value(serde_json::to_value(&listed).unwrap()).unwrap();
    assert_eq!(again, listed);
}

//! Limits on actions and rates: their bounds, and what they count.

use charter_kernel::governance::limit::{LIMITS_MAX, Limit, faults, is_loosened};
use charter_kernel::governance::rate::Rate;
use charter_kernel::money::AMOUNT_MAX;
use charter_kernel::time::Instant;
use serde_json::{Value, json};

fn limit(changes: &Value) -> Limit {
    let mut limit = json!({ "id": "l", "actions": ["*"], "period": "day", "max_count": 1 });
    limit.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    serde_json::from_value(limit).unwrap()
}

fn paths(limits: &[Limit]) -> Vec<String> {
    faults(limits).into_iter().map(|fault| fault.path).collect()
}

#[test]
fn each_bound_has_its_fault() {
    let users = |n: usize| {
        (0..n).map(|n| format!("{n:08}-29ab-77e4-afdc-a66d6000929a")).collect::<Vec<_>>()
    };
    let table = [
        (json!({}), None),
        (json!({ "id": "x".repeat(100) }), None),
        (json!({ "id": "x".repeat(101) }), Some("limits.0.id")),
        (json!({ "id": "" }), Some("limits.0.id")),
        (json!({ "id": "ä" }), Some("limits.0.id")),
        (json!({ "actions": vec!["*"; 200] }), None),
        (json!({ "actions": vec!["*"; 201] }), Some("limits.0.actions")),
        (json!({ "actions": ["Shop.buy"] }), Some("limits.0.actions")),
        (json!({ "users": users(200) }), None),
        (json!({ "users": users(201) }), Some("limits.0.users")),
        (json!({ "max_count": 0 }), None),
        (json!({ "max_count": -1 }), Some("limits.0.max_count")),
        (json!({ "max_count": AMOUNT_MAX }), None),
        (json!({ "max_count": AMOUNT_MAX + 1 }), Some("limits.0.max_count")),
        (json!({ "max_count": null, "max_amount_micro_usd": 0 }), None),
        (json!({ "max_amount_micro_usd": AMOUNT_MAX + 1 }), Some("limits.0.max_amount_micro_usd")),
    ];
    for (changes, expected) in table {
        assert_eq!(paths(&[limit(&changes)]).first().map(String::as_str), expected, "{changes}");
    }
    let many =
        |n: usize| (0..n).map(|n| limit(&json!({ "id": n.to_string() }))).collect::<Vec<_>>();
    assert_eq!(paths(&many(LIMITS_MAX)), Vec::<String>::new());
    assert_eq!(paths(&many(LIMITS_MAX + 1)), ["limits"]);
    assert!(serde_json::from_value::<Limit>(json!({ "id": "l", "per": "day" })).is_err());
}

#[test]
fn an_amount_that_is_added_or_lowered_is_no_loosening() {
    let before = limit(&json!({ "max_amount_micro_usd": 100 }));
    let loosened = |changes: &Value| is_loosened(std::slice::from_ref(&before), &[limit(changes)]);
    assert!(!loosened(&json!({ "max_amount_micro_usd": 99 })));
    assert!(loosened(&json!({ "max_amount_micro_usd": 101 })) && loosened(&json!({})));
    assert!(!loosened(&json!({ "max_amount_micro_usd": 100, "max_count": 0 })));
    assert!(loosened(&json!({ "max_amount_micro_usd": 100, "users": ["u"] })), "fewer are bounded");
    let both = [before.clone(), limit(&json!({ "id": "m" }))];
    assert!(!is_loosened(std::slice::from_ref(&before), &both));
    assert!(is_loosened(&both, std::slice::from_ref(&before)));
}

#[test]
fn a_limit_on_some_users_counts_no_others() {
    let some = limit(&json!({ "users": ["u1", "u2"], "actions": ["mail.send", "shop.*"] }));
    let counts = |action: &str, user: &str| some.counts(action, Some(user));
    assert!(counts("mail.send", "u1") && counts("shop.buy", "u2"));
    assert!(!counts("mail.read", "u1") && !counts("mail.send", "u3"));
}

#[test]
fn a_rate_counts_a_sliding_stretch_to_the_millisecond() {
    let mut rate = Rate::default();
    for at in [0, 400, 999] {
        assert_eq!(rate.take(3, 1, Instant(at)), Ok(Instant(at)), "{at}");
    }
    assert_eq!(rate.take(3, 1, Instant(999)), Err(1));
    assert_eq!(
        rate.take(3, 1, Instant(1_000)),
        Ok(Instant(1_000)),
        "the first is out of the stretch"
    );
    assert_eq!(rate.take(3, 1, Instant(1_000)), Err(400));
    rate.give_back(Instant(1_000));
    assert_eq!(rate.take(3, 1, Instant(1_001)), Ok(Instant(1_001)));
}

#[test]
fn a_clock_that_steps_back_admits_nothing_more() {
    let mut rate = Rate::default();
    rate.take(1, 60, Instant(100_000)).unwrap();
    assert_eq!(rate.take(1, 60, Instant(50_000)), Err(110_000));
    assert_eq!(rate.take(2, 60, Instant(50_000)), Ok(Instant(100_000)));
    assert_eq!(rate.take(2, 60, Instant(159_999)), Err(1), "both count from the later moment");
    assert_eq!(rate.take(2, 60, Instant(160_000)), Ok(Instant(160_000)));
}

#[test]
fn a_rate_that_becomes_narrower_waits_for_what_is_too_much() {
    let mut rate = Rate::default();
    for at in [0, 10_000, 20_000] {
        rate.take(3, 60, Instant(at)).unwrap();
    }
    assert_eq!(rate.take(1, 60, Instant(30_000)), Err(50_000), "until the last of them is over");
    assert_eq!(rate.take(0, 60, Instant(30_000)), Err(60_000), "never, as far as it knows");
    assert_eq!(Rate::default().take(0, 60, Instant(0)), Err(60_000));
}

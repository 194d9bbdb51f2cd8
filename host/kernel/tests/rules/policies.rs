//! A policy's conditions one by one, its bounds, and what counts as loosening.

use charter_kernel::governance::policy::{
    Amount, Ask, Decision, Grant, Otherwise, Policy, RULES_MAX, Rule, Verdict, action_matches,
    is_glob,
};
use charter_kernel::time::{Instant, Zone};
use serde_json::{Value, json};

fn policy(rules: &Value) -> Policy {
    serde_json::from_value(json!({ "rules": rules })).unwrap()
}

fn rule(changes: &Value) -> Value {
    let mut rule = json!({ "id": "r", "effect": "deny", "actions": ["*"] });
    rule.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
    rule
}

fn zone() -> Zone {
    Zone::parse("UTC").unwrap()
}

fn ask(zone: &Zone) -> Ask<'_> {
    Ask {
        action: "shop.buy",
        amount: Amount::Of(50),
        entity: "card-1",
        user: Some("u1"),
        kit: Some("k1"),
        project: Some("p1"),
        at: Instant::parse("2026-11-21T12:00:00Z").unwrap(),
        zone,
    }
}

/// Whether a rule with this condition matches the example.
fn matches(when: &Value) -> bool {
    let policy = policy(&json!([rule(&json!({ "when": when }))]));
    policy.decide(&ask(&zone()), &[]).verdict == Verdict::Deny
}

fn paths(rules: &Value) -> Vec<String> {
    policy(rules).faults().into_iter().map(|fault| fault.path).collect()
}

#[test]
fn each_condition_is_asked_and_all_must_hold() {
    let table = [
        (json!({}), true),
        (json!({ "amount_over_micro_usd": 49 }), true),
        (json!({ "amount_over_micro_usd": 50 }), false),
        (json!({ "users": ["u0", "u1"] }), true),
        (json!({ "users": ["u2"] }), false),
        (json!({ "kits": ["k1"] }), true),
        (json!({ "kits": ["k2"] }), false),
        (json!({ "projects": ["p1"] }), true),
        (json!({ "projects": ["p2"] }), false),
        (json!({ "entities": ["x", "card-*"] }), true),
        (json!({ "entities": ["card"] }), false),
        (json!({ "hours": { "from": "12:00", "to": "12:01" } }), true),
        (json!({ "hours": { "from": "11:00", "to": "12:00" } }), false),
        (json!({ "hours": { "from": "12:00", "to": "13:00", "days": ["sat"] } }), true),
        (json!({ "hours": { "from": "12:00", "to": "13:00", "days": ["sun"] } }), false),
        (json!({ "users": ["u1"], "kits": ["k2"] }), false),
        (json!({ "users": ["u1"], "kits": ["k1"], "projects": ["p1"] }), true),
    ];
    for (when, expected) in table {
        assert_eq!(matches(&when), expected, "{when}");
    }
}

#[test]
fn nobody_is_none_of_those_that_a_condition_names() {
    let zone = zone();
    let nobody = Ask { user: None, kit: None, project: None, ..ask(&zone) };
    for named in ["users", "kits", "projects"] {
        let policy = policy(&json!([rule(&json!({ "when": { named: ["u1", "k1", "p1"] } }))]));
        assert_eq!(policy.decide(&nobody, &[]).verdict, Verdict::Allow, "{named}");
        assert_eq!(policy.decide(&ask(&zone), &[]).verdict, Verdict::Deny, "{named}");
    }
}

#[test]
fn hours_of_all_day_and_all_night() {
    let at = |hours: Value, text: &str| {
        let zone = zone();
        let policy = policy(&json!([rule(&json!({ "when": { "hours": hours } }))]));
        let ask = Ask { at: Instant::parse(text).unwrap(), ..ask(&zone) };
        policy.decide(&ask, &[]).verdict == Verdict::Deny
    };
    let day = json!({ "from": "00:00", "to": "24:00" });
    for text in ["2026-11-21T00:00:00Z", "2026-11-21T23:59:59Z"] {
        assert!(at(day.clone(), text), "{text}");
    }
    let round = json!({ "from": "09:00", "to": "09:00", "days": ["sat"] });
    assert!(
        !at(round.clone(), "2026-11-21T08:59:00Z") && at(round.clone(), "2026-11-21T09:00:00Z")
    );
    assert!(at(round.clone(), "2026-11-22T08:59:00Z") && !at(round, "2026-11-22T09:00:00Z"));
    let unread = json!({ "from": "25:00", "to": "26:00" });
    assert!(!at(unread, "2026-11-21T12:00:00Z"), "hours that are none never hold");
}

#[test]
fn each_bound_has_its_fault() {
    let many = |n: usize| {
        (0..n).map(|n| format!("{n:08}-29ab-77e4-afdc-a66d6000929a")).collect::<Vec<_>>()
    };
    let table = [
        (json!({ "id": "x".repeat(200) }), None),
        (json!({ "id": "x".repeat(201) }), Some("rules.0.id")),
        (json!({ "actions": vec!["*"; 200] }), None),
        (json!({ "actions": vec!["*"; 201] }), Some("rules.0.actions")),
        (json!({ "effect": "require_approval", "approvals_required": 10 }), None),
        (
            json!({ "effect": "require_approval", "approvals_required": 11 }),
            Some("rules.0.approvals_required"),
        ),
        (
            json!({ "effect": "require_approval", "approvals_required": 0 }),
            Some("rules.0.approvals_required"),
        ),
        (json!({ "effect": "allow", "approvals_required": 1 }), Some("rules.0.approvals_required")),
        (json!({ "when": { "amount_over_micro_usd": 0 } }), None),
        (json!({ "when": { "users": many(200) } }), None),
        (json!({ "when": { "users": many(201) } }), Some("rules.0.when.users")),
        (json!({ "when": { "kits": [] } }), Some("rules.0.when.kits")),
        (json!({ "when": { "projects": [] } }), Some("rules.0.when.projects")),
        (json!({ "when": { "entities": [] } }), Some("rules.0.when.entities")),
        (json!({ "when": { "entities": [""] } }), Some("rules.0.when.entities")),
        (json!({ "when": { "entities": ["x".repeat(201)] } }), Some("rules.0.when.entities")),
        (json!({ "when": { "entities": vec!["x"; 201] } }), Some("rules.0.when.entities")),
        (json!({ "when": { "entities": ["x".repeat(200)] } }), None),
        (json!({ "when": { "entities": vec!["x"; 200] } }), None),
        (json!({ "when": { "hours": { "from": "00:00", "to": "24:00" } } }), None),
        (
            json!({ "when": { "hours": { "from": "24:01", "to": "24:00" } } }),
            Some("rules.0.when.hours.from"),
        ),
        (
            json!({ "when": { "hours": { "from": "00:00", "to": "00:60" } } }),
            Some("rules.0.when.hours.to"),
        ),
    ];
    for (changes, expected) in table {
        let found = paths(&json!([rule(&changes)]));
        assert_eq!(found.first().map(String::as_str), expected, "{changes}");
    }
    let rules = |n: usize| {
        let rules: Vec<Value> = (0..n).map(|n| rule(&json!({ "id": n.to_string() }))).collect();
        paths(&json!(rules))
    };
    assert_eq!(rules(RULES_MAX), Vec::<String>::new());
    assert_eq!(rules(RULES_MAX + 1), ["rules"]);
}

#[test]
fn a_number_of_people_is_refused_with_its_reason() {
    let message = |effect: &str| {
        let changes = json!({ "effect": effect, "approvals_required": 11 });
        policy(&json!([rule(&changes)])).faults().remove(0).message
    };
    assert_eq!(message("require_approval"), "must be 1 to 10");
    assert_eq!(message("deny"), "is only for rules whose effect is `require_approval`");
}

#[test]
fn faults_of_all_rules_come_at_once() {
    let broken = rule(&json!({ "id": "", "actions": [] }));
    let found = paths(&json!([broken, rule(&json!({ "id": "ok" })), broken]));
    assert_eq!(found, ["rules.0.id", "rules.0.actions", "rules.2.id", "rules.2.actions"]);
}

#[test]
fn a_glob_is_an_action_a_primitive_or_everything() {
    for good in ["*", "shop.*", "shop.buy", "a-b.c_d", "a1.b2"] {
        assert!(is_glob(good), "{good}");
    }
    let long = format!("shop.{}", "b".repeat(200));
    for bad in
        ["", "shop", ".buy", "shop.", "shop.b*", "*.buy", "shop.buy.x", "Shop.buy", "s p.b", &long]
    {
        assert!(!is_glob(bad), "{bad}");
    }
    let table = [
        ("*", "shop.buy", true),
        ("shop.*", "shop.buy", true),
        ("shop.*", "shopping.buy", false),
        ("shop.buy", "shop.buy", true),
        ("shop.buy", "shop.buy2", false),
    ];
    for (glob, action, expected) in table {
        assert_eq!(action_matches(glob, action), expected, "{glob} {action}");
    }
}

#[test]
fn as_many_people_are_asked_as_the_strictest_rule_wants() {
    let decide = |rules: &Value| -> Decision { policy(rules).decide(&ask(&zone()), &[]) };
    let asking = |id: &str, people: Value| {
        rule(&json!({ "id": id, "effect": "require_approval", "approvals_required": people }))
    };
    let decision = decide(&json!([asking("a", json!(null)), asking("b", json!(3))]));
    assert_eq!((decision.approvals_required, decision.rules.len()), (3, 2));
    assert_eq!(decide(&json!([asking("a", json!(null))])).approvals_required, 1);
    let denied = decide(&json!([asking("a", json!(3)), rule(&json!({}))]));
    assert_eq!((denied.approvals_required, &denied.rules), (0, &vec!["r".to_owned()]));
    let written = |decision: &Decision| json!(decision).get("approvals_required").cloned();
    assert_eq!((written(&decision), written(&denied)), (Some(json!(3)), None));
}

#[test]
fn a_grant_covers_its_user_its_actions_and_its_time() {
    let grant: Grant = serde_json::from_value(json!({
        "id": "g", "user_id": "u1", "actions": ["shop.*"], "reason": "r",
        "until": "2026-11-21T12:00:00.001Z",
    }))
    .unwrap();
    let asks = policy(&json!([rule(&json!({ "effect": "require_approval" }))]));
    let zone = zone();
    let used = |ask: Ask<'_>, grant: &Grant| {
        asks.decide(&ask, std::slice::from_ref(grant)).grant.is_some()
    };
    assert!(used(ask(&zone), &grant));
    assert!(!used(Ask { user: None, ..ask(&zone) }, &grant));
    assert!(!used(Ask { user: Some("u2"), ..ask(&zone) }, &grant));
    assert!(!used(Ask { action: "mail.send", ..ask(&zone) }, &grant));
    assert!(!used(Ask { at: grant.until, ..ask(&zone) }, &grant));
    assert!(used(Ask { amount: Amount::Unbounded, ..ask(&zone) }, &grant));
    let capped = Grant { cap_micro_usd: Some(1), ..grant };
    assert!(used(ask(&zone), &capped), "its meter says how much is left");
    assert!(!used(Ask { amount: Amount::Unbounded, ..ask(&zone) }, &capped));
    let allowed = policy(&json!([])).decide(&ask(&zone), &[capped]);
    assert_eq!(allowed.grant, None, "what is allowed anyway uses none");
}

#[test]
fn each_loosening_of_a_condition_is_seen_and_each_tightening_is_none() {
    let when = json!({
        "amount_over_micro_usd": 10, "users": ["u1"], "kits": ["k1"], "projects": ["p1"],
        "entities": ["e*"], "hours": { "from": "09:00", "to": "17:00" },
    });
    let old = policy(&json!([rule(&json!({ "when": when }))]));
    let with = |member: &str, value: Value| {
        let mut when = when.clone();
        if value.is_null() {
            when.as_object_mut().unwrap().remove(member);
        } else {
            when[member] = value;
        }
        old.is_loosened_by(&policy(&json!([rule(&json!({ "when": when }))])))
    };
    for member in ["users", "kits", "projects", "entities"] {
        assert!(with(member, json!(["other"])), "{member}");
        assert!(!with(member, Value::Null), "{member}: it holds for all now");
    }
    assert!(!with("users", json!(["u1", "u2"])) && !with("entities", json!(["e*", "f"])));
    assert!(with("amount_over_micro_usd", json!(11)) && !with("amount_over_micro_usd", json!(10)));
    assert!(!with("amount_over_micro_usd", Value::Null));
    assert!(with("hours", json!({ "from": "09:00", "to": "17:01" })));
    assert!(!with("hours", Value::Null));
    let everywhere = policy(&json!([rule(&json!({}))]));
    assert!(!old.is_loosened_by(&everywhere) && everywhere.is_loosened_by(&old));
}

#[test]
fn fewer_people_and_weaker_effects_loosen() {
    let asking = |people: u8| {
        policy(&json!([rule(
            &json!({ "effect": "require_approval", "approvals_required": people })
        )]))
    };
    let denying = policy(&json!([rule(&json!({}))]));
    assert!(asking(3).is_loosened_by(&asking(2)) && !asking(2).is_loosened_by(&asking(3)));
    assert!(!asking(3).is_loosened_by(&denying), "a denial asks nobody and is stricter");
    assert!(denying.is_loosened_by(&asking(10)));
    let shadow = policy(&json!([rule(&json!({ "mode": "shadow" }))]));
    assert!(denying.is_loosened_by(&shadow) && !shadow.is_loosened_by(&Policy::default()));
    let allowing = policy(&json!([rule(&json!({ "effect": "allow" }))]));
    assert!(!allowing.is_loosened_by(&Policy::default()), "what is allowed is so by default");
}

#[test]
fn leave_that_is_new_loosens_a_policy_that_denies_by_default() {
    let closed = |rules: Vec<Rule>| Policy { rules, default: Otherwise::Deny };
    let of = |changes: &Value| policy(&json!([rule(changes)])).rules;
    let allowing = closed(of(&json!({ "effect": "allow" })));
    assert!(closed(Vec::new()).is_loosened_by(&allowing));
    assert!(
        closed(Vec::new()).is_loosened_by(&closed(of(&json!({ "effect": "require_approval" }))))
    );
    assert!(!allowing.is_loosened_by(&allowing));
    let shadow = of(&json!({ "effect": "allow", "mode": "shadow" }));
    assert!(!closed(Vec::new()).is_loosened_by(&closed(shadow)));
    assert!(!closed(Vec::new()).is_loosened_by(&closed(of(&json!({})))), "a denial is no leave");
    assert!(!Policy::default().is_loosened_by(&closed(Vec::new())));
    assert!(!Policy::default().is_loosened_by(&allowing), "all else is denied now");
}

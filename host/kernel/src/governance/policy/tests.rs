//! Verdicts against a reference model that asks every rule in turn.

use std::sync::LazyLock;

use proptest::prelude::*;
use serde_json::json;

use super::*;

static UTC: LazyLock<Zone> = LazyLock::new(|| Zone::parse("UTC").unwrap());

fn policy(rules: serde_json::Value) -> Policy {
    let policy: Policy = serde_json::from_value(json!({ "rules": rules })).unwrap();
    assert_eq!(policy.faults(), []);
    policy
}

fn ask<'a>(action: &'a str, amount: Amount, zone: &'a Zone) -> Ask<'a> {
    let at = Instant::parse("2026-11-21T12:00:00Z").unwrap();
    Ask {
        action,
        amount,
        entity: "card-1",
        user: Some("u1"),
        kit: Some("k1"),
        project: Some("p1"),
        at,
        zone,
    }
}

fn verdict(policy: &Policy, action: &str, amount: i64) -> (Verdict, Vec<String>) {
    let decision = policy.decide(&ask(action, Amount::Of(amount), &UTC), &[]);
    (decision.verdict, decision.rules)
}

#[test]
fn deny_beats_approval_beats_allow_whatever_the_order() {
    let rules = policy(json!([
        { "id": "all", "effect": "allow", "actions": ["*"] },
        { "id": "large", "effect": "require_approval", "actions": ["shop.*"], "when": { "amount_over_micro_usd": 100 } },
        { "id": "never", "effect": "deny", "actions": ["shop.close"] },
    ]));
    assert_eq!(verdict(&rules, "shop.buy", 100), (Verdict::Allow, vec!["all".into()]));
    assert_eq!(verdict(&rules, "shop.buy", 101), (Verdict::RequireApproval, vec!["large".into()]));
    assert_eq!(verdict(&rules, "shop.close", 500), (Verdict::Deny, vec!["never".into()]));
    assert_eq!(verdict(&rules, "post.send", 500), (Verdict::Allow, vec!["all".into()]));
}

#[test]
fn an_amount_that_nobody_named_is_larger_than_any() {
    let rules = policy(
        json!([{ "id": "large", "effect": "deny", "actions": ["*"], "when": { "amount_over_micro_usd": i64::MAX } }]),
    );
    let of = |amount| rules.decide(&ask("shop.refund", amount, &UTC), &[]).verdict;
    assert_eq!(of(Amount::Unbounded), Verdict::Deny);
    assert_eq!(of(Amount::Of(i64::MAX)), Verdict::Allow);
    assert_eq!(of(Amount::None), Verdict::Allow);
}

#[test]
fn a_shadow_rule_is_reported_and_never_acts() {
    let rules =
        policy(json!([{ "id": "try", "effect": "deny", "actions": ["shop.*"], "mode": "shadow" }]));
    let decision = rules.decide(&ask("shop.buy", Amount::Of(1), &UTC), &[]);
    assert_eq!(decision.verdict, Verdict::Allow);
    assert_eq!(decision.shadow, [Shadow { rule: "try".into(), effect: Effect::Deny }]);
    assert!(decision.rules.is_empty());
}

#[test]
fn the_default_can_be_to_deny() {
    let closed = Policy {
        default: Otherwise::Deny,
        ..policy(json!([{ "id": "a", "effect": "allow", "actions": ["post.send"] }]))
    };
    assert_eq!(verdict(&closed, "post.send", 0).0, Verdict::Allow);
    assert_eq!(verdict(&closed, "shop.buy", 0), (Verdict::Deny, vec![]));
}

#[test]
fn the_largest_number_of_people_counts() {
    let rules = policy(json!([
        { "id": "one", "effect": "require_approval", "actions": ["*"] },
        { "id": "two", "effect": "require_approval", "actions": ["shop.*"], "approvals_required": 2 },
    ]));
    let people = |action| rules.decide(&ask(action, Amount::Of(1), &UTC), &[]).approvals_required;
    assert_eq!((people("shop.buy"), people("post.send")), (2, 1));
}

#[test]
fn hours_are_the_organizations_and_may_pass_midnight() {
    let rules = policy(json!([{ "id": "night", "effect": "deny", "actions": ["*"],
        "when": { "hours": { "from": "22:00", "to": "06:00", "days": ["fri"] } } }]));
    let zone = Zone::parse("Europe/Zurich").unwrap();
    let at = |text: &str| {
        let ask =
            Ask { at: Instant::parse(text).unwrap(), ..ask("post.send", Amount::None, &zone) };
        rules.decide(&ask, &[]).verdict
    };
    // 2026-11-20 is a Friday; Zurich is an hour ahead.
    assert_eq!(at("2026-11-20T20:59:59Z"), Verdict::Allow);
    assert_eq!(at("2026-11-20T21:00:00Z"), Verdict::Deny);
    assert_eq!(at("2026-11-20T21:30:00Z"), Verdict::Deny);
    assert_eq!(at("2026-11-21T04:59:59Z"), Verdict::Deny);
    assert_eq!(at("2026-11-21T05:00:00Z"), Verdict::Allow);
    assert_eq!(at("2026-11-21T21:30:00Z"), Verdict::Allow, "the Saturday's night is another");
}

#[test]
fn a_grant_stands_in_for_approval_and_never_against_a_denial() {
    let grant: Grant = serde_json::from_value(
        json!({ "id": "g", "user_id": "u1", "actions": ["shop.*"], "reason": "trip",
        "until": "2026-11-21T12:00:01Z", "cap_micro_usd": 500 }),
    )
    .unwrap();
    let asks = policy(json!([{ "id": "a", "effect": "require_approval", "actions": ["*"] }]));
    let denies = policy(json!([{ "id": "d", "effect": "deny", "actions": ["*"] }]));
    let closed = Policy { default: Otherwise::Deny, ..Policy::default() };
    let with = |policy: &Policy, ask: Ask<'_>| {
        let decision = policy.decide(&ask, std::slice::from_ref(&grant));
        (decision.verdict, decision.grant.is_some())
    };
    let card = || ask("shop.buy", Amount::Of(1), &UTC);
    assert_eq!(with(&asks, card()), (Verdict::Allow, true));
    assert_eq!(with(&closed, card()), (Verdict::Allow, true));
    assert_eq!(with(&denies, card()), (Verdict::Deny, false));
    assert_eq!(
        with(&Policy::default(), card()),
        (Verdict::Allow, false),
        "what is allowed anyway uses no grant"
    );
    assert_eq!(with(&asks, Ask { user: Some("u2"), ..card() }).0, Verdict::RequireApproval);
    assert_eq!(with(&asks, Ask { at: grant.until, ..card() }).0, Verdict::RequireApproval);
    assert_eq!(
        with(&asks, Ask { amount: Amount::Unbounded, ..card() }).0,
        Verdict::RequireApproval
    );
    assert_eq!(with(&asks, Ask { action: "post.send", ..card() }).0, Verdict::RequireApproval);
}

#[test]
fn each_fault_names_its_field() {
    let faults = |rule: serde_json::Value| {
        let policy: Policy = serde_json::from_value(json!({ "rules": [rule] })).unwrap();
        policy.faults().into_iter().map(|fault| fault.path).collect::<Vec<_>>()
    };
    let with = |member: &str, value: serde_json::Value| {
        let mut rule = json!({ "id": "r", "effect": "deny", "actions": ["*"] });
        rule[member] = value;
        faults(rule)
    };
    assert_eq!(with("id", json!("")), ["rules.0.id"]);
    for actions in [
        json!([]),
        json!(["shop"]),
        json!(["Shop.*"]),
        json!(["shop.*.x"]),
        json!(["**"]),
        json!([".*"]),
    ] {
        assert_eq!(with("actions", actions.clone()), ["rules.0.actions"], "{actions}");
    }
    assert_eq!(with("approvals_required", json!(2)), ["rules.0.approvals_required"]);
    assert_eq!(
        with("when", json!({ "amount_over_micro_usd": -1 })),
        ["rules.0.when.amount_over_micro_usd"]
    );
    assert_eq!(with("when", json!({ "users": [] })), ["rules.0.when.users"]);
    let hours = json!({ "hours": { "from": "9:00", "to": "24:01", "days": [] } });
    assert_eq!(
        with("when", hours),
        ["rules.0.when.hours.from", "rules.0.when.hours.to", "rules.0.when.hours.days"]
    );
    for time in ["09:0", "0900", "09:60", "+9:00", "09:+1"] {
        let hours = json!({ "hours": { "from": time, "to": "10:00" } });
        assert_eq!(with("when", hours), ["rules.0.when.hours.from"], "{time}");
    }
    let twice: Policy =
        serde_json::from_value(json!({ "rules": [{ "id": "r", "effect": "deny", "actions": ["*"] }, { "id": "r", "effect": "allow", "actions": ["*"] }] }))
            .unwrap();
    assert_eq!(twice.faults()[0].path, "rules.1.id");
    assert!(serde_json::from_value::<Policy>(json!({ "rules": [], "defualt": "deny" })).is_err());
}

#[test]
fn entities_are_matched_by_their_pieces() {
    for (glob, text, is) in [
        ("*", "", true),
        ("*@example.org", "a@example.org", true),
        ("*@example.org", "a@example.org.evil", false),
        ("a*b*c", "a-b-c", true),
        ("a*b*c", "a-c-b", false),
        ("ab*ba", "aba", false),
        ("card-1", "card-1", true),
        ("card-1", "card-10", false),
    ] {
        assert_eq!(text_matches(glob, text), is, "{glob} {text}");
    }
}

#[test]
fn an_entity_that_is_an_id_is_one_in_either_case() {
    let id = "01a2189e-29ab-77e4-afdc-a66d60009291";
    let names = |entity: &str| -> When {
        serde_json::from_value(json!({ "entities": [entity, "Shop-*"] })).unwrap()
    };
    for (named, asked, is) in [
        (id.to_uppercase(), id.to_owned(), true),
        (id.to_owned(), id.to_uppercase(), true),
        (id.to_owned(), id.replace('1', "2"), false),
        (id.to_owned(), "Shop-1".into(), true),
        (id.to_owned(), "shop-1".into(), false),
    ] {
        let ask = Ask { entity: &asked, ..ask("shop.buy", Amount::None, &UTC) };
        assert_eq!(names(&named).holds(&ask), is, "{named} {asked}");
    }
    assert_eq!(
        names(id),
        names(&id.to_uppercase()),
        "a rule by the other spelling loosens nothing"
    );
}

#[test]
fn loosening_is_what_lets_more_happen() {
    let users = |many: usize| {
        (0..many).map(|n| format!("01a2189e-29ab-77e4-afdc-a66d6000929{n}")).collect::<Vec<_>>()
    };
    let deny = json!({ "id": "d", "effect": "deny", "actions": ["shop.*"], "when": { "users": users(2), "amount_over_micro_usd": 10 } });
    let old = policy(json!([deny]));
    let with = |member: &str, value: serde_json::Value| {
        let mut rule = deny.clone();
        rule[member] = value;
        old.is_loosened_by(&policy(json!([rule])))
    };
    assert!(!old.is_loosened_by(&old));
    assert!(old.is_loosened_by(&Policy::default()));
    assert!(with("effect", json!("require_approval")));
    assert!(with("mode", json!("shadow")));
    assert!(with("actions", json!(["shop.buy"])));
    assert!(with("when", json!({ "users": users(1), "amount_over_micro_usd": 10 })));
    assert!(with("when", json!({ "users": users(2), "amount_over_micro_usd": 11 })));
    assert!(!with("when", json!({ "users": users(3), "amount_over_micro_usd": 9 })));
    assert!(!with("actions", json!(["shop.*", "post.send"])));
    assert!(!with("id", json!("renamed")));
    let closed = Policy { default: Otherwise::Deny, ..old.clone() };
    assert!(closed.is_loosened_by(&old));
    assert!(!old.is_loosened_by(&closed));
    let mut opened = closed.clone();
    opened.rules.extend(policy(json!([{ "id": "a", "effect": "allow", "actions": ["*"] }])).rules);
    assert!(closed.is_loosened_by(&opened));
    assert!(!opened.is_loosened_by(&closed));
}

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let effect =
        prop_oneof![Just(Effect::Allow), Just(Effect::RequireApproval), Just(Effect::Deny)];
    let glob = prop_oneof![Just("*"), Just("shop.*"), Just("shop.buy"), Just("post.send")];
    let over = prop::option::of(0i64..4);
    let users = prop::option::of(prop::collection::btree_set(
        prop_oneof![Just("u1".to_owned()), Just("u2".to_owned())],
        1..3,
    ));
    let rule = (effect, glob, over, users, any::<bool>()).prop_map(
        |(effect, glob, amount_over_micro_usd, users, shadow)| Rule {
            id: String::new(),
            effect,
            actions: vec![glob.into()],
            when: Some(When { amount_over_micro_usd, users, ..When::default() }),
            mode: if shadow { Mode::Shadow } else { Mode::Enforce },
            approvals_required: None,
        },
    );
    prop::collection::vec(rule, 0..6).prop_map(|mut rules| {
        for (at, rule) in rules.iter_mut().enumerate() {
            rule.id = at.to_string();
        }
        rules
    })
}

/// The verdict, found by asking in the order of power.
fn by_hand(policy: &Policy, action: &str, amount: i64, user: &str) -> Verdict {
    let says = |effect: Effect| {
        policy.rules.iter().any(|rule| {
            let when = rule.when.as_ref().unwrap();
            rule.mode == Mode::Enforce
                && rule.effect == effect
                && rule.actions.iter().any(|glob| {
                    glob == "*" || glob == action || (glob == "shop.*" && action == "shop.buy")
                })
                && when.amount_over_micro_usd.is_none_or(|over| amount > over)
                && when.users.as_ref().is_none_or(|users| users.contains(user))
        })
    };
    if says(Effect::Deny) {
        Verdict::Deny
    } else if says(Effect::RequireApproval) {
        Verdict::RequireApproval
    } else if says(Effect::Allow) || policy.default == Otherwise::Allow {
        Verdict::Allow
    } else {
        Verdict::Deny
    }
}

const STRENGTH: [Verdict; 3] = [Verdict::Allow, Verdict::RequireApproval, Verdict::Deny];

proptest! {
    #[test]
    fn the_verdict_is_the_models(rules in rules(), denies in any::<bool>(), amount in 0i64..5, second in any::<bool>(), email in any::<bool>()) {
        let policy = Policy { rules, default: if denies { Otherwise::Deny } else { Otherwise::Allow } };
        let (user, action) = (if second { "u2" } else { "u1" }, if email { "post.send" } else { "shop.buy" });
        let ask = Ask { user: Some(user), ..ask(action, Amount::Of(amount), &UTC) };
        let mut turned = policy.clone();
        turned.rules.reverse();
        let decision = policy.decide(&ask, &[]);
        prop_assert_eq!(decision.verdict, by_hand(&policy, action, amount, user));
        prop_assert_eq!(turned.decide(&ask, &[]).verdict, decision.verdict);
    }

    /// A change that is not called loosening lets nothing more happen.
    #[test]
    fn no_loosening_goes_unseen(old in rules(), new in rules(), from in any::<bool>(), to in any::<bool>()) {
        let of = |rules, denies| Policy { rules, default: if denies { Otherwise::Deny } else { Otherwise::Allow } };
        let (old, new) = (of(old, from), of(new, to));
        if old.is_loosened_by(&new) {
            return Ok(());
        }
        for (action, amount, user) in [("shop.buy", 0, "u1"), ("shop.buy", 3, "u2"), ("post.send", 2, "u1"), ("post.send", 4, "u3")] {
            let strength = |policy: &Policy| {
                let verdict = by_hand(policy, action, amount, user);
                STRENGTH.iter().position(|one| *one == verdict)
            };
            prop_assert!(strength(&new) >= strength(&old), "{} {} {}", action, amount, user);
        }
    }

    #[test]
    fn no_text_panics(glob in "[a*é]{0,12}", text in "[aé]{0,12}", hours in "\\PC{0,6}") {
        text_matches(&glob, &text);
        minute(&hours);
        is_glob(&hours);
    }
}

//! Each verdict against each cap, grant and person; and that whatever comes in, nothing is set aside
//! without leave.

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::calendar::Calendar;
use crate::governance::gauge::{Cap, Look};
use crate::governance::hold::{Counted, meters_space};
use crate::id::{OrganizationId, ProjectId, UserId};
use crate::kit::Period;
use crate::meter::{Admission, Meter};
use crate::scope::{Actor, ActorKind, Proof};
use crate::unit::Reach;

const NOW: Instant = Instant(1_795_600_000_000);
const PEOPLE: [Person; 3] = [Person::Approved(1), Person::Reachable, Person::Absent];

fn zone() -> Zone {
    Zone::parse("UTC").unwrap()
}

fn subject() -> Subject {
    Subject { organization: "o".into(), user: Some("u".into()), ..Subject::default() }
}

fn policy(effect: &str) -> Policy {
    serde_json::from_value(json!({
        "rules": [{ "id": "r", "effect": effect, "actions": ["shop.buy"] }],
    }))
    .unwrap()
}

fn grant(id: &str) -> Grant {
    serde_json::from_value(json!({
        "id": id, "user_id": "u", "actions": ["shop.*"], "until": "2030-01-01T00:00:00Z",
        "reason": "for the test", "max_uses": 1,
    }))
    .unwrap()
}

fn asked(amount: Option<i64>) -> Asked<'static> {
    Asked { action: "shop.buy", entity: "card", spends: true, amount }
}

fn decide(policy: &Policy, grants: &[Grant], full: &BTreeSet<Key>) -> Decision {
    let grounds = Grounds { policy, zone: &zone(), subject: &subject(), at: NOW };
    grounds.decide(&asked(Some(5)), grants, full)
}

fn meter(scope: &str) -> Key {
    Key::new(&Reach::user("u"), &meters_space(), scope)
}

fn gauge(scope: &str, unit: Counted, most: Option<i64>, hard: bool) -> Gauge {
    let calendar = Calendar::new(Period::Day, "UTC").unwrap();
    let row = (Meter::new(calendar.window(NOW).slot, 10), 1);
    let (scope, meter, guards) = (scope.to_owned(), meter(scope), Vec::new());
    match (Cap { scope, unit, meter, most, hard, calendar, guards }).look(Some(row), NOW) {
        Look::Counted(gauge) => gauge,
        Look::Unsummed(unsummed) => unsummed.sum_up(10),
    }
}

fn terms(amount: Option<i64>, spends: bool, pays: bool) -> Terms {
    let account = |name: &str| Key::new(&Reach::user("u"), &meters_space(), name);
    Terms {
        primitive: "shop".into(),
        action: "shop.buy".into(),
        entity: "card".into(),
        component: "shop".into(),
        title: String::new(),
        spends,
        amount,
        capturable: amount.unwrap_or(0),
        reported: false,
        pay: pays.then(|| Pay { from: account("a"), to: account("b"), memo: String::new() }),
        subject: subject(),
        request: "r".into(),
        ordinal: 0,
        at: NOW,
        until: NOW.plus_ms(1_000),
    }
}

#[test]
fn who_approved_before_the_policy_asked_for_more_is_too_few() {
    let two = json!({ "rules": [{ "id": "r", "effect": "require_approval", "actions": ["*"], "approvals_required": 2 }] });
    let decision = decide(&serde_json::from_value(two).unwrap(), &[], &BTreeSet::new());
    assert_eq!(course(&decision, false, Person::Approved(1)), Err(No::MorePeople));
    assert_eq!(course(&decision, false, Person::Approved(2)), Ok(Course::Taken));
    let allowed = decide(&policy("allow"), &[], &BTreeSet::new());
    assert_eq!(course(&allowed, true, Person::Approved(0)), Err(No::MorePeople));
    assert_eq!(course(&allowed, true, Person::Approved(1)), Ok(Course::Taken));
    assert_eq!(course(&allowed, false, Person::Approved(0)), Ok(Course::Taken), "nobody is asked");
}

#[test]
fn how_an_action_goes_on_by_verdict_cap_and_person() {
    let taken = Ok(Course::Taken);
    let asks = |no| [taken, Ok(Course::Pending), Err(no)];
    // (what the policy says, whether it goes beyond a soft cap) and what then becomes of it where
    // people have approved it, where somebody can be asked, and where nobody can.
    let table = [
        (("allow", false), [taken; 3]),
        (("allow", true), asks(No::OverSoftCap)),
        (("require_approval", false), asks(No::ApprovalRequired)),
        (("require_approval", true), asks(No::ApprovalRequired)),
        (("deny", false), [Err(No::Denied); 3]),
        (("deny", true), [Err(No::Denied); 3]),
    ];
    for ((effect, is_beyond), expected) in table {
        let decision = decide(&policy(effect), &[], &BTreeSet::new());
        let seen = PEOPLE.map(|person| course(&decision, is_beyond, person));
        assert_eq!(seen, expected, "{effect}, beyond: {is_beyond}");
    }
}

const PINNED: Spender = Spender { is_pinned: true, is_test: false };

#[test]
fn who_is_pinned_spends_credit_only_below_a_hard_budget_that_is_not_its_own() {
    let from = |name: &str| {
        let account = |name: &str| Key::new(&Reach::user("u"), &meters_space(), name);
        Pay { from: account(name), to: account("b"), memo: String::new() }
    };
    let (credit, own) = (from(CREDIT), from("shop.wallet"));
    let budgets = ["organization", "project", "kit", "user"];
    for hard in [true, false] {
        for scope in budgets {
            let capped = [gauge(scope, Counted::Money, Some(100), hard)];
            let counted = [gauge(scope, Counted::Money, None, hard)];
            let expected = if hard { Ok(()) } else { Err(No::NoCap) };
            assert_eq!(PINNED.may_spend(Some(&credit), &capped), expected, "{scope}, hard: {hard}");
            assert_eq!(PINNED.may_spend(Some(&credit), &counted), Err(No::NoCap), "{scope}");
        }
    }
    // A hard one bounds, whatever soft ones stand beside it.
    let both = [
        gauge("kit", Counted::Money, Some(10), false),
        gauge("organization", Counted::Money, Some(100), true),
    ];
    assert_eq!(PINNED.may_spend(Some(&credit), &both), Ok(()));
    // A card's cap is the caller's own, and a limit says how often.
    let own_say = ["card", "limit:few", "grant:g1"]
        .map(|scope| gauge(scope, Counted::Money, Some(100), true));
    assert_eq!(PINNED.may_spend(Some(&credit), &own_say), Err(No::NoCap));
    for (spender, pay) in
        [(Spender::default(), Some(&credit)), (PINNED, Some(&own)), (PINNED, None)]
    {
        assert_eq!(spender.may_spend(pay, &[]), Ok(()));
    }
    let test = Spender { is_test: true, ..Spender::default() };
    let capped = [gauge("organization", Counted::Money, Some(100), true)];
    assert_eq!(test.may_spend(Some(&credit), &capped), Err(No::LiveCredit));
    assert_eq!(test.may_spend(Some(&own), &[]), Ok(()));
    let refusal = No::NoCap.refusal(&decide(&policy("allow"), &[], &BTreeSet::new()));
    assert_eq!(refusal.reason.as_deref(), Some("no_cap"));
}

#[test]
fn a_grant_stands_in_for_a_person_until_it_is_used_up_and_never_against_a_deny() {
    let (first, second) = (grant("g1"), grant("g2"));
    let grants = [first.clone(), second.clone()];
    let used = |effect: &str, full: &[&Grant]| {
        let full = full.iter().map(|grant| grant_meter(grant, "count")).collect();
        let decision = decide(&policy(effect), &grants, &full);
        (decision.verdict, decision.grant)
    };
    assert_eq!(used("require_approval", &[]), (Verdict::Allow, Some("g1".into())));
    assert_eq!(used("require_approval", &[&first]), (Verdict::Allow, Some("g2".into())));
    assert_eq!(used("require_approval", &[&first, &second]), (Verdict::RequireApproval, None));
    assert_eq!(used("deny", &[]), (Verdict::Deny, None));
    let full = grants.iter().map(|grant| grant_meter(grant, "count")).collect();
    assert_eq!(beyond(&full), BTreeSet::new(), "a grant that is used up is no soft cap");
    let soft = meter("organization");
    let full = full.into_iter().chain([soft.clone()]).collect();
    assert_eq!(beyond(&full), BTreeSet::from([&soft]));
}

#[test]
fn an_amount_that_is_not_named_is_larger_than_any_where_money_is_spent() {
    let amount = |spends, amount| Asked { spends, ..asked(amount) }.to_amount();
    for spends in [true, false] {
        assert_eq!(amount(spends, Some(5)), Amount::Of(5));
    }
    assert_eq!([true, false].map(|spends| amount(spends, None)), [Amount::Unbounded, Amount::None]);
}

#[test]
fn a_spender_is_as_its_scope() {
    let key = || Principal::of(Actor::new(ActorKind::Key, "k"));
    let id = |n| format!("01890000-0000-7000-8000-00000000000{n}");
    let of = |principal, is_test| {
        let scope = Proof::of(principal)
            .organization(OrganizationId::parse(&id(1)).unwrap())
            .project(ProjectId::parse(&id(2)).unwrap(), is_test, false)
            .scope();
        let Spender { is_pinned, is_test } = Spender::of(&scope);
        (is_pinned, is_test)
    };
    assert_eq!(of(key(), false), (false, false));
    assert_eq!(of(key(), true), (false, true));
    let pinned = Principal { user: UserId::parse(&id(3)), ..key() };
    assert_eq!(of(pinned, false), (true, false));
}

#[test]
fn what_is_asked_of_a_cap_is_what_was_asked_for() {
    let gauges = [
        gauge("limit:l", Counted::Times, Some(3), true),
        gauge("organization", Counted::Money, Some(100), true),
        gauge("kit", Counted::Money, None, true),
        gauge("user", Counted::Money, Some(20), false),
    ];
    let soft = meter("user");
    let all = charges(&gauges, Some(15), &BTreeSet::from([&soft]));
    let seen: Vec<_> = all.iter().map(|charge| (charge.amount, charge.admission)).collect();
    let within = Admission::Within;
    let expected =
        [(1, within(3)), (15, within(100)), (15, within(i64::MAX)), (15, Admission::Beyond(20))];
    assert_eq!(seen, expected);
    assert!(charges(&gauges, None, &BTreeSet::new()).iter().all(|charge| charge.amount <= 1));
}

#[test]
fn money_that_does_not_move_is_no_holds() {
    let allowed = || decide(&Policy::default(), &[], &BTreeSet::new());
    let hold =
        |spends, pays| terms(Some(7), spends, pays).hold(allowed(), Course::Taken, Vec::new());
    let amounts = [(true, false), (false, true), (false, false)].map(|(spends, pays)| {
        let hold = hold(spends, pays);
        assert_eq!(hold.capture_max(), 7, "it bounds its capture all the same");
        hold.amount
    });
    assert_eq!(amounts, [Some(7), Some(7), None]);
    let (_, writes) = prepare(&hold(true, true), &[]);
    assert_eq!(writes.len(), 2, "both accounts are there");
}

#[test]
fn a_refusal_names_its_scope_and_what_is_left() {
    let gauges = [
        gauge("limit:few", Counted::Times, Some(3), true),
        gauge("organization", Counted::Money, Some(100), true),
    ];
    let hold = terms(Some(7), true, true).hold(
        decide(&Policy::default(), &[], &BTreeSet::new()),
        Course::Taken,
        charges(&gauges, Some(7), &BTreeSet::new()),
    );
    let count = crate::meter::Count { spent: 95, reserved: 2, ..Default::default() };
    let caller = Principal::of(Actor::new(ActorKind::Key, "k"));
    let told_to = |caller: &Principal, refused: Refused| {
        let refusal = refusal(&refused, &hold, &gauges, caller).unwrap();
        (refusal.reason.unwrap_or_default(), serde_json::Value::Object(refusal.details))
    };
    let told = |refused| told_to(&caller, refused);
    let over = |scope: &str, cap| Refused::OverCap { meter: meter(scope), count, cap };
    let (reason, details) = told(over("organization", 100));
    assert_eq!((reason.as_str(), &details["scope"]), ("budget_exceeded", &json!("organization")));
    assert_eq!(
        (&details["spent_micro_usd"], &details["reserved_micro_usd"]),
        (&json!(95), &json!(2))
    );
    let (reason, details) = told(over("limit:few", 3));
    assert_eq!((reason.as_str(), &details["limit_id"]), ("limit_exceeded", &json!("few")));
    assert_eq!((&details["max"], &details["used"]), (&json!(3), &json!(97)));
    assert_eq!(told(Refused::Frozen { key: meter("organization") }).0, "scope_frozen");
    assert_eq!(told(Refused::Frozen { key: meter("elsewhere") }).0, "account_frozen");
    let account = Key::new(&Reach::user("u"), &meters_space(), "a");
    let (_, details) = told(Refused::Overdrawn { account, available: 4 });
    assert_eq!(
        (&details["available_micro_usd"], &details["amount_micro_usd"]),
        (&json!(4), &json!(7))
    );
    let moved = Refused::Moved { meter: meter("organization") };
    assert_eq!(refusal(&moved, &hold, &gauges, &caller), None);
    // A pin hides the sums of others.
    let pinned = Principal {
        project: ProjectId::parse("01890000-0000-7000-8000-000000000002"),
        ..caller.clone()
    };
    let (_, details) = told_to(&pinned, over("organization", 100));
    assert_eq!(details["scope"], "organization");
    for hidden in ["cap_micro_usd", "spent_micro_usd", "reserved_micro_usd"] {
        assert!(details.get(hidden).is_none(), "{details}");
    }
    let own = Key::new(&Reach::user("u"), &meters_space(), "a");
    let (_, details) = told_to(&pinned, Refused::Overdrawn { account: own, available: 4 });
    assert_eq!(details["available_micro_usd"], 4);
    let credit = Key::new(&Reach::organization("o"), &meters_space(), CREDIT);
    let (_, details) = told_to(&pinned, Refused::Overdrawn { account: credit, available: 4 });
    assert!(details.get("available_micro_usd").is_none(), "{details}");
}

fn effects() -> impl Strategy<Value = &'static str> {
    prop_oneof![Just("allow"), Just("require_approval"), Just("deny")]
}

fn caps() -> impl Strategy<Value = Vec<(Option<i64>, bool, bool)>> {
    let most = prop::option::of(0..40_i64);
    prop::collection::vec((most, any::<bool>(), any::<bool>()), 0..5)
}

proptest! {
    /// Under any rules, caps and people: nothing that a policy denies is held, a hard cap is never
    /// gone beyond, and what goes beyond a soft one has had a person's word or waits for it, and is no
    /// more than the cap.
    #[test]
    fn nothing_is_set_aside_without_leave(
        effect in effects(),
        caps in caps(),
        amount in 0..50_i64,
        granted in any::<bool>(),
        person in prop::sample::select(PEOPLE.to_vec()),
    ) {
        let gauges: Vec<Gauge> = caps.iter().enumerate().map(|(at, (most, hard, _))| {
            gauge(&format!("scope-{at}"), Counted::Money, *most, *hard)
        }).collect();
        // Found full by an attempt before, and with a way beyond.
        let full: BTreeSet<Key> = gauges.iter().zip(&caps)
            .filter(|(gauge, (.., was_full))| *was_full && gauge.gives_way() && !gauge.admits(amount))
            .map(|(gauge, _)| gauge.cap.meter.clone()).collect();
        let grants: Vec<Grant> = granted.then(|| grant("g")).into_iter().collect();
        let decision = decide(&policy(effect), &grants, &full);
        let beyond = beyond(&full);
        let course = match course(&decision, !beyond.is_empty(), person) {
            Ok(course) => course,
            Err(no) => {
                prop_assert!(no == No::Denied || person == Person::Absent);
                prop_assert!(no.refusal(&decision).details.contains_key("policy_ids") || no == No::OverSoftCap);
                return Ok(());
            }
        };
        prop_assert!(effect != "deny");
        let by_a_person = !beyond.is_empty() || (effect == "require_approval" && !granted);
        prop_assert_eq!(course == Course::Pending, by_a_person && person == Person::Reachable);
        let hold = terms(Some(amount), true, false)
            .hold(decision, course, charges(&gauges, Some(amount), &beyond));
        prop_assert_eq!(hold.state == State::Pending, course == Course::Pending);
        for (charge, gauge) in hold.charges.iter().zip(&gauges) {
            let mut meter = Meter::new(gauge.window.slot.clone(), 10);
            let admitted = meter.reserve(&charge.slot, charge.amount, charge.admission).is_ok();
            match charge.admission {
                Admission::Beyond(most) => {
                    prop_assert!(by_a_person && !gauge.cap.hard);
                    prop_assert_eq!((admitted, Some(most)), (amount <= most, gauge.cap.most));
                }
                Admission::Within(_) | Admission::Beside(_) => prop_assert_eq!(admitted, gauge.admits(amount)),
            }
        }
        prop_assert_eq!(hold.charges.len(), gauges.len());
    }
}

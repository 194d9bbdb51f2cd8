//! Caps, policy and holds through the front door: a fixture proposes, captures and keeps what a
//! script says.

use std::collections::HashSet;
use std::slice::from_ref;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use charter_kernel::governance::hold::RECORD_MS;
use charter_kernel::time::Instant as Moment;
use charter_tests::artefacts::Artefacts;
use charter_tests::patience::until;
use charter_tests::tenant::{PASSWORD, id, unique};
use charter_tests::world::Builder;
use charter_tests::{Answer, Client, Database, Tenant, World, on_both};
use serde_json::{Value, json};

use crate::accounts::browser;
use crate::rules::{peer, play, sights};

/// One dollar, as the ledger counts.
const DOLLAR: i64 = 1_000_000;

/// A deployment whose primitives reach this machine.
fn reaching() -> Builder {
    Builder::new().bare().environment("CHARTER_EGRESS_ALLOW", "127.0.0.0/8")
}

/// A tenant of a deployment that plays scripts.
fn tenant_with_script(world: &World) -> Tenant {
    world.install("script", &Artefacts::get().fixture("script"));
    world.register()
}

fn spend(amount: i64) -> Value {
    json!([{ "leave": "script.spend", "amount": amount, "as": "p" }, { "capture": "p", "amount": amount }])
}

/// Gives the default kit's users a budget.
fn budget(tenant: &Tenant, cents: i64, period: &str) {
    let kits = tenant.client.get("/v1/kits").expect(200);
    let kit = kits["kits"][0]["id"].as_str().unwrap().to_owned();
    let change = json!({ "budget": { "cap_cents": cents, "period": period } });
    tenant.client.patch(&format!("/v1/kits/{kit}"), &change).expect(200);
}

/// An hour after the tenant's default user was made, by the host's own clock.
pub fn in_an_hour(client: &Client) -> String {
    let user = client.get("/v1/users/default").expect(200);
    let made = Moment::parse(user["user"]["created_at"].as_str().unwrap()).unwrap();
    made.plus_ms(3_600_000).to_string()
}

/// Gives the organization credit.
pub fn fund(world: &World, tenant: &Tenant, cents: i64) {
    let credit = json!({ "organization_id": tenant.organization, "amount_cents": cents, "memo": "for the test" });
    let operator = world.operator();
    let give = operator
        .call("POST", "/v1/operator/credits")
        .idempotency_key(&unique("credit"))
        .json(&credit);
    // However often it is asked for, it is given once: the tests look at every cent.
    give.clone().send().expect(201);
    give.send().expect(201);
}

/// The spent and the reserved amount of the kit's cap, as the gateway itself says.
fn stands(client: &Client) -> (i64, i64) {
    let told = client
        .post(
            "/v1/governance/simulate",
            &json!({ "action": "script.spend", "amount_micro_usd": 0 }),
        )
        .expect(200);
    let cap = &told["caps"][0];
    (cap["spent_micro_usd"].as_i64().unwrap(), cap["reserved_micro_usd"].as_i64().unwrap())
}

/// Answers of `count` requests that are sent at once, sixteen at a time.
fn at_once(clients: &[Client], count: usize, steps: &Value) -> Vec<Answer> {
    std::thread::scope(|scope| {
        let one = |at: usize| {
            let client = &clients[at % clients.len()];
            scope.spawn(move || {
                (0..count / 16).map(|_| play(client, steps.clone())).collect::<Vec<_>>()
            })
        };
        let running: Vec<_> = (0..16).map(one).collect();
        running.into_iter().flat_map(|one| one.join().unwrap()).collect()
    })
}

/// Runs a race and looks at a cap all the while: what counts against it only grows, and is never
/// more than the cap.
fn watch_cap<T>(client: &Client, cap: i64, race: impl FnOnce() -> T) -> T {
    struct Over<'a>(&'a AtomicBool);
    impl Drop for Over<'_> {
        fn drop(&mut self) {
            self.0.store(true, SeqCst);
        }
    }
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watching = scope.spawn(|| {
            let mut last = 0;
            while !over.load(SeqCst) {
                let (spent, reserved) = stands(client);
                assert!(
                    spent >= last && reserved >= 0 && spent + reserved <= cap,
                    "{spent} and {reserved} of {cap}, after {last}"
                );
                last = spent;
            }
        });
        let raced = {
            let _over = Over(&over);
            race()
        };
        watching.join().unwrap();
        raced
    })
}

/// One call of a cap: when it was made and answered, its amount, and whether it was admitted.
#[derive(Clone, Debug)]
struct Seen {
    called: Duration,
    answered: Duration,
    amount: i64,
    admitted: bool,
}

/// Whether some order of the calls, in which none stands before one that was answered before it was
/// made, is what a cap that is asked one at a time would answer (Wing and Gong, 1993; states that
/// were tried are not tried again, as Lowe has it).
fn linearizable(history: &[Seen], cap: i64) -> bool {
    fn step(
        history: &[Seen],
        cap: i64,
        done: u64,
        spent: i64,
        tried: &mut HashSet<(u64, i64)>,
    ) -> bool {
        if done.count_ones() as usize == history.len() {
            return true;
        }
        if !tried.insert((done, spent)) {
            return false;
        }
        let left = || history.iter().enumerate().filter(|(at, _)| done & (1 << at) == 0);
        let first = left().map(|(_, seen)| seen.answered).min().unwrap_or_default();
        left().filter(|(_, seen)| seen.called <= first).any(|(at, seen)| {
            let fits = spent + seen.amount <= cap;
            let spent = if fits { spent + seen.amount } else { spent };
            fits == seen.admitted && step(history, cap, done | (1 << at), spent, tried)
        })
    }
    step(history, cap, 0, 0, &mut HashSet::new())
}

on_both! {
    fn of_two_hundred_calls_exactly_those_are_admitted_that_the_cap_admits(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        budget(&tenant, 799, "day");
        let answers = watch_cap(&tenant.client, 7_990_000, || at_once(from_ref(&tenant.client), 208, &spend(DOLLAR)));
        assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 7);
        for refused in answers.iter().filter(|answer| answer.status != 200) {
            let error = refused.expect_error(403, "forbidden");
            assert_eq!(error["reason"], "budget_exceeded");
        }
        assert_eq!(stands(&tenant.client), (7 * DOLLAR, 0));
        world.books_agree();
    }

    fn a_refusal_says_which_scope_is_full_and_when_it_resets(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        budget(&tenant, 100, "month");
        tenant.client.patch("/v1/organization", &json!({ "budget": { "cap_cents": 150, "period": "day" } })).expect(200);
        play(&tenant.client, spend(DOLLAR)).expect(200);
        let full = play(&tenant.client, spend(1)).expect_error(403, "forbidden");
        assert_eq!(full["details"]["scope"], "kit");
        assert_eq!(full["details"]["cap_micro_usd"], DOLLAR);
        assert_eq!(full["details"]["spent_micro_usd"], DOLLAR);
        let other = tenant.user("another");
        let client = tenant.client.with("X-Service-User-Id", &other);
        // The other user's budget is its own, the organization's is everybody's: what fails in one
        // scope takes in none.
        let full = play(&client, spend(DOLLAR)).expect_error(403, "forbidden");
        assert_eq!(full["details"]["scope"], "organization");
        assert!(full["details"]["resets_at"].as_str().is_some_and(|at| at.ends_with("T00:00:00.000Z")), "{full}");
        play(&client, spend(DOLLAR / 2)).expect(200);
        world.books_agree();
    }

    fn what_a_request_does_not_capture_is_given_back(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        budget(&tenant, 100, "day");
        let leave = json!({ "leave": "script.spend", "amount": DOLLAR, "as": "p" });
        play(&tenant.client, json!([leave, { "note": "note" }])).expect(200);
        play(&tenant.client, json!([leave, { "refuse": "state_conflict" }])).expect_error(409, "state_conflict");
        play(&tenant.client, json!([leave, { "capture": "p", "amount": DOLLAR }, { "trap": 1 }])).expect_error(500, "internal_error");
        play(&tenant.client, json!([leave, { "cancel": "p" }])).expect(200);
        assert_eq!(stands(&tenant.client), (0, 0));
        play(&tenant.client, json!([leave, { "capture": "p", "amount": DOLLAR / 4 }])).expect(200);
        assert_eq!(stands(&tenant.client), (DOLLAR / 4, 0));
        world.books_agree();
    }

    fn a_run_again_is_given_the_same_leave(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        budget(&tenant, 10_000, "day");
        play(&tenant.client, json!([{ "note": "note", "slug": "hot" }])).expect(200);
        // Sixteen write one document: each is run again until its turn comes, and spends once.
        let steps = json!([{ "leave": "script.spend", "amount": DOLLAR, "as": "p" }, { "bump": "hot" }, { "capture": "p", "amount": DOLLAR }]);
        let answers = at_once(from_ref(&tenant.client), 32, &steps);
        let done = answers.iter().filter(|answer| answer.status == 200).count() as i64;
        assert!(done >= 16, "only {done} were done");
        assert_eq!(stands(&tenant.client), (done * DOLLAR, 0));
        world.books_agree();
    }

    fn policy_denies_and_a_shadow_rule_does_not(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        let rule = |effect: &str, mode: &str| json!({ "rules": [{ "id": "r1", "effect": effect, "mode": mode, "actions": ["script.spend"],
            "when": { "amount_over_micro_usd": DOLLAR } }] });
        tenant.client.put("/v1/governance/policy", &rule("deny", "shadow")).expect(200);
        play(&tenant.client, spend(2 * DOLLAR)).expect(200);
        tenant.client.put("/v1/governance/policy", &rule("deny", "enforce")).expect(200);
        play(&tenant.client, spend(DOLLAR)).expect(200);
        let denied = play(&tenant.client, spend(2 * DOLLAR)).expect_error(403, "forbidden");
        assert_eq!((&denied["reason"], &denied["details"]["policy_ids"]), (&json!("policy_denied"), &json!(["r1"])));
        let asked = |amount: i64| {
            let question = json!({ "action": "script.spend", "amount_micro_usd": amount });
            tenant.client.post("/v1/governance/simulate", &question).expect(200)["verdict"].clone()
        };
        assert_eq!((asked(DOLLAR), asked(2 * DOLLAR)), (json!("allow"), json!("deny")));
        let stale = json!({ "rules": [], "expected_version": 1 });
        tenant.client.put("/v1/governance/policy", &stale).expect_error(409, "version_conflict");
        let faults = tenant.client.put("/v1/governance/policy", &rule("dney", "enforce")).expect_error(400, "invalid_input");
        assert_eq!(faults["param"], "rules.0.effect");
        world.books_agree();
    }

    fn tightening_is_anyones_who_writes_and_loosening_is_not(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        let developer = tenant.key(json!({ "role": "developer" }));
        let pinned = tenant.key(json!({ "role": "admin", "user_id": tenant.user }));
        budget(&tenant, 100, "day");
        let user = |cents: i64| json!({ "budget": { "cap_cents": cents, "period": "day" } });
        let path = format!("/v1/users/{}", tenant.user);
        developer.patch(&path, &user(50)).expect(200);
        assert_eq!(developer.patch(&path, &user(60)).expect_error(403, "forbidden")["reason"], "loosening_not_allowed");
        // An agent's own key does not change its bounds.
        assert_eq!(pinned.patch(&path, &user(40)).expect_error(403, "forbidden")["reason"], "pinned");
        assert_eq!(play(&pinned, spend(DOLLAR)).expect_error(403, "forbidden")["details"]["scope"], "user");
        tenant.client.patch(&path, &user(60)).expect(200);
        tenant.client.put("/v1/governance/policy", &json!({ "rules": [] })).expect(200);
        world.books_agree();
    }

    fn money_moves_between_accounts_with_the_capture_and_credit_is_never_overdrawn(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        play(&tenant.client, json!([{ "open": "wallet" }])).expect(200);
        let pay = json!([
            { "leave": "script.spend", "amount": 3 * DOLLAR, "as": "p", "pays": ["credit", "wallet"] },
            { "capture": "p", "amount": 3 * DOLLAR },
        ]);
        play(&tenant.client, pay.clone()).expect_error(402, "insufficient_credits");
        fund(world, &tenant, 1_000);
        let answers = at_once(from_ref(&tenant.client), 16, &pay);
        assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 3, "ten dollars pay three times three");
        let told = sights(&play(&tenant.client, json!([{ "balance": "wallet" }, { "balance": "credit" }, { "entries": "wallet" }])));
        assert_eq!(told[0], json!({ "posted": 9 * DOLLAR, "available": 9 * DOLLAR }));
        assert_eq!(told[1], json!({ "posted": DOLLAR, "available": DOLLAR }));
        assert_eq!(told[2], json!([[3 * DOLLAR, "credit"], [3 * DOLLAR, "credit"], [3 * DOLLAR, "credit"]]));
        // Money leaves the organization's credit by leave only.
        play(&tenant.client, json!([{ "move": 1, "from": "credit", "to": "wallet" }])).expect_error(400, "invalid_input");
        play(&tenant.client, json!([{ "move": DOLLAR, "from": "wallet", "to": "credit" }])).expect(200);
        play(&tenant.client, json!([{ "move": 9 * DOLLAR, "from": "wallet", "to": "credit" }])).expect_error(402, "insufficient_credits");
        world.books_agree();
    }

    fn a_hold_that_was_kept_is_settled_by_one_later_request(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        budget(&tenant, 100, "day");
        let kept = json!([{ "leave": "script.spend", "amount": DOLLAR, "as": "p" }, { "keep": "p", "seconds": 600 }]);
        let hold = sights(&play(&tenant.client, kept))[0].clone();
        assert_eq!(stands(&tenant.client), (0, DOLLAR));
        play(&tenant.client, spend(1)).expect_error(403, "forbidden");
        // One that does not settle it gives it back as it was.
        play(&tenant.client, json!([{ "reopen": hold, "as": "p" }])).expect(200);
        assert_eq!(stands(&tenant.client), (0, DOLLAR));
        let settle = json!([{ "reopen": hold, "as": "p" }, { "capture": "p", "amount": DOLLAR / 2 }]);
        let neighbour = tenant.client.post("/v1/users", &json!({ "name": "neighbour" })).expect(201)["user"]["id"].clone();
        let path = format!("/v1/users/{}/script", neighbour.as_str().unwrap());
        tenant.client.post(&path, &json!({ "steps": settle })).expect_error(404, "not_found");
        let answers = at_once(from_ref(&tenant.client), 16, &settle);
        assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 1);
        assert_eq!(stands(&tenant.client), (DOLLAR / 2, 0));
        let again = play(&tenant.client, settle).expect_error(409, "state_conflict");
        assert_eq!(again["reason"], "PERMIT_SETTLED");
        let stranger = world.register();
        play(&stranger.client, json!([{ "reopen": hold, "as": "p" }])).expect_error(404, "not_found");
        world.books_agree();
    }

    fn caps_of_a_primitives_own_count_beside_the_hosts(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        play(&tenant.client, json!([{ "cap": "b1", "amount": 2 * DOLLAR }])).expect(200);
        let within = |id: &str| json!([
            { "leave": "script.spend", "amount": DOLLAR, "as": "p", "within": id }, { "capture": "p", "amount": DOLLAR },
        ]);
        let answers = at_once(from_ref(&tenant.client), 16, &within("b1"));
        assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 2);
        play(&tenant.client, within("b2")).expect(200);
        assert_eq!(play(&tenant.client, within("b1")).expect_error(403, "forbidden")["details"]["scope"], "box");
        world.books_agree();
    }

    fn a_cards_cap_begins_with_what_the_card_has_spent_and_holds(world: Builder::new()) {
        let tenant = world.register();
        fund(world, &tenant, 20_000);
        let client = &tenant.client;
        let made = client.post("/v1/cards", &json!({ "label": "books" })).expect(201);
        let card = format!("/v1/cards/{}", made["card"]["id"].as_str().unwrap());
        client.post(&format!("{card}/top-up"), &json!({ "amount_cents": 15_000 })).expect(200);
        let authorize = |cents: u32| {
            client.post(&format!("{card}/authorizations"), &json!({ "amount_cents": cents, "merchant": "books" }))
        };
        let capture = |made: Value| {
            let id = made["authorization"]["id"].as_str().unwrap().to_owned();
            client.post(&format!("{card}/authorizations/{id}/capture"), &json!({})).expect(200);
        };
        let set = |change: Value| client.patch(&card, &change).expect(200);
        let is_full = || assert_eq!(authorize(1).expect_error(403, "forbidden")["details"]["scope"], "card");
        capture(authorize(5_000).expect(201));
        let held = authorize(3_000).expect(201);
        // Less than what was spent and is held, and just as much.
        set(json!({ "cap_cents": 1_000, "period": "month" }));
        is_full();
        set(json!({ "cap_cents": 8_000 }));
        is_full();
        capture(held);
        is_full();
        // Another period is no new beginning, and neither is the one before.
        for period in ["day", "month", "day", "total"] {
            set(json!({ "period": period }));
            is_full();
        }
        set(json!({ "cap_cents": 9_000 }));
        capture(authorize(1_000).expect(201));
        is_full();
        world.books_agree();
    }

    fn a_grant_stands_in_for_a_person_until_it_is_used_up(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        let rules = json!({ "rules": [{ "id": "ask", "effect": "require_approval", "actions": ["script.spend"] }] });
        tenant.client.put("/v1/governance/policy", &rules).expect(200);
        play(&tenant.client, spend(DOLLAR)).expect(202);
        let give = |changes: Value| {
            let mut grant = json!({ "user_id": tenant.user, "actions": ["script.*"], "until": in_an_hour(&tenant.client), "reason": "a trip" });
            grant.as_object_mut().unwrap().extend(changes.as_object().unwrap().clone());
            tenant.client.post("/v1/governance/grants", &grant)
        };
        give(json!({ "max_uses": 3 })).expect(201);
        let answers = at_once(from_ref(&tenant.client), 16, &spend(1));
        assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 3);
        assert!(answers.iter().all(|answer| matches!(answer.status, 200 | 202)), "what is used up asks a person again");
        // A simulation says the same.
        let foreseen = |amount: i64| {
            let question = json!({ "action": "script.spend", "amount_micro_usd": amount, "user_id": tenant.user });
            tenant.client.post("/v1/governance/simulate", &question).expect(200)["verdict"].clone()
        };
        assert_eq!(foreseen(1), "require_approval");
        give(json!({ "cap_micro_usd": 2 * DOLLAR })).expect(201);
        assert_eq!((foreseen(2 * DOLLAR), foreseen(2 * DOLLAR + 1)), (json!("allow"), json!("require_approval")));
        play(&tenant.client, spend(2 * DOLLAR)).expect(200);
        assert_eq!(foreseen(1), "require_approval");
        play(&tenant.client, spend(1)).expect(202);
        let given = give(json!({})).expect(201);
        play(&tenant.client, spend(5 * DOLLAR)).expect(200);
        tenant.client.delete(&format!("/v1/governance/grants/{}", given["grant"]["id"].as_str().unwrap())).expect(200);
        play(&tenant.client, spend(1)).expect(202);
        // Against a denial it is nothing.
        give(json!({})).expect(201);
        let rules = json!({ "rules": [{ "id": "ask", "effect": "require_approval", "actions": ["script.spend"] },
            { "id": "no", "effect": "deny", "actions": ["script.spend"] }] });
        tenant.client.put("/v1/governance/policy", &rules).expect(200);
        assert_eq!(play(&tenant.client, spend(1)).expect_error(403, "forbidden")["reason"], "policy_denied");
        let key = tenant.client.post("/v1/auth/keys", &json!({ "name": "dev", "role": "developer" })).expect(201);
        let grant = json!({ "user_id": tenant.user, "actions": ["*"], "until": in_an_hour(&tenant.client), "reason": "mine" });
        tenant.client.bearer(key["key"].as_str().unwrap()).post("/v1/governance/grants", &grant).expect_error(403, "forbidden");
        world.books_agree();
    }

    fn a_rate_of_a_primitive_admits_so_many_and_says_when_the_next(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        let take = json!([{ "rate": "edits", "reach": "organization", "amount": 5, "seconds": 600 }]);
        let answers = at_once(from_ref(&tenant.client), 32, &take);
        assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 5);
        let refused = answers.iter().find(|answer| answer.status != 200).unwrap();
        refused.expect_error(429, "rate_limited");
        let wait: u32 = refused.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=600).contains(&wait), "{wait}");
        // Everybody shares it, and each rate is its own.
        let other = tenant.client.with("X-Service-User-Id", &tenant.user("other"));
        play(&other, take).expect_error(429, "rate_limited");
        let own = |reach: &str| json!([{ "rate": "own", "reach": reach, "amount": 1, "seconds": 600 }]);
        play(&other, own("user")).expect(200);
        play(&tenant.client, own("user")).expect(200);
        play(&other, own("user")).expect_error(429, "rate_limited");
        // A request that comes to nothing gives back its part of the rate.
        let late = |end: Value| json!([{ "rate": "late", "reach": "user", "amount": 1, "seconds": 600 }, end]);
        play(&tenant.client, late(json!({ "refuse": "state_conflict" }))).expect_error(409, "state_conflict");
        play(&tenant.client, late(json!({ "trap": 1 }))).expect_error(500, "internal_error");
        play(&tenant.client, late(json!({ "note": "note" }))).expect(200);
        play(&tenant.client, late(json!({ "note": "note" }))).expect_error(429, "rate_limited");
        play(&tenant.client, json!([{ "rate": "bad", "reach": "world", "amount": 1, "seconds": 1 }])).expect_error(400, "invalid_input");
    }

    fn what_callers_see_of_a_cap_is_what_one_at_a_time_would_see(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        budget(&tenant, 2_000, "day");
        let history = Mutex::new(Vec::new());
        let began = Instant::now();
        std::thread::scope(|scope| {
            for caller in 0..8_i64 {
                let (history, client) = (&history, &tenant.client);
                scope.spawn(move || {
                    for n in 0..5 {
                        let amount = (1 + (caller * 5 + n) % 4) * DOLLAR / 4 * 3;
                        let called = began.elapsed();
                        let status = play(client, spend(amount)).status;
                        assert!(matches!(status, 200 | 403), "{status}");
                        history.lock().unwrap().push(Seen { called, answered: began.elapsed(), amount, admitted: status == 200 });
                    }
                });
            }
        });
        let history = history.into_inner().unwrap();
        assert!(history.iter().any(|seen| !seen.admitted) && history.iter().any(|seen| seen.admitted));
        assert!(linearizable(&history, 20 * DOLLAR), "no order of {history:?} explains what was seen");
        // And the check finds one that is not.
        let mut wrong = history;
        let admitted = wrong.iter_mut().find(|seen| !seen.admitted).unwrap();
        admitted.admitted = true;
        (admitted.called, admitted.answered) = (Duration::from_secs(3_600), Duration::from_secs(3_601));
        assert!(!linearizable(&wrong, 20 * DOLLAR));
        world.books_agree();
    }

    fn who_took_a_hold_in_doubt_is_asked_what_became_of_it(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        budget(&tenant, 1_000, "day");
        for entity in ["it-arrived", "it-never-arrived", "nobody-knows"] {
            play(&tenant.client, json!([{ "leave": "script.spend", "amount": DOLLAR, "entity": entity, "as": "p" }, { "dispatch": "p" }])).expect(200);
        }
        let holds = |state: &str| tenant.client.get(&format!("/v1/governance/holds?state={state}")).expect(200)["holds"].clone();
        let counts = || ["captured", "voided", "in_doubt"].map(|state| holds(state).as_array().unwrap().len());
        until("those of which something is known are settled", || counts() == [1, 1, 1]);
        assert_eq!(holds("in_doubt")[0]["entity"], "nobody-knows");
        assert_eq!(stands(&tenant.client), (DOLLAR, DOLLAR));
        world.books_agree();
    }

    fn holds_are_listed_newest_first_of_one_state_or_all(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        // A hold that the request gives back after something has left is voided.
        let captured = json!([{ "leave": "script.spend", "amount": DOLLAR, "as": "p" }, { "dispatch": "p" }, { "capture": "p", "amount": DOLLAR }]);
        let voided = json!([{ "leave": "script.spend", "amount": DOLLAR, "as": "p" }, { "dispatch": "p" }, { "cancel": "p" }]);
        for n in 0..9 {
            play(&tenant.client, if n % 3 == 0 { voided.clone() } else { captured.clone() }).expect(200);
        }
        let walk = |state: &str| {
            let (mut seen, mut query) = (Vec::new(), format!("limit=2{state}"));
            loop {
                let page = tenant.client.get(&format!("/v1/governance/holds?{query}")).expect(200);
                let holds = page["holds"].as_array().unwrap();
                assert!(holds.len() <= 2);
                seen.extend(holds.iter().map(|hold| (hold["id"].as_str().unwrap().to_owned(), hold["state"].clone())));
                assert_eq!(page["has_more"], page["next_cursor"].is_string());
                let Some(cursor) = page["next_cursor"].as_str() else { return seen };
                query = format!("limit=2{state}&cursor={cursor}");
            }
        };
        let all = walk("");
        assert_eq!(all.len(), 9);
        assert!(all.is_sorted_by(|one, two| one.0 > two.0), "newest first");
        for state in ["captured", "voided", "held"] {
            let of: Vec<_> = all.iter().filter(|hold| hold.1 == state).cloned().collect();
            assert_eq!(walk(&format!("&state={state}")), of, "{state}");
        }
        assert_eq!(walk("&state=voided").len(), 3);
    }

    fn limits_count_how_often_and_for_how_much(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        let limits = |count: i64, amount: i64| json!({ "limits": [
            { "id": "sends", "actions": ["script.send"], "period": "day", "max_count": count },
            { "id": "large", "actions": ["script.spend"], "period": "total", "max_amount_micro_usd": amount },
        ] });
        tenant.client.put("/v1/governance/limits", &limits(3, 2 * DOLLAR)).expect(200);
        let send = json!([{ "leave": "script.send", "as": "p" }, { "capture": "p", "amount": 0 }]);
        let answers = at_once(from_ref(&tenant.client), 32, &send);
        assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 3);
        let refused = answers.iter().find(|answer| answer.status != 200).unwrap().expect_error(403, "forbidden");
        assert_eq!((&refused["reason"], &refused["details"]["limit_id"]), (&json!("limit_exceeded"), &json!("sends")));
        // A hold that was not captured does not count, and another user counts by itself.
        let other = tenant.client.with("X-Service-User-Id", &tenant.user("other"));
        for _ in 0..4 {
            play(&other, json!([{ "leave": "script.send", "as": "p" }])).expect(200);
        }
        play(&other, spend(2 * DOLLAR)).expect(200);
        assert_eq!(play(&other, spend(1)).expect_error(403, "forbidden")["details"]["limit_id"], "large");
        let question = json!({ "action": "script.send" });
        let asked = tenant.client.post("/v1/governance/simulate", &question).expect(200);
        assert_eq!((&asked["verdict"], &asked["reason"]), (&json!("deny"), &json!("limit_exceeded")));
        tenant.client.put("/v1/governance/limits", &limits(4, 2 * DOLLAR)).expect(200);
        play(&tenant.client, send.clone()).expect(200);
        play(&tenant.client, send).expect_error(403, "forbidden");
        let wrong = json!({ "limits": [{ "id": "x", "actions": ["Script"], "period": "day", "max_count": 1 }] });
        let fault = tenant.client.put("/v1/governance/limits", &wrong).expect_error(400, "invalid_input");
        assert_eq!(fault["param"], "limits.0.actions");
        world.books_agree();
    }

    fn an_id_is_one_in_either_case(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        let client = &tenant.client;
        let spend = || play(client, spend(1));
        let user = client.get("/v1/users").expect(200)["users"][0].clone();
        let (user, kit, project) = (id(&user), id(&client.get("/v1/kits").expect(200)["kits"][0]), id(&client.get("/v1/projects").expect(200)["projects"][0]));
        for (of, named) in [("users", &user), ("kits", &kit), ("projects", &project)] {
            let rules = json!({ "rules": [{ "id": "no", "effect": "deny", "actions": ["script.*"], "when": { of: [named.to_uppercase()] } }] });
            let kept = client.put("/v1/governance/policy", &rules).expect(200);
            assert!(kept.to_string().contains(named), "{kept}");
            assert_eq!(spend().expect_error(403, "forbidden")["reason"], "policy_denied", "{of}");
            let wrong = json!({ "rules": [{ "id": "no", "effect": "deny", "actions": ["*"], "when": { of: ["nonsense"] } }] });
            let fault = client.put("/v1/governance/policy", &wrong).expect_error(400, "invalid_input");
            assert_eq!(fault["param"], format!("rules.0.when.{of}"));
        }
        client.put("/v1/governance/policy", &json!({ "rules": [] })).expect(200);
        let limits = |users: Value| json!({ "limits": [{ "id": "none", "actions": ["script.*"], "period": "day", "max_count": 0, "users": users }] });
        client.put("/v1/governance/limits", &limits(json!([user.to_uppercase()]))).expect(200);
        assert_eq!(spend().expect_error(403, "forbidden")["reason"], "limit_exceeded");
        assert_eq!(client.put("/v1/governance/limits", &limits(json!(["nonsense"]))).expect_error(400, "invalid_input")["param"], "limits.0.users");
        client.put("/v1/governance/limits", &json!({ "limits": [] })).expect(200);
        // A grant is its user's, and goes with them.
        let ask = json!({ "rules": [{ "id": "ask", "effect": "require_approval", "actions": ["script.*"] }] });
        client.put("/v1/governance/policy", &ask).expect(200);
        spend().expect(202);
        let end = in_an_hour(client);
        let grant = |user: &str| json!({ "user_id": user.to_uppercase(), "actions": ["script.*"], "until": end, "reason": "while it is away" });
        client.post("/v1/governance/grants", &grant(&user)).expect(201);
        spend().expect(200);
        let other = tenant.user("other");
        client.post("/v1/governance/grants", &grant(&other)).expect(201);
        for path in ["governance/grants", "logs"] {
            let of = |user: &str| client.get(&format!("/v1/{path}?user_id={user}")).expect(200).to_string();
            // An audit row is read once it has its number.
            until("it is shown", || of(&other).contains("while it is away"));
            assert!(of(&other.to_uppercase()).contains("while it is away"), "{path}");
        }
        client.delete(&format!("/v1/users/{other}")).expect(200);
        let grants = || client.get("/v1/governance/grants").expect(200)["grants"].as_array().unwrap().len();
        until("it goes with its user", || grants() == 1);
        // A binding is its organization's.
        let bound = |scope: Value| json!({ "kind": "http", "url": "http://127.0.0.1:9", "scope": scope });
        for (of, named) in [("organization", &tenant.organization), ("project", &project)] {
            let kept = world.operator().put("/v1/operator/providers/script.peer", &bound(json!({ of: named.to_uppercase() }))).expect(200);
            assert_eq!(kept["provider"]["scope"], json!({ of: named }));
            let path = format!("/v1/operator/providers/script.peer?{of}_id={}", named.to_uppercase());
            assert_eq!(world.operator().get(&path).expect(200)["provider"]["scope"], json!({ of: named }));
            world.operator().delete(&path).expect(200);
        }
    }

    fn a_simulation_is_about_whom_the_request_names(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        let (agent, other) = (tenant.user("agent"), tenant.user("other"));
        let cap = json!({ "budget": { "cap_cents": 50, "period": "week" } });
        tenant.client.patch(&format!("/v1/users/{agent}"), &cap).expect(200);
        let ask = |client: &Client, user: Option<&str>| {
            let mut question = json!({ "action": "script.spend", "amount_micro_usd": DOLLAR });
            if let Some(user) = user {
                question["user_id"] = json!(user);
            }
            client.post("/v1/governance/simulate", &question)
        };
        let by_header = tenant.client.with("x-service-user-id", &agent);
        for told in [ask(&by_header, None), ask(&by_header, Some(&agent)), ask(&tenant.client, Some(&agent))] {
            let told = told.expect(200);
            assert_eq!((&told["reason"], &told["user_id"]), (&json!("budget_exceeded"), &json!(agent)));
        }
        play(&by_header, spend(DOLLAR)).expect_error(403, "forbidden");
        let own = ask(&tenant.client, None).expect(200);
        assert_eq!((&own["verdict"], &own["user_id"]), (&json!("allow"), &json!(tenant.user)));
        let told = ask(&by_header, Some(&other)).expect_error(400, "invalid_input");
        assert_eq!(told["param"], "user_id");
        let pinned = tenant.key(json!({ "user_id": agent }));
        assert_eq!(ask(&pinned, None).expect(200)["user_id"], json!(agent));
        ask(&pinned, Some(&other)).expect_error(404, "resource_not_found");
    }

    fn a_simulation_shows_a_pinned_credential_no_sums_of_others(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        let agent = tenant.user("agent");
        let cap = json!({ "budget": { "cap_cents": 2_000, "period": "week" } });
        tenant.client.patch("/v1/organization", &cap).expect(200);
        tenant.client.patch(&format!("/v1/projects/{}", tenant.project), &cap).expect(200);
        tenant.client.patch(&format!("/v1/users/{agent}"), &cap).expect(200);
        let question = json!({ "action": "script.spend", "amount_micro_usd": DOLLAR, "user_id": agent });
        let seen = |client: &Client| -> Vec<String> {
            let asked = client.post("/v1/governance/simulate", &question).expect(200);
            assert_eq!(asked["verdict"], "allow", "{asked}");
            asked["caps"].as_array().unwrap().iter().map(|cap| cap["scope"].as_str().unwrap().to_owned()).collect()
        };
        assert_eq!(seen(&tenant.client), ["organization", "project", "user"]);
        assert_eq!(seen(&tenant.key(json!({ "project_id": tenant.project }))), ["project", "user"]);
        let pinned = tenant.key(json!({ "user_id": agent }));
        assert_eq!(seen(&pinned), ["user"]);
        // Nor by a yes or no: another has spent nearly all that the organization may.
        let other = tenant.client.with("X-Service-User-Id", &tenant.user("other"));
        play(&other, spend(20 * DOLLAR - 1)).expect(200);
        assert_eq!(seen(&pinned), ["user"]);
        let all = tenant.client.post("/v1/governance/simulate", &question).expect(200);
        assert_eq!(all["reason"], "budget_exceeded");
    }

    fn spend_is_told_by_tenant_by_kind_and_by_window(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        let agent = tenant.user("agent");
        let client = tenant.client.with("X-Service-User-Id", &agent);
        budget(&tenant, 1_000, "week");
        play(&tenant.client, spend(DOLLAR)).expect(200);
        play(&client, spend(2 * DOLLAR)).expect(200);
        play(&client, spend(DOLLAR / 2)).expect(200);
        let listed = tenant.client.get("/v1/spend").expect(200);
        let rows: Vec<(Value, Value, Value)> = listed["spend"].as_array().unwrap().iter()
            .map(|row| (row["user_id"].clone(), row["spent_cents"].clone(), row["cap_cents"].clone())).collect();
        assert_eq!(rows, [(json!(tenant.user), json!(100), json!(1_000)), (json!(agent), json!(250), json!(1_000))]);
        assert_eq!(listed["spend"][0]["enforced"], true);
        let second = tenant.client.get("/v1/spend?limit=1&offset=1").expect(200);
        assert_eq!((&second["spend"][0]["user_id"], &second["has_more"]), (&json!(agent), &json!(false)));
        let by = |what: &str| tenant.client.get(&format!("/v1/governance/spend?by={what}")).expect(200)["spend"].clone();
        assert_eq!(by("action")[0]["spent_micro_usd"], 7 * DOLLAR / 2);
        assert_eq!(by("user").as_array().unwrap().iter().map(|row| row["count"].as_i64().unwrap()).sum::<i64>(), 3);
        // Two reports that follow each other count each record once.
        let now = tenant.seconds() * 1_000;
        let quarter = Moment(now - now.rem_euclid(RECORD_MS));
        let between = |since: Moment, to: Moment| {
            let path = format!("/v1/governance/spend?since={since}&until={to}");
            let rows = tenant.client.get(&path).expect(200)["spend"].clone();
            rows.as_array().unwrap().iter().map(|row| row["spent_micro_usd"].as_i64().unwrap()).sum::<i64>()
        };
        let (first, last) = (quarter.plus_ms(-RECORD_MS), quarter.plus_ms(RECORD_MS));
        assert_eq!(between(first, quarter) + between(quarter, last), 7 * DOLLAR / 2);
        assert_eq!(between(quarter, quarter), 0);
        let path = format!("/v1/teams/{}/tenants/{agent}/cost?by=action", tenant.project);
        let report = tenant.client.get(&path).expect(200);
        assert_eq!(report["period"]["name"], "week");
        let bucket = json!([{ "key": "script.spend", "cents": 250, "class": "script", "cap_cents": 1_000, "enforced": false }]);
        assert_eq!(report["buckets"], bucket);
        let other = tenant.client.get(&path.replace("by=action", "by=model")).expect_error(400, "invalid_input");
        assert_eq!(other["param"], "by");
        world.register().client.get(&path).expect_error(404, "not_found");
        // Of two budgets the lower one is told: the user's own, its kit's, or the only one.
        let set_own = |cents: i64| {
            let change = json!({ "budget": { "cap_cents": cents, "period": "month" } });
            tenant.client.patch(&format!("/v1/users/{agent}"), &change).expect(200);
        };
        let told = || {
            let row = tenant.client.get("/v1/spend").expect(200)["spend"][1].clone();
            let report = tenant.client.get(&path).expect(200);
            let limits = tenant.client.get(&format!("/v1/limits?tenant={agent}")).expect(200);
            assert_eq!(limits["budget"], json!({ "capCents": row["cap_cents"], "period": row["period"], "hard": true }));
            assert_eq!((&report["buckets"][0]["cap_cents"], &report["period"]["name"]), (&row["cap_cents"], &row["period"]));
            assert_eq!(json!([row["user_id"], row["enforced"], row["hard"], row["spent_cents"]]), json!([agent, true, true, 250]));
            (row["cap_cents"].clone(), row["period"].clone())
        };
        set_own(600);
        assert_eq!(told(), (json!(600), json!("month")));
        set_own(2_000);
        assert_eq!(told(), (json!(1_000), json!("week")));
        let kit = id(&tenant.client.get("/v1/kits").expect(200)["kits"][0]);
        tenant.client.patch(&format!("/v1/kits/{kit}"), &json!({ "budget": null })).expect(200);
        assert_eq!(told(), (json!(2_000), json!("month")));
        assert_eq!(play(&client, spend(18 * DOLLAR)).expect_error(403, "forbidden")["details"]["scope"], "user");
        let quiet = format!("/v1/teams/default/tenants/{}/cost", tenant.user("quiet"));
        assert_eq!(tenant.client.get(&quiet).expect(200)["buckets"], json!([]));
        world.books_agree();
    }

    fn the_books_outlive_whom_they_are_about(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        fund(world, &tenant, 1_000);
        let agent = tenant.user("agent");
        let client = tenant.client.with("X-Service-User-Id", &agent);
        play(&client, json!([{ "open": "wallet" }, { "note": "note" }])).expect(200);
        play(&client, json!([
            { "leave": "script.spend", "amount": 3 * DOLLAR, "as": "p", "pays": ["credit", "wallet"] },
            { "capture": "p", "amount": 3 * DOLLAR },
        ])).expect(200);
        tenant.client.delete(&format!("/v1/users/{agent}")).expect(200);
        client.get("/v1/script/notes").expect_error(404, "not_found");
        assert_eq!(sights(&play(&tenant.client, json!([{ "balance": "credit" }])))[0]["posted"], 7 * DOLLAR);
        world.books_agree();
    }

    fn a_revoked_profile_gets_no_leave_from_the_next_request_on(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        budget(&tenant, 100, "day");
        tenant.client.post(&format!("/v1/users/{}/revoke", tenant.user), &json!({})).expect(200);
        assert_eq!(play(&tenant.client, spend(1)).expect_error(403, "forbidden")["reason"], "profile_revoked");
        assert_eq!(stands(&tenant.client), (0, 0));
        world.books_agree();
    }

    fn a_budget_that_is_changed_counts_what_was_spent_before(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        play(&tenant.client, spend(DOLLAR)).expect(200);
        budget(&tenant, 150, "month");
        play(&tenant.client, spend(DOLLAR)).expect_error(403, "forbidden");
        budget(&tenant, 150, "total");
        assert_eq!(stands(&tenant.client), (DOLLAR, 0));
        tenant.client.patch("/v1/organization", &json!({ "budget": { "cap_cents": 150, "period": "week" } })).expect(200);
        let full = play(&tenant.client, spend(DOLLAR / 2 + 1)).expect_error(403, "forbidden");
        assert_eq!(full["details"]["spent_micro_usd"], DOLLAR);
        play(&tenant.client, spend(DOLLAR / 2)).expect(200);
        world.books_agree();
    }

    fn what_a_crash_leaves_in_doubt_stays_held_until_a_person_says_what_became_of_it(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        budget(&tenant, 100, "day");
        let client = tenant.client.at(world.server().address());
        let steps = json!({ "steps": [
            { "leave": "script.spend", "amount": DOLLAR, "as": "p" }, { "dispatch": "p" }, { "sleep_ms": 7_000 },
        ] });
        let holds = |client: &Client, state: &str| {
            let listed = client.get(&format!("/v1/governance/holds?state={state}")).expect(200);
            listed["holds"].as_array().unwrap().clone()
        };
        std::thread::scope(|scope| {
            scope.spawn(|| drop(client.call("POST", "/v1/script").json(&steps).attempt()));
            until("something has left the host", || holds(&client, "dispatched").len() == 1);
            world.kill();
        });
        world.start();
        let client = tenant.client.at(world.server().address());
        until("the hold is in doubt", || holds(&client, "in_doubt").len() == 1);
        assert_eq!(stands(&client), (0, DOLLAR), "what nobody knows stays held");
        let path = format!("/v1/governance/holds/{}/resolve", holds(&client, "in_doubt")[0]["id"].as_str().unwrap());
        let word = json!({ "outcome": "captured", "amount_micro_usd": DOLLAR / 2, "reason": "the receipt came by mail" });
        assert_eq!(client.post(&path, &word).expect_error(403, "forbidden")["reason"], "person_required");
        let person = browser(world, &tenant.email, PASSWORD).0;
        let more = json!({ "outcome": "captured", "amount_micro_usd": 3 * DOLLAR, "reason": "it was dearer" });
        let over = person.post(&path, &more).expect_error(409, "state_conflict");
        assert_eq!((&over["reason"], &over["details"]["left_micro_usd"]), (&json!("over_held"), &json!(DOLLAR)));
        let resolved = person.post(&path, &word).expect(200);
        assert_eq!((&resolved["hold"]["state"], &resolved["hold"]["actual_micro_usd"]), (&json!("captured"), &json!(DOLLAR / 2)));
        person.post(&path, &word).expect_error(409, "state_conflict");
        assert_eq!(stands(&client), (DOLLAR / 2, 0));
        let stranger = browser(world, &world.register().email, PASSWORD).0;
        stranger.post(&path, &word).expect_error(404, "not_found");
        world.books_agree();
    }

    fn nobody_says_what_became_of_what_they_asked_for_unless_nobody_else_can(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        let doubt = || {
            play(&tenant.client, json!([{ "leave": "script.spend", "amount": DOLLAR, "as": "p" }, { "dispatch": "p" }])).expect(200);
            let listed = tenant.client.get("/v1/governance/holds?state=in_doubt").expect(200);
            format!("/v1/governance/holds/{}/resolve", listed["holds"][0]["id"].as_str().unwrap())
        };
        let word = json!({ "outcome": "voided", "reason": "nothing came" });
        let owner = browser(world, &tenant.email, PASSWORD).0;
        owner.post(&doubt(), &word).expect(200);
        let row = || tenant.client.get("/v1/logs?action=governance.holds.resolve").expect(200)["logs"][0]["details"].clone();
        until("the row is numbered", || row()["self_approved"] == true);
        let approver = crate::members::join(world, &tenant, &owner, "approver").0;
        let path = doubt();
        assert_eq!(owner.post(&path, &word).expect_error(403, "forbidden")["reason"], "own_request");
        approver.post(&path, &word).expect(200);
        until("the row is numbered", || row()["self_approved"] == false);
        world.books_agree();
    }

    fn each_decision_is_a_row_with_its_reasons(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        let rules = json!({ "rules": [{ "id": "no-large", "effect": "deny", "actions": ["script.*"], "when": { "amount_over_micro_usd": DOLLAR } }] });
        tenant.client.put("/v1/governance/policy", &rules).expect(200);
        play(&tenant.client, spend(DOLLAR)).expect(200);
        let denied = play(&tenant.client, spend(2 * DOLLAR));
        denied.expect_error(403, "forbidden");
        let logs = |query: &str| tenant.client.get(&format!("/v1/logs{query}")).expect(200);
        until("the rows are numbered", || logs("?action=script.spend")["logs"].as_array().unwrap().len() == 2);
        let rows = logs("?action=script.spend")["logs"].as_array().unwrap().clone();
        let told = |row: &Value| (row["decision"].clone(), row["amount_micro_usd"].clone());
        assert_eq!(told(&rows[0]), (json!("denied"), json!(2 * DOLLAR)), "newest first");
        assert_eq!(told(&rows[1]), (json!("allowed"), json!(DOLLAR)));
        assert_eq!(rows[0]["details"]["verdict"]["rules"], json!(["no-large"]));
        assert_eq!(rows[0]["request_id"], denied.header("x-request-id").unwrap());
        // The request is a row beside its decision: a primitive may go on without leave, and that
        // is not a refused request.
        let tried = play(&tenant.client, json!([{ "try": { "leave": "script.spend", "amount": 2 * DOLLAR, "as": "p" } }]));
        tried.expect(200);
        for (answer, decisions) in [(&denied, ["denied", "refused"]), (&tried, ["allowed", "denied"])] {
            let request = answer.header("x-request-id").unwrap();
            until("both rows are numbered", || {
                let rows = logs("")["logs"].as_array().unwrap().clone();
                let rows = rows.iter().filter(|row| row["request_id"] == request);
                let mut told: Vec<Value> = rows.map(|row| row["decision"].clone()).collect();
                told.sort_by_key(Value::to_string);
                told == decisions
            });
        }
        // A row names the hold that was taken, and none where none was.
        let leave = json!({ "leave": "script.spend", "amount": 1, "as": "p" });
        play(&tenant.client, json!([leave])).expect(200);
        play(&tenant.client, json!([leave, { "cancel": "p" }])).expect(200);
        play(&tenant.client, json!([leave, { "refuse": "state_conflict" }])).expect_error(409, "state_conflict");
        play(&tenant.client, json!([leave, { "capture": "p", "amount": 1 }, { "trap": 1 }])).expect_error(500, "internal_error");
        let decided = || logs("?action=script.spend")["logs"].as_array().unwrap().clone();
        until("the rows are numbered", || decided().len() == 7);
        let rows = decided();
        for row in &rows[..4] {
            assert_eq!((&row["decision"], &row["details"]["hold_id"]), (&json!("allowed"), &Value::Null), "{row}");
        }
        let holds = tenant.client.get("/v1/governance/holds").expect(200)["holds"].clone();
        let held: Vec<&Value> = holds.as_array().unwrap().iter().map(|hold| &hold["id"]).collect();
        assert_eq!(held, [&rows[6]["details"]["hold_id"]]);
        // Loosening says what was before.
        tenant.client.put("/v1/governance/policy", &json!({ "rules": [] })).expect(200);
        until("the change is numbered", || logs("?action=governance.policy.put")["logs"].as_array().unwrap().len() == 2);
        let changed = logs("?action=governance.policy.put")["logs"][0]["details"].clone();
        assert_eq!((&changed["loosens"], &changed["before"]["rules"][0]["id"]), (&json!(true), &json!("no-large")));
        // A walk by single rows meets each of them once.
        let (mut seen, mut query) = (Vec::new(), "?limit=1".to_owned());
        loop {
            let page = logs(&query);
            seen.extend(page["logs"].as_array().unwrap().iter().map(|row| row["seq"].as_u64().unwrap()));
            let Some(cursor) = page["next_cursor"].as_str() else { break };
            query = format!("?limit=1&cursor={cursor}");
        }
        assert_eq!(seen, (1..=seen.len() as u64).rev().collect::<Vec<_>>());
        let key = tenant.client.post("/v1/auth/keys", &json!({ "name": "pinned", "user_id": tenant.user })).expect(201);
        tenant.client.bearer(key["key"].as_str().unwrap()).get("/v1/logs").expect_error(403, "forbidden");
        world.books_agree();
    }

    fn nothing_leaves_the_host_before_its_hold_is_taken(world: reaching()) {
        let tenant = tenant_with_script(world);
        let heard = peer(world, &tenant);
        budget(&tenant, 700, "day");
        let steps = json!([
            { "leave": "script.spend", "amount": DOLLAR, "as": "p" }, { "fetch": "POST", "path": "/" }, { "capture": "p", "amount": DOLLAR },
        ]);
        let answers = at_once(from_ref(&tenant.client), 48, &steps);
        assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 7);
        for refused in answers.iter().filter(|answer| answer.status != 200) {
            assert_eq!(refused.expect_error(403, "forbidden")["reason"], "budget_exceeded", "the guest hears why");
        }
        assert_eq!((heard.load(SeqCst), stands(&tenant.client)), (7, (7 * DOLLAR, 0)));
        world.books_agree();
    }

    fn a_cancelled_job_has_nothing_more_sent_or_done_by_others(world: reaching()) {
        let tenant = tenant_with_script(world);
        let heard = peer(world, &tenant);
        budget(&tenant, 700, "day");
        let client = &tenant.client;
        let (send, pay) = (json!({ "fetch": "POST", "path": "/" }), json!({ "call": "script.play", "body": { "steps": spend(DOLLAR) } }));
        // The second one has sent and paid by then, and the third one has committed.
        let first: [&[&Value]; 3] = [&[], &[&send, &pay], &[&json!({ "checkpoint": 1 })]];
        let (mut sent, mut paid) = (0, 0);
        for before in first {
            for next in [&send, &pay] {
                let mut steps = before.to_vec();
                let (note, checkpoint, sleep) = (json!({ "note": "begun" }), json!({ "checkpoint": 1 }), json!({ "sleep_ms": 2_000 }));
                if !before.is_empty() {
                    steps.extend([&note, &checkpoint]);
                }
                steps.extend([&sleep, next]);
                play(client, json!([{ "enqueue": steps, "public": true, "attempts": 1 }])).expect(200);
                if before.contains(&&send) {
                    (sent, paid) = (sent + 1, paid + 1);
                }
                let running = || client.get("/v1/jobs?status=running").expect(200)["jobs"][0]["id"].as_str().map(str::to_owned);
                until("it runs, and has done what it does first", || {
                    running().is_some() && (heard.load(SeqCst), stands(client)) == (sent, (paid * DOLLAR, 0))
                });
                client.delete(&format!("/v1/jobs/{}", running().unwrap())).expect(200);
            }
        }
        // The next job runs beside what is left of the last one, and ends after it.
        let last = json!([{ "sleep_ms": 3_000 }]);
        play(client, json!([{ "enqueue": last, "public": true, "attempts": 1 }])).expect(200);
        until("the last one has ended", || !client.get("/v1/jobs?status=succeeded").expect(200)["jobs"].as_array().unwrap().is_empty());
        assert_eq!((heard.load(SeqCst), stands(client)), (sent, (paid * DOLLAR, 0)));
        world.books_agree();
    }

    fn nothing_is_sent_for_a_key_that_was_revoked_meanwhile(world: reaching()) {
        let tenant = tenant_with_script(world);
        let heard = peer(world, &tenant);
        let made = tenant.client.post("/v1/auth/keys", &json!({ "name": "agent" })).expect(201);
        let agent = tenant.client.bearer(made["key"].as_str().unwrap());
        let first = json!([{ "fetch": "POST", "path": "/" }, { "sleep_ms": 2_500 }, { "fetch": "POST", "path": "/" }]);
        let later = json!([{ "sleep_ms": 2_500 }, { "fetch": "POST", "path": "/" }]);
        std::thread::scope(|scope| {
            let asked = [first, later].map(|steps| scope.spawn(|| play(&agent, steps)));
            until("the first one has sent", || heard.load(SeqCst) == 1);
            tenant.client.delete(&format!("/v1/auth/keys/{}", charter_tests::tenant::id(&made))).expect(200);
            for answer in asked.map(|one| one.join().unwrap()) {
                assert!(answer.status >= 400, "{answer}");
            }
        });
        assert_eq!(heard.load(SeqCst), 1);
    }

    fn nothing_leaves_the_host_beside_a_request_that_waits_for_a_person(world: reaching()) {
        let tenant = tenant_with_script(world);
        let heard = peer(world, &tenant);
        budget(&tenant, 100_000, "day");
        let rule = json!({ "id": "all", "effect": "require_approval", "actions": ["script.*"], "approvals_required": 1 });
        tenant.client.put("/v1/governance/policy", &json!({ "rules": [rule] })).expect(200);
        let steps = json!([{ "fire": "/" }, { "leave": "script.spend", "amount": DOLLAR, "as": "p" }, { "sleep_ms": 200 }]);
        let answers = at_once(from_ref(&tenant.client), 24, &steps);
        let waiting = answers.iter().filter(|answer| answer.status == 202).count();
        // The other ones had sent before they asked, and were told that they may not.
        let heard = heard.load(SeqCst) as usize;
        assert!(heard <= answers.len() - waiting, "{heard} were heard, and {waiting} wait");
        world.books_agree();
    }

    fn what_is_sent_and_never_asked_after_leaves_under_a_hold_too(world: reaching()) {
        // Some return at once, and some while it is on its way.
        for sleep_ms in [0, 200] {
            let tenant = tenant_with_script(world);
            let heard = peer(world, &tenant);
            budget(&tenant, 700, "day");
            let steps = json!([
                { "leave": "script.spend", "amount": DOLLAR, "as": "p" }, { "fire": "/" }, { "sleep_ms": sleep_ms },
                { "capture": "p", "amount": DOLLAR },
            ]);
            let answers = at_once(from_ref(&tenant.client), 24, &steps);
            let admitted = answers.iter().filter(|answer| answer.status == 200).count();
            assert_eq!((admitted, stands(&tenant.client)), (7, (7 * DOLLAR, 0)));
            let heard = heard.load(SeqCst);
            assert!(heard <= 7, "{heard} were heard");
            assert!(sleep_ms == 0 || heard == 7, "{heard} were heard");
        }
        world.books_agree();
    }

    fn a_request_that_is_killed_at_any_step_and_sent_again_acts_once(world: reaching()) {
        let leave = json!({ "leave": "script.spend", "amount": DOLLAR, "as": "p" });
        let (act, capture) = (json!({ "fetch": "POST", "path": "/" }), json!({ "capture": "p", "amount": DOLLAR }));
        let (look, dispatch, take) = (json!({ "fetch": "GET", "path": "/" }), json!({ "dispatch": "p" }), json!({ "take": 1 }));
        let sleep = json!({ "sleep_ms": 2_000 });
        let reserved = |client: &Client| stands(client) == (0, DOLLAR);
        let in_flight = |client: &Client| {
            client.get("/v1/governance/holds?state=dispatched").expect(200)["holds"].as_array().is_some_and(|holds| holds.len() == 1)
        };
        let taken = |client: &Client| client.get("/v1/script/notes").expect(200)["items"] == 1;
        type Place<'a> = (&'a str, Vec<&'a Value>, Vec<&'a Value>, &'a dyn Fn(&Client) -> bool, u32);
        // The place of the kill: the steps before and after, how it is seen from outside, and
        // whether the request had acted by then.
        let places: [Place<'_>; 5] = [
            ("before leave", vec![&take], vec![&leave, &act, &capture], &taken, 0),
            ("with leave", vec![&leave, &take], vec![&act, &capture], &taken, 0),
            ("with its hold", vec![&leave, &look], vec![&act, &capture], &reserved, 0),
            ("about to act", vec![&leave, &dispatch], vec![&act, &capture], &in_flight, 0),
            ("having acted", vec![&leave, &dispatch, &act], vec![&capture], &in_flight, 1),
        ];
        for (place, before, after, reached, acted) in places {
            let tenant = tenant_with_script(world);
            let heard = peer(world, &tenant);
            budget(&tenant, 1_000, "day");
            let client = tenant.client.at(world.server().address());
            play(&client, json!([{ "items": 2 }])).expect(200);
            let steps: Vec<&Value> = before.into_iter().chain([&sleep]).chain(after).collect();
            let body = json!({ "steps": steps });
            std::thread::scope(|scope| {
                scope.spawn(|| drop(client.call("POST", "/v1/script").idempotency_key("once").json(&body).attempt()));
                until(place, || reached(&client) && heard.load(SeqCst) >= acted);
                world.kill();
            });
            world.start();
            let (client, looked) = (tenant.client.at(world.server().address()), heard.swap(0, SeqCst));
            let send = || client.call("POST", "/v1/script").idempotency_key("once").json(&body).send();
            if place.ends_with("act") || place.ends_with("acted") {
                // Nobody knows what became of it: it is not made again, and its money stays held.
                assert_eq!((send().error()["code"].as_str(), looked), (Some("job_not_ready"), acted), "{place}");
                assert_eq!((heard.load(SeqCst), stands(&client)), (0, (0, DOLLAR)), "{place}");
            } else {
                let made = send();
                assert_eq!((made.status, send().json()), (200, made.json()), "{place}");
                until("what the crash left is voided", || stands(&client) == (DOLLAR, 0));
                let looks = steps.iter().filter(|step| **step == &look).count();
                assert_eq!(heard.load(SeqCst) as usize, 1 + looks, "{place}");
            }
            world.books_agree();
        }
    }

    fn a_hold_that_a_crash_left_behind_is_voided(world: reaching()) {
        let tenant = tenant_with_script(world);
        peer(world, &tenant);
        budget(&tenant, 100, "day");
        let client = tenant.client.at(world.server().address());
        let steps = json!({ "steps": [
            { "leave": "script.spend", "amount": DOLLAR, "as": "p" }, { "fetch": "GET", "path": "/" }, { "sleep_ms": 7_000 },
        ] });
        std::thread::scope(|scope| {
            scope.spawn(|| drop(client.call("POST", "/v1/script").json(&steps).attempt()));
            until("the hold is taken", || stands(&client) == (0, DOLLAR));
            world.kill();
        });
        world.start();
        let client = tenant.client.at(world.server().address());
        assert_eq!(stands(&client), (0, DOLLAR), "it is held until its request cannot be running any more");
        until("the hold is voided", || stands(&client) == (0, 0));
        play(&client, spend(DOLLAR)).expect(200);
        world.books_agree();
    }
}

#[test]
fn two_replicas_together_admit_exactly_what_the_cap_admits() {
    let world = Builder::new().bare().start(Database::Postgresql);
    let tenant = tenant_with_script(&world);
    budget(&tenant, 799, "day");
    let (second, _folder) = world.replica();
    let clients = [tenant.client.clone(), tenant.client.at(second.address())];
    let answers = watch_cap(&clients[1], 7_990_000, || at_once(&clients, 208, &spend(DOLLAR)));
    assert_eq!(answers.iter().filter(|answer| answer.status == 200).count(), 7);
    assert!(answers.iter().all(|answer| matches!(answer.status, 200 | 403)));
    // One replica lowers the cap, and the other admits no more.
    budget(&tenant, 700, "week");
    for client in &clients {
        play(client, spend(1)).expect_error(403, "forbidden");
    }
}

//! Room: a hold bounds what is captured of it, a cap knows what was spent while it did not stand, and
//! what is new has no room that its maker did not have.

use charter_tests::artefacts::Artefacts;
use charter_tests::tenant::PASSWORD;
use charter_tests::world::Builder;
use charter_tests::{Answer, Client, Tenant, World, on_both};
use serde_json::{Value, json};

use crate::accounts::browser;
use crate::rules::{play, sights};

/// One dollar, as the ledger counts.
const DOLLAR: i64 = 1_000_000;

/// A tenant with credit, of a deployment that plays scripts.
fn fund(world: &World, cents: i64) -> Tenant {
    world.install("script", &Artefacts::get().fixture("script"));
    let tenant = world.register();
    world.fund(&tenant, cents);
    tenant
}

fn spend(amount: i64) -> Value {
    json!([{ "leave": "script.spend", "amount": amount, "as": "p" }, { "capture": "p", "amount": amount }])
}

/// The organization's credit, in micro-US-dollars.
fn credit(tenant: &Tenant) -> i64 {
    sights(&play(&tenant.client, json!([{ "balance": "credit" }])))[0]["posted"].as_i64().unwrap()
}

#[track_caller]
fn expect_over_held(answer: &Answer, left: i64) {
    let refused = answer.expect_error(409, "state_conflict");
    assert_eq!(
        (&refused["reason"], &refused["details"]["left_micro_usd"]),
        (&json!("over_held"), &json!(left))
    );
}

on_both! {
    fn a_hold_bounds_what_its_primitive_captures(world: Builder::new().bare()) {
        let tenant = fund(world, 100_000);
        tenant.client.patch("/v1/organization", &json!({ "budget": { "cap_cents": 100, "period": "total" } })).expect(200);
        play(&tenant.client, json!([{ "open": "loot" }])).expect(200);
        let leave = |amount: i64, then: Value| json!([
            { "leave": "script.spend", "amount": amount, "as": "p", "pays": ["credit", "loot"] }, then,
        ]);
        let capture = |amount: i64| json!({ "capture": "p", "amount": amount });
        expect_over_held(&play(&tenant.client, leave(1, capture(2_000 * DOLLAR))), 1);
        assert_eq!(credit(&tenant), 1_000 * DOLLAR);
        // One that an earlier request kept stays as it is, and is captured within its bound.
        let hold = sights(&play(&tenant.client, leave(DOLLAR, json!({ "keep": "p", "seconds": 600 }))))[0].clone();
        let later = |amount: i64| json!([{ "reopen": hold, "as": "p" }, capture(amount)]);
        expect_over_held(&play(&tenant.client, later(DOLLAR + 1)), DOLLAR);
        play(&tenant.client, later(DOLLAR)).expect(200);
        assert_eq!(credit(&tenant), 999 * DOLLAR);
        world.books_agree();
    }

    fn what_is_known_afterwards_only_overruns_as_its_action_declares(world: Builder::new().bare()) {
        let tenant = fund(world, 100_000);
        let guess = |capture: i64| json!([
            { "leave": "script.guess", "amount": DOLLAR, "as": "p" }, { "capture": "p", "amount": capture },
        ]);
        play(&tenant.client, guess(DOLLAR * 3 / 2)).expect(200);
        expect_over_held(&play(&tenant.client, guess(DOLLAR * 3 / 2 + 1)), DOLLAR * 3 / 2);
        play(&tenant.client, guess(DOLLAR)).expect(200);
        // An account of the ledger pays the amount that was set aside there, and no more.
        let paid = json!([
            { "open": "loot" },
            { "leave": "script.guess", "amount": DOLLAR, "as": "p", "pays": ["credit", "loot"] },
            { "capture": "p", "amount": DOLLAR + 1 },
        ]);
        expect_over_held(&play(&tenant.client, paid), DOLLAR);
        world.books_agree();
    }

    fn who_only_reads_takes_no_regulated_action(world: Builder::new().bare()) {
        let tenant = fund(world, 1_000);
        let spend = json!({ "steps": spend(1) });
        tenant.client.post("/v1/script/peek", &spend).expect(200);
        for role in ["viewer", "approver"] {
            let key = tenant.client.post("/v1/auth/keys", &json!({ "name": role, "role": role })).expect(201);
            let reads = tenant.client.bearer(key["key"].as_str().unwrap());
            let refused = reads.post("/v1/script/peek", &spend).expect_error(403, "forbidden");
            assert_eq!(refused["reason"], "role_insufficient", "{role}");
        }
        world.books_agree();
    }

    fn who_only_reads_changes_nothing_by_an_operation_that_reads(world: Builder::new().bare()) {
        let tenant = fund(world, 1_000);
        let leave = json!([{ "leave": "script.spend", "amount": DOLLAR, "as": "p" }, { "keep": "p", "seconds": 600 }]);
        let hold = sights(&play(&tenant.client, leave))[0].clone();
        play(&tenant.client, json!([{ "open": "own" }])).expect(200);
        let changes = [
            json!({ "note": "note" }), json!({ "open": "mine" }), json!({ "reopen": hold, "as": "p" }),
            json!({ "freeze": "own", "frozen": true }), json!({ "cap": "box", "amount": 1 }),
            json!({ "enqueue": [], "public": true, "attempts": 1 }),
        ];
        let (person, _) = browser(world, &tenant.email, PASSWORD);
        let reader = |role: &str| tenant.key(json!({ "role": role }));
        for change in changes {
            let steps = json!({ "steps": [change] });
            for role in ["viewer", "approver"] {
                let refused = reader(role).post("/v1/script/peek", &steps).expect_error(403, "forbidden");
                assert_eq!(refused["reason"], "role_insufficient", "{role}: {steps}");
            }
            // A primitive's own rows are changed by key.
            let refused = person.post("/v1/script/peek", &steps).expect_error(403, "forbidden");
            assert_eq!(refused["reason"], "key_required", "{steps}");
            tenant.client.post("/v1/script/peek", &steps).expect(200);
        }
        person.post("/v1/script/peek", &json!({ "steps": [] })).expect(200);
        world.books_agree();
    }

    fn nobody_but_the_biller_stops_what_an_organization_pays_from(world: Builder::new().bare()) {
        let tenant = fund(world, 1_000);
        for frozen in [true, false] {
            play(&tenant.client, json!([{ "freeze": "credit", "frozen": frozen }])).expect_error(403, "forbidden");
        }
        play(&tenant.client, json!([{ "entries": "credit" }])).expect_error(403, "forbidden");
        let pay = json!([
            { "open": "wallet" }, { "leave": "script.spend", "amount": DOLLAR, "as": "p", "pays": ["credit", "wallet"] },
            { "capture": "p", "amount": DOLLAR },
        ]);
        play(&tenant.client, pay).expect(200);
        // Its own accounts a primitive stops, and lets go.
        play(&tenant.client, json!([{ "freeze": "wallet", "frozen": true }])).expect(200);
        let back = json!([{ "move": DOLLAR, "from": "wallet", "to": "credit" }]);
        play(&tenant.client, back.clone()).expect_error(409, "state_conflict");
        play(&tenant.client, json!([{ "freeze": "wallet", "frozen": false }])).expect(200);
        play(&tenant.client, back).expect(200);
        world.books_agree();
    }

    fn a_request_that_has_paid_and_then_finds_no_room_pays_once(world: Builder::new().bare()) {
        let tenant = fund(world, 1_000);
        play(&tenant.client, json!([{ "open": "wallet" }])).expect(200);
        let nested = |steps: Value| json!({ "call": "script.play", "body": { "steps": steps } });
        let pay = nested(json!([
            { "leave": "script.spend", "amount": DOLLAR, "as": "p", "pays": ["credit", "wallet"] }, { "capture": "p", "amount": DOLLAR },
        ]));
        for (times, code) in [(1, "overloaded"), (2, "rate_limited")] {
            let steps = json!([pay, nested(json!([{ "refuse": code }]))]);
            let client = tenant.client.with("idempotency-key", code);
            let first = play(&client, steps.clone());
            let told = first.expect_error(409, "state_conflict");
            assert_eq!(told["reason"], "EFFECT_WITHOUT_RECORD", "{first}");
            assert!(told["message"].as_str().unwrap().contains("The script says so."), "{first}");
            assert_eq!((first.header("x-should-retry"), first.header("retry-after")), (Some("false"), None), "{first}");
            let again = play(&client, steps);
            assert_eq!((again.status, again.header("idempotent-replayed")), (409, Some("true")), "{again}");
            assert_eq!(credit(&tenant), (10 - times) * DOLLAR, "{code}");
        }
        // The client is told to try again where nothing was done before it, and nothing is kept.
        let client = tenant.client.with("idempotency-key", "before");
        for _ in 0..2 {
            let told = play(&client, json!([nested(json!([{ "refuse": "overloaded" }]))]));
            told.expect_error(503, "overloaded");
            assert_eq!((told.header("x-should-retry"), told.header("idempotent-replayed")), (Some("true"), None), "{told}");
        }
        world.books_agree();
    }

    fn who_is_pinned_spends_credit_only_where_a_cap_stands_above(world: Builder::new().bare()) {
        let tenant = fund(world, 100_000);
        let agent = tenant.user("agent");
        let pinned = tenant.key(json!({ "role": "developer", "user_id": agent }));
        let pay = |from: &str, to: &str| json!([
            { "open": to }, { "leave": "script.spend", "amount": DOLLAR, "as": "p", "pays": [from, to] },
            { "capture": "p", "amount": DOLLAR },
        ]);
        let refused = |client: &Client| {
            let refused = play(client, pay("credit", "wallet")).expect_error(403, "forbidden");
            assert_eq!(refused["reason"], "no_cap");
            assert!(refused["hint"].as_str().unwrap().contains("budget"), "{refused}");
        };
        refused(&pinned);
        refused(&pinned.with("x-service-user-id", "me"));
        refused(&pinned.with("x-service-project-id", &tenant.project));
        // A scope that it caps itself, and a limit on how often, are no cap above it.
        let within = json!([
            { "open": "wallet" }, { "cap": "own", "amount": 9 * DOLLAR },
            { "leave": "script.spend", "amount": DOLLAR, "as": "p", "pays": ["credit", "wallet"], "within": "own" },
        ]);
        assert_eq!(play(&pinned, within).expect_error(403, "forbidden")["reason"], "no_cap");
        let limits = json!({ "limits": [{ "id": "few", "actions": ["*"], "period": "day", "max_count": 9 }] });
        tenant.client.put("/v1/governance/limits", &limits).expect(200);
        refused(&pinned);
        assert_eq!(credit(&tenant), 1_000 * DOLLAR);
        // A person of the organization, or a key that is pinned to a project alone, is not asked.
        play(&tenant.client.with("x-service-user-id", &agent), pay("credit", "wallet")).expect(200);
        let project = tenant.key(json!({ "role": "developer", "project_id": tenant.project }));
        play(&project.with("x-service-user-id", &agent), pay("credit", "wallet")).expect(200);
        // The pinned credential spends its own money.
        play(&pinned, pay("wallet", "shop")).expect(200);
        let budgeted = [format!("/v1/users/{agent}"), "/v1/kits/default".into(), "/v1/projects/default".into(), "/v1/organization".into()];
        for path in &budgeted {
            for hard in [true, false] {
                let budget = json!({ "budget": { "cap_cents": 5_000, "period": "day", "hard": hard } });
                tenant.client.patch(path, &budget).expect(200);
                if hard {
                    play(&pinned, pay("credit", "wallet")).expect(200);
                } else {
                    refused(&pinned);
                }
                tenant.client.patch(path, &json!({ "budget": null })).expect(200);
                refused(&pinned);
            }
        }
        let denied = || tenant.client.get("/v1/logs?decision=denied&action=script.spend").expect(200)["logs"].as_array().unwrap().clone();
        charter_tests::patience::until("each refusal is a row", || denied().len() == 17);
        assert!(denied().iter().all(|row| row["reason"] == "no_cap"));
        world.books_agree();
    }

    fn a_cap_that_goes_and_comes_again_knows_what_was_spent_meanwhile(world: Builder::new().bare()) {
        let tenant = fund(world, 100);
        let project = tenant.client.get("/v1/projects/default").expect(200)["project"]["id"].as_str().unwrap().to_owned();
        let scopes = [
            ("organization", "/v1/organization".to_owned()),
            ("project", format!("/v1/projects/{project}")),
            ("kit", "/v1/kits/default".to_owned()),
            ("user", format!("/v1/users/{}", tenant.user)),
        ];
        let mut spent = 0;
        for (scope, path) in scopes {
            for period in ["total", "month", "day"] {
                let cap = |cents: i64| json!({ "budget": { "cap_cents": cents, "period": period } });
                tenant.client.patch(&path, &cap(spent + 1_000)).expect(200);
                play(&tenant.client, spend(9 * DOLLAR)).expect(200);
                tenant.client.patch(&path, &json!({ "budget": null })).expect(200);
                play(&tenant.client, spend(50 * DOLLAR)).expect(200);
                spent += 5_900;
                tenant.client.patch(&path, &cap(spent)).expect(200);
                let full = play(&tenant.client, spend(1)).expect_error(403, "forbidden");
                assert_eq!(full["details"]["scope"], scope, "{period}");
                assert_eq!(full["details"]["spent_micro_usd"], spent * 10_000, "{scope} {period}");
                tenant.client.patch(&path, &json!({ "budget": null })).expect(200);
            }
        }
        world.books_agree();
    }

    fn a_hold_from_before_a_first_budget_counts_in_it(world: Builder::new().bare()) {
        let tenant = fund(world, 100);
        let kept = json!([{ "leave": "script.spend", "amount": 50 * DOLLAR, "as": "p" }, { "keep": "p", "seconds": 600 }]);
        let hold = sights(&play(&tenant.client, kept))[0].clone();
        let cap = json!({ "budget": { "cap_cents": 100, "period": "total" } });
        tenant.client.patch("/v1/organization", &cap).expect(200);
        play(&tenant.client, spend(DOLLAR / 100)).expect(200);
        play(&tenant.client, json!([{ "reopen": hold, "as": "p" }, { "capture": "p", "amount": 50 * DOLLAR }])).expect(200);
        let full = play(&tenant.client, spend(DOLLAR / 100)).expect_error(403, "forbidden");
        assert_eq!(full["details"]["scope"], "organization");
        assert_eq!(full["details"]["spent_micro_usd"], 50 * DOLLAR + DOLLAR / 100);
        world.books_agree();
    }

    fn a_hold_from_before_another_period_counts_in_it(world: Builder::new().bare()) {
        let tenant = fund(world, 100);
        let cap = |period: &str| json!({ "budget": { "cap_cents": 10_000, "period": period } });
        tenant.client.patch("/v1/organization", &cap("day")).expect(200);
        let kept = json!([{ "leave": "script.spend", "amount": 50 * DOLLAR, "as": "p" }, { "keep": "p", "seconds": 600 }]);
        let hold = sights(&play(&tenant.client, kept))[0].clone();
        tenant.client.patch("/v1/organization", &cap("total")).expect(200);
        let held = play(&tenant.client, spend(51 * DOLLAR)).expect_error(403, "forbidden");
        assert_eq!(held["details"]["reserved_micro_usd"], 50 * DOLLAR, "what is held counts under every period");
        play(&tenant.client, json!([{ "reopen": hold, "as": "p" }, { "capture": "p", "amount": 40 * DOLLAR }])).expect(200);
        let full = play(&tenant.client, spend(61 * DOLLAR)).expect_error(403, "forbidden");
        assert_eq!((&full["details"]["spent_micro_usd"], &full["details"]["reserved_micro_usd"]), (&json!(40 * DOLLAR), &json!(0)));
        world.books_agree();
    }

    fn what_a_removed_user_spent_stays_in_the_wider_meters(world: Builder::new().bare()) {
        let tenant = fund(world, 100);
        let agent = tenant.user("agent");
        play(&tenant.client.with("X-Service-User-Id", &agent), spend(5 * DOLLAR)).expect(200);
        tenant.client.delete(&format!("/v1/users/{agent}")).expect(200);
        let cap = json!({ "budget": { "cap_cents": 600, "period": "total" } });
        for (scope, path) in [("project", "/v1/projects/default"), ("organization", "/v1/organization")] {
            tenant.client.patch(path, &cap).expect(200);
            let full = play(&tenant.client, spend(2 * DOLLAR)).expect_error(403, "forbidden");
            assert_eq!((&full["details"]["scope"], &full["details"]["spent_micro_usd"]), (&json!(scope), &json!(5 * DOLLAR)));
        }
        world.books_agree();
    }

    fn what_is_new_has_no_room_that_its_maker_did_not_have(world: Builder::new().bare()) {
        let tenant = fund(world, 100);
        let developer = tenant.client.post("/v1/auth/keys", &json!({ "name": "d", "role": "developer" })).expect(201);
        let developer = tenant.client.bearer(developer["key"].as_str().unwrap());
        let kit = tenant.client.get("/v1/kits").expect(200)["kits"][0]["id"].as_str().unwrap().to_owned();
        let cap = json!({ "cap_cents": 100, "period": "day", "hard": true });
        developer.post("/v1/users", &json!({ "name": "before any cap" })).expect(201);
        let bounds = json!({ "budget": cap, "limits": { "requests_per_minute": 500 }, "primitives": { "script": { "enabled": true } } });
        tenant.client.patch(&format!("/v1/kits/{kit}"), &bounds).expect(200);
        // Each user of a capped kit is room of its own, where nothing caps the sum.
        let another = |client: &Client| client.post("/v1/users", &json!({ "name": "another" }));
        assert_eq!(another(&developer).expect_error(403, "forbidden")["reason"], "loosening_not_allowed");
        another(&tenant.client).expect(201);
        let open = |client: &Client| {
            let policy = client.get("/v1/governance/policy").expect(200)["policy"].clone();
            let caps = policy["caps"].as_array().unwrap().clone();
            caps.iter().map(|cap| (cap["scope"].as_str().unwrap().to_owned(), cap["open"] == true)).collect::<Vec<_>>()
        };
        let told = |organization, project| vec![
            ("organization".to_owned(), organization), ("project".to_owned(), project), ("kit".to_owned(), false),
        ];
        assert_eq!(open(&tenant.client), told(true, true));
        for path in ["/v1/projects/default", "/v1/organization"] {
            tenant.client.patch(path, &json!({ "budget": cap })).expect(200);
            another(&developer).expect(201);
            if path == "/v1/projects/default" {
                assert_eq!(open(&tenant.client), told(true, false));
                tenant.client.patch(path, &json!({ "budget": null })).expect(200);
            }
        }
        // A project begins as bounded as the default one.
        tenant.client.patch("/v1/projects/default", &json!({ "budget": cap })).expect(200);
        let made = tenant.client.post("/v1/projects", &json!({ "name": "second" })).expect(201)["project"].clone();
        assert_eq!(made["budget"], cap);
        let inside = tenant.client.with("X-Service-Project-Id", made["id"].as_str().unwrap());
        let begun = inside.get(&format!("/v1/kits/{}", made["default_kit_id"].as_str().unwrap())).expect(200)["kit"].clone();
        assert_eq!((&begun["budget"], &begun["limits"]["requests_per_minute"]), (&cap, &json!(500)));
        assert_eq!(begun["primitives"]["script"]["enabled"], true);
        world.books_agree();
    }

    fn a_budget_that_anybody_set_lets_them_make_nobody(world: Builder::new().bare()) {
        let tenant = fund(world, 100);
        let developer = tenant.key(json!({ "role": "developer" }));
        let cap = json!({ "budget": { "cap_cents": 100, "period": "day" } });
        tenant.client.patch("/v1/kits/default", &cap).expect(200);
        let another = |client: &Client| client.post("/v1/users", &json!({ "name": "another" }));
        let refused = |why: &str| {
            let told = another(&developer).expect_error(403, "forbidden");
            assert_eq!(told["reason"], "loosening_not_allowed", "{why}");
        };
        refused("nothing bounds the sum");
        let path = "/v1/projects/default";
        let cents = |cents: u64| json!({ "budget": { "cap_cents": cents, "period": "day" } });
        // However wide: it is a bound that they chose themselves, and one that they tighten stays so.
        for own in [cents(100_000_000), cents(90_000_000)] {
            developer.patch(path, &own).expect(200);
            refused("their own bound");
        }
        tenant.client.patch(path, &cents(90_000_000)).expect(200);
        another(&developer).expect(201);
        tenant.client.patch(path, &json!({ "budget": null })).expect(200);
        refused("gone again");
        world.books_agree();
    }
}

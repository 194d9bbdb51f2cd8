//! An organization that does not pay is told so, and how to pay; one that pays is let in, once and
//! on every replica.

use charter_tests::artefacts::Artefacts;
use charter_tests::patience::until;
use charter_tests::server::Server;
use charter_tests::world::Builder;
use charter_tests::{Answer, Client, Database, Tenant, World, on_both};
use serde_json::{Value, json};

use crate::rules::{play, sights};

/// The plans and packs that the operator sells.
const OWN_PLANS: &str = r#"
[primitives.billing]
packs = [{ id = "small", price_cents = 700 }]

[[primitives.billing.plans]]
id = "team"
name = "Team"
price_cents = 4_900
period = "month"
included_credit_cents = 6_000
"#;

/// A deployment that this primitive bills.
fn world_with_biller(primitive: &str, enforce: bool) -> Builder {
    let enforced = if enforce { "true" } else { "false" };
    let builder = Builder::new().environment("CHARTER_BILLING_PRIMITIVE", primitive);
    builder.environment("CHARTER_BILLING_ENFORCE", enforced)
}

/// A new organization, once its trial has begun.
fn on_trial(world: &World) -> Tenant {
    world.install("script", &Artefacts::get().fixture("script"));
    let tenant = world.register();
    until("the trial begins", || standing(&tenant.client) == "llm_routing_requires_payment");
    tenant
}

fn standing(client: &Client) -> Value {
    client.get("/v1/status").expect(200)["standing"]["reason"].clone()
}

/// A call that only bought credit pays for.
fn think(client: &Client) -> Answer {
    client.post("/v1/script/think", &json!({ "steps": [] }))
}

/// The operator notes that an invoice was paid.
fn pay(world: &World, tenant: &Tenant, invoice: &Value) {
    let credit = json!({
        "organization_id": tenant.organization, "amount_cents": invoice["amount_cents"], "memo": "by bank", "reference": invoice["id"],
    });
    let given = world.operator().post("/v1/operator/credits", &credit).expect(201);
    assert_eq!(given["credit"]["reference"], invoice["id"]);
}

fn invoice(client: &Client, id: &Value) -> Value {
    client.get(&format!("/v1/billing/invoices/{}", id.as_str().unwrap())).expect(200)["invoice"]
        .clone()
}

/// The organization's credit, in cents.
fn credit(client: &Client) -> i64 {
    sights(&play(client, json!([{ "balance": "credit" }])))[0]["available"].as_i64().unwrap()
        / 10_000
}

/// Subscribes, and pays for it.
fn subscribe(world: &World, tenant: &Tenant) {
    let made =
        tenant.client.post("/v1/billing/subscribe", &json!({ "plan": "starter" })).expect(201);
    pay(world, tenant, &made["invoice"]);
    until("the subscription counts", || {
        tenant.client.get("/v1/billing/subscription").expect(200)["subscription"]["status"]
            == "active"
    });
}

/// Ends the subscription at once.
fn cancel(tenant: &Tenant) {
    tenant.client.post("/v1/billing/cancel", &json!({ "at_period_end": false })).expect(200);
}

/// Does what a refusal says can be done.
fn follow(client: &Client, action: &Value, body: Value) -> Answer {
    let (method, path) = action.as_str().and_then(|action| action.split_once(' ')).unwrap();
    if method == "GET" { client.get(path) } else { client.call(method, path).json(&body).send() }
}

on_both! {
    fn credit_that_was_given_pays_for_no_model_calls(world: world_with_biller("billing", true)) {
        let tenant = on_trial(world);
        let refused = think(&tenant.client).expect_error(402, "llm_routing_requires_payment");
        assert_eq!((&refused["block_reason"], &refused["credit_kind"]), (&json!("llm_routing_requires_payment"), &json!("trial")));
        assert_eq!(refused["balance"], 500);
        assert!(refused["balance_note"].as_str().is_some_and(|note| note.contains("not what was refused")), "{refused}");
        let paths = json!({
            "topup": "POST /v1/billing/topup",
            "subscribe": "POST /v1/billing/subscribe",
            "view_plans": "GET /v1/billing/plans",
        });
        assert_eq!(refused["actions"], paths);
        // By way of another operation it is refused all the same, and everything else goes on.
        let nested = json!([{ "try": { "call": "script.think", "body": { "steps": [] } } }]);
        assert_eq!(sights(&play(&tenant.client, nested))[0]["failure"], "llm_routing_requires_payment");
        tenant.client.post("/v1/queue", &json!({ "name": "open" })).expect(201);
        assert_eq!(credit(&tenant.client), 500);
        world.books_agree();
    }

    fn an_invoice_is_paid_once_by_the_operators_credit(world: world_with_biller("billing", true)) {
        let tenant = on_trial(world);
        let refused = think(&tenant.client).expect_error(402, "llm_routing_requires_payment");
        let asked = follow(&tenant.client, &refused["actions"]["topup"], json!({ "pack": "pack_10" }));
        let open = asked.expect(200)["invoice"].clone();
        assert_eq!(open["status"], "open");
        pay(world, &tenant, &open);
        until("it is paid", || invoice(&tenant.client, &open["id"])["status"] == "paid");
        think(&tenant.client).expect(200);
        assert_eq!(standing(&tenant.client), Value::Null);
        let paid = invoice(&tenant.client, &open["id"]);
        // A second one is money all the same: it was given. The invoice is as it was.
        pay(world, &tenant, &open);
        let other = follow(&tenant.client, &refused["actions"]["topup"], json!({ "amount_cents": 100 })).expect(200)["invoice"].clone();
        pay(world, &tenant, &other);
        until("the later one is paid", || invoice(&tenant.client, &other["id"])["status"] == "paid");
        assert_eq!(invoice(&tenant.client, &open["id"]), paid);
        assert_eq!(credit(&tenant.client), 500 + 1_000 + 1_000 + 100);
        world.books_agree();
    }

    fn a_cancelled_subscription_stops_every_other_primitive(world: world_with_biller("billing", true)) {
        let tenant = on_trial(world);
        let queue = tenant.client.post("/v1/queue", &json!({ "name": "before" })).expect(201)["queue"]["id"].clone();
        subscribe(world, &tenant);
        think(&tenant.client).expect(200);
        cancel(&tenant);
        let queue = format!("/v1/queue/{}", queue.as_str().unwrap());
        let blocked = [tenant.client.get(&queue), tenant.client.post("/v1/queue", &json!({ "name": "after" })), think(&tenant.client)];
        for answer in &blocked {
            assert_eq!(answer.expect_error(402, "billing_blocked")["block_reason"], "subscription_cancelled");
        }
        // The host and the biller go on, and another organization too.
        tenant.client.get("/v1/organization").expect(200);
        let user = tenant.user("made while blocked");
        let below = tenant.client.get(&format!("/v1/users/{user}/queue"));
        let actions = below.expect_error(402, "billing_blocked")["actions"].clone();
        assert_eq!(standing(&tenant.client), "subscription_cancelled");
        world.register().client.post("/v1/queue", &json!({ "name": "theirs" })).expect(201);
        // The actions that it is given work as given.
        follow(&tenant.client, &actions["view_plans"], Value::Null).expect(200);
        follow(&tenant.client, &actions["topup"], json!({ "amount_cents": 100 })).expect(200);
        let made = follow(&tenant.client, &actions["subscribe"], json!({ "plan": "pro" })).expect(201);
        tenant.client.get(&queue).expect_error(402, "billing_blocked");
        pay(world, &tenant, &made["invoice"]);
        until("it is let in again", || tenant.client.get(&queue).status == 200);
        // The credit that the plan includes came with it.
        assert_eq!(credit(&tenant.client), 500 + 2_000 + 10_000 + 1_000);
        world.books_agree();
    }

    fn an_operators_own_plan_is_shown_bought_and_billed(world: world_with_biller("billing", true).configuration(OWN_PLANS)) {
        let tenant = on_trial(world);
        let team = json!({ "id": "team", "name": "Team", "price_cents": 4_900, "period": "month", "included_credit_cents": 6_000 });
        assert_eq!(tenant.client.get("/v1/billing/plans").expect(200)["plans"], json!([team]));
        assert_eq!(tenant.client.get("/v1/billing/packs").expect(200)["packs"], json!([{ "id": "small", "price_cents": 700 }]));
        let refused = tenant.client.post("/v1/billing/subscribe", &json!({ "plan": "starter" })).expect_error(400, "invalid_input");
        assert_eq!(refused["param"], "plan");
        let made = tenant.client.post("/v1/billing/subscribe", &json!({ "plan": "team" })).expect(201);
        assert_eq!((&made["invoice"]["amount_cents"], &made["invoice"]["plan"]), (&json!(4_900), &json!("team")));
        pay(world, &tenant, &made["invoice"]);
        until("the subscription counts", || standing(&tenant.client) == Value::Null);
        // Settings that are not set have their defaults: the trial's credit, then the payment, and
        // the credit that the plan includes beyond its price.
        assert_eq!(credit(&tenant.client), 500 + 4_900 + 1_100);
        let pack = tenant.client.post("/v1/billing/topup", &json!({ "pack": "small" })).expect(200)["invoice"].clone();
        assert_eq!(pack["amount_cents"], 700);
        world.books_agree();
    }

    fn nothing_is_stopped_unless_it_is_enforced(world: world_with_biller("billing", false)) {
        let tenant = on_trial(world);
        think(&tenant.client).expect(200);
        subscribe(world, &tenant);
        cancel(&tenant);
        assert_eq!(standing(&tenant.client), "subscription_cancelled");
        tenant.client.post("/v1/queue", &json!({ "name": "open" })).expect(201);
        think(&tenant.client).expect(200);
        world.books_agree();
    }

    fn only_the_biller_says_how_an_organization_stands_and_brings_credit(world: world_with_biller("script", true)) {
        world.install("script", &Artefacts::get().fixture("script"));
        let tenant = world.register();
        let (queue, stand) = (|| tenant.client.get("/v1/queue"), |reason: Value| play(&tenant.client, json!([{ "stand": reason }])));
        for reason in ["no_subscription", "trial_expired", "subscription_cancelled", "subscription_past_due", "credits_exhausted"] {
            stand(json!(reason)).expect(200);
            let refused = queue().expect_error(402, "billing_blocked");
            // This biller says of none of its operations that it takes money.
            assert_eq!((&refused["block_reason"], &refused["actions"]), (&json!(reason), &json!({})));
        }
        // The biller's own is never stopped, whatever it routes to.
        stand(json!("llm_routing_requires_payment")).expect(200);
        queue().expect(200);
        think(&tenant.client).expect(200);
        stand(json!("because")).expect_error(400, "invalid_input");
        // A refused request leaves the standing as it was.
        play(&tenant.client, json!([{ "stand": "trial_expired" }, { "refuse": "state_conflict" }])).expect_error(409, "state_conflict");
        queue().expect(200);
        stand(Value::Null).expect(200);
        assert_eq!(standing(&tenant.client), Value::Null);
        let bring = json!([{ "source": "outside" }, { "move": 30_000, "from": "outside", "to": "credit" }]);
        play(&tenant.client, bring.clone()).expect(200);
        assert_eq!(credit(&tenant.client), 3);
        world.books_agree();
        world.stop();
        world.options().environment.retain(|(name, _)| !name.starts_with("CHARTER_BILLING"));
        world.start();
        let client = tenant.client.at(world.server().address());
        play(&client, json!([{ "stand": "trial_expired" }])).expect_error(403, "forbidden");
        play(&client, bring).expect_error(403, "forbidden");
        assert_eq!(credit(&client), 3);
        world.books_agree();
    }
}

#[test]
fn what_is_set_of_a_primitive_is_checked_at_the_start() {
    let mut world = Builder::new().start(Database::Sqlite);
    world.stop();
    let file = world.data().join("charter.toml");
    let faulty = OWN_PLANS.replace("price_cents = 4_900", "price_cents = \"49.00\"");
    std::fs::write(&file, format!("{faulty}\n[primitives.queue]\ndepth = 3\n")).unwrap();
    world.options().arguments.extend(["--config".to_owned(), file.to_string_lossy().into_owned()]);
    let told = Server::start(world.options()).expect_err("a host that does not start");
    for fault in [
        "primitives.billing.plans.0.price_cents must be",
        "primitives.queue.depth is no setting of queue",
    ] {
        assert!(told.contains(fault), "{fault} is missing: {told}");
    }
    // Mended, it starts: nothing was changed.
    std::fs::write(&file, OWN_PLANS).unwrap();
    world.start();
    let plans = world.register().client.get("/v1/billing/plans").expect(200);
    assert_eq!(plans["plans"][0]["id"], "team");
}

#[test]
fn what_is_set_of_a_primitive_is_checked_when_a_version_of_it_is_activated() {
    let world = Builder::new()
        .bare()
        .environment("CHARTER_PRIMITIVES_SCRIPT", r#"{"depth": 3}"#)
        .start(Database::Sqlite);
    let refused = world
        .upload("script", &Artefacts::get().fixture("script"), true)
        .expect_error(422, "invalid_component");
    assert_eq!(refused["param"], "primitives.script.depth");
    world.register().client.get("/v1/script/notes").expect_error(404, "not_found");
    let staged =
        world.operator().get("/v1/operator/components/script").expect(200)["component"].clone();
    assert_eq!(
        (&staged["active"], &staged["versions"][0]["state"]),
        (&Value::Null, &json!("staged")),
        "{staged}"
    );
}

#[test]
fn another_replica_knows_it_from_the_next_request_on() {
    let world = world_with_biller("billing", true).start(Database::Postgresql);
    let here = on_trial(&world);
    let (second, _folder) = world.replica();
    let there = here.at(second.address());
    subscribe(&world, &here);
    for _ in 0..5 {
        there.client.get("/v1/queue").expect(200);
        cancel(&here);
        assert_eq!(
            there.client.get("/v1/queue").expect_error(402, "billing_blocked")["block_reason"],
            "subscription_cancelled"
        );
        let made =
            there.client.post("/v1/billing/subscribe", &json!({ "plan": "starter" })).expect(201);
        pay(&world, &there, &made["invoice"]);
        until("both let it in", || {
            [&here, &there].iter().all(|tenant| tenant.client.get("/v1/queue").status == 200)
        });
    }
    world.books_agree();
}

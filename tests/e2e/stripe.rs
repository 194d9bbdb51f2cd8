//! Billing by card: a payment is credit once the provider has said so, once, whatever breaks in
//! between. Against an emulation of Stripe's API that is somebody else's, and against a double of
//! our own where that one has no shape.

use charter_tests::localstripe::{self, LocalStripe};
use charter_tests::patience::until;
use charter_tests::stripe::{self, Stripe};
use charter_tests::tenant::id;
use charter_tests::world::Builder;
use charter_tests::{Answer, Client, Database, Tenant, World, on_both};
use serde_json::{Value, json};

use crate::hooks::{counted, seconds, stripe_signature};

/// What the provider signs with.
const SECRET: &str = "whsec_of_the_tests";
const HOOK: &str = "/v1/hooks/providers/stripe";

/// A deployment that is billed.
fn billed() -> Builder {
    let builder = Builder::new().environment("CHARTER_BILLING_PRIMITIVE", "billing");
    builder
        .environment("CHARTER_BILLING_ENFORCE", "true")
        .environment("CHARTER_EGRESS_ALLOW", "127.0.0.0/8")
}

fn bind(world: &World, url: &str, key: &str) {
    let body = json!({ "kind": "stripe", "url": url, "credential": key, "webhook_secret": SECRET });
    let bound = world.operator().put("/v1/operator/providers/stripe", &body).expect(200);
    assert!(!bound.to_string().contains(SECRET) && !bound.to_string().contains(key), "{bound}");
}

/// A new organization, once its trial has begun.
fn on_trial(world: &World) -> Tenant {
    let tenant = world.register();
    until("the trial begins", || standing(&tenant.client) == "llm_routing_requires_payment");
    tenant
}

fn standing(client: &Client) -> Value {
    client.get("/v1/status").expect(200)["standing"]["reason"].clone()
}

/// What the organization's credit has, in cents.
fn credit(client: &Client) -> i64 {
    let accounts = client.get("/v1/ledger/accounts?limit=100").expect(200);
    let account =
        accounts["accounts"].as_array().unwrap().iter().find(|account| account["name"] == "credit");
    account.map_or(0, |account| account["posted_micro_usd"].as_i64().unwrap()) / 10_000
}

fn top_up(client: &Client, body: Value) -> Answer {
    client.post("/v1/billing/topup", &body)
}

fn invoice(client: &Client, id: &str) -> Value {
    client.get(&format!("/v1/billing/invoices/{id}")).expect(200)["invoice"].clone()
}

/// Sends an event as Stripe does, and expects that it is taken.
#[track_caller]
fn tell(world: &World, tenant: &Tenant, event: &Value) {
    let body = event.to_string();
    let signature = stripe_signature(SECRET, seconds(tenant), &body);
    let call = world
        .anonymous()
        .call("POST", HOOK)
        .header("stripe-signature", &signature)
        .bytes(body.into_bytes())
        .send();
    call.expect(200);
}

/// An event about an object, called by its type and the object's id.
fn event(kind: &str, object: Value) -> Value {
    json!({ "id": format!("evt_{kind}_{}", object["id"].as_str().unwrap()), "type": kind, "data": { "object": object } })
}

fn intent(id: &str, asked: &stripe::Asked, prefix: &str, cents: u64) -> Value {
    let metadata = |name: &str| asked.form[&format!("{prefix}{name}")].clone();
    json!({
        "id": id, "object": "payment_intent", "status": "succeeded", "amount": cents, "amount_received": cents, "currency": "usd",
        "customer": asked.form["customer"], "payment_method": "pm_double_kept",
        "metadata": { "charter_hook": metadata("[charter_hook]"), "charter_invoice": metadata("[charter_invoice]") },
    })
}

on_both! {
    fn a_person_pays_on_the_providers_page_and_the_card_is_kept(world: billed()) {
        let double = Stripe::start();
        bind(world, &format!("http://{}", double.address), stripe::KEY);
        let tenant = on_trial(world);
        let client = &tenant.client;
        top_up(client, json!({ "pack": "pack_10" })).expect_error(400, "invalid_input");
        let body = json!({ "pack": "pack_10", "return_url": "https://example.com/back" });
        let first = client.call("POST", "/v1/billing/topup").idempotency_key("one-purchase").json(&body);
        let bought = first.clone().send().expect(200);
        assert_eq!(first.send().expect(200), bought, "asked again it is the same page");
        assert_eq!((&bought["payment"]["status"], &bought["invoice"]["status"]), (&json!("open"), &json!("open")));
        assert!(bought["payment"]["url"].as_str().unwrap().starts_with("https://checkout.example/"));
        let owed = id(&bought["invoice"]);
        let asked = double.asked("/v1/checkout/sessions");
        assert_eq!((asked.len(), asked[0].form["success_url"].as_str()), (1, "https://example.com/back"));
        assert_eq!(asked[0].form["line_items[0][price_data][unit_amount]"], "1000");
        assert_eq!((credit(client), standing(client)), (500, json!("llm_routing_requires_payment")), "nothing was paid yet");
        // The provider tells of one payment in two ways; each comes twice, and in the order that it
        // likes.
        let paid = intent("pi_1", &asked[0], "payment_intent_data[metadata]", 1_000);
        let session = json!({
            "id": "cs_1", "object": "checkout.session", "payment_status": "paid", "payment_intent": "pi_1", "amount_total": 1_000,
            "currency": "usd", "client_reference_id": asked[0].form["client_reference_id"], "metadata": paid["metadata"],
        });
        let unpaid = json!({ "id": "cs_0", "payment_status": "unpaid", "payment_intent": "pi_1", "amount_total": 1_000, "currency": "usd", "metadata": paid["metadata"] });
        tell(world, &tenant, &event("checkout.session.completed", unpaid));
        for _ in 0..2 {
            tell(world, &tenant, &event("checkout.session.completed", session.clone()));
            tell(world, &tenant, &event("payment_intent.succeeded", paid.clone()));
        }
        until("it is paid", || invoice(client, &owed)["status"] == "paid");
        assert_eq!(standing(client), Value::Null);
        // The next one is by the kept card, and credit by the provider's word alone.
        until("the card is kept", || {
            let bought = top_up(client, json!({ "amount_cents": 700 }));
            if bought.status != 200 {
                return false;
            }
            let bought = bought.json();
            assert_eq!((&bought["payment"]["status"], &bought["payment"]["url"]), (&json!("processing"), &Value::Null));
            let asked = double.asked("/v1/payment_intents").pop().unwrap();
            assert_eq!((asked.form["payment_method"].as_str(), asked.form["off_session"].as_str()), ("pm_double_kept", "true"));
            // It pays more than was asked for: what came is credit.
            tell(world, &tenant, &event("payment_intent.succeeded", intent("pi_2", &asked, "metadata", 750)));
            until("it is paid", || invoice(client, &id(&bought["invoice"]))["status"] == "paid");
            true
        });
        assert_eq!(credit(client), 500 + 1_000 + 750);
        assert_eq!(double.done("/v1/customers"), 1);
        let portal = client.post("/v1/billing/portal", &json!({})).expect(200);
        assert!(portal["url"].as_str().unwrap().starts_with("https://portal.example/"));
        assert_eq!(double.asked("/v1/billing_portal/sessions")[0].form["customer"], asked[0].form["customer"]);
        world.books_agree();
    }

    fn what_is_given_back_is_taken_back_as_far_as_it_is_there(world: billed()) {
        let double = Stripe::start();
        bind(world, &format!("http://{}", double.address), stripe::KEY);
        let tenant = on_trial(world);
        let client = &tenant.client;
        let bought = top_up(client, json!({ "amount_cents": 1_000, "payment_method": "pm_new" })).expect(200);
        let owed = id(&bought["invoice"]);
        let asked = double.asked("/v1/payment_intents").pop().unwrap();
        assert_eq!(asked.form["payment_method_options[card][setup_future_usage]"], "off_session");
        let paid = intent("pi_1", &asked, "metadata", 1_000);
        let refund = |number: u32, cents: u64| {
            let charge = json!({ "id": format!("ch_{number}"), "payment_intent": "pi_1", "amount_refunded": cents, "currency": "usd", "metadata": paid["metadata"] });
            tell(world, &tenant, &event("charge.refunded", charge));
        };
        // Word of what was given back may come before word of what was received.
        refund(1, 300);
        tell(world, &tenant, &event("payment_intent.succeeded", paid.clone()));
        until("both are noted", || invoice(client, &owed)["taken_back_cents"] == 300);
        assert_eq!((credit(client), invoice(client, &owed)["status"].clone()), (500 + 700, json!("paid")));
        // What is spent by then is not there to be taken.
        let card = id(&client.post("/v1/cards", &json!({ "label": "books" })).expect(201)["card"]);
        client.post(&format!("/v1/cards/{card}/top-up"), &json!({ "amount_cents": 1_000 })).expect(200);
        refund(2, 1_000);
        until("what there is goes back", || invoice(client, &owed)["refunded_cents"] == 1_000);
        assert_eq!((credit(client), invoice(client, &owed)["taken_back_cents"].clone()), (0, json!(500)));
        // All of it was given back: nothing is bought any more.
        assert_eq!(standing(client), "llm_routing_requires_payment");
        refund(2, 1_000);
        assert_eq!(credit(client), 0);
        world.books_agree();
    }

    fn a_payment_whose_answer_is_lost_is_made_once(world: billed()) {
        let double = Stripe::start();
        bind(world, &format!("http://{}", double.address), stripe::KEY);
        let tenant = on_trial(world);
        let client = &tenant.client;
        let body = json!({ "amount_cents": 1_000, "payment_method": "pm_new" });
        double.loses(1);
        top_up(client, body.clone()).expect_error(502, "provider_error");
        assert_eq!((double.done("/v1/customers"), double.done("/v1/payment_intents")), (1, 0));
        // The customer is there: the next one is not another.
        let bought = top_up(client, body).expect(200);
        assert_eq!((double.done("/v1/customers"), double.done("/v1/payment_intents")), (1, 1));
        let asked = double.asked("/v1/payment_intents").pop().unwrap();
        tell(world, &tenant, &event("payment_intent.succeeded", intent("pi_1", &asked, "metadata", 1_000)));
        // Killed right after the provider's word was taken: it is not lost, and told again it is
        // not another one.
        world.kill();
        world.start();
        let client = client.at(world.server().address());
        let tenant = tenant.at(world.server().address());
        until("it is paid", || invoice(&client, &id(&bought["invoice"]))["status"] == "paid");
        tell(world, &tenant, &event("payment_intent.succeeded", intent("pi_1", &asked, "metadata", 1_000)));
        assert_eq!((credit(&client), counted(world, "repeated")), (500 + 1_000, 1));
        world.books_agree();
    }
}

/// The host's own words with localstripe on the other side, which tells it by signed webhooks.
#[test]
fn cards_are_charged_declined_and_refunded_by_an_emulation() {
    let provider = LocalStripe::start();
    let world = billed().start(Database::Sqlite);
    bind(&world, provider.url(), localstripe::KEY);
    provider.tells(&format!("{}{HOOK}", world.server().address()), SECRET);
    let tenant = on_trial(&world);
    let client = &tenant.client;
    let card = provider.card("4242424242424242");
    let bought = top_up(client, json!({ "pack": "pack_10", "payment_method": card })).expect(200);
    assert_eq!(
        (&bought["payment"]["status"], &bought["invoice"]["status"]),
        (&json!("processing"), &json!("open"))
    );
    until("the signed word comes", || invoice(client, &id(&bought["invoice"]))["status"] == "paid");
    assert_eq!((credit(client), standing(client)), (1_500, Value::Null));
    // The same card pays for a plan, with nobody there.
    let made = client.post("/v1/billing/subscribe", &json!({ "plan": "starter" })).expect(201);
    assert_eq!(
        (&made["payment"]["status"], &made["subscription"]["status"]),
        (&json!("processing"), &json!("pending"))
    );
    until("the subscription counts", || {
        client.get("/v1/billing/subscription").expect(200)["subscription"]["status"] == "active"
    });
    let upgraded = client.post("/v1/billing/upgrade", &json!({ "plan": "pro" })).expect(200);
    until("the upgrade counts", || {
        client.get("/v1/billing/subscription").expect(200)["subscription"]["plan"] == "pro"
    });
    assert_eq!(credit(client), 1_500 + 2_000 + 8_000 + 1_000);
    let events = provider.events("payment_intent.succeeded");
    assert_eq!(events.len(), 3);
    // What is declined is told in words, and nothing is credited.
    for (number, reason) in
        [("4000000000000341", "card_declined"), ("4000002500003155", "authentication_required")]
    {
        let method = provider.card(number);
        let refused = top_up(client, json!({ "amount_cents": 900, "payment_method": method }))
            .expect_error(402, "payment_rejected");
        assert_eq!(refused["reason"], reason);
    }
    let void = |invoice: &&Value| invoice["status"] == "void";
    let listed = client.get("/v1/billing/invoices?limit=100").expect(200);
    assert_eq!(listed["invoices"].as_array().unwrap().iter().filter(void).count(), 2);
    // An invoice that is paid is not paid again.
    let again = json!({ "invoice_id": upgraded["invoice"]["id"] });
    assert_eq!(
        top_up(client, again).expect_error(409, "state_conflict")["reason"],
        "invoice_closed"
    );
    // A refund at the provider. The emulation sends no event of it, and copies no metadata: the
    // event is made of its own charge.
    let of_first = |event: &&Value| {
        event["data"]["object"]["metadata"]["charter_invoice"] == bought["invoice"]["id"]
    };
    let first = events.iter().find(of_first).unwrap()["data"]["object"].clone();
    provider.post(
        "/v1/refunds",
        &format!("payment_intent={}&amount=400", first["id"].as_str().unwrap()),
    );
    let charge = first["latest_charge"]["id"].as_str().or(first["latest_charge"].as_str()).unwrap();
    let mut charge = provider.get(&format!("/v1/charges/{charge}"));
    charge["metadata"] = first["metadata"].clone();
    tell(&world, &tenant, &event("charge.refunded", charge));
    until("it is taken back", || credit(client) == 12_100);
    assert_eq!(invoice(client, &id(&bought["invoice"]))["refunded_cents"], 400);
    world.books_agree();
}

/// Killed between the payment and the provider's word of it: the word comes again, as Stripe sends
/// it again.
#[test]
fn a_crash_between_payment_and_webhook_loses_nothing_and_doubles_nothing() {
    let provider = LocalStripe::start();
    let mut world = billed().start(Database::Sqlite);
    bind(&world, provider.url(), localstripe::KEY);
    provider.tells(&format!("{}{HOOK}", world.server().address()), SECRET);
    let tenant = on_trial(&world);
    let card = provider.card("4242424242424242");
    let bought =
        top_up(&tenant.client, json!({ "pack": "pack_10", "payment_method": card })).expect(200);
    // The emulation sends what it has to tell a second later.
    world.kill();
    world.start();
    let tenant = tenant.at(world.server().address());
    let client = &tenant.client;
    let events = provider.events("payment_intent.succeeded");
    assert_eq!(events.len(), 1, "one payment was made");
    for _ in 0..2 {
        tell(&world, &tenant, &events[0]);
    }
    until("it is paid", || invoice(client, &id(&bought["invoice"]))["status"] == "paid");
    tell(&world, &tenant, &events[0]);
    assert_eq!(credit(client), 1_500);
    assert_eq!(provider.events("payment_intent.succeeded").len(), 1);
    world.books_agree();
}

/// With a provider bound and nobody named as the biller, nothing can become credit: it is paid by
/// invoice as ever.
#[test]
fn nothing_is_taken_that_could_not_be_credited() {
    let world =
        Builder::new().environment("CHARTER_EGRESS_ALLOW", "127.0.0.0/8").start(Database::Sqlite);
    let double = Stripe::start();
    bind(&world, &format!("http://{}", double.address), stripe::KEY);
    let tenant = world.register();
    let refused = top_up(&tenant.client, json!({ "amount_cents": 5, "invoice": false }))
        .expect_error(501, "not_configured");
    assert_eq!(refused["details"]["missing"], json!(["[billing] primitive"]));
    top_up(&tenant.client, json!({ "amount_cents": 5 })).expect(200);
    assert_eq!(double.asked("/v1/payment_intents").len(), 0);
    let billed = billed().start(Database::Sqlite);
    let unsigned = json!({ "kind": "stripe", "url": format!("http://{}", double.address), "credential": stripe::KEY });
    billed.operator().put("/v1/operator/providers/stripe", &unsigned).expect(200);
    let tenant = on_trial(&billed);
    let refused = top_up(&tenant.client, json!({ "amount_cents": 5, "payment_method": "pm_1" }))
        .expect_error(501, "not_configured");
    assert_eq!(refused["details"]["missing"], json!(["stripe.webhook_secret"]));
    top_up(&tenant.client, json!({ "amount_cents": 5, "invoice": true })).expect(200);
    assert_eq!(double.asked("/v1/customers").len(), 0);
}

//! Billing by card with localstripe on the other side, which tells the host by signed webhooks.

use charter_tests::Database;
use charter_tests::billed::{
    HOOK, SECRET, billed, bind, credit, event, invoice, on_trial, standing, tell, top_up,
};
use charter_tests::localstripe::{self, LocalStripe};
use charter_tests::patience::until;
use charter_tests::tenant::id;
use serde_json::{Value, json};

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
    // A declined payment says why, and credits nothing.
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

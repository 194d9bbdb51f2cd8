//! Billing by card: a payment is credit once the provider has said so, once, whatever breaks in
//! between. Against a double of Stripe; `tests/nightly` has the same against an emulation that
//! somebody else wrote.

use charter_tests::billed::{
    billed, bind, credit, event, invoice, on_trial, standing, tell, top_up,
};
use charter_tests::patience::until;
use charter_tests::stripe::{self, Stripe};
use charter_tests::tenant::{PASSWORD, id};
use charter_tests::world::Builder;
use charter_tests::{Client, Database, Tenant, World, on_both};
use serde_json::{Value, json};

use crate::accounts::browser;
use crate::hooks::count;

fn intent(id: &str, asked: &stripe::Asked, prefix: &str, cents: u64) -> Value {
    let metadata = |name: &str| asked.form[&format!("{prefix}{name}")].clone();
    json!({
        "id": id, "object": "payment_intent", "status": "succeeded", "amount": cents, "amount_received": cents, "currency": "usd",
        "customer": asked.form["customer"], "payment_method": "pm_double_kept",
        "metadata": { "charter_hook": metadata("[charter_hook]"), "charter_invoice": metadata("[charter_invoice]"), "charter_payment": asked.form.get(&format!("{prefix}[charter_payment]")) },
    })
}

/// The states of the organization's holds, newest first.
fn holds(client: &Client) -> Vec<String> {
    let listed = client.get("/v1/governance/holds").expect(200)["holds"].clone();
    let listed = listed.as_array().unwrap().iter();
    listed.map(|hold| hold["state"].as_str().unwrap().to_owned()).collect()
}

/// A provider, and a tenant that has bought as much by this body as its budget leaves for another.
fn spent_by_half(world: &World) -> (Stripe, Tenant, Value) {
    let double = Stripe::start();
    bind(world, &format!("http://{}", double.address), stripe::KEY);
    let tenant = on_trial(world);
    let body = json!({ "amount_cents": 1_000, "payment_method": "pm_new" });
    top_up(&tenant.client, body.clone()).expect(200);
    let budget = json!({ "budget": { "cap_cents": 2_000, "period": "total" } });
    tenant.client.patch("/v1/organization", &budget).expect(200);
    (double, tenant, body)
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
        let asked = double.requests("/v1/checkout/sessions");
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
            let asked = double.requests("/v1/payment_intents").pop().unwrap();
            assert_eq!((asked.form["payment_method"].as_str(), asked.form["off_session"].as_str()), ("pm_double_kept", "true"));
            // It pays more than was asked for: what came is credit.
            tell(world, &tenant, &event("payment_intent.succeeded", intent("pi_2", &asked, "metadata", 750)));
            until("it is paid", || invoice(client, &id(&bought["invoice"]))["status"] == "paid");
            true
        });
        assert_eq!(credit(client), 500 + 1_000 + 750);
        let held = client.get("/v1/governance/holds?state=captured&limit=100").expect(200)["holds"].clone();
        let spent = held.as_array().unwrap().iter().map(|hold| hold["actual_micro_usd"].as_i64().unwrap() / 10_000);
        assert_eq!(spent.max(), Some(750), "and counts as it is: {held}");
        assert_eq!(double.effects("/v1/customers"), 1);
        let portal = client.post("/v1/billing/portal", &json!({})).expect(200);
        assert!(portal["url"].as_str().unwrap().starts_with("https://portal.example/"));
        assert_eq!(double.requests("/v1/billing_portal/sessions")[0].form["customer"], asked[0].form["customer"]);
        world.books_agree();
    }

    fn nobody_stops_what_is_the_organizations_at_a_profile_or_a_kit(world: billed()) {
        let double = Stripe::start();
        bind(world, &format!("http://{}", double.address), stripe::KEY);
        let tenant = on_trial(world);
        let pinned = tenant.key(json!({ "role": "developer", "project_id": tenant.project }));
        pinned.patch("/v1/kits/default", &json!({ "primitives": { "billing": { "enabled": false } } })).expect(200);
        pinned.post(&format!("/v1/users/{}/revoke", tenant.user), &json!({})).expect(200);
        let buy = |client: &Client| top_up(client, json!({ "amount_cents": 1_000, "payment_method": "pm_new" }));
        assert_eq!(buy(&pinned).expect_error(403, "forbidden")["reason"], "primitive_disabled_by_kit");
        let bought = buy(&tenant.client).expect(200);
        let asked = double.requests("/v1/payment_intents").pop().unwrap();
        tell(world, &tenant, &event("payment_intent.succeeded", intent("pi_1", &asked, "metadata", 1_000)));
        until("it is paid", || invoice(&tenant.client, &id(&bought["invoice"]))["status"] == "paid");
        assert_eq!(credit(&tenant.client), 1_500);
        // Nor do budgets, limits and frozen scopes of a profile or a project. The organization's bind it.
        let simulated = || tenant.client.post("/v1/governance/simulate", &json!({ "action": "billing.top_up", "amount_micro_usd": 10_000_000 })).expect(200);
        let cap = |cents: u64| json!({ "budget": { "cap_cents": cents, "period": "total" } });
        for path in ["/v1/projects/default", "/v1/kits/default"] {
            tenant.client.patch(path, &cap(1)).expect(200);
        }
        assert_eq!((&simulated()["verdict"], &simulated()["user_id"]), (&json!("allow"), &Value::Null));
        tenant.client.patch("/v1/organization", &cap(1_500)).expect(200);
        assert_eq!(buy(&tenant.client).expect_error(403, "forbidden")["reason"], "budget_exceeded");
        assert_eq!(simulated()["reason"], "budget_exceeded");
        tenant.client.patch("/v1/organization", &cap(2_500)).expect(200);
        let again = || {
            let call = tenant.client.call("POST", "/v1/billing/topup").idempotency_key("one-purchase");
            call.json(&json!({ "amount_cents": 1_000, "payment_method": "pm_new" })).send().expect(200)
        };
        let first = again();
        assert_eq!(again(), first);
        assert_eq!(double.effects("/v1/payment_intents"), 2);
        // A limit that names no user counts them once for the organization.
        tenant.client.patch("/v1/organization", &json!({ "budget": null })).expect(200);
        let limit = json!({ "id": "one", "actions": ["billing.*"], "period": "day", "max_count": 1 });
        tenant.client.put("/v1/governance/limits", &json!({ "limits": [limit] })).expect(200);
        let by = tenant.key(json!({ "role": "developer" }));
        buy(&by).expect(200);
        for client in [&by, &tenant.client] {
            let refused = buy(client).expect_error(403, "forbidden");
            assert_eq!((&refused["reason"], &refused["details"]["limit_id"]), (&json!("limit_exceeded"), &json!("one")));
        }
        assert_eq!(simulated()["reason"], "limit_exceeded");
        assert_eq!(double.effects("/v1/payment_intents"), 3);
        // A caller who names the profile or the project has it as a party.
        for (header, named) in [("x-service-user-id", &tenant.user), ("x-service-project-id", &tenant.project)] {
            let refused = buy(&tenant.client.with(header, named)).expect_error(403, "forbidden");
            assert_eq!(refused["reason"], "primitive_disabled_by_kit", "{header}");
        }
        world.books_agree();
    }

    fn what_is_given_back_is_taken_back_as_far_as_it_is_there(world: billed()) {
        let double = Stripe::start();
        bind(world, &format!("http://{}", double.address), stripe::KEY);
        let tenant = on_trial(world);
        let client = &tenant.client;
        let bought = top_up(client, json!({ "amount_cents": 1_000, "payment_method": "pm_new" })).expect(200);
        let owed = id(&bought["invoice"]);
        let asked = double.requests("/v1/payment_intents").pop().unwrap();
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
        // Credit that is spent by then cannot be taken back.
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

    fn first_purchases_at_once_are_of_one_customer(world: billed()) {
        let double = Stripe::start();
        bind(world, &format!("http://{}", double.address), stripe::KEY);
        let tenant = on_trial(world);
        double.keeps_back("/v1/customers");
        std::thread::scope(|scope| {
            let buy = || top_up(&tenant.client, json!({ "amount_cents": 1_000, "payment_method": "pm_new" })).status;
            let bought = [scope.spawn(buy), scope.spawn(buy)];
            until("both have asked", || double.requests("/v1/customers").len() == 2);
            // The provider answers one after the other: the account has changed for the second.
            double.releases();
            until("one is through", || bought.iter().any(std::thread::ScopedJoinHandle::is_finished));
            double.releases();
            assert_eq!(bought.map(|bought| bought.join().unwrap()), [200, 200]);
        });
        assert_eq!((double.effects("/v1/customers"), double.effects("/v1/payment_intents")), (1, 2));
        // And where it answers all of them at once.
        let buyers = [(); 5].map(|()| on_trial(world));
        std::thread::scope(|scope| {
            let buy = |tenant| move || top_up(tenant, json!({ "amount_cents": 1_000, "payment_method": "pm_new" })).status;
            let bought: Vec<_> = buyers.iter().flat_map(|tenant| [(); 2].map(|()| scope.spawn(buy(&tenant.client)))).collect();
            until("all have asked", || double.requests("/v1/customers").len() == 12);
            (0..10).for_each(|_| double.releases());
            for bought in bought {
                assert_eq!(bought.join().unwrap(), 200);
            }
        });
        assert_eq!((double.effects("/v1/customers"), double.effects("/v1/payment_intents")), (6, 12));
        world.books_agree();
    }

    fn a_charge_without_an_answer_counts_by_the_providers_word(world: billed()) {
        let (double, tenant, body) = spent_by_half(world);
        let client = &tenant.client;
        double.loses(1);
        let call = client.call("POST", "/v1/billing/topup").idempotency_key("one-purchase").json(&body);
        let bought = call.clone().send().expect(200);
        assert_eq!(bought["payment"]["status"], "pending", "nobody knows yet");
        assert_eq!(call.send().expect(200), bought);
        assert_eq!(holds(client), ["in_doubt", "captured"]);
        let asked = double.requests("/v1/payment_intents").pop().unwrap();
        tell(world, &tenant, &event("payment_intent.succeeded", intent("pi_1", &asked, "metadata", 1_000)));
        until("it is captured", || holds(client) == ["captured", "captured"]);
        assert_eq!(invoice(client, &id(&bought["invoice"]))["status"], "paid");
        let question = json!({ "action": "billing.top_up", "amount_micro_usd": 1 });
        let caps = client.post("/v1/governance/simulate", &question).expect(200)["caps"].clone();
        let whole = caps.as_array().unwrap().iter().find(|cap| cap["scope"] == "organization").unwrap();
        assert_eq!((&whole["spent_micro_usd"], &whole["reserved_micro_usd"]), (&json!(20_000_000), &json!(0)));
        assert_eq!(top_up(client, body).expect_error(403, "forbidden")["reason"], "budget_exceeded");
        world.books_agree();
    }

    fn a_charge_for_who_leaves_meanwhile_counts_by_the_providers_word(world: billed()) {
        let ways = ["revoked", "deleted"].into_iter().flat_map(|leaves| [(leaves, false), (leaves, true)]);
        for (leaves, is_lost) in ways {
            let (double, tenant, body) = spent_by_half(world);
            let client = &tenant.client;
            let user = id(&client.post("/v1/users", &json!({ "name": "leaves" })).expect(201)["user"]);
            let named = client.with("x-service-user-id", &user);
            let before = double.requests("/v1/payment_intents").len();
            double.keeps_back("/v1/payment_intents");
            double.loses(u32::from(is_lost));
            std::thread::scope(|scope| {
                let buying = scope.spawn(|| top_up(&named, body.clone()));
                until("the provider is asked", || double.requests("/v1/payment_intents").len() > before);
                match leaves {
                    "revoked" => drop(client.post(&format!("/v1/users/{user}/revoke"), &json!({})).expect(200)),
                    _ => drop(client.delete(&format!("/v1/users/{user}")).expect(200)),
                }
                double.releases();
                assert_eq!(buying.join().unwrap().expect_error(409, "state_conflict")["reason"], "EFFECT_WITHOUT_RECORD");
            });
            let state = if is_lost { "in_doubt" } else { "captured" };
            assert_eq!(holds(client)[0], state, "{leaves}");
            let asked = double.requests("/v1/payment_intents").pop().unwrap();
            let name = format!("pi_{leaves}_{is_lost}");
            tell(world, &tenant, &event("payment_intent.succeeded", intent(&name, &asked, "metadata", 1_000)));
            until("it is captured", || holds(client) == ["captured", "captured"]);
            assert_eq!(top_up(client, body).expect_error(403, "forbidden")["reason"], "budget_exceeded", "{leaves}");
        }
        world.books_agree();
    }

    fn what_a_person_said_did_not_happen_counts_once_the_provider_signs_that_it_did(world: billed()) {
        let (double, tenant, body) = spent_by_half(world);
        let client = &tenant.client;
        double.loses(1);
        top_up(client, body.clone()).expect(200);
        let hold = client.get("/v1/governance/holds").expect(200)["holds"][0]["id"].as_str().unwrap().to_owned();
        let word = json!({ "outcome": "voided", "reason": "Stripe lists no charge." });
        browser(world, &tenant.email, PASSWORD).0.post(&format!("/v1/governance/holds/{hold}/resolve"), &word).expect(200);
        let asked = double.requests("/v1/payment_intents").pop().unwrap();
        for _ in 0..2 {
            tell(world, &tenant, &event("payment_intent.succeeded", intent("pi_1", &asked, "metadata", 1_000)));
        }
        until("it is credit", || credit(client) == 1_500);
        assert_eq!(holds(client), ["captured", "captured"]);
        assert_eq!(top_up(client, body).expect_error(403, "forbidden")["reason"], "budget_exceeded");
        world.books_agree();
    }

    fn what_a_person_said_to_be_less_counts_in_full_once_the_provider_signs_it(world: billed()) {
        for said in [0, 4_000_000] {
            let (double, tenant, body) = spent_by_half(world);
            let client = &tenant.client;
            let user = id(&client.post("/v1/users", &json!({ "name": "buys" })).expect(201)["user"]);
            client.patch(&format!("/v1/users/{user}"), &json!({ "budget": { "cap_cents": 1_000, "period": "total" } })).expect(200);
            let named = client.with("x-service-user-id", &user);
            double.loses(1);
            top_up(&named, body.clone()).expect(200);
            let hold = client.get("/v1/governance/holds").expect(200)["holds"][0]["id"].as_str().unwrap().to_owned();
            let word = json!({ "outcome": "captured", "amount_micro_usd": said, "reason": "Stripe lists as much." });
            browser(world, &tenant.email, PASSWORD).0.post(&format!("/v1/governance/holds/{hold}/resolve"), &word).expect(200);
            let asked = double.requests("/v1/payment_intents").pop().unwrap();
            for _ in 0..2 {
                tell(world, &tenant, &event("payment_intent.succeeded", intent(&format!("pi_{said}"), &asked, "metadata", 1_000)));
            }
            until("it is credit", || credit(client) == 1_500);
            let question = json!({ "action": "billing.top_up", "amount_micro_usd": 1, "user_id": user });
            let caps = client.post("/v1/governance/simulate", &question).expect(200)["caps"].clone();
            for (scope, spent) in [("organization", 20_000_000), ("user", 10_000_000)] {
                let cap = caps.as_array().unwrap().iter().find(|cap| cap["scope"] == scope).unwrap();
                assert_eq!((&cap["spent_micro_usd"], &cap["reserved_micro_usd"]), (&json!(spent), &json!(0)), "{said} {scope}");
            }
            assert_eq!(top_up(client, body.clone()).expect_error(403, "forbidden")["reason"], "budget_exceeded", "{said}");
            client.patch("/v1/organization", &json!({ "budget": null })).expect(200);
            assert_eq!(top_up(&named, body).expect_error(403, "forbidden")["reason"], "scope_frozen", "{said}");
        }
        world.books_agree();
    }

    fn a_charge_that_failed_and_is_signed_all_the_same_counts_for_its_user(world: billed()) {
        let (double, tenant, body) = spent_by_half(world);
        let client = &tenant.client;
        let user = id(&client.post("/v1/users", &json!({ "name": "buys" })).expect(201)["user"]);
        client.patch(&format!("/v1/users/{user}"), &json!({ "budget": { "cap_cents": 1_000, "period": "total" } })).expect(200);
        client.patch("/v1/organization", &json!({ "budget": null })).expect(200);
        let named = client.with("x-service-user-id", &user);
        double.loses(1);
        top_up(&named, body.clone()).expect(200);
        let hold = client.get("/v1/governance/holds").expect(200)["holds"][0]["id"].as_str().unwrap().to_owned();
        let word = json!({ "outcome": "voided", "reason": "Stripe lists no charge." });
        browser(world, &tenant.email, PASSWORD).0.post(&format!("/v1/governance/holds/{hold}/resolve"), &word).expect(200);
        let spent = || {
            let question = json!({ "action": "billing.top_up", "amount_micro_usd": 1, "user_id": user });
            let caps = client.post("/v1/governance/simulate", &question).expect(200)["caps"].clone();
            let own = caps.as_array().unwrap().iter().find(|cap| cap["scope"] == "user").unwrap();
            (own["spent_micro_usd"].clone(), own["reserved_micro_usd"].clone())
        };
        assert_eq!(spent(), (json!(0), json!(0)));
        let asked = double.requests("/v1/payment_intents").pop().unwrap();
        for _ in 0..2 {
            tell(world, &tenant, &event("payment_intent.succeeded", intent("pi_1", &asked, "metadata", 1_000)));
        }
        until("it counts", || spent() == (json!(10_000_000), json!(0)));
        assert_eq!(top_up(&named, body).expect_error(403, "forbidden")["reason"], "scope_frozen");
        world.books_agree();
    }

    fn a_refund_takes_back_what_is_only_set_aside(world: billed()) {
        let double = Stripe::start();
        bind(world, &format!("http://{}", double.address), stripe::KEY);
        let tenant = on_trial(world);
        let client = &tenant.client;
        top_up(client, json!({ "amount_cents": 1_000, "payment_method": "pm_new" })).expect(200);
        let asked = double.requests("/v1/payment_intents").pop().unwrap();
        let paid = intent("pi_1", &asked, "metadata", 1_000);
        tell(world, &tenant, &event("payment_intent.succeeded", paid.clone()));
        until("it is credit", || credit(client) == 1_500);
        let rule = json!({ "rules": [{ "id": "ask", "effect": "require_approval", "actions": ["cards.top_up"] }] });
        client.put("/v1/governance/policy", &rule).expect(200);
        let card = client.post("/v1/cards", &json!({})).expect(201)["card"]["id"].as_str().unwrap().to_owned();
        let all = json!({ "amount_cents": 1_500 });
        let waits = client.post(&format!("/v1/cards/{card}/top-up"), &all).expect(202)["approval_id"].as_str().unwrap().to_owned();
        let charge = json!({ "id": "ch_1", "payment_intent": "pi_1", "amount_refunded": 1_000, "currency": "usd", "metadata": paid["metadata"] });
        tell(world, &tenant, &event("charge.refunded", charge));
        until("it is taken back", || invoice(client, &id(&json!({ "id": asked.form["metadata[charter_invoice]"] })))["taken_back_cents"] == 1_000);
        browser(world, &tenant.email, PASSWORD).0.post(&format!("/v1/approvals/{waits}/deny"), &json!({})).expect(200);
        assert_eq!(credit(client), 500);
        world.books_agree();
    }

    fn a_payment_whose_answer_is_lost_is_made_once(world: billed()) {
        let double = Stripe::start();
        bind(world, &format!("http://{}", double.address), stripe::KEY);
        let tenant = on_trial(world);
        let client = &tenant.client;
        let body = json!({ "amount_cents": 1_000, "payment_method": "pm_new" });
        double.loses(1);
        // It goes on in two minutes, and whoever asked is told so.
        assert_eq!(top_up(client, body.clone()).expect(200)["payment"]["status"], "pending");
        assert_eq!((double.effects("/v1/customers"), double.effects("/v1/payment_intents")), (1, 0));
        // The customer is there: that of the next purchase is not another.
        let bought = top_up(client, body).expect(200);
        assert_eq!((double.effects("/v1/customers"), double.effects("/v1/payment_intents")), (1, 1));
        let asked = double.requests("/v1/payment_intents").pop().unwrap();
        tell(world, &tenant, &event("payment_intent.succeeded", intent("pi_1", &asked, "metadata", 1_000)));
        // Killed right after the provider's word was taken: it is not lost, and told again it is
        // not another one.
        world.kill();
        world.start();
        let client = client.at(world.server().address());
        let tenant = tenant.at(world.server().address());
        until("it is paid", || invoice(&client, &id(&bought["invoice"]))["status"] == "paid");
        tell(world, &tenant, &event("payment_intent.succeeded", intent("pi_1", &asked, "metadata", 1_000)));
        assert_eq!((credit(&client), count(world, "repeated")), (500 + 1_000, 1));
        world.books_agree();
    }
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
    assert_eq!(double.requests("/v1/payment_intents").len(), 0);
    let billed = billed().start(Database::Sqlite);
    let unsigned = json!({ "kind": "stripe", "url": format!("http://{}", double.address), "credential": stripe::KEY });
    billed.operator().put("/v1/operator/providers/stripe", &unsigned).expect(200);
    let tenant = on_trial(&billed);
    let refused = top_up(&tenant.client, json!({ "amount_cents": 5, "payment_method": "pm_1" }))
        .expect_error(501, "not_configured");
    assert_eq!(refused["details"]["missing"], json!(["stripe.webhook_secret"]));
    top_up(&tenant.client, json!({ "amount_cents": 5, "invoice": true })).expect(200);
    assert_eq!(double.requests("/v1/customers").len(), 0);
}

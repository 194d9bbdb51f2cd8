//! Cards whose payments wait for people: no money is lost on one that is canceled, or whose user is
//! deleted meanwhile.

use charter_tests::patience::until;
use charter_tests::tenant::PASSWORD;
use charter_tests::{Client, Tenant, on_both};
use serde_json::{Value, json};

use crate::accounts::browser;

/// The organization's credit in cents: posted, and available.
pub fn credit(tenant: &Tenant) -> (i64, i64) {
    let accounts = tenant.client.get("/v1/ledger/accounts").expect(200)["accounts"].clone();
    let credit = accounts.as_array().unwrap().iter().find(|account| account["name"] == "credit");
    let cents =
        |member: &str| credit.map_or(0, |account| account[member].as_i64().unwrap() / 10_000);
    (cents("posted_micro_usd"), cents("available_micro_usd"))
}

/// A card with thirty dollars on it; answers its path.
fn card(client: &Client) -> String {
    let made = client.post("/v1/cards", &json!({ "label": "books" })).expect(201);
    let path = format!("/v1/cards/{}", made["card"]["id"].as_str().unwrap());
    client.post(&format!("{path}/top-up"), &json!({ "amount_cents": 3_000 })).expect(200);
    path
}

fn authorize(client: &Client, card: &str, cents: u64, status: u16) -> Value {
    let asked = json!({ "amount_cents": cents, "merchant": "books" });
    client.post(&format!("{card}/authorizations"), &asked).expect(status)
}

/// From now on a person decides on each authorization, and on each refund.
fn ask_first(tenant: &Tenant) {
    let actions = ["cards.authorize", "cards.refund"];
    let rule = json!({ "id": "ask", "effect": "require_approval", "actions": actions });
    tenant.client.put("/v1/governance/policy", &json!({ "rules": [rule] })).expect(200);
}

on_both! {
    fn a_card_is_not_canceled_while_what_it_is_to_pay_waits_for_a_person(world) {
        let tenant = world.register();
        world.fund(&tenant, 3_000);
        let card = card(&tenant.client);
        ask_first(&tenant);
        let waits = authorize(&tenant.client, &card, 1_200, 202);
        let cancel = || tenant.client.post(&format!("{card}/cancel"), &json!({}));
        assert_eq!(cancel().expect_error(409, "state_conflict")["reason"], "authorization_open");
        let owner = browser(world, &tenant.email, PASSWORD).0;
        let approval = waits["approval_id"].as_str().unwrap();
        owner.post(&format!("/v1/approvals/{approval}/deny"), &json!({})).expect(200);
        assert_eq!(cancel().expect(200)["card"]["status"], "canceled");
        assert_eq!(credit(&tenant), (3_000, 3_000));
        world.books_agree();
    }

    fn of_a_deleted_users_card_what_waits_returns_and_what_was_paid_stays_paid(world) {
        let tenant = world.register();
        world.fund(&tenant, 3_000);
        let user = tenant.user("payer");
        let own = tenant.client.with("X-Service-User-Id", &user);
        let card = card(&own);
        let paid = authorize(&own, &card, 1_000, 201);
        let paid = paid["authorization"]["id"].as_str().unwrap();
        own.post(&format!("{card}/authorizations/{paid}/capture"), &json!({})).expect(200);
        ask_first(&tenant);
        let waits = authorize(&own, &card, 1_500, 202);
        // A refund of all that merchants were paid waits too: their money is none of the user's.
        let refund = own.post(&format!("{card}/authorizations/{paid}/refund"), &json!({})).expect(202);
        tenant.client.delete(&format!("/v1/users/{user}")).expect(200);
        until("it returns", || credit(&tenant) == (2_000, 2_000));
        for waited in [waits, refund] {
            let approval = format!("/v1/approvals/{}", waited["approval_id"].as_str().unwrap());
            assert_eq!(tenant.client.get(&approval).expect(200)["approval"]["status"], "canceled");
        }
        assert_eq!(credit(&tenant), (2_000, 2_000));
        world.books_agree();
    }

    fn of_several_refunds_that_wait_each_is_made(world) {
        let tenant = world.register();
        world.fund(&tenant, 3_000);
        let card = card(&tenant.client);
        let paid = authorize(&tenant.client, &card, 1_000, 201);
        let paid = format!("{card}/authorizations/{}", paid["authorization"]["id"].as_str().unwrap());
        tenant.client.post(&format!("{paid}/capture"), &json!({})).expect(200);
        ask_first(&tenant);
        let owner = browser(world, &tenant.email, PASSWORD).0;
        let ask = |cents: u64| {
            let asked = tenant.client.post(&format!("{paid}/refund"), &json!({ "amount_cents": cents })).expect(202);
            format!("/v1/approvals/{}", asked["approval_id"].as_str().unwrap())
        };
        for approval in [200, 300].map(ask) {
            owner.post(&format!("{approval}/approve"), &json!({})).expect(200);
            until("it is made", || tenant.client.get(&approval).expect(200)["approval"]["status"] == "succeeded");
        }
        let left = tenant.client.get(&card).expect(200)["card"]["balance_cents"].clone();
        assert_eq!(left, json!(3_000 - 1_000 + 500));
        world.books_agree();
    }
}

//! Money between two users of a project: what neither loses, nor gets twice, nor takes from the
//! other.

use charter_tests::patience::until;
use charter_tests::tenant::PASSWORD;
use charter_tests::{Client, Tenant, World, on_both};
use serde_json::{Value, json};

use crate::accounts::browser;
use crate::cards::credit;

/// Funds the organization, and one of its users from there.
fn fund(world: &World, cents: i64) -> (Tenant, Payer) {
    let tenant = world.register();
    world.fund(&tenant, cents);
    let payer = Payer::new(&tenant, "payer");
    let own = json!({ "to_user_id": payer.id, "amount_cents": cents, "source": "credit" });
    payer.client.post("/v1/payments/transfer", &own).expect(201);
    (tenant, payer)
}

struct Payer {
    id: String,
    client: Client,
}

impl Payer {
    fn new(tenant: &Tenant, name: &str) -> Self {
        let id = tenant.user(name);
        Self { client: tenant.client.with("X-Service-User-Id", &id), id }
    }
    fn has(&self) -> i64 {
        self.client.get("/v1/payments/balance").expect(200)["balance"]["available_cents"]
            .as_i64()
            .unwrap()
    }
    fn moves(&self) -> Vec<(String, i64, Value)> {
        let page = self.client.get("/v1/payments/transactions").expect(200);
        let read = |entry: &Value| {
            let kind = entry["kind"].as_str().unwrap().to_owned();
            (kind, entry["amount_cents"].as_i64().unwrap(), entry["counterparty"].clone())
        };
        page["transactions"].as_array().unwrap().iter().map(read).collect()
    }
}

on_both! {
    fn money_goes_from_one_to_the_other_and_back(world) {
        let (tenant, one) = fund(world, 1_000);
        let two = Payer::new(&tenant, "payee");
        let transfer = json!({ "to_user_id": two.id, "amount_cents": 400, "memo": "rent" });
        one.client.post("/v1/payments/transfer", &transfer).expect(201);
        let charge = json!({ "customer": one.id, "amount_cents": 250, "description": "tea" });
        let charged = two.client.post("/v1/payments/charge", &charge).expect(201)["payment"]["id"].as_str().unwrap().to_owned();
        assert_eq!((one.has(), two.has()), (350, 650));
        two.client.post(&format!("/v1/payments/{charged}/refund"), &json!({ "amount_cents": 100 })).expect(200);
        let too_much = two.client.post(&format!("/v1/payments/{charged}/refund"), &json!({ "amount_cents": 151 }));
        assert_eq!(too_much.expect_error(400, "invalid_input")["param"], "amount_cents");
        two.client.post(&format!("/v1/payments/{charged}/refund"), &json!({})).expect(200);
        assert_eq!((one.has(), two.has()), (600, 400));
        one.client.get(&format!("/v1/payments/{charged}")).expect_error(404, "not_found");
        let (first, second) = (json!(one.id), json!(two.id));
        let own = |kind: &str, cents, other: &Value| (kind.to_owned(), cents, other.clone());
        assert_eq!(two.moves(), [own("transfer", 400, &first), own("charge", 250, &first), own("refund", -100, &first), own("refund", -150, &first)]);
        assert_eq!(one.moves()[1..], [own("transfer", -400, &second), own("charge", -250, &second), own("refund", 100, &second), own("refund", 150, &second)]);
        world.books_agree();
    }

    fn of_many_calls_at_once_a_closed_loop_admits_what_the_cap_admits_and_keeps_no_trace_of_the_rest(world) {
        let (tenant, one) = fund(world, 2_000);
        let two = Payer::new(&tenant, "payee");
        let kits = tenant.client.get("/v1/kits").expect(200);
        let kit = kits["kits"][0]["id"].as_str().unwrap().to_owned();
        // The payer's funding counts for it too: seven dollars more are left.
        let budget = json!({ "budget": { "cap_cents": 2_799, "period": "month", "hard": true } });
        tenant.client.patch(&format!("/v1/kits/{kit}"), &budget).expect(200);
        let pay = || one.client.post("/v1/payments/transfer", &json!({ "to_user_id": two.id, "amount_cents": 100 }));
        let answers: Vec<_> = std::thread::scope(|scope| {
            let running: Vec<_> = (0..40).map(|_| scope.spawn(pay)).collect();
            running.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(answers.iter().filter(|answer| answer.status == 201).count(), 7);
        for refused in answers.iter().filter(|answer| answer.status != 201) {
            let told = refused.expect_error(403, "forbidden");
            assert_eq!((&told["reason"], &told["details"]["scope"]), (&json!("budget_exceeded"), &json!("kit")), "{refused}");
        }
        assert_eq!((one.has(), two.has()), (1_300, 700));
        let holds = one.client.get("/v1/governance/holds?limit=100").expect(200)["holds"].clone();
        let of_one = |state: &str| {
            holds.as_array().unwrap().iter().filter(|hold| hold["user_id"] == one.id.as_str() && hold["state"] == state).count()
        };
        assert_eq!(["captured", "held", "voided"].map(of_one), [8, 0, 0], "{holds}");
        world.books_agree();
    }

    fn a_statement_adds_up_as_json_and_as_csv(world) {
        let (tenant, one) = fund(world, 1_000);
        let two = Payer::new(&tenant, "payee");
        for memo in ["=1+1", "rent, and \"more\""] {
            one.client.post("/v1/payments/transfer", &json!({ "to_user_id": two.id, "amount_cents": 100, "memo": memo })).expect(201);
        }
        let accounts = one.client.get("/v1/ledger/accounts").expect(200)["accounts"].clone();
        let named = |name: &str| accounts.as_array().unwrap().iter().find(|account| account["name"] == name).cloned();
        assert_eq!(named("credit").unwrap()["available_micro_usd"], 0);
        assert_eq!(named("payments.balance").unwrap()["available_micro_usd"], 8_000_000);
        let path = "/v1/ledger/statement?account=payments.balance";
        let statement = one.client.get(path).expect(200)["statement"].clone();
        assert_eq!((&statement["opening_micro_usd"], &statement["closing_micro_usd"]), (&json!(0), &json!(8_000_000)));
        let amounts: Vec<i64> = statement["entries"].as_array().unwrap().iter().map(|entry| entry["amount_micro_usd"].as_i64().unwrap()).collect();
        assert_eq!(amounts, [10_000_000, -1_000_000, -1_000_000]);
        let since = statement["entries"][2]["at"].as_str().unwrap();
        let tail = one.client.get(&format!("{path}&from={since}")).expect(200)["statement"].clone();
        let (opening, sum): (i64, i64) = (
            tail["opening_micro_usd"].as_i64().unwrap(),
            tail["entries"].as_array().unwrap().iter().map(|entry| entry["amount_micro_usd"].as_i64().unwrap()).sum(),
        );
        assert_eq!(opening + sum, tail["closing_micro_usd"].as_i64().unwrap());
        let csv = one.client.get(&format!("{path}&format=csv"));
        assert_eq!(csv.header("content-type"), Some("text/csv; charset=utf-8"));
        let lines: Vec<String> = csv.text().lines().map(str::to_owned).collect();
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[0], "at,id,amount_micro_usd,balance_micro_usd,counter_account,memo,reference");
        assert!(lines[3].contains(",-1000000,8000000,"), "{}", lines[3]);
        let credit = tenant.client.get("/v1/ledger/statement?account=credit").expect(200)["statement"].clone();
        assert_eq!(credit["closing_micro_usd"], 0);
        let pinned = tenant.key(json!({ "role": "developer", "user_id": two.id }));
        pinned.get("/v1/ledger/statement?account=credit").expect_error(404, "resource_not_found");
        assert!(!pinned.get("/v1/ledger/accounts").text().contains("credit\""));
        world.register().client.get(path).expect_error(404, "resource_not_found");
    }

    fn who_is_asked_pays_or_does_not(world) {
        let (tenant, one) = fund(world, 500);
        let (two, third) = (Payer::new(&tenant, "asker"), Payer::new(&tenant, "nobody"));
        let ask = |cents| {
            let asked = json!({ "from_user_id": one.id, "amount_cents": cents, "description": "dinner" });
            two.client.post("/v1/payments/requests", &asked).expect(201)["payment_request"]["id"].as_str().unwrap().to_owned()
        };
        let (first, second) = (ask(300), ask(300));
        let at = |id: &str, what: &str| format!("/v1/payments/requests/{id}/{what}");
        third.client.post(&at(&first, "pay"), &json!({})).expect_error(404, "not_found");
        assert_eq!(two.client.post(&at(&first, "pay"), &json!({})).status, 403);
        let paid = one.client.post(&at(&first, "pay"), &json!({})).expect(200);
        assert_eq!(paid["payment_request"]["status"], "paid");
        one.client.post(&at(&first, "pay"), &json!({})).expect_error(409, "state_conflict");
        one.client.post(&at(&second, "pay"), &json!({})).expect_error(402, "insufficient_credits");
        one.client.post(&at(&second, "decline"), &json!({})).expect(200);
        assert_eq!((one.has(), two.has()), (200, 300));
        world.books_agree();
    }

    fn what_a_deleted_user_was_to_pay_returns_to_credit(world) {
        let (tenant, one) = fund(world, 1_000);
        let two = Payer::new(&tenant, "payee");
        let rule = json!({ "id": "ask", "effect": "require_approval", "actions": ["payments.*"] });
        tenant.client.put("/v1/governance/policy", &json!({ "rules": [rule] })).expect(200);
        let waits = |payer: &Payer, way: &str, body: Value| {
            payer.client.post(way, &body).expect(202)["approval_id"].as_str().unwrap().to_owned()
        };
        let own = waits(&one, "/v1/payments/transfer", json!({ "to_user_id": two.id, "amount_cents": 600 }));
        let anothers = waits(&two, "/v1/payments/charge", json!({ "customer": one.id, "amount_cents": 300 }));
        assert_eq!((one.has(), credit(&tenant)), (100, (0, 0)));
        tenant.client.delete(&format!("/v1/users/{}", one.id)).expect(200);
        // It has what was free, and what the user itself was to pay: that approval is canceled.
        until("it returns", || credit(&tenant) == (700, 700));
        let status = |id: &str| tenant.client.get(&format!("/v1/approvals/{id}")).expect(200)["approval"]["status"].clone();
        assert_eq!((status(&own), status(&anothers)), (json!("canceled"), json!("pending_approval")));
        let owner = browser(world, &tenant.email, PASSWORD).0;
        let decide = |id: &str, how: &str| owner.post(&format!("/v1/approvals/{id}/{how}"), &json!({}));
        assert_eq!(decide(&own, "approve").expect_error(409, "state_conflict")["reason"], "approval_decided");
        decide(&anothers, "deny").expect(200);
        until("the rest returns as well", || credit(&tenant) == (1_000, 1_000));
        assert_eq!(two.has(), 0);
        world.books_agree();
    }

    fn an_agents_own_key_gives_and_takes_from_nobody_else(world) {
        let (tenant, one) = fund(world, 500);
        let two = Payer::new(&tenant, "agent");
        let agent = tenant.key(json!({ "role": "developer", "user_id": two.id }));
        let charge = json!({ "customer": one.id, "amount_cents": 100 });
        assert_eq!(agent.post("/v1/payments/charge", &charge).expect_error(403, "forbidden")["reason"], "pinned_to_user");
        let credit = json!({ "to_user_id": two.id, "amount_cents": 100, "source": "credit" });
        assert_eq!(agent.post("/v1/payments/transfer", &credit).expect_error(403, "forbidden")["reason"], "pinned_to_user");
        one.client.post("/v1/payments/transfer", &json!({ "to_user_id": two.id, "amount_cents": 100 })).expect(201);
        agent.post("/v1/payments/transfer", &json!({ "to_user_id": one.id, "amount_cents": 60 })).expect(201);
        assert_eq!((one.has(), two.has()), (460, 40));
        // Nobody outside the project is paid, and no revoked user.
        let stranger = world.register();
        let abroad = json!({ "to_user_id": stranger.user, "amount_cents": 1 });
        agent.post("/v1/payments/transfer", &abroad).expect_error(404, "resource_not_found");
        tenant.client.post(&format!("/v1/users/{}/revoke", one.id), &json!({})).expect(200);
        let gone = json!({ "to_user_id": one.id, "amount_cents": 1 });
        assert_eq!(agent.post("/v1/payments/transfer", &gone).expect_error(409, "state_conflict")["reason"], "profile_revoked");
        world.books_agree();
    }

    fn a_balance_is_never_spent_twice(world) {
        let (tenant, one) = fund(world, 700);
        let two = Payer::new(&tenant, "payee");
        let moved = std::sync::atomic::AtomicI64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..20 {
                scope.spawn(|| {
                    let transfer = json!({ "to_user_id": two.id, "amount_cents": 100 });
                    let answer = one.client.post("/v1/payments/transfer", &transfer);
                    match answer.status {
                        201 => drop(moved.fetch_add(100, std::sync::atomic::Ordering::SeqCst)),
                        _ => drop(answer.expect_error(402, "insufficient_credits")),
                    }
                });
            }
        });
        assert_eq!((moved.into_inner(), one.has(), two.has()), (700, 0, 700));
        world.books_agree();
    }
}

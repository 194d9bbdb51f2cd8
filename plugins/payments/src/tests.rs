//! The rules of payments against the double of the host: `USER` calls where nobody else is named;
//! Ana and Bob are other users of the project.

mod requests;

use charter_double::{Host, ORGANIZATION, PROJECT, USER};
use charter_sdk::bindings::{Caller, Request};
use charter_sdk::ledger::Entry;
use charter_sdk::serde_json::{self, Value, json};
use charter_sdk::{Failure, Instant};

use crate::moves::{MOVES, show};
use crate::primitive;

const DOLLAR: i64 = 1_000_000;
const ANA: &str = "01970000-0000-7000-8000-0000000000aa";
const BOB: &str = "01970000-0000-7000-8000-0000000000bb";

struct Bench {
    host: Host,
}

impl Bench {
    /// A project of an organization that has a hundred dollars of credit.
    fn new() -> Self {
        let host = Host::new(primitive);
        host.fund(100 * DOLLAR);
        [ANA, BOB].iter().for_each(|user| host.add_user(user));
        Self { host }
    }
    /// Serves an operation to that caller.
    fn serve(
        &self,
        caller: Caller,
        operation: &str,
        id: Option<&str>,
        body: Value,
    ) -> Result<Value, Failure> {
        let request = Request {
            id: "request".into(),
            operation: operation.into(),
            caller: caller.clone(),
            parameters: id.map(|id| ("id".to_owned(), id.to_owned())).into_iter().collect(),
            query: String::new(),
            body: Some(body.to_string()),
            bytes: None,
            blob: None,
            headers: Vec::new(),
            context: "{}".into(),
        };
        self.host.call_as(caller).handle(&request).map(|reply| reply.body)
    }
    /// Moves the organization's credit to a user.
    fn give(&self, user: &str, cents: u64) {
        let body = json!({ "to_user_id": user, "amount_cents": cents, "source": "credit" });
        self.host.post("/payments/transfer", body).unwrap();
    }
    fn post(&self, below: &str, body: Value) -> Result<Value, Failure> {
        self.host.post(&format!("/payments{below}"), body).map(|reply| reply.body)
    }
    fn get(&self, below: &str) -> Value {
        self.host.get(&format!("/payments{below}")).unwrap().body
    }
    fn charge(&self, cents: u64) -> Result<Value, Failure> {
        let told = self.post(
            "/charge",
            json!({ "customer": ANA, "amount_cents": cents, "description": "lunch" }),
        )?;
        Ok(told["payment"].clone())
    }
    fn refund(&self, payment: &Value, body: Value) -> Result<Value, Failure> {
        let id = payment["id"].as_str().unwrap();
        self.post(&format!("/{id}/refund"), body).map(|told| told["payment"].clone())
    }
    /// Another user's balance, in cents.
    fn balance_of(&self, user: &str) -> i64 {
        self.host.posted_balance(user, "balance") / 10_000
    }
    fn balance(&self) -> i64 {
        self.get("/balance")["balance"]["available_cents"].as_i64().unwrap()
    }
    /// How often an event told of this status.
    fn told(&self, event: &str, status: &str) -> usize {
        let events = self.host.events();
        events.iter().filter(|one| one.name == event && one.payload["status"] == status).count()
    }
}

/// A caller who is this user by this way of naming it.
fn caller(user: Option<&str>, subject: &str) -> Caller {
    Caller {
        organization: ORGANIZATION.into(),
        project: PROJECT.into(),
        user: user.map(str::to_owned),
        subject: subject.into(),
        actor: ("key".into(), "key".into()),
        role: Some("admin".into()),
    }
}

#[test]
fn a_charge_moves_what_the_customer_has_and_no_more() {
    let bench = Bench::new();
    bench.give(ANA, 1_000);
    let payment = bench.charge(400).unwrap();
    assert_eq!((&payment["kind"], &payment["status"]), (&json!("charge"), &json!("succeeded")));
    assert_eq!((&payment["customer"], &payment["to_user_id"]), (&json!(ANA), &Value::Null));
    assert_eq!((&payment["currency"], &payment["network"]), (&json!("usd"), &json!("closed_loop")));
    assert_eq!((bench.balance(), bench.balance_of(ANA)), (400, 600));
    assert!(bench.charge(601).unwrap_err().is("insufficient_credits"));
    assert_eq!((bench.balance(), bench.balance_of(ANA)), (400, 600));
    assert_eq!(bench.told("payments.updated", "succeeded"), 2);
}

#[test]
fn nobody_charges_or_pays_themselves() {
    let bench = Bench::new();
    let charged =
        bench.post("/charge", json!({ "customer": USER, "amount_cents": 1 })).unwrap_err();
    assert_eq!((charged.code(), charged.param_text()), ("invalid_input", Some("customer")));
    let paid =
        bench.post("/transfer", json!({ "to_user_id": USER, "amount_cents": 1 })).unwrap_err();
    assert_eq!((paid.code(), paid.param_text()), ("invalid_input", Some("to_user_id")));
}

#[test]
fn refunds_never_exceed_the_charge() {
    let bench = Bench::new();
    bench.give(ANA, 1_000);
    let payment = bench.charge(900).unwrap();
    let first = bench.refund(&payment, json!({ "amount_cents": 400 })).unwrap();
    assert_eq!(
        (&first["status"], &first["refunded_cents"]),
        (&json!("partially_refunded"), &json!(400))
    );
    let more = bench.refund(&payment, json!({ "amount_cents": 501 })).unwrap_err();
    assert_eq!((more.code(), more.param_text()), ("invalid_input", Some("amount_cents")));
    // No amount means the rest.
    let rest = bench.refund(&payment, json!({})).unwrap();
    assert_eq!((&rest["status"], &rest["refunded_cents"]), (&json!("refunded"), &json!(900)));
    assert_eq!((bench.balance(), bench.balance_of(ANA)), (0, 1_000));
    assert_eq!(
        bench.refund(&payment, json!({})).unwrap_err().reason_text(),
        Some("nothing_to_refund")
    );
    assert_eq!(
        bench.refund(&payment, json!({ "amount_cents": 1 })).unwrap_err().code(),
        "state_conflict"
    );
    assert_eq!(
        (
            bench.told("payments.updated", "partially_refunded"),
            bench.told("payments.updated", "refunded")
        ),
        (1, 1)
    );
}

#[test]
fn a_refund_takes_no_more_than_the_balance_has() {
    let bench = Bench::new();
    bench.give(ANA, 1_000);
    let payment = bench.charge(1_000).unwrap();
    bench.post("/transfer", json!({ "to_user_id": BOB, "amount_cents": 700 })).unwrap();
    assert!(bench.refund(&payment, json!({})).unwrap_err().is("insufficient_credits"));
    assert_eq!(
        bench.refund(&payment, json!({ "amount_cents": 300 })).unwrap()["refunded_cents"],
        300
    );
}

#[test]
fn only_a_charge_is_refunded() {
    let bench = Bench::new();
    bench.give(USER, 500);
    let sent = bench.post("/transfer", json!({ "to_user_id": ANA, "amount_cents": 500 })).unwrap();
    assert_eq!(
        bench.refund(&sent["payment"], json!({})).unwrap_err().reason_text(),
        Some("not_a_charge")
    );
    assert_eq!(
        bench.refund(&json!({ "id": "nowhere" }), json!({})).unwrap_err().code(),
        "not_found"
    );
}

#[test]
fn a_transfer_moves_what_the_balance_has() {
    let bench = Bench::new();
    let body = json!({ "to_user_id": ANA, "amount_cents": 300, "memo": "rent" });
    // Nothing has ever come to the balance.
    assert!(bench.post("/transfer", body.clone()).unwrap_err().is("insufficient_credits"));
    bench.give(USER, 500);
    let payment = bench.post("/transfer", body.clone()).unwrap()["payment"].clone();
    assert_eq!((&payment["kind"], &payment["description"]), (&json!("transfer"), &json!("rent")));
    assert_eq!((&payment["customer"], &payment["to_user_id"]), (&Value::Null, &json!(ANA)));
    assert!(bench.post("/transfer", body).unwrap_err().is("insufficient_credits"));
    assert_eq!((bench.balance(), bench.balance_of(ANA)), (200, 300));
}

#[test]
fn credit_funds_a_balance_and_is_kept_from_pinned_credentials() {
    let bench = Bench::new();
    bench.give(USER, 9_000);
    bench.give(ANA, 1_000);
    assert_eq!((bench.balance(), bench.balance_of(ANA)), (9_000, 1_000));
    let body = json!({ "to_user_id": USER, "amount_cents": 1, "source": "credit" });
    assert!(bench.post("/transfer", body.clone()).unwrap_err().is("insufficient_credits"));
    let pinned = || caller(Some(USER), "credential");
    let refused = bench.serve(pinned(), "payments.transfer", None, body).unwrap_err();
    assert_eq!((refused.code(), refused.reason_text()), ("forbidden", Some("pinned_to_user")));
    // Its own balance is its own.
    bench
        .serve(pinned(), "payments.transfer", None, json!({ "to_user_id": ANA, "amount_cents": 1 }))
        .unwrap();
}

#[test]
fn leave_that_is_not_given_moves_nothing() {
    let bench = Bench::new();
    bench.give(ANA, 1_000);
    bench.give(USER, 1_000);
    let payment = bench.charge(100).unwrap();
    for action in ["payments.charge", "payments.refund", "payments.transfer"] {
        bench.host.deny(action, Failure::forbidden("the policy says no"));
    }
    assert!(bench.charge(1).unwrap_err().is("forbidden"));
    assert!(bench.refund(&payment, json!({})).unwrap_err().is("forbidden"));
    assert!(
        bench
            .post("/transfer", json!({ "to_user_id": ANA, "amount_cents": 1 }))
            .unwrap_err()
            .is("forbidden")
    );
    assert_eq!((bench.balance(), bench.balance_of(ANA)), (1_100, 900));
    assert_eq!((bench.host.documents("payments"), bench.host.documents("moves")), (3, 3));
}

#[test]
fn a_user_that_does_not_exist_is_named_where_the_body_names_it() {
    let bench = Bench::new();
    bench.give(ANA, 100);
    let payment = bench.charge(100).unwrap();
    for action in ["payments.charge", "payments.refund", "payments.transfer"] {
        bench.host.deny(action, Failure::resource_not_found("user", "user"));
    }
    let charged = bench.charge(1).unwrap_err();
    assert_eq!((charged.code(), charged.param_text()), ("resource_not_found", Some("customer")));
    let paid =
        bench.post("/transfer", json!({ "to_user_id": ANA, "amount_cents": 1 })).unwrap_err();
    assert_eq!((paid.code(), paid.param_text()), ("resource_not_found", Some("to_user_id")));
    let refunded = bench.refund(&payment, json!({})).unwrap_err();
    assert_eq!((refunded.code(), refunded.reason_text()), ("state_conflict", Some("user_gone")));
}

#[test]
fn payments_are_listed_by_kind_and_status() {
    let bench = Bench::new();
    bench.give(ANA, 1_000);
    let payment = bench.charge(100).unwrap();
    bench.charge(200).unwrap();
    bench.refund(&payment, json!({})).unwrap();
    let amounts = |query: &str| -> Vec<i64> {
        let told = bench.get(query);
        told["payments"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["amount_cents"].as_i64().unwrap())
            .collect()
    };
    assert_eq!(amounts(""), [1_000, 100, 200]);
    assert_eq!(amounts("?kind=charge"), [100, 200]);
    assert_eq!(amounts("?kind=transfer"), [1_000]);
    assert_eq!(amounts("?kind=charge&status=refunded"), [100]);
    assert_eq!(amounts("?limit=1&offset=1"), [100]);
    assert_eq!(bench.get("?limit=1")["has_more"], true);
    let id = payment["id"].as_str().unwrap();
    assert_eq!(bench.get(&format!("/{id}"))["payment"]["status"], "refunded");
}

#[test]
fn transactions_tell_what_came_and_what_went() {
    let bench = Bench::new();
    let none = bench.get("/transactions");
    assert_eq!((&none["transactions"], &none["has_more"]), (&json!([]), &json!(false)));
    bench.give(ANA, 1_000);
    bench.give(USER, 500);
    let payment = bench.charge(300).unwrap();
    bench.refund(&payment, json!({ "amount_cents": 100 })).unwrap();
    let amounts = |told: &Value| -> Vec<i64> {
        told["transactions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["amount_cents"].as_i64().unwrap())
            .collect()
    };
    let told = bench.get("/transactions?limit=2");
    assert_eq!((amounts(&told), &told["has_more"]), (vec![500, 300], &json!(true)));
    let cursor = told["next_cursor"].as_str().unwrap();
    let rest = bench.get(&format!("/transactions?cursor={cursor}"));
    assert_eq!((amounts(&rest), &rest["has_more"]), (vec![-100], &json!(false)));
}

#[test]
fn a_transaction_names_the_other_user_and_the_payment() {
    let bench = Bench::new();
    bench.give(ANA, 1_000);
    bench.give(USER, 500);
    let payment = bench.charge(300).unwrap();
    bench.refund(&payment, json!({})).unwrap();
    // The host posts a capture under its permit's id.
    let posted = MOVES.all().oldest_first().find().unwrap().items;
    let seen = |at: usize, amount: i64| {
        let (id, at) = (posted[at].transfer.clone(), Instant::from_ms(0));
        let (memo, counter_account, reference) =
            ("charge".into(), "balance".into(), "payments".into());
        serde_json::to_value(
            show(Entry { id, at, amount, counter_account, memo, reference }).unwrap(),
        )
        .unwrap()
    };
    let charge = seen(2, 3 * DOLLAR);
    assert_eq!((&charge["counterparty"], &charge["reference"]), (&json!(ANA), &payment["id"]));
    assert_eq!((&charge["kind"], &charge["amount_cents"]), (&json!("charge"), &json!(300)));
    // The same posting, as the customer sees it, and what the customer gets back.
    assert_eq!(seen(2, -3 * DOLLAR)["counterparty"], USER);
    assert_eq!(seen(3, -3 * DOLLAR)["counterparty"], ANA);
    assert_eq!(seen(1, 5 * DOLLAR)["counterparty"], Value::Null);
}

#[test]
fn a_balance_is_empty_before_anything_came() {
    let told = Bench::new().get("/balance");
    assert_eq!(
        told["balance"],
        json!({ "available_cents": 0, "pending_cents": 0, "posted_cents": 0 })
    );
}

#[test]
fn a_payment_needs_a_user() {
    let bench = Bench::new();
    bench.give(ANA, 100);
    let refused = |operation: &str, body: Value| {
        bench.serve(caller(None, "none"), operation, Some("x"), body).unwrap_err()
    };
    let charge = json!({ "customer": ANA, "amount_cents": 1 });
    assert!(refused("payments.charge", charge).is("invalid_input"));
    assert!(
        refused("payments.transfer", json!({ "to_user_id": ANA, "amount_cents": 1 }))
            .is("invalid_input")
    );
    assert!(
        refused("payments.request", json!({ "from_user_id": ANA, "amount_cents": 1 }))
            .is("invalid_input")
    );
    assert!(refused("payments.request_pay", json!({})).is("invalid_input"));
}

#[test]
fn a_deleted_user_leaves_no_money_behind() {
    let bench = Bench::new();
    // One that never paid has nothing to return.
    bench.host.signal("deleted", json!({})).unwrap();
    bench.give(USER, 4_000);
    bench.host.signal("deleted", json!({})).unwrap();
    assert_eq!(bench.balance(), 0);
    // All of the hundred dollars are the organization's again.
    bench.give(ANA, 10_000);
}

//! The rules of billing against the double of the host.

use charter_double::{Host, Reply};
use charter_sdk::Failure;
use charter_sdk::serde_json::{Value, json};

use crate::primitive;

mod cards;

const DAY: u32 = 86_400;
const CENT: i64 = 10_000;

struct Bench(Host);

impl Bench {
    /// An organization of a deployment that bills, on its first day.
    fn new() -> Self {
        let host = Host::new(primitive);
        host.bills();
        host.signal("registered", json!({ "organization_id": "organization", "at": host.now() }))
            .unwrap();
        Self(host)
    }
    fn post(&self, path: &str, body: Value) -> Result<Reply, Failure> {
        self.0.post(path, body)
    }
    /// The id of the invoice that this asks for.
    fn owes(&self, path: &str, body: Value) -> String {
        self.post(path, body).unwrap().body["invoice"]["id"].as_str().unwrap().to_owned()
    }
    /// The signals that the host sends of credit, after its own posting.
    fn credit(&self, kind: &str, cents: i64, reference: Option<&str>) {
        self.0.fund(cents * CENT);
        let payload =
            json!({ "kind": kind, "amount_cents": cents, "reference": reference, "memo": "paid" });
        self.0.signal("credit", payload).unwrap();
    }
    fn pay(&self, invoice: &str) {
        let told = self.invoice(invoice);
        self.credit("paid", told["amount_cents"].as_i64().unwrap(), Some(invoice));
    }
    fn subscribed(plan: &str) -> Self {
        let bench = Self::new();
        bench.pay(&bench.owes("/billing/subscribe", json!({ "plan": plan })));
        assert_eq!(bench.subscription()["status"], "active");
        bench
    }
    fn invoice(&self, id: &str) -> Value {
        self.0.get(&format!("/billing/invoices/{id}")).unwrap().body["invoice"].clone()
    }
    fn invoices(&self, status: &str) -> Vec<Value> {
        let listed = self.0.get("/billing/invoices?limit=100").unwrap().body["invoices"].clone();
        listed
            .as_array()
            .unwrap()
            .iter()
            .filter(|invoice| invoice["status"] == status)
            .cloned()
            .collect()
    }
    fn subscription(&self) -> Value {
        self.0.get("/billing/subscription").unwrap().body["subscription"].clone()
    }
    /// Time passes, a day at a time, and what falls due is done.
    fn days(&self, days: u32) {
        for _ in 0..days {
            self.0.pass_seconds(DAY);
            while self.0.run_jobs().unwrap() > 0 {}
        }
    }
    fn standing(&self) -> Option<String> {
        self.0.standing()
    }
    /// The organization's credit, in cents.
    fn balance(&self) -> i64 {
        // The double's accounts are asked as the primitive would ask them.
        charter_sdk::ledger::balance(charter_sdk::ledger::CREDIT).unwrap().posted / CENT
    }
}

fn is(standing: &str) -> Option<String> {
    Some(standing.to_owned())
}

#[test]
fn an_organization_begins_with_a_trial_whose_credit_pays_for_no_model_calls() {
    let bench = Bench::new();
    assert_eq!((bench.standing(), bench.balance()), (is("llm_routing_requires_payment"), 500));
    bench.0.signal("registered", json!({})).unwrap();
    assert_eq!(bench.balance(), 500, "a trial begins once");
    let trial = bench.0.get("/billing/subscription").unwrap().body["trial"].clone();
    assert_eq!(trial, json!({ "ends_at": "2026-01-15T00:00:00.000Z", "active": true }));
    bench.days(13);
    assert_eq!(bench.standing(), is("llm_routing_requires_payment"));
    bench.days(1);
    assert_eq!(bench.standing(), is("trial_expired"));
}

#[test]
fn the_first_request_begins_the_trial_where_nobody_told_of_the_organization() {
    let host = Host::new(primitive);
    host.bills();
    host.set("signup_credit_cents", json!(700));
    let bench = Bench(host);
    bench.owes("/billing/topup", json!({ "amount_cents": 100 }));
    assert_eq!((bench.standing(), bench.balance()), (is("llm_routing_requires_payment"), 700));
}

#[test]
fn without_a_trial_nothing_is_given_and_a_plan_is_needed_at_once() {
    let host = Host::new(primitive);
    host.bills();
    host.set("trial_days", json!(0));
    host.signal("registered", json!({})).unwrap();
    let bench = Bench(host);
    assert_eq!((bench.standing(), bench.balance()), (is("no_subscription"), 0));
}

#[test]
fn bought_credit_clears_the_trials_bound_and_an_invoice_is_paid_once() {
    let bench = Bench::new();
    let invoice = bench.owes("/billing/topup", json!({ "pack": "pack_10" }));
    let told = bench.invoice(&invoice);
    assert_eq!((&told["status"], &told["amount_cents"]), (&json!("open"), &json!(1_000)));
    assert!(told["instructions"].as_str().unwrap().contains(&invoice));
    bench.credit("paid", 400, Some(&invoice));
    assert_eq!(bench.invoice(&invoice)["status"], "open", "a part is not all of it");
    bench.credit("paid", 600, Some(&invoice));
    let paid = bench.invoice(&invoice);
    assert_eq!((&paid["status"], &paid["received_cents"]), (&json!("paid"), &json!(1_000)));
    assert_eq!(bench.standing(), None);
    bench.0.pass_seconds(60);
    bench.credit("paid", 1_000, Some(&invoice));
    assert_eq!(bench.invoice(&invoice), paid, "paid twice is paid once");
    bench.days(14);
    assert_eq!(bench.standing(), None, "what was bought outlives the trial, until it is spent");
}

#[test]
fn credit_that_is_given_buys_nothing_unless_it_pays_an_invoice() {
    let bench = Bench::new();
    bench.credit("comped", 300, None);
    bench.credit("comped", 300, Some("nobody's invoice"));
    assert_eq!(bench.standing(), is("llm_routing_requires_payment"));
    let invoice = bench.owes("/billing/topup", json!({ "amount_cents": 300 }));
    bench.credit("comped", 300, Some(&invoice));
    assert_eq!(bench.standing(), None);
    let bench = Bench::new();
    bench.credit("paid", 300, None);
    assert_eq!(bench.standing(), None);
}

#[test]
fn a_subscription_counts_once_it_is_paid_for_and_outlives_the_trial() {
    let bench = Bench::new();
    let made = bench.post("/billing/subscribe", json!({ "plan": "pro" })).unwrap();
    assert_eq!((made.status, &made.body["subscription"]["status"]), (201, &json!("pending")));
    assert_eq!(
        bench.post("/credits/subscription", json!({ "plan": "pro" })).unwrap_err().reason_text(),
        Some("subscribed_already")
    );
    assert_eq!(bench.standing(), is("llm_routing_requires_payment"));
    bench.pay(made.body["invoice"]["id"].as_str().unwrap());
    // The trial's, what was paid, and what the plan includes beyond it.
    assert_eq!((bench.standing(), bench.balance()), (None, 500 + 10_000 + 1_000));
    assert_eq!(bench.subscription()["period_end"], "2026-02-01T00:00:00.000Z");
    bench.days(20);
    assert_eq!(bench.standing(), None);
}

#[test]
fn a_subscription_is_renewed_each_month_by_an_invoice() {
    let bench = Bench::subscribed("starter");
    bench.days(31);
    let open = bench.invoices("open");
    assert_eq!(
        (open.len(), &open[0]["purpose"], &open[0]["due_at"]),
        (1, &json!("renewal"), &json!("2026-02-08T00:00:00.000Z"))
    );
    assert_eq!((bench.subscription()["status"].clone(), bench.standing()), (json!("active"), None));
    assert_eq!(bench.subscription()["period_start"], "2026-02-01T00:00:00.000Z");
    bench.pay(open[0]["id"].as_str().unwrap());
    bench.days(10);
    assert_eq!((bench.invoices("open").len(), bench.standing()), (0, None));
    bench.days(18);
    assert_eq!(bench.invoices("open").len(), 1, "the next month has its own");
}

#[test]
fn what_is_unpaid_for_a_week_is_past_due_until_it_is_paid() {
    let bench = Bench::subscribed("starter");
    bench.days(37);
    assert_eq!(bench.standing(), None);
    bench.days(1);
    assert_eq!(
        (bench.standing(), bench.subscription()["status"].clone()),
        (is("subscription_past_due"), json!("past_due"))
    );
    assert_eq!(
        bench.post("/billing/upgrade", json!({ "plan": "pro" })).unwrap_err().reason_text(),
        Some("subscription_past_due")
    );
    bench.days(40);
    assert_eq!(bench.invoices("open").len(), 1, "who does not pay is not charged on");
    bench.pay(bench.invoices("open")[0]["id"].as_str().unwrap());
    assert_eq!((bench.standing(), bench.subscription()["status"].clone()), (None, json!("active")));
    assert_eq!(
        bench.subscription()["period_start"],
        "2026-03-20T00:00:00.000Z",
        "its month begins with the payment"
    );
    let late = Bench::subscribed("starter");
    late.days(39);
    late.pay(late.invoices("open")[0]["id"].as_str().unwrap());
    assert_eq!(
        late.subscription()["period_end"],
        "2026-03-01T00:00:00.000Z",
        "within the month it goes on"
    );
}

#[test]
fn a_canceled_subscription_ends_with_its_period() {
    let bench = Bench::subscribed("starter");
    let canceled = bench.post("/billing/cancel", json!({})).unwrap().body["subscription"].clone();
    assert_eq!(
        (&canceled["status"], &canceled["cancel_at_period_end"]),
        (&json!("active"), &json!(true))
    );
    bench.days(30);
    assert_eq!(bench.standing(), None);
    bench.days(1);
    assert_eq!(
        (bench.standing(), bench.subscription()),
        (is("subscription_cancelled"), Value::Null)
    );
    assert!(bench.invoices("open").is_empty());
    bench.pay(&bench.owes("/billing/subscribe", json!({ "plan": "starter" })));
    assert_eq!(bench.standing(), None, "it can be begun anew");
}

#[test]
fn a_subscription_can_be_ended_at_once_and_takes_its_invoices_with_it() {
    let bench = Bench::subscribed("starter");
    bench.owes("/billing/upgrade", json!({ "plan": "pro" }));
    bench.post("/billing/cancel", json!({ "at_period_end": false })).unwrap();
    assert_eq!((bench.standing(), bench.invoices("void").len()), (is("subscription_cancelled"), 1));
    bench.pay(bench.invoices("void")[0]["id"].as_str().unwrap());
    assert_eq!(bench.standing(), is("subscription_cancelled"), "what is void is not paid");
    assert_eq!(
        bench.post("/billing/cancel", json!({})).unwrap_err().reason_text(),
        Some("no_subscription")
    );
}

#[test]
fn what_was_never_paid_for_ends_without_a_trace() {
    let bench = Bench::new();
    let invoice = bench.owes("/billing/subscribe", json!({ "plan": "starter" }));
    let canceled = bench.post("/billing/cancel", json!({})).unwrap().body["subscription"].clone();
    assert_eq!(
        (&canceled["status"], &bench.invoice(&invoice)["status"]),
        (&json!("canceled"), &json!("void"))
    );
    assert_eq!(bench.standing(), is("llm_routing_requires_payment"));
}

#[test]
fn an_upgrade_costs_the_difference_and_counts_once_it_is_paid() {
    let bench = Bench::subscribed("starter");
    assert_eq!(
        bench.post("/billing/upgrade", json!({ "plan": "starter" })).unwrap_err().reason_text(),
        Some("no_upgrade")
    );
    let first = bench.owes("/billing/upgrade", json!({ "plan": "pro" }));
    let second = bench.owes("/billing/upgrade", json!({ "plan": "pro" }));
    assert_eq!(bench.invoice(&first)["status"], "void");
    assert_eq!(
        (bench.subscription()["plan"].clone(), bench.invoice(&second)["amount_cents"].clone()),
        (json!("starter"), json!(8_000))
    );
    bench.pay(&second);
    assert_eq!(
        (bench.subscription()["plan"].clone(), bench.balance()),
        (json!("pro"), 500 + 2_000 + 8_000 + 1_000)
    );
    let pending = Bench::new();
    pending.owes("/billing/subscribe", json!({ "plan": "starter" }));
    pending.pay(&pending.owes("/billing/upgrade", json!({ "plan": "pro" })));
    assert_eq!(
        (pending.subscription()["plan"].clone(), pending.balance()),
        (json!("pro"), 500 + 11_000)
    );
}

#[test]
fn a_plan_that_is_no_longer_offered_ends_with_its_period() {
    let bench = Bench::subscribed("starter");
    bench.0.set("plans", json!([]));
    bench.days(31);
    assert_eq!(
        (bench.standing(), bench.subscription()),
        (is("subscription_cancelled"), Value::Null)
    );
}

#[test]
fn a_deployment_that_bills_nobody_makes_invoices_and_nothing_else() {
    let host = Host::new(primitive);
    host.signal("registered", json!({})).unwrap();
    let bench = Bench(host);
    bench.owes("/billing/topup", json!({ "pack": "pack_50" }));
    bench.owes("/billing/subscribe", json!({ "plan": "starter" }));
    bench.days(60);
    assert_eq!((bench.standing(), bench.balance(), bench.invoices("open").len()), (None, 0, 2));
    assert_eq!(bench.0.documents("accounts"), 0);
}

#[test]
fn what_is_asked_is_checked() {
    let bench = Bench::new();
    let refused = |path: &str, body: Value| bench.post(path, body).unwrap_err();
    for body in [json!({}), json!({ "amount_cents": 5, "pack": "pack_10" })] {
        assert_eq!(refused("/billing/topup", body).param_text(), Some("amount_cents"));
    }
    assert_eq!(refused("/billing/topup", json!({ "pack": "pack_1" })).param_text(), Some("pack"));
    assert_eq!(refused("/billing/subscribe", json!({ "plan": "gold" })).param_text(), Some("plan"));
    assert!(
        refused("/billing/topup", json!({ "amount_cents": 5, "invoice": false }))
            .is("not_configured")
    );
    assert!(refused("/billing/portal", json!({})).is("not_configured"));
    assert!(bench.0.get("/billing/invoices/nowhere").unwrap_err().is("not_found"));
}

#[test]
fn the_portal_is_the_providers() {
    let bench = Bench::new();
    bench.0.bind("stripe", "stripe", json!({ "customer": "cus_1" }));
    bench.0.outside(|request| {
        assert_eq!(request.body, b"customer=cus_1");
        assert_eq!(request.headers.iter().filter(|(name, _)| name == "idempotency-key").count(), 1);
        let body = br#"{"id": "bps_1", "url": "https://pay.example/session"}"#.to_vec();
        Some(charter_sdk::http::Response { status: 200, headers: Vec::new(), body })
    });
    assert_eq!(
        bench.post("/billing/portal", json!({})).unwrap().body["url"],
        "https://pay.example/session"
    );
}

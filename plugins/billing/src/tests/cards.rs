//! Billing by card against the double of the host: what is asked of the provider, and what its word
//! is worth.

use std::cell::RefCell;
use std::rc::Rc;

use charter_sdk::Failure;
use charter_sdk::http::{Request, Response};
use charter_sdk::serde_json::{Value, json};

use super::{Bench, is};
use crate::payments::PAYMENTS;

type Asked = Rc<RefCell<Vec<(String, String, String)>>>;

/// A provider of the test's: what it was asked (path, key, form), and the status that it answers
/// payments with. With 202 one waits for a person and can be cancelled, with 203 it waits and was
/// paid by the time that it is to be cancelled.
struct Provider {
    asked: Asked,
    status: Rc<RefCell<u16>>,
}

fn answer(status: u16, body: &Value) -> Response {
    Response { status, headers: Vec::new(), body: body.to_string().into_bytes() }
}

fn serve(asked: &Asked, status: u16, request: &Request) -> Option<Response> {
    let path = request.url.strip_prefix("https://stripe.binding")?.to_owned();
    let header = |name: &str| {
        request.headers.iter().find(|(held, _)| held == name).map(|(_, value)| value.clone())
    };
    assert_eq!(header("stripe-version").as_deref(), Some("2024-06-20"));
    let form = String::from_utf8(request.body.clone()).unwrap();
    let key = header("idempotency-key").unwrap_or_default();
    asked.borrow_mut().push((path.clone(), key, form));
    let card =
        json!({ "error": { "code": "card_declined", "message": "Your card was declined." } });
    Some(match path.as_str() {
        "/v1/customers" if status == 504 => answer(status, &json!({})),
        "/v1/customers" => answer(200, &json!({ "id": "cus_1" })),
        "/v1/payment_intents" if status == 402 => answer(402, &card),
        "/v1/payment_intents" if matches!(status, 202 | 203) => {
            answer(200, &json!({ "id": "pi_1", "status": "requires_action" }))
        }
        "/v1/payment_intents" => answer(status, &json!({ "id": "pi_1", "status": "succeeded" })),
        "/v1/payment_intents/pi_1/cancel" if status == 203 => answer(400, &json!({})),
        "/v1/payment_intents/pi_1" => answer(200, &json!({ "id": "pi_1", "status": "succeeded" })),
        "/v1/payment_intents/pi_1/cancel" => {
            answer(200, &json!({ "id": "pi_1", "status": "canceled" }))
        }
        "/v1/checkout/sessions" => {
            answer(200, &json!({ "id": "cs_1", "url": "https://pay.example/cs_1" }))
        }
        _ => answer(404, &json!({})),
    })
}

impl Provider {
    fn bound_to(bench: &Bench) -> Self {
        bench.0.bind("stripe", "stripe", json!({}));
        let provider = Self { asked: Asked::default(), status: Rc::new(RefCell::new(200)) };
        let (asked, status) = (provider.asked.clone(), provider.status.clone());
        bench.0.outside(move |request| serve(&asked, *status.borrow(), request));
        provider
    }
    fn answers(&self, status: u16) {
        *self.status.borrow_mut() = status;
    }
    fn paths(&self) -> Vec<String> {
        self.asked.borrow().iter().map(|(path, ..)| path.clone()).collect()
    }
    /// The invoice that the first payment was asked for.
    fn first_invoice(&self) -> String {
        let form = self.payments().remove(0).1;
        let (_, named) = form.split_once("charter_invoice%5D=").unwrap();
        named.split('&').next().unwrap().to_owned()
    }
    fn payments(&self) -> Vec<(String, String)> {
        let asked = self.asked.borrow();
        asked
            .iter()
            .filter(|(path, ..)| path == "/v1/payment_intents")
            .map(|(_, key, form)| (key.clone(), form.clone()))
            .collect()
    }
}

/// The provider tells of a payment.
fn paid(bench: &Bench, event: &str, reference: &str, invoice: &str, cents: u64, currency: &str) {
    let asked = PAYMENTS.matching("invoice", invoice).find().unwrap().items;
    let named = asked.iter().find(|payment| payment.permit.is_some()).map(|payment| &payment.id);
    let object = json!({
        "id": reference, "amount_received": cents, "currency": currency, "payment_method": "pm_kept",
        "metadata": { "charter_invoice": invoice, "charter_payment": named },
    });
    tell(bench, event, "payment_intent.succeeded", &object);
}

fn tell(bench: &Bench, event: &str, kind: &str, object: &Value) {
    let hook = bench.0.hooks()[0].clone();
    bench
        .0
        .call_hook(
            &hook,
            event,
            &json!({ "id": event, "type": kind, "data": { "object": object } }).to_string(),
        )
        .unwrap();
}

fn buy(bench: &Bench, cents: u64) -> String {
    let bought = bench
        .post("/billing/topup", json!({ "amount_cents": cents, "payment_method": "pm_1" }))
        .unwrap()
        .body;
    assert_eq!(
        (&bought["invoice"]["status"], &bought["payment"]["status"]),
        (&json!("open"), &json!("processing"))
    );
    bought["invoice"]["id"].as_str().unwrap().to_owned()
}

#[test]
fn a_card_pays_once_and_by_the_providers_word_alone() {
    let bench = Bench::new();
    let provider = Provider::bound_to(&bench);
    let invoice = buy(&bench, 1_000);
    assert_eq!((bench.balance(), bench.standing()), (500, is("llm_routing_requires_payment")));
    assert_eq!(provider.paths(), ["/v1/customers", "/v1/payment_intents"]);
    paid(&bench, "evt_1", "pi_1", &invoice, 1_000, "usd");
    let after = (bench.balance(), bench.standing(), bench.invoice(&invoice)["status"].clone());
    assert_eq!(after, (1_500, None, json!("paid")));
    // Told by another event, or again, it is the same payment.
    paid(&bench, "evt_2", "pi_1", &invoice, 1_000, "usd");
    let session = json!({ "id": "cs", "payment_status": "paid", "payment_intent": "pi_1", "amount_total": 1_000, "currency": "usd" });
    tell(&bench, "evt_3", "checkout.session.completed", &session);
    tell(&bench, "evt_4", "customer.updated", &json!({}));
    assert_eq!(bench.balance(), 1_500);
    // The job planned beside the run that somebody waited for does nothing any more.
    bench.days(1);
    assert_eq!(provider.payments().len(), 1);
    bench.post("/billing/topup", json!({ "amount_cents": 100 })).unwrap();
    let (first, second) = (provider.payments()[0].clone(), provider.payments()[1].clone());
    assert!(
        second.1.contains("payment_method=pm_kept") && second.1.contains("off_session=true"),
        "{}",
        second.1
    );
    assert!(
        first.0 != second.0
            && provider.paths().iter().filter(|path| *path == "/v1/customers").count() == 1
    );
}

#[test]
fn what_came_is_posted_as_it_came() {
    let bench = Bench::new();
    Provider::bound_to(&bench);
    let invoice = buy(&bench, 1_000);
    paid(&bench, "evt_1", "pi_1", &invoice, 400, "usd");
    assert_eq!(
        (bench.balance(), bench.invoice(&invoice)["status"].clone()),
        (900, json!("open")),
        "a part is not all of it"
    );
    paid(&bench, "evt_2", "pi_2", &invoice, 700, "usd");
    assert_eq!(
        (bench.balance(), bench.invoice(&invoice)["received_cents"].clone()),
        (1_600, json!(1_100))
    );
    paid(&bench, "evt_3", "pi_3", &invoice, 50, "usd");
    assert_eq!(
        (bench.balance(), bench.invoice(&invoice)["received_cents"].clone()),
        (1_650, json!(1_150)),
        "it is money all the same"
    );
    paid(&bench, "evt_4", "pi_4", &invoice, 1_000, "eur");
    assert_eq!(bench.balance(), 1_650, "nobody has said what that is worth");
    paid(&bench, "evt_5", "pi_5", "no invoice of ours", 10, "usd");
    assert_eq!(bench.balance(), 1_660);
}

#[test]
fn a_refund_is_taken_back_as_far_as_it_is_there_and_in_any_order() {
    let bench = Bench::new();
    Provider::bound_to(&bench);
    let invoice = buy(&bench, 1_000);
    let refund = |event: &str, cents: u64| {
        let charge = json!({ "payment_intent": "pi_1", "amount_refunded": cents, "currency": "usd", "metadata": { "charter_invoice": invoice } });
        tell(&bench, event, "charge.refunded", &charge);
    };
    refund("evt_1", 200);
    assert_eq!(bench.balance(), 500, "nothing came yet");
    paid(&bench, "evt_2", "pi_1", &invoice, 1_000, "usd");
    assert_eq!(
        (bench.balance(), bench.invoice(&invoice)["taken_back_cents"].clone()),
        (1_300, json!(200))
    );
    // All but one dollar is spent.
    bench.0.fund(-1_200 * super::CENT);
    refund("evt_3", 1_000);
    refund("evt_4", 900);
    let told = bench.invoice(&invoice);
    assert_eq!(
        (bench.balance(), &told["refunded_cents"], &told["taken_back_cents"]),
        (0, &json!(1_000), &json!(300))
    );
}

#[test]
fn what_was_given_back_in_full_was_not_bought() {
    let bench = Bench::new();
    Provider::bound_to(&bench);
    let refund = |event: &str, reference: &str, cents: u64| {
        let charge = json!({ "payment_intent": reference, "amount_refunded": cents, "currency": "usd", "metadata": {} });
        tell(&bench, event, "charge.refunded", &charge);
    };
    let (first, second) = (buy(&bench, 1_000), buy(&bench, 300));
    paid(&bench, "evt_1", "pi_1", &first, 1_000, "usd");
    paid(&bench, "evt_2", "pi_2", &second, 300, "usd");
    refund("evt_3", "pi_1", 999);
    assert_eq!(bench.standing(), None, "a part of it is still bought");
    refund("evt_4", "pi_1", 1_000);
    assert_eq!(bench.standing(), None, "there is another purchase");
    refund("evt_5", "pi_2", 300);
    // Bought credit pays for model calls within the trial, and for everything behind it: neither
    // any more.
    assert_eq!(bench.standing(), is("llm_routing_requires_payment"));
    refund("evt_6", "pi_2", 300);
    paid(&bench, "evt_7", "pi_2", &second, 300, "usd");
    assert_eq!(
        bench.standing(),
        is("llm_routing_requires_payment"),
        "told again it is the same purchase"
    );
    // Word of what was given back may come before word of what was received.
    refund("evt_8", "pi_3", 700);
    paid(&bench, "evt_9", "pi_3", "no invoice of ours", 700, "usd");
    assert_eq!(bench.standing(), is("llm_routing_requires_payment"));
    bench.days(14);
    assert_eq!(bench.standing(), is("trial_expired"));
    // The operator's word is not undone by the provider's.
    bench.credit("paid", 100, None);
    refund("evt_10", "pi_1", 1_000);
    assert_eq!(bench.standing(), None);
}

#[test]
fn a_plan_outlives_what_was_given_back_for_it() {
    let bench = Bench::new();
    Provider::bound_to(&bench);
    let made = bench
        .post("/billing/subscribe", json!({ "plan": "starter", "payment_method": "pm_1" }))
        .unwrap();
    paid(&bench, "evt_1", "pi_1", made.body["invoice"]["id"].as_str().unwrap(), 2_000, "usd");
    let charge = json!({ "payment_intent": "pi_1", "amount_refunded": 2_000, "currency": "usd", "metadata": {} });
    tell(&bench, "evt_2", "charge.refunded", &charge);
    assert_eq!((bench.standing(), bench.subscription()["status"].clone()), (None, json!("active")));
    bench.post("/billing/cancel", json!({ "at_period_end": false })).unwrap();
    assert_eq!(bench.standing(), is("subscription_cancelled"));
}

#[test]
fn a_decline_is_told_and_leaves_nothing() {
    let bench = Bench::new();
    let provider = Provider::bound_to(&bench);
    provider.answers(402);
    let refused = bench
        .post("/billing/topup", json!({ "amount_cents": 900, "payment_method": "pm_1" }))
        .unwrap_err();
    assert_eq!(
        (refused.code(), refused.reason_text()),
        ("payment_rejected", Some("card_declined"))
    );
    provider.answers(202);
    let refused = bench
        .post("/billing/topup", json!({ "amount_cents": 900, "payment_method": "pm_1" }))
        .unwrap_err();
    assert_eq!(refused.reason_text(), Some("authentication_required"));
    assert_eq!(
        provider.paths().last().map(String::as_str),
        Some("/v1/payment_intents/pi_1/cancel")
    );
    assert_eq!(
        (bench.invoices("void").len(), bench.invoices("open").len(), bench.balance()),
        (2, 0, 500)
    );
    // The amount due stays, and is paid by another card.
    provider.answers(402);
    bench
        .post("/billing/subscribe", json!({ "plan": "starter", "payment_method": "pm_1" }))
        .unwrap_err();
    let owed = bench.invoices("open")[0]["id"].as_str().unwrap().to_owned();
    provider.answers(200);
    let body = json!({ "invoice_id": owed, "payment_method": "pm_2" });
    bench.post("/billing/topup", body.clone()).unwrap();
    assert_eq!(
        bench.post("/billing/topup", body.clone()).unwrap_err().reason_text(),
        Some("payment_running")
    );
    paid(&bench, "evt_1", "pi_9", &owed, 2_000, "usd");
    assert_eq!((bench.subscription()["status"].clone(), bench.balance()), (json!("active"), 2_500));
    assert_eq!(
        bench.post("/billing/topup", body).unwrap_err().reason_text(),
        Some("invoice_closed")
    );
}

#[test]
fn a_purchase_goes_on_where_the_provider_has_not_made_its_customer_yet() {
    let bench = Bench::new();
    let provider = Provider::bound_to(&bench);
    provider.answers(504);
    let body = json!({ "amount_cents": 900, "payment_method": "pm_1" });
    assert_eq!(bench.post("/billing/topup", body).unwrap().body["payment"]["status"], "pending");
    assert!(provider.payments().is_empty());
    provider.answers(200);
    bench.0.pass_seconds(130);
    bench.0.run_jobs().unwrap();
    assert_eq!((provider.payments().len(), bench.invoices("open").len()), (1, 1));
}

#[test]
fn an_upgrade_waits_for_a_payment_that_is_under_way() {
    let bench = Bench::new();
    let provider = Provider::bound_to(&bench);
    let starter = json!({ "plan": "starter", "payment_method": "pm_1" });
    let made = bench.post("/billing/subscribe", starter).unwrap().body;
    let first = made["invoice"]["id"].as_str().unwrap().to_owned();
    let upgrade = |plan: &str| {
        bench.post("/billing/upgrade", json!({ "plan": plan, "payment_method": "pm_1" }))
    };
    let is_refused = |plan: &str| {
        let refused = upgrade(plan).unwrap_err();
        assert_eq!(refused.reason_text(), Some("payment_running"));
    };
    // Charged, and not signed yet.
    is_refused("pro");
    paid(&bench, "evt_1", "pi_1", &first, 2_000, "usd");
    let difference = upgrade("pro").unwrap().body;
    is_refused("pro");
    let second = difference["invoice"]["id"].as_str().unwrap().to_owned();
    assert_eq!((bench.invoices("void").len(), provider.payments().len()), (0, 2));
    let cents = difference["invoice"]["amount_cents"].as_u64().unwrap();
    paid(&bench, "evt_2", "pi_2", &second, cents, "usd");
    assert_eq!(bench.subscription()["plan"], "pro");
}

#[test]
fn a_payment_that_nobody_answered_is_asked_again_under_its_key() {
    let bench = Bench::new();
    let provider = Provider::bound_to(&bench);
    provider.answers(503);
    let body = json!({ "amount_cents": 900, "payment_method": "pm_1" });
    assert_eq!(bench.post("/billing/topup", body).unwrap().body["payment"]["status"], "pending");
    assert_eq!(bench.invoices("open").len(), 1, "nobody knows yet what became of it");
    provider.answers(200);
    bench.0.pass_seconds(130);
    bench.0.run_jobs().unwrap();
    let asked = provider.payments();
    assert_eq!((asked.len(), &asked[0]), (2, &asked[1]), "the same request under the same key");
    bench.days(1);
    assert_eq!(provider.payments().len(), 2);
}

#[test]
fn a_renewal_charges_the_kept_card_and_is_past_due_where_that_fails() {
    let bench = Bench::new();
    let provider = Provider::bound_to(&bench);
    let made = bench
        .post("/billing/subscribe", json!({ "plan": "starter", "payment_method": "pm_1" }))
        .unwrap();
    assert_eq!((made.status, &made.body["subscription"]["status"]), (201, &json!("pending")));
    paid(&bench, "evt_1", "pi_1", made.body["invoice"]["id"].as_str().unwrap(), 2_000, "usd");
    assert_eq!(bench.subscription()["status"], "active");
    bench.days(32);
    let open = bench.invoices("open")[0]["id"].as_str().unwrap().to_owned();
    let charged = provider.payments().pop().unwrap().1;
    assert!(charged.contains(&open) && charged.contains("payment_method=pm_kept"), "{charged}");
    paid(&bench, "evt_2", "pi_2", &open, 2_000, "usd");
    assert_eq!(bench.invoice(&open)["status"], "paid");
    provider.answers(402);
    bench.days(38);
    assert_eq!((bench.standing(), bench.invoices("open").len()), (is("subscription_past_due"), 1));
    provider.answers(200);
    let owed = bench.invoices("open")[0]["id"].as_str().unwrap().to_owned();
    bench.post("/billing/topup", json!({ "invoice_id": owed })).unwrap();
    paid(&bench, "evt_3", "pi_3", &owed, 2_000, "usd");
    assert_eq!(bench.standing(), None);
}

#[test]
fn a_page_needs_somewhere_to_lead_back_to() {
    let bench = Bench::new();
    let provider = Provider::bound_to(&bench);
    assert_eq!(
        bench.post("/billing/topup", json!({ "amount_cents": 5 })).unwrap_err().param_text(),
        Some("return_url")
    );
    for (body, param) in [
        (json!({ "amount_cents": 5, "return_url": "http://x.example" }), "return_url"),
        (json!({ "amount_cents": 5, "payment_method": "pm 1" }), "payment_method"),
        (json!({ "amount_cents": 5, "payment_method": "pm_1", "invoice": true }), "payment_method"),
        (json!({ "amount_cents": 5, "invoice_id": "x" }), "amount_cents"),
        (json!({ "invoice_id": "x", "payment_method": "pm_1" }), "invoice_id"),
    ] {
        assert_eq!(
            bench.post("/billing/topup", body.clone()).unwrap_err().param_text(),
            Some(param),
            "{body}"
        );
    }
    bench.0.bind("stripe", "stripe", json!({ "return_url": "https://back.example/" }));
    let bought = bench.post("/billing/topup", json!({ "amount_cents": 5 })).unwrap().body;
    assert_eq!(
        (&bought["payment"]["status"], &bought["payment"]["url"]),
        (&json!("open"), &json!("https://pay.example/cs_1"))
    );
    assert!(
        provider
            .asked
            .borrow()
            .last()
            .unwrap()
            .2
            .contains("success_url=https%3A%2F%2Fback.example%2F")
    );
    bench.post("/billing/topup", json!({ "amount_cents": 5, "invoice": true })).unwrap();
    assert_eq!(bench.invoices("open").len(), 2);
}

#[test]
fn credit_that_is_spent_stops_who_lives_on_it() {
    let bench = Bench::new();
    bench.pay(&bench.owes("/billing/topup", json!({ "amount_cents": 1_000 })));
    bench.days(14);
    assert_eq!(bench.standing(), None, "bought credit outlives the trial");
    bench.0.fund(-1_500 * super::CENT);
    bench.days(1);
    assert_eq!(bench.standing(), is("credits_exhausted"));
    bench.pay(&bench.owes("/billing/topup", json!({ "amount_cents": 100 })));
    assert_eq!(bench.standing(), None);
    // A plan that gives credit stops nobody; one that gives none is as good as none.
    let plan = |included: u64| json!([{ "id": "plan", "name": "Plan", "price_cents": 500, "period": "month", "included_credit_cents": included }]);
    bench.0.set("plans", plan(0));
    bench.pay(&bench.owes("/billing/subscribe", json!({ "plan": "plan" })));
    bench.0.fund(-600 * super::CENT);
    bench.days(1);
    assert_eq!(bench.standing(), is("credits_exhausted"));
    bench.0.set("plans", plan(500));
    bench.days(1);
    assert_eq!(bench.standing(), None);
}

#[test]
fn what_is_charged_to_a_card_takes_leave_and_what_a_person_pays_does_not() {
    let bench = Bench::new();
    let provider = Provider::bound_to(&bench);
    for action in ["billing.top_up", "billing.subscribe", "billing.upgrade"] {
        bench.0.deny(action, Failure::forbidden("the policy says no").reason("policy_denied"));
    }
    let by_card = |path: &str, mut body: Value| {
        body["payment_method"] = json!("pm_1");
        bench.post(path, body).map(drop).unwrap_err()
    };
    let (credit, plan) = (json!({ "amount_cents": 1_000 }), json!({ "plan": "pro" }));
    for refused in [by_card("/billing/topup", credit), by_card("/billing/subscribe", plan.clone())]
    {
        assert_eq!(refused.reason_text(), Some("policy_denied"), "{refused:?}");
    }
    assert_eq!(provider.paths(), Vec::<String>::new(), "nothing was asked, nothing is kept");
    let page = json!({ "amount_cents": 1_000, "return_url": "https://shop.example/" });
    let shown = bench.post("/billing/topup", page).unwrap().body;
    assert_eq!(shown["payment"]["url"], "https://pay.example/cs_1");
    let invoice = json!({ "amount_cents": 1_000, "invoice": true });
    let invoice = bench.post("/billing/topup", invoice).unwrap().body["invoice"]["id"].clone();
    let pay = json!({ "invoice_id": invoice });
    assert_eq!(by_card("/billing/topup", pay).reason_text(), Some("policy_denied"));
}

#[test]
fn a_payment_that_is_declined_gives_its_leave_back() {
    let bench = Bench::new();
    let provider = Provider::bound_to(&bench);
    provider.answers(402);
    let credit = json!({ "amount_cents": 1_000, "payment_method": "pm_1" });
    let declined = bench.post("/billing/topup", credit.clone()).map(drop).unwrap_err();
    assert!(declined.is("payment_rejected"), "{declined:?}");
    // One that the provider does not answer is asked again under the same leave.
    provider.answers(503);
    assert_eq!(bench.post("/billing/topup", credit).unwrap().body["payment"]["status"], "pending");
    provider.answers(200);
    bench.0.pass_seconds(120);
    assert_eq!(bench.0.run_jobs().unwrap(), 1);
    let payments = provider.payments();
    assert_eq!(payments[1].0, payments[2].0);
}

/// Buys for ten dollars where the budget has ten, and gets no answer; the invoice's id.
fn buy_unanswered(bench: &Bench, provider: &Provider) -> String {
    bench.0.budget(1_000 * super::CENT);
    provider.answers(503);
    let body = json!({ "amount_cents": 1_000, "payment_method": "pm_1" });
    let bought = bench.post("/billing/topup", body).unwrap().body;
    assert_eq!(bought["payment"]["status"], "pending");
    bought["invoice"]["id"].as_str().unwrap().to_owned()
}

/// Whether the budget admits no other purchase.
fn is_over_budget(bench: &Bench) -> bool {
    refusal_of_another(bench).as_deref() == Some("budget_exceeded")
}

/// Why there is no other purchase.
fn refusal_of_another(bench: &Bench) -> Option<String> {
    let more = json!({ "amount_cents": 1_000, "payment_method": "pm_1" });
    let refused = bench.post("/billing/topup", more).map(drop).err()?;
    refused.reason_text().map(str::to_owned)
}

#[test]
fn a_payment_whose_answer_was_lost_is_spent_by_the_providers_word() {
    let bench = Bench::new();
    let provider = Provider::bound_to(&bench);
    let invoice = buy_unanswered(&bench, &provider);
    paid(&bench, "evt_1", "pi_1", &invoice, 1_000, "usd");
    assert_eq!(
        (bench.invoice(&invoice)["status"].clone(), bench.balance()),
        (json!("paid"), 1_500)
    );
    provider.answers(200);
    bench.days(2);
    assert_eq!(provider.payments().len(), 1, "nothing more is asked of it");
    assert!(is_over_budget(&bench));
}

#[test]
fn what_the_provider_signs_counts_whatever_it_answered_before() {
    // Declined; waiting for a person and cancelled; paid before it could be cancelled.
    for (status, is_failed) in [(402, true), (202, true), (203, false)] {
        let bench = Bench::new();
        let provider = Provider::bound_to(&bench);
        bench.0.budget(1_000 * super::CENT);
        provider.answers(status);
        let body = json!({ "amount_cents": 1_000, "payment_method": "pm_1" });
        let bought = bench.post("/billing/topup", body).map(drop);
        assert_eq!(bought.is_err(), is_failed, "{status}");
        assert_eq!(is_over_budget(&bench), !is_failed, "{status}");
        let kept = PAYMENTS.all().oldest_first().find().unwrap().items.remove(0);
        let invoice = provider.first_invoice();
        let word = |reference: &str| {
            json!({
                "id": reference, "amount_received": 1_000, "currency": "usd",
                "metadata": { "charter_invoice": invoice, "charter_payment": kept.id },
            })
        };
        tell(&bench, "evt_1", "payment_intent.succeeded", &word("pi_1"));
        assert_eq!(bench.balance(), 1_500);
        // Nobody had leave for it any more where it had failed: a person is to look.
        provider.answers(200);
        let refusal = if is_failed { "scope_frozen" } else { "budget_exceeded" };
        assert_eq!(refusal_of_another(&bench).as_deref(), Some(refusal), "{status}");
    }
}

#[test]
fn what_a_person_pays_on_a_page_is_not_the_card_that_was_declined() {
    let bench = Bench::new();
    let provider = Provider::bound_to(&bench);
    provider.answers(402);
    let plan = json!({ "plan": "pro", "payment_method": "pm_1" });
    assert!(bench.post("/billing/subscribe", plan).is_err());
    let kept = PAYMENTS.all().oldest_first().find().unwrap().items.remove(0);
    let invoice = provider.first_invoice();
    let object = json!({
        "id": "pi_page", "amount_received": 2_000, "currency": "usd",
        "metadata": { "charter_invoice": invoice },
    });
    tell(&bench, "evt_1", "payment_intent.succeeded", &object);
    assert_eq!(PAYMENTS.get(&kept.id).unwrap().unwrap().body.permit, kept.body.permit);
    assert_eq!(refusal_of_another(&bench).as_deref(), Some("card_declined"), "nobody is stopped");
}

#[test]
fn a_receipt_of_another_payment_says_nothing_of_the_one_in_doubt() {
    let bench = Bench::new();
    let provider = Provider::bound_to(&bench);
    let invoice = buy_unanswered(&bench, &provider);
    let kept = PAYMENTS.matching("invoice", &invoice).find().unwrap().items.remove(0);
    let object = |payment: &str| {
        json!({
            "id": "pi_2", "amount_received": 1_000, "currency": "usd",
            "metadata": { "charter_invoice": invoice, "charter_payment": payment },
        })
    };
    tell(&bench, "evt_1", "payment_intent.succeeded", &object("another"));
    let left = PAYMENTS.get(&kept.id).unwrap().unwrap();
    assert_eq!(left.body.permit, kept.body.permit, "it is in doubt still");
    assert_eq!(bench.balance(), 1_500);
    let asked = &provider.payments()[0].1;
    assert!(asked.contains(&format!("metadata%5Bcharter_payment%5D={}", kept.id)), "{asked}");
}

#[test]
fn a_payment_that_may_have_been_made_stays_in_doubt_when_nothing_more_is_asked() {
    let bench = Bench::new();
    let provider = Provider::bound_to(&bench);
    let invoice = buy_unanswered(&bench, &provider);
    // Somebody else has paid the invoice: what became of the card nobody knows.
    bench.pay(&invoice);
    provider.answers(200);
    bench.days(2);
    assert_eq!(provider.payments().len(), 1);
    assert!(is_over_budget(&bench));
    paid(&bench, "evt_1", "pi_1", &invoice, 1_000, "usd");
    assert_eq!(bench.balance(), 2_500);
    assert!(is_over_budget(&bench));
}

#[test]
fn who_is_asked_about_a_payment_in_doubt_asks_the_provider_under_its_key() {
    let bench = Bench::new();
    let provider = Provider::bound_to(&bench);
    let invoice = buy_unanswered(&bench, &provider);
    let kept = PAYMENTS.matching("invoice", &invoice).find().unwrap().items.remove(0);
    let permit = kept.body.permit.unwrap();
    provider.answers(200);
    bench.0.signal("doubt", json!({ "permit": "of nobody" })).unwrap();
    assert_eq!(provider.payments().len(), 1);
    for _ in 0..2 {
        bench.0.signal("doubt", json!({ "permit": permit })).unwrap();
        let asked = provider.payments();
        assert_eq!((asked.len(), &asked[0]), (2, &asked[1]));
    }
    assert!(is_over_budget(&bench));
}

//! Cards of a card network, against the double of the host and an issuer of a few lines.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use charter_double::Host;
use charter_sdk::Failure;
use charter_sdk::http::Response;
use charter_sdk::serde_json::{Value, json};

use super::DOLLAR;
use crate::primitive;

/// The calls that the issuer has heard, and whether it answers.
#[derive(Clone, Default)]
struct Issuer {
    heard: Rc<RefCell<Vec<(String, String)>>>,
    /// By idempotency key: the body that came under it.
    keys: Rc<RefCell<BTreeMap<String, String>>>,
    status: Rc<Cell<u16>>,
}

impl Issuer {
    fn heard(&self, path: &str) -> Vec<String> {
        self.heard
            .borrow()
            .iter()
            .filter(|(heard, _)| heard.ends_with(path))
            .map(|(_, body)| body.clone())
            .collect()
    }
}

struct Bench {
    host: Host,
    issuer: Issuer,
}

impl Bench {
    fn new() -> Self {
        let (host, issuer) = (Host::new(primitive), Issuer::default());
        host.fund(100 * DOLLAR);
        host.bind("cards.issuer", "stripe", json!({ "cardholder": "ich_1" }));
        issuer.status.set(200);
        let own = issuer.clone();
        host.outside(move |request| {
            let body = String::from_utf8_lossy(&request.body).into_owned();
            own.heard.borrow_mut().push((request.url.clone(), body.clone()));
            if let Some((_, key)) = request.headers.iter().find(|(name, _)| name == "idempotency-key") {
                let first = own.keys.borrow_mut().entry(key.clone()).or_insert(body.clone()).clone();
                assert_eq!(body, first, "{key} stands for one request");
            }
            // A card's key is the same for one card and another for the next.
            let cards = own.keys.borrow().len();
            let told =
                json!({ "id": format!("ic_{cards}"), "last4": "0018", "number": "4000", "cvc": "123", "exp_month": 9, "exp_year": 2031 });
            Some(Response { status: own.status.get(), headers: Vec::new(), body: told.to_string().into_bytes() })
        });
        Self { host, issuer }
    }

    fn create(&self) -> Result<String, Failure> {
        let made = self.host.post("/cards", json!({ "network": "open_loop" }))?.body;
        Ok(made["card"]["id"].as_str().unwrap().to_owned())
    }

    /// A card with ten dollars on it.
    fn carded(&self) -> String {
        let card = self.create().unwrap();
        self.host.post(&format!("/cards/{card}/top-up"), json!({ "amount_cents": 1_000 })).unwrap();
        card
    }

    fn card(&self, card: &str) -> Value {
        self.host.get(&format!("/cards/{card}")).unwrap().body["card"].clone()
    }

    fn ask(&self, authorization: &str, cents: u64, currency: &str) -> Result<Value, Failure> {
        self.ask_as(authorization, authorization, cents, currency)
    }

    /// Another request of an authorization.
    fn ask_as(
        &self,
        event: &str,
        authorization: &str,
        cents: u64,
        currency: &str,
    ) -> Result<Value, Failure> {
        let object = json!({ "id": authorization, "pending_request": { "amount": cents, "currency": currency }, "merchant_data": { "name": "books" } });
        let body = json!({ "type": "issuing_authorization.request", "data": { "object": object } });
        self.host.ask_hook(&self.host.hooks()[0], event, &body.to_string())
    }

    fn tell(&self, kind: &str, object: Value) {
        self.told(kind, object).unwrap();
    }

    fn told(&self, kind: &str, object: Value) -> Result<(), Failure> {
        let event = json!({ "type": kind, "data": { "object": object } }).to_string();
        self.host.call_hook(&self.host.hooks()[0], &event, &event)
    }

    fn paid(&self, id: &str, authorization: Option<&str>, cents: i64) {
        self.tell(
            "issuing_transaction.created",
            json!({ "id": id, "amount": cents, "currency": "usd", "authorization": authorization }),
        );
    }
}

#[test]
fn a_card_whose_issuer_did_not_answer_is_asked_for_again_as_the_same() {
    let bench = Bench::new();
    bench.issuer.status.set(503);
    let id = bench.create().unwrap();
    let card = bench.card(&id);
    assert_eq!(
        (&card["status"], &card["network"], &card["last4"]),
        (&json!("pending"), &json!("open_loop"), &Value::Null)
    );
    for below in ["top-up", "freeze", "cancel"] {
        let refused = bench
            .host
            .post(&format!("/cards/{id}/{below}"), json!({ "amount_cents": 1 }))
            .map(drop);
        assert_eq!(refused.unwrap_err().reason_text(), Some("card_pending"), "{below}");
    }
    assert!(bench.ask("iauth_1", 0, "usd").is_err(), "not yet");
    bench.issuer.status.set(200);
    bench.host.pass_seconds(120);
    assert_eq!(bench.host.run_jobs().unwrap(), 1);
    assert_eq!(bench.card(&id)["status"], "active");
    let asked = bench.issuer.heard("/v1/issuing/cards");
    assert_eq!((asked.len(), &asked[0]), (2, &asked[1]));
    assert_eq!(
        (asked.len(), bench.issuer.keys.borrow().len()),
        (2, 1),
        "asked again under its key"
    );
    assert!(
        asked[0].contains("cardholder=ich_1") && asked[0].ends_with("spending_limits%5D="),
        "{}",
        asked[0]
    );
}

#[test]
fn a_card_that_the_issuer_refuses_is_canceled() {
    let bench = Bench::new();
    bench.issuer.status.set(400);
    assert!(bench.create().unwrap_err().is("provider_error"));
    let card = bench.host.get("/cards").unwrap().body["cards"][0].clone();
    assert_eq!(card["status"], "canceled");
    assert_eq!(bench.host.hooks(), Vec::<String>::new());
    bench.host.pass_seconds(120);
    assert_eq!(bench.host.run_jobs().unwrap(), 0);
}

#[test]
fn the_issuer_hears_yes_only_for_an_active_card_in_dollars_that_has_them() {
    let bench = Bench::new();
    let card = bench.carded();
    assert!(bench.ask("iauth_1", 100, "eur").is_err());
    assert!(bench.ask("iauth_2", 1_001, "usd").is_err());
    assert_eq!(bench.ask("iauth_3", 1_000, "USD").unwrap(), json!({ "approved": true }));
    assert_eq!(bench.card(&card)["balance_cents"], 0);
    bench.tell(
        "issuing_authorization.created",
        json!({ "id": "iauth_3", "approved": true, "status": "pending", "transactions": [] }),
    );
    assert_eq!(
        bench.card(&card)["balance_cents"],
        0,
        "told that it was approved, and nothing else"
    );
    bench.tell(
        "issuing_authorization.updated",
        json!({ "id": "iauth_3", "approved": true, "status": "closed", "transactions": [{ "id": "ipi_1" }] }),
    );
    assert_eq!(bench.card(&card)["balance_cents"], 0, "it is paid: that is told by itself");
    bench.paid("ipi_1", Some("iauth_3"), -900);
    bench.paid("ipi_1", Some("iauth_3"), -900);
    assert_eq!(
        bench.card(&card)["balance_cents"],
        100,
        "over before it was told: nothing of it stays set aside"
    );
    bench.host.post(&format!("/cards/{card}/freeze"), json!({})).unwrap();
    assert!(bench.ask("iauth_4", 1, "usd").is_err());
    bench.host.run_jobs().unwrap();
    assert!(
        bench.issuer.heard("/v1/issuing/cards/ic_1").last().unwrap().contains("status=inactive")
    );
}

#[test]
fn a_payment_in_parts_counts_each_part_and_one_beyond_everything_freezes() {
    let bench = Bench::new();
    let card = bench.carded();
    bench.ask("iauth_1", 600, "usd").unwrap();
    bench.paid("ipi_1", Some("iauth_1"), -300);
    assert!(
        bench.ask("iauth_2", 401, "usd").is_err(),
        "the rest stays set aside for the next part"
    );
    let shown = |card: &str| {
        let listed = bench.host.get(&format!("/cards/{card}/authorizations")).unwrap().body;
        let listed = listed["authorizations"].as_array().unwrap().clone();
        assert_eq!(listed.len(), 1);
        (listed[0]["status"].clone(), listed[0]["captured_cents"].clone())
    };
    assert_eq!(shown(&card), (json!("authorized"), json!(300)));
    bench.paid("ipi_2", Some("iauth_1"), -300);
    assert_eq!(shown(&card), (json!("captured"), json!(600)));
    assert_eq!(bench.card(&card)["balance_cents"], 400);
    bench.paid("ipi_3", None, -500);
    assert_eq!(
        (&bench.card(&card)["balance_cents"], &bench.card(&card)["status"]),
        (&json!(-100), &json!("frozen"))
    );
    bench.paid("ipi_4", None, 200);
    assert_eq!(bench.card(&card)["balance_cents"], 100);
}

/// All orders of so many things.
fn orders(of: usize) -> Vec<Vec<usize>> {
    let Some(last) = of.checked_sub(1) else { return vec![Vec::new()] };
    let shorter = orders(last);
    let longer = |order: &Vec<usize>| {
        let order = order.clone();
        (0..=order.len()).map(move |at| [&order[..at], &[last], &order[at..]].concat())
    };
    shorter.iter().flat_map(longer).collect()
}

#[test]
fn what_is_not_paid_is_given_back_with_the_last_word_in_whichever_order_they_come() {
    let moves = [("ipi_1", -300), ("ipi_2", -500), ("ipi_3", 20)];
    for order in orders(moves.len() + 1) {
        let bench = Bench::new();
        let card = bench.carded();
        bench.ask("iauth_1", 1_000, "usd").unwrap();
        let (mut paid, mut back) = (0, 0);
        for (told, place) in order.iter().enumerate() {
            match moves.get(*place) {
                Some((id, cents)) => bench.paid(id, Some("iauth_1"), *cents),
                None => bench.tell(
                    "issuing_authorization.updated",
                    json!({ "id": "iauth_1", "approved": true, "status": "closed", "transactions": moves.map(|(id, _)| json!({ "id": id })) }),
                ),
            }
            let cents = moves.get(*place).map_or(0, |(_, cents)| *cents);
            (paid, back) = (paid - cents.min(0), back + cents.max(0));
            // Merchants give back what they have been paid.
            let expected = if told == moves.len() { 1_000 - 800 + 20 } else { back.min(paid) };
            assert_eq!(bench.card(&card)["balance_cents"], expected, "{order:?}, {told}");
        }
    }
}

#[test]
fn what_merchants_owe_comes_to_its_card_whichever_card_of_the_user_pays_them() {
    let bench = Bench::new();
    let cards = [bench.carded(), bench.carded()];
    let hooks = bench.host.hooks();
    let moved = |card: usize, id: &str, cents: i64| {
        let object = json!({ "id": id, "amount": cents, "currency": "usd" });
        let kind = "issuing_transaction.created";
        let event = json!({ "type": kind, "data": { "object": object } }).to_string();
        bench.host.call_hook(&hooks[card], &event, &event).unwrap();
    };
    let balances =
        || cards.clone().map(|card| bench.card(&card)["balance_cents"].as_i64().unwrap());
    moved(1, "ipi_1", -100);
    moved(0, "ipi_2", 100);
    assert_eq!(balances(), [1_100, 900], "told before its payment, and there");
    moved(1, "ipi_3", 100);
    assert_eq!(balances(), [1_100, 900], "owed: merchants have nothing left");
    moved(0, "ipi_4", -100);
    assert_eq!(balances(), [1_000, 1_000]);
}

#[test]
fn a_payment_that_nobody_asked_about_counts_beyond_a_full_budget_and_stops_what_comes() {
    let bench = Bench::new();
    let card = bench.carded();
    bench.host.budget(1_500 * DOLLAR / 100);
    assert!(bench.ask("iauth_1", 600, "usd").is_err(), "the top-up has left five dollars");
    bench.paid("ipi_1", None, -600);
    assert_eq!(bench.card(&card)["balance_cents"], 400);
    let stopped = bench.ask("iauth_2", 1, "usd").unwrap_err();
    assert_eq!(stopped.reason_text(), Some("scope_frozen"));
    bench.paid("ipi_2", None, -100);
    assert_eq!(bench.card(&card)["balance_cents"], 300, "it has happened, and again");
}

#[test]
fn the_rest_of_a_payment_stays_set_aside_whatever_the_rules_say_by_then() {
    let bench = Bench::new();
    let card = bench.carded();
    bench.ask("iauth_1", 600, "usd").unwrap();
    bench.ask("iauth_1", 100, "usd").unwrap();
    bench.host.deny("cards.authorize", Failure::forbidden("the policy says no"));
    bench.paid("ipi_1", Some("iauth_1"), -300);
    assert_eq!(bench.card(&card)["balance_cents"], 300);
    bench.paid("ipi_2", Some("iauth_1"), -350);
    assert_eq!(bench.card(&card)["balance_cents"], 300);
    bench.tell(
        "issuing_authorization.updated",
        json!({ "id": "iauth_1", "approved": true, "status": "closed", "transactions": [{ "id": "ipi_2" }] }),
    );
    assert_eq!(bench.card(&card)["balance_cents"], 350, "the rest is given back");
}

#[test]
fn what_was_never_asked_is_heard_again_while_nobody_knows_whether_leave_is_refused() {
    let bench = Bench::new();
    let card = bench.carded();
    bench.host.deny("cards.authorize", Failure::new("overloaded", "later"));
    let paid = json!({ "id": "ipi_1", "amount": -300, "currency": "usd" });
    assert!(bench.told("issuing_transaction.created", paid).is_err());
    assert_eq!(bench.card(&card)["balance_cents"], 1_000);
}

#[test]
fn what_comes_back_to_a_canceled_card_pays_what_it_owes_and_the_rest_is_credit() {
    let bench = Bench::new();
    let card = bench.carded();
    bench.ask("iauth_1", 600, "usd").unwrap();
    bench.host.signal("deleted", json!({})).unwrap();
    assert_eq!(bench.card(&card)["balance_cents"], 0, "what was approved stays set aside");
    // A part of it is paid, more than was asked, and something that was never asked.
    bench.paid("ipi_1", Some("iauth_1"), -200);
    bench.paid("ipi_2", Some("iauth_1"), -450);
    bench.paid("ipi_3", None, -35);
    assert_eq!(bench.card(&card)["balance_cents"], -85);
    let credit = || bench.host.posted_balance("", "credit") / (DOLLAR / 100);
    assert_eq!(credit(), 10_000 - 600);
    bench.paid("ipi_4", None, 60);
    assert_eq!((bench.card(&card)["balance_cents"].clone(), credit()), (json!(-25), 9_400));
    bench.paid("ipi_5", None, 100);
    assert_eq!((bench.card(&card)["balance_cents"].clone(), credit()), (json!(0), 9_475));
}

#[test]
fn the_issuer_cancels_the_cards_of_a_deleted_profile_and_its_money_waits_for_nobody() {
    let bench = Bench::new();
    let card = bench.carded();
    bench.issuer.status.set(503);
    assert!(bench.host.signal("deleted", json!({})).is_err(), "asked again later");
    assert_eq!(bench.card(&card)["balance_cents"], 0);
    bench.issuer.status.set(400);
    bench.host.signal("deleted", json!({})).unwrap();
    // Told of the end again, it asks an issuer no more that has said what it does.
    for _ in 0..2 {
        assert_eq!(bench.issuer.heard("/v1/issuing/cards/ic_1"), ["status=canceled"; 2]);
        bench.host.signal("deleted", json!({})).unwrap();
    }
    assert_eq!(bench.card(&card)["status"], "canceled");
    // A later refund is the organization's, although the issuer would not cancel the card.
    bench.paid("ipi_1", None, -300);
    bench.paid("ipi_2", None, 400);
    assert_eq!(bench.card(&card)["balance_cents"], 0);
}

#[test]
fn an_issuers_no_holds_before_its_question_is_through() {
    let bench = Bench::new();
    let card = bench.carded();
    bench.tell(
        "issuing_authorization.created",
        json!({ "id": "iauth_1", "approved": false, "status": "closed", "transactions": [] }),
    );
    assert!(bench.ask("iauth_1", 100, "usd").is_err());
    assert_eq!(bench.card(&card)["balance_cents"], 1_000);
}

#[test]
fn what_is_changed_while_a_card_is_made_stays() {
    let bench = Bench::new();
    bench.issuer.status.set(503);
    let made = bench.host.post("/cards", json!({ "network": "open_loop", "cap_cents": 100 }));
    let id = made.unwrap().body["card"]["id"].as_str().unwrap().to_owned();
    bench.host.patch(&format!("/cards/{id}"), json!({ "cap_cents": 10 })).unwrap();
    bench.issuer.status.set(200);
    bench.host.pass_seconds(120);
    bench.host.run_jobs().unwrap();
    assert_eq!(
        (&bench.card(&id)["status"], &bench.card(&id)["cap_cents"]),
        (&json!("active"), &json!(10))
    );
    bench.host.run_jobs().unwrap();
    assert!(bench.issuer.heard("/v1/issuing/cards/ic_1").last().unwrap().contains("amount%5D=10&"));
}

#[test]
fn however_often_a_card_changes_one_job_tells_its_issuer_the_last_word() {
    let bench = Bench::new();
    let card = bench.carded();
    bench.host.run_jobs().unwrap();
    let before = bench.issuer.heard("/v1/issuing/cards/ic_1").len();
    for cap_cents in [300, 200] {
        bench.host.patch(&format!("/cards/{card}"), json!({ "cap_cents": cap_cents })).unwrap();
    }
    bench.host.post(&format!("/cards/{card}/freeze"), json!({})).unwrap();
    assert_eq!(bench.host.run_jobs().unwrap(), 1);
    let told = bench.issuer.heard("/v1/issuing/cards/ic_1");
    assert_eq!(told.len(), before + 1);
    let last = told.last().unwrap();
    assert!(last.contains("status=inactive") && last.contains("amount%5D=200&"), "{told:?}");
    bench.host.patch(&format!("/cards/{card}"), json!({ "label": "paper" })).unwrap();
    assert_eq!(bench.host.run_jobs().unwrap(), 0, "a label is nothing to it");
    // It thaws while its issuer is told of a cap: the job that runs is not the last one.
    bench.host.patch(&format!("/cards/{card}"), json!({ "cap_cents": 100 })).unwrap();
    bench.host.meanwhile(move |host| {
        host.post(&format!("/cards/{card}/unfreeze"), json!({})).unwrap();
    });
    let _ = bench.host.run_jobs();
    bench.host.pass_seconds(3_600);
    bench.host.run_jobs().unwrap();
    let told = bench.issuer.heard("/v1/issuing/cards/ic_1");
    let last = told.last().unwrap();
    assert!(last.contains("status=active") && last.contains("amount%5D=100&"), "{told:?}");
}

#[test]
fn a_number_is_the_issuers_and_is_told_of() {
    let bench = Bench::new();
    let card = bench.carded();
    assert_eq!(
        bench.host.post(&format!("/cards/{card}/number"), json!({})).unwrap().body["number"],
        "4000"
    );
    assert!(bench.host.events().iter().any(|event| event.name == "cards.revealed"));
    let plain = bench.host.post("/cards", json!({})).unwrap().body["card"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    let refused =
        bench.host.post(&format!("/cards/{plain}/number"), json!({})).map(drop).unwrap_err();
    assert_eq!(refused.reason_text(), Some("closed_loop"));
    // Of a frozen card it is not told, and nobody hears that it was.
    bench.host.post(&format!("/cards/{card}/freeze"), json!({})).unwrap();
    let refused =
        bench.host.post(&format!("/cards/{card}/number"), json!({})).map(drop).unwrap_err();
    assert_eq!(refused.reason_text(), Some("card_frozen"));
    let events = bench.host.events();
    assert_eq!(events.iter().filter(|event| event.name == "cards.revealed").count(), 1);
}

#[test]
fn an_authorization_that_has_grown_by_a_hundred_requests_is_paid_and_ended() {
    let bench = Bench::new();
    let card = bench.carded();
    let grow = |authorization: &str| {
        for n in 0..100 {
            let told = bench.ask_as(&format!("{authorization}-{n}"), authorization, 5, "usd");
            assert!(told.is_ok(), "{n}: {told:?}");
        }
        let more = bench.ask_as("more", authorization, 5, "usd").unwrap_err();
        assert_eq!(more.reason_text(), Some("requests_exhausted"));
    };
    let end = |authorization: &str| {
        bench.tell(
            "issuing_authorization.updated",
            json!({ "id": authorization, "approved": true, "status": "closed", "transactions": [] }),
        );
    };
    grow("iauth_1");
    bench.paid("ipi_1", Some("iauth_1"), -401);
    assert_eq!(bench.card(&card)["balance_cents"], 500, "the rest stays set aside");
    end("iauth_1");
    assert_eq!(bench.card(&card)["balance_cents"], 599);
    grow("iauth_2");
    end("iauth_2");
    assert_eq!(bench.card(&card)["balance_cents"], 599, "all of it is given back");
    grow("iauth_3");
    bench.paid("ipi_3", Some("iauth_3"), -550);
    assert_eq!(bench.card(&card)["balance_cents"], 49, "more than was asked about");
    assert_eq!(bench.card(&card)["status"], "active");
}

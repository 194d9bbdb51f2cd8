//! The cards' rules against the double of the host.

use charter_double::Host;
use charter_sdk::jobs::Job;
use charter_sdk::serde_json::{self, Value, json};
use charter_sdk::{Failure, ledger};

use crate::authorizations::AUTHORIZATIONS;
use crate::cards::{CARDS, Card, RETURN, Status};
use crate::primitive;

mod issuer;

const DOLLAR: i64 = 1_000_000;

struct Bench {
    host: Host,
    card: String,
}

impl Bench {
    /// A card of an organization that has a hundred dollars of credit.
    fn new(card: Value) -> Self {
        let host = Host::new(primitive);
        host.fund(100 * DOLLAR);
        let card =
            host.post("/cards", card).unwrap().body["card"]["id"].as_str().unwrap().to_owned();
        Self { host, card }
    }
    fn card(&self) -> Value {
        self.host.get(&format!("/cards/{}", self.card)).unwrap().body["card"].clone()
    }
    fn post(&self, below: &str, body: Value) -> Result<Value, Failure> {
        self.host.post(&format!("/cards/{}{below}", self.card), body).map(|reply| reply.body)
    }
    fn top_up(&self, cents: u64) -> Result<Value, Failure> {
        self.post("/top-up", json!({ "amount_cents": cents }))
    }
    fn authorize(&self, cents: u64) -> Result<String, Failure> {
        let made =
            self.post("/authorizations", json!({ "amount_cents": cents, "merchant": "books" }))?;
        Ok(made["authorization"]["id"].as_str().unwrap().to_owned())
    }
    fn settle(&self, authorization: &str, how: &str, body: Value) -> Result<Value, Failure> {
        self.post(&format!("/authorizations/{authorization}/{how}"), body)
            .map(|told| told["authorization"].clone())
    }
    fn balance(&self) -> i64 {
        self.card()["balance_cents"].as_i64().unwrap()
    }
    /// The organization's credit, in micro-US-dollars.
    fn credit(&self) -> i64 {
        self.host.posted_balance("", ledger::CREDIT)
    }
}

#[test]
fn a_top_up_moves_credit_and_no_more_than_there_is() {
    let bench = Bench::new(json!({ "label": "travel" }));
    assert_eq!(bench.top_up(2_500).unwrap()["card"]["balance_cents"], 2_500);
    assert_eq!(bench.balance(), 2_500);
    assert!(bench.top_up(7_501).unwrap_err().is("insufficient_credits"));
    assert_eq!(bench.balance(), 2_500);
}

#[test]
fn an_authorization_sets_aside_and_a_capture_gives_the_rest_back() {
    let bench = Bench::new(json!({}));
    bench.top_up(1_000).unwrap();
    let authorization = bench.authorize(800).unwrap();
    assert_eq!(bench.balance(), 200);
    assert!(bench.authorize(201).unwrap_err().is("insufficient_credits"));
    let captured = bench.settle(&authorization, "capture", json!({ "amount_cents": 300 })).unwrap();
    assert_eq!(
        (captured["status"].as_str(), captured["captured_cents"].as_u64()),
        (Some("captured"), Some(300))
    );
    assert_eq!(bench.balance(), 700);
    let again = bench.settle(&authorization, "capture", json!({})).unwrap_err();
    assert_eq!(again.reason_text(), Some("authorization_settled"));
}

#[test]
fn a_reversal_gives_all_of_it_back() {
    let bench = Bench::new(json!({}));
    bench.top_up(1_000).unwrap();
    let authorization = bench.authorize(1_000).unwrap();
    assert_eq!(bench.settle(&authorization, "reverse", json!({})).unwrap()["status"], "reversed");
    assert_eq!(bench.balance(), 1_000);
    assert!(bench.settle(&authorization, "reverse", json!({})).unwrap_err().is("state_conflict"));
}

#[test]
fn a_capture_beyond_what_was_authorized_changes_nothing() {
    let bench = Bench::new(json!({}));
    bench.top_up(1_000).unwrap();
    let authorization = bench.authorize(600).unwrap();
    let over = bench.settle(&authorization, "capture", json!({ "amount_cents": 601 })).unwrap_err();
    assert!(over.is("state_conflict") && over.reason_text() == Some("over_held"), "{over:?}");
    assert_eq!(bench.balance(), 400, "set aside as before");
    bench.settle(&authorization, "capture", json!({})).unwrap();
}

#[test]
fn refunds_never_exceed_what_was_captured() {
    let bench = Bench::new(json!({}));
    bench.top_up(1_000).unwrap();
    let authorization = bench.authorize(900).unwrap();
    assert_eq!(
        bench.settle(&authorization, "refund", json!({})).unwrap_err().reason_text(),
        Some("nothing_to_refund")
    );
    bench.settle(&authorization, "capture", json!({})).unwrap();
    assert_eq!(
        bench.settle(&authorization, "refund", json!({ "amount_cents": 400 })).unwrap()["status"],
        "captured"
    );
    let more = bench.settle(&authorization, "refund", json!({ "amount_cents": 501 })).unwrap_err();
    assert_eq!((more.code(), more.param_text()), ("invalid_input", Some("amount_cents")));
    // No amount means the rest.
    assert_eq!(bench.settle(&authorization, "refund", json!({})).unwrap()["refunded_cents"], 900);
    assert_eq!(bench.balance(), 1_000);
    assert!(bench.settle(&authorization, "refund", json!({})).unwrap_err().is("state_conflict"));
}

#[test]
fn the_cards_own_cap_bounds_what_is_authorized_and_not_what_is_topped_up() {
    let bench = Bench::new(json!({ "cap_cents": 500, "period": "day" }));
    bench.top_up(2_000).unwrap();
    let first = bench.authorize(400).unwrap();
    assert!(bench.authorize(101).unwrap_err().is("budget_exceeded"));
    bench.settle(&first, "capture", json!({ "amount_cents": 100 })).unwrap();
    bench.authorize(400).unwrap();
    assert!(bench.authorize(1).unwrap_err().is("budget_exceeded"));
}

#[test]
fn a_cap_that_is_set_later_begins_with_what_the_card_has_spent_and_holds() {
    let bench = Bench::new(json!({}));
    bench.top_up(5_000).unwrap();
    let spent = bench.authorize(500).unwrap();
    bench.settle(&spent, "capture", json!({})).unwrap();
    let held = bench.authorize(300).unwrap();
    let set = |change: Value| bench.host.patch(&format!("/cards/{}", bench.card), change).unwrap();
    set(json!({ "cap_cents": 1_000, "period": "month" }));
    assert!(bench.authorize(201).unwrap_err().is("budget_exceeded"));
    bench.settle(&held, "capture", json!({})).unwrap();
    assert!(bench.authorize(201).unwrap_err().is("budget_exceeded"));
    for period in ["day", "month"] {
        set(json!({ "period": period }));
        assert!(bench.authorize(201).unwrap_err().is("budget_exceeded"), "{period}");
    }
    bench.authorize(200).unwrap();
}

#[test]
fn a_frozen_card_takes_nothing_new_and_still_settles() {
    let bench = Bench::new(json!({}));
    bench.top_up(1_000).unwrap();
    let authorization = bench.authorize(500).unwrap();
    bench.post("/freeze", json!({})).unwrap();
    assert_eq!(bench.card()["status"], "frozen");
    assert_eq!(bench.authorize(1).unwrap_err().reason_text(), Some("card_frozen"));
    assert_eq!(bench.top_up(1).unwrap_err().reason_text(), Some("card_frozen"));
    assert!(bench.post("/freeze", json!({})).unwrap_err().is("state_conflict"));
    bench.settle(&authorization, "capture", json!({})).unwrap();
    bench.post("/unfreeze", json!({})).unwrap();
    assert!(bench.post("/unfreeze", json!({})).unwrap_err().is("state_conflict"));
    bench.authorize(500).unwrap();
}

#[test]
fn a_canceled_card_returns_its_balance_and_stays_canceled() {
    let bench = Bench::new(json!({}));
    bench.top_up(1_000).unwrap();
    let authorization = bench.authorize(500).unwrap();
    assert_eq!(
        bench.post("/cancel", json!({})).unwrap_err().reason_text(),
        Some("authorization_open")
    );
    bench.settle(&authorization, "capture", json!({})).unwrap();
    let canceled = bench.post("/cancel", json!({})).unwrap();
    assert_eq!(
        (&canceled["card"]["status"], &canceled["card"]["balance_cents"]),
        (&json!("canceled"), &json!(0))
    );
    for below in ["/cancel", "/freeze", "/unfreeze"] {
        assert!(bench.post(below, json!({})).unwrap_err().is("state_conflict"), "{below}");
    }
    assert!(bench.top_up(1).unwrap_err().is("state_conflict"));
    // Money that came back to it would be nobody's.
    let refused = bench.settle(&authorization, "refund", json!({})).unwrap_err();
    assert_eq!((refused.code(), refused.reason_text()), ("state_conflict", Some("card_canceled")));
    // Five dollars were captured, the rest is the organization's again.
    assert!(bench.host.post("/cards", json!({})).is_ok());
}

#[test]
fn a_top_up_while_a_card_is_canceled_leaves_no_money_on_it() {
    let bench = Bench::new(json!({}));
    bench.top_up(1_000).unwrap();
    let top_up = format!("/cards/{}/top-up", bench.card);
    bench.host.meanwhile(move |host| {
        let refused = host.post(&top_up, json!({ "amount_cents": 500 })).unwrap_err();
        assert_eq!(refused.reason_text(), Some("card_canceled"));
    });
    bench.post("/cancel", json!({})).unwrap();
    assert_eq!((bench.balance(), bench.credit()), (0, 100 * DOLLAR));
    bench.host.pass_seconds(3_600);
    assert_eq!(bench.host.run_jobs().unwrap(), 0, "there is nothing left to return");
}

#[test]
fn money_on_a_card_that_is_canceled_already_returns() {
    let bench = Bench::new(json!({}));
    bench.top_up(1_000).unwrap();
    // The request that canceled it broke off before it has paid.
    let card = CARDS.get(&bench.card).unwrap().unwrap();
    CARDS.replace(card.at(), Card { status: Status::Canceled, ..card.body }).unwrap();
    let early = bench.post("/cancel", json!({})).unwrap_err();
    assert_eq!(early.reason_text(), Some("card_canceled"), "that one may be about to pay it");
    bench.host.pass_seconds(120);
    let canceled = bench.post("/cancel", json!({})).unwrap();
    assert_eq!(
        (&canceled["card"]["status"], &canceled["card"]["balance_cents"]),
        (&json!("canceled"), &json!(0))
    );
    assert_eq!((bench.balance(), bench.credit()), (0, 100 * DOLLAR));
    let again = bench.post("/cancel", json!({})).unwrap_err();
    assert_eq!(again.reason_text(), Some("card_canceled"));
}

#[test]
fn what_comes_free_on_a_canceled_card_returns_by_itself() {
    let bench = Bench::new(json!({}));
    bench.top_up(1_000).unwrap();
    let authorization = bench.authorize(600).unwrap();
    // It was asked for at the same moment, and its money set aside.
    let card = CARDS.get(&bench.card).unwrap().unwrap();
    CARDS.replace(card.at(), Card { status: Status::Canceled, ..card.body }).unwrap();
    let job = Job::new(RETURN, &json!({ "card": bench.card })).unwrap();
    job.attempts(9).enqueue().unwrap();
    assert!(bench.host.run_jobs().unwrap_err().is("state_conflict"));
    assert_eq!((bench.balance(), bench.credit()), (0, 94 * DOLLAR), "what is free returns at once");
    bench.settle(&authorization, "reverse", json!({})).unwrap();
    bench.host.pass_seconds(3_600);
    assert_eq!(bench.host.run_jobs().unwrap(), 1);
    assert_eq!((bench.balance(), bench.credit()), (0, 100 * DOLLAR));
}

#[test]
fn an_authorization_that_nobody_captures_expires() {
    let bench = Bench::new(json!({}));
    bench.top_up(1_000).unwrap();
    let authorization = bench.authorize(500).unwrap();
    bench.host.pass_seconds(7 * 86_400);
    let expired = bench.settle(&authorization, "capture", json!({})).unwrap_err();
    assert_eq!(expired.reason_text(), Some("authorization_expired"));
    let listed = bench.host.get(&format!("/cards/{}/authorizations", bench.card)).unwrap().body;
    assert_eq!(listed["authorizations"][0]["status"], "expired");
}

#[test]
fn a_deleted_profile_leaves_no_money_on_its_cards() {
    let bench = Bench::new(json!({}));
    bench.top_up(1_000).unwrap();
    bench.authorize(600).unwrap();
    // Its end may be told again.
    for _ in 0..2 {
        bench.host.signal("deleted", json!({})).unwrap();
        assert_eq!(bench.balance(), 0);
    }
    // All of the hundred dollars are the organization's again: another card can have them.
    let other = bench.host.post("/cards", json!({})).unwrap().body["card"]["id"]
        .as_str()
        .unwrap()
        .to_owned();
    bench.host.post(&format!("/cards/{other}/top-up"), json!({ "amount_cents": 10_000 })).unwrap();
}

#[test]
fn a_deleted_profile_with_hundreds_of_cards_leaves_no_money_on_them() {
    let bench = Bench::new(json!({}));
    for _ in 0..260 {
        let made = bench.host.post("/cards", json!({})).unwrap().body;
        let id = made["card"]["id"].as_str().unwrap();
        bench.host.post(&format!("/cards/{id}/top-up"), json!({ "amount_cents": 10 })).unwrap();
    }
    assert_eq!(bench.credit(), 74 * DOLLAR);
    bench.host.signal("deleted", json!({})).unwrap();
    assert_eq!(bench.credit(), 100 * DOLLAR);
}

#[test]
fn a_deleted_profile_with_hundreds_of_authorizations_leaves_no_money_on_its_cards() {
    let bench = Bench::new(json!({}));
    bench.top_up(1_000).unwrap();
    for _ in 0..205 {
        bench.authorize(1).unwrap();
    }
    bench.host.signal("deleted", json!({})).unwrap();
    assert_eq!((bench.balance(), bench.credit()), (0, 100 * DOLLAR));
}

#[test]
fn a_run_that_breaks_off_keeps_what_it_has_paid_and_the_next_pays_the_rest_once() {
    let bench = Bench::new(json!({}));
    bench.top_up(1_000).unwrap();
    let stuck = bench.authorize(600).unwrap();
    // Its hold is none that could be given back.
    let kept = AUTHORIZATIONS.get(&stuck).unwrap().unwrap();
    let mut broken = serde_json::to_value(&kept.body).unwrap();
    broken["permit"] = json!("nobodys");
    let broken = AUTHORIZATIONS.replace(kept.at(), serde_json::from_value(broken).unwrap());
    assert!(bench.host.signal("deleted", json!({})).unwrap_err().is("not_found"));
    assert_eq!((bench.balance(), bench.credit()), (0, 94 * DOLLAR), "the free money has returned");
    AUTHORIZATIONS.replace(broken.unwrap().at(), kept.body).unwrap();
    bench.host.signal("deleted", json!({})).unwrap();
    assert_eq!((bench.balance(), bench.credit()), (0, 100 * DOLLAR));
}

#[test]
fn leave_that_is_not_given_moves_nothing() {
    let bench = Bench::new(json!({}));
    bench.host.deny("cards.top_up", Failure::forbidden("the policy says no"));
    assert!(bench.top_up(100).unwrap_err().is("forbidden"));
    assert_eq!(bench.balance(), 0);
}

#[test]
fn transactions_tell_what_moved() {
    let bench = Bench::new(json!({}));
    bench.top_up(1_000).unwrap();
    let authorization = bench.authorize(600).unwrap();
    bench.settle(&authorization, "capture", json!({ "amount_cents": 600 })).unwrap();
    bench.settle(&authorization, "refund", json!({ "amount_cents": 200 })).unwrap();
    let told = bench.host.get(&format!("/cards/{}/transactions?limit=2", bench.card)).unwrap().body;
    let amounts = |told: &Value| -> Vec<i64> {
        told["transactions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["amount_cents"].as_i64().unwrap())
            .collect()
    };
    assert_eq!(amounts(&told), [1_000, -600]);
    assert_eq!(told["has_more"], true);
    let cursor = told["next_cursor"].as_str().unwrap();
    let rest = bench
        .host
        .get(&format!("/cards/{}/transactions?cursor={cursor}", bench.card))
        .unwrap()
        .body;
    assert_eq!((amounts(&rest), &rest["has_more"]), (vec![200], &json!(false)));
}

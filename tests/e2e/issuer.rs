//! Cards of a card network: the issuer asks before each payment, hears yes only where everything
//! admits it, and is believed once about what it has paid. Against a double of the issuer, which
//! signs as the real one does.

use charter_tests::patience::until;
use charter_tests::stripe::{self, Stripe};
use charter_tests::tenant::id;
use charter_tests::world::Builder;
use charter_tests::{Answer, Client, Database, Tenant, World, on_both};
use serde_json::{Value, json};

/// The secret that the issuer signs with.
const SECRET: &str = "whsec_of_the_issuer";
const HOOK: &str = "/v1/hooks/providers/cards.issuer";

fn world() -> Builder {
    Builder::new().environment("CHARTER_EGRESS_ALLOW", "127.0.0.0/8")
}

/// An issuer that is bound, with a cardholder of the operator's.
fn issuer(world: &World) -> Stripe {
    let double = Stripe::start();
    let body = json!({
        "kind": "stripe", "url": format!("http://{}", double.address), "credential": stripe::KEY, "webhook_secret": SECRET,
        "options": { "cardholder": "ich_of_the_operator" },
    });
    world.operator().put("/v1/operator/providers/cards.issuer", &body).expect(200);
    double
}

/// A card with its tenant.
struct Carded {
    tenant: Tenant,
    user: String,
    card: String,
    /// The issuer's id of it.
    reference: String,
    /// The hook that the issuer's object names.
    hook: String,
}

impl Carded {
    /// A card of a network with so much on it.
    fn new(world: &World, double: &Stripe, wishes: &Value, cents: u64) -> Self {
        let tenant = world.register();
        world.fund(&tenant, 10_000);
        let user = tenant.user("agent");
        let client = tenant.client.with("X-Service-User-Id", &user);
        let mut body = json!({ "network": "open_loop" });
        body.as_object_mut().unwrap().extend(wishes.as_object().unwrap().clone());
        let made = client.post("/v1/cards", &body).expect(201)["card"].clone();
        assert_eq!(
            (&made["status"], &made["network"], &made["last4"]),
            (&json!("active"), &json!("open_loop"), &json!("0018"))
        );
        let card = made["id"].as_str().unwrap().to_owned();
        let asked = double.requests("/v1/issuing/cards");
        let asked =
            asked.iter().rev().find(|asked| asked.form["metadata[charter_card]"] == card).unwrap();
        let hook = asked.form["metadata[charter_hook]"].clone();
        if cents > 0 {
            client
                .post(&format!("/v1/cards/{card}/top-up"), &json!({ "amount_cents": cents }))
                .expect(200);
        }
        // The double numbers what it makes: the newest card is this one.
        let reference = (1..100)
            .rev()
            .map(|number| format!("ic_double_{number}"))
            .find(|id| double.card(id).is_some())
            .unwrap();
        Self { tenant, user, card, reference, hook }
    }

    fn client(&self) -> Client {
        self.tenant.client.with("X-Service-User-Id", &self.user)
    }

    fn read(&self) -> Value {
        self.client().get(&format!("/v1/cards/{}", self.card)).expect(200)["card"].clone()
    }

    fn balance(&self) -> i64 {
        self.read()["balance_cents"].as_i64().unwrap()
    }

    fn authorizations(&self) -> Vec<(String, String)> {
        let listed = self
            .client()
            .get(&format!("/v1/cards/{}/authorizations?limit=100", self.card))
            .expect(200);
        let of = |one: &Value, member: &str| one[member].as_str().unwrap_or_default().to_owned();
        listed["authorizations"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| (of(one, "reference"), of(one, "status")))
            .collect()
    }

    /// Sends an event as the issuer does.
    fn send(&self, client: &Client, event: &Value) -> Answer {
        let body = event.to_string();
        let signature = stripe::signature(SECRET, self.tenant.seconds(), &body);
        client
            .call("POST", HOOK)
            .header("stripe-signature", &signature)
            .bytes(body.into_bytes())
            .send()
    }

    /// A payment that waits for a yes.
    fn question(&self, authorization: &str, cents: u64) -> Value {
        json!({
            "id": format!("evt_ask_{authorization}"), "type": "issuing_authorization.request", "api_version": "2024-06-20",
            "data": { "object": {
                "id": authorization, "object": "issuing.authorization", "approved": false, "amount": 0, "currency": "usd", "status": "pending",
                "card": { "id": self.reference, "metadata": { "charter_hook": self.hook, "charter_card": self.card } },
                "merchant_data": { "name": "books", "category": "book_stores" },
                "pending_request": { "amount": cents, "currency": "usd", "merchant_amount": cents, "merchant_currency": "usd" },
            } },
        })
    }

    /// Whether the issuer is told yes.
    #[track_caller]
    fn ask(&self, world: &World, authorization: &str, cents: u64) -> bool {
        let answer = self.send(&world.anonymous(), &self.question(authorization, cents));
        assert_eq!(answer.header("stripe-version"), Some("2024-06-20"));
        answer.expect(200)["approved"].as_bool().unwrap()
    }

    /// Tells what became of an authorization.
    #[track_caller]
    fn tell_authorization(
        &self,
        world: &World,
        kind: &str,
        authorization: &str,
        approved: bool,
        status: &str,
    ) {
        self.tell_end(world, (kind, authorization), (approved, status), &[]);
    }

    /// The same, with the payments that it names.
    #[track_caller]
    fn tell_end(
        &self,
        world: &World,
        (kind, authorization): (&str, &str),
        (approved, status): (bool, &str),
        paid: &[&str],
    ) {
        let paid: Vec<_> = paid.iter().map(|id| json!({ "id": id })).collect();
        let event = json!({
            "id": format!("evt_{kind}_{authorization}"), "type": format!("issuing_authorization.{kind}"),
            "data": { "object": {
                "id": authorization, "approved": approved, "status": status, "transactions": paid,
                "card": { "id": self.reference, "metadata": { "charter_hook": self.hook } },
            } },
        });
        self.send(&world.anonymous(), &event).expect(200);
    }

    /// Tells of money that has moved: negative where a merchant was paid. It names the card by the
    /// issuer's id alone.
    #[track_caller]
    fn tell_move(&self, world: &World, transaction: &str, authorization: Option<&str>, cents: i64) {
        let event = json!({
            "id": format!("evt_{transaction}"), "type": "issuing_transaction.created",
            "data": { "object": {
                "id": transaction, "object": "issuing.transaction", "amount": cents, "currency": "usd", "authorization": authorization,
                "type": if cents < 0 { "capture" } else { "refund" }, "card": self.reference, "metadata": {},
                "merchant_data": { "name": "books" },
            } },
        });
        self.send(&world.anonymous(), &event).expect(200);
    }
}

on_both! {
    fn a_card_of_a_network_pays_what_cap_and_balance_admit(world: world()) {
        let double = issuer(world);
        let card = Carded::new(world, &double, &json!({ "label": "travel", "cap_cents": 3_000, "period": "week" }), 4_000);
        assert_eq!(double.requests("/v1/issuing/cards")[0].form["cardholder"], "ich_of_the_operator");
        assert_eq!(double.card(&card.reference), Some(("active".into(), Some("3000".into()))));
        assert!(card.ask(world, "iauth_1", 2_500));
        assert_eq!(card.balance(), 1_500);
        assert!(!card.ask(world, "iauth_2", 501), "the cap has 500 left");
        assert!(card.ask(world, "iauth_1", 2_500), "the same event has the same answer");
        assert!(!card.ask(world, "iauth_2", 501), "and so has a refusal");
        assert_eq!(card.balance(), 1_500);
        assert_eq!(card.authorizations(), [("iauth_1".to_owned(), "authorized".to_owned())]);
        assert!(card.ask(world, "iauth_3", 0), "a merchant that only looks whether there is such a card");
        // Only the issuer settles what it has authorized.
        let path = format!("/v1/cards/{}/authorizations", card.card);
        card.client().post(&path, &json!({ "amount_cents": 1, "merchant": "books" })).expect_error(409, "state_conflict");
        // It was paid less, and the rest returns once nothing more of it will be; some comes back;
        // each told twice.
        for _ in 0..2 {
            card.tell_move(world, "ipi_1", Some("iauth_1"), -2_000);
        }
        let captured = || {
            let listed = card.client().get(&path).expect(200)["authorizations"].clone();
            (listed.as_array().unwrap().len(), listed[0]["captured_cents"].as_u64().unwrap())
        };
        until("it is captured", || captured() == (1, 2_000));
        assert_eq!(card.balance(), 1_500);
        card.tell_authorization(world, "updated", "iauth_1", true, "closed");
        until("the rest is given back", || card.balance() == 2_000);
        assert_eq!(card.authorizations(), [("iauth_1".to_owned(), "captured".to_owned())]);
        for _ in 0..2 {
            card.tell_move(world, "ipi_2", Some("iauth_1"), 500);
        }
        until("it is refunded", || card.balance() == 2_500);
        let number = card.client().post(&format!("/v1/cards/{}/number", card.card), &json!({})).expect(200);
        assert_eq!(number, json!({ "number": "4000009990000018", "cvc": "123", "exp_month": 9, "exp_year": 2031 }));
        let shown = |decision: &str| {
            let page = card.tenant.client.get(&format!("/v1/logs?action=cards.number&decision={decision}")).expect(200);
            page["logs"].as_array().unwrap().clone()
        };
        until("that it was shown is a row", || shown("allowed").len() == 1);
        let row = shown("allowed").remove(0);
        assert_eq!((&row["entity_id"], &row["on_behalf_of"]), (&json!(card.card), &json!(card.user)), "{row}");
        assert!(!row.to_string().contains("4000009990000018"), "{row}");
        // The issuer follows.
        card.client().post(&format!("/v1/cards/{}/freeze", card.card), &json!({})).expect(200);
        let refused = card.client().post(&format!("/v1/cards/{}/number", card.card), &json!({}));
        assert_eq!(refused.expect_error(409, "state_conflict")["reason"], "card_frozen");
        assert!(!refused.text().contains("4000009990000018"), "{refused}");
        until("that it was asked for is one, too", || shown("refused").len() == 1);
        assert_eq!(shown("allowed").len(), 1);
        assert!(!card.ask(world, "iauth_4", 1));
        until("the issuer knows", || double.card(&card.reference).is_some_and(|(status, _)| status == "inactive"));
        card.client().post(&format!("/v1/cards/{}/cancel", card.card), &json!({})).expect(200);
        until("the issuer knows", || double.card(&card.reference).is_some_and(|(status, _)| status == "canceled"));
        // A refund to a card that is no more is the organization's.
        card.tell_move(world, "ipi_3", Some("iauth_1"), 300);
        let credit = || {
            let listed = card.tenant.client.get("/v1/ledger/accounts?limit=100").expect(200);
            let found = listed["accounts"].as_array().unwrap().iter().find(|account| account["name"] == "credit").cloned();
            found.unwrap()["posted_micro_usd"].as_i64().unwrap() / 10_000
        };
        until("it is credit", || credit() == 10_000 - 2_000 + 500 + 300);
        world.books_agree();
    }

    fn what_ends_unpaid_is_given_back_and_what_was_never_asked_is_posted_as_it_is(world: world()) {
        let double = issuer(world);
        let card = Carded::new(world, &double, &json!({}), 1_000);
        for (authorization, kind, approved, status) in
            [("iauth_1", "updated", true, "reversed"), ("iauth_2", "created", false, "closed"), ("iauth_3", "updated", true, "expired")]
        {
            assert!(card.ask(world, authorization, 700));
            assert_eq!(card.balance(), 300);
            card.tell_authorization(world, kind, authorization, approved, status);
            until("it is given back", || card.balance() == 1_000);
        }
        // An authorization that has grown is one to the issuer.
        assert!(card.ask(world, "iauth_4", 300));
        let grown = json!({ "id": "evt_more", "type": "issuing_authorization.request", "data": card.question("iauth_4", 200)["data"] });
        assert_eq!(card.send(&world.anonymous(), &grown).expect(200)["approved"], true);
        assert_eq!(card.balance(), 500);
        card.tell_move(world, "ipi_4", Some("iauth_4"), -450);
        until("the first of both is captured", || card.authorizations().iter().any(|(_, status)| status == "captured"));
        card.tell_authorization(world, "updated", "iauth_4", true, "closed");
        until("the rest is given back", || card.balance() == 550);
        // An end that names payments which are not told yet gives nothing back before the last of them.
        assert!(card.ask(world, "iauth_5", 500));
        card.tell_end(world, ("updated", "iauth_5"), (true, "closed"), &["ipi_5a", "ipi_5b", "ipi_5c"]);
        for (transaction, part, captured) in [("ipi_5b", -100, 100), ("ipi_5a", -350, 450)] {
            card.tell_move(world, transaction, Some("iauth_5"), part);
            let own = || {
                let listed = card.client().get(&format!("/v1/cards/{}/authorizations?limit=100", card.card)).expect(200);
                let all = listed["authorizations"].as_array().unwrap();
                let own = all.iter().find(|one| one["reference"] == "iauth_5").unwrap();
                (own["captured_cents"].as_i64().unwrap(), own["status"].as_str().unwrap().to_owned())
            };
            until("it is posted", || own().0 == captured);
            assert_eq!((own().1.as_str(), card.balance()), ("authorized", 50), "the rest stays set aside after {transaction}");
        }
        card.tell_move(world, "ipi_5c", Some("iauth_5"), 10);
        until("the rest is given back", || card.balance() == 550 - 450 + 10);
        card.tell_move(world, "ipi_back", None, 440);
        until("it is posted", || card.balance() == 550);
        // An authorization that has grown by more requests than one commit settles.
        for n in 0..70 {
            let grown = json!({ "id": format!("evt_grown_{n}"), "type": "issuing_authorization.request", "data": card.question("iauth_6", 5)["data"] });
            assert_eq!(card.send(&world.anonymous(), &grown).expect(200)["approved"], true, "{n}");
        }
        assert_eq!(card.balance(), 200);
        card.tell_move(world, "ipi_6a", Some("iauth_6"), -301);
        // It ends amid the portions of its payment.
        card.tell_authorization(world, "updated", "iauth_6", true, "closed");
        until("the rest is given back", || card.balance() == 200 + 49);
        card.tell_move(world, "ipi_6b", None, 301);
        until("it is posted", || card.balance() == 550);
        // Paid without asking, while there is enough; and then more than there is.
        card.tell_move(world, "ipi_5", None, -150);
        until("it is posted", || card.balance() == 400);
        card.tell_move(world, "ipi_6", None, -700);
        until("it is frozen", || card.read()["status"] == "frozen");
        assert_eq!(card.balance(), -300);
        until("the issuer knows", || double.card(&card.reference).is_some_and(|(status, _)| status == "inactive"));
        world.books_agree();
    }

    fn what_is_given_back_before_it_is_paid_comes_to_the_card_once(world: world()) {
        let double = issuer(world);
        let card = Carded::new(world, &double, &json!({}), 5_000);
        for n in 0..4 {
            card.tell_move(world, &format!("ipi_back_{n}"), None, 100);
        }
        until("somebody is to look", || card.read()["status"] == "frozen");
        let (world, card) = (&*world, &card);
        std::thread::scope(|scope| {
            for n in 0..10 {
                scope.spawn(move || card.tell_move(world, &format!("ipi_paid_{n}"), None, -60));
            }
        });
        until("all of it is posted", || card.balance() == 5_000 - 600 + 400);
        card.tell_move(world, "ipi_last", None, -1);
        until("nothing comes a second time", || card.balance() == 5_000 - 601 + 400);
        world.books_agree();
    }

    fn a_cap_that_is_lowered_amid_the_portions_of_a_payment_stays_lowered(world: world()) {
        let double = issuer(world);
        let card = Carded::new(world, &double, &json!({ "cap_cents": 1_000, "period": "total" }), 500);
        for n in 0..30 {
            let grown = json!({ "id": format!("evt_grown_{n}"), "type": "issuing_authorization.request", "data": card.question("iauth_1", 5)["data"] });
            assert_eq!(card.send(&world.anonymous(), &grown).expect(200)["approved"], true, "{n}");
        }
        card.tell_move(world, "ipi_1", Some("iauth_1"), -700);
        let mut cap = 1_000;
        until("more was paid than the card has", || {
            cap -= 1;
            let path = format!("/v1/cards/{}", card.card);
            let lowered = card.client().patch(&path, &json!({ "cap_cents": cap })).expect(200);
            lowered["card"]["status"] == "frozen"
        });
        let kept = card.read();
        assert_eq!((&kept["cap_cents"], &kept["balance_cents"]), (&json!(cap), &json!(-200)));
        world.books_agree();
    }

    fn what_was_never_asked_counts_in_full_budgets_and_stops_its_user(world: world()) {
        let double = issuer(world);
        let card = Carded::new(world, &double, &json!({}), 1_000);
        let spent = || {
            let asked = json!({ "action": "cards.authorize", "amount_micro_usd": 1, "user_id": card.user });
            let caps = card.tenant.client.post("/v1/governance/simulate", &asked).expect(200)["caps"].clone();
            let own = caps.as_array().unwrap().iter().find(|cap| cap["scope"] == "user").unwrap();
            own["spent_micro_usd"].as_i64().unwrap() / 10_000
        };
        let budget = json!({ "budget": { "cap_cents": 1_100, "period": "total" } });
        card.tenant.client.patch(&format!("/v1/users/{}", card.user), &budget).expect(200);
        let before = spent();
        assert!(!card.ask(world, "iauth_1", 200), "the budget is full");
        for (transaction, balance) in [("ipi_1", 800), ("ipi_2", 600)] {
            card.tell_move(world, transaction, None, -200);
            until("it is posted", || card.balance() == balance);
            assert_eq!(spent() - before, 1_000 - balance, "and counted");
        }
        let stopped = || card.client().post("/v1/cards", &json!({})).expect(201)["card"]["id"].as_str().unwrap().to_owned();
        let top_up = |card_id: &str| card.client().post(&format!("/v1/cards/{card_id}/top-up"), &json!({ "amount_cents": 1 }));
        assert_eq!(top_up(&stopped()).expect_error(403, "forbidden")["reason"], "scope_frozen");
        world.books_agree();
    }

    fn what_is_paid_by_a_card_that_the_kit_has_switched_off_is_only_told_and_stops_its_user(world: world()) {
        let double = issuer(world);
        let card = Carded::new(world, &double, &json!({}), 1_000);
        let kit = card.tenant.kit("narrow", json!({ "cards": { "enabled": false } }));
        card.tenant.client.patch(&format!("/v1/users/{}", card.user), &json!({ "kit_id": kit })).expect(200);
        card.client().get(&format!("/v1/cards/{}", card.card)).expect_error(403, "forbidden");
        card.tell_move(world, "ipi_1", None, -200);
        until("it is told", || {
            let rows = card.tenant.client.get("/v1/logs?action=cards.authorize&limit=100").expect(200)["logs"].clone();
            rows.as_array().unwrap().iter().any(|row| row["reason"] == "provider_reported")
        });
        card.tenant.client.patch(&format!("/v1/kits/{kit}"), &json!({ "primitives": { "cards": { "enabled": true } } })).expect(200);
        until("it is posted", || card.balance() == 800);
        let made = card.client().post("/v1/cards", &json!({})).expect(201)["card"]["id"].clone();
        let top_up = card.client().post(&format!("/v1/cards/{}/top-up", made.as_str().unwrap()), &json!({ "amount_cents": 1 }));
        assert_eq!(top_up.expect_error(403, "forbidden")["reason"], "scope_frozen");
        world.books_agree();
    }

    fn of_payments_at_once_the_issuer_hears_yes_as_often_as_the_cap_admits(world: world()) {
        let double = issuer(world);
        let card = Carded::new(world, &double, &json!({ "cap_cents": 799, "period": "month" }), 5_000);
        let ask = |number: usize| card.ask(world, &format!("iauth_{number}"), 100);
        let yes = std::thread::scope(|scope| {
            let running: Vec<_> = (0..15).map(|number| scope.spawn(move || ask(number))).collect();
            running.into_iter().map(|one| one.join().unwrap()).filter(|yes| *yes).count()
        });
        // On a busy machine some have heard no for want of time.
        let more = (15..).map(ask).take_while(|yes| *yes).count();
        assert_eq!((yes + more, card.balance()), (7, 4_300));
        world.books_agree();
    }

    fn a_yes_survives_a_crash_and_stays_one(world: world()) {
        let double = issuer(world);
        let mut card = Carded::new(world, &double, &json!({}), 1_000);
        assert!(card.ask(world, "iauth_1", 700));
        world.kill();
        world.start();
        card.tenant = card.tenant.at(world.server().address());
        assert!(card.ask(world, "iauth_1", 700));
        assert_eq!(card.balance(), 300);
        world.books_agree();
    }

    fn whatever_is_wrong_is_a_no(world: world()) {
        let double = issuer(world);
        let card = Carded::new(world, &double, &json!({}), 1_000);
        let anonymous = world.anonymous();
        let unsigned = anonymous.call("POST", HOOK).header("stripe-signature", "t=1,v1=00").json(&card.question("iauth_0", 1)).send();
        unsigned.expect_error(401, "unauthorized");
        let mut unknown = card.question("iauth_1", 100);
        unknown["data"]["object"]["card"] = json!({ "id": "ic_unknown", "metadata": { "charter_hook": "0".repeat(32) } });
        let mut foreign = card.question("iauth_2", 100);
        foreign["data"]["object"]["pending_request"]["currency"] = json!("eur");
        let mut shapeless = card.question("iauth_3", 100);
        shapeless["data"]["object"]["pending_request"] = Value::Null;
        for question in [unknown, foreign, shapeless, card.question("iauth_4", 1_001)] {
            assert_eq!(card.send(&anonymous, &question).expect(200), json!({ "approved": false }), "{question}");
        }
        let counts = world.operator().get("/metrics").text();
        for line in ["charter_hook_questions_declined 3.0", "charter_hook_questions_unanswered 1.0"] {
            assert!(counts.lines().any(|told| told == line), "{line}: {counts}");
        }
        // Nobody can be asked while a merchant waits: what needs approval is refused, and nobody is
        // asked.
        let asks = json!({ "rules": [{ "id": "ask", "effect": "require_approval", "actions": ["cards.authorize"] }] });
        card.client().put("/v1/governance/policy", &asks).expect(200);
        assert!(!card.ask(world, "iauth_5", 100));
        assert_eq!(card.client().get("/v1/approvals").expect(200)["approvals"], json!([]));
        card.client().put("/v1/governance/policy", &json!({ "rules": [] })).expect(200);
        assert!(card.ask(world, "iauth_6", 100));
        // Revoked: no more is paid, and what was paid before is posted.
        card.tenant.client.post(&format!("/v1/users/{}/revoke", card.user), &json!({})).expect(200);
        assert!(!card.ask(world, "iauth_7", 100));
        card.tell_move(world, "ipi_1", Some("iauth_6"), -80);
        let path = format!("/v1/cards/{}/authorizations?limit=1", card.card);
        until("it is captured", || card.client().get(&path).expect(200)["authorizations"][0]["captured_cents"] == 80);
        card.tell_authorization(world, "updated", "iauth_6", true, "closed");
        until("the rest is given back", || card.balance() == 920);
        // And so is what was paid without asking.
        card.tell_move(world, "ipi_2", None, -20);
        until("it is posted", || card.balance() == 900);
        world.books_agree();
    }

    fn what_comes_back_while_the_issuer_cancels_a_card_of_a_deleted_profile_is_credit(world: world()) {
        let double = issuer(world);
        let card = Carded::new(world, &double, &json!({}), 1_000);
        assert!(card.ask(world, "iauth_1", 400));
        card.tell_move(world, "ipi_1", Some("iauth_1"), -400);
        until("it is paid", || card.balance() == 600 && card.authorizations().iter().all(|(_, status)| status == "captured"));
        let posted = |name: &str| {
            let listed = card.tenant.client.get("/v1/ledger/accounts?limit=100").expect(200);
            let named = listed["accounts"].as_array().unwrap().iter().find(|account| account["name"] == name).cloned();
            named.unwrap_or_else(|| panic!("{listed}"))["posted_micro_usd"].as_i64().unwrap() / 10_000
        };
        let path = format!("/v1/issuing/cards/{}", card.reference);
        double.keeps_back(&path);
        let before = double.requests(&path).len();
        card.tenant.client.delete(&format!("/v1/users/{}", card.user)).expect(200);
        until("the issuer is asked", || double.requests(&path).len() > before);
        assert_eq!(posted("credit"), 10_000 - 400, "the rest has returned");
        // It is heard while the issuer cancels the card, and comes to the card, or behind that.
        card.tell_move(world, "ipi_2", None, 150);
        assert!(!card.ask(world, "iauth_2", 1), "nothing new is admitted");
        double.releases();
        until("it is credit", || posted("credit") == 10_000 - 400 + 150);
        world.books_agree();
    }

    fn what_an_issuer_has_said_yes_to_outlives_the_profile_and_more_than_that_freezes(world: world()) {
        let double = issuer(world);
        let card = Carded::new(world, &double, &json!({}), 1_000);
        assert!(card.ask(world, "iauth_1", 100));
        card.tell_move(world, "ipi_1", Some("iauth_1"), -1_150);
        until("it is frozen", || card.read()["status"] == "frozen");
        assert_eq!(card.balance(), -150, "posted as it is");
        // It stops the card's own user until a person has looked, and nobody else of the organization.
        let second = card.client().post("/v1/cards", &json!({})).expect(201)["card"]["id"].as_str().unwrap().to_owned();
        let top_up = || card.client().post(&format!("/v1/cards/{second}/top-up"), &json!({ "amount_cents": 100 }));
        assert_eq!(top_up().expect_error(403, "forbidden")["reason"], "scope_frozen");
        let question = json!({ "action": "cards.top_up", "amount_micro_usd": 1, "user_id": card.user });
        let foreseen = card.tenant.client.post("/v1/governance/simulate", &question).expect(200);
        assert_eq!((&foreseen["verdict"], &foreseen["reason"]), (&json!("deny"), &json!("scope_frozen")));
        card.tenant.client.post(&format!("/v1/users/{}/restore", card.user), &json!({})).expect(200);
        top_up().expect(200);
        let other = card.tenant.client.with("X-Service-User-Id", &card.tenant.user("other"));
        let spare = other.post("/v1/cards", &json!({})).expect(201)["card"]["id"].as_str().unwrap().to_owned();
        other.post(&format!("/v1/cards/{spare}/top-up"), &json!({ "amount_cents": 100 })).expect(200);
        // Deleted while a payment is under way: it stays set aside, the rest is the organization's,
        // the issuer cancels the card, and is heard still.
        let card = Carded::new(world, &double, &json!({}), 1_000);
        assert!(card.ask(world, "iauth_2", 600));
        card.tenant.client.delete(&format!("/v1/users/{}", card.user)).expect(200);
        until("the issuer knows", || double.card(&card.reference).is_some_and(|(status, _)| status == "canceled"));
        let credit = || {
            let listed = card.tenant.client.get("/v1/ledger/accounts?limit=100").expect(200);
            let found = listed["accounts"].as_array().unwrap().iter().find(|account| account["name"] == "credit").cloned();
            found.unwrap()["posted_micro_usd"].as_i64().unwrap() / 10_000
        };
        until("the rest is credit", || credit() == 10_000 - 600);
        let spent = || {
            let report = card.tenant.client.get("/v1/governance/spend?by=action").expect(200);
            let groups = report["spend"].as_array().unwrap().clone();
            groups.iter().find(|group| group["key"] == "cards.authorize").map_or(0, |group| group["spent_micro_usd"].as_i64().unwrap() / 10_000)
        };
        assert!(!card.ask(world, "iauth_3", 1), "nothing new is admitted");
        card.tell_move(world, "ipi_2", Some("iauth_2"), -400);
        until("it is counted", || spent() == 400);
        card.tell_authorization(world, "updated", "iauth_2", true, "closed");
        until("the rest is credit", || credit() == 10_000 - 400);
        card.tell_move(world, "ipi_3", None, 150);
        until("what comes back is credit", || credit() == 10_000 - 400 + 150);
        // More than was asked about is counted and posted as it is: the card owes it.
        let cap = json!({ "budget": { "cap_cents": 100_000, "period": "month" } });
        card.tenant.client.patch(&format!("/v1/projects/{}", card.tenant.project), &cap).expect(200);
        card.tell_move(world, "ipi_4", None, -35);
        until("it is counted", || spent() == 435);
        // It stops nobody: whom it was for is gone, and the project's others are not that.
        let other = card.tenant.client.with("X-Service-User-Id", &card.tenant.user("other"));
        let spare = other.post("/v1/cards", &json!({})).expect(201)["card"]["id"].as_str().unwrap().to_owned();
        other.post(&format!("/v1/cards/{spare}/top-up"), &json!({ "amount_cents": 1 })).expect(200);
        other.post(&format!("/v1/cards/{spare}/cancel"), &json!({})).expect(200);
        card.tell_move(world, "ipi_5", None, 60);
        until("what is beyond that is credit", || credit() == 10_000 - 435 + 150 + 60);
        world.books_agree();
    }

    fn a_card_is_issued_once_whatever_gets_lost(world: world()) {
        let double = issuer(world);
        let tenant = world.register();
        let holder = json!({
            "name": "Agents Inc", "kind": "company",
            "billing": { "line1": "1 Main St", "city": "Springfield", "state": "IL", "postal_code": "62701", "country": "US" },
        });
        let body = json!({ "network": "open_loop", "cardholder": holder });
        double.loses(2);
        // The answer got lost: nobody knows, and it is asked again with the same keys, later.
        let unsure = || tenant.client.post("/v1/cards", &body).expect(201)["card"].clone();
        let waiting = unsure();
        assert_eq!((&waiting["status"], &waiting["last4"]), (&json!("pending"), &Value::Null));
        let pending = id(&waiting);
        tenant.client.post(&format!("/v1/cards/{pending}/cancel"), &json!({})).expect_error(409, "state_conflict");
        assert_eq!(unsure()["status"], "pending");
        let made = tenant.client.post("/v1/cards", &body).expect(201);
        assert_eq!(made["card"]["status"], "active");
        let asked = double.requests("/v1/issuing/cardholders");
        assert_eq!((asked[0].form["name"].as_str(), asked[0].form["billing[address][country]"].as_str()), ("Agents Inc", "US"));
        let wrong = json!({ "cardholder": holder });
        assert_eq!(tenant.client.post("/v1/cards", &wrong).expect_error(400, "invalid_input")["param"], "cardholder");
    }
}

#[test]
fn two_replicas_that_are_asked_the_same_hold_it_once() {
    let world = world().start(Database::Postgresql);
    let (second, _folder) = world.replica();
    let double = issuer(&world);
    let card = Carded::new(&world, &double, &json!({}), 1_000);
    let clients = [world.anonymous(), world.anonymous().at(second.address())];
    until("the second knows the issuer", || clients[1].post(HOOK, &json!({})).status == 401);
    for round in 0..5 {
        let question = card.question(&format!("iauth_{round}"), 100);
        let answers: Vec<Value> = std::thread::scope(|scope| {
            let send = |client| card.send(client, &question).expect(200);
            let running: Vec<_> =
                clients.iter().map(|client| scope.spawn(move || send(client))).collect();
            running.into_iter().map(|one| one.join().unwrap()).collect()
        });
        assert_eq!(answers[0], answers[1]);
    }
    assert_eq!((card.balance(), card.authorizations().len()), (500, 5));
    world.books_agree();
}

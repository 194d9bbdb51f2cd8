//! A database that an earlier build has left: today's build starts on it, and what was there stands
//! and works. `tests/upgrade` holds the rows as that build wrote them, without its components, and
//! the key that they are sealed with; what would have run out meanwhile lasts. A whole data folder,
//! with components, is started in place by [`in_place`](crate::in_place). One row is written as that
//! build would have, which nobody had asked it for: a grant whose maker spelled the user in capitals;
//! and one audit row is the user's in that spelling, as the grant's own would be.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use charter_tests::artefacts::Artefacts;
use charter_tests::double::{self, Reply};
use charter_tests::patience::{PATIENCE, look_for, until};
use charter_tests::tenant::PASSWORD;
use charter_tests::world::Builder;
use charter_tests::{Client, World, on_both};
use serde_json::{Value, json};

use crate::accounts::browser;

fn folder() -> PathBuf {
    Artefacts::get().root.join("tests/upgrade")
}

fn upgraded() -> Builder {
    let builder = Builder::new().environment("CHARTER_EGRESS_ALLOW", "127.0.0.0/8");
    builder.restored(&folder())
}

/// The keys and ids that the earlier deployment's people know.
fn names() -> Value {
    let text = std::fs::read_to_string(folder().join("names.json")).unwrap();
    serde_json::from_str(&text).unwrap()
}

/// A receiver of events: their names, in the order in which they come.
fn receiver() -> (String, Arc<Mutex<Vec<String>>>) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let own = heard.clone();
    let address = double::listen(move |request| {
        own.lock().unwrap().push(request.header("x-service-event").unwrap_or_default().to_owned());
        Reply { status: 200, headers: Vec::new(), body: Vec::new() }
    });
    (format!("http://{address}/hook"), heard)
}

struct Earlier {
    names: Value,
    admin: Client,
}

impl Earlier {
    fn of(world: &World) -> Self {
        let names = names();
        let admin = world.anonymous().bearer(names["key"].as_str().unwrap());
        Self { names, admin }
    }

    fn name(&self, name: &str) -> &str {
        self.names[name].as_str().unwrap()
    }

    fn key(&self, name: &str) -> Client {
        self.admin.bearer(self.name(name))
    }

    /// Below the agent's mount.
    fn agents(&self, path: &str) -> String {
        format!("/v1/users/{}{path}", self.name("agent"))
    }
}

on_both! {
    fn keys_profiles_kits_and_secrets_of_an_earlier_build_stand(world: upgraded()) {
        let earlier = Earlier::of(world);
        let organization = earlier.admin.get("/v1/organization").expect(200)["organization"].clone();
        assert_eq!((&organization["name"], &organization["budget"]["cap_cents"]), (&json!("Earlier"), &json!(50_000)));
        let kit = earlier.admin.get(&format!("/v1/kits/{}", earlier.name("kit"))).expect(200)["kit"].clone();
        assert_eq!((&kit["budget"]["cap_cents"], &kit["primitives"]["vault"]["enabled"]), (&json!(5_000), &json!(false)));
        let pinned = earlier.key("pinned");
        assert_eq!(pinned.get("/v1/users/me").expect(200)["user"]["id"], earlier.names["agent"]);
        assert_eq!(pinned.get("/v1/vault").expect_error(403, "forbidden")["details"]["reason"], "primitive_disabled_by_kit");
        assert_eq!(pinned.get("/v1/usage").expect_error(403, "forbidden")["reason"], "pinned");
        let mismatch = earlier.key("of_project").with("x-service-project-id", earlier.name("second")).get("/v1/users");
        assert_eq!(mismatch.expect_error(403, "forbidden")["reason"], "key_project_mismatch");
        let revoked = format!("/v1/users/{}/queue", earlier.name("revoked"));
        assert_eq!(earlier.admin.post(&revoked, &json!({ "name": "q" })).expect_error(403, "forbidden")["reason"], "profile_revoked");
        assert_eq!(earlier.admin.post("/v1/vault/api/reveal", &json!({})).expect(200)["value"], "kept from before");
        let path = earlier.agents(&format!("/queue/{}/receive", earlier.name("queue")));
        assert_eq!(pinned.post(&path, &json!({})).expect(200)["messages"][0]["body"]["company"], "Initech");
        // Four eyes ask a key's chain of makers who made it, and the upgrade kept that chain.
        let (_, session) = browser(world, earlier.name("email"), PASSWORD);
        assert_eq!(session["account"]["email_verified"], false);
    }

    fn money_and_what_waits_of_an_earlier_build_go_on(world: upgraded()) {
        let earlier = Earlier::of(world);
        world.books_agree();
        let card = earlier.agents(&format!("/cards/{}", earlier.name("card")));
        assert_eq!(earlier.admin.get(&card).expect(200)["card"]["balance_cents"], 1_300);
        let spend = earlier.admin.get("/v1/spend").expect(200);
        let row = spend["spend"].as_array().unwrap().iter().find(|row| row["user_id"] == earlier.names["agent"]).unwrap();
        assert_eq!((&row["spent_cents"], &row["reserved_micro_usd"]), (&json!(2_300), &json!(22_000_000)), "{row}");
        // Of fifty dollars forty-five are spent or held: the rest is what the caps admit, whose meters
        // an earlier build has kept.
        let simulate = |cents: i64| {
            let ask = json!({ "action": "cards.authorize", "amount_micro_usd": cents * 10_000, "user_id": earlier.names["agent"] });
            earlier.admin.post("/v1/governance/simulate", &ask).expect(200)["reason"].clone()
        };
        assert_eq!((simulate(500), simulate(501)), (Value::Null, json!("budget_exceeded")));
        // A hold is bounded by what it holds, and captured.
        let capture = format!("{card}/authorizations/{}/capture", earlier.name("authorization"));
        let over = earlier.admin.post(&capture, &json!({ "amount_cents": 701 })).expect_error(409, "state_conflict");
        assert_eq!(over["details"]["left_micro_usd"], 7_000_000);
        earlier.admin.post(&capture, &json!({ "amount_cents": 600 })).expect(200);
        // An approval that waits for people is found by its project as by its organization, and is
        // made.
        for client in [&earlier.admin, &earlier.key("of_project"), &earlier.key("pinned")] {
            let waiting = client.get("/v1/approvals?status=pending_approval").expect(200);
            assert_eq!(waiting["approvals"][0]["id"], earlier.names["approval"], "{waiting}");
        }
        let owner = browser(world, earlier.name("email"), PASSWORD).0;
        let approval = format!("/v1/approvals/{}", earlier.name("approval"));
        owner.post(&format!("{approval}/approve"), &json!({})).expect(200);
        let ended = look_for(PATIENCE, "it is made", || {
            let shown = earlier.admin.get(&approval).expect(200)["approval"].clone();
            if ["approved", "executing"].iter().any(|status| shown["status"] == *status) { Err(shown) } else { Ok(shown) }
        });
        assert_eq!(ended["status"], "succeeded", "{ended}");
        assert_eq!(earlier.admin.get(&card).expect(200)["card"]["balance_cents"], 1_300 + 100 + 1_500);
        let statement = earlier.admin.get("/v1/ledger/statement?account=credit").expect(200)["statement"].clone();
        assert_eq!(statement["closing_micro_usd"], (100_000 - 2_000 - 300 - 1_500) * 10_000);
        world.books_agree();
    }

    fn a_grant_whose_maker_spelled_the_user_in_capitals_is_the_users(world: upgraded()) {
        let earlier = Earlier::of(world);
        let (agent, grant) = (earlier.name("agent"), earlier.name("grant"));
        for id in [agent.to_owned(), agent.to_uppercase()] {
            let listed = earlier.admin.get(&format!("/v1/governance/grants?user_id={id}")).expect(200);
            assert_eq!((&listed["grants"][0]["id"], &listed["grants"][0]["user_id"]), (&json!(grant), &json!(agent)), "{listed}");
        }
        // It is leave, and goes with the user.
        let simulated = || {
            let ask = json!({ "action": "cards.authorize", "amount_micro_usd": 10_000, "user_id": agent });
            earlier.admin.post("/v1/governance/simulate", &ask).expect(200)["verdict"].clone()
        };
        let rule = json!({ "rules": [{ "id": "ask", "effect": "require_approval", "actions": ["cards.authorize"] }] });
        earlier.admin.put("/v1/governance/policy", &rule).expect(200);
        assert_eq!(simulated(), "allow");
        let details = || {
            let logs = earlier.admin.get("/v1/logs?action=webhooks.create&limit=100").expect(200)["logs"].clone();
            let of_agent = |row: &&Value| row["on_behalf_of"] == agent;
            logs.as_array().unwrap().iter().find(of_agent).unwrap()["details"].clone()
        };
        assert_ne!(details(), Value::Null);
        earlier.admin.delete(&format!("/v1/users/{agent}")).expect(200);
        until("what the log has of the user's own goes", || details() == Value::Null);
        until("it goes with the user", || earlier.admin.get("/v1/governance/grants").expect(200)["grants"] == json!([]));
    }

    fn webhooks_that_name_events_as_they_were_called_hear_them_still(world: upgraded()) {
        let earlier = Earlier::of(world);
        let hears = |name: &str| {
            let (url, heard) = receiver();
            let webhook = format!("/v1/webhooks/{}", earlier.name(name));
            let shown = earlier.admin.patch(&webhook, &json!({ "url": url })).expect(200)["webhook"].clone();
            // The event types that it names are kept as they were written, and can be written
            // again.
            let names = json!({ "eventTypes": shown["eventTypes"] });
            assert_eq!(earlier.admin.patch(&webhook, &names).expect(200)["webhook"]["eventTypes"], shown["eventTypes"]);
            heard
        };
        let (whole, agents) = (hears("webhook"), hears("webhook_of_agent"));
        earlier.admin.post("/v1/cards", &json!({})).expect(201);
        earlier.admin.post(&earlier.agents("/cards"), &json!({})).expect(201);
        let funds = json!({ "source": "credit", "to_user_id": earlier.names["agent"], "amount_cents": 100 });
        earlier.admin.post(&earlier.agents("/payments/transfer"), &funds).expect(201);
        until("all are told", || whole.lock().unwrap().len() == 3 && !agents.lock().unwrap().is_empty());
        assert_eq!(*agents.lock().unwrap(), ["cards.updated"]);
        let mut heard = whole.lock().unwrap().clone();
        heard.sort();
        assert_eq!(heard, ["cards.updated", "cards.updated", "payments.updated"]);
        // By its present name it is asked for anew; what nobody emits, or ever did, is refused.
        let hook = |name: &str| earlier.admin.post("/v1/webhooks", &json!({ "url": "http://127.0.0.1:9/", "eventTypes": [name] }));
        hook("cards.updated").expect(201);
        hook("card.updated").expect(201);
        assert_eq!(hook("card.nonsense").expect_error(400, "invalid_input")["param"], "eventTypes.0");
    }
}

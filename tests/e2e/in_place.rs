//! An upgrade in place: today's build starts on the data folder that the build of commit 0ae0110
//! has left, with its components and nothing else, and each kind of thing goes on.
//!
//! `tests/upgrade/in-place` was made by a script outside the repository. It started that build's
//! release on SQLite in an empty folder, with the components of that commit (its `probe` in two
//! builds, and its `script` with two steps more: `every`, and `in_seconds` of a job), made one thing
//! of each kind through the API, killed the host twice amid what it had sent, and wrote down the
//! answers (`told.json`) before the last kill. Then it moved the log into `charter.db`, set the end
//! of whatever would run out (sessions, approvals, holds, links, kept answers) to the year 2099, in
//! the answers too, and packed it by `gzip`. The code cache was left out. `master.key` opens this
//! folder and nothing else: it is a test's.

use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};

use charter_tests::artefacts::{Artefacts, Folder};
use charter_tests::double::{self, Heard, Reply};
use charter_tests::patience::{PATIENCE, look_for, until};
use charter_tests::relay::Relay;
use charter_tests::tenant::PASSWORD;
use charter_tests::world::Builder;
use charter_tests::{Answer, Client, Database, World};
use serde_json::{Value, json};

use crate::accounts::browser;
use crate::hooks::{Hook, call};
use crate::mail::{bind, is_plain_page, parts, send};
use crate::rules::{play, sights};
use crate::webhooks::verify;

const DOLLAR: i64 = 1_000_000;

/// Members that go with the clock, the load or the address.
const PASSING: [&str; 6] =
    ["started_at", "oldest_age_seconds", "webhook_url", "calls", "p50_us", "p99_us"];

fn folder() -> PathBuf {
    Artefacts::get().root.join("tests/upgrade/in-place")
}

/// The deployment after the upgrade, and what was told before it.
struct Upgraded {
    world: World,
    told: Value,
}

impl Upgraded {
    fn start() -> Self {
        let builder = Builder::new().bare().environment("CHARTER_EGRESS_ALLOW", "127.0.0.0/8");
        let world = builder.in_place(&folder()).start(Database::Sqlite);
        let told = std::fs::read_to_string(folder().join("told.json")).unwrap();
        Self { world, told: serde_json::from_str(&told).unwrap() }
    }

    fn name(&self, name: &str) -> &str {
        self.told["names"][name].as_str().unwrap_or_else(|| panic!("no name {name}"))
    }

    /// With the credential of then: a key, a browser's session or the operator's token.
    fn as_of(&self, who: &str) -> Client {
        let anonymous = self.world.anonymous();
        match who {
            "operator" => self.world.operator(),
            "owner" | "approver" => {
                let origin = anonymous.base().to_owned();
                let client = anonymous.with("cookie", self.name(&format!("{who}_cookie")));
                let token = self.name(&format!("{who}_csrf"));
                client.with("x-service-csrf", token).with("origin", &origin)
            }
            key => anonymous.bearer(self.name(key)),
        }
    }

    /// Below the agent's mount.
    fn agents(&self, path: &str) -> String {
        format!("/v1/users/{}{path}", self.name("agent"))
    }

    fn card(&self, path: &str) -> String {
        self.agents(&format!("/cards/{}{path}", self.name("card")))
    }

    fn queue(&self, path: &str) -> String {
        self.agents(&format!("/queue/{}{path}", self.name("queue")))
    }

    /// A change of then, sent once more under its key, to the byte.
    fn again(&self, sent: &Value) -> Answer {
        let text = |member: &str| sent[member].as_str().unwrap();
        let client = self.as_of(text("as"));
        let call = client.call(text("method"), text("path")).idempotency_key(text("key"));
        call.header("content-type", "application/json").bytes(text("body").to_owned()).send()
    }

    /// The approval, once its request was made.
    fn approval_made(&self, name: &str) -> Value {
        let (key, path) = (self.as_of("key"), format!("/v1/approvals/{}", self.name(name)));
        look_for(PATIENCE, "it is made", || {
            let shown = key.get(&path).expect(200)["approval"].clone();
            if shown["status"] == "succeeded" { Ok(shown) } else { Err(shown) }
        })
    }

    fn notes(&self) -> Vec<Value> {
        let listed = self.as_of("key").get("/v1/script/notes").expect(200);
        listed["notes"].as_array().unwrap().clone()
    }

    fn holds(&self, state: &str) -> Vec<Value> {
        let path = format!("/v1/governance/holds?state={state}");
        self.as_of("key").get(&path).expect(200)["holds"].as_array().unwrap().clone()
    }
}

/// Notes where an answer of now lacks a member that it had then, or says something else. Members
/// that came since are free.
fn compare(then: &Value, now: &Value, at: &str, different: &mut Vec<String>) {
    match (then, now) {
        (Value::Object(then), Value::Object(now)) => {
            for (name, was) in then.iter().filter(|(name, _)| !PASSING.contains(&name.as_str())) {
                compare(
                    was,
                    now.get(name).unwrap_or(&Value::Null),
                    &format!("{at}.{name}"),
                    different,
                );
            }
        }
        (Value::Array(then), Value::Array(now)) if then.len() == now.len() => {
            for (place, (was, is)) in then.iter().zip(now).enumerate() {
                compare(was, is, &format!("{at}.{place}"), different);
            }
        }
        _ if then != now => different.push(format!("{at} was {then} and is {now}")),
        _ => {}
    }
}

/// A server that keeps what it hears.
fn listener() -> (String, Arc<Mutex<Vec<Heard>>>) {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let own = heard.clone();
    let address = double::listen(move |request| {
        own.lock().unwrap().push(request);
        Reply { status: 200, headers: Vec::new(), body: b"{}".to_vec() }
    });
    (format!("http://{address}"), heard)
}

fn every_read_answers_what_it_did(of: &Upgraded) {
    for read in of.told["reads"].as_array().unwrap() {
        let (who, path) = (read["as"].as_str().unwrap(), read["get"].as_str().unwrap());
        let client = of.as_of(who);
        // All that the kill had left dispatched is settled while this looks.
        look_for(PATIENCE, path, || {
            let (now, mut different) = (client.get(path).expect(200), Vec::new());
            compare(&read["answer"], &now, "", &mut different);
            if different.is_empty() { Ok(()) } else { Err(format!("as {who}: {different:#?}")) }
        });
    }
}

fn a_kept_answer_is_answered_again(of: &Upgraded) {
    for sent in of.told["sent"].as_array().unwrap() {
        let answer = of.again(sent);
        let status = sent["status"].as_u64().unwrap().try_into().unwrap();
        assert_eq!(answer.expect(status), sent["answer"], "{answer}");
        assert_eq!(answer.header("idempotent-replayed"), Some("true"), "{answer}");
    }
    // All that a kill cut off after it had sent something is made no second time.
    let steps = r#"{"steps": [{"leave": "script.spend", "amount": 2000000, "as": "p", "entity": "killed"}, {"dispatch": "p"}, {"sleep_ms": 7000}]}"#;
    let key = of.as_of("key");
    let again = key.call("POST", "/v1/script").idempotency_key("killed");
    let again = again.header("content-type", "application/json").bytes(steps).send();
    again.expect_error(409, "job_not_ready");
}

fn credentials_carry_what_they_did(of: &Upgraded) {
    for lost in ["lost", "lost_child"] {
        of.as_of(lost).get("/v1/organization").expect_error(401, "unauthorized");
    }
    of.as_of("viewer").post("/v1/users", &json!({ "name": "no" })).expect_error(403, "forbidden");
    let off = of.as_of("pinned").get("/v1/vault").expect_error(403, "forbidden");
    assert_eq!(off["details"]["reason"], "primitive_disabled_by_kit");
    of.as_of("of_project").get(&of.agents("")).expect_error(404, "not_found");
    of.as_of("key").get(&format!("/v1/users/{}", of.name("gone"))).expect_error(404, "not_found");
    let revoked = format!("/v1/users/{}/queue", of.name("revoked"));
    let refused = of.as_of("key").post(&revoked, &json!({ "name": "q" }));
    assert_eq!(refused.expect_error(403, "forbidden")["reason"], "profile_revoked");
    browser(&of.world, of.name("email"), PASSWORD);
    let body = json!({ "token": of.name("accept_token"), "password": PASSWORD });
    let accepted = of.world.anonymous().post("/v1/auth/invitations/accept", &body).expect(201);
    assert_eq!(accepted["role"], "developer");
    let secret = of.as_of("key").post("/v1/vault/api/reveal", &json!({})).expect(200);
    assert_eq!(secret["value"], "kept from before, twice");
}

fn money_goes_on(of: &Upgraded) {
    of.world.books_agree();
    let key = of.as_of("key");
    let kept = of.card(&format!("/authorizations/{}/capture", of.name("kept")));
    let captured = key.post(&kept, &json!({ "amount_cents": 600 })).expect(200);
    assert_eq!(captured["authorization"]["captured_cents"], 600);
    let refund = of.card(&format!("/authorizations/{}/refund", of.name("captured")));
    key.post(&refund, &json!({ "amount_cents": 100 })).expect(200);
    let unfreeze = of.agents(&format!("/cards/{}/unfreeze", of.name("frozen")));
    assert_eq!(key.post(&unfreeze, &json!({})).expect(200)["card"]["status"], "active");
    let pay = of.agents(&format!("/payments/requests/{}/pay", of.name("request")));
    let paid = of.as_of("pinned").post(&pay, &json!({})).expect(200);
    assert_eq!(paid["payment_request"]["status"], "paid");
    let charge = format!("/v1/users/{}/payments/{}/refund", of.name("other"), of.name("charge"));
    let back = of.as_of("other_key").post(&charge, &json!({ "amount_cents": 100 })).expect(200);
    assert_eq!(back["payment"]["refunded_cents"], 100);
    // All that was held, less what was captured of it, and what came back.
    assert_eq!(key.get(&of.card("")).expect(200)["card"]["balance_cents"], 3_000 + 100 + 100);
    let balance = of.as_of("pinned").get(&of.agents("/payments/balance")).expect(200);
    assert_eq!(balance["balance"]["available_cents"], 1_900 - 250 + 100);
    of.world.books_agree();
}

fn rules_and_holds_go_on(of: &Upgraded) {
    let (key, other) = (of.as_of("key"), of.as_of("other_key"));
    let denied =
        json!([{ "leave": "script.spend", "amount": 1, "entity": "forbidden", "as": "p" }]);
    let refused = play(&key, denied).expect_error(403, "forbidden");
    assert_eq!(refused["details"]["policy_ids"], json!(["never"]));
    // Of three times one was taken then.
    let sends = json!([{ "leave": "script.send", "as": "p" }, { "capture": "p", "amount": 0 }]);
    (0..2).for_each(|_| drop(sights(&play(&key, sends.clone()))));
    assert_eq!(play(&key, sends).expect_error(403, "forbidden")["reason"], "limit_exceeded");
    // And one of the grant's two.
    let spends = json!([
        { "leave": "script.spend", "amount": 11 * DOLLAR, "as": "p" },
        { "capture": "p", "amount": DOLLAR },
    ]);
    sights(&play(&other, spends.clone()));
    play(&other, spends).expect(202);
    // A hold that a primitive keeps is captured by its id.
    let take = json!([{ "reopen": of.name("permit"), "as": "p" }, { "capture": "p", "amount": 3 * DOLLAR }]);
    sights(&play(&key, take));
    assert_eq!(of.holds("held").iter().filter(|hold| hold["primitive"] == "script").count(), 1);
    // All that was dispatched when the host was killed: its primitive says what became of it, and where
    // it does not know, a person does.
    until("nothing is dispatched", || of.holds("dispatched").is_empty());
    until("what arrived is captured", || {
        of.holds("captured").iter().any(|hold| hold["entity"] == "it-arrived")
    });
    assert_eq!(of.holds("in_doubt").len(), 2);
    let words = [
        ("killed", json!({ "outcome": "voided", "reason": "it never came" })),
        (
            "nobody-knows",
            json!({ "outcome": "captured", "amount_micro_usd": DOLLAR, "reason": "a receipt" }),
        ),
    ];
    for (entity, word) in words {
        let hold = of.told["names"]["doubt"][entity].as_str().unwrap();
        let path = format!("/v1/governance/holds/{hold}/resolve");
        let resolved = of.as_of("approver").post(&path, &word).expect(200);
        assert_eq!(resolved["hold"]["state"], word["outcome"]);
    }
    of.world.books_agree();
}

fn what_waits_for_people_is_made_once(of: &Upgraded) {
    let key = of.as_of("key");
    let before = key.get(&of.card("")).expect(200)["card"]["balance_cents"].as_i64().unwrap();
    for name in ["waiting", "of_job"] {
        let path = format!("/v1/approvals/{}/approve", of.name(name));
        of.as_of("approver").post(&path, &json!({ "reason": "as we said" })).expect(200);
        of.approval_made(name);
    }
    // Its key answers what it was answered; the card has the money once.
    let sent = of.told["sent"].as_array().unwrap().iter().find(|sent| sent["key"] == "waits");
    assert_eq!(of.again(sent.unwrap()).expect(200)["card"]["balance_cents"], before + 1_500);
    assert_eq!(key.get(&of.card("")).expect(200)["card"]["balance_cents"], before + 1_500);
    of.world.books_agree();
}

fn jobs_and_schedules_go_on(of: &Upgraded) {
    // The one that a person has let go on, the one whose time has come and the one that a kill broke
    // off; and each minute the schedule's.
    for (slug, count) in [("by-parked-job", 5), ("by-late-job", 4), ("by-broken-job", 6)] {
        look_for(PATIENCE * 3, slug, || {
            let notes = of.notes();
            let found = notes.iter().filter(|note| note["slug"] == slug).count();
            let ours = notes.iter().any(|note| note["slug"] == slug && note["count"] == count);
            if ours && found == 1 { Ok(()) } else { Err(json!(notes)) }
        });
    }
    let key = of.as_of("key");
    until("the schedule has fired", || {
        sights(&play(&key, json!([{ "count": "ticked" }])))[0].as_i64().unwrap() > 0
    });
}

fn hooks_of_then_are_believed_and_bindings_guarded(of: &Upgraded) {
    let hook = Hook {
        id: of.name("hook_id").to_owned(),
        path: of.name("hook").to_owned(),
        secret: of.name("hook_secret").to_owned(),
    };
    let outside = of.world.anonymous();
    let user = json!({ "name": "clock" });
    let made = of.as_of("key").post("/v1/users", &user).expect(201)["user"]["id"].clone();
    let id = made.as_str().unwrap().replace('-', "");
    let now = i64::from_str_radix(&id[..12], 16).unwrap() / 1_000;
    let forged = Hook {
        secret: format!("whsec_{}", "A".repeat(44)),
        ..Hook { id: hook.id.clone(), path: hook.path.clone(), secret: String::new() }
    };
    call(&outside, &forged, "msg_forged", now, "{}").expect_error(401, "unauthorized");
    // The event of then is known, and told no second time.
    call(&outside, &hook, "msg_then", now, "told then").expect(200);
    call(&outside, &hook, "msg_now", now, "told now").expect(200);
    let told = |event: &str| {
        let start = format!("hook {} {event} ", hook.id);
        let is = |note: &&Value| note["kind"].as_str().is_some_and(|kind| kind.starts_with(&start));
        of.notes().iter().filter(is).count()
    };
    until("it is told", || told("msg_now") == 1);
    assert_eq!(told("msg_then"), 1);
    // A binding that moves to another origin needs its secrets again.
    let (url, heard) = listener();
    let binding = "/v1/operator/providers/script.peer";
    let moved = json!({ "kind": "stripe", "url": url });
    let refused = of.as_of("operator").put(binding, &moved).expect_error(400, "invalid_input");
    assert!(refused["message"].as_str().unwrap().contains("another origin"), "{refused}");
    let whole =
        json!({ "kind": "stripe", "url": url, "credential": "sesame", "webhook_secret": null });
    of.as_of("operator").put(binding, &whole).expect(200);
    sights(&play(&of.as_of("key"), json!([{ "fetch": "GET", "path": "/" }])));
    assert!(heard.lock().unwrap()[0].header("authorization").unwrap().contains("sesame"));
}

fn deliveries_and_mails_of_then_reach_whom_they_are_for(of: &Upgraded, relay: &Relay) {
    let key = of.as_of("key");
    let (url, heard) = listener();
    let webhook = format!("/v1/webhooks/{}", of.name("webhook"));
    let listed =
        key.get(&format!("{webhook}/deliveries?limit=100")).expect(200)["deliveries"].clone();
    let kept = listed.as_array().unwrap().last().unwrap().clone();
    let changed = json!({ "url": format!("{url}/hook"), "active": true });
    key.patch(&webhook, &changed).expect(200);
    let path = format!("{webhook}/deliveries/{}/redeliver", kept["id"].as_str().unwrap());
    key.post(&path, &json!({})).expect(202);
    let ours = |heard: &&Heard| heard.header("webhook-id") == kept["event_id"].as_str();
    until("it is delivered", || heard.lock().unwrap().iter().any(|one| ours(&one)));
    let delivered = heard.lock().unwrap().iter().find(ours).cloned().unwrap();
    assert_eq!(verify(&delivered, of.name("webhook_secret"))["event"], kept["event"]);
    // A mail that no relay took then, and whose link counts: another approval is decided by it.
    let (email, id) = (of.name("approver_email"), of.name("two"));
    let link = look_for(PATIENCE * 3, "the mail comes", || {
        let links: Vec<String> = relay.to(email).iter().map(|mail| mail.link()).collect();
        links.iter().find(|link| link.contains(id)).cloned().ok_or_else(|| format!("{links:?}"))
    });
    let (path, token) = parts(&link);
    is_plain_page(&send(&of.world, path, &format!("token={token}&decision=approve")), 200);
    of.approval_made("two");
    is_plain_page(&of.world.anonymous().get(&link), 404);
}

fn components_are_replaced_and_rolled_back(of: &Upgraded) {
    let (operator, pinned) = (of.as_of("operator"), of.as_of("pinned"));
    let rolled = operator.post("/v1/operator/components/probe/rollback", &json!({})).expect(200);
    assert_eq!(rolled["component"]["version"], "1.0.900001");
    assert_eq!(of.as_of("key").get("/v1/probe").expect(200)["build"], "900001");
    // A queue of then is today's component's, and of then's again after a rollback.
    let today = std::fs::read(Artefacts::get().components.join("queue.wasm")).unwrap();
    of.world.install("queue", &today);
    let ack = of.queue(&format!("/messages/{}/ack", of.name("message")));
    pinned.post(&ack, &json!({ "receipt": of.name("receipt") })).expect(200);
    let received = pinned.post(&of.queue("/receive"), &json!({})).expect(200);
    assert_eq!(received["messages"][0]["body"]["company"], "Initech");
    let rolled = operator.post("/v1/operator/components/queue/rollback", &json!({})).expect(200);
    assert_eq!(rolled["component"]["version"], "0.1.0");
    let same = json!({ "messages": [{ "body": "again", "dedupe_key": "initech" }] });
    let sent = pinned.post(&of.queue("/messages"), &same).expect(201);
    assert_eq!(sent["messages"][0]["deduplicated"], true);
    // All that holds money is replaced under it.
    let before = of.as_of("key").get(&of.card("")).expect(200)["card"].clone();
    let today = std::fs::read(Artefacts::get().components.join("cards.wasm")).unwrap();
    of.world.install("cards", &today);
    assert_eq!(
        of.as_of("key").get(&of.card("")).expect(200)["card"]["balance_cents"],
        before["balance_cents"]
    );
    of.as_of("key")
        .post(&of.card("/authorizations"), &json!({ "amount_cents": 100, "merchant": "books" }))
        .expect(201);
    of.world.books_agree();
}

fn the_audit_log_is_the_one_that_was_signed(of: &Upgraded) {
    let files = Folder::new();
    let (export, note) = (files.path().join("export.ndjson"), files.path().join("note"));
    std::fs::write(&export, of.as_of("key").get("/v1/audit/export").text()).unwrap();
    let signed = &of.told["names"]["checkpoint"]["checkpoint"];
    std::fs::write(&note, signed["note"].as_str().unwrap()).unwrap();
    let mut command = Command::new(&Artefacts::get().charter);
    command.args(["audit", "verify"]).arg(&export).arg("--since").arg(&note);
    let told = command.args(["--key", signed["public_key"].as_str().unwrap()]).output().unwrap();
    let said = String::from_utf8_lossy(&told.stdout) + String::from_utf8_lossy(&told.stderr);
    assert!(told.status.success(), "{said}");
}

#[test]
fn a_data_folder_of_an_earlier_build_is_started_in_place_and_all_of_it_goes_on() {
    let mut of = Upgraded::start();
    every_read_answers_what_it_did(&of);
    // The longer a mail waits, the more seldom it is tried.
    let relay = Relay::start();
    bind(&of.world, &relay);
    a_kept_answer_is_answered_again(&of);
    credentials_carry_what_they_did(&of);
    money_goes_on(&of);
    rules_and_holds_go_on(&of);
    what_waits_for_people_is_made_once(&of);
    jobs_and_schedules_go_on(&of);
    hooks_of_then_are_believed_and_bindings_guarded(&of);
    deliveries_and_mails_of_then_reach_whom_they_are_for(&of, &relay);
    components_are_replaced_and_rolled_back(&of);
    the_audit_log_is_the_one_that_was_signed(&of);
    // And again: what the upgrade wrote is what today's build reads.
    of.world.stop();
    of.world.start();
    of.world.books_agree();
    assert_eq!(of.as_of("key").get("/v1/probe").expect(200)["build"], "900001");
    of.as_of("owner").get("/v1/auth/session").expect(200);
}

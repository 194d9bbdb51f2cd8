//! Governance as time passes, in a whole server of this process whose clock the test moves: windows
//! that roll over in mid-race, clocks that jump, approvals that nobody decides on, schedules whose
//! maker has lost a power, deliveries and mails that are tried again, links and secrets that end.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use charter_kernel::unit::{Unit, Write};
use charter_tenancy::records::Record as _;
use charter_tenancy::records::approval::{Approval, Status};
use charter_tests::artefacts::Artefacts;
use charter_tests::double::{Reply, listen};
use charter_tests::patience::{PATIENCE, look_for, until};
use charter_tests::relay::Relay;
use charter_tests::tenant::{PASSWORD, id, unique};
use charter_tests::{Answer, Client, Tenant};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

use crate::bed::Timed;

const DOLLAR: i64 = 1_000_000;
const DAY_MS: i64 = 86_400_000;
const OPERATOR: &str = "operator-token-of-a-test-0123456789";

/// A server of this process, and an organization in it whose primitive plays scripts.
struct Bed {
    runtime: Runtime,
    timed: Timed,
    tenant: Tenant,
}

impl Bed {
    fn new() -> Self {
        let runtime = Runtime::new().expect("a runtime");
        let environment =
            [("CHARTER_OPERATOR_TOKEN", OPERATOR), ("CHARTER_EGRESS_ALLOW", "127.0.0.0/8")];
        let timed = runtime.block_on(Timed::start(&environment));
        let anonymous = Client::new(&format!("http://{}", timed.running().address));
        let script = Artefacts::get().fixture("script");
        let upload = anonymous.bearer(OPERATOR);
        let path = "/v1/operator/components/script?activate=true&agree=*";
        upload
            .call("PUT", path)
            .header("content-type", "application/wasm")
            .bytes(script)
            .send()
            .expect(201);
        let tenant = Tenant::register(&anonymous);
        Self { runtime, timed, tenant }
    }

    fn pass(&self, ms: i64) {
        self.timed.pass(ms);
    }

    /// Gives the default kit's users a budget.
    fn budget(&self, cents: i64, period: &str) {
        let client = &self.tenant.client;
        let kit =
            client.get("/v1/kits").expect(200)["kits"][0]["id"].as_str().expect("a kit").to_owned();
        client
            .patch(
                &format!("/v1/kits/{kit}"),
                &json!({ "budget": { "cap_cents": cents, "period": period } }),
            )
            .expect(200);
    }

    fn play(&self, steps: Value) -> Answer {
        self.tenant.client.post("/v1/script", &json!({ "steps": steps }))
    }

    /// The owner, signed in.
    fn person(&self) -> Client {
        self.sign_in(&self.tenant.email)
    }

    fn sign_in(&self, email: &str) -> Client {
        let login = json!({ "email": email, "password": PASSWORD });
        let anonymous = Client::new(self.tenant.client.base());
        let signed_in = anonymous.post("/v1/auth/login", &login);
        let cookie = signed_in
            .header("set-cookie")
            .and_then(|line| line.split(';').next())
            .expect("a cookie")
            .to_owned();
        let csrf = signed_in.json()["session"]["csrf_token"].as_str().expect("a token").to_owned();
        anonymous
            .with("cookie", &cookie)
            .with("x-service-csrf", &csrf)
            .with("origin", anonymous.base())
    }

    /// Whether a dollar may be spent now; it is, then.
    fn spends(&self) -> bool {
        let answer =
            self.play(json!([{ "leave": "script.spend", "amount": DOLLAR, "as": "p" }, { "capture": "p", "amount": DOLLAR }]));
        if answer.status != 200 {
            assert_eq!(answer.expect_error(403, "forbidden")["reason"], "budget_exceeded");
        }
        answer.status == 200
    }

    /// Ends an approval as earlier builds did where its job failed: its hold goes on waiting.
    fn fail_alone(&self, approval: &str) {
        let (store, now) = (&self.timed.running().app.store, self.timed.now());
        let organization = &self.tenant.organization;
        self.runtime.block_on(async {
            let key = Approval::address(organization, approval);
            let row = store.get(&key).await.expect("the store answers").expect("an approval");
            let waiting = Approval::read(&row).expect("it can be read");
            let over = Approval { status: Status::Failed, resolved_at: Some(now), ..waiting };
            let draft = over.due(now.plus_ms(400 * DAY_MS)).expect("it can be written");
            let writes = vec![Write::Replace { key, draft, expected: None }];
            let unit = Unit { organization: organization.clone(), writes, ..Unit::default() };
            store.commit(unit).await.expect("the store takes it");
        });
    }

    /// The amounts spent and reserved in the window of now.
    fn stands(&self) -> (i64, i64) {
        let question = json!({ "action": "script.spend", "amount_micro_usd": 0 });
        let told = self.tenant.client.post("/v1/governance/simulate", &question).expect(200);
        let of = |name: &str| told["caps"][0][name].as_i64().expect("a number");
        (of("spent_micro_usd"), of("reserved_micro_usd"))
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.runtime.block_on(self.timed.stop());
    }
}

/// A power taken away after a schedule was set and before it comes due.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Loss {
    Nothing,
    KeyRevoked,
    /// A job of the key has set the schedule.
    KeyOfJobRevoked,
    MakerDemoted,
    MakerDemotedAndRemoved,
    MakerRemoved,
    UserRevoked,
    KitSwitchedOff,
}

/// Each with the reason why the regulated action that is due is not taken then.
const LOSSES: [(Loss, Option<&str>); 8] = [
    (Loss::Nothing, None),
    // It is the profile's, and outlives the key; what a job sets ends with the job's credential.
    (Loss::KeyRevoked, None),
    (Loss::KeyOfJobRevoked, Some("unauthorized")),
    (Loss::MakerDemoted, Some("role_insufficient")),
    (Loss::MakerDemotedAndRemoved, Some("role_insufficient")),
    (Loss::MakerRemoved, None),
    (Loss::UserRevoked, Some("profile_revoked")),
    (Loss::KitSwitchedOff, Some("primitive_disabled_by_kit")),
];

/// A schedule that a member's key has set for an agent.
struct Planned {
    member: String,
    key: String,
    kit: String,
    agent: String,
    /// The job that has set it, where one did.
    setter: Option<String>,
}

impl Planned {
    /// Sets it: a regulated action each minute.
    fn new(bed: &Bed, owner: &Client, loss: Loss) -> Self {
        let (tenant, anonymous) = (&bed.tenant, Client::new(bed.tenant.client.base()));
        let email = format!("{}@example.com", unique("maker"));
        let wish = json!({ "email": email, "role": "developer" });
        let invited = owner.post("/v1/organization/members", &wish).expect(201);
        let accept =
            json!({ "token": invited["invitation"]["accept_token"], "password": PASSWORD });
        let joined = anonymous.post("/v1/auth/invitations/accept", &accept).expect(201);
        let made = bed.sign_in(&email).post("/v1/auth/keys", &json!({ "name": unique("key") }));
        let made = made.expect(201);
        let kit = tenant.kit(&unique("kit"), json!({ "script": { "enabled": true } }));
        let agent = tenant.user_with_kit(&unique("agent"), &kit);
        let asks = anonymous.bearer(made["key"].as_str().expect("a key"));
        let asks = asks.with("x-service-user-id", &agent);
        let act = json!([{ "leave": "script.send", "as": "p" }, { "capture": "p", "amount": 0 }]);
        let mut every = json!({ "every": "* * * * *", "key": "act", "steps": act });
        (every["public"], every["attempts"]) = (true.into(), 1.into());
        let by_job = loss == Loss::KeyOfJobRevoked;
        let steps = match by_job {
            true => json!([{ "enqueue": [every], "public": true, "attempts": 1 }]),
            false => json!([every]),
        };
        let seen = asks.post("/v1/script", &json!({ "steps": steps })).expect(200)["seen"].clone();
        let setter = by_job.then(|| seen[0].as_str().expect("a job").to_owned());
        let (member, key) = (id(&joined["account"]), id(&made));
        Self { member, key, kit, agent, setter }
    }

    /// The jobs that have ended, but for the one that has set it.
    fn list_ended(&self, bed: &Bed) -> Vec<Value> {
        let path = format!("/v1/users/{}/jobs", self.agent);
        let mut jobs = bed.tenant.client.get(&path).expect(200)["jobs"].clone();
        let jobs = jobs.as_array_mut().expect("a list");
        jobs.retain(|job| {
            let ended = job["status"] == "succeeded" || job["status"] == "failed";
            ended && job["id"].as_str() != self.setter.as_deref()
        });
        std::mem::take(jobs)
    }

    fn wait_until_set(&self, bed: &Bed) {
        let Some(setter) = &self.setter else { return };
        let path = format!("/v1/users/{}/jobs/{setter}", self.agent);
        let status = || bed.tenant.client.get(&path).expect(200)["job"]["status"].clone();
        until("the schedule is set", || status() == "succeeded");
    }

    fn lose(&self, bed: &Bed, owner: &Client, loss: Loss) {
        let admin = &bed.tenant.client;
        let member = format!("/v1/organization/members/{}", self.member);
        let demote = || owner.patch(&member, &json!({ "role": "viewer" }));
        let lost = match loss {
            Loss::Nothing => return,
            Loss::KeyRevoked | Loss::KeyOfJobRevoked => {
                admin.delete(&format!("/v1/auth/keys/{}", self.key))
            }
            Loss::MakerDemoted => demote(),
            Loss::MakerDemotedAndRemoved => {
                demote().expect(200);
                owner.delete(&member)
            }
            Loss::MakerRemoved => owner.delete(&member),
            Loss::UserRevoked => {
                admin.post(&format!("/v1/users/{}/revoke", self.agent), &json!({}))
            }
            Loss::KitSwitchedOff => {
                let off = json!({ "primitives": { "script": { "enabled": false } } });
                admin.patch(&format!("/v1/kits/{}", self.kit), &off)
            }
        };
        lost.expect(200);
    }
}

#[test]
fn a_schedule_acts_with_what_its_maker_and_its_profile_may_when_it_comes_due() {
    let bed = Bed::new();
    let owner = bed.person();
    let planned = LOSSES.map(|(loss, _)| Planned::new(&bed, &owner, loss));
    planned.iter().for_each(|planned| planned.wait_until_set(&bed));
    for (planned, (loss, _)) in planned.iter().zip(LOSSES) {
        assert!(planned.list_ended(&bed).is_empty(), "{loss:?}: nothing is due yet");
        planned.lose(&bed, &owner, loss);
    }
    bed.pass(61_000);
    for (planned, (loss, wanted)) in planned.iter().zip(LOSSES) {
        let job = look_for(PATIENCE, "what is due ends", || {
            planned.list_ended(&bed).pop().ok_or_else(|| format!("{loss:?}: it has not"))
        });
        let error = &job["error"];
        let reason = error["reason"].as_str().or(error["code"].as_str());
        assert_eq!(reason, wanted, "{loss:?}: {job}");
        assert_eq!(job["status"] == "succeeded", wanted.is_none(), "{loss:?}: {job}");
    }
    let held = bed.tenant.client.get("/v1/governance/holds?state=captured&limit=100").expect(200);
    let taken = LOSSES.iter().filter(|(_, wanted)| wanted.is_none()).count();
    assert_eq!(held["holds"].as_array().map(Vec::len), Some(taken), "{held}");
}

#[test]
fn a_window_that_rolls_over_in_mid_race_admits_what_it_admits_and_no_more() {
    let bed = Bed::new();
    bed.budget(700, "day");
    let spent = AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..12 {
            scope.spawn(|| {
                for _ in 0..8 {
                    if bed.spends() {
                        spent.fetch_add(1, Ordering::SeqCst);
                    }
                }
            });
        }
        // Midnight comes once some have spent, while others do.
        until("some have spent", || spent.load(Ordering::SeqCst) >= 3);
        bed.pass(DAY_MS / 2 + 1);
    });
    let (now, reserved) = bed.stands();
    assert_eq!(reserved, 0);
    assert_eq!(now, 7 * DOLLAR, "the second day is spent to its last dollar");
    let all = spent.into_inner();
    assert!((10..=14).contains(&all), "the first day admitted {} and the second 7", all - 7);
    bed.pass(DAY_MS);
    assert!(bed.spends(), "a third day begins anew");
}

#[test]
fn a_clock_that_jumps_back_opens_no_window_again() {
    let bed = Bed::new();
    bed.budget(200, "day");
    assert!(bed.spends() && bed.spends() && !bed.spends());
    bed.pass(DAY_MS);
    assert!(bed.spends(), "the next day");
    // The day before is over, whatever the clock says: it is not opened again, and the new one
    // counts on.
    bed.pass(-DAY_MS);
    assert!(!bed.spends() || !bed.spends(), "yesterday's budget is spent");
    bed.pass(DAY_MS);
    let before = bed.stands().0;
    assert!(before <= 2 * DOLLAR, "{before}");
    while bed.spends() {}
    assert_eq!(bed.stands(), (2 * DOLLAR, 0));
    bed.pass(40 * DAY_MS);
    assert!(
        bed.spends() && bed.spends() && !bed.spends(),
        "a jump ahead is a new window like any other"
    );
}

#[test]
fn what_nobody_decides_on_ends_and_its_funds_are_free() {
    let bed = Bed::new();
    bed.budget(1_000, "month");
    let rule = json!({ "id": "ask", "effect": "require_approval", "actions": ["script.spend"] });
    bed.tenant.client.put("/v1/governance/policy", &json!({ "rules": [rule] })).expect(200);
    let asked =
        bed.play(json!([{ "leave": "script.spend", "amount": DOLLAR, "as": "p" }, { "capture": "p", "amount": DOLLAR }]));
    let id = asked.expect(202)["approval_id"].as_str().expect("an id").to_owned();
    assert_eq!(bed.stands(), (0, DOLLAR), "its funds are held");
    let approval = || bed.tenant.client.get(&format!("/v1/approvals/{id}"));
    let status = || approval().expect(200)["approval"]["status"].clone();
    bed.pass(DAY_MS - 1_000);
    assert_eq!(status(), "pending_approval");
    bed.pass(2_000);
    until("it expires", || status() == "expired");
    assert_eq!(bed.stands(), (0, 0), "its funds are free");
    bed.person()
        .post(&format!("/v1/approvals/{id}/approve"), &json!({}))
        .expect_error(409, "state_conflict");
    // And in time it is forgotten, with its hold.
    bed.pass(500 * DAY_MS);
    until("it is forgotten", || approval().status == 404);
    let voided = || {
        bed.tenant.client.get("/v1/governance/holds?state=voided").expect(200)["holds"]
            .as_array()
            .map_or(0, Vec::len)
    };
    until("its hold is forgotten", || voided() == 0);
}

#[test]
fn what_was_approved_and_can_never_be_made_fails_when_its_day_is_over() {
    let bed = Bed::new();
    bed.budget(1_000, "month");
    let rule = json!({ "id": "ask", "effect": "require_approval", "actions": ["script.spend"] });
    bed.tenant.client.put("/v1/governance/policy", &json!({ "rules": [rule] })).expect(200);
    let asked = bed.play(
        json!([{ "leave": "script.spend", "amount": DOLLAR, "as": "p" }, { "refuse": "overloaded" }]),
    );
    let id = asked.expect(202)["approval_id"].as_str().expect("an id").to_owned();
    bed.person().post(&format!("/v1/approvals/{id}/approve"), &json!({})).expect(200);
    let approval =
        || bed.tenant.client.get(&format!("/v1/approvals/{id}")).expect(200)["approval"].clone();
    until("it is tried, and holds nothing until it is tried again", || bed.stands() == (0, 0));
    assert_ne!(approval()["status"], "failed");
    // A day and a bit; then the clock is left alone, so that a run that it has overtaken is due again.
    let mut hours = 0;
    until("it has failed", || {
        if hours < 30 {
            bed.pass(3_600_000);
            hours += 1;
        }
        approval()["status"] == "failed"
    });
    assert_eq!(approval()["error"]["code"], "overloaded");
    assert_eq!(bed.stands(), (0, 0));
}

#[test]
fn what_is_to_be_made_much_later_ends_within_a_minute_of_its_key() {
    let bed = Bed::new();
    bed.budget(1_000, "month");
    let client = &bed.tenant.client;
    let rule = json!({ "id": "ask", "effect": "require_approval", "actions": ["script.spend"] });
    client.put("/v1/governance/policy", &json!({ "rules": [rule] })).expect(200);
    let made = client.post("/v1/auth/keys", &json!({ "name": "short", "role": "developer" }));
    let made = made.expect(201);
    let short = client.bearer(made["key"].as_str().expect("a key"));
    let rate = json!({ "rate": "few", "reach": "user", "amount": 1, "seconds": 80_000 });
    let leave = json!({ "leave": "script.spend", "amount": DOLLAR, "as": "p" });
    let asked = short.post("/v1/script", &json!({ "steps": [rate, leave] })).expect(202);
    let id = asked["approval_id"].as_str().expect("an id").to_owned();
    bed.play(json!([rate])).expect(200);
    bed.person().post(&format!("/v1/approvals/{id}/approve"), &json!({})).expect(200);
    let approval = || client.get(&format!("/v1/approvals/{id}")).expect(200)["approval"].clone();
    bed.pass(1_000);
    assert_eq!(bed.stands(), (0, DOLLAR));
    client.delete(&format!("/v1/auth/keys/{}", made["id"].as_str().expect("an id"))).expect(200);
    let since = bed.timed.now().0;
    until("it has failed", || {
        bed.pass(1_000);
        approval()["status"] == "failed"
    });
    assert!(bed.timed.now().0 - since < 80_000_000, "long before it would be made");
    assert_eq!(approval()["error"]["code"], "unauthorized");
    assert_eq!(bed.stands(), (0, 0));
}

#[test]
fn a_hold_that_waits_for_an_approval_that_is_over_ends_at_its_time() {
    let bed = Bed::new();
    bed.budget(1_000, "month");
    let rule = json!({ "id": "ask", "effect": "require_approval", "actions": ["script.spend"] });
    bed.tenant.client.put("/v1/governance/policy", &json!({ "rules": [rule] })).expect(200);
    let asked =
        bed.play(json!([{ "leave": "script.spend", "amount": DOLLAR, "as": "p" }, { "capture": "p", "amount": DOLLAR }]));
    bed.fail_alone(asked.expect(202)["approval_id"].as_str().expect("an id"));
    bed.pass(DAY_MS - 1_000);
    assert_eq!(bed.stands(), (0, DOLLAR));
    bed.pass(3_602_000);
    until("its funds are free", || bed.stands() == (0, 0));
    let holds = |state: &str| {
        let path = format!("/v1/governance/holds?state={state}");
        bed.tenant.client.get(&path).expect(200)["holds"].as_array().map_or(0, Vec::len)
    };
    assert_eq!((holds("pending"), holds("voided")), (0, 1));
}

#[test]
fn a_hold_is_kept_for_ninety_days_after_it_has_ended() {
    let bed = Bed::new();
    let captured = || -> Vec<Value> {
        let listed = bed.tenant.client.get("/v1/governance/holds?state=captured").expect(200);
        listed["holds"].as_array().expect("a list").iter().map(|hold| hold["id"].clone()).collect()
    };
    assert!(bed.spends());
    bed.pass(60 * DAY_MS);
    assert!(bed.spends());
    let both = captured();
    assert_eq!(both.len(), 2);
    bed.pass(31 * DAY_MS);
    until("the first one is forgotten", || captured().len() < 2);
    assert_eq!(captured(), both[..1], "newest first, and the second one has another month");
}

#[test]
fn a_delivery_is_tried_four_times_and_a_webhook_that_only_fails_is_switched_off() {
    let bed = Bed::new();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let own = heard.clone();
    let address: SocketAddr = listen(move |request| {
        own.lock()
            .expect("nobody panicked")
            .push(request.header("webhook-id").unwrap_or_default().to_owned());
        Reply { status: 500, headers: Vec::new(), body: Vec::new() }
    });
    let wish = json!({ "url": format!("http://{address}/"), "eventTypes": ["script.told"] });
    let hook = bed.tenant.client.post("/v1/webhooks", &wish).expect(201)["id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let say = || drop(bed.play(json!([{ "emit": "hello" }])).expect(200));
    let tries = || heard.lock().expect("nobody panicked").len();
    say();
    let deliveries =
        |path: &str| bed.tenant.client.get(&format!("/v1/webhooks/{hook}{path}")).expect(200);
    let noted =
        || deliveries("/deliveries")["deliveries"][0]["attempts"].as_array().map_or(0, Vec::len);
    let waits = [(1, 7_000), (2, 73_000), (3, 721_000)];
    for (count, wait) in waits {
        // Noted, so that the wait before the next is counted from before the clock moves.
        until("it is tried", || tries() == count && noted() == count);
        bed.pass(wait);
    }
    until("it is tried a last time", || tries() == 4);
    until("it is given up", || deliveries("/deliveries")["deliveries"][0]["status"] == "failed");
    bed.pass(3_600_000);
    assert_eq!(
        (tries(), heard.lock().expect("nobody panicked").windows(2).all(|pair| pair[0] == pair[1])),
        (4, true)
    );
    (0..25).for_each(|_| say());
    until("it is switched off", || {
        bed.pass(30_000);
        deliveries("")["webhook"]["active"] == false
    });
    assert!(
        deliveries("")["webhook"]["disabled_reason"]
            .as_str()
            .is_some_and(|reason| reason.contains("in a row"))
    );
}

#[test]
fn a_former_secret_signs_for_a_day_and_makes_room_then() {
    let bed = Bed::new();
    let heard = Arc::new(Mutex::new(Vec::new()));
    let own = heard.clone();
    let address: SocketAddr = listen(move |request| {
        let signatures =
            request.header("webhook-signature").map_or(0, |line| line.split(' ').count());
        own.lock().expect("nobody panicked").push(signatures);
        Reply { status: 200, headers: Vec::new(), body: Vec::new() }
    });
    let wish = json!({ "url": format!("http://{address}/"), "eventTypes": ["script.told"] });
    let hook = bed.tenant.client.post("/v1/webhooks", &wish).expect(201)["id"]
        .as_str()
        .expect("an id")
        .to_owned();
    let rotate = || bed.tenant.client.post(&format!("/v1/webhooks/{hook}/rotate"), &json!({}));
    // The closure signs with a delivery of now.
    let signing = || {
        let before = heard.lock().expect("nobody panicked").len();
        bed.play(json!([{ "emit": "hello" }])).expect(200);
        until("it is delivered", || heard.lock().expect("nobody panicked").len() > before);
        heard.lock().expect("nobody panicked")[before]
    };
    for round in 0..8 {
        rotate().expect(200);
        assert_eq!(signing(), round + 2);
        bed.pass(1_000);
    }
    rotate().expect_error(409, "state_conflict");
    bed.pass(DAY_MS - 8_000);
    // The first of them has had its day, and the others have not.
    assert_eq!(signing(), 8);
    rotate().expect(200);
    assert_eq!(signing(), 9);
    bed.pass(DAY_MS);
    assert_eq!(signing(), 1);
}

#[test]
fn a_link_ends_with_what_it_is_for_and_a_mail_is_not_tried_for_ever() {
    let bed = Bed::new();
    let relay = Relay::start();
    let anonymous = Client::new(bed.tenant.client.base());
    anonymous
        .bearer(OPERATOR)
        .put("/v1/operator/providers/mail.relay", &relay.binding())
        .expect(200);
    let rule = json!({ "id": "ask", "effect": "require_approval", "actions": ["script.spend"] });
    bed.tenant.client.put("/v1/governance/policy", &json!({ "rules": [rule] })).expect(200);
    let ask = || {
        let asked = bed.play(
            json!([{ "leave": "script.spend", "amount": DOLLAR, "as": "p" }, { "cancel": "p" }]),
        );
        asked.expect(202)["approval_id"].as_str().expect("an id").to_owned()
    };
    let approval = |id: &str| {
        bed.tenant.client.get(&format!("/v1/approvals/{id}")).expect(200)["approval"].clone()
    };
    let (id, link) = (ask(), relay.hears(&bed.tenant.email, 1).remove(0).link());
    assert_eq!(anonymous.get(&link).status, 200);
    bed.pass(DAY_MS + 1);
    let (path, token) = link.split_once("?token=").expect("a token");
    let form = format!("token={token}&decision=approve");
    let late = anonymous
        .call("POST", path)
        .header("content-type", "application/x-www-form-urlencoded")
        .bytes(form)
        .send();
    assert_eq!(
        (late.status, late.text().contains("has expired") || late.text().contains("is expired")),
        (409, true),
        "{late}"
    );
    assert_eq!(anonymous.get(&link).status, 409);
    until("it expires", || approval(&id)["status"] == "expired");
    // A sign-in link counts for a quarter of an hour.
    anonymous.post("/v1/auth/link", &json!({ "email": bed.tenant.email })).expect(202);
    let link = relay.hears(&bed.tenant.email, 2).remove(1).link();
    bed.pass(15 * 60_000 - 1);
    assert_eq!(anonymous.get(&link).status, 200);
    bed.pass(1);
    assert_eq!(anonymous.get(&link).status, 404);
    // A mail that nobody takes is given up after six hours, and not before.
    relay.answers(Some(451));
    let id = ask();
    let mail = || approval(&id)["mails"][0].clone();
    until("it is tried again", || {
        bed.pass(500);
        relay.tries() >= 4
    });
    assert_eq!(mail()["status"], "waiting");
    bed.pass(7 * 3_600_000);
    until("it is given up", || mail()["status"] == "failed");
    assert_eq!(relay.mails().len(), 2);
}

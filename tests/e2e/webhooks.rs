//! Webhooks: verified as their receivers verify them, tried again, and never in anybody's way.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};

use charter_tests::artefacts::Artefacts;
use charter_tests::double::{Heard, Reply, listen};
use charter_tests::patience::until;
use charter_tests::raw::Raw;
use charter_tests::stream::Stream;
use charter_tests::tenant::id;
use charter_tests::world::Builder;
use charter_tests::{Client, Database, Tenant, World, on_both};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::rules::play;

/// A receiver on loopback: what it heard, and what it answers.
struct Receiver {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<Heard>>>,
    status: Arc<AtomicU16>,
    hangs: Arc<AtomicBool>,
}

impl Receiver {
    fn new() -> Self {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (status, hangs) = (Arc::new(AtomicU16::new(200)), Arc::new(AtomicBool::new(false)));
        let (own, answers, hanging) = (heard.clone(), status.clone(), hangs.clone());
        let address = listen(move |request| {
            own.lock().unwrap().push(request);
            while hanging.load(Ordering::SeqCst) {
                std::thread::park_timeout(std::time::Duration::from_millis(20));
            }
            Reply { status: answers.load(Ordering::SeqCst), headers: Vec::new(), body: Vec::new() }
        });
        Self { address, heard, status, hangs }
    }
    fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }
    fn answers(&self, status: u16) {
        self.status.store(status, Ordering::SeqCst);
    }
    fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }
    #[track_caller]
    fn hears(&self, count: usize) -> Vec<Heard> {
        until("the receiver hears", || self.heard().len() >= count);
        self.heard()
    }
}

fn builder() -> Builder {
    Builder::new().bare().environment("CHARTER_EGRESS_ALLOW", "127.0.0.0/8")
}

fn tenant_with_script(world: &World) -> Tenant {
    world.install("script", &Artefacts::get().fixture("script"));
    world.register()
}

fn subscribe(client: &Client, url: &str) -> (String, String) {
    let made = client
        .post("/v1/webhooks", &json!({ "url": url, "eventTypes": ["script.told"] }))
        .expect(201);
    assert_eq!(
        (&made["active"], &made["eventTypes"], &made["url"]),
        (&json!(true), &json!(["script.told"]), &json!(url))
    );
    let text = |member: &str| made[member].as_str().unwrap().to_owned();
    (text("id"), text("secret"))
}

fn say(client: &Client, number: usize) {
    play(client, json!([{ "emit": number.to_string() }])).expect(200);
}

/// Verifies by the public library of Standard Webhooks, and by the header of the specification.
#[track_caller]
pub fn verify(heard: &Heard, secret: &str) -> Value {
    let mut headers = http::HeaderMap::new();
    for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
        headers.insert(name, heard.header(name).unwrap().parse().unwrap());
    }
    standardwebhooks::Webhook::new(secret)
        .unwrap()
        .verify(&heard.body, &headers)
        .expect("a signature that verifies");
    serde_json::from_slice(&heard.body).unwrap()
}

fn own_signature(heard: &Heard, secret: &str) -> String {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(&heard.body);
    mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect()
}

fn deliveries(client: &Client, id: &str) -> Vec<Value> {
    client.get(&format!("/v1/webhooks/{id}/deliveries")).expect(200)["deliveries"]
        .as_array()
        .unwrap()
        .clone()
}

on_both! {
    fn an_event_is_delivered_signed_both_ways(world: builder()) {
        let tenant = tenant_with_script(world);
        let receiver = Receiver::new();
        say(&tenant.client, 0);
        let (id, secret) = subscribe(&tenant.client, &receiver.url());
        say(&tenant.client, 7);
        let heard = receiver.hears(1);
        let body = verify(&heard[0], &secret);
        assert_eq!(heard[0].header("x-service-event"), Some("script.told"));
        assert_eq!(heard[0].header("x-service-signature"), Some(own_signature(&heard[0], &secret).as_str()));
        assert_eq!((&body["event"], &body["data"]["text"]), (&json!("script.told"), &json!("7")), "nothing from before it");
        assert_eq!(body["primitive"], "script");
        assert!(body["ts"].is_i64() && body["data"]["tenant_user_id"] == tenant.user, "{body}");
        until("it is logged", || deliveries(&tenant.client, &id)[0]["status"] == "succeeded");
        let delivery = deliveries(&tenant.client, &id).remove(0);
        assert_eq!(delivery["attempts"][0]["status"], 200);
        // The same again, under the same id.
        let path = format!("/v1/webhooks/{id}/deliveries/{}/redeliver", delivery["id"].as_str().unwrap());
        tenant.client.post(&path, &json!({})).expect(202);
        let heard = receiver.hears(2);
        assert_eq!(heard[0].header("webhook-id"), heard[1].header("webhook-id"));
        assert_eq!(heard[0].body, heard[1].body);
        // And a test of it.
        tenant.client.post(&format!("/v1/webhooks/{id}/test"), &json!({})).expect(202);
        let tested = verify(&receiver.hears(3)[2], &secret);
        assert_eq!((&tested["event"], tested.get("primitive")), (&json!("webhook.test"), Some(&Value::Null)), "{tested}");
        // The secret is shown once.
        let listed = tenant.client.get("/v1/webhooks").expect(200);
        assert_eq!(listed["webhooks"][0]["id"], id);
        assert!(!listed.to_string().contains("whsec_"), "{listed}");
    }

    fn a_failed_delivery_is_tried_again_and_nothing_else_waits(world: builder()) {
        let tenant = tenant_with_script(world);
        let (dead, alive) = (Receiver::new(), Receiver::new());
        dead.hangs.store(true, Ordering::SeqCst);
        let (first, _) = subscribe(&tenant.client, &dead.url());
        let (second, secret) = subscribe(&tenant.client, &alive.url());
        (0..5).for_each(|number| say(&tenant.client, number));
        let heard = alive.hears(5);
        let mut numbers: Vec<i64> = heard.iter().map(|heard| verify(heard, &secret)["data"]["text"].as_str().unwrap().parse::<i64>().unwrap()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2, 3, 4]);
        until("all are logged", || deliveries(&tenant.client, &second).iter().all(|delivery| delivery["status"] == "succeeded"));
        assert!(deliveries(&tenant.client, &first).iter().all(|delivery| delivery["status"] == "pending"));
        dead.hangs.store(false, Ordering::SeqCst);
        dead.answers(500);
        // Those are tried again after five seconds, and taken then.
        let refused = Receiver::new();
        refused.answers(503);
        let (third, secret) = subscribe(&tenant.client, &refused.url());
        say(&tenant.client, 9);
        refused.hears(1);
        refused.answers(204);
        let heard = refused.hears(2);
        assert_eq!(heard[0].header("webhook-id"), heard[1].header("webhook-id"));
        verify(&heard[1], &secret);
        until("the second try is logged", || deliveries(&tenant.client, &third)[0]["status"] == "succeeded");
        let attempts = deliveries(&tenant.client, &third)[0]["attempts"].clone();
        assert_eq!((&attempts[0]["status"], &attempts[1]["status"]), (&json!(503), &json!(204)));
    }

    fn an_endpoint_that_is_gone_is_switched_off_and_all_are_told(world: builder()) {
        let tenant = tenant_with_script(world);
        let (gone, watcher) = (Receiver::new(), Receiver::new());
        gone.answers(410);
        let (id, _) = subscribe(&tenant.client, &gone.url());
        let wish = json!({ "url": watcher.url(), "eventTypes": ["webhook.disabled"] });
        let made = tenant.client.post("/v1/webhooks", &wish).expect(201);
        say(&tenant.client, 1);
        let told = verify(&watcher.hears(1)[0], made["secret"].as_str().unwrap());
        assert_eq!((&told["event"], &told["data"]["webhook_id"]), (&json!("webhook.disabled"), &json!(id)));
        let off = tenant.client.get(&format!("/v1/webhooks/{id}")).expect(200)["webhook"].clone();
        assert_eq!(off["active"], false);
        assert!(off["disabled_reason"].as_str().unwrap().contains("410"), "{off}");
        let logged = || tenant.client.get("/v1/logs?action=webhooks.disable").expect(200)["logs"].as_array().unwrap().len();
        until("it is in the audit log", || logged() == 1);
        let listed = || tenant.client.get("/v1/status").expect(200)["webhooks_switched_off"].clone();
        assert_eq!(listed(), json!([id]));
        say(&tenant.client, 2);
        say(&tenant.client, 3);
        tenant.client.patch(&format!("/v1/webhooks/{id}"), &json!({ "active": true })).expect(200);
        assert_eq!(listed(), json!([]));
        gone.answers(200);
        say(&tenant.client, 4);
        let heard = gone.hears(2);
        let last: Value = serde_json::from_slice(&heard.last().unwrap().body).unwrap();
        assert_eq!(last["data"]["text"], "4", "what happened while it was off is not told");
    }

    fn both_secrets_count_for_a_day(world: builder()) {
        let tenant = tenant_with_script(world);
        let receiver = Receiver::new();
        let (id, old) = subscribe(&tenant.client, &receiver.url());
        let new = tenant.client.post(&format!("/v1/webhooks/{id}/rotate"), &json!({})).expect(200)["secret"].as_str().unwrap().to_owned();
        assert_ne!(old, new);
        say(&tenant.client, 1);
        let heard = receiver.hears(1).remove(0);
        verify(&heard, &old);
        verify(&heard, &new);
        assert_eq!(heard.header("x-service-signature"), Some(own_signature(&heard, &new).as_str()));
        assert_eq!(heard.header("x-service-signature-previous"), Some(own_signature(&heard, &old).as_str()));
    }

    fn every_secret_that_was_handed_out_signs_until_its_day_is_over(world: builder()) {
        let tenant = tenant_with_script(world);
        let receiver = Receiver::new();
        let (id, first) = subscribe(&tenant.client, &receiver.url());
        let path = format!("/v1/webhooks/{id}/rotate");
        let rotate = || tenant.client.post(&path, &json!({})).expect(200)["secret"].as_str().unwrap().to_owned();
        let mut secrets: Vec<String> = std::thread::scope(|scope| {
            let rotating: Vec<_> = (0..8).map(|_| scope.spawn(rotate)).collect();
            rotating.into_iter().map(|rotating| rotating.join().unwrap()).collect()
        });
        secrets.push(first);
        let refused = tenant.client.post(&path, &json!({})).expect_error(409, "state_conflict");
        assert_eq!(refused["reason"], "too_many_secrets");
        assert!(refused["details"]["until"].is_string(), "{refused}");
        say(&tenant.client, 1);
        let heard = receiver.hears(1).remove(0);
        secrets.iter().for_each(|secret| drop(verify(&heard, secret)));
        let named = |name: &str| heard.header(name).unwrap().split(' ').map(str::to_owned).collect::<Vec<_>>();
        let mut own = [named("x-service-signature"), named("x-service-signature-previous")].concat();
        let mut wanted: Vec<String> = secrets.iter().map(|secret| own_signature(&heard, secret)).collect();
        own.sort();
        wanted.sort();
        assert_eq!(own, wanted);
    }

    fn what_a_deleted_user_did_is_delivered_and_told_no_more(world: builder()) {
        let tenant = tenant_with_script(world);
        let (gone, stays) = (tenant.user("gone"), tenant.user("stays"));
        let receiver = Receiver::new();
        let (id, _) = subscribe(&tenant.client, &receiver.url());
        let stream = || {
            let call = tenant.client.call("GET", "/v1/events").header("accept", "text/event-stream");
            Stream::open(call.header("last-event-id", "0"))
        };
        let told = || {
            let told = stream().next_of("script.told");
            serde_json::from_str::<Value>(&told.data).unwrap()["payload"].clone()
        };
        say(&tenant.client.with("X-Service-User-Id", &gone), 1);
        say(&tenant.client.with("X-Service-User-Id", &stays), 2);
        receiver.hears(2);
        until("both are logged", || deliveries(&tenant.client, &id).iter().all(|one| one["status"] == "succeeded"));
        let before = deliveries(&tenant.client, &id);
        assert_eq!((before.len(), told()), (2, json!({ "text": "1" })));
        tenant.client.delete(&format!("/v1/users/{gone}")).expect(200);
        until("its delivery goes", || deliveries(&tenant.client, &id).len() == 1);
        let path = |of: &Value| format!("/v1/webhooks/{id}/deliveries/{}/redeliver", of["id"].as_str().unwrap());
        let kept = deliveries(&tenant.client, &id).remove(0);
        let lost = before.iter().find(|one| one["id"] != kept["id"]).unwrap();
        tenant.client.post(&path(lost), &json!({})).expect_error(404, "not_found");
        tenant.client.post(&path(&kept), &json!({})).expect(202);
        let body: Value = serde_json::from_slice(&receiver.hears(3)[2].body).unwrap();
        assert_eq!(body["data"], json!({ "text": "2", "tenant_user_id": stays }));
        // The event keeps its place in the stream, and says nothing.
        until("its payload goes", || told() == Value::Null);
    }

    fn a_tenants_webhook_hears_that_tenant_alone(world: builder()) {
        let tenant = tenant_with_script(world);
        let (one, two) = (tenant.user("one"), tenant.user("two"));
        let receiver = Receiver::new();
        let wish = json!({ "url": receiver.url(), "eventTypes": ["*"] });
        let made = tenant.client.post(&format!("/v1/users/{one}/webhooks"), &wish).expect(201);
        assert_eq!(made["tenant_user_id"], one);
        say(&tenant.client.with("X-Service-User-Id", &two), 2);
        say(&tenant.client.with("X-Service-User-Id", &one), 1);
        let body = verify(&receiver.hears(1)[0], made["secret"].as_str().unwrap());
        assert_eq!((&body["data"]["text"], &body["data"]["tenant_user_id"]), (&json!("1"), &json!(one)));
        let id = made["id"].as_str().unwrap();
        tenant.client.get(&format!("/v1/users/{two}/webhooks/{id}")).expect_error(404, "not_found");
        assert_eq!(tenant.client.get(&format!("/v1/users/{two}/webhooks")).expect(200)["webhooks"], json!([]));
        world.register().client.get(&format!("/v1/webhooks/{id}")).expect_error(404, "not_found");
        tenant.client.delete(&format!("/v1/users/{one}")).expect(200);
        until("it ends with its tenant", || tenant.client.get(&format!("/v1/webhooks/{id}")).status == 404);
    }

    fn who_is_pinned_makes_twenty_and_leaves_the_others_theirs(world: builder()) {
        let tenant = tenant_with_script(world);
        let (one, two) = (tenant.user("one"), tenant.user("two"));
        let pinned = |pin: Value| tenant.key(pin);
        let (of_user, of_project) = (
            pinned(json!({ "role": "developer", "user_id": one })),
            pinned(json!({ "role": "developer", "project_id": tenant.project })),
        );
        let wish = json!({ "url": "http://127.0.0.1:9/", "eventTypes": ["script.told"] });
        let make = |client: &Client| client.post("/v1/webhooks", &wish);
        let ids: Vec<String> = (0..20).map(|_| id(&make(&of_user).expect(201))).collect();
        let refused = make(&of_user).expect_error(409, "state_conflict");
        assert!(refused["message"].as_str().unwrap().contains("project or user"), "{refused}");
        // Another user's key, and whoever is pinned to nothing, make theirs.
        make(&pinned(json!({ "role": "developer", "user_id": two }))).expect(201);
        make(&tenant.client).expect(201);
        // A project's keys count what is in the project.
        make(&of_project).expect_error(409, "state_conflict");
        // So they do whichever user of it they name.
        of_project.post(&format!("/v1/users/{two}/webhooks"), &wish).expect_error(409, "state_conflict");
        // One that is gone makes room for another.
        of_user.delete(&format!("/v1/webhooks/{}", ids[0])).expect(200);
        make(&of_user).expect(201);
    }

    fn a_key_that_was_used_of_somebody_else_is_another_requests(world: builder()) {
        let tenant = tenant_with_script(world);
        let wish = json!({ "url": "http://127.0.0.1:9/", "eventTypes": ["script.told"] });
        let make = |path: &str| tenant.client.call("POST", path).idempotency_key("once").json(&wish).send();
        let first = make("/v1/webhooks");
        let answered = first.expect(201);
        assert_eq!((&answered["project_id"], &answered["tenant_user_id"]), (&Value::Null, &Value::Null));
        make("/v1/users/default/webhooks").expect_error(409, "duplicate_request");
        make(&format!("/v1/projects/{}/webhooks", tenant.project)).expect_error(409, "duplicate_request");
        assert_eq!(make("/v1/webhooks").body, first.body);
    }

    fn large_events_come_to_many_webhooks_and_delay_nobody_for_good(world: builder()) {
        let tenant = tenant_with_script(world);
        let receiver = Receiver::new();
        let wish = json!({ "url": receiver.url(), "eventTypes": ["script.told"] });
        for _ in 0..40 {
            tenant.client.post("/v1/webhooks", &wish).expect(201);
        }
        let events = 4;
        let large = vec![json!({ "emit": "\"".repeat(29_800) }); events];
        play(&tenant.client, large.into()).expect(200);
        // Each is 120 kB as it is kept: one event to forty webhooks is more than one commit takes.
        let heard = receiver.hears(40 * events);
        let told: std::collections::BTreeSet<_> = heard.iter().map(|one| one.header("webhook-id").map(str::to_owned)).collect();
        assert!(told.len() >= events, "each is told, and none lost for another told twice: {told:?}");
    }

    fn what_is_asked_for_is_checked(world: builder()) {
        let tenant = tenant_with_script(world);
        let bad = |wish: Value| tenant.client.post("/v1/webhooks", &wish).expect_error(400, "invalid_input")["param"].clone();
        assert_eq!(bad(json!({ "url": "http://127.0.0.1/", "eventTypes": ["no.such"] })), "eventTypes.0");
        assert_eq!(bad(json!({ "url": "ftp://127.0.0.1/", "eventTypes": ["script.told"] })), "url");
        assert_eq!(bad(json!({ "url": "http://169.254.169.254/latest", "eventTypes": ["script.told"] })), "url");
        assert_eq!(bad(json!({ "url": "http://[::1]/", "eventTypes": ["script.told"] })), "url");
        assert_eq!(bad(json!({ "url": "http://10.0.0.1/", "eventTypes": [] })), "eventTypes");
        let own = world.server().client().base().to_owned();
        assert_eq!(bad(json!({ "url": own, "eventTypes": ["script.told"] })), "url");
        let types = tenant.client.get("/v1/webhooks/event-types").expect(200);
        let names: Vec<&str> = types["event_types"].as_array().unwrap().iter().map(|kind| kind["name"].as_str().unwrap()).collect();
        assert!(["approval.resolved", "script.told", "webhook.disabled"].iter().all(|name| names.contains(name)), "{names:?}");
    }

    fn what_is_being_delivered_when_a_host_drains_is_delivered_once(world: builder()) {
        let tenant = tenant_with_script(world);
        let receiver = Receiver::new();
        receiver.hangs.store(true, Ordering::SeqCst);
        let (id, _) = subscribe(&tenant.client, &receiver.url());
        say(&tenant.client, 1);
        receiver.hears(1);
        let address = world.server().address().to_owned();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                until("it drains", || Raw::connect(&address).is_err());
                receiver.hangs.store(false, Ordering::SeqCst);
            });
            world.stop();
        });
        world.start();
        let client = tenant.client.at(world.server().address());
        let told = &deliveries(&client, &id)[0];
        assert_eq!(told["status"], "succeeded", "{told}");
        say(&client, 2);
        assert_eq!(receiver.hears(2).len(), 2);
        until("both are delivered", || deliveries(&client, &id).iter().all(|told| told["status"] == "succeeded"));
        assert_eq!(receiver.heard().len(), 2);
    }

    fn what_was_to_be_delivered_survives_a_crash(world: builder()) {
        let tenant = tenant_with_script(world);
        let receiver = Receiver::new();
        receiver.hangs.store(true, Ordering::SeqCst);
        let (_, secret) = subscribe(&tenant.client, &receiver.url());
        (0..4).for_each(|number| say(&tenant.client, number));
        world.kill();
        receiver.hangs.store(false, Ordering::SeqCst);
        world.start();
        let told = || {
            let mut numbers: Vec<i64> =
                receiver.heard().iter().map(|heard| verify(heard, &secret)["data"]["text"].as_str().unwrap().parse::<i64>().unwrap()).collect();
            numbers.sort_unstable();
            numbers.dedup();
            numbers
        };
        until("each was delivered at least once", || told() == [0, 1, 2, 3]);
    }
}

#[test]
fn two_replicas_deliver_each_event_once() {
    let world = builder().start(Database::Postgresql);
    let tenant = tenant_with_script(&world);
    let (other, _data) = world.replica();
    let receiver = Receiver::new();
    let (id, secret) = subscribe(&tenant.client, &receiver.url());
    let elsewhere = tenant.at(other.client().base());
    std::thread::scope(|scope| {
        for client in [&tenant.client, &elsewhere.client] {
            scope.spawn(move || (0..20).for_each(|number| say(client, number)));
        }
    });
    until("all are delivered", || {
        let all = tenant.client.get(&format!("/v1/webhooks/{id}/deliveries?limit=100")).expect(200);
        let all = all["deliveries"].as_array().unwrap().clone();
        all.len() == 40 && all.iter().all(|delivery| delivery["status"] == "succeeded")
    });
    let heard = receiver.heard();
    heard.iter().for_each(|heard| drop(verify(heard, &secret)));
    assert_eq!(heard.len(), 40, "no event is delivered twice while nothing fails");
}

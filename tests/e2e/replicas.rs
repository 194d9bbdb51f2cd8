//! Several servers on one PostgreSQL: what one is told holds on the others.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use charter_tests::artefacts::{Artefacts, Folder};
use charter_tests::patience::{Over, look_for};
use charter_tests::server::Server;
use charter_tests::tenant::id;
use charter_tests::world::Builder;
use charter_tests::{Client, Database, Tenant, World};
use serde_json::json;

/// A change of the deployment is served everywhere within this; the promise is half a second, and
/// the machine is busy.
const BOUND: Duration = Duration::from_secs(10);

/// Two servers that tests share.
struct Pair {
    world: World,
    second: Server,
    _folder: Folder,
}

fn pair() -> &'static Pair {
    static PAIR: OnceLock<Pair> = OnceLock::new();
    PAIR.get_or_init(|| {
        let world = Builder::new().start(Database::Postgresql);
        let (second, _folder) = world.replica();
        Pair { world, second, _folder }
    })
}

impl Pair {
    /// A new organization, as the first and as the second server's client.
    fn register(&self) -> (Tenant, Tenant) {
        let tenant = self.world.register();
        let there = tenant.at(self.second.address());
        (tenant, there)
    }
}

#[test]
fn a_key_revoked_on_one_does_nothing_on_the_other_from_the_next_request_on() {
    let (here, there) = pair().register();
    for round in 0..10 {
        let made = here
            .client
            .post("/v1/auth/keys", &json!({"name": format!("k{round}"), "role": "admin"}))
            .expect(201);
        let key = made["key"].as_str().unwrap();
        let other = there.client.bearer(key);
        // The other server knows the key, and has it in whatever it keeps in memory.
        other.get("/v1/organization").expect(200);
        other.post("/v1/users", &json!({"name": "before"})).expect(201);
        other.post("/v1/queue", &json!({"name": format!("before {round}")})).expect(201);
        here.client.delete(&format!("/v1/auth/keys/{}", id(&made))).expect(200);
        let late = if round % 2 == 0 { "/v1/users" } else { "/v1/queue" };
        if round % 3 == 0 {
            other.get("/v1/organization").expect_error(401, "unauthorized");
        }
        other.post(late, &json!({"name": "after"})).expect_error(401, "unauthorized");
        other.get("/v1/organization").expect_error(401, "unauthorized");
    }
}

#[test]
fn of_two_rotations_by_one_operators_token_one_is_made_and_ends_it_everywhere() {
    let mut world = Builder::new().bare().start(Database::Postgresql);
    // A token that the configuration gives is changed there.
    world.options().environment.retain(|(name, _)| name != "CHARTER_OPERATOR_TOKEN");
    world.stop();
    world.start();
    let (second, _folder) = world.replica();
    let rotate = |client: &Client| client.call("POST", "/v1/operator/token/rotate").send();
    let mut here = world.operator();
    for _ in 0..5 {
        let there = here.at(second.address());
        let mut answers = std::thread::scope(|scope| {
            let other = scope.spawn(|| rotate(&there));
            [rotate(&here), other.join().unwrap()]
        });
        answers.sort_by_key(|answer| answer.status);
        answers[1].expect_error(401, "unauthorized");
        for former in [&here, &there] {
            former.get("/v1/operator/components").expect_error(401, "unauthorized");
            rotate(former).expect_error(401, "unauthorized");
        }
        let renewed = here.bearer(answers[0].expect(200)["token"].as_str().unwrap());
        renewed.at(second.address()).get("/v1/operator/components").expect(200);
        renewed.get("/v1/operator/components").expect(200);
        here = renewed;
    }
}

#[test]
fn a_user_revoked_on_one_changes_nothing_on_the_other_from_the_next_request_on() {
    let (here, there) = pair().register();
    let user = here.user("agent");
    let path = format!("/v1/users/{user}");
    let create =
        |name: String| there.client.post(&format!("{path}/queue"), &json!({ "name": name }));
    for round in 0..10 {
        create(format!("before {round}")).expect(201);
        here.client.post(&format!("{path}/revoke"), &json!({})).expect(200);
        assert_eq!(
            create(format!("after {round}")).expect_error(403, "forbidden")["reason"],
            "profile_revoked"
        );
        here.client.post(&format!("{path}/restore"), &json!({})).expect(200);
    }
    assert_eq!(
        here.client.get(&format!("{path}/queue?limit=100")).expect(200)["queues"]
            .as_array()
            .unwrap()
            .len(),
        10
    );
}

#[test]
fn a_key_revoked_and_a_kit_changed_on_one_end_reads_on_the_other_at_once() {
    let (here, there) = pair().register();
    let kit = here.kit("gated", json!({"queue": {"enabled": true}}));
    let user = here.user_with_kit("agent", &kit);
    for enabled in [true, false, true, false] {
        here.client
            .patch(
                &format!("/v1/kits/{kit}"),
                &json!({"primitives": {"queue": {"enabled": enabled}}}),
            )
            .expect(200);
        let wanted = if enabled { 200 } else { 403 };
        assert_eq!(there.client.get(&format!("/v1/users/{user}/queue")).status, wanted);
    }
    let made = here.client.post("/v1/auth/keys", &json!({"name": "reads"})).expect(201);
    let other = there.client.bearer(made["key"].as_str().unwrap());
    other.get("/v1/organization").expect(200);
    here.client.delete(&format!("/v1/auth/keys/{}", id(&made))).expect(200);
    other.get("/v1/organization").expect_error(401, "unauthorized");
}

#[test]
fn an_idempotency_key_answered_by_one_is_replayed_by_the_other() {
    let (here, there) = pair().register();
    let ask = |client: &Client| {
        client
            .call("POST", "/v1/queue")
            .idempotency_key("anywhere")
            .json(&json!({"name": "q"}))
            .send()
    };
    let (first, second) = (ask(&here.client), ask(&there.client));
    assert_eq!((first.status, &first.body), (second.status, &second.body), "{second}");
    assert_eq!(second.header("idempotent-replayed"), Some("true"), "{second}");
    assert_eq!(here.client.get("/v1/queue").expect(200)["queues"].as_array().unwrap().len(), 1);
}

#[test]
fn a_receive_that_waits_on_one_gets_what_is_sent_on_the_other() {
    let (here, there) = pair().register();
    let queue = id(&here.client.post("/v1/queue", &json!({"name": "across"})).expect(201)["queue"]);
    let path = format!("/v1/queue/{queue}");
    for round in 0..3 {
        let wait = json!({"wait_seconds": 20});
        std::thread::scope(|scope| {
            let began = Instant::now();
            let waiting =
                scope.spawn(|| there.client.post(&format!("{path}/receive"), &wait).expect(200));
            // It may begin to wait before or after the send: it must come either way, and long
            // before its wait is over.
            here.client
                .post(&format!("{path}/messages"), &json!({"messages": [{"body": round}]}))
                .expect(201);
            let got = waiting.join().unwrap();
            assert_eq!(got["messages"][0]["body"], round, "{got}");
            assert!(
                began.elapsed() < Duration::from_secs(15),
                "it came after {:?}",
                began.elapsed()
            );
        });
    }
}

#[test]
fn one_hot_queue_drained_from_both_hands_no_message_out_twice() {
    const MESSAGES: usize = 200;
    let (here, there) = pair().register();
    let queue = id(&here
        .client
        .post("/v1/queue", &json!({"name": "hot", "visibility_timeout_seconds": 600}))
        .expect(201)["queue"]);
    let path = format!("/v1/queue/{queue}");
    let handed: Mutex<BTreeMap<u64, u32>> = Mutex::default();
    let (sent, got) = (AtomicBool::new(false), AtomicU32::new(0));
    std::thread::scope(|scope| {
        let all = Over(&sent);
        for client in [&here.client, &there.client, &here.client, &there.client] {
            scope.spawn(|| {
                loop {
                    let over = sent.load(Ordering::SeqCst);
                    let answer = client
                        .post(&format!("{path}/receive"), &json!({"max_messages": 5}))
                        .expect(200);
                    let messages = answer["messages"].as_array().unwrap();
                    for message in messages {
                        *handed
                            .lock()
                            .unwrap()
                            .entry(message["body"].as_u64().unwrap())
                            .or_default() += 1;
                        got.fetch_add(1, Ordering::SeqCst);
                    }
                    if over && messages.is_empty() {
                        break;
                    }
                }
            });
        }
        for start in (0..MESSAGES).step_by(10) {
            let messages: Vec<_> = (start..start + 10).map(|n| json!({ "body": n })).collect();
            let client = if start % 20 == 0 { &here.client } else { &there.client };
            client.post(&format!("{path}/messages"), &json!({ "messages": messages })).expect(201);
        }
        drop(all);
    });
    let handed = handed.into_inner().unwrap();
    let twice: Vec<_> = handed.iter().filter(|(_, count)| **count > 1).collect();
    assert!(twice.is_empty(), "handed out twice: {twice:?}");
    assert_eq!(handed.len(), MESSAGES);
}

#[test]
fn a_version_that_does_not_fit_what_is_set_of_one_replica_is_activated_on_none() {
    let mut world = Builder::new().bare().start(Database::Postgresql);
    world.install("probe", &Artefacts::get().probe(900_001));
    world
        .options()
        .environment
        .push(("CHARTER_PRIMITIVES_PROBE".into(), r#"{"only_900001": 1}"#.into()));
    let (second, _folder) = world.replica();
    let refused = world
        .upload("probe", &Artefacts::get().probe(900_002), true)
        .expect_error(409, "state_conflict");
    assert_eq!(refused["reason"], "replica_cannot_load");
    let told = refused["message"].as_str().unwrap();
    assert!(
        told.contains("cannot load") && told.contains("primitives.probe.only_900001"),
        "{told}"
    );
    let tenant = world.register();
    for client in [&tenant.client, &tenant.at(second.address()).client] {
        assert_eq!(client.get("/v1/probe").expect(200)["build"], "900001");
    }
}

#[test]
fn a_version_activated_or_rolled_back_on_one_is_served_by_the_other() {
    let world = Builder::new().bare().start(Database::Postgresql);
    let (second, _folder) = world.replica();
    world.install("probe", &Artefacts::get().probe(900_001));
    let tenant = world.register();
    let there = tenant.at(second.address());
    let serves = |client: &Client, build: &str| {
        look_for(BOUND, &format!("{build} is served"), || {
            let answer = client.get("/v1/probe");
            // Until it has heard of the first one there is no such route; afterwards no request
            // fails.
            if answer.status == 200 && answer.json()["build"] == build {
                Ok(())
            } else {
                Err(answer)
            }
        });
    };
    serves(&there.client, "900001");
    world.install("probe", &Artefacts::get().probe(900_002));
    serves(&there.client, "900002");
    serves(&tenant.client, "900002");
    let operator = world.operator().at(second.address());
    operator.post("/v1/operator/components/probe/rollback", &json!({})).expect(200);
    serves(&there.client, "900001");
    serves(&tenant.client, "900001");
}

#[test]
fn who_asks_on_two_at_once_under_one_key_is_answered_what_was_done_by_both() {
    for _ in 0..8 {
        let (here, there) = pair().register();
        let made = here.client.post("/v1/cards", &json!({})).expect(201);
        pair().world.fund(&here, 500);
        // All the credit there is: for the second of two there is none left.
        let top_up = |client: &Client| {
            let path = format!("/v1/cards/{}/top-up", id(&made["card"]));
            let call = client.call("POST", &path).json(&json!({"amount_cents": 500}));
            call.idempotency_key("once").send()
        };
        let answers = std::thread::scope(|scope| {
            let other = scope.spawn(|| top_up(&there.client));
            [top_up(&here.client), other.join().unwrap()]
        });
        for answer in &answers {
            assert!(matches!(answer.status, 200 | 409), "{answer}");
        }
        top_up(&here.client).expect(200);
        top_up(&there.client).expect(200);
    }
}

//! `kill -9` under load: every answered mutation is there, none is there twice, nothing is half
//! there.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use charter_tests::artefacts::Artefacts;
use charter_tests::patience::{Over, PATIENCE, look_for, until};
use charter_tests::world::Builder;
use charter_tests::{Client, on_both};
use serde_json::{Value, json};

const KILLS: u32 = 5;
const WRITERS: u32 = 6;
/// Answers that must have come before the next kill.
const BETWEEN: u32 = 25;

on_both! {
    fn what_was_answered_is_there_once_and_whole(world: Builder::new().bare()) {
        world.install("probe", &Artefacts::get().fixture("probe"));
        let tenant = world.register();
        let answered = Mutex::new(BTreeSet::new());
        let next = AtomicU32::new(0);
        for _ in 0..KILLS {
            let client = tenant.client.at(world.server().address());
            let (dead, done) = (AtomicBool::new(false), AtomicU32::new(0));
            std::thread::scope(|scope| {
                let writing = Over(&dead);
                for _ in 0..WRITERS {
                    scope.spawn(|| {
                        while !dead.load(Ordering::Relaxed) {
                            let name = format!("pair-{}", next.fetch_add(1, Ordering::Relaxed));
                            let call = client.call("POST", "/v1/probe/pairs").json(&json!({"name": name})).idempotency_key(&name);
                            if call.attempt().is_ok_and(|answer| answer.status == 201) {
                                answered.lock().unwrap().insert(name);
                                done.fetch_add(1, Ordering::Relaxed);
                            }
                        }
                    });
                }
                until("pairs are answered", || done.load(Ordering::Relaxed) >= BETWEEN);
                world.kill();
                drop(writing);
            });
            world.start();
        }
        let client = tenant.client.at(world.server().address());
        let pairs = client.get("/v1/probe/pairs").expect(200);
        let side = |side: &str| -> Vec<String> {
            pairs[side].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect()
        };
        let (left, right) = (side("left"), side("right"));
        let unique: BTreeSet<String> = left.iter().cloned().collect();
        assert_eq!(left.len(), unique.len(), "a mutation happened twice");
        assert_eq!(unique, right.into_iter().collect(), "a mutation is half there");
        let answered = answered.into_inner().unwrap();
        let lost: Vec<_> = answered.difference(&unique).collect();
        assert!(lost.is_empty(), "answered and gone: {lost:?}");
        // Asking again with the same key is the same answer, and no second pair.
        for name in answered.iter().rev().take(10) {
            let again = client.call("POST", "/v1/probe/pairs").json(&json!({"name": name})).idempotency_key(name).send();
            again.expect(201);
            assert_eq!(again.header("idempotent-replayed"), Some("true"), "{again}");
        }
    }
}

/// The messages of one queue, as far as they are known.
#[derive(Default)]
struct Messages {
    /// Sent, and answered.
    sent: BTreeSet<String>,
    /// Acknowledged, and answered.
    done: BTreeSet<String>,
    /// Acknowledged, and the answer never came: done or not.
    unsure: BTreeSet<String>,
    /// Received after it was done.
    back: BTreeSet<String>,
}

/// Receives what there is and acknowledges it.
fn work(client: &Client, queue: &str, messages: &Mutex<Messages>) -> bool {
    let asked = Instant::now();
    let done = messages.lock().unwrap().done.clone();
    let body = json!({ "max_messages": 10, "visibility_timeout_seconds": 2 });
    let Ok(received) = client.call("POST", &format!("{queue}/receive")).json(&body).attempt()
    else {
        return false;
    };
    if received.status != 200 {
        return false;
    }
    for message in received.json()["messages"].as_array().unwrap() {
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        let (id, name) = (text(&message["id"]), text(&message["body"]));
        if done.contains(&name) {
            messages.lock().unwrap().back.insert(name.clone());
        }
        let ack = client.call("POST", &format!("{queue}/messages/{id}/ack"));
        let answer = ack.json(&json!({ "receipt": message["receipt"] })).attempt();
        let mut messages = messages.lock().unwrap();
        match answer {
            Ok(answer) if answer.status == 200 => {
                assert!(messages.done.insert(name.clone()), "{name} was acknowledged twice")
            }
            // A receipt is stale only once its time-out has passed.
            Ok(answer) if answer.status == 409 => {
                assert!(
                    asked.elapsed() > Duration::from_millis(1_900),
                    "a fresh receipt is stale: {answer}"
                );
            }
            Ok(answer) => assert_eq!(answer.status, 503, "{answer}"),
            Err(_) => drop(messages.unsure.insert(name)),
        }
    }
    true
}

on_both! {
    fn no_message_is_lost_and_none_that_was_acknowledged_comes_back(world: Builder::new()) {
        let tenant = world.register();
        let queue = tenant.client.post("/v1/queue", &json!({ "name": "work" })).expect(201)["queue"]["id"].clone();
        let queue = format!("/v1/queue/{}", queue.as_str().unwrap());
        let messages = Mutex::new(Messages::default());
        let next = AtomicU32::new(0);
        for _ in 0..KILLS {
            let client = tenant.client.at(world.server().address());
            let (dead, done) = (AtomicBool::new(false), AtomicU32::new(0));
            std::thread::scope(|scope| {
                let working = Over(&dead);
                for _ in 0..3 {
                    scope.spawn(|| {
                        while !dead.load(Ordering::Relaxed) {
                            let name = format!("message-{}", next.fetch_add(1, Ordering::Relaxed));
                            let body = json!({ "messages": [{ "body": name, "dedupe_key": name }] });
                            // Sent again after an answer that never came: the dedupe key makes it
                            // one message. Once the server is gone the name is left behind, sent or
                            // not.
                            for _ in 0..2 {
                                let sent = client.call("POST", &format!("{queue}/messages")).json(&body).attempt();
                                if sent.is_ok_and(|answer| answer.status == 201) {
                                    messages.lock().unwrap().sent.insert(name);
                                    done.fetch_add(1, Ordering::Relaxed);
                                    break;
                                }
                            }
                        }
                    });
                    scope.spawn(|| {
                        while !dead.load(Ordering::Relaxed) {
                            work(&client, &queue, &messages);
                        }
                    });
                }
                let acknowledged = || messages.lock().unwrap().done.len() as u32;
                let before = acknowledged();
                until("messages are sent and acknowledged", || {
                    done.load(Ordering::Relaxed) >= BETWEEN && acknowledged() >= before + BETWEEN
                });
                world.kill();
                drop(working);
            });
            world.start();
        }
        // The rest is worked off; messages that a dead worker held come again after their time-out.
        let client = tenant.client.at(world.server().address());
        look_for(PATIENCE, "every message is handed out and done with", || {
            assert!(work(&client, &queue, &messages), "the queue does not answer");
            let shown = client.get(&queue).expect(200)["queue"].clone();
            if shown["depth"] == 0 && shown["in_flight"] == 0 { Ok(()) } else { Err(shown) }
        });
        let messages = messages.into_inner().unwrap();
        assert_eq!(messages.back, BTreeSet::new(), "acknowledged, and came back");
        let lost: Vec<_> =
            messages.sent.iter().filter(|name| !messages.done.contains(*name) && !messages.unsure.contains(*name)).collect();
        assert!(lost.is_empty(), "sent, answered and never received: {lost:?}");
    }
}

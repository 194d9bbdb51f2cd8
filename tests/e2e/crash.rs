//! `kill -9` under load: every answered mutation is there, none is there twice, nothing is half there.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use charter_tests::artefacts::Artefacts;
use charter_tests::on_both;
use charter_tests::world::Builder;
use serde_json::json;

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
                while done.load(Ordering::Relaxed) < BETWEEN {
                    std::thread::yield_now();
                }
                world.kill();
                dead.store(true, Ordering::Relaxed);
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

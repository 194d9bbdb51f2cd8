//! The rules of the request's transaction, each through the front door: a fixture plays scripts of
//! host calls, and what is left afterwards is looked at as a client would.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use charter_tests::artefacts::Artefacts;
use charter_tests::double::{self, Reply};
use charter_tests::patience::{Over, until};
use charter_tests::raw::Raw;
use charter_tests::tenant::id;
use charter_tests::world::Builder;
use charter_tests::{Answer, Client, Database, Tenant, World, on_both};
use serde_json::{Value, json};

use crate::members::join;

fn builder() -> Builder {
    Builder::new().environment("CHARTER_EGRESS_ALLOW", "127.0.0.0/8")
}

/// The deployment that plays scripts.
fn stage(database: Database) -> &'static World {
    static SQLITE: OnceLock<World> = OnceLock::new();
    static POSTGRESQL: OnceLock<World> = OnceLock::new();
    let stage = match database {
        Database::Sqlite => &SQLITE,
        Database::Postgresql => &POSTGRESQL,
    };
    stage.get_or_init(|| {
        let world = builder().start(database);
        world.install("script", &Artefacts::get().fixture("script"));
        world
    })
}

/// A deployment of its own that plays scripts, for what ends it.
fn tenant_with_script(world: &World) -> Tenant {
    world.install("script", &Artefacts::get().fixture("script"));
    world.register()
}

pub fn play(client: &Client, steps: Value) -> Answer {
    client.post("/v1/script", &json!({ "steps": steps }))
}

/// The answers that the steps saw.
#[track_caller]
pub fn sights(answer: &Answer) -> Vec<Value> {
    answer.expect(200)["seen"].as_array().unwrap().clone()
}

/// The notes of a kind.
fn notes(client: &Client, kind: &str) -> Vec<Value> {
    let listed = client.get("/v1/script/notes").expect(200);
    listed["notes"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|note| note["kind"] == kind)
        .cloned()
        .collect()
}

fn items(client: &Client) -> u64 {
    client.get("/v1/script/notes").expect(200)["items"].as_u64().unwrap()
}

/// Whether scripts have opened such an account of the organization's.
pub fn is_open(client: &Client, account: &str) -> bool {
    let steps = json!({ "steps": [{ "try": { "balance": account } }] });
    sights(&client.post("/v1/script/rule", &steps))[0]["posted"].is_number()
}

/// Plays `steps` on a thread, and runs `meanwhile` once an item was taken: the script is then in
/// its middle.
fn interrupt(client: &Client, steps: Value, meanwhile: impl FnOnce()) -> Answer {
    let before = items(client);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| play(client, steps));
        until("the script takes an item", || items(client) < before);
        meanwhile();
        running.join().unwrap()
    })
}

/// A provider that counts its requests and answers each with 200.
pub fn peer(world: &World, tenant: &Tenant) -> Arc<AtomicU32> {
    patient_peer(world, tenant, Arc::new(AtomicBool::new(true)))
}

/// The same, which answers once `open` says so: until then the script that asks it waits.
fn patient_peer(world: &World, tenant: &Tenant, open: Arc<AtomicBool>) -> Arc<AtomicU32> {
    let count = Arc::new(AtomicU32::new(0));
    let counting = count.clone();
    let address = double::listen(move |_| {
        counting.fetch_add(1, Ordering::SeqCst);
        while !open.load(Ordering::SeqCst) {
            std::thread::park_timeout(std::time::Duration::from_millis(10));
        }
        Reply { status: 200, headers: Vec::new(), body: b"{}".to_vec() }
    });
    let binding = json!({
        "kind": "http", "url": format!("http://{address}"), "options": {},
        "scope": { "organization": tenant.organization },
    });
    let bound = world.operator().put("/v1/operator/providers/script.peer", &binding);
    assert!(matches!(bound.status, 200 | 201), "{bound}");
    count
}

on_both! {
    in stage;

    fn a_refusal_and_a_trap_leave_no_document(world) {
        let tenant = world.register();
        let refused = play(&tenant.client, json!([{ "note": "note" }, { "emit": "x" }, { "refuse": "state_conflict" }]));
        assert_eq!(refused.expect_error(409, "state_conflict")["reason"], "script");
        play(&tenant.client, json!([{ "note": "note" }, { "trap": 1 }])).expect_error(500, "internal_error");
        assert_eq!(notes(&tenant.client, "note").len(), 0);
    }

    fn what_a_refused_request_told_stays_and_what_a_trapped_one_told_does_not(world) {
        let tenant = world.register();
        let rows = || tenant.client.get("/v1/usage").expect(200)["usage"]["audit_rows"].as_u64().unwrap();
        // A row is numbered a moment after its answer, the registration's own too: what is counted
        // from has to stand first.
        until("the registration's row is numbered", || rows() == 1);
        play(&tenant.client, json!([{ "audit": "script.looked" }, { "refuse": "state_conflict" }])).expect_error(409, "state_conflict");
        // The primitive's own row, and the host's for the refusal.
        until("both rows are numbered", || rows() == 3);
        play(&tenant.client, json!([{ "audit": "script.looked" }, { "trap": 1 }])).expect_error(500, "internal_error");
        play(&tenant.client, json!([{ "audit": "script.looked" }])).expect(200);
        until("the trap left one row, the success two", || rows() >= 6);
        assert_eq!(rows(), 6);
    }

    fn a_value_that_two_want_goes_to_one_and_the_other_is_told_by_the_guest(world) {
        let tenant = world.register();
        // A request that finds the slug taken says so itself; one that loses the race is run again,
        // finds it taken, and says the same.
        let wish = || play(&tenant.client, json!([{ "try": { "note": "note", "slug": "one" } }]));
        let all: Vec<Value> = std::thread::scope(|scope| {
            let running: Vec<_> = (0..8).map(|_| scope.spawn(wish)).collect();
            running.into_iter().flat_map(|one| sights(&one.join().unwrap())).collect()
        });
        assert_eq!(all.iter().filter(|said| said.is_string()).count(), 1, "{all:?}");
        assert_eq!(all.iter().filter(|said| said["failure"] == "duplicate_record").count(), 7, "{all:?}");
        assert_eq!(notes(&tenant.client, "note").len(), 1);
    }

    fn what_was_read_is_validated_at_the_commit(world) {
        let tenant = world.register();
        play(&tenant.client, json!([{ "items": 1 }])).expect(200);
        let steps = json!([{ "attempt": 1 }, { "count": "note" }, { "take": 1 }, { "sleep_ms": 700 }, { "note": "note" }]);
        let answer = interrupt(&tenant.client, steps, || {
            play(&tenant.client, json!([{ "note": "note" }])).expect(200);
        });
        let seen = sights(&answer);
        // It was run again, and its second run counted what had come between; what it took is the
        // same, and taken once.
        assert_eq!((&seen[0], &seen[1]), (&json!(2), &json!(1)), "{answer}");
        assert_eq!(seen[2].as_array().unwrap().len(), 1);
        assert_eq!(items(&tenant.client), 0);
    }

    fn after_a_checkpoint_nothing_is_run_again_and_what_was_committed_stays(world) {
        let tenant = world.register();
        play(&tenant.client, json!([{ "items": 1 }])).expect(200);
        let steps = json!([
            { "note": "note", "slug": "before" }, { "checkpoint": 1 }, { "count": "note" }, { "take": 1 }, { "sleep_ms": 700 },
            { "note": "note", "slug": "after" },
        ]);
        let answer = interrupt(&tenant.client, steps, || {
            play(&tenant.client, json!([{ "note": "note", "slug": "between" }])).expect(200);
        });
        assert_eq!(answer.expect_error(409, "state_conflict")["reason"], "EFFECT_WITHOUT_RECORD");
        let slugs: Vec<_> = notes(&tenant.client, "note").into_iter().map(|note| note["slug"].clone()).collect();
        assert!(slugs.len() == 2 && !slugs.contains(&json!("after")), "{slugs:?}");
    }

    fn a_request_that_has_only_read_outside_is_run_again_and_one_that_has_acted_is_not(world) {
        let tenant = world.register();
        let calls = peer(world, &tenant);
        play(&tenant.client, json!([{ "items": 2 }])).expect(200);
        let steps = |method: &str| json!([
            { "fetch": method, "path": "/" }, { "count": "note" }, { "take": 1 }, { "sleep_ms": 700 }, { "note": "note" },
        ]);
        let between = || {
            play(&tenant.client, json!([{ "note": "note" }])).expect(200);
        };
        interrupt(&tenant.client, steps("GET"), between).expect(200);
        assert_eq!(calls.swap(0, Ordering::SeqCst), 2);
        let client = tenant.client.with("idempotency-key", "acted");
        let acted = interrupt(&client, steps("POST"), between);
        assert_eq!(acted.expect_error(409, "state_conflict")["reason"], "EFFECT_WITHOUT_RECORD");
        // The outcome is recorded although the documents are not: asking again acts no second time.
        let again = client.post("/v1/script", &json!({ "steps": steps("POST") }));
        assert_eq!((again.status, again.header("idempotent-replayed")), (409, Some("true")), "{again}");
        assert_eq!(calls.load(Ordering::SeqCst), 1);
        assert_eq!(notes(&tenant.client, "note").len(), 3);
    }

    fn what_acted_and_ran_out_of_time_is_answered_the_same_again(world) {
        let tenant = world.register();
        let client = tenant.client.with("idempotency-key", "late");
        let steps = json!([{ "note": "note" }, { "checkpoint": 1 }, { "sleep_ms": 20_000 }]);
        let first = play(&client, steps.clone());
        let told = first.expect_error(500, "internal_error");
        assert_eq!((&told["reason"], first.header("x-should-retry")), (&json!("EFFECT_WITHOUT_RECORD"), Some("false")), "{first}");
        let again = play(&client, steps);
        assert_eq!((again.status, again.header("idempotent-replayed")), (500, Some("true")), "{again}");
        let error = again.json()["error"].clone();
        for member in ["code", "message", "reason"] {
            assert_eq!(error[member], told[member], "{member}");
        }
        assert_eq!(notes(&tenant.client, "note").len(), 1);
    }

    fn a_revocation_in_the_middle_of_a_request_lets_it_commit_nothing(world) {
        let tenant = world.register();
        let user = tenant.user("agent");
        let client = tenant.client.with("x-service-user-id", &user);
        play(&client, json!([{ "items": 1 }])).expect(200);
        let steps = json!([{ "take": 1 }, { "sleep_ms": 700 }, { "note": "note" }]);
        let answer = interrupt(&client, steps, || {
            tenant.client.post(&format!("/v1/users/{user}/revoke"), &json!({})).expect(200);
        });
        assert_eq!(answer.expect_error(403, "forbidden")["reason"], "profile_revoked");
        assert_eq!(notes(&client, "note").len(), 0);
    }

    fn a_nested_change_of_a_session_needs_the_session_and_the_membership_as_it_was(world) {
        // Nothing was done yet: so each is told as it would be at the start.
        for (loss, status) in [("nothing", 200), ("signed out", 401), ("demoted", 403), ("removed", 401)] {
            let tenant = world.register();
            let (person, account) = join(world, &tenant, &tenant.client, "developer");
            let open = Arc::new(AtomicBool::new(false));
            let calls = patient_peer(world, &tenant, open.clone());
            let nested = json!({ "call": "script.rule", "body": { "steps": [{ "open": "nested" }] } });
            let steps = json!({ "steps": [{ "fetch": "GET", "path": "/" }, { "try": nested }] });
            let answer = std::thread::scope(|scope| {
                let over = Over(&open);
                let running = scope.spawn(|| person.post("/v1/script/rule", &steps));
                until("the script asks its peer", || calls.load(Ordering::SeqCst) == 1);
                let member = format!("/v1/organization/members/{account}");
                match loss {
                    "signed out" => drop(person.delete("/v1/auth/session").expect(200)),
                    "demoted" => drop(tenant.client.patch(&member, &json!({ "role": "viewer" })).expect(200)),
                    "removed" => drop(tenant.client.delete(&member).expect(200)),
                    _ => {}
                }
                drop(over);
                running.join().unwrap()
            });
            assert_eq!(answer.status, status, "{loss}: {answer}");
            assert_eq!(is_open(&tenant.client, "nested"), loss == "nothing", "{loss}");
        }
    }

    fn what_a_request_that_has_acted_writes_stays_unless_its_power_is_taken_away(world) {
        let of_key = ["kit edited", "kit switched off", "user revoked", "key revoked"];
        let of_session = ["signed out", "demoted", "removed"];
        for change in of_key.into_iter().chain(of_session) {
            let tenant = world.register();
            let (admin, user) = (&tenant.client, tenant.user("agent"));
            let (person, account) = join(world, &tenant, admin, "developer");
            let key = admin.post("/v1/auth/keys", &json!({ "name": "key" })).expect(201);
            let asks = world.anonymous().bearer(key["key"].as_str().unwrap()).with("x-service-user-id", &user);
            let open = Arc::new(AtomicBool::new(false));
            let calls = patient_peer(world, &tenant, open.clone());
            let act = json!({ "fetch": "POST", "path": "/" });
            let script = |enabled: bool| {
                let kit = json!({ "primitives": { "script": { "enabled": enabled } } });
                admin.patch("/v1/kits/default", &kit)
            };
            let answer = std::thread::scope(|scope| {
                let over = Over(&open);
                let running = scope.spawn(|| match of_key.contains(&change) {
                    true => play(&asks, json!([act, { "note": "note" }])),
                    false => person.post("/v1/script/rule", &json!({ "steps": [act, { "open": "later" }] })),
                });
                until("the script acts", || calls.load(Ordering::SeqCst) == 1);
                let member = format!("/v1/organization/members/{account}");
                match change {
                    "kit edited" => admin.patch("/v1/kits/default", &json!({ "name": "edited" })),
                    "kit switched off" => script(false),
                    "user revoked" => admin.post(&format!("/v1/users/{user}/revoke"), &json!({})),
                    "key revoked" => admin.delete(&format!("/v1/auth/keys/{}", id(&key))),
                    "signed out" => person.delete("/v1/auth/session"),
                    "demoted" => admin.patch(&member, &json!({ "role": "viewer" })),
                    _ => admin.delete(&member),
                }
                .expect(200);
                drop(over);
                running.join().unwrap()
            });
            let status = if change.starts_with("kit") { 200 } else { 409 };
            assert_eq!(answer.status, status, "{change}: {answer}");
            assert_eq!(answer.json()["error"]["reason"] == "EFFECT_WITHOUT_RECORD", status == 409, "{change}: {answer}");
            script(true).expect(200);
            let noted = notes(&admin.with("x-service-user-id", &user), "note").len();
            assert_eq!((noted == 1, is_open(admin, "later")), (status == 200, false), "{change}");
        }
    }

    fn additions_and_appends_by_many_all_count(world) {
        let tenant = world.register();
        play(&tenant.client, json!([{ "note": "note", "slug": "sum" }])).expect(200);
        std::thread::scope(|scope| {
            for _ in 0..12 {
                scope.spawn(|| {
                    let steps = json!([{ "add": "sum", "amount": 2 }, { "append": "log", "payload": { "n": 1 } }]);
                    play(&tenant.client, steps).expect(200);
                });
            }
        });
        assert_eq!(notes(&tenant.client, "note")[0]["count"], 24);
        play(&tenant.client, json!([{ "close": "log" }])).expect(200);
        let stream = tenant.client.get("/v1/script/logs/log").text();
        let ids: Vec<u64> = stream.lines().filter_map(|line| line.strip_prefix("id: ")?.parse().ok()).collect();
        assert_eq!(ids, (1..=12).collect::<Vec<_>>(), "{stream}");
    }

    fn a_nested_change_commits_on_its_own_and_under_the_same_rules(world) {
        let tenant = world.register();
        let nested = |steps: Value| json!({ "call": "script.play", "body": { "steps": steps } });
        let refused = play(&tenant.client, json!([nested(json!([{ "note": "note" }])), { "refuse": "state_conflict" }]));
        refused.expect_error(409, "state_conflict");
        assert_eq!(notes(&tenant.client, "note").len(), 1);
        // A refusal inside comes back as one, and the outer request may go on.
        let told = play(&tenant.client, json!([{ "try": nested(json!([{ "refuse": "state_conflict" }])) }, { "note": "note" }]));
        assert_eq!(sights(&told)[0]["failure"], "state_conflict", "{told}");
        // Five levels are one too many.
        let mut deep = json!([{ "note": "note" }]);
        for _ in 0..5 {
            deep = json!([nested(deep)]);
        }
        let too_deep = play(&tenant.client, deep);
        assert!((400..500).contains(&too_deep.status), "{too_deep}");
        assert_eq!(notes(&tenant.client, "note").len(), 2);
        // A primitive that the caller's kit switches off is off for the caller's primitives, too.
        let kit = tenant.kit("narrow", json!({ "script": { "enabled": true }, "queue": { "enabled": false } }));
        let user = tenant.user_with_kit("narrow", &kit);
        let client = tenant.client.with("x-service-user-id", &user);
        let denied = play(&client, json!([{ "try": { "call": "queue.create", "body": { "name": "q" } } }]));
        assert_eq!(sights(&denied)[0]["failure"], "forbidden", "{denied}");
        until("its refusal is a row, as a client's is", || {
            let rows = tenant.client.get("/v1/logs?action=queue.create").expect(200)["logs"].clone();
            let is_refused = |row: &&Value| row["decision"] == "refused" && row["on_behalf_of"] == json!(user);
            rows.as_array().unwrap().iter().filter(is_refused).count() == 1
        });
        let allowed = play(&tenant.client, json!([{ "call": "queue.create", "body": { "name": "q" } }]));
        assert_eq!(sights(&allowed)[0]["status"], 201, "{allowed}");
    }

    fn nested_calls_that_are_alike_are_told_apart_by_the_calls_that_make_them(world) {
        let tenant = world.register();
        let nested = |steps: Value| json!({ "call": "script.play", "body": { "steps": steps } });
        // Two alike calls, each of which makes an alike call.
        let inner = nested(json!([{ "note": "note", "count": 1 }]));
        let outer = nested(json!([{ "note": "note", "count": 2 }, inner]));
        let played = play(&tenant.client, json!([outer, outer]));
        assert_eq!(sights(&played).len(), 2, "{played}");
        let mut counts: Vec<_> = notes(&tenant.client, "note").iter().map(|note| note["count"].as_i64()).collect();
        counts.sort();
        assert_eq!(counts, [Some(1), Some(1), Some(2), Some(2)]);
    }

    fn what_the_organizations_own_operation_calls_is_the_default_profiles(world) {
        let tenant = world.register();
        let rule = |call: Value| {
            let steps = json!({ "steps": [{ "try": call }] });
            sights(&tenant.client.post("/v1/script/rule", &steps))[0].clone()
        };
        let nested = |steps: Value| rule(json!({ "call": "script.play", "body": { "steps": steps } }));
        assert_eq!(nested(json!([{ "note": "note" }]))["status"], 200);
        assert_eq!(notes(&tenant.client, "note").len(), 1);
        // Its caps, its kit and its standing are asked, as of a request that names nobody.
        let cap = json!({ "budget": { "cap_cents": 1, "period": "day" } });
        tenant.client.patch("/v1/kits/default", &cap).expect(200);
        let spend = json!([{ "leave": "script.spend", "amount": 20_000, "as": "p" }, { "capture": "p", "amount": 20_000 }]);
        assert_eq!(play(&tenant.client, spend.clone()).expect_error(403, "forbidden")["reason"], "budget_exceeded");
        assert_eq!(nested(spend)["reason"], "budget_exceeded");
        let switch = |on: bool| {
            let kit = json!({ "primitives": { "script": { "enabled": on } } });
            tenant.client.patch("/v1/kits/default", &kit).expect(200);
        };
        switch(false);
        assert_eq!(nested(json!([{ "note": "note" }]))["reason"], "primitive_disabled_by_kit");
        // Another one of the organization's own has neither as a party.
        let own = || rule(json!({ "call": "script.rule", "body": { "steps": [] } }));
        assert_eq!(own()["status"], 200);
        switch(true);
        tenant.client.post(&format!("/v1/users/{}/revoke", tenant.user), &json!({})).expect(200);
        assert_eq!(nested(json!([{ "note": "note" }]))["reason"], "profile_revoked");
        assert_eq!(own()["status"], 200);
        assert_eq!(notes(&tenant.client, "note").len(), 1);
    }

    fn an_answer_can_be_a_jobs(world) {
        let tenant = world.register();
        let enqueue = json!([{ "enqueue": [{ "note": "note" }, { "attempt": 1 }], "answer": true, "public": true }]);
        let answer = play(&tenant.client, enqueue);
        assert_eq!(sights(&answer)[1], 1, "{answer}");
        assert_eq!(notes(&tenant.client, "note").len(), 1);
        let jobs = tenant.client.get("/v1/jobs").expect(200);
        assert_eq!(jobs["jobs"][0]["status"], "succeeded", "{jobs}");
    }

    fn a_job_is_tried_again_and_given_up_in_the_end(world) {
        let tenant = world.register();
        let failing_once = json!([{ "enqueue": [{ "on_attempt": 1, "steps": [{ "trap": 1 }] }, { "note": "note" }], "public": true }]);
        play(&tenant.client, failing_once).expect(200);
        let hopeless = json!([{ "enqueue": [{ "refuse": "state_conflict" }], "public": true, "attempts": 2 }]);
        play(&tenant.client, hopeless).expect(200);
        let status = |wanted: &str| {
            let jobs = tenant.client.get(&format!("/v1/jobs?status={wanted}")).expect(200);
            jobs["jobs"].as_array().unwrap().first().cloned()
        };
        until("one job succeeds", || status("succeeded").is_some());
        until("one job is given up", || status("failed").is_some());
        // The failed run's note is gone with it; the one that succeeded was the second.
        assert_eq!(notes(&tenant.client, "job").iter().map(|note| note["count"].clone()).collect::<Vec<_>>(), [json!(2)]);
        let failed = status("failed").unwrap();
        assert_eq!((&failed["attempts"], &failed["error"]["code"]), (&json!(2), &json!("state_conflict")), "{failed}");
    }

    fn a_key_names_one_live_job_and_a_refused_request_enqueues_none(world) {
        let tenant = world.register();
        let wait = json!([{ "sleep_ms": 300 }, { "note": "note" }]);
        let enqueue = json!({ "enqueue": wait, "key": "daily", "public": true });
        let first = sights(&play(&tenant.client, json!([enqueue, enqueue])));
        let second = sights(&play(&tenant.client, json!([enqueue])));
        assert!(first[0] == first[1] && first[0] == second[0], "{first:?} {second:?}");
        play(&tenant.client, json!([{ "enqueue": wait, "public": true }, { "refuse": "state_conflict" }])).expect_error(409, "state_conflict");
        until("the job runs", || !notes(&tenant.client, "note").is_empty());
        let jobs = tenant.client.get("/v1/jobs").expect(200);
        assert_eq!(jobs["jobs"].as_array().unwrap().len(), 1, "{jobs}");
    }

    fn a_client_that_leaves_stops_what_has_not_acted_and_not_what_has(world) {
        let tenant = world.register();
        let calls = peer(world, &tenant);
        play(&tenant.client, json!([{ "items": 1 }])).expect(200);
        let leave = |steps: Value, left: &dyn Fn() -> bool| {
            let body = json!({ "steps": steps }).to_string();
            let mut raw = Raw::connect(world.server().address()).unwrap();
            let head = format!(
                "POST /v1/script HTTP/1.1\r\nhost: charter\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                tenant.key,
                body.len()
            );
            assert!(raw.say(head.as_bytes()));
            until("the script is in its middle", left);
        };
        leave(json!([{ "take": 1 }, { "sleep_ms": 3000 }, { "note": "note", "slug": "unacted" }]), &|| items(&tenant.client) == 0);
        until("the item is given back", || items(&tenant.client) == 1);
        leave(json!([{ "fetch": "POST", "path": "/act" }, { "sleep_ms": 800 }, { "note": "note", "slug": "acted" }]), &|| {
            calls.load(Ordering::SeqCst) == 1
        });
        until("the request that has acted is finished", || !notes(&tenant.client, "note").is_empty());
        assert_eq!(notes(&tenant.client, "note")[0]["slug"], "acted");
    }

    fn who_leaves_at_any_moment_and_asks_again_is_acted_for_once(world) {
        const KEYS: usize = 48;
        let tenant = world.register();
        world.install("script", &Artefacts::get().fixture("script"));
        let steps = json!({ "steps": [{ "note": "note" }, { "checkpoint": 1 }, { "items": 1 }] });
        let body = steps.to_string();
        for n in 0..KEYS {
            let mut raw = Raw::connect(world.server().address()).unwrap();
            let head = format!(
                "POST /v1/script HTTP/1.1\r\nhost: charter\r\nauthorization: Bearer {}\r\nidempotency-key: left-{n}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
                tenant.key,
                body.len()
            );
            assert!(raw.say(head.as_bytes()));
            // As long as it takes to look so often.
            for _ in 0..n % 6 {
                items(&tenant.client);
            }
            drop(raw);
            let again = || tenant.client.call("POST", "/v1/script").idempotency_key(&format!("left-{n}")).json(&steps).send();
            until("the key is answered", || again().status == 200);
        }
        assert_eq!((notes(&tenant.client, "note").len(), items(&tenant.client)), (KEYS, KEYS as u64));
    }
}

on_both! {
    fn what_was_dispatched_is_never_run_again_after_a_crash(world: builder()) {
        let tenant = tenant_with_script(world);
        let calls = peer(world, &tenant);
        let steps = json!({ "steps": [{ "fetch": "POST", "path": "/act" }, { "sleep_ms": 5000 }, { "note": "note" }] });
        let client = tenant.client.clone();
        std::thread::scope(|scope| {
            let running = scope.spawn(|| client.call("POST", "/v1/script").json(&steps).idempotency_key("once").attempt());
            until("the provider is called", || calls.load(Ordering::SeqCst) == 1);
            world.kill();
            assert!(running.join().unwrap().is_err(), "a dead server answered");
        });
        world.start();
        let client = tenant.client.at(world.server().address());
        let again = client.call("POST", "/v1/script").json(&steps).idempotency_key("once").send();
        again.expect_error(409, "job_not_ready");
        assert!(again.header("retry-after").is_some(), "{again}");
        assert_eq!(calls.load(Ordering::SeqCst), 1, "the effect happened twice");
    }

    fn what_had_no_effect_yet_is_run_anew_after_a_crash(world: builder()) {
        let tenant = tenant_with_script(world);
        play(&tenant.client, json!([{ "items": 1 }])).expect(200);
        let steps = json!({ "steps": [{ "note": "note" }, { "sleep_ms": 1500 }] });
        let client = tenant.client.clone();
        std::thread::scope(|scope| {
            let running = scope.spawn(|| {
                let first = json!({ "steps": [{ "take": 1 }, { "note": "note" }, { "sleep_ms": 5000 }] });
                client.call("POST", "/v1/script").json(&first).idempotency_key("anew").attempt()
            });
            until("the script is under way", || items(&tenant.client) == 0);
            world.kill();
            assert!(running.join().unwrap().is_err(), "a dead server answered");
        });
        world.start();
        let client = tenant.client.at(world.server().address());
        assert_eq!(notes(&client, "note").len(), 0);
        client.call("POST", "/v1/script").json(&steps).idempotency_key("anew").send().expect(200);
        assert_eq!(notes(&client, "note").len(), 1);
    }
}

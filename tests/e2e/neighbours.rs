//! One organization's calls beside another's: however many calls, jobs and schedules one has, the
//! next finds a place, and nobody's backlog grows without end.

use charter_tests::artefacts::Artefacts;
use charter_tests::patience::until;
use charter_tests::world::Builder;
use charter_tests::{Answer, Client, Tenant, World, on_both};
use serde_json::{Value, json};

/// Calls at once of one person's keys: as many as they may have.
const CALLS: usize = 28;
/// Nested calls of one person's keys: nearly half of the organization's, which are nearly half of the
/// first depth's.
const NESTED: usize = 9;

fn scripted(world: &World) -> [Tenant; 2] {
    world.install("script", &Artefacts::get().fixture("script"));
    [world.register(), world.register()]
}

fn play(client: &Client, steps: &Value) -> Answer {
    client.post("/v1/script", &json!({ "steps": steps }))
}

fn nested(steps: &Value) -> Value {
    json!([{"call": "script.play", "body": {"steps": steps}}])
}

/// Guests that are being run.
fn running(world: &World) -> usize {
    let text = world.operator().get("/metrics").text();
    let line = text.lines().find_map(|line| line.strip_prefix("charter_instances "));
    line.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
}

/// A call that asks for one, and for thirty more once calls before it have committed.
fn ask_late(client: &Client, call: usize, step: impl Fn(usize) -> Value) -> Answer {
    let mut steps = vec![step(0), json!({"sleep_ms": 300 + 300 * call})];
    steps.extend((1..31).map(step));
    play(client, &steps.into())
}

/// The key of a schedule of such a call.
fn key(call: usize, n: usize) -> String {
    format!("{call}-{n}")
}

on_both! {
    fn nested_sleepers_of_one_organization_leave_places_to_the_next(world: Builder::new().bare()) {
        let [hog, neighbour] = scripted(world);
        std::thread::scope(|scope| {
            for _ in 0..CALLS {
                scope.spawn(|| play(&hog.client, &nested(&json!([{"sleep_ms": 6000}]))));
            }
            until("the sleepers have what they can get", || running(world) >= CALLS + NESTED / 2);
            let answer = play(&neighbour.client, &nested(&json!([{"attempt": 1}]))).expect(200);
            assert_eq!(answer["seen"][0]["status"], 200, "{answer}");
        });
    }

    fn calls_that_lie_in_others_end_however_many_compute_at_once(world: Builder::new().bare()) {
        let [tenant, _] = scripted(world);
        let read = json!({"call": "script.notes"});
        let steps = json!([read, read, {"call": "script.play", "body": {"steps": [read]}}]);
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| (0..6).for_each(|_| drop(play(&tenant.client, &steps).expect(200))));
            }
        });
    }

    fn the_jobs_of_one_organization_wait_behind_the_next_ones(world: Builder::new().bare().environment("CHARTER_JOBS_CONCURRENCY", "2")) {
        let [hog, neighbour] = scripted(world);
        let sleeper = json!({"enqueue": [{"sleep_ms": 500}]});
        play(&hog.client, &vec![sleeper; 200].into()).expect(200);
        // Behind the others' it would take most of a minute, and the caller would be told to wait.
        let steps = json!([{"enqueue": [{"attempt": 1}], "answer": true, "public": true}]);
        for _ in 0..3 {
            assert_eq!(play(&neighbour.client, &steps).expect(200)["seen"], json!([1]));
        }
    }

    fn no_more_jobs_wait_and_no_more_schedules_stand_than_an_organization_may_have(
        world: Builder::new().bare()
            .environment("CHARTER_JOBS_CONCURRENCY", "1")
            .environment("CHARTER_JOBS_WAITING_MAX", "12")
            .environment("CHARTER_JOBS_SCHEDULES_MAX", "2")
    ) {
        let [hog, neighbour] = scripted(world);
        let hook = crate::hooks::open(&hog.client, "full", "none");
        let jobs = |many: usize| vec![json!({"enqueue": [{"sleep_ms": 7000}]}); many].into();
        let error = play(&hog.client, &jobs(13)).expect_error(429, "rate_limited");
        assert_eq!(error["reason"], "jobs_full", "{error}");
        assert!(error["message"].as_str().is_some_and(|told| told.contains("12 jobs")), "{error}");
        assert!(error["hint"].as_str().is_some_and(|told| told.contains("cancel")), "{error}");
        // Of a request that was refused nothing waits; that the profile is new is told by a job too.
        until("all places are free", || play(&hog.client, &jobs(12)).status == 200);
        play(&hog.client, &jobs(1)).expect_error(429, "rate_limited");
        // Nor do those wait that strangers cause; they come again.
        let refused = world.anonymous().call("POST", &hook.path).bytes("news").send();
        assert_eq!(refused.expect_error(429, "rate_limited")["reason"], "jobs_full");
        play(&neighbour.client, &jobs(1)).expect(200);
        let schedules = |keys: &[&str]| keys.iter().map(|key| json!({"every": "0 0 1 1 *", "key": key, "steps": []})).collect::<Value>();
        play(&hog.client, &schedules(&["a", "b"])).expect(200);
        let error = play(&hog.client, &schedules(&["c"])).expect_error(409, "state_conflict");
        assert_eq!(error["reason"], "schedules_full", "{error}");
        // One that is there is set anew, and what is removed makes room.
        play(&hog.client, &schedules(&["a"])).expect(200);
        play(&hog.client, &json!([{"unschedule": "b"}])).expect(200);
        play(&hog.client, &schedules(&["c"])).expect(200);
        play(&neighbour.client, &schedules(&["c"])).expect(200);
    }

    fn calls_that_asked_early_and_go_on_late_pass_no_limit_together(
        world: Builder::new().bare()
            .environment("CHARTER_JOBS_CONCURRENCY", "1")
            .environment("CHARTER_JOBS_WAITING_MAX", "40")
            .environment("CHARTER_JOBS_SCHEDULES_MAX", "40")
    ) {
        let [hog, _] = scripted(world);
        let job = json!({"enqueue": [{"sleep_ms": 7000}], "public": true, "attempts": 1});
        let schedule = |call: usize, n: usize| json!({"every": "0 0 1 1 *", "key": key(call, n), "steps": []});
        let (client, job) = (&hog.client, &job);
        let answers: Vec<Answer> = std::thread::scope(|scope| {
            let calls: Vec<_> = (0..8)
                .map(|call| {
                    scope.spawn(move || match call % 2 {
                        0 => ask_late(client, call, |_| job.clone()),
                        _ => ask_late(client, call, |n| schedule(call, n)),
                    })
                })
                .collect();
            calls.into_iter().map(|call| call.join().unwrap()).collect()
        });
        for (call, answer) in answers.iter().enumerate().filter(|(_, answer)| answer.status != 200) {
            let reason = if call % 2 == 0 { "jobs_full" } else { "schedules_full" };
            assert_eq!(answer.error()["reason"], reason);
        }
        let jobs = hog.client.get("/v1/jobs?limit=200").expect(200)["jobs"].clone();
        let waiting = jobs.as_array().unwrap().len();
        assert!(waiting <= 40, "{waiting} jobs wait or run");
        // Each that is removed has stood.
        let removed = (0..8).filter(|call| call % 2 == 1).map(|call| {
            let steps: Value = (0..31).map(|n| json!({"unschedule": key(call, n)})).collect();
            let seen = play(&hog.client, &steps).expect(200)["seen"].clone();
            seen.as_array().unwrap().iter().filter(|stood| **stood == true).count()
        });
        let standing: usize = removed.sum();
        assert!(standing <= 40, "{standing} schedules stand");
    }

    fn a_call_that_reads_without_end_is_refused_before_the_host_holds_it_all(world: Builder::new().bare()) {
        let [hog, neighbour] = scripted(world);
        let large = json!([{"fill": 1, "bytes": 3_500_000}]);
        let ids: Vec<Value> = (0..20).map(|_| play(&hog.client, &large).expect(200)["seen"][0].clone()).collect();
        let gather = |many: usize| json!([{"gather": ids[..many]}]);
        play(&hog.client, &gather(4)).expect(200);
        let error = play(&hog.client, &gather(20)).expect_error(413, "payload_too_large");
        assert_eq!(error["reason"], "too_much_held", "{error}");
        // Bytes of a refused call are held no more.
        play(&hog.client, &gather(4)).expect(200);
        play(&neighbour.client, &json!([{"attempt": 1}])).expect(200);
    }
}

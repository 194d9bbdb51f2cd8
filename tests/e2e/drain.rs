//! SIGTERM: what runs is finished and answered, nobody new is let in, and the process ends well.

use std::time::{Duration, Instant};

use charter_tests::artefacts::Artefacts;
use charter_tests::patience::until;
use charter_tests::raw::{Raw, statuses};
use charter_tests::world::Builder;
use charter_tests::{Client, on_both};
use serde_json::json;

on_both! {
    fn what_runs_is_finished_and_nobody_new_is_let_in(world: Builder::new().bare()) {
        world.install("probe", &Artefacts::get().fixture("probe"));
        let tenant = world.register();
        let address = world.server().address().to_owned();
        // Open before, idle, and let go in order.
        let mut idle = Raw::connect(&address).unwrap();
        idle.say(b"GET /health HTTP/1.1\r\nhost: x\r\n\r\n");
        std::thread::scope(|scope| {
            let slow = scope.spawn(|| tenant.client.post("/v1/probe/wait", &json!({"milliseconds": 4000})));
            while instances(&tenant.client) == 0 {
                assert!(!slow.is_finished(), "the request was never seen running");
            }
            world.server().signal("TERM");
            // The port is closed while the request is still on its way.
            let mut refused = false;
            while !slow.is_finished() && !refused {
                refused = Raw::connect(&address).is_err();
            }
            assert!(refused, "a new connection was let in up to the end");
            slow.join().unwrap().expect(200);
        });
        assert_eq!(statuses(&idle.rest()), [200]);
        world.stop();
        // Every answered write is there.
        world.start();
        tenant.client.at(world.server().address()).get("/v1/probe").expect(200);
    }

    fn a_drain_ends_although_guests_sleep_and_what_they_did_not_do_is_done_later(
        world: Builder::new().bare().environment("CHARTER_HTTP_DRAIN_MS", "8000").environment("CHARTER_JOBS_DEADLINE_MS", "600000")
    ) {
        world.install("probe", &Artefacts::get().fixture("probe"));
        world.install("script", &Artefacts::get().fixture("script"));
        let tenant = world.register();
        let job = json!({"steps": [{"enqueue": [{"sleep_ms": 120_000}], "public": true, "attempts": 1}]});
        tenant.client.post("/v1/script", &job).expect(200);
        let running = |client: &Client| {
            client.get("/v1/jobs?status=running").expect(200)["jobs"].as_array().unwrap().clone()
        };
        until("the job sleeps", || instances(&tenant.client) == 1);
        std::thread::scope(|scope| {
            let asleep = scope.spawn(|| tenant.client.post("/v1/probe/wait", &json!({"milliseconds": 10_000})));
            until("the guest sleeps", || instances(&tenant.client) == 2);
            let began = Instant::now();
            world.stop();
            // Far from the time that the guests would need, and from a busy machine's.
            assert!(began.elapsed() < Duration::from_secs(16), "a drain of eight seconds took {:?}", began.elapsed());
            let error = asleep.join().unwrap().expect_error(503, "overloaded");
            assert_eq!(error["reason"], "stopping", "{error}");
        });
        world.start();
        // It has gone back: nobody waits for a lease of ten minutes, and its one attempt is left.
        let client = tenant.client.at(world.server().address());
        until("the job runs again", || !running(&client).is_empty());
        assert_eq!(running(&client)[0]["attempts"], 1);
    }

    fn a_guest_that_computes_does_not_keep_the_host(world: Builder::new().bare().environment("CHARTER_HTTP_DRAIN_MS", "1000")) {
        world.install("script", &Artefacts::get().fixture("script"));
        let tenant = world.register();
        std::thread::scope(|scope| {
            let computing = scope.spawn(|| tenant.client.post("/v1/script", &json!({"steps": [{"spin_ms": 60_000}]})));
            until("the guest computes", || instances(&tenant.client) == 1);
            world.stop();
            let error = computing.join().unwrap().expect_error(503, "overloaded");
            assert_eq!(error["reason"], "stopping", "cut before its own deadline: {error}");
        });
    }

    fn who_waits_for_a_job_or_sends_slowly_is_answered_before_the_end(
        world: Builder::new().bare().environment("CHARTER_HTTP_DRAIN_MS", "4000").environment("CHARTER_JOBS_DEADLINE_MS", "600000")
    ) {
        world.install("script", &Artefacts::get().fixture("script"));
        let tenant = world.register();
        let head = format!(
            "POST /v1/script HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{{",
            tenant.key
        );
        let mut slow = Raw::connect(world.server().address()).unwrap();
        slow.say(head.as_bytes());
        let job = json!({"steps": [{"enqueue": [{"sleep_ms": 120_000}], "answer": true, "public": true}]});
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| tenant.client.post("/v1/script", &job));
            until("the job sleeps", || instances(&tenant.client) == 1);
            world.stop();
            let answer = waits.join().unwrap();
            assert!(answer.expect(202)["job"]["id"].is_string(), "{answer}");
        });
        let heard = slow.rest();
        assert_eq!(statuses(&heard), [503], "{heard}");
        assert!(heard.contains("stopping"), "{heard}");
    }

    fn a_drain_ends_although_a_client_holds_on(world: Builder::new().bare().environment("CHARTER_HTTP_DRAIN_MS", "500")) {
        let mut half = Raw::connect(world.server().address()).unwrap();
        half.say(b"POST /v1/auth/login HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{");
        // It is being read once the next one is answered.
        world.anonymous().get("/health").expect(200);
        world.stop();
        drop(half);
    }

    fn a_second_signal_does_not_wait(world: Builder::new().bare().environment("CHARTER_HTTP_DRAIN_MS", "600000")) {
        let mut half = Raw::connect(world.server().address()).unwrap();
        half.say(b"POST /v1/auth/login HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{");
        world.server().signal("TERM");
        until("it drains", || world.server().log().contains("draining"));
        world.stop();
    }
}

/// How many guests are being run, the one that is asked about this not counted.
fn instances(client: &Client) -> u64 {
    let text = client
        .without("authorization")
        .bearer(charter_tests::world::OPERATOR_TOKEN)
        .get("/metrics")
        .text();
    let counted = text.lines().find_map(|line| line.strip_prefix("charter_instances "));
    counted.map_or(0, |count| count.trim().parse().expect("a count"))
}

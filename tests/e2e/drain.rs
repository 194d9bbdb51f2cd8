//! SIGTERM: what runs is finished and answered, nobody new is let in, and the process ends well.

use charter_tests::artefacts::Artefacts;
use charter_tests::on_both;
use charter_tests::patience::until;
use charter_tests::raw::{Raw, statuses};
use charter_tests::world::Builder;
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
            let before = running(&tenant.client);
            let slow = scope.spawn(|| tenant.client.post("/v1/probe/wait", &json!({"milliseconds": 4000})));
            while running(&tenant.client) == before {
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
        // What was answered is there.
        world.start();
        tenant.client.at(world.server().address()).get("/v1/probe").expect(200);
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
fn running(client: &charter_tests::Client) -> String {
    let text = client
        .without("authorization")
        .bearer(charter_tests::world::OPERATOR_TOKEN)
        .get("/metrics")
        .text();
    text.lines()
        .find(|line| line.starts_with("charter_instances "))
        .unwrap_or("charter_instances 0")
        .to_owned()
}

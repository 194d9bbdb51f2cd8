//! Followed logs: what ends a stream that nothing is said on.

use charter_kernel::time::Instant;
use charter_tests::artefacts::Artefacts;
use charter_tests::stream::Stream;
use charter_tests::world::Builder;
use charter_tests::{Answer, Client, Tenant, World, on_both};
use serde_json::json;

fn tenant_with_script(world: &World) -> Tenant {
    world.install("script", &Artefacts::get().fixture("script"));
    world.register()
}

/// Follows a log on which nothing is ever said, until the host ends it, which the client waits a
/// minute for.
fn follow(client: &Client, user: &str) -> Answer {
    client.get(&format!("/v1/users/{user}/script/logs/silence"))
}

#[track_caller]
fn expect_end(answer: &Answer) {
    assert_eq!(answer.status, 200, "{answer}");
    assert!(answer.body.starts_with(b"retry: 3000\n\n"), "{answer}");
}

on_both! {
    fn a_stream_ends_with_its_credential_its_time_and_its_user(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        let (stays, goes) = (tenant.user("stays"), tenant.user("goes"));
        let made = tenant.client.post("/v1/auth/keys", &json!({"name": "revoked"})).expect(201);
        let revoked = tenant.client.bearer(made["key"].as_str().unwrap());
        let now = Instant::parse(made["created_at"].as_str().unwrap()).expect("a timestamp");
        let short = tenant.key(json!({"expires_at": now.plus_ms(6_000).to_string()}));
        std::thread::scope(|scope| {
            let streams = [
                scope.spawn(|| follow(&revoked, &stays)),
                scope.spawn(|| follow(&short, &stays)),
                scope.spawn(|| follow(&tenant.client, &goes)),
            ];
            tenant.client.delete(&format!("/v1/auth/keys/{}", made["id"].as_str().unwrap())).expect(200);
            tenant.client.delete(&format!("/v1/users/{goes}")).expect(200);
            let [first, second, third] = streams.map(|stream| stream.join().unwrap());
            // The first and the third may have been too late to begin at all.
            if first.status != 401 {
                expect_end(&first);
            }
            expect_end(&second);
            if third.status != 404 {
                expect_end(&third);
            }
        });
    }

    fn a_stream_ends_when_its_kit_says_no(world: Builder::new().bare()) {
        let tenant = tenant_with_script(world);
        let kit = tenant.kit("open", json!({"script": {"enabled": true}}));
        let agent = tenant.user_with_kit("agent", &kit);
        let path = format!("/v1/users/{agent}/script/logs/silence");
        let stream = Stream::open(tenant.client.call("GET", &path));
        let off = json!({"primitives": {"script": {"enabled": false}}});
        tenant.client.patch(&format!("/v1/kits/{kit}"), &off).expect(200);
        assert!(stream.next().is_none(), "nothing is ever said on it");
    }
}

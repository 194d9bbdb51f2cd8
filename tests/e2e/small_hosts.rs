//! A machine with little address space: the sandbox falls back, says so where an operator looks,
//! and still holds.

use charter_tests::artefacts::Artefacts;
use charter_tests::tether::ULIMIT;
use charter_tests::world::Builder;
use charter_tests::{Database, World};
use serde_json::json;

/// Starts with that many kilobytes of address space and expects that mode of the sandbox.
fn serves(kilobytes: u32, mode: &str) {
    let world: World = Builder::new()
        .bare()
        .environment(ULIMIT, &format!("-v {kilobytes}"))
        .start(Database::Sqlite);
    let health = world.anonymous().get("/health").expect(200);
    assert_eq!(
        (health["sandbox"].as_str(), health["status"].as_str()),
        (Some(mode), Some("degraded")),
        "{health}"
    );
    assert!(world.server().log().contains("fall-back mode"), "{}", world.server().log());
    world.install("probe", &Artefacts::get().fixture("probe"));
    world.install("hostile", &Artefacts::get().fixture("hostile"));
    let tenant = world.register();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..3 {
                    tenant.client.post("/v1/probe/count", &json!({})).expect(200);
                }
                let bloated = tenant.client.post("/v1/hostile/memory", &json!({}));
                assert!(matches!(bloated.status, 500 | 503), "{bloated}");
            });
        }
    });
    assert_eq!(tenant.client.post("/v1/probe/count", &json!({})).expect(200)["count"], 13);
}

#[test]
fn with_less_address_space_the_pool_is_smaller_and_says_so() {
    serves(16_000_000, "pooling-small");
}

#[test]
fn with_little_address_space_instances_are_made_on_demand() {
    serves(3_000_000, "on-demand");
}

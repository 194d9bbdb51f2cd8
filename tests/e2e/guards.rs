//! What the host does by itself: it holds a kit to its rate, and steps back from a version that keeps trapping.

use charter_tests::artefacts::Artefacts;
use charter_tests::on_both;
use charter_tests::patience::until;
use charter_tests::tenant::id;
use charter_tests::world::Builder;
use serde_json::json;

on_both! {
    fn a_kit_holds_its_users_to_its_rate_and_nobody_else(world) {
        let tenant = world.register();
        let kit = id(&tenant.client.post("/v1/kits", &json!({"name": "slow", "limits": {"requests_per_minute": 5}})).expect(201)["kit"]);
        let (slow, free) = (tenant.user_with_kit("slow", &kit), tenant.user("free"));
        let asked: Vec<_> = (0..12).map(|_| tenant.client.get(&format!("/v1/users/{slow}/queue"))).collect();
        assert!(asked[..5].iter().all(|answer| answer.status == 200), "{}", asked[4]);
        let refused = asked.iter().find(|answer| answer.status != 200).expect("twelve requests are more than five a minute");
        refused.expect_error(429, "rate_limited");
        assert!(refused.header("retry-after").is_some(), "{refused}");
        for _ in 0..12 {
            tenant.client.get(&format!("/v1/users/{free}/queue")).expect(200);
        }
    }
}

on_both! {
    fn a_version_that_keeps_trapping_is_stepped_back_from_and_stays_away(world: Builder::new().bare()) {
        world.install("probe", &Artefacts::get().probe(900_002));
        let digest = world.install("probe", &Artefacts::get().probe(900_003))["component"]["digest"].clone();
        let tenants = [world.register(), world.register(), world.register()];
        // Only the odd build traps; each organization asks each time, as one alone brings no version down.
        let ask = |tenant: &charter_tests::Tenant| tenant.client.post("/v1/probe/trap", &json!({})).status;
        let back = || tenants.iter().map(ask).filter(|status| *status == 200).count() == tenants.len();
        until("the trapping version is stepped back from", back);
        assert_eq!(tenants[0].client.get("/v1/probe").expect(200)["build"], "900002");
        let log = world.server().log();
        assert!(log.contains("1.0.900003") || log.contains(digest.as_str().unwrap()), "the log does not name it:\n{log}");
        let listed = world.operator().get("/v1/operator/components/probe").expect(200);
        assert_eq!(listed["component"]["active"]["version"], "1.0.900002", "{listed}");
        world.stop();
        world.start();
        let client = tenants[0].client.at(world.server().address());
        assert_eq!(client.get("/v1/probe").expect(200)["build"], "900002", "a restart brought it back");
    }
}

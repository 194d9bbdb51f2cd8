//! Hostile guests beside calm ones: an attack costs its caller, and its neighbours nothing.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use charter_engine::{AdmissionConfig, Answer, AnswerBody, Call, EngineConfig, Outcome};
use charter_kernel::id::OrganizationId;
use charter_kernel::scope::{Actor, ActorKind, Principal, Proof};
use serde_json::json;

use crate::fixture::declaring;
use crate::stage::{Stage, script};
use crate::{World, call, id, json};

/// A call of another organization.
fn neighbours(call: Call) -> Call {
    let neighbour = Proof::of(Principal::of(Actor::new(ActorKind::Key, "n")))
        .organization(OrganizationId::parse(&id(9)).unwrap());
    Call { scope: neighbour.scope(), ..call }
}

#[tokio::test(flavor = "multi_thread")]
async fn spinning_guests_do_not_hold_up_their_neighbours() {
    let world = World::new().await;
    let (hostile, probe) = (world.stage("hostile").await, world.stage("probe").await);
    let (over, served) = (AtomicBool::new(false), AtomicU32::new(0));
    let attacks = async {
        let spin = || world.engine.call(&hostile, call("hostile.loop", "{}"));
        for _ in 0..3 {
            let outcomes = futures::future::join_all((0..4).map(|_| spin())).await;
            let ended =
                |outcome: &Outcome| matches!(outcome, Outcome::Deadline | Outcome::Shed { .. });
            assert!(outcomes.iter().all(ended), "{outcomes:?}");
        }
        over.store(true, SeqCst);
    };
    let reads = async {
        while !over.load(SeqCst) {
            let build = world.engine.call(&probe, neighbours(call("probe.build", "{}"))).await;
            assert_eq!(json(build)["build"], "900000");
            served.fetch_add(1, SeqCst);
        }
    };
    tokio::join!(attacks, reads);
    // A reader that had to wait for each of the twelve loops would get as many answers.
    assert!(served.load(SeqCst) > 20, "only {} reads beside the loops", served.load(SeqCst));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_guest_forges_does_not_leave_the_engine() {
    let world = World::new().await;
    let hostile = world.stage("hostile").await;
    let outcome = world.call(&hostile, "hostile.headers", "{}").await;
    let Outcome::Answered(Answer { headers, body: AnswerBody::Json(_), .. }) = &outcome else {
        panic!("{outcome:?}")
    };
    for (name, value) in headers {
        assert!(!["content-length", "transfer-encoding"].contains(&name.as_str()), "{name}");
        assert!(!value.contains(['\r', '\n']), "{name}: {value}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_not_declared_is_not_there() {
    let world = World::new().await;
    let hostile = world.stage("hostile").await;
    for operation in ["hostile.name", "hostile.undeclared_operation", "hostile.code"] {
        let outcome = world.call(&hostile, operation, "{}").await;
        assert!(!matches!(outcome, Outcome::Answered(_)), "{operation}: {outcome:?}");
    }
    // A stream lies in the primitive's own space, whatever it calls it.
    world.call(&hostile, "hostile.undeclared_stream", "{}").await;
    let key = charter_kernel::unit::FactKind::Audit;
    let organization = crate::scope().lane().to_owned();
    assert_eq!(world.store.facts_head_settled(key, &organization).await.unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn no_document_of_any_size_or_shape_is_kept() {
    let world = World::new().await;
    let hostile = world.stage("hostile").await;
    for operation in ["hostile.body", "hostile.rows", "hostile.nesting", "hostile.not_json"] {
        let outcome = world.call(&hostile, operation, "{}").await;
        let ended = matches!(outcome, Outcome::Refused(_) | Outcome::Trapped { .. });
        assert!(ended, "{operation}: {outcome:?}");
    }
    let kept = json(world.call(&hostile, "hostile.written_documents", "{}").await);
    assert_eq!(kept["count"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_spins_when_it_is_told_something_is_stopped() {
    let world = World::new().await;
    let hostile = world.stage("hostile").await;
    let signal =
        charter_engine::Signal { kind: "created".into(), payload: "{}".into(), blob: None };
    let call = Call { entry: charter_engine::Entry::React(signal), ..call("", "") };
    let outcome = world.engine.call(&hostile, Call { deadline_ms: 1_000, ..call }).await;
    assert!(matches!(outcome, Outcome::Deadline), "{outcome:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_would_cost_its_host_is_refused_when_it_is_staged() {
    let world = World::new().await;
    let operation = |member: serde_json::Value| {
        let mut operation = json!({
            "id": "hostile.open", "method": "POST", "path": "/hostile/open", "summary": "s",
            "answer": { "type": "object" },
        });
        let members = member.as_object().unwrap().clone();
        operation.as_object_mut().unwrap().extend(members);
        format!(",{operation}")
    };
    for (member, words) in [
        (json!({ "deadline_ms": 900_000 }), "at most 30000"),
        (json!({ "mounts": ["root"], "path": "/login" }), "must not begin with /login"),
        (json!({ "mounts": ["root"], "path": "/{all*}" }), "must begin with a word"),
        (json!({ "body": { "type": "nothing" } }), "body"),
        (json!({ "id": "other.open" }), "id"),
    ] {
        let wasm = declaring(&operation(member.clone()));
        let faults = world.engine.stage(wasm.into()).await.map(drop).unwrap_err();
        let told: String = faults.iter().map(|fault| format!("{fault}\n")).collect();
        assert!(told.contains(words), "{member}: {told}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_tenant_fills_its_own_share_and_no_more() {
    let admission = AdmissionConfig {
        short_max: 4,
        tenant_max: 3,
        queue_max: 4,
        wait_ms_max: 50,
        ..AdmissionConfig::default()
    };
    let stage = Stage::with(EngineConfig { admission, ..World::config() }).await;
    let steps = || json!([{ "fetch": "GET", "path": "/hold" }]);
    let outcome = stage.interrupted(script(steps()), async {
        // One call of this tenant waits outside; with one more beside it, its share is full.
        let busy = || stage.run(script(json!([{ "sleep_ms": 400 }])));
        let (one, two) = tokio::join!(busy(), busy());
        let told = format!("{one:?} {two:?}");
        let full = |outcome: &Outcome| matches!(outcome, Outcome::Shed { tenant: true, .. });
        assert!(full(&one) != full(&two), "one is let in, and one is not: {told}");
        let calm = stage.run(neighbours(script(json!([])))).await;
        assert!(matches!(calm, Outcome::Answered(_)), "{calm:?}");
    });
    assert!(matches!(outcome.await, Outcome::Answered(_)));
}

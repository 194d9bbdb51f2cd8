//! A component version as requests need it: each operation with what its manifest says.

use charter_kernel::manifest::{Access, CallLength, Mount};
use charter_registry::served::{Auth, BodyRule, MOUNTS, Served, auth, compile_schema, template_at};
use serde_json::json;

use crate::bed::Bed;
use crate::fixture::{declaring, probe};

#[tokio::test(flavor = "multi_thread")]
async fn each_operation_says_what_its_manifest_does() {
    let bed = Bed::new().await;
    let component = bed.engine.stage(probe(900_001).into()).await.unwrap();
    let served = Served::new(component).unwrap();
    assert_eq!((served.name(), served.version()), ("probe", "1.0.900001"));
    assert_eq!(served.operations.len(), served.manifest.operations.len());
    for (at, operation) in served.operations.iter().enumerate() {
        let declared = &served.manifest.operations[at];
        assert_eq!(operation.declared, at);
        assert_eq!(&*operation.contract.id, declared.id);
        assert_eq!(operation.contract.mutates, declared.mutates());
        assert!(std::ptr::eq(&**served.operation(&declared.id).unwrap(), &**operation));
    }
    let build = served.operation("probe.build").unwrap();
    assert_eq!((build.contract.method, build.contract.access), ("GET", Access::Read));
    assert!(matches!(build.contract.body, BodyRule::None));
    let wait = served.operation("probe.wait").unwrap();
    assert_eq!((wait.deadline_ms, wait.class), (Some(15_000), CallLength::Long));
    assert!(matches!(wait.contract.body, BodyRule::Json(_)));
    assert_eq!(served.operation("probe.pair").unwrap().status, 201);
    assert!(served.operation("probe.nothing").is_none());
    assert!(served.table(Mount::Company).is_some() && served.table(Mount::Root).is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn further_words_of_an_operation_are_kept() {
    let bed = Bed::new().await;
    let operation = json!({
        "id": "hostile.further", "method": "PUT", "path": "/hostile/further/{id}", "summary": "s",
        "consumes": "image/*", "produces": "text/plain", "headers": ["if-match"], "status": 202,
        "needs": ["web.index"], "answer": {"type": "object"},
    });
    let text = format!(",{operation}],\"providers\":[{{\"name\":\"web.index\"}}");
    let component = bed.engine.stage(declaring(&text).into()).await.unwrap();
    let served = Served::new(component).unwrap();
    let further = served.operation("hostile.further").unwrap();
    assert_eq!(further.produces.as_deref(), Some("text/plain"));
    assert_eq!(further.headers, ["if-match"]);
    assert_eq!((further.status, further.needs.as_slice()), (202, &["web.index".to_owned()][..]));
    let BodyRule::Raw { media_type, size_max } = &further.contract.body else {
        panic!("{:?}", further.contract.body)
    };
    assert_eq!((media_type.as_str(), *size_max), ("image/*", None));
}

#[test]
fn the_schemas_of_a_component_are_compiled_by_no_thread_that_serves() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(1)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let bed = Bed::new().await;
        let component = bed.engine.stage(probe(900_001).into()).await.unwrap();
        // The one thread for long work is taken: nothing is compiled until it is free.
        let (free, taken) = std::sync::mpsc::channel::<()>();
        let busy = tokio::task::spawn_blocking(move || taken.recv());
        let mut prepared = std::pin::pin!(Served::prepare(component));
        assert!(futures::poll!(&mut prepared).is_pending());
        drop(free);
        assert_eq!(prepared.await.unwrap().name(), "probe");
        assert!(busy.await.unwrap().is_err());
    });
}

#[test]
fn a_credential_that_nobody_knows_is_the_operators() {
    for (declared, wanted) in [
        ("none", Auth::Open),
        ("key", Auth::Key),
        ("session", Auth::Session),
        ("hook", Auth::Hook),
        ("operator", Auth::Operator),
        ("shared_secret:mail.in", Auth::SharedSecret("mail.in".into())),
        ("", Auth::Operator),
        ("None", Auth::Operator),
        ("key ", Auth::Operator),
        ("shared_secret", Auth::Operator),
    ] {
        assert_eq!(auth(declared), wanted, "{declared:?}");
    }
}

#[test]
fn a_template_is_as_clients_see_it() {
    let seen = MOUNTS.map(|mount| template_at(mount, "/notes/{id}"));
    assert_eq!(
        seen,
        [
            "/v1/notes/{id}",
            "/v1/users/{user_id}/notes/{id}",
            "/notes/{id}",
            "/v1/operator/notes/{id}",
        ]
    );
}

#[test]
fn the_faults_of_a_schema_say_where_they_are() {
    let mut faults = Vec::new();
    assert!(compile_schema(&json!({"type": "string"}), "body", &mut faults).is_some());
    assert!(faults.is_empty());
    assert!(compile_schema(&json!({"type": "strin"}), "operations.3.body", &mut faults).is_none());
    assert!(compile_schema(&json!(7), "operations.3.query", &mut faults).is_none());
    assert!(faults.len() >= 2);
    assert!(faults.iter().all(|fault| fault.path.starts_with("operations.3.")), "{faults:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_counters_of_a_route_are_looked_up_once_a_mount() {
    let bed = Bed::new().await;
    let component = bed.engine.stage(probe(900_001).into()).await.unwrap();
    let served = Served::new(component).unwrap();
    let contract = &served.operation("probe.build").unwrap().contract;
    let looked_up = std::cell::RefCell::new(Vec::new());
    for _ in 0..3 {
        for mount in [Mount::Company, Mount::User] {
            let counters = contract.stats(mount, |method, template| {
                looked_up.borrow_mut().push(format!("{method} {template}"));
                Default::default()
            });
            counters.record(
                200,
                charter_registry::stats::RequestOutcome::Answered,
                std::time::Duration::from_micros(1),
            );
        }
    }
    assert_eq!(*looked_up.borrow(), ["GET /v1/probe", "GET /v1/users/{user_id}/probe"]);
    let counted = contract.stats(Mount::User, |_, _| panic!("it was looked up"));
    assert_eq!(counted.count(charter_registry::stats::RequestOutcome::Answered), 3);
}

//! The global table: which operation a path belongs to, of versions in memory and of those that
//! left it.

use std::sync::Arc;

use charter_kernel::manifest::{Manifest, Mount};
use charter_kernel::route::{Missing, Path};
use charter_registry::served::{Live, Primitive, Reserved, Served};

use crate::bed::Bed;
use crate::fixture::{probe, rewrite};

async fn served(bed: &Bed, wasm: Vec<u8>) -> Arc<Served> {
    let component = bed.engine.stage(wasm.into()).await.unwrap();
    Arc::new(Served::new(component).unwrap())
}

fn primitive(active: &Arc<Served>, others: &[&Arc<Served>]) -> Primitive {
    let others = others.iter().map(|other| Arc::clone(other)).collect();
    Primitive { name: active.name().into(), active: active.clone(), others }
}

fn live<'m>(
    reserved: &Reserved,
    primitives: Vec<Primitive>,
    installed: impl IntoIterator<Item = &'m Manifest>,
) -> Live {
    Live::new(7, reserved, primitives, installed).unwrap()
}

fn find(live: &Live, mount: Mount, method: &str, path: &str) -> Result<String, Missing> {
    let path = Path::parse(path).unwrap();
    live.find(mount, method, &path).map(|found| found.value.operation.contract.id.to_string())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_belongs_to_the_operation_that_declares_it() {
    let bed = Bed::new().await;
    let first = served(&bed, probe(900_001)).await;
    let live = live(&Reserved::default(), vec![primitive(&first, &[])], []);
    for (mount, method, path, wanted) in [
        (Mount::Company, "GET", "/probe", Some("probe.build")),
        (Mount::User, "GET", "/probe", Some("probe.build")),
        (Mount::Company, "POST", "/probe/pairs", Some("probe.pair")),
        (Mount::Company, "GET", "/probe/pairs", Some("probe.pairs")),
        (Mount::Root, "GET", "/probe", None),
        (Mount::Operator, "GET", "/probe", None),
        (Mount::Company, "GET", "/probe/pairs/x", None),
        (Mount::Company, "GET", "/prober", None),
    ] {
        let found = find(&live, mount, method, path).ok();
        assert_eq!(found.as_deref(), wanted, "{mount:?} {method} {path}");
    }
    let wrong = find(&live, Mount::Company, "DELETE", "/probe").unwrap_err();
    assert!(matches!(wrong, Missing::Method { .. }), "{wrong:?}");
    assert_eq!((live.revision(), live.primitives().count()), (7, 1));
    assert_eq!(live.operation("probe.count").unwrap().primitive.name, "probe");
    assert!(live.operation("probe.nothing").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pin_gets_its_version_and_no_other() {
    let bed = Bed::new().await;
    let (first, second) = (served(&bed, probe(900_001)).await, served(&bed, probe(900_002)).await);
    let live = live(&Reserved::default(), vec![primitive(&second, &[&first])], []);
    let probe = live.primitive("probe").unwrap();
    for (pin, wanted) in [
        (None, Some("1.0.900002")),
        (Some("1.0.900001"), Some("1.0.900001")),
        (Some("1.0.900002"), Some("1.0.900002")),
        (Some("1.0.900003"), None),
    ] {
        assert_eq!(probe.version(pin).map(|served| served.version()), wanted, "{pin:?}");
    }
    assert_eq!(probe.versions().count(), 2);
    assert_eq!(probe.active().version(), "1.0.900002");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_that_left_memory_is_reached_by_what_it_alone_has() {
    let bed = Bed::new().await;
    let active = served(&bed, probe(900_001)).await;
    let noticing = rewrite(probe(900_002), "/probe/changes", "/probe/notices");
    let dormant = served(&bed, noticing).await.manifest.clone();
    let with = live(&Reserved::default(), vec![primitive(&active, &[])], [&*dormant]);
    assert_eq!(find(&with, Mount::Company, "GET", "/probe/notices").unwrap(), "probe.changes");
    assert_eq!(find(&with, Mount::Company, "GET", "/probe/changes").unwrap(), "probe.changes");
    let entry = with.operation("probe.changes").unwrap();
    assert_eq!(
        entry.operation.contract.path.to_string(),
        "/probe/changes",
        "the active version's comes first"
    );
    let without = live(&Reserved::default(), vec![primitive(&active, &[])], []);
    assert!(find(&without, Mount::Company, "GET", "/probe/notices").is_err());
    // A primitive that does not serve has no routes, whatever is installed of it.
    let none = live(&Reserved::default(), vec![], [&*dormant]);
    assert!(find(&none, Mount::Company, "GET", "/probe/notices").is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dormant_route_that_is_taken_by_now_keeps_nobody_from_serving() {
    let bed = Bed::new().await;
    let active = served(&bed, probe(900_001)).await;
    let noticing = rewrite(probe(900_002), "/probe/changes", "/probe/notices");
    let dormant = served(&bed, noticing).await.manifest.clone();
    let reserved = Reserved::new([("GET", Mount::Company, "/probe/notices")]);
    let live = live(&reserved, vec![primitive(&active, &[])], [&*dormant]);
    assert!(find(&live, Mount::Company, "GET", "/probe/notices").is_err());
    assert!(find(&live, Mount::Company, "GET", "/probe").is_ok());
}

#[tokio::test(flavor = "multi_thread")]
async fn two_that_serve_one_path_do_not_stand_together() {
    let bed = Bed::new().await;
    let probe_served = served(&bed, probe(900_001)).await;
    // The same routes under another name.
    let twin = Primitive { name: "twin".into(), ..primitive(&probe_served, &[]) };
    let both = vec![primitive(&probe_served, &[]), twin];
    let faults = Live::new(1, &Reserved::default(), both, []).unwrap_err();
    assert!(faults.iter().any(|fault| fault.path.starts_with("operations.")), "{faults:?}");
    let reserved = Reserved::new([("GET", Mount::User, "/probe")]);
    let faults = Live::new(1, &reserved, vec![primitive(&probe_served, &[])], []).unwrap_err();
    assert!(faults[0].message.contains("which the host serves"), "{faults:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn signals_go_to_whom_any_installed_version_asks() {
    let bed = Bed::new().await;
    let active = served(&bed, probe(900_001)).await;
    let live = live(&Reserved::default(), vec![primitive(&active, &[])], []);
    let signal = active.manifest.signals.first().unwrap().clone();
    assert_eq!(live.listeners(&signal).collect::<Vec<_>>(), ["probe"]);
    assert_eq!(live.listeners("nothing").count(), 0);
    let further = Manifest { signals: vec!["later".into()], ..(*active.manifest).clone() };
    let with = super::live::live(&Reserved::default(), vec![primitive(&active, &[])], [&further]);
    assert_eq!(with.listeners("later").collect::<Vec<_>>(), ["probe"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_is_the_primitives_that_bears_its_first_word() {
    let bed = Bed::new().await;
    let actions = r#"],"actions":[{"name":"hostile.buy","title":"Buy","description":"Buys.","risk":"high","spends":true},{"name":"hostile.send","title":"Send","description":"Sends.","risk":"low","spends":false}"#;
    let wasm = crate::fixture::declaring(actions);
    let hostile = served(&bed, wasm).await;
    let live = live(&Reserved::default(), vec![primitive(&hostile, &[])], []);
    for (action, wanted) in [
        ("hostile.buy", Some(true)),
        ("hostile.send", Some(false)),
        ("hostile.sell", None),
        ("probe.buy", None),
        ("hostile", None),
    ] {
        assert_eq!(live.action(action).map(|(_, spends)| spends), wanted, "{action}");
    }
}

//! The rules of events and audit rows: names, kinds, bounds, and whose they are.

use charter_kernel::unit::FactKind;
use serde_json::json;

use super::*;
use crate::config::EngineConfig;
use crate::run::bed::{Bed, long, shop, user};

async fn audit(bed: &Bed, action: &str, kind: &str) -> Result<(), String> {
    let (action, kind) = (action.to_owned(), kind.to_owned());
    bed.by(user(3), async |guest| guest.audit(action, kind, "1".into(), "{}".into()).await).await
}

/// How many facts of a kind are committed.
async fn count_facts(bed: &Bed, kind: FactKind) -> u64 {
    bed.store().facts_head_settled(kind, user(3).lane()).await.unwrap()
}

#[tokio::test]
async fn an_event_is_declared_and_its_payload_is_json() {
    let bed = Bed::new().await;
    for (name, payload, word) in [
        ("shop.sold", "{}", Ok(())),
        ("shop.sold", "null", Ok(())),
        ("shop.stolen", "{}", Err("internal_error:UNDECLARED")),
        ("other.sold", "{}", Err("internal_error:UNDECLARED")),
        ("", "{}", Err("internal_error:UNDECLARED")),
        ("shop.sold", "", Err("invalid_input:payload")),
        ("shop.sold", "{} {}", Err("invalid_input:payload")),
    ] {
        let emit = async |guest: &mut State| guest.emit(name.into(), payload.into()).await;
        assert_eq!(bed.by(user(3), emit).await, word.map_err(str::to_owned), "{name} {payload}");
    }
    assert_eq!(count_facts(&bed, FactKind::Event).await, 2);
}

#[tokio::test]
async fn an_audit_row_begins_with_its_primitives_name_and_is_about_a_kind_of_things() {
    let bed = Bed::new().await;
    let (most, over) = (long(64), long(65));
    for kind in ["card", "a", "a.b_c-d9", most.as_str()] {
        assert_eq!(audit(&bed, "shop.looked", kind).await, Ok(()), "{kind}");
    }
    for kind in ["", "Card", "9a", "a b", "a\n", "<b>", "ü", over.as_str()] {
        let word = Err("invalid_input:entity_type".into());
        assert_eq!(audit(&bed, "shop.looked", kind).await, word, "{kind}");
    }
    for action in ["", "shop", "shop.", "shopper.looked", "other.looked", "shop.Looked", "shop.a b"]
    {
        let word = Err("invalid_input:action".into());
        assert_eq!(audit(&bed, action, "card").await, word, "{action}");
    }
    assert_eq!(count_facts(&bed, FactKind::Audit).await, 4);
}

#[tokio::test]
async fn a_primitive_speaks_for_the_words_of_its_manifest_too() {
    let mut bed = Bed::new().await;
    let mut manifest = shop();
    manifest["speaks_for"] = json!(["till"]);
    bed.beside(manifest);
    assert_eq!(audit(&bed, "till.opened", "card").await, Ok(()));
    assert_eq!(audit(&bed, "tiller.opened", "card").await, Err("invalid_input:action".into()));
}

#[tokio::test]
async fn facts_of_a_request_are_bounded_in_number_and_each_in_bytes() {
    let bed = Bed::new().await;
    let many = bed.by(user(3), async |guest| {
        for _ in 0..FACTS_MAX {
            guest.emit("shop.sold".into(), "{}".into()).await?;
        }
        guest.emit("shop.sold".into(), "{}".into()).await
    });
    assert_eq!(many.await, Err("payload_too_large".into()));
    assert_eq!(
        count_facts(&bed, FactKind::Event).await,
        FACTS_MAX as u64,
        "those before it were said"
    );
    let large = format!("\"{}\"", long(FACT_BYTES_MAX));
    let emit = async |guest: &mut State| guest.emit("shop.sold".into(), large).await;
    assert_eq!(bed.by(user(3), emit).await, Err("payload_too_large".into()));
    let entity = async |guest: &mut State| {
        let id = long(FACT_BYTES_MAX);
        guest.audit("shop.looked".into(), "card".into(), id, "{}".into()).await
    };
    assert_eq!(bed.by(user(3), entity).await, Err("payload_too_large".into()));
}

#[tokio::test]
async fn a_fact_names_its_project_and_user_unless_all_is_the_organizations() {
    let mut bed = Bed::new().await;
    let emitted = async |bed: &Bed| {
        let mut guest = bed.attempt(bed.call(user(3)));
        guest.emit("shop.sold".into(), r#"{"n":1}"#.into()).await.unwrap();
        let fact = guest.work().unwrap().facts.pop().unwrap();
        let body: Value = serde_json::from_str(&fact.body).unwrap();
        assert_eq!(fact.user.as_deref(), body["user"].as_str());
        let payload = fact.payload(&body);
        (body, payload)
    };
    let scope = user(3);
    let (body, payload) = emitted(&bed).await;
    assert_eq!(body["project"], scope.project().unwrap().as_str());
    assert_eq!(body["user"], scope.user().unwrap().as_str());
    assert_eq!(body["actor"], json!({ "type": "key", "id": "k" }));
    assert_eq!((&body["primitive"], payload), (&json!("shop"), Some(json!({ "n": 1 }))));
    let mut manifest = shop();
    manifest["collections"] = json!([{ "name": "house", "reach": "organization" }]);
    bed.beside(manifest);
    let (body, payload) = emitted(&bed).await;
    assert_eq!((&body["project"], &body["user"]), (&Value::Null, &Value::Null));
    assert_eq!(payload, Some(json!({ "n": 1 })));
}

/// Tells an event or an audit row of nearly as many bytes as one may have.
async fn tell(guest: &mut State, is_event: bool) -> Result<(), Failure> {
    let text = format!("\"{}\"", long(60 << 10));
    match is_event {
        true => guest.emit("shop.sold".into(), text).await,
        false => guest.audit("shop.looked".into(), "card".into(), "1".into(), text).await,
    }
}

#[tokio::test]
async fn facts_of_one_request_are_its_own_memory_until_a_checkpoint() {
    let config = EngineConfig { guest_memory_bytes_max: 1 << 20, ..EngineConfig::default() };
    let bed = Bed::with(config).await;
    for is_event in [true, false] {
        let many = bed.by(user(3), async |guest| {
            for _ in 0..100 {
                tell(guest, is_event).await?;
            }
            Ok(())
        });
        assert_eq!(many.await, Err("payload_too_large:too_much_held".into()), "{is_event}");
        let parts = bed.by(user(3), async |guest| {
            for n in 1..=30 {
                tell(guest, is_event).await?;
                if n % 10 == 0 {
                    guest.work()?.checkpoint().await?;
                }
            }
            Ok(())
        });
        assert_eq!(parts.await, Ok(()), "{is_event}");
    }
}

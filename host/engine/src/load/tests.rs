//! The fit of a manifest with its component's imports, and the name that a component is known by.

use std::collections::BTreeSet;

use charter_kernel::manifest::faults;
use serde_json::json;

use super::*;
use crate::config::EngineConfig;
use crate::run::bed::Bed;

#[test]
fn a_component_is_known_by_the_digest_of_its_bytes() {
    // The digest of nothing that everybody knows.
    let nothing = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    assert_eq!(digest(b""), nothing);
    assert_ne!(digest(b"a"), digest(b"b"));
    assert_eq!(digest(b"a").len(), nothing.len());
}

/// A manifest with these capabilities, as text.
fn description(capabilities: &[&str]) -> String {
    json!({
        "name": "shop",
        "version": "1.0.0",
        "title": "Shop",
        "summary": "Sells.",
        "capabilities": capabilities,
        "operations": [{
            "id": "shop.look", "method": "GET", "path": "/shop", "summary": "Look.",
            "answer": { "type": "object" },
        }],
    })
    .to_string()
}

fn faults(text: &str, imported: &[&str], http: bool) -> Vec<String> {
    let imported: BTreeSet<String> = imported.iter().map(|name| (*name).to_owned()).collect();
    let checked = manifest(text, &imported, http, faults::check);
    checked.err().unwrap_or_default().iter().map(ToString::to_string).collect()
}

#[test]
fn what_a_component_imports_its_manifest_declares() {
    assert_eq!(faults(&description(&[]), &[], false), [""; 0]);
    assert_eq!(faults(&description(&["streams", "secrets"]), &["streams"], false), [""; 0]);
    for declared in ["http", "public-web"] {
        let provider = |fault: &String| !fault.contains("import");
        let found = faults(&description(&[declared]), &[], true);
        assert!(found.iter().all(provider), "{declared}: {found:?}");
    }
    let found = faults(&description(&[]), &["documents", "streams"], true);
    assert_eq!(found.len(), 3, "all at once: {found:?}");
    assert!(found[0].contains("`documents`") && found[0].contains(".collection(&…)"), "{found:?}");
    assert!(found[1].contains(".uses(\"streams\")"), "{found:?}");
    assert!(found[2].contains("wasi:http"), "{found:?}");
}

#[test]
fn a_description_that_is_no_manifest_says_where_it_is_wrong() {
    for text in ["", "{", "[]", "null", "{}", "{\"name\":1}"] {
        assert!(!faults(text, &[], false).is_empty(), "{text}");
    }
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let found = faults(&deep, &[], false);
    assert!(found[0].contains("describe"), "{found:?}");
}

#[tokio::test]
async fn a_component_that_is_too_large_is_not_even_looked_at() {
    let config = EngineConfig { component_bytes_max: 10, ..EngineConfig::default() };
    let bed = Bed::with(config).await;
    let faults = stage(&bed.shared, Bytes::from_static(&[0; 11]), faults::check).await.unwrap_err();
    let found = format!("{faults:?}");
    assert!(faults.len() == 1 && found.contains("11 bytes; at most 10"), "{found}");
    let faults = stage(&bed.shared, Bytes::from_static(&[0; 10]), faults::check).await.unwrap_err();
    assert!(format!("{faults:?}").contains("not a WebAssembly component"));
}

#[tokio::test]
async fn work_that_panics_is_a_fault_and_gives_its_turn_back() {
    let bed = Bed::new().await;
    for _ in 0..4 {
        let done = blocking(&bed.shared, || -> u8 { panic!("the compiler fails") }).await;
        assert!(done.unwrap_err()[0].message.contains("makes the compiler fail"));
    }
    assert_eq!(blocking(&bed.shared, || 7).await.unwrap(), 7);
}

#[tokio::test]
async fn without_a_cache_nothing_comes_out_of_it() {
    let bed = Bed::new().await;
    assert!(load_cached(&bed.shared, "sha256:00").await.is_none());
}

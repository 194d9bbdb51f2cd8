//! How this replica and its deployment are doing, for the operator. Says what is wrong in words,
//! and is 200 either way.

use charter_kernel::refusal::Refusal;
use charter_store::Txn;
use serde_json::{Value, json};

use crate::app::App;
use crate::components::State;
use crate::reply::Reply;
use crate::request::HostRequest;

/// The answer's schema.
pub fn answer() -> Value {
    json!({
        "type": "object",
        "properties": {
            "status": {"enum": ["ok", "degraded"]},
            "faults": {"type": "array", "items": {"type": "string"}},
            "version": {"type": "string"},
            "started_at": {"type": "string", "format": "date-time"},
        },
        "required": ["status", "faults", "version", "started_at"],
    })
}

/// `GET /v1/operator/health`
pub async fn get(app: &App, _: &HostRequest, _: &mut Txn) -> Result<Reply, Refusal> {
    let mut faults = Vec::new();
    let store = app.store.status();
    if !app.store.ping().await {
        faults.push("the database does not answer".to_owned());
    }
    if let Some(reason) = &store.read_only {
        faults.push(format!("the store takes no mutations: {reason}"));
    }
    let mode = app.engine.mode();
    if mode != "pooling" {
        faults.push(format!(
            "the sandbox fell back to {mode}: this machine has too little address space"
        ));
    }
    let catalogue = app.registry.catalogue();
    for version in
        catalogue.versions.values().flatten().filter(|version| version.state == State::Quarantined)
    {
        let why = version.reason.as_deref().unwrap_or("it was stepped back from");
        faults.push(format!("{} {} is quarantined: {why}", version.name, version.version));
    }
    let live = app.registry.current();
    for version in catalogue.serving().filter(|version| live.primitive(&version.name).is_none()) {
        faults.push(format!("{} {} is active but cannot be loaded", version.name, version.version));
    }
    let replicas = app.registry.replicas().await?;
    let replicas: Vec<Value> = replicas
        .iter()
        .map(|replica| json!({"id": replica.id, "host": replica.host, "seen_at": replica.seen_at, "compiled": replica.compiled.len()}))
        .collect();
    Ok(Reply::ok(&json!({
        "status": if faults.is_empty() { "ok" } else { "degraded" },
        "faults": faults,
        "version": env!("CARGO_PKG_VERSION"),
        "started_at": app.started_at,
        "draining": app.draining.is_cancelled(),
        "database": {
            "kind": if app.store.is_shared() { "postgresql" } else { "sqlite" },
            "read_only": store.read_only,
            "queued_units": store.queued_units,
            "batches": store.batches,
            "units": store.units,
        },
        "sandbox": {"mode": mode, "stepped_back": app.registry.stepped_back()},
        "components": {"installed": catalogue.versions.len(), "live": live.primitives().count(), "revision": live.revision()},
        "replicas": replicas,
    })))
}

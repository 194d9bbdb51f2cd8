//! `GET /health`: whether this replica can answer. Open, cheap, and says nothing about tenants.

use charter_kernel::refusal::Refusal;
use charter_store::Txn;
use http::StatusCode;
use serde_json::{Value, json};

use super::shape::object;
use crate::app::App;
use crate::reply::Reply;
use crate::request::HostRequest;

/// What is answered.
pub fn answer() -> Value {
    let text = json!({"type": "string"});
    object(&[
        ("status", json!({"enum": ["ok", "degraded", "unavailable"]})),
        ("version", text.clone()),
        ("database", json!({"enum": ["ok", "unavailable"]})),
        ("read_only", json!({"type": ["string", "null"]})),
        ("sandbox", text),
        ("draining", json!({"type": "boolean"})),
    ])
}

/// 200 while requests can be answered, 503 while not: `degraded` still answers reads.
///
/// # Errors
/// None.
pub async fn get(app: &App, _: &HostRequest, _: &mut Txn) -> Result<Reply, Refusal> {
    let reachable = app.store.ping().await;
    let store = app.store.status();
    let draining = app.draining.is_cancelled();
    let degraded = store.read_only.is_some() || app.engine.mode() != "pooling";
    let status = match (reachable && !draining, degraded) {
        (false, _) => "unavailable",
        (true, true) => "degraded",
        (true, false) => "ok",
    };
    let code =
        if reachable && !draining { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    Ok(Reply::json(
        code,
        &json!({
            "status": status,
            "version": env!("CARGO_PKG_VERSION"),
            "database": if reachable { "ok" } else { "unavailable" },
            "read_only": store.read_only,
            "sandbox": app.engine.mode(),
            "draining": draining,
        }),
    ))
}

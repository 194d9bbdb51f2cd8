//! `GET /health`: whether this replica can answer. Open, cheap, and says nothing about tenants.

use charter_kernel::authority::Class;
use charter_kernel::refusal::Refusal;
use charter_store::Txn;
use http::StatusCode;
use schemars::JsonSchema;
use serde::Serialize;

use crate::app::App;
use crate::handler;
use crate::request::HostRequest;
use crate::route::HostRoute;
use crate::serve::Answer;

/// The row of this route.
pub fn routes() -> Vec<HostRoute> {
    vec![
        HostRoute::get(Class::Open, "health", "/health", handler!(check_health))
            .root()
            .open()
            .summary("Health check"),
    ]
}

/// How this replica is doing.
#[derive(Serialize, JsonSchema)]
pub struct Health {
    /// Whether it answers requests: `degraded` still answers reads.
    status: Status,
    /// The version of the host.
    version: &'static str,
    /// Whether its database answers.
    database: Reachability,
    /// The reason why the store takes no changes.
    read_only: Option<String>,
    /// The mode of the sandbox.
    sandbox: &'static str,
    /// Whether it is ending, and takes no new requests.
    draining: bool,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    Degraded,
    Unavailable,
}

#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Reachability {
    Ok,
    Unavailable,
}

/// 200 while requests can be answered, 503 while not: `degraded` still answers reads.
///
/// # Errors
/// None.
pub async fn check_health(
    app: &App,
    _: &HostRequest,
    _: &mut Txn,
) -> Result<Answer<Health>, Refusal> {
    let reachable = app.store.ping().await;
    let store = app.store.status();
    let draining = app.draining.is_cancelled();
    let degraded = store.read_only.is_some() || app.engine.mode() != "pooling";
    let answers = reachable && !draining;
    let status = match (answers, degraded) {
        (false, _) => Status::Unavailable,
        (true, true) => Status::Degraded,
        (true, false) => Status::Ok,
    };
    let code = if answers { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let health = Health {
        status,
        version: env!("CARGO_PKG_VERSION"),
        database: if reachable { Reachability::Ok } else { Reachability::Unavailable },
        read_only: store.read_only,
        sandbox: app.engine.mode(),
        draining,
    };
    Ok(Answer::of(&health).status(code))
}

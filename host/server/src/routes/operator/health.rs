//! How this replica and its deployment are doing, for the operator. Says what is wrong in words,
//! and is 200 either way.

use charter_kernel::authority::Class;
use charter_kernel::refusal::Refusal;
use charter_kernel::time::Instant;
use charter_registry::components::State;
use charter_store::Txn;
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
        HostRoute::get(Class::Operator, "operator.health", "/health", handler!(get_health))
            .operator()
            .summary("How this replica and its deployment are doing"),
    ]
}

/// How this replica and its deployment are doing.
#[derive(Serialize, JsonSchema)]
pub struct Health {
    status: Status,
    /// The faults, in words.
    faults: Vec<String>,
    /// The version of the host.
    version: &'static str,
    /// The moment of the replica's start.
    started_at: Instant,
    /// Whether it is ending, and takes no new requests.
    draining: bool,
    database: Database,
    sandbox: Sandbox,
    components: Components,
    replicas: Vec<ReplicaItem>,
}

/// Whether there are faults.
#[derive(Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    Degraded,
}

/// The store of this replica.
#[derive(Serialize, JsonSchema)]
struct Database {
    /// `sqlite` or `postgresql`.
    kind: &'static str,
    /// The reason why it takes no changes.
    read_only: Option<String>,
    /// Units that wait for their commit.
    queued_units: usize,
    /// Batches since the start.
    batches: u64,
    /// Units since the start.
    units: u64,
}

/// The sandbox of this replica.
#[derive(Serialize, JsonSchema)]
struct Sandbox {
    /// `pooling`, or the mode that it fell back to.
    mode: &'static str,
    /// How often a version was stepped back from.
    stepped_back: u64,
}

/// The components of the deployment.
#[derive(Serialize, JsonSchema)]
struct Components {
    /// How many primitives are installed.
    installed: usize,
    /// How many of them serve.
    live: usize,
    /// The revision of the registry.
    revision: u64,
}

/// A replica of the deployment.
#[derive(Serialize, JsonSchema)]
struct ReplicaItem {
    /// The replica's id.
    id: String,
    /// Its machine.
    host: String,
    /// The moment of its last sign.
    seen_at: Instant,
    /// How many components it has compiled.
    compiled: usize,
}

/// `GET /v1/operator/health`
pub async fn get_health(
    app: &App,
    _: &HostRequest,
    _: &mut Txn,
) -> Result<Answer<Health>, Refusal> {
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
    let inventory = app.registry.inventory();
    for version in
        inventory.versions.values().flatten().filter(|version| version.state == State::Quarantined)
    {
        let why = version.reason.as_deref().unwrap_or("it was stepped back from");
        faults.push(format!("{} {} is quarantined: {why}", version.name, version.version));
    }
    let live = app.registry.current();
    for version in inventory.serving().filter(|version| live.primitive(&version.name).is_none()) {
        faults.push(format!("{} {} is active but cannot be loaded", version.name, version.version));
    }
    let replicas = app.registry.replicas().await?;
    let replicas = replicas.iter().map(|replica| ReplicaItem {
        id: replica.id.clone(),
        host: replica.host.clone(),
        seen_at: replica.seen_at,
        compiled: replica.compiled.len(),
    });
    Ok(Answer::of(&Health {
        status: if faults.is_empty() { Status::Ok } else { Status::Degraded },
        faults,
        version: env!("CARGO_PKG_VERSION"),
        started_at: app.started_at,
        draining: app.draining.is_cancelled(),
        database: Database {
            kind: if app.store.is_shared() { "postgresql" } else { "sqlite" },
            read_only: store.read_only,
            queued_units: store.queued_units,
            batches: store.batches,
            units: store.units,
        },
        sandbox: Sandbox { mode, stepped_back: app.registry.step_backs() },
        components: Components {
            installed: inventory.versions.len(),
            live: live.primitives().count(),
            revision: live.revision(),
        },
        replicas: replicas.collect(),
    }))
}

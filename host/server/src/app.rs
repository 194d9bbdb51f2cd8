//! What every request shares: configuration, store, engine, directory, registry, metrics, clock.

use std::sync::Arc;

use charter_adapters::Adapters;
use charter_engine::Engine;
use charter_governance::Governance;
use charter_kernel::time::Clock;
use charter_store::Store;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::components::Registry;
use crate::config::Config;
use crate::directory::Directory;
use crate::hooks::Counts;
use crate::http::room::Room;
use crate::metrics::Metrics;
use crate::openapi::Description;
use crate::operator::Operator;
use crate::pipeline::checks::Checks;
use crate::pipeline::follow::Places;
use crate::pipeline::rate::Buckets;
use crate::pipeline::running::Running;
use crate::pipeline::table::HostTable;
use crate::strangers::Strangers;

/// The running server. Shared by reference; nothing in it is replaced after start.
pub struct App {
    /// What the operator has set.
    pub config: Config,
    /// Rows, logs, facts, blobs.
    pub store: Store,
    /// Runs components.
    pub engine: Engine,
    /// Credentials and tenancy, cached.
    pub directory: Directory,
    /// Live components and the global route table.
    pub registry: Registry,
    /// The operator's token.
    pub operator: Operator,
    /// Leave for regulated actions.
    pub governance: Governance,
    /// The world outside.
    pub adapters: Arc<Adapters>,
    /// Token buckets of the configured rates.
    pub buckets: Buckets,
    /// What client addresses may do without a credential, and have done.
    pub strangers: Strangers,
    /// Room for request bodies.
    pub room: Room,
    /// Checks of bodies that take long.
    pub checks: Checks,
    /// Requests under an idempotency key that run now.
    pub running: Running,
    /// What became of calls of inbound URLs.
    pub hooks: Arc<Counts>,
    /// Streams that are open.
    pub streams: Places,
    /// What cursors are sealed with.
    pub cursor_key: [u8; 32],
    /// The host's own routes, compiled.
    pub routes: HostTable,
    /// The OpenAPI description, cached by registry version.
    pub description: Description,
    /// Counters.
    pub metrics: Metrics,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// When it started, for the status page.
    pub started_at: charter_kernel::time::Instant,
    /// Canceled once the server begins to drain: no new connections, streams end, workers stop
    /// taking.
    pub draining: CancellationToken,
    /// What must finish before the process ends.
    pub tasks: TaskTracker,
}

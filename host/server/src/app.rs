//! The state that all requests share: configuration, store, engine, directory, registry, metrics,
//! clock.

use std::sync::Arc;

use charter_adapters::Adapters;
use charter_engine::job::jobs;
use charter_engine::job::room::{Part, RETRY_SECONDS, Waiting};
use charter_engine::{Engine, Outcome};
use charter_governance::Governance;
use charter_kernel::id::OrganizationId;
use charter_kernel::refusal::Refusal;
use charter_kernel::time::Clock;
use charter_registry::components::{Caller, Registry};
use charter_registry::served::Served;
use charter_store::Store;
use charter_tenancy::directory::Directory;
use charter_tenancy::operator::Operator;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::bounds::Bounds;
use crate::config::Config;
use crate::description::Description;
use crate::metrics::Metrics;
use crate::metrics::hooks::Counts;
use crate::table::HostTable;

/// The running server. Shared by reference; nothing in it is replaced after start.
pub struct App {
    /// The operator's settings.
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
    pub governance: Arc<Governance>,
    /// The world outside.
    pub adapters: Arc<Adapters>,
    /// How much of this process callers may have.
    pub bounds: Bounds,
    /// Counts of calls of inbound URLs, by their end.
    pub hooks: Counts,
    /// The key that cursors are sealed with.
    pub cursor_key: [u8; 32],
    /// The key under which idempotency records keep requests' fingerprints.
    pub fingerprint_key: [u8; 32],
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
    /// Canceled once the time of a drain is nearly over: whoever still waits is answered so.
    pub cut: CancellationToken,
    /// The tasks that must finish before the process ends.
    pub tasks: TaskTracker,
}

impl App {
    /// Whether so many jobs of an organization wait that this part of the room has none left; false where
    /// nobody can tell.
    pub async fn jobs_are_full(&self, organization: &str, part: &Part) -> bool {
        let waiting = Waiting::count(&self.store, &jobs(), organization, part.max()).await;
        waiting.is_ok_and(|waiting| !waiting.leaves(part))
    }

    /// The refusal of what finds no room among the jobs.
    pub fn word_jobs_full(told: &'static str) -> Refusal {
        Refusal::rate_limited(RETRY_SECONDS).reason("jobs_full").hint(told)
    }

    /// Counts what became of a call, for the version that took it.
    pub async fn observe(
        &self,
        served: &Served,
        organization: Option<&OrganizationId>,
        outcome: &Outcome,
    ) {
        let Some(organization) = organization else { return };
        let found = self.directory.organization(organization).await.ok().flatten();
        let proved = found.is_some_and(|found| found.proved);
        let caller = Caller { organization: organization.as_str(), proved };
        let trapped = matches!(outcome, Outcome::Trapped { .. });
        self.registry.observe(served.name(), served.digest(), caller, trapped);
    }
}

//! The job runner: takes due rows of `host.jobs` under leases, runs each in its owner's scope, and
//! settles it by its fence.
//!
//! Rows are taken across all tenants, of each organization in turn, so that nobody's backlog delays
//! anybody else's jobs.

use std::sync::Arc;

use charter_engine::job;

use super::due::Due;
use super::run;
use crate::app::App;

/// The time that a lease has beyond the run's own deadline: the time to settle.
pub(super) const SETTLE_MS: i64 = 15_000;

/// Runs jobs of the primitives that serve until the host drains, then waits for those that run.
pub(super) async fn run(app: Arc<App>) {
    let due = Due {
        space: job::jobs(),
        takes: |app, kind| app.registry.current().primitive(job::primitive_of(kind)).is_some(),
        // A job may name a longer deadline than the default; its lease is extended before it runs.
        lease_ms: i64::from(app.config.jobs.deadline_ms) + SETTLE_MS,
        places: app.config.jobs.concurrency,
    };
    let one = |taken| {
        let app = app.clone();
        async move { run::job(&app, taken).await }
    };
    due.each(&app, one).await;
}

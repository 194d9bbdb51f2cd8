//! The job runner: takes due rows of `host.jobs` under leases, runs each in its owner's scope, and
//! settles it by its fence.
//!
//! Rows are taken across all tenants, of each organization in turn, so that nobody's backlog delays
//! anybody else's jobs.

use std::sync::Arc;
use std::time::Duration;

use charter_engine::job;

use super::due::Running;
use super::fair::{Fair, LOOK_EVERY};
use super::run;
use crate::app::App;

/// The time that a lease has beyond the run's own deadline: the time to settle.
pub(super) const SETTLE_MS: i64 = 15_000;

/// Runs jobs until the host drains, then waits for those that run.
pub(super) async fn run(app: Arc<App>) {
    // A job may name a longer deadline than the default; its lease is extended before it runs.
    let lease_ms = i64::from(app.config.jobs.deadline_ms) + SETTLE_MS;
    let mut due = Fair::new(job::jobs(), lease_ms, app.config.jobs.concurrency);
    let mut running = Running::default();
    while !app.draining.is_cancelled() {
        let wait = look(&app, &mut due, &mut running).await;
        tokio::select! {
            () = app.draining.cancelled() => {}
            () = app.governance.job_wanted.notified() => {}
            () = tokio::time::sleep(wait) => {}
            Some(group) = running.wait_for_end() => due.leave(&group),
        }
        while let Some(group) = running.has_ended() {
            due.leave(&group);
        }
    }
    due.give_back(&app).await;
    while running.wait_for_end().await.is_some() {}
}

/// One look at what is due; says how long to wait for the next.
async fn look(app: &Arc<App>, due: &mut Fair, running: &mut Running) -> Duration {
    let live = app.registry.current();
    let looked = tokio::select! {
        () = app.draining.cancelled() => return Duration::ZERO,
        looked = due.look(app, |kind| live.primitive(job::primitive_of(kind)).is_some()) => looked,
    };
    match looked {
        Ok(looked) => {
            // There may be more of the same.
            let wait = if looked.taken.is_empty() { looked.wait } else { Duration::ZERO };
            for (group, taken) in looked.taken {
                let app = app.clone();
                running.begin(group, async move { run::job(&app, taken).await });
            }
            wait
        }
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "jobs could not be taken");
            LOOK_EVERY
        }
    }
}

//! The work beside requests: jobs, schedules, the sweeper, and the follower of the other replicas'
//! changes.
//!
//! Each stops taking new work when the host drains and finishes what it holds; what a crash leaves
//! behind is taken up again when its lease has ended.

use std::sync::Arc;

use charter_adapters::webhooks::deliveries;
use charter_registry::components::watch::Folder;
use tokio_util::sync::CancellationToken;

use crate::app::App;

mod ahead;
mod approvals;
mod checkpoints;
mod due;
mod erase;
mod fair;
mod feeds;
mod follow;
mod holds;
mod jobs;
mod mails;
mod round;
mod run;
mod schedules;
mod settle;
mod sweep;

/// Starts all of them.
pub fn start(app: &Arc<App>, folder: Option<Folder>) {
    app.tasks.spawn(until_drained(app, follow::run(app.clone())));
    app.tasks.spawn(jobs::run(app.clone()));
    app.tasks.spawn(schedules::run(app.clone()));
    app.tasks.spawn(until_drained(app, ahead::run(app.clone())));
    app.tasks.spawn(erase::run(app.clone()));
    app.tasks.spawn(approvals::run_approved(app.clone()));
    app.tasks.spawn(approvals::expire_undecided(app.clone()));
    app.tasks.spawn(approvals::forget_resolved(app.clone()));
    app.tasks.spawn(holds::close_overdue(app.clone()));
    app.tasks.spawn(holds::ask_about_doubts(app.clone()));
    app.tasks.spawn(until_drained(app, holds::forget_ended(app.clone())));
    app.tasks.spawn(until_drained(app, checkpoints::run(app.clone())));
    app.tasks.spawn(until_drained(app, feeds::run(app.clone())));
    let deliveries = deliveries::run(app.adapters.clone(), app.tasks.clone(), app.draining.clone());
    app.tasks.spawn(until_drained(app, deliveries));
    app.tasks.spawn(mails::run(app.clone()));
    app.tasks.spawn(until_drained(app, sweep::run(app.clone())));
    let registry = app.registry.clone();
    app.tasks.spawn(until_drained(app, async move { registry.keep_alive().await }));
    if let Some(folder) = folder {
        app.tasks.spawn(folder.follow(app.registry.clone(), app.draining.clone()));
    }
}

/// Runs until the host drains. For work that may stop at any await: each of its commits is whole.
fn until_drained(
    app: &App,
    work: impl Future<Output = ()> + Send + 'static,
) -> impl Future<Output = ()> + Send + 'static {
    let draining: CancellationToken = app.draining.clone();
    async move {
        let _ = draining.run_until_cancelled(work).await;
    }
}

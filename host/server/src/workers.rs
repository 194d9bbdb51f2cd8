//! What runs beside requests: jobs, schedules, the sweeper, and whoever follows the other replicas'
//! changes.
//!
//! Each stops taking new work when the host drains and finishes what it holds; what a crash leaves
//! behind is taken up again when its lease has ended.

use std::sync::Arc;
use std::time::Duration;

use charter_adapters::webhooks::deliveries;
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::components::watch::Folder;

pub(crate) mod approvals;
mod checkpoints;
mod due;
mod erase;
mod feeds;
mod follow;
mod holds;
mod jobs;
mod mails;
pub(crate) mod owner;
mod run;
mod schedules;
mod sweep;

/// How often what should not be missed is looked for, although something wakes it.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// Starts all of them.
pub fn start(app: &Arc<App>, folder: Option<Folder>) {
    app.tasks.spawn(until_drained(app, follow::run(app.clone())));
    app.tasks.spawn(jobs::run(app.clone()));
    app.tasks.spawn(until_drained(app, schedules::run(app.clone())));
    app.tasks.spawn(until_drained(app, erase::run(app.clone())));
    app.tasks.spawn(until_drained(app, approvals::approved(app.clone())));
    app.tasks.spawn(until_drained(app, approvals::undecided(app.clone())));
    app.tasks.spawn(until_drained(app, approvals::resolved(app.clone())));
    app.tasks.spawn(until_drained(app, holds::overdue(app.clone())));
    app.tasks.spawn(until_drained(app, holds::doubted(app.clone())));
    app.tasks.spawn(until_drained(app, holds::ended(app.clone())));
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
    app: &Arc<App>,
    work: impl Future<Output = ()> + Send + 'static,
) -> impl Future<Output = ()> + Send + 'static {
    let draining: CancellationToken = app.draining.clone();
    async move {
        let _ = draining.run_until_cancelled(work).await;
    }
}

//! The job runner: takes due rows of `host.jobs` under leases, runs each in its owner's scope, and
//! settles it by its fence.
//!
//! Rows are taken across all tenants, a few for each primitive in turn, so that one primitive's
//! backlog delays no other's.

use std::sync::Arc;
use std::time::Duration;

use charter_engine::job;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::due::Due;
use super::{LOOK_EVERY, run};
use crate::app::App;

/// Jobs of one primitive taken at once.
const BATCH_MAX: usize = 8;
/// What a lease has beyond the run's own deadline: the time to settle.
pub(super) const SETTLE_MS: i64 = 15_000;

/// Runs jobs until the host drains, then waits for those that run.
pub(super) async fn run(app: Arc<App>) {
    let slots = Arc::new(Semaphore::new(app.config.jobs.concurrency));
    let mut turn = 0_usize;
    while !app.draining.is_cancelled() {
        match look(&app, &slots, turn).await {
            Ok(true) => {}
            Ok(false) => idle(&app).await,
            Err(error) => {
                tracing::warn!(%error, "jobs could not be taken");
                pause(&app, LOOK_EVERY).await;
            }
        }
        turn = turn.wrapping_add(1);
    }
    let all = u32::try_from(app.config.jobs.concurrency).unwrap_or(u32::MAX);
    let _ = slots.acquire_many(all).await;
}

/// One look at every primitive's due jobs; true where any was taken.
async fn look(
    app: &Arc<App>,
    slots: &Arc<Semaphore>,
    turn: usize,
) -> Result<bool, charter_store::CommitError> {
    let live = app.registry.current();
    let mut names: Vec<String> =
        live.primitives().map(|primitive| primitive.name.clone()).collect();
    if names.is_empty() {
        return Ok(false);
    }
    let at = turn % names.len();
    names.rotate_left(at);
    let mut any = false;
    for name in names {
        if app.draining.is_cancelled() {
            return Ok(false);
        }
        let due = of(app, name);
        if !due.any(app).await {
            continue;
        }
        let Some(places) = places(app, slots).await else { return Ok(false) };
        let taken = due.take(app, places.len()).await?;
        any |= !taken.is_empty();
        for (taken, place) in taken.into_iter().zip(places) {
            let app = app.clone();
            app.tasks.clone().spawn(async move {
                run::job(&app, taken).await;
                drop(place);
            });
        }
    }
    Ok(any)
}

/// At least one place, and a few where they are free; `None` once the host drains.
async fn places(app: &App, slots: &Arc<Semaphore>) -> Option<Vec<OwnedSemaphorePermit>> {
    let first = tokio::select! {
        () = app.draining.cancelled() => return None,
        place = slots.clone().acquire_owned() => place.ok()?,
    };
    let more = std::iter::from_fn(|| slots.clone().try_acquire_owned().ok()).take(BATCH_MAX - 1);
    Some(std::iter::once(first).chain(more).collect())
}

/// The due jobs of one primitive.
fn of(app: &App, primitive: String) -> Due {
    // A job may name a longer deadline than the default; its lease is extended before it runs.
    let lease_ms = i64::from(app.config.jobs.deadline_ms) + SETTLE_MS;
    Due { space: job::jobs(), group: primitive, lease_ms }
}

/// Waits for the next job to fall due; a job of this replica wakes it at once, another's within a
/// second.
async fn idle(app: &App) {
    let waiting = app.registry.current();
    let mut until = LOOK_EVERY;
    for primitive in waiting.primitives() {
        if let Ok(Some(due)) = app.store.next_due(None, &job::jobs(), &primitive.name).await {
            let in_ms = u64::try_from(due.0.saturating_sub(app.clock.now().0)).unwrap_or(0);
            until = until.min(Duration::from_millis(in_ms.max(5)));
        }
    }
    pause(app, until).await;
}

async fn pause(app: &App, until: Duration) {
    tokio::select! {
        () = app.draining.cancelled() => {}
        () = app.governance.job_wanted.notified() => {}
        () = tokio::time::sleep(until) => {}
    }
}

//! Removes what is past its time, in bounded steps, and drops components that nobody uses from
//! memory.

use std::sync::Arc;
use std::time::Duration;

use charter_engine::job::ENDED_AT;
use charter_kernel::time::Instant;
use charter_kernel::unit::Space;

use crate::app::App;

/// How often it looks.
const EVERY: Duration = Duration::from_secs(15);
/// Steps of [`STEP_ROWS`] of one kind at a look: twice as many rows as a host takes in meanwhile.
const STEPS_MAX: u32 = 200;
/// Rows of one step.
const STEP_ROWS: u32 = 200;
/// Records that say by themselves when they end.
const EXPIRING: [&str; 8] = [
    "idempotency",
    "sessions",
    "links",
    "invitations",
    "grants",
    "deliveries",
    "hook_events",
    "mail_quotas",
];

/// Never ends by itself.
pub(super) async fn run(app: Arc<App>) {
    loop {
        tokio::time::sleep(EVERY).await;
        app.registry.sweep();
        if app.store.status().read_only.is_some() {
            continue;
        }
        let now = app.clock.now();
        let idempotency =
            now.plus_ms(-i64::from(app.config.retention.idempotency_hours - 24) * 3_600_000);
        for space in EXPIRING {
            let before = if space == "idempotency" { idempotency } else { now };
            expire(
                &app,
                &Space::host(space),
                charter_tenancy::records::EXPIRES,
                &before.to_string(),
            )
            .await;
        }
        // A job is kept for as long as an answer that names it may be asked for again.
        let jobs_hours =
            app.config.retention.jobs_hours.max(app.config.retention.idempotency_hours);
        let jobs = now.plus_ms(-i64::from(jobs_hours) * 3_600_000);
        expire(&app, &charter_engine::job::jobs(), ENDED_AT, &jobs.to_string()).await;
        forget_events(&app, now.plus_ms(-i64::from(app.config.retention.events_hours) * 3_600_000))
            .await;
        if let Err(error) = app.registry.forget_replicas().await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "rows of former replicas could not be removed"
            );
        }
        if let Err(error) =
            app.registry.forget_versions(app.config.retention.component_versions).await
        {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "old component versions could not be removed"
            );
        }
    }
}

/// Events that no reader resumes from any more. Their sequences show the gap.
async fn forget_events(app: &App, before: Instant) {
    for _ in 0..STEPS_MAX {
        match app.store.forget_events(before, STEP_ROWS).await {
            Ok(forgotten) if forgotten == u64::from(STEP_ROWS) => {}
            Ok(_) => return,
            Err(error) => {
                return tracing::warn!(%error, "events that are past their time could not be removed");
            }
        }
    }
}

async fn expire(app: &App, space: &Space, field: &str, before: &str) {
    for _ in 0..STEPS_MAX {
        match app.store.expire(space, field, before, STEP_ROWS).await {
            Ok(removed) if removed == STEP_ROWS => {}
            Ok(_) => return,
            Err(error) => {
                tracing::warn!(%error, space = space.as_str(), "rows that are past their time could not be removed");
                return;
            }
        }
    }
}

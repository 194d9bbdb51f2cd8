//! Schedules: each occurrence enqueues its job once in the deployment, in the commit that moves the
//! schedule on.

use std::sync::Arc;

use charter_engine::job::room::{Part, ordinary_part_of};
use charter_engine::job::{ScheduleRecord, UNIQUE_KEY, jobs, schedules};
use charter_kernel::schedule::next_occurrence;
use charter_kernel::scope::{Behind, Principal};
use charter_kernel::time::Instant;
use charter_kernel::unit::{Claim, Draft, Key, Rejection, Row, Taken};
use charter_store::{CommitError, TransactError, Txn, WriteError};

use super::due::Due;
use crate::app::App;

/// Schedules worked on side by side.
const PLACES: usize = 32;
/// How long one occurrence may take to enqueue.
pub(super) const LEASE_MS: i64 = 30_000;
/// The due time of a schedule that comes due no more.
const NEVER: Instant = Instant(i64::MAX / 4);

/// Until the host drains.
pub(super) async fn run(app: Arc<App>) {
    let due = Due { space: schedules(), takes: |_, _| true, lease_ms: LEASE_MS, places: PLACES };
    due.each(&app, |taken| fire(app.clone(), taken)).await;
}

/// Enqueues one occurrence and moves the schedule on. Occurrences that passed while nobody ran
/// count as one.
async fn fire(app: Arc<App>, taken: Taken) {
    let Ok(record) = serde_json::from_str::<ScheduleRecord>(&taken.row.body) else {
        tracing::error!(schedule = taken.key.id, "a schedule cannot be read");
        return;
    };
    let now = app.clock.now();
    let next = next_occurrence(&record.cron, &record.time_zone, now).ok().flatten();
    let lane = record.job.owner.organization.clone();
    let behind = record.job.asked.as_ref().map_or(Behind::Organization, Principal::behind);
    let max = ordinary_part_of(app.config.jobs.waiting_max, behind);
    let full = app.jobs_are_full(&lane, &Part::of_group(max, &record.job.group())).await;
    if full {
        tracing::warn!(
            organization = lane,
            schedule = taken.key.id,
            "an occurrence is left out: as many jobs wait as may"
        );
    }
    let fired = app.store.transact(&lane, async |txn: &mut Txn| {
        enqueue(txn, &taken, &record, now, (next.unwrap_or(NEVER), full)).await
    });
    match fired.await {
        Ok(()) => {}
        // Another replica took it up, or it was removed: its own commit decides.
        Err(
            TransactError::Body(WriteError::Refused(_))
            | TransactError::Commit(CommitError::Rejected(Rejection::Refused(_))),
        ) => {}
        Err(error) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                schedule = taken.key.id,
                "an occurrence was not enqueued; it is tried again"
            )
        }
    }
}

/// The job of one occurrence, unless as many wait as may, and the schedule at its next one.
async fn enqueue(
    txn: &mut Txn,
    taken: &Taken,
    record: &ScheduleRecord,
    now: Instant,
    (next, full): (Instant, bool),
) -> Result<(), WriteError> {
    let mut job = record.job.clone();
    job.run_at = now;
    let unique: Vec<(String, String)> = job
        .key
        .iter()
        .map(|key| (UNIQUE_KEY.to_owned(), format!("{}/{key}", job.primitive)))
        .collect();
    let mut live = full;
    for (field, value) in &unique {
        live |=
            txn.lookup(&Claim::unique(&taken.key.reach, &jobs(), field, value)).await?.is_some();
    }
    // One live job a key: while the last occurrence still runs, this one is left out.
    if !live {
        let draft = Draft {
            user: job.owner.user.clone(),
            index: job.index(),
            unique,
            lease: Some((job.group(), now)),
            body: serde_json::to_string(&job).unwrap_or_default(),
            ..Draft::default()
        };
        let key = Key::new(&taken.key.reach, &jobs(), uuid::Uuid::now_v7().to_string());
        txn.insert(key, draft).await?;
    }
    txn.release(&taken.key, &taken.token, next);
    txn.replace(taken.key.clone(), due(&taken.row, record.clone(), next), None).await?;
    Ok(())
}

/// The schedule of this row, due then.
fn due(row: &Row, mut record: ScheduleRecord, next: Instant) -> Draft {
    record.job.run_at = next;
    Draft {
        user: row.user.clone(),
        body: serde_json::to_string(&record).unwrap_or_default(),
        index: row.index.clone(),
        unique: row.unique.clone(),
        lease: Some((record.job.group(), next)),
        ..Draft::default()
    }
}

/// Plans a schedule anew that a clock has planned which was ahead: it is due behind its next
/// occurrence after `from`.
pub(super) async fn plan_anew(
    txn: &mut Txn,
    key: &Key,
    row: &Row,
    now: Instant,
    from: Instant,
) -> Result<(), WriteError> {
    let Ok(record) = serde_json::from_str::<ScheduleRecord>(&row.body) else { return Ok(()) };
    let next = |after| next_occurrence(&record.cron, &record.time_zone, after).ok().flatten();
    let is_behind = |next| row.lease.as_ref().is_some_and(|lease| lease.due_at > next);
    if next(from).is_some_and(is_behind)
        && let Some(next) = next(now)
    {
        txn.replace(key.clone(), due(row, record, next), None).await?;
    }
    Ok(())
}

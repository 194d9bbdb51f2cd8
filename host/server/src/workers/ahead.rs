//! Rows that a clock has put off which was ahead: they are brought forward at the start, and
//! whenever the clock was set back.
//!
//! A schedule is due at its next occurrence, what is tried again after the longest wait that there
//! is at the latest, and what was never tried after the wait that it was given. An approved request
//! is made, and a record of what is erased looked at, as soon as one that is new. Every host looks;
//! of two that bring the same row forward, the second finds nothing to do.

use std::sync::Arc;
use std::time::Duration;

use charter_engine::job::{jobs, schedules};
use charter_kernel::lease::organization_and_kind;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Key, Row, Space, Write};
use charter_store::{CommitError, PutOff, ReadError, SET_BACK_MS, TransactError, Txn, WriteError};
use charter_tenancy::records::Record as _;
use charter_tenancy::records::approval::{APPROVED, Approval};
use charter_tenancy::records::erasure::Erasure;
use charter_tenancy::records::mail::{Mail, Notice};
use charter_tenancy::records::webhook::Delivery;
use futures::future::join_all;

use super::fair::LOOK_EVERY;
use super::schedules::{self as schedule, LEASE_MS};
use super::{approvals, erase};
use crate::app::App;

/// The longest lease, and the longest wait for another try but for that of jobs.
const WAIT_MS_MAX: i64 = 2 * 3_600_000;
/// How long after a failure it begins once more.
const AGAIN_AFTER: Duration = Duration::from_secs(60);
/// Groups read at once.
const GROUPS: u32 = 1_000;
/// Rows brought forward at once.
const BATCH: u32 = 100;

/// The reason why not everything was brought forward.
#[derive(Debug, thiserror::Error)]
enum Failed {
    #[error("what was put off cannot be read")]
    Read(#[from] ReadError),
    #[error("it cannot be written")]
    Write(#[from] TransactError<WriteError>),
}

/// Never ends by itself.
pub(super) async fn run(app: Arc<App>) {
    // The clock of an earlier run may have been ahead too.
    let mut brought = None;
    loop {
        let set_back = Some(app.store.count_set_back());
        if brought != set_back {
            match bring_forward(&app).await {
                Ok(()) => brought = set_back,
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "what a clock that was ahead has put off could not be brought forward; it is tried again"
                    );
                    tokio::time::sleep(AGAIN_AFTER).await;
                }
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

async fn bring_forward(app: &App) -> Result<(), Failed> {
    let retried = [jobs(), Delivery::all(), Space::host(Mail::COLLECTION)];
    let notices = Space::host(Notice::COLLECTION);
    let soon = [of_approvals(), Erasure::all()];
    for space in retried.into_iter().chain([notices, schedules()]).chain(soon) {
        let mut after = String::new();
        loop {
            let groups = app.store.groups_after(&space, &after, GROUPS).await?;
            for group in groups.iter().filter(|group| may_be_put_off(&space, group)) {
                bring_group_forward(app, &space, group).await?;
            }
            let Some(last) = groups.last() else { break };
            after.clone_from(last);
        }
    }
    Ok(())
}

/// An approval that waits for people is due at its end.
fn may_be_put_off(space: &Space, group: &str) -> bool {
    *space != of_approvals() || organization_and_kind(group).1 == APPROVED
}

async fn bring_group_forward(app: &App, space: &Space, group: &str) -> Result<(), Failed> {
    let beyond = app.clock.now().plus_ms(SET_BACK_MS);
    // Of a schedule that was set again the row tells nothing, nor of what is due at once.
    let is_told = ![schedules(), of_approvals(), Erasure::all()].contains(space);
    let inserted_after = if is_told { beyond } else { Instant(0) };
    let wanted = PutOff { beyond, inserted_after };
    let mut after = None;
    loop {
        let rows = app.store.put_off((space, group), wanted, after.as_ref(), BATCH).await?;
        let brought = rows.iter().map(|(key, _)| bring_row_forward(app, group, key));
        join_all(brought).await.into_iter().collect::<Result<(), _>>()?;
        let last = rows.into_iter().next_back();
        let Some((key, Some(lease))) = last.map(|(key, row)| (key, row.lease)) else {
            return Ok(());
        };
        after = Some((lease.due_at, key));
    }
}

async fn bring_row_forward(
    app: &App,
    group: &str,
    key: &Key,
) -> Result<(), TransactError<WriteError>> {
    let (organization, _) = organization_and_kind(group);
    let brought = app.store.transact(organization, async |txn: &mut Txn| {
        let now = app.clock.now();
        let Some(row) = txn.get(key).await? else { return Ok(()) };
        let is_held = row.lease.as_ref().is_some_and(|lease| lease.token.is_some());
        if key.space == schedules() && !is_held {
            schedule::plan_anew(txn, key, &row, now, now.plus_ms(SET_BACK_MS)).await
        } else {
            txn.step(Vec::new(), forward(app, key, &row, now).into_iter().collect());
            Ok(())
        }
    });
    match brought.await {
        // Somebody has it in hand: its own commit decides.
        Err(
            TransactError::Body(WriteError::Refused(_))
            | TransactError::Commit(CommitError::Rejected(_)),
        ) => Ok(()),
        brought => brought,
    }
}

fn of_approvals() -> Space {
    Space::host(Approval::COLLECTION)
}

/// The write that brings a row forward, where it is due later than it may be.
fn forward(app: &App, key: &Key, row: &Row, now: Instant) -> Option<Write> {
    let lease = row.lease.as_ref()?;
    let backoff = i64::try_from(app.config.jobs.backoff_ms_max).unwrap_or(WAIT_MS_MAX);
    let wait_ms = match (&lease.token, lease.count) {
        (Some(_), _) if key.space == schedules() => LEASE_MS,
        (Some(_), _) if key.space == of_approvals() => approvals::LEASE_MS,
        (Some(_), _) if key.space == Erasure::all() => erase::LEASE_MS,
        _ if [of_approvals(), Erasure::all()].contains(&key.space) => 0,
        (None, 0) if row.created_at > now => lease.due_at.0.saturating_sub(row.created_at.0).max(0),
        (None, 0) => return None,
        _ if key.space == jobs() => WAIT_MS_MAX.max(backoff),
        _ => WAIT_MS_MAX,
    };
    let due_at = now.plus_ms(wait_ms);
    let is_late = due_at.plus_ms(SET_BACK_MS) < lease.due_at;
    is_late.then(|| match &lease.token {
        Some(token) => Write::Extend { key: key.clone(), token: token.clone(), until: due_at },
        None => Write::Defer { key: key.clone(), due_at },
    })
}

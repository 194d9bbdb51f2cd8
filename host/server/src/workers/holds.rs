//! Closes the holds that a crash left open, and removes those that ended long ago.
//!
//! A hold under which nothing left the host is voided. One under which something did is in doubt:
//! only its provider or a person knows, so it stays reserved, and the primitive is asked to ask its
//! provider.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use charter_engine::job::jobs;
use charter_engine::job::room::{Part, part_of};
use charter_governance::lifecycle;
use charter_kernel::governance::hold::{self, DOUBT, Hold, KEPT_MS, OPEN, State, WAITING};
use charter_kernel::id::uuid_v7;
use charter_kernel::scope::Behind;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Guard, Key, Reach, Row, Taken, Unit, Write};
use charter_store::{Order, Query};
use charter_tenancy::records::organization::Organization;
use charter_tenancy::records::{ACTIVE, Record as _, STATUS};

use super::due::Due;
use crate::app::App;

/// How long the work on one may take before another may take it up.
const LEASE_MS: i64 = 30_000;
/// How long after the first question a primitive is asked again, at least and at most.
const ASK_MS_MIN: i64 = 60_000;
/// See above.
const ASK_MS_MAX: i64 = 3_600_000;
/// Questions about one user's holds, or other jobs in its line, beside which no further one waits.
const ASKED_MAX: u64 = 100;
/// Holds worked on side by side.
const PLACES: usize = 64;
/// How long after its time a hold that waits may still be ended with its approval.
const WAITED_MS: i64 = 3_600_000;
/// How often it is looked whether it is time to remove those that ended long ago.
const FORGET_LOOK: Duration = Duration::from_secs(15);
/// How often that is.
const FORGET_EVERY_MS: i64 = 3_600_000;
/// Organizations whose old holds are looked for in one go.
const ORGANIZATIONS: u32 = 200;
/// Of those that ended long ago, how many are looked at and removed at once.
const FORGET_ROWS: u32 = 200;

type Failed = Box<dyn Error + Send + Sync>;

fn due_rows(takes: fn(&App, &str) -> bool) -> Due {
    Due { space: hold::space(), takes, lease_ms: LEASE_MS, places: PLACES }
}

/// Until the host drains.
pub(super) async fn close_overdue(app: Arc<App>) {
    due_rows(|_, kind| matches!(kind, OPEN | WAITING))
        .each(&app, |taken| close(app.clone(), taken))
        .await;
}

/// Until the host drains.
pub(super) async fn ask_about_doubts(app: Arc<App>) {
    due_rows(|_, kind| kind == DOUBT).each(&app, |taken| ask(app.clone(), taken)).await;
}

/// Asks the primitive what became of a hold: again and again, ever more rarely, until it says so or
/// a person does.
async fn ask(app: Arc<App>, taken: Taken) {
    let Some(hold) = read(&taken.key, &taken.row) else { return };
    let now = app.clock.now();
    let wait = (now.0 - hold.until.0).clamp(ASK_MS_MIN, ASK_MS_MAX);
    let settles = hold.settler.as_ref().filter(|settler| settler.until > now);
    let mut txn = app.store.begin(&hold.subject.organization);
    if settles.is_none()
        && has_room(&app, &hold).await
        && let Err(refusal) =
            lifecycle::ask(&app.governance, &mut txn, &taken.key.id, &hold, now).await
    {
        return tracing::warn!(
            message = refusal.message,
            hold = taken.key.id,
            "a primitive could not be asked about a hold in doubt"
        );
    }
    let due_at = settles.map_or(now.plus_ms(wait), |settler| settler.until);
    let lease = Guard::Lease { key: taken.key.clone(), token: taken.token.clone() };
    txn.step(
        vec![lease],
        vec![Write::Release { key: taken.key, token: taken.token, due_at, undo: true }],
    );
    if let Err(error) = txn.commit_settling().await
        && error.refusal().is_none()
    {
        tracing::warn!(%error, "a hold in doubt could not be put off; the next look finds it");
    }
}

/// Whether one more question may wait: of one user's holds a bounded number does, so that whoever leaves
/// many in doubt fills no room that others need. The others are put off.
async fn has_room(app: &App, hold: &Hold) -> bool {
    let part = Part::whole(part_of(app.config.jobs.waiting_max, Behind::Project));
    let waiting = app.store.in_groups(&jobs(), &lifecycle::line_of(hold), ASKED_MAX).await;
    waiting.is_ok_and(|waiting| waiting < ASKED_MAX)
        && !app.jobs_are_full(&hold.subject.organization, &part).await
}

/// Never ends by itself.
pub(super) async fn forget_ended(app: Arc<App>) {
    let mut due_at = app.clock.now();
    loop {
        tokio::time::sleep(FORGET_LOOK).await;
        let now = app.clock.now();
        if now < due_at || app.store.status().read_only.is_some() {
            continue;
        }
        due_at = now.plus_ms(FORGET_EVERY_MS);
        if let Err(error) = forget(&app, now.plus_ms(-KEPT_MS)).await {
            tracing::warn!(
                error,
                "organizations whose old holds are to be removed could not be read"
            );
        }
    }
}

/// Removes the holds that ended before a moment, one organization after the other.
async fn forget(app: &App, before: Instant) -> Result<(), Failed> {
    let mut after: Option<Key> = None;
    loop {
        let all = (ACTIVE, ACTIVE);
        let page = app
            .store
            .find_indexed(&Organization::space(), STATUS, all, after.as_ref(), ORGANIZATIONS)
            .await?;
        for (_, key, _) in &page {
            // One that is busy does not keep the others' from being removed.
            if let Err(error) = forget_of(app, &key.id, before).await {
                tracing::warn!(
                    error,
                    organization = key.id,
                    "holds that ended long ago stay until the next look"
                );
            }
        }
        match page.into_iter().nth(ORGANIZATIONS as usize - 1) {
            Some((_, last, _)) => after = Some(last),
            None => return Ok(()),
        }
    }
}

async fn forget_of(app: &App, organization: &str, before: Instant) -> Result<(), Failed> {
    let mut query =
        Query::all(&Reach::organization(organization), &hold::space()).limit(FORGET_ROWS).relax();
    query.order = Order::Oldest;
    // A hold given after the moment cannot have ended before it.
    let until = uuid_v7(before, [0; 10]);
    loop {
        let old = app.store.find(&query).await?;
        let ended = |key: &Key, row: &Row| {
            read(key, row).and_then(|hold| hold.ended_at).is_some_and(|at| at < before)
        };
        let past = old
            .items
            .iter()
            .take_while(|(key, _)| key.id < until)
            .filter(|(key, row)| ended(key, row));
        let writes: Vec<_> =
            past.map(|(key, _)| Write::Remove { key: key.clone(), expected: None }).collect();
        if !writes.is_empty() {
            app.store
                .commit(Unit { organization: organization.to_owned(), writes, ..Unit::default() })
                .await?;
        }
        query.after = old.next.filter(|last| *last < until);
        if query.after.is_none() {
            return Ok(());
        }
    }
}

async fn close(app: Arc<App>, taken: Taken) {
    let Some(hold) = read(&taken.key, &taken.row) else { return };
    let now = app.clock.now();
    if let Some(due_at) = others_turn(&hold).filter(|due_at| *due_at > now) {
        let release = Write::Release { key: taken.key, token: taken.token, due_at, undo: true };
        let unit = Unit { writes: vec![release], ..Unit::default() };
        return commit(&app, &hold.subject.organization, unit).await;
    }
    let mut step = match hold.state {
        // A request that is approved and made later takes its own.
        State::Pending | State::Held => hold.void(&taken.key.id, now),
        State::Dispatched => hold.doubt(&taken.key.id),
        _ => return,
    }
    .of_row(&taken.key, taken.row.version);
    tracing::info!(
        hold = taken.key.id,
        organization = hold.subject.organization,
        request = hold.request,
        state = step.hold.state.as_str(),
        "a hold that its request left open was closed"
    );
    step.guards.push(Guard::Lease { key: taken.key.clone(), token: taken.token.clone() });
    if !step.hold.state.is_over() {
        step.writes.push(Write::Release {
            key: taken.key,
            token: taken.token,
            due_at: step.hold.until,
            undo: true,
        });
    }
    commit(
        &app,
        &hold.subject.organization,
        Unit { guards: step.guards, writes: step.writes, ..Unit::default() },
    )
    .await;
}

/// Until when a hold is somebody else's to end: the later request's that settles it, or the
/// approval's that it waits for.
fn others_turn(hold: &Hold) -> Option<Instant> {
    match hold.state {
        State::Pending => Some(hold.until.plus_ms(WAITED_MS)),
        _ => hold.settler.as_ref().map(|settler| settler.until),
    }
}

fn read(key: &Key, row: &Row) -> Option<Hold> {
    let hold = serde_json::from_str(&row.body);
    hold.inspect_err(|error| tracing::error!(%error, hold = key.id, "a hold cannot be read")).ok()
}

async fn commit(app: &App, organization: &str, unit: Unit) {
    let unit = Unit { organization: organization.to_owned(), ..unit };
    // A hold that its own request has settled meanwhile is refused here, and is none of ours any
    // more.
    if let Err(error) = app.store.commit_settling(unit).await
        && error.refusal().is_none()
    {
        tracing::warn!(%error, "an overdue hold could not be closed; the next look finds it");
    }
}

//! Makes the requests that people have approved, ends those that nobody decided on in time, and
//! forgets old ones.
//!
//! An approved request is made by one host at a time, under a lease; its end is part of the
//! request's own commit, so that it is made once. The approval of a request that a job answers ends
//! once that job has ended.

use std::sync::Arc;

use charter_governance::approvals::{self, Request, Run};
use charter_kernel::manifest::Catalogue;
use charter_kernel::refusal::Refusal;
use charter_kernel::time::Instant;
use charter_kernel::unit::{Fact, Guard, Space, Taken, Unit, Write};
use charter_store::CommitError;
use charter_tenancy::records::Record as _;
use charter_tenancy::records::approval::{APPROVED, Approval, PENDING, RESOLVED, Status};
use charter_tenancy::stored;

use super::due::{Due, keep_lease};
use crate::app::App;
use crate::pipeline::audit::{Decision, Subject};
use crate::pipeline::nested::{self, Unmade};

/// How long after a host was last heard of another may take up what it worked on: what a crash
/// leaves behind is made again within half a minute.
pub(super) const LEASE_MS: i64 = 20_000;
/// Approvals worked on side by side.
const PLACES: usize = 32;
/// Before the second try of a request that could not be made yet; doubled with each further one.
const RETRY_MS_MIN: i64 = 1_000;
/// The longest wait between two tries, whatever the refusal says: a request whose caller, user or
/// project goes meanwhile ends, and frees its funds, within it.
const RETRY_MS_MAX: i64 = 60_000;
/// The deadline of a request that declares none of its own.
const DEADLINE_MS: u32 = 60_000;

fn due_rows(takes: fn(&App, &str) -> bool) -> Due {
    let space = Space::host(Approval::COLLECTION);
    Due { space, takes, lease_ms: LEASE_MS, places: PLACES }
}

/// Until the host drains.
pub(super) async fn run_approved(app: Arc<App>) {
    due_rows(|_, kind| kind == APPROVED).each(&app, |taken| make(app.clone(), taken)).await;
}

/// Until the host drains.
pub(super) async fn expire_undecided(app: Arc<App>) {
    due_rows(|_, kind| kind == PENDING).each(&app, |taken| expire(app.clone(), taken)).await;
}

/// Until the host drains.
pub(super) async fn forget_resolved(app: Arc<App>) {
    due_rows(|_, kind| kind == RESOLVED).each(&app, |taken| forget(app.clone(), taken)).await;
}

async fn make(app: Arc<App>, taken: Taken) {
    let Ok(mut approval) = Approval::read(&taken.row) else { return };
    approval.status = Status::Executing;
    if approval.answered_by.is_some() {
        return follow_job(&app, &Run { approval, token: taken.token }).await;
    }
    if approval.has_begun() {
        return mark_in_doubt(&app, Run { approval, token: taken.token }).await;
    }
    let run = Arc::new(Run { approval, token: taken.token });
    let made = match approvals::request(&app.store, &run.approval).await {
        Ok(request) => tokio::select! {
            made = make_again(&app, &request, &run) => made,
            () = keep_lease(&app, &taken.key, &run.token, LEASE_MS) => Err(Unmade::from(Refusal::overloaded(1))),
        },
        Err(refusal) => Err(Unmade::from(refusal)),
    };
    // An answer is written already, in the request's own commit.
    let Err(unmade) = made else { return };
    let tries = taken.row.lease.as_ref().map_or(1, |lease| lease.count);
    let (wait_ms, told_ms) = (wait_ms(&unmade.refusal, tries), told_ms(&unmade.refusal));
    let now = app.clock.now();
    let has_time = now.plus_ms(wait_ms.max(told_ms)) < run.approval.expires_at;
    if unmade.refusal.should_retry() && has_time {
        tracing::warn!(
            approval = run.approval.id,
            code = unmade.refusal.code.own_name(),
            tries,
            "an approved request could not be made yet"
        );
        let (key, token) = (taken.key, run.token.clone());
        let write = Write::Release { key, token, due_at: now.plus_ms(wait_ms), undo: false };
        return commit(&app, &run.approval, Unit { writes: vec![write], ..Unit::default() }).await;
    }
    note_refusal(&app, &run, &unmade).await;
}

/// Before a request is made again that could not be made yet: the longer the more often it was
/// tried, and as long as the refusal says, within the bound.
fn wait_ms(refusal: &Refusal, tries: u32) -> i64 {
    let doubled = RETRY_MS_MIN.saturating_mul(1 << tries.saturating_sub(1).min(20));
    doubled.max(told_ms(refusal)).min(RETRY_MS_MAX)
}

/// The wait that the refusal itself names.
fn told_ms(refusal: &Refusal) -> i64 {
    i64::from(refusal.retry_after_seconds.unwrap_or(0)).saturating_mul(1_000)
}

/// Makes the request, or runs the job, as who asked.
async fn make_again(app: &Arc<App>, request: &Request, run: &Arc<Run>) -> Result<(), Unmade> {
    match &request.job {
        Some(job) => Ok(super::run::run_approved(app, job, request, run).await?),
        None => {
            let mut call = request.repetition(&app.directory, &run.approval, DEADLINE_MS).await?;
            // Other primitives change things for it as long as this host is the one that makes it.
            call.credential.push(run.fence());
            nested::run_approved(app, &call, run).await.map(drop)
        }
    }
}

/// The request was made, and left its answer to a job: the approval ends as that job does.
async fn follow_job(app: &App, run: &Run) {
    let mut txn = app.store.begin(run.approval.organization.as_str());
    match run.follow_job(&mut txn).await {
        Ok(()) => end(txn).await,
        Err(error) => tracing::warn!(
            message = error.message,
            approval = run.approval.id,
            "the job that answers an approved request cannot be read; the next look finds it"
        ),
    }
}

/// It was not made: so the approval says, the job that waited by it, and the audit log, all of them
/// in one commit.
async fn note_refusal(app: &App, run: &Run, unmade: &Unmade) {
    let (refusal, now) = (&unmade.refusal, app.clock.now());
    let mut txn = app.store.begin(run.approval.organization.as_str());
    let approval = Approval { error: Some(refusal.to_rest()), ..run.approval.clone() };
    let ended = async {
        if !unmade.audited {
            txn.fact(audit_row(&approval, refusal, now)?);
        }
        approvals::unpark(&mut txn, &approval, now).await?;
        run.end(&mut txn, Err(refusal.to_rest())).await
    };
    match ended.await {
        Ok(()) => end(txn).await,
        Err(error) => warn_unended(&approval, &error),
    }
}

/// The row of a refusal where no commit before has it. A credential that counts no more leaves one
/// too: it is known whose it was.
fn audit_row(approval: &Approval, refusal: &Refusal, now: Instant) -> Result<Fact, Refusal> {
    let status = refusal.status(Catalogue::Primary);
    let named = (refusal.row(Catalogue::Primary).0, refusal.reason.as_deref());
    let decision = Decision { status, refused: Some(named), changes: &[], details: None };
    Subject::of_approval(approval, now).fact(decision).map_err(stored::no_randomness)
}

fn warn_unended(approval: &Approval, error: &Refusal) {
    tracing::warn!(
        message = error.message,
        approval = approval.id,
        "an approval could not be ended yet; the next look finds it"
    );
}

/// Something left the host under it, and nobody lived to say what came of that: its hold is in
/// doubt, and it is not made again.
async fn mark_in_doubt(app: &Arc<App>, run: Run) {
    let told = "The request was begun and something of it left the host before it broke off: what came of that is not known.";
    let refusal = Refusal::state_conflict("in_doubt", told)
        .hint("GET /v1/governance/holds?state=in_doubt lists what a person resolves.");
    note_refusal(app, &run, &Unmade::from(refusal)).await;
}

async fn expire(app: Arc<App>, taken: Taken) {
    let Ok(approval) = Approval::read(&taken.row) else { return };
    let now = app.clock.now();
    let approval = Approval { status: Status::Expired, resolved_at: Some(now), ..approval };
    let mut txn = app.store.begin(approval.organization.as_str());
    // A word that came just now counts.
    txn.guard(Guard::Entry {
        key: taken.key,
        field: "status".into(),
        value: Status::PendingApproval.as_str().into(),
    });
    let ended = async {
        approvals::drop_request(&mut txn, &approval, now).await?;
        approvals::keep(&mut txn, &approval, &taken.token, now)
    };
    match ended.await {
        Ok(()) => end(txn).await,
        Err(error) => warn_unended(&approval, &error),
    }
}

async fn forget(app: Arc<App>, taken: Taken) {
    let Ok(approval) = Approval::read(&taken.row) else { return };
    let (key, token) = (taken.key, taken.token);
    let guards = vec![Guard::Lease { key: key.clone(), token: token.clone() }];
    commit(
        &app,
        &approval,
        Unit { guards, writes: vec![Write::Settle { key, token }], ..Unit::default() },
    )
    .await;
}

async fn end(txn: charter_store::Txn) {
    report(txn.commit_settling().await.map(drop));
}

async fn commit(app: &App, approval: &Approval, unit: Unit) {
    let unit = Unit { organization: approval.organization.to_string(), ..unit };
    report(app.store.commit_settling(unit).await.map(drop));
}

fn report(ended: Result<(), CommitError>) {
    // Refused: somebody else has ended it meanwhile.
    if let Err(error) = ended
        && error.refusal().is_none()
    {
        tracing::warn!(%error, "an approval could not be written; the next look finds it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_made_yet_is_tried_ever_more_seldom_and_once_a_minute() {
        let busy = Refusal::overloaded(1);
        let waits = [1, 2, 3, 6, 7, 40].map(|tries| wait_ms(&busy, tries));
        assert_eq!(waits, [1_000, 2_000, 4_000, 32_000, 60_000, 60_000]);
        assert_eq!(wait_ms(&Refusal::rate_limited(9), 1), 9_000);
        assert_eq!(wait_ms(&Refusal::rate_limited(3_600), 1), RETRY_MS_MAX);
    }
}

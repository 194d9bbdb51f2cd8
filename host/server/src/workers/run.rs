//! One run of one job: its owner's scope is proven anew, `react` is called, and the row is settled
//! in the run's own commit.

use std::sync::Arc;

use charter_adapters::public;
use charter_engine::job::{JobRecord, Payload};
use charter_engine::{Answer, Finish, Outcome};
use charter_governance::approvals::{Job, Origin, Request, Run};
use charter_governance::lifecycle::{self, is_told};
use charter_kernel::limits::DEADLINE_MS_MAX;
use charter_kernel::manifest::CallLength;
use charter_kernel::refusal::Refusal;
use charter_kernel::unit::{Guard, Key, Row, Taken, Unit, Write};
use charter_tenancy::stored;
use serde::Serialize;
use serde_json::Value;

use super::jobs::SETTLE_MS;
use super::settle::{By, Settling};
use crate::app::App;
use crate::pipeline::call::{self, Signaled};
use crate::pipeline::owner::{self, Admitted, Work};

/// Runs it and settles it.
pub(super) async fn job(app: &Arc<App>, taken: Taken) {
    let settling = Settling::begin(app, &taken.key, &taken.row, By::Lease(taken.token.clone()));
    let mut record: JobRecord = match serde_json::from_str(&taken.row.body) {
        Ok(record) => record,
        Err(error) => {
            // Put away rather than handed out for ever; whoever mends it finds it by the log.
            tracing::error!(%error, job = taken.key.id, reach = taken.key.reach.as_str(), "a job cannot be read");
            return settling.put_away().await;
        }
    };
    record.note_run(settling.attempt());
    match run_leased(app, &settling, &record, taken).await {
        // Settled in the run's own commit. A run that waits for people is parked already, in the
        // commit that asked them.
        Ok(
            Outcome::Answered(_)
            | Outcome::Refused(_)
            | Outcome::Trapped { .. }
            | Outcome::Deadline
            | Outcome::OutOfMemory
            | Outcome::Pending { .. },
        ) => {}
        Ok(Outcome::Shed { retry_after_s, .. } | Outcome::Unavailable { retry_after_s }) => {
            settling.give_back(i64::from(retry_after_s) * 1_000).await;
        }
        Ok(Outcome::Restart | Outcome::ClientGone) => settling.give_back(100).await,
        Ok(Outcome::Inactive) => {
            let revoked = owner::word_revocation(app, &Work::of(&record)).await;
            settling.end(Err(revoked.to_rest())).await;
        }
        Err(refusal) => settling.end(Err(refusal.to_rest())).await,
    }
}

/// Runs a job by its own lease.
async fn run_leased(
    app: &Arc<App>,
    settling: &Arc<Settling>,
    record: &JobRecord,
    taken: Taken,
) -> Result<Outcome, Refusal> {
    let admitted = owner::admit(app, &Work::of(record)).await?;
    let told = is_told(&record.signal, &record.payload);
    if told && !admitted.version().manifest.signals.contains(&record.signal) {
        // Another version of the primitive asks for it; the one that serves this user does not.
        settling.end(Ok(Value::Null)).await;
        return Ok(Outcome::Answered(Answer::empty()));
    }
    let until = app.clock.now().plus_ms(i64::from(deadline_ms(app, record)) + SETTLE_MS);
    let extend = Write::Extend { key: taken.key.clone(), token: taken.token.clone(), until };
    let extended = app.store.commit(Unit { writes: vec![extend], ..Unit::default() }).await;
    if extended.is_err() {
        // Cancelled, taken up by another, or no room to write in: whoever holds it then runs it.
        return Ok(Outcome::Restart);
    }
    let job = || Job {
        key: taken.key,
        record: record.clone(),
        unique: taken.row.unique,
        token: taken.token,
        base: public::base(&app.adapters),
        tells: lifecycle::approval_listener(&app.governance, &record.primitive),
    };
    let origin = (!told).then(|| Origin::Job(Box::new(job())));
    Ok(react(app, settling, record, admitted, origin).await)
}

/// Runs a job of which people have approved an action. Its end and the approval's are one commit.
///
/// # Errors
/// Why it was not run: nothing was written then.
pub(super) async fn run_approved(
    app: &Arc<App>,
    key: &Key,
    request: &Request,
    run: &Arc<Run>,
) -> Result<(), Refusal> {
    let (row, record) = waiting(app, key, request, run).await?;
    let settling = Settling::begin(app, key, &row, By::Approval(run.clone()));
    let mut admitted = owner::admit(app, &Work::of(&record)).await?;
    // Its row has no lease that a cancellation could take away: whoever cancels it changes the row,
    // and its state, which is a fence like a lease.
    admitted.require([
        Guard::Version { key: key.clone(), version: Some(row.version) },
        Guard::Entry { key: key.clone(), field: "state".into(), value: record.state.clone() },
    ]);
    let origin = Some(Origin::Approved(run.clone()));
    match react(app, &settling, &record, admitted, origin).await {
        Outcome::Answered(_)
        | Outcome::Refused(_)
        | Outcome::Trapped { .. }
        | Outcome::Deadline
        | Outcome::OutOfMemory => Ok(()),
        // Somebody has cancelled it, or is revoked by now.
        Outcome::Inactive => {
            let (_, record) = waiting(app, key, request, run).await?;
            Err(owner::word_revocation(app, &Work::of(&record)).await)
        }
        _ => Err(Refusal::overloaded(1)),
    }
}

/// The job, where it waits for this approval still and is what people have decided on.
async fn waiting(
    app: &App,
    key: &Key,
    request: &Request,
    run: &Run,
) -> Result<(Row, JobRecord), Refusal> {
    let gone = || {
        let message = "The job that asked was cancelled, or is another by now.";
        Refusal::state_conflict("job_gone", message)
    };
    let row = app.store.get(key).await.map_err(stored::reading)?.ok_or_else(gone)?;
    let record: JobRecord = serde_json::from_str(&row.body).map_err(|_| gone())?;
    let waits = record.state == "queued" && record.approval.as_ref() == Some(&run.approval.id);
    let is_same = request.body.as_deref() == Some(record.payload.text());
    if waits && is_same { Ok((row, record)) } else { Err(gone()) }
}

/// Calls the component that the owner's kit names. Every unit of the run is fenced, those in the
/// middle of it too.
async fn react(
    app: &App,
    settling: &Arc<Settling>,
    record: &JobRecord,
    mut admitted: Admitted,
    origin: Option<Origin>,
) -> Outcome {
    let payload = match record.signal.as_str() {
        "job" => RunPayload {
            id: settling.id(),
            name: &record.name,
            payload: &record.payload,
            attempt: settling.attempt(),
            attempts_max: record.attempts_max,
        }
        .text(),
        _ => record.payload.text().to_owned(),
    };
    admitted.require([settling.fence()]);
    let signaled = Signaled {
        id: settling.id().to_owned(),
        signal: (record.signal.clone(), payload),
        claim: settling.claiming(),
        finish: settling.clone() as Arc<dyn Finish>,
        deadline_ms: deadline_ms(app, record),
        class: CallLength::Long,
        origin,
    };
    call::react(app, admitted, signaled).await
}

/// The payload of a job's signal.
#[derive(Serialize)]
struct RunPayload<'a> {
    id: &'a str,
    name: &'a str,
    payload: &'a Payload,
    attempt: u32,
    attempts_max: u32,
}

impl RunPayload<'_> {
    fn text(&self) -> String {
        // It has text keys, and so is always written.
        serde_json::to_string(self).unwrap_or_default()
    }
}

fn deadline_ms(app: &App, record: &JobRecord) -> u32 {
    let default = app.config.jobs.deadline_ms;
    // Earlier builds have written jobs that may run for weeks.
    record.deadline_ms.unwrap_or(default).min(default.max(DEADLINE_MS_MAX))
}

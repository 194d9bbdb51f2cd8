//! One run of one job: its owner's scope is proven anew, `react` is called, and the row is settled
//! in the run's own commit.
//!
//! The row's lease is the fence: a run whose lease has ended commits nothing, so that a paused
//! replica never settles what another has taken up.

use std::sync::Arc;

use charter_adapters::public;
use charter_engine::job::{JobRecord, NEVER, jobs};
use charter_engine::{Answer, AnswerBody, Ending, EndingResult, Finish, Outcome};
use charter_governance::approvals::{Job, Origin, Request, Run};
use charter_governance::lifecycle::{self, is_told};
use charter_kernel::manifest::CallLength;
use charter_kernel::refusal::Refusal;
use charter_kernel::time::Clock;
use charter_kernel::unit::{Draft, Guard, Key, Taken, Unit, Write};
use charter_store::Txn;
use charter_tenancy::directory::profile_revoked;
use charter_tenancy::stored;
use futures::future::BoxFuture;
use serde_json::{Value, json};

use super::jobs::SETTLE_MS;
use crate::app::App;
use crate::pipeline::call::{self, Signaled};
use crate::pipeline::owner::{self, Admitted, Work};

/// Wait before the second attempt; doubled with each further one.
const BACKOFF_MS: u64 = 1_000;

/// The row of a run, for its commit.
struct Settling {
    key: Key,
    /// The lease that must hold at each of its commits: the row's own, or that of the approval by
    /// which it runs.
    fence: Guard,
    by: By,
    attempt: u32,
    backoff_ms_max: u64,
    clock: Arc<dyn Clock>,
}

/// By what a job runs.
enum By {
    /// The lease of its row.
    Lease(String),
    /// A run that people have approved: its end is the approval's too.
    Approval(Arc<Run>),
}

/// Runs it and settles it.
pub(super) async fn job(app: &Arc<App>, taken: Taken) {
    let attempt = taken.row.lease.as_ref().map_or(1, |lease| lease.count);
    let settling = Arc::new(Settling {
        key: taken.key.clone(),
        fence: Guard::Lease { key: taken.key.clone(), token: taken.token.clone() },
        by: By::Lease(taken.token.clone()),
        attempt,
        backoff_ms_max: app.config.jobs.backoff_ms_max,
        clock: app.clock.clone(),
    });
    let record: JobRecord = match serde_json::from_str(&taken.row.body) {
        Ok(record) => record,
        Err(error) => {
            // Put away rather than handed out for ever; whoever mends it finds it by the log.
            tracing::error!(%error, job = taken.key.id, reach = taken.key.reach.as_str(), "a job cannot be read");
            return settling.put_away(app).await;
        }
    };
    let outcome = match run_leased(app, &settling, &record, taken).await {
        Ok(None) => return,
        Ok(Some(outcome)) => outcome,
        Err(refusal) => return settling.end(app, Err(refusal.to_rest())).await,
    };
    let failure = match outcome {
        // A run that waits for people is parked already, in the commit that asked them.
        Outcome::Answered(_)
        | Outcome::Refused(_)
        | Outcome::Trapped { .. }
        | Outcome::Deadline
        | Outcome::OutOfMemory
        | Outcome::Pending { .. } => return,
        Outcome::Shed { retry_after_s, .. } | Outcome::Unavailable { retry_after_s } => {
            return settling.give_back(app, i64::from(retry_after_s) * 1_000).await;
        }
        Outcome::Restart | Outcome::ClientGone => return settling.give_back(app, 100).await,
        Outcome::Inactive => {
            Refusal::forbidden("profile_revoked", "The profile is revoked.").to_rest()
        }
    };
    settling.end(app, Err(failure)).await;
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
    let gone = || {
        Refusal::state_conflict(
            "job_gone",
            "The job that asked was cancelled, or is another by now.",
        )
    };
    let row = app.store.get(key).await.map_err(stored::reading)?.ok_or_else(gone)?;
    let record: JobRecord = serde_json::from_str(&row.body).map_err(|_| gone())?;
    let waits = record.state == "queued" && record.approval.as_ref() == Some(&run.approval.id);
    if !waits || request.body.as_ref() != Some(&record.payload.to_string()) {
        return Err(gone());
    }
    let settling = Arc::new(Settling {
        key: key.clone(),
        fence: run.fence(),
        by: By::Approval(run.clone()),
        attempt: row.lease.as_ref().map_or(1, |lease| lease.count),
        backoff_ms_max: app.config.jobs.backoff_ms_max,
        clock: app.clock.clone(),
    });
    let mut admitted = owner::admit(app, &Work::of(&record)).await?;
    // Its row has no lease that a cancellation could take away: whoever cancels it changes the row.
    admitted.require([Guard::Version { key: key.clone(), version: Some(row.version) }]);
    let origin = Some(Origin::Approved(run.clone()));
    match react(app, &settling, &record, admitted, origin).await {
        Outcome::Answered(_)
        | Outcome::Refused(_)
        | Outcome::Trapped { .. }
        | Outcome::Deadline
        | Outcome::OutOfMemory => Ok(()),
        Outcome::Inactive => Err(profile_revoked()),
        _ => Err(Refusal::overloaded(1)),
    }
}

/// Runs a job by its own lease; nothing where its primitive does not ask for it.
async fn run_leased(
    app: &Arc<App>,
    settling: &Arc<Settling>,
    record: &JobRecord,
    taken: Taken,
) -> Result<Option<Outcome>, Refusal> {
    let admitted = owner::admit(app, &Work::of(record)).await?;
    let told = is_told(&record.signal, &record.payload);
    if told && !admitted.version().manifest.signals.contains(&record.signal) {
        // Another version of the primitive asks for it; the one that serves this user does not.
        settling.end(app, Ok(Value::Null)).await;
        return Ok(None);
    }
    let deadline_ms = record.deadline_ms.unwrap_or(app.config.jobs.deadline_ms);
    let until = app.clock.now().plus_ms(i64::from(deadline_ms) + SETTLE_MS);
    let extend = Write::Extend { key: settling.key.clone(), token: taken.token.clone(), until };
    let extended = app.store.commit(Unit { writes: vec![extend], ..Unit::default() }).await;
    if extended.is_err() {
        // Cancelled, taken up by another, or no room to write in: whoever holds it then runs it.
        return Ok(Some(Outcome::Restart));
    }
    let tells = app
        .registry
        .current()
        .listeners(lifecycle::APPROVAL)
        .find(|name| **name == record.primitive)
        .cloned();
    let job = || Job {
        key: taken.key,
        record: record.clone(),
        unique: taken.row.unique,
        token: taken.token,
        base: public::base(&app.adapters),
        tells,
    };
    let origin = (!told).then(|| Origin::Job(Box::new(job())));
    Ok(Some(react(app, settling, record, admitted, origin).await))
}

/// Calls the component that the owner's kit names.
async fn react(
    app: &App,
    settling: &Arc<Settling>,
    record: &JobRecord,
    mut admitted: Admitted,
    origin: Option<Origin>,
) -> Outcome {
    let payload = match record.signal.as_str() {
        "job" => json!({
            "id": settling.key.id,
            "name": record.name,
            "payload": record.payload,
            "attempt": settling.attempt,
            "attempts_max": record.attempts_max,
        }),
        _ => record.payload.clone(),
    };
    // Every unit of the run is fenced, those in the middle of it too.
    admitted.require([settling.fence.clone()]);
    let signaled = Signaled {
        id: settling.key.id.clone(),
        signal: (record.signal.clone(), payload),
        claim: match &settling.by {
            By::Lease(_) => None,
            By::Approval(run) => run.claiming(app.clock.now()),
        },
        finish: settling.clone() as Arc<dyn Finish>,
        deadline_ms: record.deadline_ms.unwrap_or(app.config.jobs.deadline_ms),
        class: CallLength::Long,
        origin,
    };
    call::react(app, admitted, signaled).await
}

impl Finish for Settling {
    fn finish<'a>(&'a self, txn: &'a mut Txn, ending: Ending<'a>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let error = match ending.result {
                EndingResult::Answered(answer) => {
                    return self.settle(txn, Ok(result(answer))).await;
                }
                EndingResult::Refused(failure) => failure.to_rest(),
                EndingResult::Trapped(incident) => {
                    json!({"code": "internal_error", "message": "The component failed.", "incident": incident})
                }
                EndingResult::Deadline => {
                    json!({"code": "deadline_exceeded", "message": "The job took longer than it may."})
                }
                EndingResult::OutOfMemory => {
                    json!({"code": "internal_error", "message": "The component used more memory than it may."})
                }
                // Nobody waits for a job, so that nobody can leave; what waits for people is parked
                // already.
                EndingResult::ClientGone | EndingResult::Pending(_) => return,
            };
            self.settle(txn, Err(error)).await;
        })
    }
}

/// The answer of a job, as its record keeps it.
fn result(answer: &Answer) -> Value {
    match &answer.body {
        AnswerBody::Json(text) => serde_json::from_str(text).unwrap_or_default(),
        _ => Value::Null,
    }
}

impl Settling {
    /// Writes how the run ended, under its fence.
    async fn settle(&self, txn: &mut Txn, ended: Result<Value, Value>) {
        let row = match txn.get(&self.key).await {
            Ok(Some(row)) => row,
            // The guest cancelled the very job that runs.
            Ok(None) => return,
            Err(error) => {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "a job cannot be read to be settled; it runs again"
                );
                return self.fence(txn);
            }
        };
        let Ok(mut record) = serde_json::from_str::<JobRecord>(&row.body) else {
            return self.fence(txn);
        };
        let now = self.clock.now();
        let failed = ended.is_err();
        let again = failed && self.attempt < record.attempts_max;
        match ended {
            Ok(result) => {
                record.result = Some(result).filter(|result| !result.is_null());
                record.fraction = Some(1.0);
                record.error = None;
                record.state = "succeeded".into();
            }
            Err(error) => {
                record.error = Some(error);
                if !again {
                    record.state = "failed".into();
                }
            }
        }
        let due_at = if again { now.plus_ms(self.backoff()) } else { NEVER };
        match &self.by {
            By::Lease(token) => txn.release(&self.key, token, due_at),
            By::Approval(run) => {
                let answer = record.result.as_ref().map(|result| result.to_string().into_bytes());
                run.end(
                    txn,
                    record
                        .error
                        .clone()
                        .filter(|_| failed)
                        .map_or(Ok((200, answer.as_deref())), Err),
                );
            }
        }
        let draft = match again {
            false => record.end(row.user, now),
            true => serde_json::to_string(&record).map(|body| {
                let lease = Some((record.group(), due_at));
                Draft {
                    user: row.user,
                    body,
                    index: record.index(),
                    unique: row.unique,
                    lease,
                    ..Draft::default()
                }
            }),
        };
        let Ok(draft) = draft else { return };
        if let Err(error) = txn.replace(self.key.clone(), draft, None).await {
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "a job cannot be settled; it runs again"
            );
        }
    }

    /// Lets nothing be committed by a run that no longer holds its job.
    fn fence(&self, txn: &mut Txn) {
        txn.guard(self.fence.clone());
    }

    fn backoff(&self) -> i64 {
        let doubled = BACKOFF_MS.saturating_mul(1 << self.attempt.saturating_sub(1).min(30));
        let jitter = u64::from(uuid::Uuid::now_v7().as_bytes()[15]) * doubled / 1_024;
        i64::try_from((doubled + jitter).min(self.backoff_ms_max)).unwrap_or(i64::MAX)
    }

    /// The run never began: it does not count.
    async fn give_back(&self, app: &App, after_ms: i64) {
        let By::Lease(token) = &self.by else { return };
        let due_at = self.clock.now().plus_ms(after_ms.max(100));
        let release =
            Write::Release { key: self.key.clone(), token: token.clone(), due_at, undo: true };
        self.commit(app, Unit { writes: vec![release], ..Unit::default() }).await;
    }

    /// Nothing hands it out any more.
    async fn put_away(&self, app: &App) {
        let By::Lease(token) = &self.by else { return };
        let release = Write::Release {
            key: self.key.clone(),
            token: token.clone(),
            due_at: NEVER,
            undo: false,
        };
        self.commit(app, Unit { writes: vec![release], ..Unit::default() }).await;
    }

    /// Settles it without a run.
    async fn end(&self, app: &App, ended: Result<Value, Value>) {
        let mut txn = app.store.begin("");
        self.settle(&mut txn, ended).await;
        self.commit(app, txn.into_unit()).await;
    }

    async fn commit(&self, app: &App, unit: Unit) {
        if let Err(error) = app.store.commit_settling(unit).await {
            tracing::debug!(%error, job = self.key.id, space = jobs().as_str(), "a job was not settled; its lease will end");
        }
    }
}

//! One run of one job: its owner's scope is proven anew, `react` is called, and the row is settled in the run's own commit.
//!
//! The row's lease is the fence: a run whose lease has ended commits nothing, so that a paused replica never settles what another
//! has taken up.

use std::sync::Arc;

use charter_engine::job::{ENDED_GROUP, JobRecord, NEVER, jobs};
use charter_engine::{Answer, AnswerBody, Call, Ending, EndingResult, Entry, Finish, Outcome, Signal};
use charter_kernel::manifest::Class;
use charter_kernel::time::Clock;
use charter_kernel::unit::{Draft, Guard, Key, Taken, Unit, Write};
use charter_store::Txn;
use futures::future::BoxFuture;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::jobs::SETTLE_MS;
use super::owner::{self, Admitted};
use crate::app::App;
use crate::lifecycle::is_told;

/// Wait before the second attempt; doubled with each further one.
const BACKOFF_MS: u64 = 1_000;

/// Where a run's commit finds its row.
struct Settling {
    key: Key,
    token: String,
    attempt: u32,
    backoff_ms_max: u64,
    clock: Arc<dyn Clock>,
}

/// Runs it and settles it.
pub(super) async fn job(app: &Arc<App>, taken: Taken) {
    let attempt = taken.row.lease.as_ref().map_or(1, |lease| lease.count);
    let settling = Arc::new(Settling {
        key: taken.key.clone(),
        token: taken.token.clone(),
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
    let outcome = match call(app, &settling, &record).await {
        Ok(None) => return,
        Ok(Some(outcome)) => outcome,
        Err(failure) => return settling.end(app, Err(failure)).await,
    };
    let failure = match outcome {
        Outcome::Answered(_) | Outcome::Refused(_) | Outcome::Trapped { .. } | Outcome::Deadline | Outcome::OutOfMemory => {
            return;
        }
        Outcome::Shed { retry_after_s, .. } | Outcome::Unavailable { retry_after_s } => {
            return settling.give_back(app, i64::from(retry_after_s) * 1_000).await;
        }
        // A job has no request that could be made again: none of its actions waits for people.
        Outcome::Restart | Outcome::ClientGone | Outcome::Pending { .. } => return settling.give_back(app, 100).await,
        Outcome::Inactive => json!({"code": "forbidden", "reason": "profile_revoked", "message": "The profile is revoked."}),
    };
    settling.end(app, Err(failure)).await;
}

/// Proves whose work it is and calls the component that the owner's kit names; nothing where it does not ask for it.
async fn call(app: &Arc<App>, settling: &Arc<Settling>, record: &JobRecord) -> Result<Option<Outcome>, Value> {
    let Admitted { scope, mut guards, served } = owner::admit(app, record).await?;
    if is_told(&record.signal) && !served.manifest.signals.contains(&record.signal) {
        // Another version of the primitive asks for it; the one that serves this user does not.
        settling.end(app, Ok(Value::Null)).await;
        return Ok(None);
    }
    let deadline_ms = record.deadline_ms.unwrap_or(app.config.jobs.deadline_ms);
    let until = app.clock.now().plus_ms(i64::from(deadline_ms) + SETTLE_MS);
    let extend = Write::Extend { key: settling.key.clone(), token: settling.token.clone(), until };
    let extended = app.store.commit(Unit { writes: vec![extend], ..Unit::default() }).await;
    if extended.is_err() {
        // Cancelled, taken up by another, or no room to write in: whoever holds it then runs it.
        return Ok(Some(Outcome::Restart));
    }
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
    guards.push(Guard::Lease { key: settling.key.clone(), token: settling.token.clone() });
    let lane = scope.lane().to_owned();
    let call = Call {
        request_id: settling.key.id.clone(),
        scope,
        entry: Entry::React(Signal { kind: record.signal.clone(), payload: payload.to_string(), blob: None }),
        guards,
        claim: None,
        finish: settling.clone() as Arc<dyn Finish>,
        mutates: true,
        deadline_ms,
        class: Class::Long,
        depth: 0,
        client_gone: CancellationToken::new(),
        origin: None,
    };
    let outcome = app.engine.call(&served.component, call).await;
    let trapped = matches!(outcome, Outcome::Trapped { .. });
    app.registry.observe(served.name(), served.digest(), &lane, trapped);
    Ok(Some(outcome))
}

impl Finish for Settling {
    fn finish<'a>(&'a self, txn: &'a mut Txn, ending: Ending<'a>) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let error = match ending.result {
                EndingResult::Answered(answer) => return self.settle(txn, Ok(result(answer))).await,
                EndingResult::Refused(failure) => {
                    json!({"code": failure.code, "message": failure.message, "reason": failure.reason})
                }
                EndingResult::Trapped(incident) => {
                    json!({"code": "internal_error", "message": "The component failed.", "incident": incident})
                }
                EndingResult::Deadline => json!({"code": "deadline_exceeded", "message": "The job took longer than it may."}),
                EndingResult::OutOfMemory => {
                    json!({"code": "internal_error", "message": "The component used more memory than it may."})
                }
                // Nobody waits for a job, so that nobody can leave; and no action of a job waits for people.
                EndingResult::ClientGone | EndingResult::Pending(_) => return,
            };
            self.settle(txn, Err(error)).await;
        })
    }
}

/// What a job answers, as its record keeps it.
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
                tracing::error!(error = &error as &dyn std::error::Error, "a job cannot be read to be settled; it runs again");
                return self.fence(txn);
            }
        };
        let Ok(mut record) = serde_json::from_str::<JobRecord>(&row.body) else { return self.fence(txn) };
        let now = self.clock.now();
        let again = ended.is_err() && self.attempt < record.attempts_max;
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
        txn.release(&self.key, &self.token, due_at);
        let mut index = record.index();
        let mut unique = row.unique;
        let mut lease = None;
        if !again {
            // Its key is free for the next one, and nothing hands it out again.
            unique.clear();
            index = record.ended_index(now);
            lease = Some((ENDED_GROUP.to_owned(), NEVER));
        }
        let Ok(body) = serde_json::to_string(&record) else { return };
        let draft = Draft { user: row.user, body, index, unique, text: None, lease };
        if let Err(error) = txn.replace(self.key.clone(), draft, None).await {
            tracing::error!(error = &error as &dyn std::error::Error, "a job cannot be settled; it runs again");
        }
    }

    /// Lets nothing be committed by a run that no longer holds its job.
    fn fence(&self, txn: &mut Txn) {
        txn.guard(Guard::Lease { key: self.key.clone(), token: self.token.clone() });
    }

    fn backoff(&self) -> i64 {
        let doubled = BACKOFF_MS.saturating_mul(1 << self.attempt.saturating_sub(1).min(30));
        let jitter = u64::from(uuid::Uuid::now_v7().as_bytes()[15]) * doubled / 1_024;
        i64::try_from((doubled + jitter).min(self.backoff_ms_max)).unwrap_or(i64::MAX)
    }

    /// The run never began: it does not count.
    async fn give_back(&self, app: &App, after_ms: i64) {
        let due_at = self.clock.now().plus_ms(after_ms.max(100));
        let release = Write::Release { key: self.key.clone(), token: self.token.clone(), due_at, undo: true };
        self.commit(app, Unit { writes: vec![release], ..Unit::default() }).await;
    }

    /// Nothing hands it out any more.
    async fn put_away(&self, app: &App) {
        let release = Write::Release { key: self.key.clone(), token: self.token.clone(), due_at: NEVER, undo: false };
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

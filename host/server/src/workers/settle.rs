//! The row of one run of a job: how the run ended is written in the run's own commit, under the
//! lease that it has.
//!
//! The lease is the fence: a run whose lease has ended commits nothing, so that a paused replica
//! never settles what another has taken up.

use std::sync::Arc;

use charter_engine::job::{JobRecord, NEVER, jobs};
use charter_engine::{Answer, AnswerBody, Claiming, Ending, EndingResult, Finish};
use charter_governance::approvals::{Content, Run};
use charter_kernel::refusal::{Code, EFFECT_WITHOUT_RECORD, Refusal};
use charter_kernel::unit::{Draft, Guard, Key, Rejection, Row, Unit, Write};
use charter_store::{CommitError, Patience, Store, Txn};
use charter_tenancy::stored;
use futures::future::BoxFuture;
use serde_json::Value;

use crate::app::App;
use crate::pipeline::finish::fail_unit;

/// Wait before the second attempt; doubled with each further one.
const BACKOFF_MS: u64 = 1_000;

/// The row of a run, for its commit.
pub(super) struct Settling {
    store: Store,
    key: Key,
    by: By,
    attempt: u32,
    backoff_ms_max: u64,
}

/// The lease by which a job runs.
pub(super) enum By {
    /// That of its row.
    Lease(String),
    /// That of the approval that people have given: the end of the run is the approval's too.
    Approval(Arc<Run>),
}

/// How a run ended.
enum Ended<'a> {
    /// With this result; none where it may show a secret, and is kept nowhere.
    Answered(Option<Value>),
    /// With this failure, as records keep it; nothing was run.
    Never(Value),
    Failed(Ending<'a>),
}

impl Finish for Settling {
    fn finish<'a>(
        &'a self,
        txn: &'a mut Txn,
        ending: Ending<'a>,
    ) -> BoxFuture<'a, Result<(), CommitError>> {
        Box::pin(async move {
            let ended = match ending.result {
                EndingResult::Answered(_) if ending.shown => Ended::Answered(None),
                EndingResult::Answered(answer) => Ended::Answered(Some(result(answer))),
                // Nobody waits for a job, so that nobody can leave; what waits for people is parked
                // already.
                EndingResult::ClientGone | EndingResult::Pending { .. } => return Ok(()),
                _ => Ended::Failed(ending),
            };
            self.settle(txn, ended).await
        })
    }
}

/// The failure of a run, as records keep it. `acted`: no other run follows, and this or an earlier
/// one had an effect, so that nobody is told that nothing was done.
fn failure(result: EndingResult<'_>, acted: bool) -> Value {
    let failed = |message: &str| {
        let refusal = Refusal::new(Code::InternalError, message);
        if acted { refusal.reason(EFFECT_WITHOUT_RECORD) } else { refusal }
    };
    match result {
        EndingResult::Refused(failure) if acted => failure.clone().after_effect(&[]).to_rest(),
        EndingResult::Refused(failure) => failure.to_rest(),
        EndingResult::Trapped(incident) => {
            failed("The component failed.").detail("incident", incident).to_rest()
        }
        EndingResult::Deadline if acted => {
            failed("The job took longer than it may, and had acted.").to_rest()
        }
        EndingResult::Deadline => {
            Refusal::new(Code::DeadlineExceeded, "The job took longer than it may.").to_rest()
        }
        _ => failed("The component used more memory than it may.").to_rest(),
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
    /// The row of a run that begins.
    pub(super) fn begin(app: &App, key: &Key, row: &Row, by: By) -> Arc<Self> {
        Arc::new(Self {
            store: app.store.clone(),
            key: key.clone(),
            by,
            attempt: row.lease.as_ref().map_or(1, |lease| lease.count),
            backoff_ms_max: app.config.jobs.backoff_ms_max,
        })
    }

    /// The organization in whose turn it is written.
    fn organization(&self) -> &str {
        self.key.reach.of_organization().unwrap_or_default()
    }

    /// The job's id.
    pub(super) fn id(&self) -> &str {
        &self.key.id
    }

    /// How often the job was run, this run included.
    pub(super) fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The lease that must hold at each of the run's commits.
    pub(super) fn fence(&self) -> Guard {
        match &self.by {
            By::Lease(token) => Guard::Lease { key: self.key.clone(), token: token.clone() },
            By::Approval(run) => run.fence(),
        }
    }

    /// The mark of an approved run, written before its first effect leaves the host.
    pub(super) fn claiming(&self) -> Option<Claiming> {
        match &self.by {
            By::Lease(_) => None,
            By::Approval(run) => Some(run.claiming()),
        }
    }

    /// Settles it without a run.
    pub(super) async fn end(&self, ended: Result<Value, Value>) {
        let mut txn = self.store.begin(self.organization());
        if self
            .settle(
                &mut txn,
                ended.map_or_else(Ended::Never, |result| Ended::Answered(Some(result))),
            )
            .await
            .is_ok()
        {
            self.commit(txn.into_unit()).await;
        }
    }

    /// The run never began: it does not count.
    pub(super) async fn give_back(&self, after_ms: i64) {
        let due_at = self.store.now().plus_ms(after_ms.max(100));
        self.release(|key, token| Write::Release { key, token, due_at, undo: true }).await;
    }

    /// Nothing hands it out any more.
    pub(super) async fn put_away(&self) {
        self.release(|key, token| Write::Release { key, token, due_at: NEVER, undo: false }).await;
    }

    async fn release(&self, write: impl FnOnce(Key, String) -> Write) {
        let By::Lease(token) = &self.by else { return };
        let writes = vec![write(self.key.clone(), token.clone())];
        let organization = self.organization().to_owned();
        self.commit(Unit { organization, writes, ..Unit::default() }).await;
    }

    async fn commit(&self, unit: Unit) {
        if let Err(error) = self.store.commit_settling(unit).await {
            tracing::debug!(%error, job = self.key.id, space = jobs().as_str(), "a job was not settled; its lease will end");
        }
    }

    /// Writes how the run ended, under its fence.
    async fn settle(&self, txn: &mut Txn, ended: Ended<'_>) -> Result<(), CommitError> {
        let Some((row, mut record)) = self.read(txn).await? else {
            // The guest has cancelled the very job that runs, or somebody has removed it.
            txn.guard(self.fence());
            return Ok(());
        };
        record.acted |= matches!(ended, Ended::Failed(ending) if ending.dispatched);
        if let Some(over) = record.outcome() {
            return self.settle_over(txn, ended, record.acted, over).await;
        }
        let now = self.store.now();
        let again = !matches!(ended, Ended::Answered(_)) && self.attempt < record.attempts_max;
        record.note_run(self.attempt);
        // The end of an approved run is told, whatever follows.
        let acted = record.acted && (!again || matches!(self.by, By::Approval(_)));
        let ended = match ended {
            Ended::Answered(result) => Ok(result),
            Ended::Never(error) => Err(error),
            Ended::Failed(ending) => Err(failure(ending.result, acted)),
        };
        let due_at = if again { now.plus_ms(self.backoff()) } else { NEVER };
        match &self.by {
            By::Lease(token) => txn.release(&self.key, token, due_at),
            By::Approval(run) => {
                let answer = ended.as_ref().ok().and_then(Option::as_ref);
                let answer = answer.filter(|result| !result.is_null());
                let answer = answer.map(Value::to_string).unwrap_or_default();
                let content = match ended {
                    Ok(None) => Content::Withheld,
                    _ => Content::Whole(answer.as_bytes()),
                };
                let told = ended.as_ref().map(|_| (200, content)).map_err(Value::clone);
                run.end(txn, told).await.map_err(fail_unit)?;
            }
        }
        match ended {
            Ok(result) => {
                record.result_not_kept = result.is_none();
                record.result = result.filter(|result| !result.is_null());
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
        let draft = match again {
            false => record.end(row.user, now),
            true => serde_json::to_string(&record).map(|body| {
                let (index, lease) = (record.index(), Some((record.group(), due_at)));
                Draft { user: row.user, body, index, unique: row.unique, lease, ..Draft::default() }
            }),
        };
        let draft = draft.map_err(|_| fail_unit(Refusal::internal()))?;
        let replaced = txn.replace(self.key.clone(), draft, None).await;
        replaced.map(drop).map_err(|error| fail_unit(stored::breaking(error)))
    }

    /// Somebody has ended it meanwhile: so it stays. An approved run that had acted by then says so,
    /// since nobody is told that nothing was done.
    async fn settle_over(
        &self,
        txn: &mut Txn,
        ended: Ended<'_>,
        acted: bool,
        over: Result<Value, Value>,
    ) -> Result<(), CommitError> {
        let told = match (ended, over) {
            (Ended::Failed(ending), Err(_)) if acted => failure(ending.result, true),
            (Ended::Failed(_) | Ended::Never(_), Err(error)) => error,
            (Ended::Answered(_), _) | (_, Ok(_)) => {
                return Err(Rejection::Conflict { keys: vec![self.key.clone()] }.into());
            }
        };
        match &self.by {
            By::Approval(run) => run.end(txn, Err(told)).await.map_err(fail_unit),
            By::Lease(_) => {
                txn.guard(self.fence());
                Ok(())
            }
        }
    }

    /// The row as it is now: the end of a run must be a part of its commit.
    async fn read(&self, txn: &mut Txn) -> Result<Option<(Row, JobRecord)>, CommitError> {
        let mut patience = Patience::default();
        let row = loop {
            match txn.get(&self.key).await {
                Ok(row) => break row,
                Err(error) => {
                    patience
                        .wait(error)
                        .await
                        .map_err(|error| fail_unit(stored::reading(error)))?;
                }
            }
        };
        let Some(row) = row else { return Ok(None) };
        let record = serde_json::from_str(&row.body).map_err(|_| fail_unit(Refusal::internal()))?;
        Ok(Some((row, record)))
    }

    fn backoff(&self) -> i64 {
        let doubled = BACKOFF_MS.saturating_mul(1 << self.attempt.saturating_sub(1).min(30));
        let jitter = u64::from(uuid::Uuid::now_v7().as_bytes()[15]) * doubled / 1_024;
        i64::try_from((doubled + jitter).min(self.backoff_ms_max)).unwrap_or(i64::MAX)
    }
}

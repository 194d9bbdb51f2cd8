//! A lane: one connection that writes, and what is done when a batch fails.
//!
//! Invariant: every unit taken from the queue is answered, and with an error only if it is provably
//! not committed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use charter_kernel::unit::Rejection;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::Shared;
use super::attempt::{Attempt, Outcome, attempt, outcome_of};
use super::mark::Mark;
use super::queue::{Job, Queue};
use super::trouble::Trouble;
use super::turn::{self, Turn};
use crate::error::CommitError;
use crate::sql::{Connection, run as execute};

/// Attempts at a batch that other committers keep coming before.
const RACES_MAX: u32 = 100;
/// How long a batch waits for a database that cannot be reached. Units that wait behind it are
/// refused by the queue's bounds.
const OUTAGE_MS_MAX: u64 = 5_000;
/// Between attempts at a database that cannot be reached.
const PAUSE_MS: u64 = 100;

struct Lane {
    shared: Arc<Shared>,
    queue: Arc<Queue>,
    connection: Option<Connection>,
    /// The connection is in a transaction that has its turns, and nothing else yet.
    has_turns: bool,
    mark: Mark,
    /// The database could not be reached at the last attempt: the next batch does not wait for it
    /// again.
    away: bool,
}

/// Opens a lane, says whether it could be, and works until its queue is closed and empty.
pub(super) async fn run(
    shared: Arc<Shared>,
    queue: Arc<Queue>,
    closing: CancellationToken,
    opened: oneshot::Sender<sqlx::Result<()>>,
) {
    let lane = match Lane::open(shared, queue.clone()).await {
        Ok(lane) => lane,
        Err(error) => return drop(opened.send(Err(error))),
    };
    // Nobody may be waiting any more: then the store closes.
    let _ = opened.send(Ok(()));
    // Without a handle to submit through, the lane finishes what it has and ends.
    tokio::spawn(async move {
        closing.cancelled().await;
        queue.close();
    });
    lane.run().await;
}

impl Lane {
    async fn open(shared: Arc<Shared>, queue: Arc<Queue>) -> sqlx::Result<Self> {
        let mut connection = shared.database.writer().await?;
        if shared.database.is_postgres() {
            Mark::sweep(&mut connection, shared.config.clock.now()).await?;
        }
        Ok(Self {
            shared,
            queue,
            connection: Some(connection),
            has_turns: false,
            mark: Mark::new()?,
            away: false,
        })
    }

    async fn run(mut self) {
        let mut answered = 0;
        while let Some(turns) = self.queue.ready(answered).await {
            self.begin(&turns).await;
            let batch = self.queue.batch();
            answered = batch.len();
            self.commit(batch).await;
            self.give_up().await;
        }
        self.queue.end();
    }

    /// Waits for its turn at what the next batch meets others at.
    async fn begin(&mut self, turns: &BTreeSet<Turn>) {
        let Some(connection) =
            self.connection.as_mut().filter(|_| self.shared.database.is_postgres())
        else {
            return;
        };
        let Some(begin) = turn::begin(turns) else { return };
        match self.shared.database.answer(execute(connection, begin)).await {
            Ok(()) => self.has_turns = true,
            // The batch finds out for itself whether the database can be reached.
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "a batch goes without its turn"
                );
                self.connection = None;
            }
        }
    }

    /// Gives up turns that no attempt has used: all of the batch was refused before.
    async fn give_up(&mut self) {
        if !std::mem::take(&mut self.has_turns) {
            return;
        }
        let database = &self.shared.database;
        if let Some(connection) = &mut self.connection
            && database.answer(turn::undo(connection, database.dialect)).await.is_err()
        {
            self.connection = None;
        }
    }

    /// Commits a batch, halving it until a guilty unit stands alone.
    async fn commit(&mut self, batch: Vec<Job>) {
        let mut parts = vec![batch];
        while let Some(mut jobs) = parts.pop() {
            // The store may have turned read-only while they waited.
            jobs = self.admit(jobs);
            if jobs.is_empty() {
                continue;
            }
            match self.attempts(&jobs).await {
                Ok(outcome) => self.answer(jobs, outcome),
                Err(Trouble::Guilty(error)) if jobs.len() == 1 => {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "the database refused a unit"
                    );
                    refuse(jobs, &CommitError::Failed);
                }
                Err(Trouble::Guilty(error)) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        units = jobs.len(),
                        "halving a refused batch"
                    );
                    let half = jobs.split_off(jobs.len() / 2);
                    parts.push(half);
                    parts.push(jobs);
                }
                Err(Trouble::Race) => {
                    refuse(jobs, &CommitError::Rejected(Rejection::Conflict { keys: Vec::new() }))
                }
                Err(Trouble::Passing(error)) => {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "the database cannot be reached"
                    );
                    refuse(
                        jobs,
                        &CommitError::ReadOnly { reason: "the database cannot be reached".into() },
                    );
                }
                Err(Trouble::Full(error)) => {
                    tracing::error!(error = &error as &dyn std::error::Error, "the disk is full");
                    if self.shared.room.full() {
                        // The ballast is free now: what settles an effect has its room.
                        parts.push(jobs);
                    } else {
                        refuse(jobs, &self.shared.room.refusal());
                    }
                }
                Err(Trouble::Torn(error)) => {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "a commit could not be written; no writes until restart"
                    );
                    self.shared.room.stop();
                    refuse(jobs, &self.shared.room.refusal());
                }
            }
        }
    }

    fn admit(&self, jobs: Vec<Job>) -> Vec<Job> {
        let mut admitted = Vec::with_capacity(jobs.len());
        for job in jobs {
            match self.shared.room.admits(job.settling) {
                Ok(()) => admitted.push(job),
                Err(refusal) => job.answer(Err(refusal)),
            }
        }
        admitted
    }

    /// Attempts until the outcome is known, or trouble that another attempt does not mend.
    async fn attempts(&mut self, jobs: &[Job]) -> Result<Outcome, Trouble> {
        let mut races = 0;
        let mut passing = 0;
        let mut given_up = BTreeSet::new();
        let begun = tokio::time::Instant::now();
        loop {
            self.mark.advance();
            let has_turns = std::mem::take(&mut self.has_turns);
            let attempted = match &mut self.connection {
                Some(connection) => {
                    attempt(&self.shared, connection, has_turns, jobs, &mut given_up, &self.mark)
                        .await
                }
                None => match self.shared.database.writer().await {
                    Ok(connection) => {
                        attempt(
                            &self.shared,
                            self.connection.insert(connection),
                            false,
                            jobs,
                            &mut given_up,
                            &self.mark,
                        )
                        .await
                    }
                    Err(error) => Err(Trouble::Passing(error)),
                },
            };
            match attempted {
                Ok(Attempt::Done(outcome)) => {
                    self.away = false;
                    return Ok(outcome);
                }
                Ok(Attempt::InDoubt(outcome, transaction)) => {
                    self.connection = None;
                    if self.resolve(&transaction).await {
                        return Ok(outcome);
                    }
                }
                Err(Trouble::Race) => {
                    self.shared.counts.retries.fetch_add(1, Ordering::Relaxed);
                    races += 1;
                    if races >= RACES_MAX {
                        return Err(Trouble::Race);
                    }
                }
                Err(Trouble::Passing(error)) => {
                    // A connection that has failed once may be in any state: SQLite may have left
                    // the transaction silently.
                    self.connection = None;
                    passing += 1;
                    let waited = begun.elapsed() >= Duration::from_millis(OUTAGE_MS_MAX);
                    if waited || (self.away && passing > 1) {
                        self.away = true;
                        return Err(Trouble::Passing(error));
                    }
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "a batch is tried again on a new connection"
                    );
                    if passing > 1 {
                        tokio::time::sleep(Duration::from_millis(PAUSE_MS)).await;
                    }
                }
                Err(trouble) => {
                    self.connection = None;
                    return Err(trouble);
                }
            }
        }
    }

    /// Whether the transaction was committed. Asks until the database answers: nobody may be told
    /// before.
    async fn resolve(&mut self, transaction: &str) -> bool {
        loop {
            let database = &self.shared.database;
            let connected = match &mut self.connection {
                Some(connection) => Ok(connection),
                None => database.writer().await.map(|new| self.connection.insert(new)),
            };
            let asked = match connected {
                Ok(connection) => {
                    database.answer(outcome_of(connection, transaction, &self.mark)).await
                }
                Err(error) => Err(error),
            };
            match asked {
                Ok(Some(committed)) => {
                    tracing::info!(transaction, committed, "the outcome of a commit is known");
                    return committed;
                }
                Ok(None) => {}
                Err(_) => self.connection = None,
            }
            tokio::time::sleep(Duration::from_millis(PAUSE_MS)).await;
        }
    }

    fn answer(&self, jobs: Vec<Job>, outcome: Outcome) {
        self.shared.counts.batches.fetch_add(1, Ordering::Relaxed);
        let committed = outcome.answers.iter().filter(|answer| answer.is_ok()).count();
        self.shared.counts.units.fetch_add(committed as u64, Ordering::Relaxed);
        self.shared.epochs.note_writes(outcome.written.spaces.iter());
        for (job, answer) in jobs.into_iter().zip(outcome.answers) {
            job.answer(answer);
        }
        self.shared.wakes.wake(&outcome.written.spaces, &outcome.written.logs);
        if outcome.written.unnumbered_facts {
            self.shared.facts_written.notify_one();
        }
    }
}

fn refuse(jobs: Vec<Job>, refusal: &CommitError) {
    for job in jobs {
        job.answer(Err(refusal.clone()));
    }
}

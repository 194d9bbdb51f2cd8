//! One attempt at a batch: begin, prefetch, decide, write, commit.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};

use charter_kernel::apply::{Changes, State, Touches, apply};
use charter_kernel::unit::{Claim, LogKey, Reach, Space};

use super::Shared;
use super::mark::Mark;
use super::prefetch::prefetch;
use super::queue::{Answer, Job};
use super::trouble::Trouble;
use super::turn;
use super::write::write;
use crate::connection::Database;
use crate::dialect::Dialect;
use crate::error::CommitError;
use crate::sql::{Connection, query, run};

/// The result of a batch.
pub(super) struct Outcome {
    pub(super) answers: Vec<Answer>,
    pub(super) written: Written,
}

/// The waiters that a commit wakes.
#[derive(Default)]
pub(super) struct Written {
    pub(super) spaces: Vec<(Reach, Space)>,
    pub(super) logs: Vec<LogKey>,
    pub(super) unnumbered_facts: bool,
}

/// How far an attempt came.
pub(super) enum Attempt {
    /// It is on disk, or nothing was to be written.
    Done(Outcome),
    /// COMMIT got no answer: the database knows whether this transaction is.
    InDoubt(Outcome, String),
}

/// `begun`: the connection is in a transaction already, which has its turns. `given_up`: the claims that
/// rows of former attempts took along; they are asked for ahead, with all others.
pub(super) async fn attempt(
    shared: &Shared,
    connection: &mut Connection,
    begun: bool,
    jobs: &[Job],
    given_up: &mut BTreeSet<Claim>,
    mark: &Mark,
) -> Result<Attempt, Trouble> {
    let (database, dialect) = (&shared.database, shared.database.dialect);
    let _at_log = match dialect {
        Dialect::Sqlite => Some(shared.at_log.lock().await),
        Dialect::Postgres => None,
    };
    if !begun {
        database.answer(run(&mut *connection, dialect.begin())).await?;
    }
    let numbered = dialect == Dialect::Sqlite;
    let mut touches = Touches::default();
    jobs.iter().for_each(|job| touches.add(&job.unit, numbered));
    touches.claims.extend(given_up.iter().cloned());
    let now = shared.config.clock.now();
    let read = prefetch(connection, dialect, &touches, numbered, now);
    let mut state = match database.answer(read).await.map_err(Trouble::from) {
        Ok(state) => state,
        Err(trouble) => return Err(again(database, connection, trouble).await),
    };
    let answers: Vec<_> = jobs.iter().map(|job| decide(&mut state, job, now)).collect();
    let changes = state.changes();
    if changes.is_empty() {
        database.answer(turn::undo(connection, dialect)).await?;
        return Ok(Attempt::Done(Outcome { answers, written: Written::default() }));
    }
    let epochs = match dialect {
        Dialect::Sqlite => Vec::new(),
        Dialect::Postgres => {
            shared.epochs.shards(changes.spaces.iter().map(|change| (change.reach, change.space)))
        }
    };
    let mark = (dialect == Dialect::Postgres).then(|| mark.row(now));
    let written = write(connection, dialect, &changes, &epochs, mark);
    let transaction = match database.answer(written).await {
        Ok(transaction) => transaction,
        Err(trouble) => {
            let gone = changes.claims.iter().filter(|change| change.after.is_none());
            given_up.extend(gone.map(|change| change.claim.clone()));
            return Err(again(database, connection, trouble).await);
        }
    };
    let written = Written::of(&changes, numbered);
    let committed = database.answer(run(&mut *connection, "COMMIT")).await;
    let outcome = Outcome { answers, written };
    match (committed, transaction) {
        (Ok(_), _) => Ok(Attempt::Done(outcome)),
        (Err(error), Some(transaction)) => {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "a commit got no answer; asking the database for its outcome"
            );
            Ok(Attempt::InDoubt(outcome, transaction))
        }
        (Err(error), None) => Err(Trouble::of_sqlite_commit(error)),
    }
}

/// The trouble, behind which a race leaves the connection as it was before.
async fn again(database: &Database, connection: &mut Connection, trouble: Trouble) -> Trouble {
    match trouble {
        Trouble::Race => match database.answer(turn::undo(connection, database.dialect)).await {
            Ok(()) => Trouble::Race,
            Err(error) => error.into(),
        },
        trouble => trouble,
    }
}

/// A panic in a rule costs the unit alone: its overlay is dropped unmerged.
fn decide(state: &mut State, job: &Job, now: charter_kernel::time::Instant) -> Answer {
    match catch_unwind(AssertUnwindSafe(|| apply(state, &job.unit, now))) {
        Ok(decided) => decided.map_err(CommitError::Rejected),
        Err(_) => {
            tracing::error!(
                organization = job.unit.organization,
                "deciding a unit panicked; the unit is refused"
            );
            Err(CommitError::Failed)
        }
    }
}

impl Written {
    fn of(changes: &Changes<'_>, numbered: bool) -> Self {
        Self {
            spaces: changes
                .spaces
                .iter()
                .map(|change| (change.reach.clone(), change.space.clone()))
                .collect(),
            logs: changes.logs.iter().map(|change| change.log.clone()).collect(),
            unnumbered_facts: !numbered && !changes.facts.is_empty(),
        }
    }
}

/// Whether a transaction is on disk, asked on a new connection. `None`: it is not decided yet.
///
/// The database says when it runs no more; whether it is there, the lane's mark says.
pub(super) async fn outcome_of(
    connection: &mut Connection,
    transaction: &str,
    mark: &Mark,
) -> sqlx::Result<Option<bool>> {
    // A transaction too old to be known would be NULL; this one is seconds old.
    let query = query("SELECT pg_xact_status(CAST($1 AS xid8))").bind(transaction.to_owned());
    let status: Option<String> = match query.fetch_one(&mut *connection).await {
        Ok(row) => row.try_get(0)?,
        // A number that was not given yet: the database has crashed and knows nothing of the
        // transaction.
        Err(error) if is_unknown(&error) => return Ok(Some(false)),
        Err(error) => return Err(error),
    };
    match status.as_deref() {
        // It or, after a crash, another one that was given its number.
        Some("committed") => mark.is_there(connection).await.map(Some),
        Some("aborted") => Ok(Some(false)),
        _ => Ok(None),
    }
}

/// PostgreSQL's `invalid_parameter_value`, which it answers to the number of a transaction in its
/// future.
fn is_unknown(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == "22023")
}

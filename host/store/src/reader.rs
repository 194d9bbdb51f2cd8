//! Small reads: those that wait at one moment become one statement.
//!
//! No timer: an idle reader answers a single question at once, and the more callers there are, the
//! more a statement answers. Knows nothing of what is asked; that is a [`Questions`].

use std::collections::{BTreeMap, BTreeSet};

use charter_kernel::apply::Stored;
use charter_kernel::unit::Key;
use std::sync::Arc;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::connection::{Database, reading};
use crate::dialect::Dialect;
use crate::document::{columns, read_row};
use crate::error::ReadError;
use crate::sql::{Asker, Connection, Pool, Query, Row, query};

/// Questions that may wait.
const WAITING_MAX: usize = 16_384;
/// Questions of one statement.
const BATCH_MAX: usize = 256;

/// A kind of small read that one statement can make for many callers.
pub(crate) trait Questions: Send + Sync + 'static {
    /// A question.
    type Asked: Clone + Ord + Send + Sync;
    /// Its answer, if there is any.
    type Found: Clone + Send;

    /// The statement that answers one.
    fn one(&self, dialect: Dialect, asked: &Self::Asked) -> Query;
    /// The statement that answers all of them.
    fn all(&self, dialect: Dialect, asked: &BTreeSet<Self::Asked>) -> Query;
    /// The question that a row of either statement answers, and its answer.
    fn decode(row: Row) -> sqlx::Result<(Self::Asked, Self::Found)>;
}

type Answer<Q> = Result<Option<<Q as Questions>::Found>, ReadError>;

pub(crate) struct Waiting<Q: Questions> {
    asked: Q::Asked,
    answer: oneshot::Sender<Answer<Q>>,
}

/// The entrance for questions of one kind.
pub(crate) enum Readers<Q: Questions> {
    /// SQLite is asked at once: a statement costs less than finding others to share it with.
    Direct { questions: Q, pool: Pool },
    /// PostgreSQL is asked together with others: a round trip costs more than the rows.
    Together(mpsc::Sender<Waiting<Q>>),
}

impl<Q: Questions> Readers<Q> {
    /// Starts them: on PostgreSQL so many readers, each on a connection of its own.
    pub(crate) async fn start(
        questions: Q,
        database: &Database,
        pool: &Pool,
        connections: u32,
        closing: &CancellationToken,
    ) -> sqlx::Result<Self> {
        if !database.is_postgres() {
            return Ok(Self::Direct { questions, pool: pool.clone() });
        }
        let (waiting, taken) = mpsc::channel(WAITING_MAX);
        let (questions, taken) = (Arc::new(questions), Arc::new(Mutex::new(taken)));
        for _ in 0..connections {
            let connection = Some(database.reader().await?);
            let reader = Reader {
                questions: questions.clone(),
                database: database.clone(),
                connection,
                waiting: taken.clone(),
            };
            let closing = closing.clone();
            tokio::spawn(async move { closing.run_until_cancelled(reader.run()).await });
        }
        Ok(Self::Together(waiting))
    }

    /// Asks for an organization, and waits for the answer.
    pub(crate) async fn ask(&self, asked: Q::Asked, organization: &str) -> Answer<Q> {
        match self {
            Self::Direct { questions, pool } => {
                let query = questions.one(Dialect::Sqlite, &asked);
                let row = reading(query.fetch_optional(Asker { pool, organization })).await?;
                let found = row
                    .map(Q::decode)
                    .transpose()
                    .map_err(|error| ReadError::Failed(Some(error)))?;
                Ok(found.map(|(_, found)| found))
            }
            Self::Together(waiting) => {
                let (answer, answered) = oneshot::channel();
                waiting.try_send(Waiting { asked, answer }).map_err(|_| ReadError::Overloaded)?;
                answered.await.unwrap_or(Err(ReadError::Unavailable(None)))
            }
        }
    }
}

struct Reader<Q: Questions> {
    questions: Arc<Q>,
    database: Database,
    connection: Option<Connection>,
    waiting: Arc<Mutex<mpsc::Receiver<Waiting<Q>>>>,
}

impl<Q: Questions> Reader<Q> {
    async fn run(mut self) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        loop {
            // The reader that waits here first takes all there is; the others are busy or wait
            // behind.
            let taken = self.waiting.lock().await.recv_many(&mut batch, BATCH_MAX).await;
            if taken == 0 {
                return;
            }
            // A caller that stopped waiting need not be read for.
            batch.retain(|waiting| !waiting.answer.is_closed());
            self.answer(&mut batch).await;
        }
    }

    async fn answer(&mut self, batch: &mut Vec<Waiting<Q>>) {
        let asked: BTreeSet<Q::Asked> = batch.iter().map(|waiting| waiting.asked.clone()).collect();
        if asked.is_empty() {
            return;
        }
        let mut found = self.read(&asked).await;
        if found.is_err() {
            // The connection may be what failed: the next attempt has a new one.
            self.connection = None;
            found = self.read(&asked).await;
        }
        match found {
            Ok(found) => {
                for waiting in batch.drain(..) {
                    let _ = waiting.answer.send(Ok(found.get(&waiting.asked).cloned()));
                }
            }
            Err(error) => {
                self.connection = None;
                tracing::warn!(error = &error as &dyn std::error::Error, "a batch of reads failed");
                for waiting in batch.drain(..) {
                    let _ = waiting.answer.send(Err(ReadError::Unavailable(None)));
                }
            }
        }
    }

    async fn read(
        &mut self,
        asked: &BTreeSet<Q::Asked>,
    ) -> Result<BTreeMap<Q::Asked, Q::Found>, ReadError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(reading(self.database.reader()).await?),
        };
        let dialect = self.database.dialect;
        let mut several = asked.iter();
        let query = match (several.next(), several.next()) {
            (Some(one), None) => self.questions.one(dialect, one),
            _ => self.questions.all(dialect, asked),
        };
        let rows = reading(query.fetch_all(connection)).await?;
        rows.into_iter()
            .map(Q::decode)
            .collect::<sqlx::Result<_>>()
            .map_err(|error| ReadError::Failed(Some(error)))
    }
}

/// Rows by their keys.
pub(crate) struct Rows;

impl Questions for Rows {
    type Asked = Key;
    type Found = Stored;

    fn one(&self, dialect: Dialect, key: &Key) -> Query {
        let sql = concat!(
            "SELECT ",
            columns!(),
            " FROM documents d WHERE d.reach = $1 AND d.space = $2 AND d.id = $3"
        );
        query(dialect.sql(sql))
            .bind(key.reach.as_str())
            .bind(key.space.as_str())
            .bind(key.id.as_str())
    }

    fn all(&self, dialect: Dialect, asked: &BTreeSet<Key>) -> Query {
        let sql = concat!(
            "SELECT ",
            columns!(),
            " FROM {each:$1} k CROSS JOIN documents d \
             WHERE d.reach = k.value->>0 AND d.space = k.value->>1 AND d.id = k.value->>2"
        );
        let keys: Vec<_> = asked
            .iter()
            .map(|key| (key.reach.as_str(), key.space.as_str(), key.id.as_str()))
            .collect();
        query(dialect.sql(sql)).bind(serde_json::to_string(&keys).unwrap_or_default())
    }

    fn decode(mut row: Row) -> sqlx::Result<(Key, Stored)> {
        read_row(&mut row, 0)
    }
}

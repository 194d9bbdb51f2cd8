//! Small reads: those that wait at one moment become one statement.
//!
//! No timer: an idle reader answers a single question at once, and the more callers there are, the more a statement answers.
//! Knows nothing of what is asked; that is a [`Questions`].

use std::collections::{BTreeMap, BTreeSet};

use charter_kernel::apply::Stored;
use charter_kernel::unit::Key;
use sqlx::AnyConnection;
use std::sync::Arc;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::connection::{Database, reading};
use crate::dialect::Dialect;
use crate::document::{columns, stored};
use crate::error::ReadError;

/// Questions that may wait.
const WAITING_MAX: usize = 16_384;
/// Questions of one statement.
const BATCH_MAX: usize = 256;

/// A kind of small read that one statement can make for many callers.
pub(crate) trait Questions: Send + Sync + 'static {
    /// What is asked for.
    type Asked: Clone + Ord + Send + Sync;
    /// What is there, if anything.
    type Found: Clone + Send;

    /// Answers all of them.
    fn read(
        &self,
        connection: &mut AnyConnection,
        dialect: Dialect,
        asked: &BTreeSet<Self::Asked>,
    ) -> impl Future<Output = Result<BTreeMap<Self::Asked, Self::Found>, ReadError>> + Send;
}

type Answer<Q> = Result<Option<<Q as Questions>::Found>, ReadError>;

struct Waiting<Q: Questions> {
    asked: Q::Asked,
    answer: oneshot::Sender<Answer<Q>>,
}

/// Where questions of one kind are handed in.
pub(crate) struct Readers<Q: Questions> {
    waiting: mpsc::Sender<Waiting<Q>>,
}

impl<Q: Questions> Readers<Q> {
    /// Starts that many readers, each on a connection of its own.
    pub(crate) async fn start(
        questions: Q,
        database: &Database,
        connections: u32,
        closing: &CancellationToken,
    ) -> sqlx::Result<Self> {
        let (waiting, taken) = mpsc::channel(WAITING_MAX);
        let (questions, taken) = (Arc::new(questions), Arc::new(Mutex::new(taken)));
        for _ in 0..connections {
            let connection = Some(database.reader().await?);
            let reader =
                Reader { questions: questions.clone(), database: database.clone(), connection, waiting: taken.clone() };
            let closing = closing.clone();
            tokio::spawn(async move { closing.run_until_cancelled(reader.run()).await });
        }
        Ok(Self { waiting })
    }

    /// Asks, and waits for the answer.
    pub(crate) async fn ask(&self, asked: Q::Asked) -> Answer<Q> {
        let (answer, answered) = oneshot::channel();
        self.waiting.try_send(Waiting { asked, answer }).map_err(|_| ReadError::Overloaded)?;
        answered.await.unwrap_or(Err(ReadError::Unavailable(None)))
    }
}

struct Reader<Q: Questions> {
    questions: Arc<Q>,
    database: Database,
    connection: Option<AnyConnection>,
    waiting: Arc<Mutex<mpsc::Receiver<Waiting<Q>>>>,
}

impl<Q: Questions> Reader<Q> {
    async fn run(mut self) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        loop {
            // Whoever waits here first takes what there is; the others are busy or wait behind.
            let taken = self.waiting.lock().await.recv_many(&mut batch, BATCH_MAX).await;
            if taken == 0 {
                return;
            }
            // Who stopped waiting need not be read for.
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

    async fn read(&mut self, asked: &BTreeSet<Q::Asked>) -> Result<BTreeMap<Q::Asked, Q::Found>, ReadError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(reading(self.database.reader()).await?),
        };
        self.questions.read(connection, self.database.dialect, asked).await
    }
}

/// Rows by their keys.
pub(crate) struct Rows;

impl Questions for Rows {
    type Asked = Key;
    type Found = Stored;

    async fn read(
        &self,
        connection: &mut AnyConnection,
        dialect: Dialect,
        asked: &BTreeSet<Key>,
    ) -> Result<BTreeMap<Key, Stored>, ReadError> {
        let mut keys = asked.iter();
        let rows = match (keys.next(), keys.next()) {
            (Some(key), None) => {
                let sql = concat!("SELECT ", columns!(), " FROM documents d WHERE d.reach = $1 AND d.space = $2 AND d.id = $3");
                let query = sqlx::query(dialect.sql(sql));
                let query = query.bind(key.reach.as_str().to_owned()).bind(key.space.as_str().to_owned()).bind(key.id.clone());
                reading(query.fetch_all(connection)).await?
            }
            _ => {
                let sql = concat!(
                    "SELECT ",
                    columns!(),
                    " FROM {each:$1} k CROSS JOIN documents d \
                     WHERE d.reach = k.value->>0 AND d.space = k.value->>1 AND d.id = k.value->>2"
                );
                let keys: Vec<_> = asked.iter().map(|key| (key.reach.as_str(), key.space.as_str(), key.id.as_str())).collect();
                let keys = serde_json::to_string(&keys).map_err(|_| ReadError::Failed(None))?;
                reading(sqlx::query(dialect.sql(sql)).bind(keys).fetch_all(connection)).await?
            }
        };
        let rows = rows.iter().map(|row| stored(row, 0)).collect::<sqlx::Result<BTreeMap<_, _>>>();
        rows.map_err(|error| ReadError::Failed(Some(error)))
    }
}

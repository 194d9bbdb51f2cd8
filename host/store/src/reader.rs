//! Single-row reads: those that wait at one moment become one statement.
//!
//! No timer: an idle reader answers a single get at once, and the more callers there are, the more rows a statement reads.

use std::collections::BTreeMap;
use std::sync::Arc;

use charter_kernel::apply::Stored;
use charter_kernel::unit::Key;
use sqlx::AnyConnection;
use tokio::sync::{Mutex, mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use crate::connection::{Database, reading};
use crate::document::{columns, stored};
use crate::error::ReadError;

/// Gets that may wait.
const WAITING_MAX: usize = 16_384;
/// Gets of one statement.
const BATCH_MAX: usize = 256;

type Answer = Result<Option<Stored>, ReadError>;

struct Get {
    key: Key,
    answer: oneshot::Sender<Answer>,
}

/// Where gets are handed in.
pub(crate) struct Gets {
    waiting: mpsc::Sender<Get>,
}

impl Gets {
    pub(crate) async fn start(database: &Database, connections: u32, closing: &CancellationToken) -> sqlx::Result<Self> {
        let (waiting, gets) = mpsc::channel(WAITING_MAX);
        let gets = Arc::new(Mutex::new(gets));
        for _ in 0..connections {
            let reader = Reader { database: database.clone(), connection: Some(database.reader().await?), gets: gets.clone() };
            let closing = closing.clone();
            tokio::spawn(async move { closing.run_until_cancelled(reader.run()).await });
        }
        Ok(Self { waiting })
    }

    pub(crate) async fn get(&self, key: &Key) -> Answer {
        let (answer, answered) = oneshot::channel();
        let get = Get { key: key.clone(), answer };
        self.waiting.try_send(get).map_err(|_| ReadError::Overloaded)?;
        answered.await.unwrap_or(Err(ReadError::Unavailable(None)))
    }
}

struct Reader {
    database: Database,
    connection: Option<AnyConnection>,
    gets: Arc<Mutex<mpsc::Receiver<Get>>>,
}

impl Reader {
    async fn run(mut self) {
        let mut batch = Vec::with_capacity(BATCH_MAX);
        loop {
            // Whoever waits here first takes what there is; the others are busy or wait behind.
            let taken = self.gets.lock().await.recv_many(&mut batch, BATCH_MAX).await;
            if taken == 0 {
                return;
            }
            // Who stopped waiting need not be read for.
            batch.retain(|get| !get.answer.is_closed());
            self.answer(&mut batch).await;
        }
    }

    async fn answer(&mut self, batch: &mut Vec<Get>) {
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.read(batch).await {
                Ok(rows) => {
                    let mut last: Option<(Key, Option<Stored>)> = None;
                    let mut rows = rows;
                    batch.sort_by(|a, b| a.key.cmp(&b.key));
                    for get in batch.drain(..) {
                        // Several may ask for one row.
                        let found = match &last {
                            Some((key, found)) if *key == get.key => found.clone(),
                            _ => rows.remove(&get.key),
                        };
                        let _ = get.answer.send(Ok(found.clone()));
                        last = Some((get.key, found));
                    }
                    return;
                }
                Err(error) => {
                    // The connection may be what failed: the next attempt has a new one.
                    self.connection = None;
                    if attempts < 2 {
                        continue;
                    }
                    tracing::warn!(error = &error as &dyn std::error::Error, "a batch of reads failed");
                    for get in batch.drain(..) {
                        let _ = get.answer.send(Err(ReadError::Unavailable(None)));
                    }
                    return;
                }
            }
        }
    }

    async fn read(&mut self, batch: &[Get]) -> Result<BTreeMap<Key, Stored>, ReadError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => none.insert(reading(self.database.reader()).await?),
        };
        let rows = match batch {
            [] => return Ok(BTreeMap::new()),
            [Get { key, .. }] => {
                let sql = concat!("SELECT ", columns!(), " FROM documents d WHERE d.reach = $1 AND d.space = $2 AND d.id = $3");
                let query = sqlx::query(self.database.dialect.sql(sql));
                let query = query.bind(key.reach.as_str().to_owned()).bind(key.space.as_str().to_owned()).bind(key.id.clone());
                reading(query.fetch_all(connection)).await?
            }
            many => {
                let sql = concat!(
                    "SELECT ",
                    columns!(),
                    " FROM {each:$1} k CROSS JOIN documents d \
                     WHERE d.reach = k.value->>0 AND d.space = k.value->>1 AND d.id = k.value->>2"
                );
                let keys: std::collections::BTreeSet<_> =
                    many.iter().map(|get| (get.key.reach.as_str(), get.key.space.as_str(), get.key.id.as_str())).collect();
                let keys = serde_json::to_string(&keys).map_err(|_| ReadError::Failed(None))?;
                reading(sqlx::query(self.database.dialect.sql(sql)).bind(keys).fetch_all(connection)).await?
            }
        };
        let rows = rows.iter().map(|row| stored(row, 0)).collect::<sqlx::Result<BTreeMap<_, _>>>();
        rows.map_err(|error| ReadError::Failed(Some(error)))
    }
}

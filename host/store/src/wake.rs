//! Waking those who wait for a change: at once within this process, by polling where other replicas
//! share the database.
//!
//! Nothing is polled while nobody waits, and only what is waited for.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use charter_kernel::apply::is_of_events;
use charter_kernel::unit::{LogKey, Reach, Space};
use tokio::sync::{Notify, watch};
use tokio_util::sync::CancellationToken;

use crate::connection::reading;
use crate::dialect::Dialect;
use crate::sql::{Pool, Row, query};

/// Things that can be waited for at once; who waits for one more is woken by the clock.
const WATCHED_MAX: usize = 100_000;
/// How long another replica's change may stay unseen.
const POLL_MS: u64 = 250;

/// A space or a log of a reach.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Topic {
    Space(Reach, Space),
    Log(LogKey),
}

#[derive(Default)]
pub(crate) struct Wakes {
    topics: Mutex<HashMap<Topic, Watched>>,
    /// Somebody began to wait.
    watched: Notify,
    /// Some organization's event was committed.
    told: Notify,
}

struct Watched {
    changes: watch::Sender<u64>,
    /// The number that the last poll saw.
    seen: Option<i64>,
}

/// Subscribed to a change. Subscribe, then read, then wait: no change in between is missed.
pub struct Changed {
    wakes: Arc<Wakes>,
    topic: Topic,
    changes: Option<watch::Receiver<u64>>,
}

impl fmt::Debug for Changed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Changed").field("topic", &self.topic).finish()
    }
}

impl Changed {
    /// Resolves at the first commit since the subscription or the last wait; at another replica's
    /// within 500 ms. May resolve without a change.
    pub async fn wait(&mut self) {
        let woken = match &mut self.changes {
            Some(changes) => changes.changed().await.is_ok(),
            None => false,
        };
        if !woken {
            tokio::time::sleep(Duration::from_millis(2 * POLL_MS)).await;
        }
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        self.changes = None;
        let mut topics = self.wakes.topics();
        if topics.get(&self.topic).is_some_and(|watched| watched.changes.receiver_count() == 0) {
            topics.remove(&self.topic);
        }
    }
}

impl Wakes {
    fn topics(&self) -> MutexGuard<'_, HashMap<Topic, Watched>> {
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn subscribe(self: &Arc<Self>, topic: Topic) -> Changed {
        let mut topics = self.topics();
        let full = topics.len() >= WATCHED_MAX && !topics.contains_key(&topic);
        let changes = (!full).then(|| {
            let new = || Watched { changes: watch::Sender::new(0), seen: None };
            topics.entry(topic.clone()).or_insert_with(new).changes.subscribe()
        });
        drop(topics);
        self.watched.notify_one();
        Changed { wakes: self.clone(), topic, changes }
    }

    /// A commit of this process wrote these.
    pub(crate) fn wake(&self, spaces: &[(Reach, Space)], logs: &[LogKey]) {
        if logs.iter().any(is_of_events) {
            self.told.notify_one();
        }
        let topics = self.topics();
        if topics.is_empty() {
            return;
        }
        let spaces = spaces.iter().map(|(reach, space)| Topic::Space(reach.clone(), space.clone()));
        for topic in spaces.chain(logs.iter().cloned().map(Topic::Log)) {
            if let Some(watched) = topics.get(&topic) {
                watched.changes.send_modify(|n| *n += 1);
            }
        }
    }

    /// Resolves at the next event of any organization.
    pub(crate) async fn next_event(&self) {
        self.told.notified().await;
    }

    /// Takes in a poll: wakes those whose number is another than the last poll's.
    fn note_poll(&self, found: &HashMap<Topic, i64>) {
        for (topic, watched) in self.topics().iter_mut() {
            let now = found.get(topic).copied().unwrap_or(0);
            // The first poll after a subscription cannot tell whether the change is older: it
            // wakes, to be safe.
            if watched.seen.replace(now) != Some(now) {
                watched.changes.send_modify(|n| *n += 1);
            }
        }
    }
}

/// Looks for other replicas' commits while somebody waits.
pub(crate) fn poll(
    readers: Pool,
    dialect: Dialect,
    wakes: Arc<Wakes>,
    closing: &CancellationToken,
) {
    tokio::spawn(closing.clone().run_until_cancelled_owned(async move {
        loop {
            let topics: Vec<_> = wakes.topics().keys().cloned().collect();
            if topics.is_empty() {
                wakes.watched.notified().await;
                continue;
            }
            match look(&readers, dialect, &topics).await {
                Ok(found) => wakes.note_poll(&found),
                Err(error) => tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "changes could not be polled"
                ),
            }
            tokio::time::sleep(Duration::from_millis(POLL_MS)).await;
        }
    }));
}

async fn look(
    readers: &Pool,
    dialect: Dialect,
    topics: &[Topic],
) -> Result<HashMap<Topic, i64>, crate::ReadError> {
    let spaces = topics.iter().filter_map(|topic| match topic {
        Topic::Space(reach, space) => Some((reach.as_str(), space.as_str())),
        Topic::Log(_) => None,
    });
    let logs = topics.iter().filter_map(|topic| match topic {
        Topic::Log(log) => Some((log.reach.as_str(), log.log.as_str())),
        Topic::Space(..) => None,
    });
    let text = |pairs: Vec<(&str, &str)>| serde_json::to_string(&pairs).unwrap_or_default();
    let sql = dialect.sql(
        "SELECT CAST(0 AS BIGINT), r.reach, r.space, r.revision FROM {each:$1} k CROSS JOIN revisions r \
         WHERE r.reach = k.value->>0 AND r.space = k.value->>1 \
         UNION ALL SELECT CAST(1 AS BIGINT), l.reach, l.log, l.head * 2 + l.closed FROM {each:$2} k CROSS JOIN logs l \
         WHERE l.reach = k.value->>0 AND l.log = k.value->>1",
    );
    let query = query(sql).bind(text(spaces.collect())).bind(text(logs.collect()));
    let rows = reading(query.fetch_all(readers)).await?;
    let topic = |row: &Row| -> sqlx::Result<(Topic, i64)> {
        let (reach, name) = (Reach::from_store(row.try_get(1)?), row.try_get::<String>(2)?);
        let topic = match row.try_get::<i64>(0)? {
            0 => Topic::Space(reach, Space::from_store(name)),
            _ => Topic::Log(LogKey { reach, log: name }),
        };
        Ok((topic, row.try_get(3)?))
    };
    rows.iter()
        .map(topic)
        .collect::<sqlx::Result<_>>()
        .map_err(|error| crate::ReadError::Failed(Some(error)))
}

//! The queue itself: made, listed with what it holds, emptied, deleted.
//!
//! Deleting marks the queue first, so that no send slips in between the last purge and the end.

use charter_sdk::prelude::*;
use charter_sdk::{checkpoint, now};

use crate::seal::fresh_key;
use crate::send::MESSAGES;

pub(crate) const QUEUES: Collection<Record> =
    Collection::new("queues").index(&[Index::text("dead_letter_queue_id"), Index::text("state")]);

const ACTIVE: &str = "active";
const DELETING: &str = "deleting";
/// How often a message is received at most, where a queue has a dead-letter queue and says nothing
/// else.
const MAX_RECEIVES_DEFAULT: u32 = 5;

/// A queue, as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Record {
    pub(crate) name: String,
    pub(crate) visibility_timeout_seconds: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_receives: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dead_letter_queue_id: Option<String>,
    /// The key with which its receipts are sealed. A queue that was made without one gets it with
    /// its first receive.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) receipt_key: Option<String>,
    state: String,
}

/// A queue to be.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct NewQueue {
    /// For people; need not be unique.
    #[schemars(length(min = 1, max = 200))]
    name: String,
    /// How long a received message stays hidden, unless the receive says otherwise.
    #[serde(default = "thirty")]
    #[schemars(range(min = 0, max = 43_200))]
    visibility_timeout_seconds: u32,
    /// After so many receives a message moves to the dead-letter queue, or is dropped where there
    /// is none. Without it a message is received until it is acknowledged; with a dead-letter queue
    /// it is 5.
    #[schemars(range(min = 1, max = 1_000))]
    max_receives: Option<u32>,
    /// Another queue of the same profile.
    #[schemars(length(min = 1, max = 200))]
    dead_letter_queue_id: Option<String>,
}

fn thirty() -> u32 {
    30
}

/// A queue and what it holds now.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Queue {
    id: String,
    name: String,
    visibility_timeout_seconds: u32,
    max_receives: Option<u32>,
    dead_letter_queue_id: Option<String>,
    /// Messages that nobody holds, delayed ones included.
    depth: u64,
    /// Messages among `depth` that are not due yet.
    delayed: u64,
    /// Messages that were received and are hidden.
    in_flight: u64,
    /// Age of the oldest message in `depth`; null in an empty queue.
    oldest_age_seconds: Option<u64>,
    created_at: Instant,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct QueueAnswer {
    queue: Queue,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct QueueList {
    queues: Vec<Queue>,
    /// Whether there are more behind this page.
    has_more: bool,
}

/// The queue of this id, unless it is being deleted.
pub(crate) fn active(id: &str) -> Result<Doc<Record>> {
    QUEUES.get(id)?.filter(|queue| queue.state == ACTIVE).or_not_found("queue")
}

/// The key of the queue's receipts; one that was made without gets its own.
pub(crate) fn receipt_key(queue: &Doc<Record>) -> Result<String> {
    if let Some(key) = &queue.receipt_key {
        return Ok(key.clone());
    }
    let key = fresh_key()?;
    QUEUES.replace(queue.at(), Record { receipt_key: Some(key.clone()), ..queue.body.clone() })?;
    Ok(key)
}

fn standing(queue: Doc<Record>) -> Result<Queue> {
    let standing = MESSAGES.standing(&queue.id)?;
    Ok(Queue {
        name: queue.body.name,
        visibility_timeout_seconds: queue.body.visibility_timeout_seconds,
        max_receives: queue.body.max_receives,
        dead_letter_queue_id: queue.body.dead_letter_queue_id,
        depth: standing.ready + standing.waiting,
        delayed: standing.waiting,
        in_flight: standing.held,
        oldest_age_seconds: standing.oldest.map(|oldest| now().since(oldest).as_secs()),
        created_at: queue.created_at,
        id: queue.id,
    })
}

pub(crate) fn create(Body(new): Body<NewQueue>) -> Result<Created<QueueAnswer>> {
    if let Some(id) = &new.dead_letter_queue_id {
        // A queue can only name one that is there already, so dead letters never go round in a
        // circle.
        active(id).map_err(|_| Failure::resource_not_found("dead_letter_queue_id", "queue"))?;
    }
    let max_receives = new
        .max_receives
        .or_else(|| new.dead_letter_queue_id.as_ref().map(|_| MAX_RECEIVES_DEFAULT));
    let queue = QUEUES.insert(Record {
        name: new.name,
        visibility_timeout_seconds: new.visibility_timeout_seconds,
        max_receives,
        dead_letter_queue_id: new.dead_letter_queue_id,
        receipt_key: Some(fresh_key()?),
        state: ACTIVE.into(),
    })?;
    let created_at = queue.created_at;
    let Record { name, visibility_timeout_seconds, max_receives, dead_letter_queue_id, .. } =
        queue.body;
    let (depth, delayed, in_flight, oldest_age_seconds) = (0, 0, 0, None);
    let queue = Queue {
        id: queue.id,
        name,
        visibility_timeout_seconds,
        max_receives,
        dead_letter_queue_id,
        depth,
        delayed,
        in_flight,
        oldest_age_seconds,
        created_at,
    };
    Ok(Created(QueueAnswer { queue }))
}

pub(crate) fn list(Query(page): Query<Offset>) -> Result<QueueList> {
    let found = QUEUES.matching("state", ACTIVE).page(page)?;
    let queues = found.items.into_iter().map(standing).collect::<Result<_>>()?;
    Ok(QueueList { queues, has_more: found.has_more })
}

pub(crate) fn read(Path(ById { id }): Path<ById>) -> Result<QueueAnswer> {
    Ok(QueueAnswer { queue: standing(active(&id)?)? })
}

pub(crate) fn purge(Path(ById { id }): Path<ById>) -> Result<Done> {
    active(&id)?;
    empty(&id)?;
    Ok(Done::new())
}

pub(crate) fn delete(Path(ById { id }): Path<ById>) -> Result<Done> {
    let queue = QUEUES.get(&id)?.or_not_found("queue")?;
    if let Some(source) =
        QUEUES.matching("dead_letter_queue_id", &id).and("state", ACTIVE).first()?
    {
        return Err(Failure::conflict(format!("the queue {} dead-letters into it", source.id))
            .reason("dead_letter_queue_in_use"));
    }
    if queue.state == ACTIVE {
        QUEUES.replace(queue.at(), Record { state: DELETING.into(), ..queue.body })?;
        checkpoint()?;
    }
    empty(&id)?;
    QUEUES.remove(&id)?;
    Ok(Done::new())
}

/// Removes every message of the queue; a large one in several commits.
fn empty(id: &str) -> Result<()> {
    while MESSAGES.purge(id)? {
        checkpoint()?;
    }
    Ok(())
}

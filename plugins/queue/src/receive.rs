//! Receiving: what is due is handed out under a lease; what was received too often goes to the dead
//! letters instead.

use charter_sdk::leases::{Leased, extend, settle};
use charter_sdk::prelude::*;

use crate::queues::{Record, active, receipt_key};
use crate::receipt::Receipt;
use crate::send::{BODY_BYTES_MAX, DeadLetter, MESSAGES, Message};

/// Rounds of looking for a message behind ones that go to the dead letters. Each moves up to ten,
/// three rows a message, so that all of them stay within a unit's 1,000 rows.
const ROUNDS_MAX: u32 = 10;
/// Bytes of messages that one receive moves to the dead letters, of a unit's 4 MiB.
const MOVED_BYTES_MAX: usize = 3 * 1024 * 1024;
/// Bytes of a message at most: its body, and what is kept around it.
const MESSAGE_BYTES_MAX: usize = BODY_BYTES_MAX + 2 * 1024;
/// How long messages are leased at least where some may go to the dead letters: as long as a
/// receive runs at most, so that they are still held when it commits.
const LEASE_SECONDS_MIN: u32 = 30;

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Ask {
    /// How many messages at most.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 10))]
    max_messages: u32,
    /// How long they stay hidden; the queue's own time-out if absent.
    #[schemars(range(min = 0, max = 43_200))]
    visibility_timeout_seconds: Option<u32>,
    /// How long to wait for the first message.
    #[serde(default)]
    #[schemars(range(min = 0, max = 20))]
    wait_seconds: u32,
}

fn one() -> u32 {
    1
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Received {
    /// Empty if there was none in time.
    messages: Vec<Delivery>,
}

#[derive(Serialize, JsonSchema)]
struct Delivery {
    id: String,
    /// The proof by which a caller acknowledges, returns or extends this delivery.
    receipt: String,
    body: AnyJson,
    /// This time included.
    receive_count: u32,
    sent_at: Instant,
    /// The origin of a message in a dead-letter queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    dead_letter: Option<DeadLetter>,
}

pub(crate) fn receive(
    Path(ById { id }): Path<ById>,
    Body(ask): Body<Ask>,
    context: Context,
) -> Result<Wait<Received>> {
    let queue = active(&id)?;
    let seconds = ask.visibility_timeout_seconds.unwrap_or(queue.visibility_timeout_seconds);
    let Taken { messages, all } = take(&queue, ask.max_messages, now().plus_seconds(seconds))?;
    let patience = context.started_at.plus_seconds(ask.wait_seconds);
    // While dead letters are left to move there is no waiting: the commit of an answer moves them.
    if messages.is_empty() && all && now() < patience {
        return Ok(Wait::For { collection: MESSAGES.name(), until: patience });
    }
    let key = if messages.is_empty() { String::new() } else { receipt_key(&queue)? };
    let messages =
        messages.into_iter().map(|leased| deliver(leased, &key)).collect::<Result<_>>()?;
    Ok(Wait::Ready(Received { messages }))
}

struct Taken {
    messages: Vec<Leased<Message>>,
    /// Whether everything was looked at; else there may be more behind the dead letters.
    all: bool,
}

/// Up to so many messages, hidden until then; each one received too often makes room for another.
fn take(queue: &Doc<Record>, most: u32, until: Instant) -> Result<Taken> {
    let leased_until = match queue.max_receives {
        Some(_) => until.max(now().plus_seconds(LEASE_SECONDS_MIN)),
        None => until,
    };
    let mut messages = Vec::new();
    let (mut all, mut moved) = (false, 0);
    for _ in 0..ROUNDS_MAX {
        let missing = most - u32::try_from(messages.len()).unwrap_or(most);
        let movable = MOVED_BYTES_MAX.saturating_sub(moved) / MESSAGE_BYTES_MAX;
        let limit = missing.min(u32::try_from(movable).unwrap_or(missing));
        if limit == 0 {
            break;
        }
        let taken = MESSAGES.take(&queue.id, limit, leased_until)?;
        let (spent, fresh): (Vec<_>, Vec<_>) = taken
            .into_iter()
            .partition(|leased| queue.max_receives.is_some_and(|most| leased.count > most));
        messages.extend(fresh);
        if spent.is_empty() {
            all = true;
            break;
        }
        for leased in spent {
            moved += leased.doc.body.body.text().len();
            // This time it was not received.
            dead_letter(queue, leased.doc, leased.count - 1, &leased.token)?;
        }
    }
    if until < leased_until {
        messages.iter().try_for_each(|leased| extend(&leased.token, until))?;
    }
    Ok(Taken { messages, all })
}

/// Moves a message to the dead-letter queue; where there is none, or no longer, it is dropped.
pub(crate) fn dead_letter(
    queue: &Doc<Record>,
    message: Doc<Message>,
    receive_count: u32,
    token: &str,
) -> Result<()> {
    settle(token)?;
    let (message_id, sent_at) = (message.id, message.created_at);
    let target = queue.dead_letter_queue_id.as_deref().and_then(|id| active(id).ok());
    let moved = target.map(|target| {
        let from = DeadLetter {
            queue_id: queue.id.clone(),
            message_id: message_id.clone(),
            receive_count,
            sent_at,
        };
        MESSAGES.insert(Message {
            queue_id: target.id,
            body: message.body.body,
            dedupe: None,
            dead_letter: Some(from),
        })
    });
    let moved = moved.transpose()?;
    charter_sdk::events::emit(
        "queue.message.dead_lettered",
        &json!({
            "queue_id": queue.id,
            "message_id": message_id,
            "receive_count": receive_count,
            "dead_letter_queue_id": moved.as_ref().map(|moved| &moved.queue_id),
            "dead_letter_message_id": moved.as_ref().map(|moved| &moved.id),
        }),
    )
}

fn deliver(leased: Leased<Message>, key: &str) -> Result<Delivery> {
    let receipt = Receipt { message_id: &leased.doc.id, count: leased.count, token: &leased.token }
        .text(key)?;
    Ok(Delivery {
        receipt,
        receive_count: leased.count,
        sent_at: leased.doc.created_at,
        body: leased.doc.body.body,
        dead_letter: leased.doc.body.dead_letter,
        id: leased.doc.id,
    })
}

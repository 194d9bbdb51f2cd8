//! Messages and how they get into a queue.

use std::collections::BTreeMap;

use charter_sdk::prelude::*;

use crate::queues::active;

/// Messages are handed out within one queue. A dedupe key is claimed while its message lives: gone
/// with an ack or a purge.
pub(crate) const MESSAGES: Collection<Message> =
    Collection::new("messages").unique(&["dedupe"]).lease_by("queue_id");

/// Bytes of one message's body as JSON.
pub(crate) const BODY_BYTES_MAX: usize = 256 * 1024;
/// Bytes of a batch's bodies.
const BATCH_BYTES_MAX: usize = 1024 * 1024;

/// A message, as it is kept.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Message {
    pub(crate) queue_id: String,
    pub(crate) body: AnyJson,
    /// `<queue id>/<dedupe key>`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dedupe: Option<String>,
    /// The origin of a dead letter.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) dead_letter: Option<DeadLetter>,
}

/// The origin of a dead letter.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub(crate) struct DeadLetter {
    /// The queue that gave it up.
    pub(crate) queue_id: String,
    /// Its id there.
    pub(crate) message_id: String,
    /// How often it was received there.
    pub(crate) receive_count: u32,
    /// When it was sent there.
    pub(crate) sent_at: Instant,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Batch {
    /// Sent in this order, all or none.
    #[schemars(length(min = 1, max = 100))]
    messages: Vec<NewMessage>,
}

#[derive(Deserialize, JsonSchema)]
struct NewMessage {
    /// Any JSON.
    body: AnyJson,
    /// Not received before so many seconds have passed.
    #[serde(default)]
    #[schemars(range(min = 0, max = 43_200))]
    delay_seconds: u32,
    /// While a message with the same key lives in this queue, this one is not sent again.
    #[schemars(length(min = 1, max = 200))]
    dedupe_key: Option<String>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct SentList {
    /// In the order of the request.
    messages: Vec<Sent>,
}

#[derive(Serialize, JsonSchema)]
struct Sent {
    id: String,
    /// Whether the id is that of an earlier message with the same dedupe key.
    deduplicated: bool,
}

pub(crate) fn send(
    Path(ById { id }): Path<ById>,
    Body(batch): Body<Batch>,
) -> Result<Created<SentList>> {
    check_sizes(&batch)?;
    active(&id)?;
    let mut keys = BTreeMap::new();
    let messages = batch
        .messages
        .into_iter()
        .map(|new| send_one(&id, new, &mut keys))
        .collect::<Result<_>>()?;
    Ok(Created(SentList { messages }))
}

/// Sends one message, unless its key is known: from this batch, whose writes a look-up does not
/// see, or from before.
fn send_one(queue_id: &str, new: NewMessage, keys: &mut BTreeMap<String, String>) -> Result<Sent> {
    let dedupe = new.dedupe_key.map(|key| format!("{queue_id}/{key}"));
    if let Some(dedupe) = &dedupe {
        let earlier = match keys.get(dedupe) {
            Some(id) => Some(id.clone()),
            None => MESSAGES.lookup("dedupe", dedupe)?.map(|message| message.id),
        };
        if let Some(id) = earlier {
            return Ok(Sent { id, deduplicated: true });
        }
    }
    let message = Message {
        queue_id: queue_id.into(),
        body: new.body,
        dedupe: dedupe.clone(),
        dead_letter: None,
    };
    let sent = match new.delay_seconds {
        0 => MESSAGES.insert(message)?,
        seconds => MESSAGES.insert_due(message, now().plus_seconds(seconds))?,
    };
    dedupe.map(|dedupe| keys.insert(dedupe, sent.id.clone()));
    Ok(Sent { id: sent.id, deduplicated: false })
}

fn check_sizes(batch: &Batch) -> Result<()> {
    let sizes = batch.messages.iter().map(|message| message.body.text().len());
    if let Some(at) = sizes.clone().position(|bytes| bytes > BODY_BYTES_MAX) {
        return Err(Failure::too_large(
            &format!("messages.{at}.body"),
            "a message's body has at most 256 KiB",
        ));
    }
    if sizes.sum::<usize>() > BATCH_BYTES_MAX {
        return Err(Failure::too_large("messages", "a batch has at most 1 MiB"));
    }
    Ok(())
}

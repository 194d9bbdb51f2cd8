//! Receipts, and what they are good for: ack, nack, extend.
//!
//! A receipt is `<message id>.<receive count>.<lease token>.<seal>`. The seal is this queue's word
//! that the token is the lease of that message at that delivery; the host checks that the lease
//! still holds. A receipt that does not hold is 409, whatever the reason.

use charter_sdk::leases;
use charter_sdk::prelude::*;

use crate::queues::{Record, active};
use crate::receive::dead_letter;
use crate::seal::{open, seal};
use crate::send::{MESSAGES, Message};

/// A receipt's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Receipt<'a> {
    pub(crate) message_id: &'a str,
    pub(crate) count: u32,
    pub(crate) token: &'a str,
}

impl<'a> Receipt<'a> {
    /// The receipt as a caller holds it.
    pub(crate) fn text(&self, key: &str) -> Result<String> {
        seal(key, &format!("{}.{}.{}", self.message_id, self.count, self.token))
    }
    /// Reads a receipt that was sealed with this key.
    fn read(text: &'a str, key: &str) -> Option<Self> {
        let (message_id, rest) = open(key, text)?.split_once('.')?;
        let (count, token) = rest.split_once('.')?;
        Some(Self { message_id, count: count.parse().ok()?, token })
    }
}

/// A message of a queue.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct ByMessage {
    /// The queue's id.
    #[schemars(length(min = 1, max = 200))]
    id: String,
    /// The message's id.
    #[schemars(length(min = 1, max = 200))]
    message_id: String,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Ack {
    /// As received.
    #[schemars(length(min = 1, max = 2_000))]
    receipt: String,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Nack {
    /// As received.
    #[schemars(length(min = 1, max = 2_000))]
    receipt: String,
    /// Not received again before so many seconds have passed.
    #[serde(default)]
    #[schemars(range(min = 0, max = 43_200))]
    delay_seconds: u32,
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct Extend {
    /// As received.
    #[schemars(length(min = 1, max = 2_000))]
    receipt: String,
    /// How long it stays hidden, from now; the queue's own time-out if absent.
    #[schemars(range(min = 0, max = 43_200))]
    visibility_timeout_seconds: Option<u32>,
}

#[derive(Serialize, JsonSchema)]
pub(crate) struct Extended {
    /// Always true.
    ok: bool,
    /// When the message comes back, unless it is acknowledged before.
    visible_at: Instant,
}

fn receipt_expired() -> Failure {
    Failure::conflict(
        "the receipt has expired: the message was acknowledged, given back, or is another's by now",
    )
    .reason("receipt_expired")
    .param("receipt")
}

/// A lease that no longer holds, or a token that never did, is an expired receipt.
fn or_expired(failure: Failure) -> Failure {
    if failure.is("state_conflict") || failure.is("invalid_input") {
        receipt_expired()
    } else {
        failure
    }
}

/// The queue, the message and the token that a receipt claims to hold.
fn find_held<'a>(
    path: &ByMessage,
    receipt: &'a str,
) -> Result<(Doc<Record>, Doc<Message>, Receipt<'a>)> {
    let queue = active(&path.id)?;
    let genuine = queue.receipt_key.as_deref().and_then(|key| Receipt::read(receipt, key));
    let receipt = genuine.filter(|receipt| receipt.message_id == path.message_id);
    let message = MESSAGES.get(&path.message_id)?;
    if message.as_ref().is_some_and(|message| message.queue_id != queue.id) {
        return Err(Failure::not_found("message"));
    }
    match (message, receipt) {
        (Some(message), Some(receipt)) => Ok((queue, message, receipt)),
        (None, None) => Err(Failure::not_found("message")),
        // A message that is gone, with a receipt that was for it: acknowledged already. Or one that
        // is there, with a receipt that this queue did not give out for it.
        _ => Err(receipt_expired()),
    }
}

pub(crate) fn ack(Path(path): Path<ByMessage>, Body(body): Body<Ack>) -> Result<Done> {
    let (_, _, receipt) = find_held(&path, &body.receipt)?;
    leases::settle(receipt.token).map_err(or_expired)?;
    Ok(Done::new())
}

pub(crate) fn nack(Path(path): Path<ByMessage>, Body(body): Body<Nack>) -> Result<Done> {
    let (queue, message, receipt) = find_held(&path, &body.receipt)?;
    if queue.max_receives.is_some_and(|most| receipt.count >= most) {
        dead_letter(&queue, message, receipt.count, receipt.token).map_err(or_expired)?;
    } else {
        leases::release(receipt.token, now().plus_seconds(body.delay_seconds))
            .map_err(or_expired)?;
    }
    Ok(Done::new())
}

pub(crate) fn extend(Path(path): Path<ByMessage>, Body(body): Body<Extend>) -> Result<Extended> {
    let (queue, _, receipt) = find_held(&path, &body.receipt)?;
    let seconds = body.visibility_timeout_seconds.unwrap_or(queue.visibility_timeout_seconds);
    let visible_at = now().plus_seconds(seconds);
    leases::extend(receipt.token, visible_at).map_err(or_expired)?;
    Ok(Extended { ok: true, visible_at })
}

#[cfg(test)]
mod tests {
    use super::Receipt;
    use crate::seal::seal;

    #[test]
    fn a_receipt_reads_back() {
        let receipt = Receipt { message_id: "m", count: 3, token: "a.b" };
        assert_eq!(Receipt::read(&receipt.text("key").unwrap(), "key"), Some(receipt));
        for text in ["", "m", "m.3", "m.x.t"] {
            assert_eq!(Receipt::read(text, "key"), None, "{text}");
            assert_eq!(Receipt::read(&seal("key", text).unwrap(), "key"), None, "{text}");
        }
    }
}

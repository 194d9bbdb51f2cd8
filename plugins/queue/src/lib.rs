//! Message queues of a profile: send with delay and dedupe key, receive under a lease with long
//! poll, acknowledge, dead-letter, purge.
//!
//! This file is the declaration. `queues` holds the queue itself, `send`, `receive` and `receipt`
//! what happens to messages, `seal` what makes a receipt genuine. Handing out is the host's lease,
//! so no message is ever in two hands; nothing here keeps time or locks.

mod queues;
mod receipt;
mod receive;
mod seal;
mod send;

#[cfg(test)]
mod tests;

use charter_sdk::prelude::*;

/// The primitive.
pub fn primitive() -> Primitive {
    Primitive::new("queue", env!("CARGO_PKG_VERSION"))
        .title("Queues")
        .summary("Message queues with delays, visibility time-outs, dedupe keys and dead letters.")
        .description(include_str!("queue.md"))
        .collection(&queues::QUEUES)
        .collection(&send::MESSAGES)
        .event("queue.message.dead_lettered", "A message was received too often and left its queue.")
        .operation(post("queue.create", "/queue", queues::create).summary("Create a queue"))
        .operation(get("queue.list", "/queue", queues::list).summary("List queues"))
        .operation(get("queue.read", "/queue/{id}", queues::read).summary("Read a queue with its depth and oldest message's age"))
        .operation(
            delete("queue.delete", "/queue/{id}", queues::delete)
                .summary("Delete a queue and its messages")
                .description("Refused with 409 `state_conflict` while another queue dead-letters into it.")
                .deadline_ms(60_000),
        )
        .operation(
            post("queue.send", "/queue/{id}/messages", send::send)
                .summary("Send up to 100 messages, all or none")
                .description(
                    "A body may have 256 KiB as JSON, a batch 1 MiB. While a message with the same `dedupe_key` lives in the queue, \
                     sending it again answers that message's id and sends nothing.",
                ),
        )
        .operation(
            post("queue.receive", "/queue/{id}/receive", receive::receive)
                .summary("Receive up to 10 messages, waiting up to 20 seconds")
                .description(
                    "A received message is hidden until it is acknowledged or its visibility time-out passes; then it comes again. \
                     After `max_receives` it moves to the dead-letter queue, or is dropped where there is none.",
                )
                .deadline_ms(30_000),
        )
        .operation(
            post("queue.ack", "/queue/{id}/messages/{message_id}/ack", receipt::ack)
                .summary("Acknowledge a message: it is done and gone")
                .description("A stale or forged receipt is 409 `state_conflict`, `reason: receipt_expired`."),
        )
        .operation(
            post("queue.nack", "/queue/{id}/messages/{message_id}/nack", receipt::nack)
                .summary("Give a message back, at once or after a delay")
                .description("One that was received `max_receives` times moves to the dead-letter queue right away."),
        )
        .operation(
            post("queue.extend", "/queue/{id}/messages/{message_id}/extend", receipt::extend)
                .summary("Keep a message hidden for longer, counted from now"),
        )
        .operation(
            delete("queue.purge", "/queue/{id}/messages", queues::purge)
                .summary("Remove every message, those in flight too")
                .deadline_ms(60_000),
        )
}

charter_sdk::export!(primitive);

//! Waits in which a thread of this process works for who waits: they keep a core busy, as if the
//! waiting task did.

use std::cell::Cell;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};

thread_local! {
    /// Whether the poll that runs on this thread, or the last one that did, came to such a wait.
    static IS_AT_WORK: Cell<bool> = const { Cell::new(false) };
}

/// Waits for what another thread of this process is at.
pub async fn wait<T>(work: impl Future<Output = T>) -> T {
    let mut work = pin!(work);
    std::future::poll_fn(|cx| {
        let polled = work.as_mut().poll(cx);
        if polled.is_pending() {
            IS_AT_WORK.set(true);
        }
        polled
    })
    .await
}

/// Polls a future, and tells whether it waits now while a thread of this process works for it: at a
/// long read of the embedded database.
pub fn poll<F: Future>(future: Pin<&mut F>, cx: &mut Context<'_>) -> (Poll<F::Output>, bool) {
    IS_AT_WORK.set(false);
    let polled = future.poll(cx);
    (polled, IS_AT_WORK.get())
}

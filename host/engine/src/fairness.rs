//! Who may burn CPU: guests past their first few epochs take turns, one a tenant, on all cores but
//! one.
//!
//! Knows nothing of wasmtime. A spinning guest slows only itself and its own tenant's other
//! spinners: everybody else runs on the core that is left and yields within an epoch. A turn is
//! never kept across a wait: it ends after two epochs by itself.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

/// Epochs after which a turn ends without being handed back: its guest waits in a host call.
const TURN_EPOCHS_MAX: u64 = 2;

/// The turns of this process.
#[derive(Debug, Default)]
pub(crate) struct Fairness {
    inner: Mutex<Turns>,
}

#[derive(Debug, Default)]
struct Turns {
    epoch: u64,
    places: usize,
    held: Vec<Held>,
    order: VecDeque<Arc<str>>,
    waiting: HashMap<Arc<str>, VecDeque<Waiter>>,
}

#[derive(Debug)]
struct Held {
    tenant: Arc<str>,
    call: u64,
    since: u64,
}

#[derive(Debug)]
struct Waiter {
    call: u64,
    granted: oneshot::Sender<()>,
}

impl Fairness {
    /// Turns for a machine with this many cores.
    pub(crate) fn new(cores: usize) -> Self {
        Self {
            inner: Mutex::new(Turns { places: cores.saturating_sub(1).max(1), ..Turns::default() }),
        }
    }

    fn turns(&self) -> MutexGuard<'_, Turns> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the call's turn, if it has one, and waits for the next. Dropping the future gives the
    /// place in the queue up.
    pub(crate) fn turn(
        self: &Arc<Self>,
        tenant: &Arc<str>,
        call: u64,
    ) -> impl Future<Output = ()> + Send + use<> {
        let receiver = {
            let mut turns = self.turns();
            turns.release(call);
            let (granted, receiver) = oneshot::channel();
            if !turns.waiting.contains_key(tenant) {
                turns.order.push_back(tenant.clone());
            }
            turns.waiting.entry(tenant.clone()).or_default().push_back(Waiter { call, granted });
            turns.grant();
            receiver
        };
        async move {
            // The sender is dropped only with the engine itself.
            let _ = receiver.await;
        }
    }

    /// Ends the call's turn for good.
    pub(crate) fn leave(&self, call: u64) {
        let mut turns = self.turns();
        if turns.release(call) {
            turns.grant();
        }
    }

    /// One epoch has passed.
    pub(crate) fn tick(&self) {
        let mut turns = self.turns();
        turns.epoch += 1;
        let epoch = turns.epoch;
        turns.held.retain(|held| epoch - held.since <= TURN_EPOCHS_MAX);
        turns.grant();
    }
}

impl Turns {
    fn release(&mut self, call: u64) -> bool {
        let before = self.held.len();
        self.held.retain(|held| held.call != call);
        self.held.len() != before
    }

    fn grant(&mut self) {
        let mut skipped = 0;
        while self.held.len() < self.places && skipped < self.order.len() {
            let Some(tenant) = self.order.pop_front() else { return };
            if self.held.iter().any(|held| held.tenant == tenant) {
                self.order.push_back(tenant);
                skipped += 1;
                continue;
            }
            if let Some(queue) = self.waiting.get_mut(&tenant) {
                while let Some(waiter) = queue.pop_front() {
                    if waiter.granted.send(()).is_ok() {
                        self.held.push(Held {
                            tenant: tenant.clone(),
                            call: waiter.call,
                            since: self.epoch,
                        });
                        break;
                    }
                }
                if queue.is_empty() {
                    self.waiting.remove(&tenant);
                } else {
                    self.order.push_back(tenant);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tenant(name: &str) -> Arc<str> {
        Arc::from(name)
    }

    #[tokio::test]
    async fn tenants_take_turns_however_many_calls_one_has() {
        let fairness = Arc::new(Fairness::new(2));
        let (hog, other) = (tenant("hog"), tenant("other"));
        fairness.turn(&hog, 1).await;
        let second = fairness.turn(&hog, 2);
        let third = fairness.turn(&hog, 3);
        let guest = fairness.turn(&other, 4);
        fairness.leave(1);
        second.await;
        fairness.leave(2);
        guest.await;
        fairness.leave(4);
        third.await;
    }

    #[tokio::test]
    async fn a_turn_that_is_not_handed_back_ends_by_itself() {
        let fairness = Arc::new(Fairness::new(1));
        fairness.turn(&tenant("a"), 1).await;
        let waiting = fairness.turn(&tenant("b"), 2);
        for _ in 0..=TURN_EPOCHS_MAX {
            fairness.tick();
        }
        waiting.await;
    }

    #[tokio::test]
    async fn a_waiter_that_left_does_not_take_a_turn() {
        let fairness = Arc::new(Fairness::new(1));
        fairness.turn(&tenant("a"), 1).await;
        drop(fairness.turn(&tenant("b"), 2));
        let third = fairness.turn(&tenant("c"), 3);
        fairness.leave(1);
        third.await;
    }
}

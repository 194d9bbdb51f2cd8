//! First-come queues for hot rows.
//!
//! After a conflict on a row, those who want it again stand in line, and so does every validated
//! read of it while the line is not empty. Correctness does not rest on it (the commit validates in
//! any case), so waiting is bounded and the lines live in this process only.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use charter_kernel::unit::Key;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Rows that can be hot at once; a conflict on one more goes unqueued.
const HOT_MAX: usize = 10_000;
/// Longest wait for one's turn; after it the optimistic way is taken.
const TURN_MS_MAX: u64 = 5_000;

/// The lines.
#[derive(Debug, Default)]
pub(crate) struct Tickets {
    lines: Mutex<BTreeMap<Key, Line>>,
}

#[derive(Debug)]
struct Line {
    turn: Arc<Semaphore>,
    /// Those in line and the one whose turn it is.
    people: usize,
}

/// Places in the lines of some rows; given up when dropped.
#[must_use]
pub struct Ticket {
    tickets: Arc<Tickets>,
    /// Fields drop in order: the turns pass on before the lines are left.
    turns: Vec<OwnedSemaphorePermit>,
    keys: Vec<Key>,
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").field("keys", &self.keys.len()).finish()
    }
}

impl Tickets {
    /// Joins the rows' lines, in key order so that nobody waits in a circle, and waits for the turn
    /// in each.
    pub(crate) async fn take(self: &Arc<Self>, keys: &[Key]) -> Ticket {
        let mut keys = keys.to_vec();
        keys.sort();
        keys.dedup();
        let mut ticket = Ticket { tickets: self.clone(), turns: Vec::new(), keys: Vec::new() };
        let wait = Duration::from_millis(TURN_MS_MAX);
        let all = async {
            for key in keys {
                let Some(turn) = self.join(&key, true) else { continue };
                ticket.keys.push(key);
                if let Ok(permit) = turn.acquire_owned().await {
                    ticket.turns.push(permit);
                }
            }
        };
        if tokio::time::timeout(wait, all).await.is_err() {
            tracing::debug!("a turn at a hot row did not come in time");
        }
        ticket
    }

    /// Joins the row's line if there is one.
    pub(crate) async fn take_if_hot(self: &Arc<Self>, key: &Key) -> Option<Ticket> {
        let turn = self.join(key, false)?;
        let mut ticket =
            Ticket { tickets: self.clone(), turns: Vec::new(), keys: vec![key.clone()] };
        if let Ok(Ok(permit)) =
            tokio::time::timeout(Duration::from_millis(TURN_MS_MAX), turn.acquire_owned()).await
        {
            ticket.turns.push(permit);
        }
        Some(ticket)
    }

    fn join(&self, key: &Key, open: bool) -> Option<Arc<Semaphore>> {
        let mut lines = self.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(line) = lines.get_mut(key) {
            line.people += 1;
            return Some(line.turn.clone());
        }
        if !open || lines.len() >= HOT_MAX {
            return None;
        }
        let turn = Arc::new(Semaphore::new(1));
        lines.insert(key.clone(), Line { turn: turn.clone(), people: 1 });
        Some(turn)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.turns.clear();
        let mut lines = self.tickets.lines.lock().unwrap_or_else(PoisonError::into_inner);
        for key in &self.keys {
            if let Some(line) = lines.get_mut(key) {
                line.people -= 1;
                if line.people == 0 {
                    lines.remove(key);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use charter_kernel::unit::{Reach, Space};

    use super::*;

    #[tokio::test]
    async fn turns_come_in_order_and_a_line_that_is_empty_is_gone() {
        let tickets = Arc::new(Tickets::default());
        let key = Key::new(&Reach::deployment(), &Space::host("x"), "a");
        assert!(
            tickets.take_if_hot(&key).await.is_none(),
            "nobody waits for a row that is not hot"
        );
        let first = tickets.take(std::slice::from_ref(&key)).await;
        let (sender, mut order) = tokio::sync::mpsc::unbounded_channel();
        let mut waiting = Vec::new();
        for n in 0..8 {
            let (line, hot, sender) = (tickets.clone(), key.clone(), sender.clone());
            waiting.push(tokio::spawn(async move {
                let turn = line.take_if_hot(&hot).await;
                assert!(turn.is_some());
                sender.send(n).expect("the receiver lives");
            }));
            while tickets.lines.lock().expect("no panic").get(&key).map(|line| line.people)
                != Some(n + 2)
            {
                tokio::task::yield_now().await;
            }
        }
        assert!(order.try_recv().is_err(), "a turn came before the first was over");
        drop(first);
        for n in 0..8 {
            assert_eq!(order.recv().await, Some(n));
        }
        for task in waiting {
            task.await.expect("no panic");
        }
        assert!(tickets.lines.lock().expect("no panic").is_empty());
    }
}

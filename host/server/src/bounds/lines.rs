//! A line for each organization: so many of its own run at once, and the rest wait behind them, whatever
//! others do. In lines that its holders share, none of them takes all of its turns.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use charter_kernel::refusal::Refusal;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long a turn is waited for.
const WAIT: Duration = Duration::from_secs(10);

/// The line of each organization that has something waiting or running.
type Owners = Mutex<HashMap<String, Arc<Semaphore>>>;

/// The lines.
#[derive(Debug)]
pub struct Lines {
    width: usize,
    owners: Arc<Owners>,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub struct Turn {
    _first: OwnedSemaphorePermit,
    _line: Line,
}

impl Lines {
    /// Lines in which so many run at once.
    pub fn new(width: usize) -> Self {
        Self { width, owners: Arc::default() }
    }

    /// A turn of this one's, if nobody is before it.
    fn take(&self, owner: &str) -> Option<Turn> {
        let line = Line::of(self, owner);
        let first = line.line.clone().try_acquire_owned().ok()?;
        Some(Turn { _first: first, _line: line })
    }

    /// A turn of this one's, however late.
    pub(super) async fn turn(&self, owner: &str) -> Option<Turn> {
        let line = Line::of(self, owner);
        let first = line.line.clone().acquire_owned().await.ok()?;
        Some(Turn { _first: first, _line: line })
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.owners).is_empty()
    }
}

/// The lines of organizations, each with a line for each holder of credentials before it.
#[derive(Debug)]
pub struct SharedLines {
    holders: Lines,
    organizations: Lines,
}

/// A turn of an organization's, which is a holder's too.
#[derive(Debug)]
pub struct SharedTurn {
    _of_holder: Turn,
    _of_organization: Turn,
}

impl SharedLines {
    /// Lines in which so many of an organization run at once, two at least, and one less of a holder.
    pub fn new(width: usize) -> Self {
        let width = width.max(2);
        Self { holders: Lines::new(width - 1), organizations: Lines::new(width) }
    }

    /// A turn, if nobody is before it. No other organization has a holder of this name.
    pub fn take(&self, organization: &str, holder: &str) -> Option<SharedTurn> {
        let of_holder = self.holders.take(holder)?;
        let of_organization = self.organizations.take(organization)?;
        Some(SharedTurn { _of_holder: of_holder, _of_organization: of_organization })
    }

    /// Waits for a turn.
    ///
    /// # Errors
    /// If it does not come in time.
    pub async fn wait(&self, organization: &str, holder: &str) -> Result<SharedTurn, Refusal> {
        in_time(async {
            let of_holder = self.holders.turn(holder).await?;
            let of_organization = self.organizations.turn(organization).await?;
            Some(SharedTurn { _of_holder: of_holder, _of_organization: of_organization })
        })
        .await
    }
}

/// A turn that is waited for, if it comes in time.
///
/// # Errors
/// 503 otherwise.
pub(super) async fn in_time<T>(turn: impl Future<Output = Option<T>>) -> Result<T, Refusal> {
    let turn = tokio::time::timeout(WAIT, turn).await.ok().flatten();
    turn.ok_or_else(|| Refusal::overloaded(1))
}

/// A place in an organization's line, which is forgotten once nobody stands in it.
#[derive(Debug)]
struct Line {
    owners: Arc<Owners>,
    owner: String,
    line: Arc<Semaphore>,
}

impl Line {
    fn of(lines: &Lines, owner: &str) -> Self {
        let line = lock(&lines.owners)
            .entry(owner.to_owned())
            .or_insert_with(|| Arc::new(Semaphore::new(lines.width)))
            .clone();
        Self { owners: lines.owners.clone(), owner: owner.to_owned(), line }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let mut owners = lock(&self.owners);
        // The map's, and this one's own.
        if Arc::strong_count(&self.line) <= 2 {
            owners.remove(&self.owner);
        }
    }
}

fn lock(owners: &Owners) -> MutexGuard<'_, HashMap<String, Arc<Semaphore>>> {
    owners.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_organization_waits_for_its_own_and_for_nobody_else() {
        let lines = SharedLines::new(2);
        let held = [lines.take("o", "a").unwrap(), lines.wait("o", "b").await.unwrap()];
        assert!(lines.take("o", "c").is_none());
        let mut third = Box::pin(lines.wait("o", "c"));
        assert!(futures::poll!(&mut third).is_pending());
        assert!(lines.wait("p", "d").await.is_ok());
        drop(held);
        drop(third.await.unwrap());
        assert!(lines.holders.is_empty() && lines.organizations.is_empty());
    }

    #[tokio::test]
    async fn a_holder_with_many_waits_for_its_own_and_leaves_the_others_a_turn() {
        let lines = SharedLines::new(2);
        let held = lines.take("o", "hog").unwrap();
        let mut again = Box::pin(lines.wait("o", "hog"));
        assert!(futures::poll!(&mut again).is_pending());
        assert!(lines.take("o", "other").is_some());
        drop(held);
        assert!(again.await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_does_not_come_is_refused_and_leaves_nothing() {
        let lines = SharedLines::new(2);
        let held = lines.take("o", "hog").unwrap();
        let refusal = lines.wait("o", "hog").await.unwrap_err();
        assert_eq!(refusal.retry_after_seconds, Some(1));
        drop(held);
        assert!(lines.holders.is_empty() && lines.organizations.is_empty());
    }
}

//! A line for each organization: so many of its own run at once, and the rest wait behind them, whatever
//! others do. Those who share what an organization has take turns in it, a project's users after others.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use charter_kernel::refusal::Refusal;
use charter_kernel::scope::Sharer;
use charter_store::{SharedLobby, SharedSeat};

use super::lock;

/// How long a turn is waited for.
const WAIT: Duration = Duration::from_secs(10);

/// The line of each organization that has something waiting or running.
type Organizations = Mutex<HashMap<String, Arc<SharedLobby>>>;

/// The lines.
#[derive(Debug)]
pub struct Lines {
    width: usize,
    organizations: Arc<Organizations>,
}

/// A turn, until it is dropped.
#[derive(Debug)]
pub struct Turn {
    _seat: SharedSeat,
    _line: Line,
}

impl Lines {
    /// Lines in which so many run at once.
    pub fn new(width: usize) -> Self {
        Self { width, organizations: Arc::default() }
    }

    /// A turn, if nobody is before it.
    pub fn take(&self, organization: &str, by: &Sharer) -> Option<Turn> {
        let line = Line::of(self, organization);
        let seat = line.places.try_enter(by)?;
        Some(Turn { _seat: seat, _line: line })
    }

    /// Waits for a turn.
    ///
    /// # Errors
    /// If it does not come in time.
    pub async fn wait(&self, organization: &str, by: &Sharer) -> Result<Turn, Refusal> {
        in_time(self.turn(organization, by)).await
    }

    /// A turn, however late.
    pub(super) async fn turn(&self, organization: &str, by: &Sharer) -> Turn {
        let line = Line::of(self, organization);
        let seat = line.places.seat(by).await;
        Turn { _seat: seat, _line: line }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        lock(&self.organizations).is_empty()
    }
}

/// A turn that is waited for, if it comes in time.
///
/// # Errors
/// 503 otherwise.
pub(super) async fn in_time<T>(turn: impl Future<Output = T>) -> Result<T, Refusal> {
    tokio::time::timeout(WAIT, turn).await.map_err(|_| Refusal::overloaded(1))
}

/// A place in an organization's line, which is forgotten once nobody stands in it.
#[derive(Debug)]
struct Line {
    organizations: Arc<Organizations>,
    organization: String,
    places: Arc<SharedLobby>,
}

impl Line {
    fn of(lines: &Lines, organization: &str) -> Self {
        let places = lock(&lines.organizations)
            .entry(organization.to_owned())
            .or_insert_with(|| SharedLobby::with_shares(lines.width))
            .clone();
        let organizations = lines.organizations.clone();
        Self { organizations, organization: organization.to_owned(), places }
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let mut organizations = lock(&self.organizations);
        // The map's, this one's own, and its turn's or its wait's, which has ended by now.
        if Arc::strong_count(&self.places) <= 2 {
            organizations.remove(&self.organization);
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// A person's key.
    pub(crate) fn person(name: &str) -> Sharer {
        Sharer { within: None, name: format!("key {name}").into() }
    }

    /// A user's key.
    pub(crate) fn agent(project: &str, user: &str) -> Sharer {
        Sharer { within: Some(project.into()), name: user.into() }
    }

    #[tokio::test]
    async fn an_organization_waits_for_its_own_and_for_nobody_else() {
        let lines = Lines::new(2);
        let held =
            [lines.take("o", &person("a")).unwrap(), lines.wait("o", &person("b")).await.unwrap()];
        assert!(lines.take("o", &person("c")).is_none());
        let by = person("c");
        let mut third = Box::pin(lines.wait("o", &by));
        assert!(futures::poll!(&mut third).is_pending());
        assert!(lines.wait("p", &person("d")).await.is_ok());
        drop(held);
        drop(third.await.unwrap());
        assert!(lines.is_empty());
    }

    #[tokio::test]
    async fn one_with_many_waits_for_its_own_and_leaves_the_others_a_turn() {
        let lines = Lines::new(2);
        let hog = person("hog");
        let held = lines.take("o", &hog).unwrap();
        let mut again = Box::pin(lines.wait("o", &hog));
        assert!(futures::poll!(&mut again).is_pending());
        assert!(lines.take("o", &person("other")).is_some());
        drop(held);
        assert!(again.await.is_ok());
    }

    #[tokio::test]
    async fn the_users_of_one_project_leave_a_turn_to_who_governs_them() {
        let lines = Lines::new(2);
        let agents: Vec<_> = (0..24).map(|n| agent("project", &format!("user {n}"))).collect();
        let _held = lines.take("o", &agents[0]).unwrap();
        let mut waiting: Vec<_> = agents.iter().map(|by| Box::pin(lines.wait("o", by))).collect();
        for wait in &mut waiting {
            assert!(futures::poll!(wait).is_pending());
        }
        assert!(lines.take("o", &person("owner")).is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn a_turn_that_does_not_come_is_refused_and_leaves_nothing() {
        let lines = Lines::new(1);
        let held = lines.take("o", &person("hog")).unwrap();
        let refusal = lines.wait("o", &person("hog")).await.unwrap_err();
        assert_eq!(refusal.retry_after_seconds, Some(1));
        drop(held);
        assert!(lines.is_empty());
    }
}

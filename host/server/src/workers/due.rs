//! Rows that fall due: taken under leases, so that one replica in the deployment works on each at a
//! time, and one that a crash leaves behind is taken up again when its lease has ended.
//!
//! Knows nothing of what a row says or of what is done with it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use charter_kernel::unit::{Key, Space, Take, Taken, Unit, Write};
use charter_store::CommitError;
use tokio::task::{Id, JoinSet};

use crate::app::App;

/// How often what should not be missed is looked for, although something wakes it.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How often within a lease a host says that it is still at it.
const HEARD_PER_LEASE: u64 = 4;

/// How long a row beyond its organization's share is put off: behind what others wait for.
const PUT_OFF_MS: i64 = 1_000;

/// How many rows are worked on side by side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Places {
    /// In all.
    pub(super) all: usize,
    /// Of one organization.
    pub(super) each: usize,
}

/// The organizations whose rows are worked on now.
#[derive(Debug)]
struct Shares {
    places: Places,
    at_work: HashMap<Id, String>,
}

/// Due rows of one kind, across all tenants, and how they are taken.
pub(super) struct Due {
    /// The space of the rows.
    pub(super) space: Space,
    /// The group among the space's leased rows.
    pub(super) group: String,
    /// How long the work on one may take before another may take it up.
    pub(super) lease_ms: i64,
}

impl Due {
    /// Whether any is due now. One that cannot be asked after is not: the next look finds it.
    pub(super) async fn is_any_due(&self, app: &App) -> bool {
        let due = app.store.next_due(None, &self.space, &self.group).await.ok().flatten();
        due.is_some_and(|due| due <= app.clock.now())
    }

    /// Takes what is due, at most `count`, each with a token of its own.
    pub(super) async fn take(&self, app: &App, count: usize) -> Result<Vec<Taken>, CommitError> {
        let take = Take {
            reach: None,
            space: self.space.clone(),
            group: self.group.clone(),
            until: app.clock.now().plus_ms(self.lease_ms),
            tokens: (0..count).map(|_| uuid::Uuid::now_v7().to_string()).collect(),
        };
        let applied = app.store.commit(Unit { takes: vec![take], ..Unit::default() }).await?;
        Ok(applied.taken.into_iter().flatten().collect())
    }

    /// Goes on saying that this host works on a row, until another does. Never ends by itself.
    pub(super) async fn at_work(&self, app: &App, key: &Key, token: &str) {
        let heard_every = Duration::from_millis(
            u64::try_from(self.lease_ms).unwrap_or_default() / HEARD_PER_LEASE,
        );
        loop {
            tokio::time::sleep(heard_every).await;
            let until = app.store.now().plus_ms(self.lease_ms);
            let write = Write::Extend { key: key.clone(), token: token.to_owned(), until };
            let said =
                app.store.commit_settling(Unit { writes: vec![write], ..Unit::default() }).await;
            if said.is_err_and(|error| error.refusal().is_some()) {
                return;
            }
        }
    }

    /// Looks every now and then, takes at most `count` at once, and works on one after the other.
    /// Never ends by itself.
    pub(super) async fn each<W: Future<Output = ()>>(
        &self,
        app: &Arc<App>,
        count: usize,
        work: impl Fn(Taken) -> W,
    ) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            if !self.is_any_due(app).await {
                continue;
            }
            match self.take(app, count).await {
                Ok(taken) => {
                    for taken in taken {
                        work(taken).await;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, space = self.space.as_str(), "what is due could not be taken")
                }
            }
        }
    }

    /// Looks every now and then, and works on what is due side by side, as many as there are
    /// `places` for. Never ends by itself; what it works on ends with it.
    pub(super) async fn side_by_side<W: Future<Output = ()> + Send + 'static>(
        &self,
        app: &Arc<App>,
        places: Places,
        work: impl Fn(Taken) -> W,
    ) {
        let (mut shares, mut running) = (Shares::new(places), JoinSet::new());
        loop {
            if shares.free() > 0 && self.is_any_due(app).await {
                match self.take(app, shares.free()).await {
                    Ok(taken) => {
                        for taken in taken {
                            // A row without an organization is the deployment's own.
                            let owner = taken.key.reach.as_str().to_owned();
                            if !shares.admits(&owner) {
                                self.put_off(app, taken).await;
                                continue;
                            }
                            shares.enter(running.spawn(work(taken)).id(), owner);
                        }
                    }
                    Err(error) => {
                        tracing::warn!(%error, space = self.space.as_str(), "what is due could not be taken");
                    }
                }
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK_EVERY) => {}
                Some(ended) = running.join_next_with_id() => {
                    shares.leave(ended.map_or_else(|error| error.id(), |(id, ())| id));
                }
            }
        }
    }

    /// Gives a row back that this host does not work on yet.
    async fn put_off(&self, app: &App, taken: Taken) {
        let (key, token) = (taken.key, taken.token);
        let due_at = app.store.now().plus_ms(PUT_OFF_MS);
        let write = Write::Release { key, token, due_at, undo: true };
        let unit = Unit { writes: vec![write], ..Unit::default() };
        if let Err(error) = app.store.commit_settling(unit).await {
            tracing::debug!(%error, space = self.space.as_str(), "a row was not given back; its lease will end");
        }
    }
}

impl Shares {
    fn new(places: Places) -> Self {
        Self { places, at_work: HashMap::new() }
    }

    fn free(&self) -> usize {
        self.places.all.saturating_sub(self.at_work.len())
    }

    /// Whether one more row of this owner may be worked on.
    fn admits(&self, owner: &str) -> bool {
        let own = self.at_work.values().filter(|other| *other == owner).count();
        self.free() > 0 && own < self.places.each
    }

    fn enter(&mut self, task: Id, owner: String) {
        self.at_work.insert(task, owner);
    }

    fn leave(&mut self, task: Id) {
        self.at_work.remove(&task);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_owner_never_has_all_places() {
        let mut shares = Shares::new(Places { all: 3, each: 2 });
        let mut tasks = JoinSet::new();
        let mut next = || tasks.spawn(async {}).id();
        let (first, second, third) = (next(), next(), next());
        shares.enter(first, "a".into());
        shares.enter(second, "a".into());
        assert!(!shares.admits("a") && shares.admits("b"));
        shares.enter(third, "b".into());
        assert!(!shares.admits("b") && shares.free() == 0, "all places are taken");
        shares.leave(first);
        assert!(shares.admits("a") && shares.admits("b"));
    }
}

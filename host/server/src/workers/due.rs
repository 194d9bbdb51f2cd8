//! Rows that fall due: taken under leases, so that one replica in the deployment works on each at a
//! time, and one that a crash leaves behind is taken up again when its lease has ended. They are
//! worked on side by side, of each organization in turn.
//!
//! Knows nothing of what a row says or of what is done with it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use charter_kernel::unit::{Key, Space, Taken, Unit, Write};
use tokio::task::{Id, JoinSet};

use super::fair::{Fair, LOOK_EVERY};
use crate::app::App;

/// How often within a lease a host says that it is still at it.
const HEARD_PER_LEASE: u64 = 4;

/// Due rows of one kind, across all tenants, and how they are taken.
pub(super) struct Due {
    /// The space of the rows.
    pub(super) space: Space,
    /// Whether rows of a kind are taken: the last part of their groups' names.
    pub(super) takes: fn(&App, &str) -> bool,
    /// How long the work on one may take before another may take it up.
    pub(super) lease_ms: i64,
    /// How many are worked on side by side.
    pub(super) places: usize,
}

/// Rows that are worked on, and whose they are.
#[derive(Default)]
pub(super) struct Running {
    tasks: JoinSet<()>,
    groups: HashMap<Id, String>,
}

impl Due {
    /// Works on what falls due until the host drains, gives back what it has not begun with, and waits for
    /// what it has.
    pub(super) async fn each<W: Future<Output = ()> + Send + 'static>(
        self,
        app: &Arc<App>,
        work: impl Fn(Taken) -> W,
    ) {
        let bell = app.store.bell(&self.space);
        let mut due = Fair::new(bell.clone(), self.space.clone(), self.lease_ms, self.places);
        let mut running = Running::default();
        while !app.draining.is_cancelled() {
            let look = due.look(app, |kind| (self.takes)(app, kind));
            let Some(looked) = app.draining.run_until_cancelled(look).await else { break };
            let wait = match looked {
                Ok(looked) => {
                    // There may be more of the same.
                    let wait = if looked.taken.is_empty() { looked.wait } else { Duration::ZERO };
                    for (group, taken) in looked.taken {
                        running.begin(group, work(taken));
                    }
                    wait
                }
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        space = self.space.as_str(),
                        "what is due could not be taken"
                    );
                    LOOK_EVERY
                }
            };
            tokio::select! {
                () = app.draining.cancelled() => {}
                () = bell.wait() => {}
                () = tokio::time::sleep(wait) => {}
                Some(group) = running.wait_for_end() => due.leave(&group),
            }
            while let Some(group) = running.has_ended() {
                due.leave(&group);
            }
        }
        due.give_back(app).await;
        while running.wait_for_end().await.is_some() {}
    }
}

/// Goes on saying that this host works on a row, until another does. Never ends by itself.
pub(super) async fn keep_lease(app: &App, key: &Key, token: &str, lease_ms: i64) {
    let heard_every =
        Duration::from_millis(u64::try_from(lease_ms).unwrap_or_default() / HEARD_PER_LEASE);
    loop {
        tokio::time::sleep(heard_every).await;
        let until = app.store.now().plus_ms(lease_ms);
        let write = Write::Extend { key: key.clone(), token: token.to_owned(), until };
        let said = app.store.commit_settling(Unit { writes: vec![write], ..Unit::default() }).await;
        if said.is_err_and(|error| error.refusal().is_some()) {
            return;
        }
    }
}

impl Running {
    pub(super) fn begin(&mut self, group: String, work: impl Future<Output = ()> + Send + 'static) {
        let id = self.tasks.spawn(work).id();
        self.groups.insert(id, group);
    }

    /// How many are worked on.
    pub(super) fn len(&self) -> usize {
        self.groups.len()
    }

    /// Whether one of this group's is worked on.
    pub(super) fn has(&self, group: &str) -> bool {
        self.groups.values().any(|running| running == group)
    }

    /// Waits for the next to end, and names its group; `None` while none is worked on.
    pub(super) async fn wait_for_end(&mut self) -> Option<String> {
        let ended = self.tasks.join_next_with_id().await?;
        self.groups.remove(&ended.map_or_else(|error| error.id(), |(id, ())| id))
    }

    /// The group of one that has ended already.
    pub(super) fn has_ended(&mut self) -> Option<String> {
        let ended = self.tasks.try_join_next_with_id()?;
        self.groups.remove(&ended.map_or_else(|error| error.id(), |(id, ())| id))
    }
}

//! Rows that fall due: taken under leases, so that one replica in the deployment works on each at a
//! time, and one that a crash leaves behind is taken up again when its lease has ended.
//!
//! Knows nothing of what a row says or of what is done with it.

use std::sync::Arc;
use std::time::Duration;

use charter_kernel::unit::{Key, Space, Take, Taken, Unit, Write};
use charter_store::CommitError;

use super::LOOK_EVERY;
use crate::app::App;

/// How often within a lease a host says that it is still at it.
const HEARD_PER_LEASE: u64 = 4;

/// Due rows of one kind, across all tenants, and how they are taken.
pub(super) struct Due {
    /// Where they lie.
    pub(super) space: Space,
    /// The group among the space's leased rows.
    pub(super) group: String,
    /// How long the work on one may take before another may take it up.
    pub(super) lease_ms: i64,
}

impl Due {
    /// Whether any is due now. One that cannot be asked after is not: the next look finds it.
    pub(super) async fn any(&self, app: &App) -> bool {
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
            if said.is_err_and(|error| error.refused().is_some()) {
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
            if !self.any(app).await {
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
}
